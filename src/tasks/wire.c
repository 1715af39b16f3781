// Owns the reading and writing of a pool's frames; see the header.
#include "tasks/wire.h"

#include <errno.h>
#include <string.h>

const uint8_t *tasks_read_bytes(struct tasks_reader *r, size_t len) {
    static const uint8_t zeros[8];
    if ((size_t)(r->end - r->at) < len) {
        r->bad = true;
        r->at = r->end;
        return zeros;
    }
    const uint8_t *p = r->at;
    r->at += len;
    return p;
}

uint8_t tasks_read_u8(struct tasks_reader *r) {
    return *tasks_read_bytes(r, 1);
}

uint16_t tasks_read_u16(struct tasks_reader *r) {
    uint16_t v;
    memcpy(&v, tasks_read_bytes(r, sizeof v), sizeof v);
    return v;
}

uint32_t tasks_read_u32(struct tasks_reader *r) {
    uint32_t v;
    memcpy(&v, tasks_read_bytes(r, sizeof v), sizeof v);
    return v;
}

uint64_t tasks_read_u64(struct tasks_reader *r) {
    uint64_t v;
    memcpy(&v, tasks_read_bytes(r, sizeof v), sizeof v);
    return v;
}

uint64_t tasks_id(const uint8_t *ids, size_t i) {
    uint64_t v;
    memcpy(&v, ids + i * sizeof v, sizeof v);
    return v;
}

static size_t rest(const struct tasks_reader *r) {
    return (size_t)(r->end - r->at);
}

int tasks_read_submit(const void *body, size_t len, struct tasks_submit *out) {
    struct tasks_reader r = {.at = body, .end = (const uint8_t *)body + len};
    struct tasks_submit s;
    s.id = tasks_read_u64(&r);
    s.function = tasks_read_u64(&r);
    s.actor = tasks_read_u64(&r);
    s.cpu_milli = tasks_read_u32(&r);
    s.gpu_milli = tasks_read_u32(&r);
    s.retries = tasks_read_u16(&r);
    s.flags = tasks_read_u8(&r);
    s.name_len = tasks_read_u8(&r);
    s.ndependencies = tasks_read_u16(&r);
    s.nnested = tasks_read_u16(&r);
    if (s.ndependencies > TASKS_DEPENDENCIES_MAX || s.nnested > TASKS_NESTED_MAX)
        return -EPROTO;
    s.name = (const char *)tasks_read_bytes(&r, s.name_len);
    s.dependencies = tasks_read_bytes(&r, s.ndependencies * sizeof(uint64_t));
    s.nested = tasks_read_bytes(&r, s.nnested * sizeof(uint64_t));
    s.arguments_len = (uint32_t)rest(&r);
    s.arguments = (const char *)r.at;
    if (r.bad || s.arguments_len > TASKS_INLINE_MAX || ((s.flags & TASKS_ARGS_OBJECT) && !s.ndependencies) ||
        ((s.flags & TASKS_NEW_ACTOR) && s.actor))
        return -EPROTO;
    *out = s;
    return 0;
}

int tasks_read_done(const void *body, size_t len, struct tasks_done *out) {
    struct tasks_reader r = {.at = body, .end = (const uint8_t *)body + len};
    struct tasks_done d;
    d.id = tasks_read_u64(&r);
    d.error = tasks_read_u8(&r) != 0;
    d.shared = tasks_read_u8(&r) != 0;
    d.micros = tasks_read_u32(&r);
    d.nnested = tasks_read_u16(&r);
    if (d.nnested > TASKS_NESTED_MAX)
        return -EPROTO;
    d.nested = tasks_read_bytes(&r, d.nnested * sizeof(uint64_t));
    d.value_len = (uint32_t)rest(&r);
    d.value = (const char *)r.at;
    if (r.bad || (d.error && d.shared) || (d.shared && d.value_len))
        return -EPROTO;
    *out = d;
    return 0;
}

int tasks_next_frame(const struct buf *in, size_t *at, enum tasks_frame *type, const char **body,
                     size_t *len) {
    uint32_t n;
    if (in->len - *at < TASKS_FRAME_HEAD)
        return 0;
    memcpy(&n, in->data + *at, sizeof n);
    if (!n || n > TASKS_FRAME_MAX)
        return -EPROTO;
    if (in->len - *at < sizeof n + n)
        return 0;
    *type = (uint8_t)in->data[*at + sizeof n];
    *body = in->data + *at + TASKS_FRAME_HEAD;
    *len = n - 1;
    *at += sizeof n + n;
    return 1;
}

void tasks_add_u8(struct buf *b, uint8_t v) {
    buf_addc(b, (char)v);
}

void tasks_add_u16(struct buf *b, uint16_t v) {
    buf_add(b, &v, sizeof v);
}

void tasks_add_u32(struct buf *b, uint32_t v) {
    buf_add(b, &v, sizeof v);
}

void tasks_add_u64(struct buf *b, uint64_t v) {
    buf_add(b, &v, sizeof v);
}

void tasks_begin(struct buf *b, enum tasks_frame type, size_t body) {
    tasks_add_u32(b, (uint32_t)body + 1);
    tasks_add_u8(b, (uint8_t)type);
}
