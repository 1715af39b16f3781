// Which node and which file has the output of a job.
#pragma once
#include "controller.h"
#include "requests.h"

// The part of a job that streams come from: its node, and where it is in the allocation. Numbers come
// from the request as they are: they are compared before they are made any narrower. Attempt 0: the newest.
bool controller_logs_find_part(struct controller *c, uint64_t id, int64_t index, int64_t attempt,
                               struct arena *a, struct job_record *r, bool *live, struct error *e);
// The message that asks its node for it, from the beginning on. tail: last lines; -1: all.
struct message_log_read controller_logs_request(struct job_record *r, uint32_t index, bool error, bool follow,
                                                int64_t tail);
struct api_call;
struct stream_client;
// Asks the node. NULL: it cannot be asked, and the request was answered so.
struct stream *controller_logs_open(struct api_call *call, const char *node, struct message_log_read *m,
                                    const struct stream_client *client, void *ctx);
int64_t controller_logs_tail(const struct query_logs *q);
// Bytes as valid UTF-8 without NUL, U+FFFD for others; returns how many at the end may belong to an incomplete
// character, which (`last`) there is none of.
size_t controller_logs_text(const char *s, size_t len, bool last, struct buf *out);
// As server-sent events (log_events.c).
bool controller_logs_wants_events(const struct net_request *req);
void controller_logs_events(struct api_call *call, struct job_record *r);
