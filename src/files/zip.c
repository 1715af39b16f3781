// Owns the format: APPNOTE.TXT 6.3, sections 4.3 and 4.5.3.
#include "zip.h"

#include <string.h>
#include <time.h>

enum {
    LOCAL = 0x04034b50,
    DESCRIPTOR = 0x08074b50,
    CENTRAL = 0x02014b50,
    END = 0x06054b50,
    END64 = 0x06064b50,
    LOCATOR64 = 0x07064b50,
    VERSION = 45,  // 64-bit forms
    MADE_BY_UNIX = 3 << 8,
    FLAGS = 1 << 3 | 1 << 11,  // lengths follow the data; names are UTF-8
    EXTRA64 = 1,
    FULL16 = 0xffff,
    DIRECTORY_ATTRIBUTE = 0x10,
};
static const uint32_t FULL32 = 0xffffffff;

static void put16(struct buf *b, uint32_t v) {
    buf_addc(b, (char)(v & 255));
    buf_addc(b, (char)(v >> 8 & 255));
}

static void put32(struct buf *b, uint32_t v) {
    put16(b, v & FULL16);
    put16(b, v >> 16);
}

static void put64(struct buf *b, uint64_t v) {
    put32(b, (uint32_t)v);
    put32(b, (uint32_t)(v >> 32));
}

static void flush(struct zip *z, struct buf *b) {
    z->put(z->ctx, b->data, b->len);
    z->at += b->len;
    buf_clear(b);
}

static uint32_t crc_of(uint32_t crc, const unsigned char *p, size_t len) {
    static uint32_t table[256];
    for (uint32_t i = 0; i < 256 && !table[255]; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        table[i] = c;
    }
    crc = ~crc;
    while (len--)
        crc = table[(crc ^ *p++) & 255] ^ crc >> 8;
    return ~crc;
}

// The format counts from 1980, in two seconds, without a time zone: in UTC.
static uint32_t dos_time(int64_t s) {
    struct tm t;
    time_t at = (time_t)s;
    if (!gmtime_r(&at, &t) || t.tm_year < 80 || t.tm_year > 80 + 127)
        return 1 << 21 | 1 << 16;
    return (uint32_t)(t.tm_year - 80) << 25 | (uint32_t)(t.tm_mon + 1) << 21 | (uint32_t)t.tm_mday << 16 |
           (uint32_t)t.tm_hour << 11 | (uint32_t)t.tm_min << 5 | (uint32_t)t.tm_sec / 2;
}

void files_zip_begin(struct zip *z, const char *name, uint32_t mode, int64_t modified_s) {
    struct buf b = {0};
    z->file_at = z->at;
    z->size = z->crc = 0;
    z->time = dos_time(modified_s);
    z->mode = (uint16_t)mode;
    buf_clear(&z->name);
    buf_adds(&z->name, name);
    put32(&b, LOCAL);
    put16(&b, VERSION);
    put16(&b, FLAGS);
    put16(&b, 0);
    put32(&b, z->time);
    put32(&b, 0);
    put32(&b, FULL32);
    put32(&b, FULL32);
    put16(&b, (uint32_t)z->name.len);
    put16(&b, 20);
    buf_add(&b, z->name.data, z->name.len);
    put16(&b, EXTRA64);  // says that the lengths behind the data have 64 bits
    put16(&b, 16);
    put64(&b, 0);
    put64(&b, 0);
    flush(z, &b);
    buf_done(&b);
}

void files_zip_data(struct zip *z, const void *data, size_t len) {
    z->crc = crc_of(z->crc, data, len);
    z->size += len;
    z->put(z->ctx, data, len);
    z->at += len;
}

void files_zip_end(struct zip *z) {
    struct buf b = {0};
    bool folder = z->name.len && z->name.data[z->name.len - 1] == '/';
    put32(&b, DESCRIPTOR);
    put32(&b, z->crc);
    put64(&b, z->size);
    put64(&b, z->size);
    flush(z, &b);
    buf_done(&b);
    put32(&z->list, CENTRAL);
    put16(&z->list, MADE_BY_UNIX | VERSION);
    put16(&z->list, VERSION);
    put16(&z->list, FLAGS);
    put16(&z->list, 0);
    put32(&z->list, z->time);
    put32(&z->list, z->crc);
    put32(&z->list, FULL32);
    put32(&z->list, FULL32);
    put16(&z->list, (uint32_t)z->name.len);
    put16(&z->list, 28);
    put16(&z->list, 0);
    put16(&z->list, 0);
    put16(&z->list, 0);
    put32(&z->list, (uint32_t)z->mode << 16 | (folder ? DIRECTORY_ATTRIBUTE : 0));
    put32(&z->list, FULL32);
    buf_add(&z->list, z->name.data, z->name.len);
    put16(&z->list, EXTRA64);
    put16(&z->list, 24);
    put64(&z->list, z->size);
    put64(&z->list, z->size);
    put64(&z->list, z->file_at);
    z->entries++;
}

void files_zip_finish(struct zip *z) {
    struct buf b = {0};
    uint64_t list_at = z->at, list_len = z->list.len;
    if (list_len)
        flush(z, &z->list);
    uint64_t end_at = z->at;
    put32(&b, END64);
    put64(&b, 44);
    put16(&b, MADE_BY_UNIX | VERSION);
    put16(&b, VERSION);
    put32(&b, 0);
    put32(&b, 0);
    put64(&b, z->entries);
    put64(&b, z->entries);
    put64(&b, list_len);
    put64(&b, list_at);
    put32(&b, LOCATOR64);
    put32(&b, 0);
    put64(&b, end_at);
    put32(&b, 1);
    put32(&b, END);
    put32(&b, 0);
    put16(&b, FULL16);
    put16(&b, FULL16);
    put32(&b, FULL32);
    put32(&b, FULL32);
    put16(&b, 0);
    flush(z, &b);
    buf_done(&b);
    buf_done(&z->list);
    buf_done(&z->name);
}
