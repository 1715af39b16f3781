// Owns what a stream of a job's output does; see the header.
#include "log_flow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CHUNKS_AT_ONCE = 16, REOPEN_MS = 60, UNHEARD_PATIENCE_MS = 3000 };

void agent_log_flow_begin(struct log_flow *f, const struct message_log_read *m, int64_t now_ms) {
    f->stream = m->stream;
    f->id = m->id;
    f->attempt = m->attempt;
    f->epoch = m->epoch;
    f->follow = m->follow;
    f->client = m->attached;
    f->placed = m->placed;
    f->resumed = m->resumed && !m->placed;
    f->times = m->times;
    f->tail_lines = m->tail_lines;
    f->at = (struct log_place){m->file, m->offset, 0};
    f->kept = (struct kept_file){.fd = -1};
    f->acknowledged = m->offset;
    f->begun_ms = now_ms;
}

bool agent_log_flow_has_begun(const struct log_flow *f, const struct agent_logic *l) {
    return !agent_logic_is_other(l, f->id, f->attempt, f->epoch) &&
           agent_logic_phase(l, f->id, f->attempt) != AGENT_LAUNCHING;
}

// One that was never heard of may be on its way: who attaches can be quicker than the launch.
bool agent_log_flow_attempt_over(const struct log_flow *f, const struct agent_logic *l, int64_t now_ms) {
    enum agent_phase p = agent_logic_phase(l, f->id, f->attempt);
    if (p == AGENT_UNKNOWN && !agent_logic_forgotten(l, f->id, f->attempt, f->epoch))
        return now_ms - f->begun_ms > UNHEARD_PATIENCE_MS;
    return p == AGENT_ENDED || p == AGENT_UNKNOWN;
}

bool agent_log_flow_over(const struct log_flow *f, const struct agent_logic *l, int64_t now_ms) {
    return !f->follow || agent_log_flow_attempt_over(f, l, now_ms);
}

size_t agent_log_flow_room(const struct log_flow *f) {
    uint64_t credit = f->host->room(f->ctx);
    return credit < LOG_READER_PIECE_MAX ? (size_t)credit : LOG_READER_PIECE_MAX;
}

static void put(struct log_flow *f, const char *data, size_t len) {
    uint64_t at = f->at.at - len;
    f->host->spend(f->ctx, len);
    while (len) {
        uint64_t until = UINT64_MAX;
        int64_t at_ms = f->times ? f->host->written_ms(f->ctx, at, &until) : 0;
        size_t n = f->times && until - at < len ? (size_t)(until - at) : len;
        struct message_stream m = {.stream = f->stream,
                                   .fd = 1,
                                   .offset = at + n,
                                   .file = f->at.file,
                                   .data = {.data = data, .len = n},
                                   .time_ms = at_ms};
        f->host->send(f->ctx, MESSAGE_STREAM_DATA, &m);
        at += n;
        data += n;
        len -= n;
    }
}

// The end, with what was dropped meanwhile.
static void finish(struct log_flow *f) {
    struct message_stream m = {.stream = f->stream,
                               .eof = true,
                               .offset = f->at.at,
                               .lost_bytes =
                                   f->kept.head && f->placed ? atomic_load(&f->kept.head->lost) : 0};
    f->host->send(f->ctx, MESSAGE_STREAM_END, &m);
    f->host->end(f->ctx);
}

bool agent_log_flow_take(struct log_flow *f, const char *data, ssize_t n, bool over, int64_t now_ms) {
    if (n == -ENOENT && !f->opened && f->follow && !over) {
        f->next_try_ms = now_ms + REOPEN_MS;
        return false;
    }
    if (n < 0) {
        f->host->failed(f->ctx, (int)-n);
        return false;
    }
    f->opened = true;
    if (n > 0) {
        put(f, data, (size_t)n);
        return true;
    }
    if (over)
        finish(f);
    return false;
}

