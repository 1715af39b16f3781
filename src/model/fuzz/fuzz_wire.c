// Fuzz target: events and messages in their binary form. The input is read as it is, and laid over
// well-formed samples; what can be decoded is encoded and decoded again as the same.
#include <assert.h>
#include <string.h>

#include "driver.h"
#include "sample.h"
#include "model/event.h"
#include "model/message.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("\x02\x05\x04\x01"),
    FUZZ_SEED("abcdefgh"),
    FUZZ_SEED("\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f"),
    FUZZ_SEED("0"),
    {0},
};

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 7);
    for (unsigned type = 0; type < MESSAGE_TYPE_MAX; type++)
        for (int i = 0; message_info((enum message_type)type) && i < 4; i++) {
            cleanup_buf struct buf b = {0};
            buf_addc(&b, (char)type);
            fuzz_sample_binary(message_info((enum message_type)type)->schema, &r, 0, &b);
            add(b.data, b.len);
        }
    for (unsigned type = 0; type < EVENT_TYPE_MAX; type++)
        for (int i = 0; event_info((enum event_type)type) && i < 4; i++) {
            cleanup_buf struct buf b = {0};
            fuzz_sample_binary(event_info((enum event_type)type)->schema, &r, 0, &b);
            add(b.data, b.len);
        }
}

static void as_event(enum event_type type, const void *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf first = {0}, second = {0};
    struct event e, again;
    if (event_decode(type, data, size, &a, &e) < 0)
        return;
    event_encode(&e, &first);
    assert(event_decode(type, first.data, first.len, &a, &again) == 0);
    event_encode(&again, &second);
    assert(first.len == second.len && (!first.len || memcmp(first.data, second.data, first.len) == 0));
}

static void as_message(const void *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf first = {0}, second = {0};
    struct message m, again;
    if (message_decode(data, size, &a, &m) < 0)
        return;
    message_encode(&m, &first);
    assert(message_decode(first.data, first.len, &a, &again) == 0);
    message_encode(&again, &second);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
}

static void sample(struct buf *out) {
    static const char *argv[] = {"python3", "train.py"};
    static struct gpu_grant gpus[] = {{0, 500}, {3, 1000}};
    struct spec spec = {.name = "sample", .user = "alice", .argv = {argv, 2}, .tasks = 4, .nice = -3};
    struct part parts[] = {{.node = "n1", .cpus = 4, .gpus = {gpus, 2}}, {.node = "n2"}};
    struct message_launch launch = {.id = 12,
                                    .attempt = 2,
                                    .spec = &spec,
                                    .part = &parts[0],
                                    .parts = {parts, 2},
                                    .script = {"#!/bin/sh\n", 10}};
    message_encode(&(struct message){MESSAGE_LAUNCH, &launch}, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_buf struct buf b = {0};
    for (unsigned type = 0; type < EVENT_TYPE_MAX; type++)
        as_event((enum event_type)type, data, size);
    as_message(data, size);
    sample(&b);
    for (size_t i = 0; i < size && b.len; i++)
        b.data[(i * 7 + size) % b.len] ^= (char)data[i];
    as_message(b.data, b.len);
    return 0;
}
