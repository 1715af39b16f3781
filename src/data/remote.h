// Files and objects by address: a path, s3://bucket/key, http:// or https://. Reading whole or in ranges, writing at
// once or in parts, listing. Everything waits (threads call it), tries again where that helps, and bounds what it
// reads.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

// What all threads share: region, endpoint, keys. Read from the usual places (variables, ~/.aws, the addresses that
// containers and machines of a cloud ask).
struct data_remote;
struct data_remote *data_remote_new(void);
void data_remote_free(struct data_remote *r);

// One per thread; keeps its connections.
struct data_fetcher;
struct data_fetcher *data_fetcher_new(struct data_remote *r);
void data_fetcher_free(struct data_fetcher *f);

bool data_is_s3(const char *address);
bool data_is_remote(const char *address);  // s3, http or https

// Reads `len` bytes from `offset` on, or with len 0 all; -EFBIG beyond `max`. `out` is replaced.
int data_read(struct data_fetcher *f, const char *address, uint64_t offset, uint64_t len, size_t max, struct buf *out,
              struct error *e);
// A file appears whole or not at all: it is written beside itself and renamed, an object is put at once or in parts.
int data_write(struct data_fetcher *f, const char *address, const void *bytes, size_t len, struct error *e);
int data_remove(struct data_fetcher *f, const char *address, struct error *e);  // 0 also where nothing was

struct data_object {
    const char *key;  // within the bucket
    uint64_t size;
};
// Calls fn for each object below s3://bucket/prefix, in the order of keys, as pages come. fn returns 0 to go on.
typedef int data_object_fn(void *ctx, const struct data_object *object);
int data_list_objects(struct data_fetcher *f, const char *address, data_object_fn *fn, void *ctx, struct error *e);
// One page's answer (ListObjectsV2): calls fn, puts the token of the next page into `next` ("" at the end).
int data_list_page(const char *xml, size_t len, data_object_fn *fn, void *ctx, struct buf *next, struct error *e);
