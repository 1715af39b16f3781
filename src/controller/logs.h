// Which node and which file has the output of a job.
#pragma once
#include "controller.h"
#include "job_output.h"
#include "requests.h"

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
