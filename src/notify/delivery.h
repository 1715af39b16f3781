// What acequia-notify sends and how it is described on its standard input: one JSON object a line.
//   {"id":7,"kind":"mail","to":"ana@example.org","subject":"…","text":"…"}
//   {"id":8,"kind":"webhook","to":"https://hooks.example.org/x","text":"…","body":"{…}"}
// Each line is answered on standard output when the delivery has succeeded or is given up:
//   {"id":7,"delivered":true}   {"id":8,"delivered":false,"error":"…"}
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "model/notify.h"

enum {
    DELIVERY_LINE_MAX = 256 << 10,
    DELIVERY_ADDRESS_MAX = 1000,
    DELIVERY_SUBJECT_MAX = 500,
};

// Reads and checks one line. The texts live in the arena.
int notify_delivery_parse(const char *line, size_t len, struct arena *a, struct delivery *out,
                          struct error *e);
// A mail address (or a local user's name) that cannot break out of a header or an SMTP command.
int notify_mail_address_check(const char *address, struct error *e);
int notify_webhook_url_check(const char *url,
                             struct error *e);  // http or https, no user, no control characters

// The whole message, headers and quoted-printable text, lines ended by CR LF. `host` is used for the Message-ID.
void notify_mail_compose(const struct delivery *d, const char *from, const char *host, int64_t now_s,
                         struct buf *out);
// "t=1700000000,v1=HEX": HMAC-SHA256 by `secret` over "TIME.BODY", so that a receiver can check sender and age.
void notify_webhook_signature(const char *secret, size_t secret_len, const char *body, int64_t now_s,
                              struct buf *out);
