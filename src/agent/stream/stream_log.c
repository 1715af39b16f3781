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
#include "log_file.h"
#include "log_reader.h"

static_assert((int)LOG_READER_PIECE_MAX <= (int)STREAM_CHUNK_BYTES, "a piece fits into one message");

enum { CHUNKS_AT_ONCE = 16, REOPEN_MS = 60, UNHEARD_PATIENCE_MS = 3000, INDEX_EVERY_MS = 1000 };

struct stream_log {
    struct agent_node *agent;
    struct arena arena;
    const struct message_log_read *wanted;  // not begun: its user is not known yet
    struct user_info user;                  // groups in the arena; its texts are used in begin() only
    bool switch_user, follow, opened, error;
    struct log_file file;      // ours, of an older release; else only its path is used
    struct kept_file kept;     // ours
    struct log_place at;       // where what was read last ends
    uint64_t acknowledged;     // its client has everything before this
    bool client, resumed, placed, told_lost;
    bool input;                  // a client is told where its input stands
    struct stream_fd *remote;    // the socket to the reading process; NULL: the file is ours
    pid_t pid;
    bool times;                // each piece says when it was written
    struct log_times *index;   // NULL: not looked for yet
    int64_t indexed_ms;        // when it was
    bool answer_waits;         // until the connection takes more
    bool asked, asked_over;    // an answer is due; the attempt had ended before it was asked for
    int64_t begun_ms, asked_ms, next_try_ms;
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
    launch_kept_close(&l->kept);
    arena_done(&l->arena);
    free(l->index);
    free(l);
    return NULL;
}

// One that was never heard of may be on its way: who attaches can be quicker than the launch.
static bool attempt_over(const struct agent_stream *s) {
    const struct agent_logic *l = s->all->agent->logic;
    enum agent_phase p = agent_logic_phase(l, s->id, s->attempt);
    if (p == AGENT_UNKNOWN && !agent_logic_forgotten(l, s->id, s->attempt))
        return clock_mono_ms() - s->log->begun_ms > UNHEARD_PATIENCE_MS;
    return p == AGENT_ENDED || p == AGENT_UNKNOWN;
}

