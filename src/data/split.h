// How a file of many rows becomes items: ranges of bytes that begin and end between rows, members of archives, groups
// of rows of a Parquet file.
#pragma once
#include <stdint.h>

#include "base/error.h"
#include "plan.h"
#include "remote.h"

enum { DATA_RANGE_ROWS = 4096, DATA_SPLIT_BYTES = 2 << 20 };

typedef int data_split_fn(void *ctx, const char *address, const char *name, uint64_t offset, uint64_t len);
struct data_split_ctx {
    data_split_fn *put;
    void *ctx;
    struct data_fetcher *fetcher;
    const char *python, *worker;
};

// Of lines no byte is read: who reads a range looks where its first line begins (data_lines_trim).
int data_split_lines(const struct data_split_ctx *c, const char *address, uint64_t size);
// Quoted line breaks are part of a row, so a CSV file is read through once.
int data_split_csv(const struct data_split_ctx *c, const char *address, struct error *e);
int data_split_tar(const struct data_split_ctx *c, const char *address, const struct data_source *s, struct error *e);
int data_split_parquet(const struct data_split_ctx *c, const char *address, struct error *e);

// Reads the rows of a range of lines: those that begin in it.
int data_lines_read(struct data_fetcher *f, const char *address, uint64_t offset, uint64_t len, size_t max,
                    struct buf *out, struct error *e);
// The header of a member of an archive: 1: a file, its name, place and size; 0: something else, go on behind it;
// -EBADMSG; -ENODATA at the archive's end.
int data_tar_header(const uint8_t block[static 512], char *name, size_t name_size, uint64_t *size);
