// Writes a ZIP archive as a stream, without going back: stored files with their lengths behind them, 64-bit forms where
// numbers need them. Only the list at the end is kept in memory.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct zip {
    void (*put)(void *ctx, const void *data, size_t len);
    void *ctx;
    uint64_t at;  // bytes put so far
    uint64_t entries;
    struct buf list;
    // Of the file under way.
    uint64_t file_at, size;
    uint32_t crc, time;
    uint16_t mode;
    struct buf name;
};

// Names are UTF-8 without a leading '/'; that of a folder ends with '/'. Times are in seconds since 1970.
void files_zip_begin(struct zip *z, const char *name, uint32_t mode, int64_t modified_s);
void files_zip_data(struct zip *z, const void *data, size_t len);
void files_zip_end(struct zip *z);
void files_zip_finish(struct zip *z);  // the list; frees what is held
