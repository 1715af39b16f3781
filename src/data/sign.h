// Requests to S3 are signed by AWS Signature Version 4: pure functions of the request, the keys and the time.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"

struct data_keys {
    char *id, *secret, *token;  // token: of keys that expire, or NULL
    int64_t expires_s;          // 0: never
};

enum { DATA_SHA256_HEX = 64 };
void data_sha256_hex(const void *data, size_t len, char out[static DATA_SHA256_HEX + 1]);

// Adds `text` with everything but letters, digits and -._~ as %XX; slashes stay where keep_slashes.
void data_uri_add(struct buf *out, const char *text, size_t len, bool keep_slashes);

struct data_request {
    const char *method, *host, *path, *query;  // path and query are encoded already; the query's parts are sorted
    const char *region, *payload_hash;
};
// The header lines to send ("Name: value\n" each): Authorization, x-amz-date, x-amz-content-sha256 and, with a token,
// x-amz-security-token.
void data_sign(const struct data_request *r, const struct data_keys *keys, time_t now, struct buf *headers);
