// Owns commands that run inside an attempt for as long as their stream is open (acequia exec, checkpoint
// commands): one process with pipes or a terminal.
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"

enum { REPLY_TIMEOUT_MS = 1000 };

struct output {
    struct stream_exec *exec;
    struct stream_fd *w;
    uint32_t fd, task;  // 1 or 2; rank
};

enum { EARLY_INPUT_MAX = 2 << 20 };  // more than a client may send ahead

struct stream_exec {
    struct agent_stream *stream;
    VEC(struct output *) outputs;
    VEC(struct stream_pipe *) inputs;
    bool terminal, prepared, started, ended;
    // Kept until it is prepared: the job itself may still be on its way into the spool.
    struct arena arena;
    const struct message_exec *asked;
    struct buf early;  // input that came before
    bool early_eof;
    int pass[3], npass;  // handed to the shepherd when it listens
    int64_t begun_ms, ended_ms, next_look_ms;
    struct spool_status status;
    char reason[SPOOL_TEXT_MAX];
};

static void output_close(struct output *o) {
    struct stream_exec *e = o->exec;
    for (uint32_t i = 0; i < e->outputs.len; i++)
        if (e->outputs.at[i] == o) {
            vec_remove(&e->outputs, i);
            break;
        }
    stream_fd_close(o->w);
    free(o);
}

static void pass_close(struct stream_exec *e) {
    for (int i = 0; i < e->npass; i++)
        close(e->pass[i]);
    e->npass = 0;
}

struct stream_exec *stream_exec_free(struct agent_stream *s, struct stream_exec *e) {
    if (!e)
        return NULL;
    while (e->outputs.len)
        output_close(e->outputs.at[0]);
    for (uint32_t i = 0; i < e->inputs.len; i++) {
        stream_pipe_close(e->inputs.at[i]);
        free(e->inputs.at[i]);
    }
    pass_close(e);
    vec_done(&e->outputs);
    vec_done(&e->inputs);
    arena_done(&e->arena);
    buf_done(&e->early);
    free(e);
    return NULL;
}

static void finish(struct agent_stream *s) {
    struct stream_exec *e = s->exec;
    struct spool_status *st = &e->status;
    const char *error = NULL;
    if (st->end == ENDED_LAUNCH_FAILED)
        error = st->text;
    else if (st->end == ENDED_TIMEOUT)
        error = "over its time limit";
    else if (st->end == ENDED_OUT_OF_MEMORY)
        error = st->text;
    else if (st->end == ENDED_NONE)
        error = "ended together with its job";
    spool_remove_step(s->all->agent->spool_fd, s->id, s->attempt, s->step);
    stream_finish(s, st->exit_code, (uint32_t)st->signal, error);
}

static void finish_if_over(struct agent_stream *s) {
    struct stream_exec *e = s->exec;
    if (e->ended && (!e->outputs.len || clock_mono_ms() - e->ended_ms > STREAM_LINGER_MS))
        finish(s);
}

// Reads one output as far as credit goes. False when it has ended.
static bool pump_output(struct output *o) {
    struct agent_stream *s = o->exec->stream;
    char data[STREAM_CHUNK_BYTES];
    while (s->credit) {
        size_t want = s->credit < sizeof data ? (size_t)s->credit : sizeof data;
        ssize_t n = read(o->w->fd, data, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)  // a terminal ends with an error
            return false;
        stream_put(s, o->fd, o->task, data, (size_t)n);
    }
    stream_fd_want(o->w, o->w->events & UV_WRITABLE);
    return true;
}

static void flush_inputs(struct agent_stream *s) {
    size_t waiting = 0;  // for the slowest of its tasks
    for (uint32_t i = 0; i < s->exec->inputs.len; i++) {
        struct stream_pipe *p = s->exec->inputs.at[i];
        stream_pipe_flush(p);
        if (p->pending.len > waiting)
            waiting = p->pending.len;
    }
    stream_credit_input(s, waiting);
}

static void on_output(struct stream_fd *w, int events) {
    struct output *o = w->owner;
    struct agent_stream *s = o->exec->stream;
    if (!pump_output(o)) {
        output_close(o);
        finish_if_over(s);
    }
}

static void on_input(struct stream_fd *w, int events) {
    flush_inputs(w->owner);
}

