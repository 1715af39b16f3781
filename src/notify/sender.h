// Sends deliveries, several at a time, and tries again after passing failures. One that hangs holds up nobody else:
// each has a time limit, and one destination has at most SENDER_PER_HOST of the places.
#pragma once
#include "delivery.h"

enum {
    SENDER_PLACES = 16,  // deliveries on their way at once
    SENDER_PER_HOST = 4,
    SENDER_QUEUE_MAX = 4096,  // accepted and not finished; beyond it no more lines are read
    SENDER_TIME_LIMIT_S = 30,
    SENDER_TRIES = 4,  // at once, then after 10 s, 60 s and 300 s
};

struct sender_config {
    const char *from;  // address of the sender
    const char *smtp;  // "smtp://HOST:PORT" or "smtps://…"; NULL: the program `sendmail` is used
    const char *smtp_user, *smtp_password;
    const char *sendmail;            // path of the program
    const char *secret;              // signs webhooks; NULL: unsigned
    const char *ca_file;             // NULL: the system's
    int64_t retry_ms[SENDER_TRIES];  // wait before each try
};

struct sender;
typedef void (*sender_done_fn)(void *ctx, uint64_t id,
                               const struct error *e);  // e is NULL when it was delivered

struct sender *notify_sender_new(const struct sender_config *config, sender_done_fn done, void *ctx);
struct sender *notify_sender_free(struct sender *s);
void notify_sender_add(struct sender *s, const struct delivery *d);
uint32_t notify_sender_waiting(const struct sender *s);  // accepted and not finished
// Works for at most `timeout_ms`, and returns early when `fd` (or -1) is readable.
void notify_sender_work(struct sender *s, int fd, int timeout_ms);
