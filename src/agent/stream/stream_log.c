// Owns reading a job's output for somebody. Files of users are read by a process of their own that
// has become the job's user (log_reader.c): nobody reads through us what they could not read
// themselves, and a file system that hangs holds up that stream alone. Output of attached jobs lies
// in our own folder and is read here; its client also gives the job its input through such a stream.
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/node/job_files.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "log_flow.h"

static_assert((int)LOG_READER_PIECE_MAX <= (int)STREAM_CHUNK_BYTES, "a piece fits into one message");

enum { INDEX_EVERY_MS = 1000 };

struct stream_log {
    struct agent_node *agent;
    struct arena arena;
    const struct message_log_read *wanted;  // not begun: its user is not known yet
    struct user_info user;                  // groups in the arena; its texts are used in begin() only
    struct log_flow flow;
    bool switch_user, error;
    struct log_file file;      // ours, of an older release; else only its path is used
    bool input;                // a client is told where its input stands
    struct stream_fd *remote;  // the socket to the reading process; NULL: the file is ours
    pid_t pid;
    struct log_times *index;  // NULL: not looked for yet
    int64_t indexed_ms;       // when it was
    bool answer_waits;        // until the connection takes more
};

struct stream_log *stream_log_free(struct stream_log *l) {
    if (!l)
        return NULL;
    stream_fd_close(l->remote);
    if (l->pid > 0) {
        kill(l->pid, SIGKILL);
        agent_reap(l->agent, l->pid, l->user.uid);
    }
    stream_log_file_done(&l->file);
    launch_kept_close(&l->flow.kept);
    arena_done(&l->arena);
    free(l->index);
    free(l);
    return NULL;
}

static bool attempt_over(const struct agent_stream *s) {
    return agent_log_flow_attempt_over(&s->log->flow, s->all->agent->logic, clock_mono_ms());
}

static void fail(struct agent_stream *s, int error) {
    cleanup_arena struct arena a = {0};
    const char *path = s->log->file.path,
               *never = agent_logic_launch_failure(s->all->agent->logic, s->id, s->attempt);
    if (error == ENOENT && never && s->log->flow.client)  // told once, by the stream of the output
        stream_finish(s, s->log->error ? NULL : arena_printf(&a, "not started there: %s", never));
    else if (error == EBADF && streq(path, "/dev/null"))
        stream_finish(s, "the job's output goes to /dev/null: nothing of it is kept");
    else if (error == EBADF)
        stream_finish(
            s, arena_printf(&a, "the output goes to %s, which is not a plain file and cannot be read again",
                            path));
    else if (error == EPIPE)
        stream_finish(s, "the output cannot be read: the process that reads it was killed");
    else if (error == ERANGE)
        stream_finish(s, "the position is beyond the end of the output");
    else
        stream_finish(s, arena_printf(&a, "output file %s cannot be read: %s", path, strerror(error)));
}

static void load_index(struct agent_stream *s) {
    struct stream_log *l = s->log;
    cleanup_close int fd = streams_times_open(l->agent, s->id, s->attempt, l->error);
    if (!l->index)
        l->index = xcalloc(1, sizeof *l->index);
    launch_times_read(l->index, fd);
    l->indexed_ms = clock_mono_ms();
}

// What is not in the index yet was written just now, or is the end of a log whose last write is known. Of an attempt
// that has ended and has no index nothing is known.
static int64_t written_ms(void *ctx, uint64_t position, uint64_t *until) {
    struct agent_stream *s = ctx;
    struct stream_log *l = s->log;
    int64_t at_ms = l->index ? launch_times_of(l->index, position, until) : 0;
    if (!l->index || (*until == UINT64_MAX && clock_mono_ms() - l->indexed_ms >= INDEX_EVERY_MS)) {
        load_index(s);
        at_ms = launch_times_of(l->index, position, until);
    }
    if (*until != UINT64_MAX || (!l->index->len && attempt_over(s)))
        return at_ms;
    return l->flow.at.written_ms ? l->flow.at.written_ms : attempt_over(s) ? 0 : clock_wall_ms();
}

// --- what the flow asks for ---