size_t agent_log_flow_ask(struct log_flow *f, const struct agent_logic *l, int64_t now_ms) {
    size_t room = f->asked || now_ms < f->next_try_ms ? 0 : agent_log_flow_room(f);
    if (!room)
        return 0;
    f->asked_over = agent_log_flow_over(f, l, now_ms);
    f->asked = true;
    f->asked_ms = now_ms;
    return room;
}

bool agent_log_flow_answer(struct log_flow *f, const char *data, ssize_t n, int64_t now_ms) {
    f->asked = false;
    return agent_log_flow_take(f, data, n, f->asked_over, now_ms);
}

void agent_log_flow_pump(struct log_flow *f, const struct agent_logic *l, int64_t now_ms) {
    char data[LOG_READER_PIECE_MAX];
    bool over = agent_log_flow_over(f, l, now_ms);
    for (int i = 0; i < CHUNKS_AT_ONCE; i++) {
        size_t room = agent_log_flow_room(f);
        if (!room || !agent_log_flow_take(f, data, f->host->read(f->ctx, data, room, over), over, now_ms))
            return;
    }
}

// --- kept output ---

int agent_log_flow_acknowledge(struct log_flow *f, uint64_t at) {
    int rc = f->client && f->kept.head ? launch_kept_acknowledge(&f->kept, at) : 0;
    if (rc == 0)
        return 0;
    f->client = false;
    atomic_store(&f->kept.head->client, 0);
    return rc;
}

static int open_kept(struct log_flow *f) {
    int rc = f->host->open(f->ctx, &f->kept);
    if (rc < 0)
        return rc;
    uint64_t start = atomic_load(&f->kept.head->start), len = atomic_load(&f->kept.head->len);
    if (f->client)
        atomic_store(&f->kept.head->client, 1);
    if (f->tail_lines >= 0 && !f->at.at)
        f->at.at = (uint64_t)stream_log_file_tail(f->kept.fd, f->tail_lines, (off_t)(KEPT_HEAD_BYTES + start),
                                                  (off_t)(KEPT_HEAD_BYTES + len)) -
                   KEPT_HEAD_BYTES;
    return 0;
}

static ssize_t say(char *out, size_t size, const char *text, uint64_t bytes) {
    int n = snprintf(out, size, "acequia: %llu bytes of output %s\n", (unsigned long long)bytes, text);
    return n < (int)size ? n : (ssize_t)size;
}

// For a controller of release 0.1, which knows no positions: what is missing is zeros, or told in the output.
static ssize_t fill_gap(struct log_flow *f, char *out, size_t size, uint64_t start) {
    uint64_t missing = start - f->at.at;
    size_t n = missing < size ? (size_t)missing : size;
    f->at.at = f->resumed ? f->at.at + n : start;
    if (!f->resumed)
        return say(out, size, "before this were read by the job's client and are not kept", missing);
    memset(out, 0, n);
    return (ssize_t)n;
}

ssize_t agent_log_flow_read_kept(struct log_flow *f, char *out, size_t size, bool over) {
    int rc = f->kept.head ? 0 : open_kept(f);
    if (rc < 0)
        return rc;
    uint64_t start = atomic_load(&f->kept.head->start), lost = atomic_load(&f->kept.head->lost);
    if (f->at.at < start && !f->placed)
        return fill_gap(f, out, size, start);
    if (f->at.at < start)
        f->at.at = start;  // the position of what follows says how much is missing
    if (f->at.at > atomic_load(&f->kept.head->len))
        return -ERANGE;
    ssize_t n = launch_kept_read(&f->kept, f->at.at, out, size);
    if (n > 0) {
        f->at.at += (uint64_t)n;
        if (!f->placed)
            agent_log_flow_acknowledge(f, f->at.at);
    } else if (n == 0 && over && lost && !f->told_lost && !f->placed) {
        f->told_lost = true;
        return say(out, size, "were dropped: nobody read them, and the limit of kept output was reached",
                   lost);
    }
    return n;
}