static bool add_output(struct agent_stream *s, int fd, uint32_t which, uint32_t task) {
    struct output *o = xcalloc(1, sizeof *o);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *o = (struct output){.exec = s->exec, .fd = which, .task = task};
    o->w = stream_fd_new(s->all->agent, fd, o, on_output);
    if (!o->w) {
        close(fd);
        free(o);
        return false;
    }
    vec_push(&s->exec->outputs, o);
    if (s->credit)
        stream_fd_want(o->w, UV_READABLE);
    return true;
}

static void add_input(struct agent_stream *s, int fd, int keep_fd, bool terminal) {
    struct stream_pipe *p = xcalloc(1, sizeof *p);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *p = (struct stream_pipe){.keep_fd = keep_fd, .terminal = terminal};
    p->w = stream_fd_new(s->all->agent, fd, s, on_input);
    if (!p->w)
        close(fd);
    vec_push(&s->exec->inputs, p);
}

static int make_terminal(struct agent_stream *s, const struct message_exec *m, struct launch_request *r) {
    struct stream_exec *e = s->exec;
    int master, slave;
    int rc = stream_open_terminal(m->rows, m->columns, r->uid, r->switch_user, &master, &slave);
    if (rc < 0)
        return rc;
    int writer = fcntl(master, F_DUPFD_CLOEXEC, 3);
    if (writer < 0 || !add_output(s, master, 1, 0)) {
        close(slave);
        return -EMFILE;
    }
    add_input(s, writer, -1, true);
    e->pass[e->npass++] = slave;
    e->terminal = r->tty = r->use_fds = true;
    return 0;
}

static int make_pipes(struct agent_stream *s, struct launch_request *r) {
    struct stream_exec *e = s->exec;
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) < 0)
        return -errno;
    add_input(s, in[1], -1, false);
    e->pass[e->npass++] = in[0];
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    add_output(s, out[0], 1, r->tasks[0].rank);
    e->pass[e->npass++] = out[1];
    if (pipe2(err, O_CLOEXEC) < 0)
        return -errno;
    add_output(s, err[0], 2, r->tasks[0].rank);
    e->pass[e->npass++] = err[1];
    r->use_fds = true;
    return 0;
}

static int make_files(struct agent_stream *s, const struct message_exec *m, struct launch_request *r) {
    return m->pty ? make_terminal(s, m, r) : make_pipes(s, r);
}

// Hands the step to the shepherd; one that is too young is asked again at the next turn.
static void try_start(struct agent_stream *s) {
    struct stream_exec *e = s->exec;
    struct control_request r = {.type = CONTROL_STEP, .step = s->step};
    struct control_reply reply;
    cleanup_arena struct arena a = {0};
    int fd = launch_control_send(s->all->agent->spool_fd, s->id, s->attempt, &r, e->pass, e->npass);
    bool young = fd == -ENOENT || fd == -ECONNREFUSED || fd == -EAGAIN;
    if (young && clock_mono_ms() - e->begun_ms < AGENT_CONTROL_PATIENCE_MS)
        return;
    int rc = fd < 0 ? fd : launch_control_receive(fd, REPLY_TIMEOUT_MS, &reply);
    if (rc < 0) {
        const char *why = rc == -ESHUTDOWN || young ? "the job is ending" : strerror(-rc);
        spool_remove_step(s->all->agent->spool_fd, s->id, s->attempt, s->step);
        stream_finish(s, 0, 0, arena_printf(&a, "cannot be started inside the job: %s", why));
        return;
    }
    e->started = true;
    pass_close(e);  // so that the pipes end with the processes
}

static int prepare(struct agent_stream *s, const struct message_exec *m, struct error *e) {
    struct agent_node *agent = s->all->agent;
    cleanup_arena struct arena a = {0};
    struct launch_request parent, r;
    int rc = spool_read_request(agent->spool_fd, s->id, s->attempt, 0, &a, &parent, e);
    if (rc == 0)
        rc = agent_request_from_exec(&agent->request_node, &parent, m, s->step, &a, &r, e);
    if (rc < 0)
        return rc;
    rc = make_files(s, m, &r);
    if (rc < 0)
        return error_set(e, -rc, "cannot be started inside the job: %s", strerror(-rc));
    return spool_create_step(agent->spool_fd, &r, clock_wall_ms(), e);
}