static void fail(struct agent_stream *s, int error) {
    cleanup_arena struct arena a = {0};
    const char *path = s->log->file.path,
               *never = agent_logic_launch_failure(s->all->agent->logic, s->id, s->attempt);
    if (error == ENOENT && never && s->log->client)  // told once, by the stream of the output
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
static int64_t time_of(struct agent_stream *s, uint64_t position, uint64_t *until) {
    struct stream_log *l = s->log;
    int64_t at_ms = l->index ? launch_times_of(l->index, position, until) : 0;
    if (!l->index || (*until == UINT64_MAX && clock_mono_ms() - l->indexed_ms >= INDEX_EVERY_MS)) {
        load_index(s);
        at_ms = launch_times_of(l->index, position, until);
    }
    if (*until != UINT64_MAX || (!l->index->len && attempt_over(s)))
        return at_ms;
    return l->at.written_ms ? l->at.written_ms : attempt_over(s) ? 0 : clock_wall_ms();
}

static void put(struct agent_stream *s, const char *data, size_t len) {
    uint64_t at = s->log->at.at - len;
    s->credit -= len < s->credit ? len : s->credit;
    while (len) {
        uint64_t until = UINT64_MAX;
        int64_t at_ms = s->log->times ? time_of(s, at, &until) : 0;
        size_t n = s->log->times && until - at < len ? (size_t)(until - at) : len;
        struct message_stream m = {.stream = s->number,
                                   .fd = 1,
                                   .offset = at + n,
                                   .file = s->log->at.file,
                                   .data = {.data = data, .len = n},
                                   .time_ms = at_ms};
        agent_send(s->all->agent, MESSAGE_STREAM_DATA, &m);
        at += n;
        data += n;
        len -= n;
    }
}

// The end, with what was dropped meanwhile.
static void finish(struct agent_stream *s) {
    const struct stream_log *l = s->log;
    struct message_stream m = {.stream = s->number,
                               .eof = true,
                               .offset = l->at.at,
                               .lost_bytes =
                                   l->kept.head && l->placed ? atomic_load(&l->kept.head->lost) : 0};
    agent_send(s->all->agent, MESSAGE_STREAM_END, &m);
    stream_close(s);
}

// What a read has given; `over`: the attempt had ended before. False when that is all for now, or
// the stream is gone.
static bool take(struct agent_stream *s, const char *data, ssize_t n, bool over) {
    struct stream_log *l = s->log;
    if (n == -ENOENT && !l->opened && l->follow && !over) {
        l->next_try_ms = clock_mono_ms() + REOPEN_MS;
        return false;
    }
    if (n < 0) {
        fail(s, (int)-n);
        return false;
    }
    l->opened = true;
    if (n > 0) {
        put(s, data, (size_t)n);
        return true;
    }
    if (over)
        finish(s);
    return false;
}

// Asked before reading: what is written before the end is then read before we stop.
static bool is_over(const struct agent_stream *s) {
    return !s->log->follow || attempt_over(s);
}

static size_t room(const struct agent_stream *s) {
    uint64_t credit = stream_room(s);
    return credit < LOG_READER_PIECE_MAX ? (size_t)credit : LOG_READER_PIECE_MAX;
}

static void ask(struct agent_stream *s) {
    struct stream_log *l = s->log;
    if (l->asked || !room(s))
        return;
    l->asked_over = is_over(s);
    int rc = stream_log_reader_ask(l->remote->fd, (uint32_t)room(s));
    if (rc < 0) {
        fail(s, EPIPE);
        return;
    }
    l->asked = true;
    l->asked_ms = clock_mono_ms();
}

static void on_answer(struct stream_fd *w, int events) {
    struct agent_stream *s = w->owner;
    struct stream_log *l = s->log;
    char data[LOG_READER_PIECE_MAX];
    if (!room(s)) {  // many were asked at once; it waits with its reader
        stream_fd_want(w, 0);
        l->answer_waits = true;
        return;
    }
    ssize_t n = stream_log_reader_answer(w->fd, data, sizeof data, &l->at);
    if (n == -EAGAIN)
        return;
    l->asked = false;
    if (take(s, data, n, l->asked_over))
        ask(s);
}

static void hear_answer(struct agent_stream *s, int64_t now_ms) {
    if (!room(s))
        return;
    s->log->answer_waits = false;
    s->log->asked_ms = now_ms;
    stream_fd_want(s->log->remote, UV_READABLE);
}

static int start_remote(struct agent_stream *s) {
    struct stream_log *l = s->log;
    struct log_reader_order o = {.path = l->file.path,
                                 .tail_lines = l->file.tail_lines,
                                 .from = l->at.at,
                                 .file = l->at.file,
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
    l->kept = (struct kept_file){.fd = -1};
    l->client = m->attached;
    l->resumed = m->resumed && !m->placed;
    l->placed = s->input.placed = m->placed;
    l->at = (struct log_place){m->file, m->offset, 0};
    l->times = m->times;
    l->error = m->source == LOG_SOURCE_ERROR;
    l->acknowledged = m->offset;
    l->begun_ms = clock_mono_ms();
    l->follow = m->follow;
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
    return s->log && s->log->client;
}

// -EBADMSG: a file of an older release, without a header.
static int open_kept(struct stream_log *l) {
    cleanup_close int fd = open(l->file.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int rc = fd < 0 ? -errno : launch_kept_open(fd, &l->kept);
    if (rc < 0)
        return rc;
    TAKE_FD(fd);
    uint64_t start = atomic_load(&l->kept.head->start), len = atomic_load(&l->kept.head->len);
    if (l->client)
        atomic_store(&l->kept.head->client, 1);
    if (l->file.tail_lines >= 0 && !l->at.at)
        l->at.at =
            (uint64_t)stream_log_file_tail(l->kept.fd, l->file.tail_lines, (off_t)(KEPT_HEAD_BYTES + start),
                                           (off_t)(KEPT_HEAD_BYTES + len)) -
            KEPT_HEAD_BYTES;
    return 0;
}

static ssize_t say(char *out, size_t size, const char *text, uint64_t bytes) {
    int n = snprintf(out, size, "acequia: %llu bytes of output %s\n", (unsigned long long)bytes, text);
    return n < (int)size ? n : (ssize_t)size;
}

// What the client has makes room for more.
static void acknowledge(struct stream_log *l, uint64_t at) {
    int rc = l->client && l->kept.head ? launch_kept_acknowledge(&l->kept, at) : 0;
    if (rc == 0)
        return;
    log_warn("%s: its file system cannot free parts of a file (%s); output over %d MiB is dropped", l->file.path,
             strerror(-rc), KEPT_STREAM_BYTES >> 20);
    l->client = false;
    atomic_store(&l->kept.head->client, 0);
}

// A job may have several clients (run, and attach beside it): what one has not got yet stays for it.
static uint64_t least_acknowledged(const struct agent_stream *s) {
    uint64_t least = s->log->acknowledged;
    for (uint32_t i = 0; i < s->all->list.len; i++) {
        const struct agent_stream *x = s->all->list.at[i];
        if (stream_log_is_client(x) && x->id == s->id && x->attempt == s->attempt &&
            streq(x->log->file.path, s->log->file.path) && x->log->acknowledged < least)
            least = x->log->acknowledged;
    }
    return least;
}

void stream_log_ack(struct agent_stream *s, uint64_t offset) {
    if (offset > s->log->at.at)
        return;  // it was never sent
    if (offset > s->log->acknowledged)
        s->log->acknowledged = offset;
    acknowledge(s->log, least_acknowledged(s));
}

// For a controller of release 0.1, which knows no positions: what is missing is zeros, or told in the output.
static ssize_t fill_gap(struct stream_log *l, char *out, size_t size, uint64_t start) {
    uint64_t missing = start - l->at.at;
    size_t n = missing < size ? (size_t)missing : size;
    l->at.at = l->resumed ? l->at.at + n : start;
    if (!l->resumed)
        return say(out, size, "before this were read by the job's client and are not kept", missing);
    memset(out, 0, n);
    return (ssize_t)n;
}

static ssize_t read_kept(struct stream_log *l, char *out, size_t size, bool over) {
    int rc = l->kept.head ? 0 : open_kept(l);
    if (rc < 0)
        return rc;
    uint64_t start = atomic_load(&l->kept.head->start), lost = atomic_load(&l->kept.head->lost);
    if (l->at.at < start && !l->placed)
        return fill_gap(l, out, size, start);
    if (l->at.at < start)
        l->at.at = start;  // the position of what follows says how much is missing
    if (l->at.at > atomic_load(&l->kept.head->len))
        return -ERANGE;
    ssize_t n = launch_kept_read(&l->kept, l->at.at, out, size);
    if (n > 0) {
        l->at.at += (uint64_t)n;
        if (!l->placed)
            acknowledge(l, l->at.at);
    } else if (n == 0 && over && lost && !l->told_lost && !l->placed) {
        l->told_lost = true;
        return say(out, size, "were dropped: nobody read them, and the limit of kept output was reached", lost);
    }
    return n;
}

static ssize_t read_own(struct stream_log *l, char *out, size_t size, bool over) {
    ssize_t n = l->file.fd >= 0 ? -EBADMSG : read_kept(l, out, size, over);
    if (n != -EBADMSG)
        return n;
    n = stream_log_file_read(&l->file, out, size);
    l->at = (struct log_place){0, (uint64_t)l->file.at, l->file.written_ms};
    return n;
}

static void pump_own(struct agent_stream *s) {
    struct stream_log *l = s->log;
    char data[LOG_READER_PIECE_MAX];
    bool over = is_over(s);
    if (l->input)
        serve_input(s);
    for (int i = 0; i < CHUNKS_AT_ONCE && room(s); i++)
        if (!take(s, data, read_own(l, data, room(s), over), over))
            return;
}

void stream_log_pump(struct agent_stream *s, int64_t now_ms) {
    struct stream_log *l = s->log;
    if (l->wanted) {
        begin(s);
        return;
    }
    if (now_ms < l->next_try_ms)
        return;
    if (!l->remote)
        pump_own(s);
    else if (!l->asked)
        ask(s);
    else if (l->answer_waits)
        hear_answer(s, now_ms);
    else if (now_ms - l->asked_ms > STREAM_READ_PATIENCE_MS)
        stream_finish(s, "the output cannot be read: its file system does not answer");
}

void stream_log_kick(struct agent_stream *s) {
    s->log->next_try_ms = 0;
    stream_log_pump(s, clock_mono_ms());
}
