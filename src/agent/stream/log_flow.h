// A stream of a job's output in an agent: from which position, when there is nothing more to come, what is said at the
// end. Without connections: stream_log.c runs it, on kept output of attached jobs and on files that a process of their
// user reads; the fault simulator runs it on its own.
#pragma once
#include "agent/logic/logic.h"
#include "launch/kept.h"
#include "log_file.h"
#include "log_reader.h"
#include "model/message.h"

struct log_flow_host {
    // Up to `size` bytes that follow, as far as they are there, and flow->at moved behind them; `over`: the attempt had
    // ended before. Negative: -ENOENT, there is no file (yet).
    ssize_t (*read)(void *ctx, char *out, size_t size, bool over);
    int (*open)(void *ctx, struct kept_file *out);  // kept output
    uint64_t (*room)(void *ctx);                    // bytes that may be sent now
    void (*spend)(void *ctx, uint64_t bytes);       // so many of them were
    // When what is at this position was written, and up to where that holds.
    int64_t (*written_ms)(void *ctx, uint64_t at, uint64_t *until);
    void (*send)(void *ctx, enum message_type type, struct message_stream *m);
    void (*failed)(void *ctx, int error);  // it ends the stream
    void (*end)(void *ctx);                // the other side was told; the stream is not used any more
};

struct log_flow {
    const struct log_flow_host *host;
    void *ctx;
    uint64_t stream, id, epoch;  // epoch: of the attempt; 0: whichever has the number
    uint32_t attempt;
    bool follow, opened;
    bool client;           // of an attached job: what it has makes room for more
    bool placed, resumed;  // its controller knows positions; one that does not goes on where it was
    bool times;            // each piece says when it was written
    bool told_lost;
    int64_t tail_lines;     // -1: all
    struct log_place at;    // where what was read last ends
    struct kept_file kept;  // fd -1: none is open
    uint64_t acknowledged;  // its client has everything before this
    int64_t begun_ms, next_try_ms;
    // Of a file that a process reads for us: an answer is due, and whether the attempt had ended before it was asked
    // for.
    bool asked, asked_over;
    int64_t asked_ms;
};

void agent_log_flow_begin(struct log_flow *f, const struct message_log_read *m, int64_t now_ms);
// Kept output of this attempt may be opened: it has begun here, and is not another one that had the number before a
// restore.
bool agent_log_flow_has_begun(const struct log_flow *f, const struct agent_logic *l);
// Whether nothing more is written. Asked before reading: what is written before the end is then read before we stop.
bool agent_log_flow_attempt_over(const struct log_flow *f, const struct agent_logic *l, int64_t now_ms);
bool agent_log_flow_over(const struct log_flow *f, const struct agent_logic *l, int64_t now_ms);
size_t agent_log_flow_room(const struct log_flow *f);
// What a read has given. False when that is all for now, or the stream is gone.
bool agent_log_flow_take(struct log_flow *f, const char *data, ssize_t n, bool over, int64_t now_ms);
// The process that reads the file is to be asked for so many bytes; 0: not now.
size_t agent_log_flow_ask(struct log_flow *f, const struct agent_logic *l, int64_t now_ms);
// Its answer; true: it is to be asked again.
bool agent_log_flow_answer(struct log_flow *f, const char *data, ssize_t n, int64_t now_ms);
void agent_log_flow_pump(struct log_flow *f, const struct agent_logic *l, int64_t now_ms);
ssize_t agent_log_flow_read_kept(struct log_flow *f, char *out, size_t size, bool over);
// The clients of this output have everything before `at`. A negative errno: room cannot be made for more, and this
// client counts as gone.
int agent_log_flow_acknowledge(struct log_flow *f, uint64_t at);
