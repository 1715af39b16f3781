// Where S3 is and with which keys: the variables and files that every client of S3 reads, and the addresses at which
// containers and machines of a cloud are given keys that expire.
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "sign.h"

struct data_settings {
    char *region, *endpoint;  // endpoint: host[:port], or NULL for Amazon's own
    bool plain_http, anonymous;
    struct data_keys keys;
    char *role_url, *role_token;  // where keys that expire come from
};

void data_settings_read(struct data_settings *s);
void data_settings_done(struct data_settings *s);
// Host and the path's beginning for a bucket: in the host's name at Amazon, in the path elsewhere.
void data_settings_place(const struct data_settings *s, const char *bucket, struct buf *host, struct buf *path);
// A copy of the keys, asked for anew when they have expired; without any, id is NULL and requests are not signed.
int data_settings_keys(struct data_settings *s, struct data_keys *out, struct error *e);
void data_keys_done(struct data_keys *k);
// A file of sections and "name = value" lines: the value of a name in a section, or NULL.
char *data_ini_value(const char *text, const char *section, const char *name);