// -EBADMSG: a file of an older release, without a header.
static int do_open(void *ctx, struct kept_file *out) {
    const struct stream_log *l = ((struct agent_stream *)ctx)->log;
    if (!agent_log_flow_has_begun(&l->flow, l->agent->logic))
        return -ENOENT;
    cleanup_close int fd = open(l->file.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int rc = fd < 0 ? -errno : launch_kept_open(fd, out);
    if (rc == 0)
        TAKE_FD(fd);
    return rc;
}

static ssize_t read_own(void *ctx, char *out, size_t size, bool over) {
    struct stream_log *l = ((struct agent_stream *)ctx)->log;
    ssize_t n = l->file.fd >= 0 ? -EBADMSG : agent_log_flow_read_kept(&l->flow, out, size, over);
    if (n != -EBADMSG)
        return n;
    n = stream_log_file_read(&l->file, out, size);
    l->flow.at = (struct log_place){0, (uint64_t)l->file.at, l->file.written_ms};
    return n;
}

static uint64_t room_of(void *ctx) {
    return stream_room(ctx);
}

static void do_spend(void *ctx, uint64_t bytes) {
    struct agent_stream *s = ctx;
    s->credit -= bytes < s->credit ? bytes : s->credit;
}

static void do_send(void *ctx, enum message_type type, struct message_stream *m) {
    const struct agent_stream *s = ctx;
    agent_send(s->all->agent, type, m);
}

static void do_fail(void *ctx, int error) {
    fail(ctx, error);
}

static void do_end(void *ctx) {
    stream_close(ctx);
}

static const struct log_flow_host flow_host = {.read = read_own,
                                               .open = do_open,
                                               .room = room_of,
                                               .spend = do_spend,
                                               .written_ms = written_ms,
                                               .send = do_send,
                                               .failed = do_fail,
                                               .end = do_end};

// --- files that a process of their user reads ---

static void ask(struct agent_stream *s) {
    struct stream_log *l = s->log;
    size_t room = agent_log_flow_ask(&l->flow, l->agent->logic, clock_mono_ms());
    if (room && stream_log_reader_ask(l->remote->fd, (uint32_t)room) < 0)
        fail(s, EPIPE);
}

static void on_answer(struct stream_fd *w, int events) {
    struct agent_stream *s = w->owner;
    struct stream_log *l = s->log;
    char data[LOG_READER_PIECE_MAX];
    if (!agent_log_flow_room(&l->flow)) {  // many were asked at once; it waits with its reader
        stream_fd_want(w, 0);
        l->answer_waits = true;
        return;
    }
    ssize_t n = stream_log_reader_answer(w->fd, data, sizeof data, &l->flow.at);
    if (n == -EAGAIN)
        return;
    if (agent_log_flow_answer(&l->flow, data, n, clock_mono_ms()))
        ask(s);
}

static void hear_answer(struct agent_stream *s, int64_t now_ms) {
    if (!agent_log_flow_room(&s->log->flow))
        return;
    s->log->answer_waits = false;
    s->log->flow.asked_ms = now_ms;
    stream_fd_want(s->log->remote, UV_READABLE);
}

static int start_remote(struct agent_stream *s) {
    struct stream_log *l = s->log;
    struct log_reader_order o = {.path = l->file.path,
                                 .tail_lines = l->file.tail_lines,
                                 .from = l->flow.at.at,
                                 .file = l->flow.at.file,
                                 .user = l->switch_user ? &l->user : NULL};
    int fd;
    if (agent_has_stuck(s->all->agent, l->user.uid))
        return -EMFILE;
    int rc = stream_log_reader_start(&o, &fd, &l->pid);
    if (rc < 0)
        return rc;
    l->remote = stream_fd_new(s->all->agent, fd, s, on_answer);
    if (!l->remote) {
        close(fd);
        return -ENOMEM;
    }
    return 0;
}

// Where the input stands, as soon as the attempt has been launched; one that has ended, or reads none, takes none.
static void serve_input(struct agent_stream *s) {
    if (stream_input_open(s) == 0)
        stream_input_tell(s);
    else if (attempt_over(s))
        stream_input_refuse(s);
}

// Whose output it is must be known; until then the stream is there and silent.
static void begin(struct agent_stream *s) {
    struct stream_log *l = s->log;
    const struct message_log_read *m = l->wanted;
    struct agent_node *a = l->agent;
    struct error e = {0};
    const struct user_info *user;
    int rc = agent_job_user(a->users, m->spec, clock_mono_ms(), &user, &e);
    if (rc == -EINPROGRESS)
        return;
    l->wanted = NULL;
    if (rc < 0) {
        stream_finish(s, e.text);
        return;
    }
    l->user = *user;
    l->user.groups = arena_memdup(&l->arena, user->groups, user->ngroups * sizeof *user->groups);
    const char *path = agent_job_log_path(&a->request_node, m, user->home, &l->arena, &e);
    if (!path) {
        stream_finish(s, e.text);
        return;
    }
    l->file.path = arena_strdup(&l->arena, path);
    l->switch_user = a->request_node.root;
    l->input = m->spec->attach && m->attached && m->source == LOG_SOURCE_OUTPUT;
    if (!m->spec->attach && start_remote(s) < 0) {
        stream_finish(s, "the output cannot be read now: the node is out of processes, or too many readers "
                         "hang in its file systems");
        return;
    }
    stream_log_pump(s, clock_mono_ms());
}

void stream_log_start(struct agent_stream *s, const struct message_log_read *m) {
    struct stream_log *l = xcalloc(1, sizeof *l);
    s->log = l;
    l->agent = s->all->agent;
    l->file = (struct log_file){.fd = -1, .tail_lines = m->tail_lines};
    l->flow = (struct log_flow){.host = &flow_host, .ctx = s};
    agent_log_flow_begin(&l->flow, m, clock_mono_ms());
    s->input.placed = m->placed;
    l->error = m->source == LOG_SOURCE_ERROR;
    if (!m->spec) {
        stream_finish(s, "the request does not say whose output it is");
        return;
    }
    if (m->spec->attach && m->spec->pty && m->source == LOG_SOURCE_ERROR) {
        stream_finish(s, NULL);  // a terminal shows both as one
        return;
    }
    l->wanted = schema_copy(message_info(MESSAGE_LOG_READ)->schema, m, &l->arena);
    begin(s);
}

bool stream_log_is_client(const struct agent_stream *s) {
    return s->log && s->log->flow.client;
}

// What the client has makes room for more.
static void acknowledge(struct stream_log *l, uint64_t at) {
    int rc = agent_log_flow_acknowledge(&l->flow, at);
    if (rc < 0)
        log_warn("%s: its file system cannot free parts of a file (%s); output over %d MiB is dropped",
                 l->file.path, strerror(-rc), KEPT_STREAM_BYTES >> 20);
}

// A job may have several clients (run, and attach beside it): what one has not got yet stays for it.
static uint64_t least_acknowledged(const struct agent_stream *s) {
    uint64_t least = s->log->flow.acknowledged;
    for (uint32_t i = 0; i < s->all->list.len; i++) {
        const struct agent_stream *x = s->all->list.at[i];
        if (stream_log_is_client(x) && x->id == s->id && x->attempt == s->attempt &&
            streq(x->log->file.path, s->log->file.path) && x->log->flow.acknowledged < least)
            least = x->log->flow.acknowledged;
    }
    return least;
}

void stream_log_ack(struct agent_stream *s, uint64_t offset) {
    if (offset > s->log->flow.at.at)
        return;  // it was never sent
    if (offset > s->log->flow.acknowledged)
        s->log->flow.acknowledged = offset;
    acknowledge(s->log, least_acknowledged(s));
}

void stream_log_pump(struct agent_stream *s, int64_t now_ms) {
    struct stream_log *l = s->log;
    if (l->wanted) {
        begin(s);
        return;
    }
    if (now_ms < l->flow.next_try_ms)
        return;
    if (!l->remote && l->input)
        serve_input(s);
    if (!l->remote)
        agent_log_flow_pump(&l->flow, l->agent->logic, now_ms);
    else if (!l->flow.asked)
        ask(s);
    else if (l->answer_waits)
        hear_answer(s, now_ms);
    else if (now_ms - l->flow.asked_ms > STREAM_READ_PATIENCE_MS)
        stream_finish(s, "the output cannot be read: its file system does not answer");
}

void stream_log_kick(struct agent_stream *s) {
    s->log->flow.next_try_ms = 0;
    stream_log_pump(s, clock_mono_ms());
}