// A job that is being launched may have no request in the spool yet: then it is looked for again at the next turn.
static void try_prepare(struct agent_stream *s) {
    struct stream_exec *x = s->exec;
    struct error e = {0};
    int rc = prepare(s, x->asked, &e);
    bool young =
        rc == -ENOENT && agent_logic_phase(s->all->agent->logic, s->id, s->attempt) == AGENT_LAUNCHING;
    if (young && clock_mono_ms() - x->begun_ms < AGENT_CONTROL_PATIENCE_MS)
        return;
    if (rc < 0) {
        stream_finish(s, 0, 0, e.text);
        return;
    }
    x->prepared = true;
    for (uint32_t i = 0; i < x->inputs.len && (x->early.len || x->early_eof); i++)
        stream_pipe_write(x->inputs.at[i], x->early.data, x->early.len, x->early_eof);
    buf_done(&x->early);
    x->early = (struct buf){0};
    flush_inputs(s);
    try_start(s);
}

void stream_exec_start(struct agent_stream *s, const struct message_exec *m) {
    struct agent_node *agent = s->all->agent;
    enum agent_phase phase = agent_logic_phase(agent->logic, s->id, s->attempt);
    s->step = s->all->next_step++;
    s->exec = xcalloc(1, sizeof *s->exec);
    s->exec->stream = s;
    s->exec->begun_ms = clock_mono_ms();
    if (phase != AGENT_LAUNCHING && phase != AGENT_RUNNING) {
        stream_finish(s, 0, 0, "the job is not running on this node");
        return;
    }
    s->exec->asked = schema_copy(message_info(MESSAGE_EXEC)->schema, m, &s->exec->arena);
    try_prepare(s);
}

void stream_exec_pump(struct agent_stream *s, int64_t now_ms) {
    struct stream_exec *e = s->exec;
    if (!e->prepared) {
        try_prepare(s);
    } else if (!e->started) {
        try_start(s);
    } else if (e->ended) {
        finish_if_over(s);
    } else if (now_ms >= e->next_look_ms) {
        e->next_look_ms = now_ms + STREAM_LOOK_MS;
        stream_exec_step_ended(s);  // if it has
    }
}

void stream_exec_input(struct agent_stream *s, const struct message_stream *m) {
    struct stream_exec *e = s->exec;
    if (!e->prepared) {
        if (e->early.len + m->data.len <= EARLY_INPUT_MAX)
            buf_add(&e->early, m->data.data, m->data.len);
        e->early_eof |= m->eof;
        return;
    }
    for (uint32_t i = 0; i < s->exec->inputs.len; i++)
        stream_pipe_write(s->exec->inputs.at[i], m->data.data, m->data.len, m->eof);
    flush_inputs(s);
}

void stream_exec_resize(struct agent_stream *s, uint32_t rows, uint32_t columns) {
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    if (s->exec->terminal && s->exec->outputs.len)
        ioctl(s->exec->outputs.at[0]->w->fd, TIOCSWINSZ, &size);
}

void stream_exec_credit(struct agent_stream *s) {
    for (uint32_t i = 0; i < s->exec->outputs.len; i++)
        stream_fd_want(s->exec->outputs.at[i]->w, UV_READABLE);
}

void stream_exec_step_ended(struct agent_stream *s) {
    struct stream_exec *e = s->exec;
    struct spool_status st;
    if (e->ended)
        return;
    bool known = spool_read_status(s->all->agent->spool_fd, s->id, s->attempt, s->step, &st) == 0;
    bool over = agent_logic_phase(s->all->agent->logic, s->id, s->attempt) == AGENT_ENDED;
    if (known && st.state == SPOOL_ENDED)
        e->status = st;
    else if (!over)
        return;
    e->ended = e->started = true;
    e->ended_ms = clock_mono_ms();
    finish_if_over(s);
}

void stream_exec_abandon(struct agent_stream *s) {
    struct control_request r = {.type = CONTROL_KILL, .step = s->step, .signal = SIGHUP,
                                .value_ms = AGENT_LOST_PATIENCE_MS};
    if (s->exec && s->exec->started && !s->exec->ended)
        s->all->agent->control(s->all->agent, s->id, s->attempt, &r);
}
