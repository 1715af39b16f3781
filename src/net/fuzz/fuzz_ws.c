// The WebSocket codec, both roles: bounded whatever comes, the same however it is cut up, and what
// was understood can be encoded and understood again. The first byte chooses role and cut.
#include <string.h>

#include "driver.h"
#include "net/ws.h"

enum { MESSAGE_MAX = 140 };  // small, so that inputs pass it

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("\x03\x01\x02He\x89\x01p\x80\x03llo\x88\x04\x03\xe9go"),
    FUZZ_SEED("\x05\x82\x7e\x00\x80"
              "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
              "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    FUZZ_SEED("\x02\x81\x85mask\x05\x04\x1f\x07\x02\x89\x80mask\x8a\x81mask\x0c"),
    FUZZ_SEED("\x04\x01\x81mask\x0c\x00\x81mask\x0c\x80\x80mask\x88\x82mask\x6e\x89"),
    FUZZ_SEED("\x07\x02\x50"
              "01234567890123456789012345678901234567890123456789012345678901234567890123456789"
              "\x80\x50"
              "01234567890123456789012345678901234567890123456789012345678901234567890123456789"),
    FUZZ_SEED("\x01\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    {0},
};

struct outcome {
    unsigned events;
    size_t bytes;
    uint64_t sum;
    bool failed;
};

static void check_again(enum ws_role role, const struct ws_event *event) {
    cleanup_buf struct buf b = {0};
    enum ws_role sender = role == WS_SERVER ? WS_CLIENT : WS_SERVER;
    if (event->type == WS_CLOSE)
        ws_encode_close(&b, sender, event->status, event->data, 0x01020304);
    else
        ws_encode(&b, sender, event->type, event->data, event->len, 0x01020304);
    struct ws w;
    ws_init(&w, role, MESSAGE_MAX);
    struct ws_event again;
    bool got = false;
    ssize_t n = ws_feed(&w, b.data, b.len, &again, &got);
    FUZZ_CHECK(n == (ssize_t)b.len && got && again.type == event->type);
    if (event->type != WS_CLOSE)
        FUZZ_CHECK(again.len == event->len && memcmp(again.data, event->data, again.len) == 0);
    ws_done(&w);
}

static struct outcome run(const uint8_t *data, size_t size, enum ws_role role, size_t step) {
    struct ws w;
    struct outcome o = {0};
    size_t at = 0;
    ws_init(&w, role, MESSAGE_MAX);
    while (at < size && !o.failed) {
        size_t n = size - at < step ? size - at : step;
        struct ws_event event;
        bool got = false;
        ssize_t r = ws_feed(&w, data + at, n, &event, &got);
        o.failed = r < 0;
        if (o.failed) {
            FUZZ_CHECK(!got && w.fail_status >= 1000 && w.fail_text);
            break;
        }
        FUZZ_CHECK(r > 0 && (size_t)r <= n);
        at += (size_t)r;
        if (!got)
            continue;
        FUZZ_CHECK(event.len <= MESSAGE_MAX && event.data[event.len] == 0);
        check_again(role, &event);
        o.events++;
        o.bytes += event.len;
        for (size_t i = 0; i < event.len; i++)
            o.sum = o.sum * 31 + (unsigned char)event.data[i];
    }
    ws_done(&w);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    enum ws_role role = data[0] & 1 ? WS_CLIENT : WS_SERVER;
    struct outcome whole = run(data + 1, size - 1, role, SIZE_MAX);
    struct outcome parts = run(data + 1, size - 1, role, 1 + (data[0] >> 1));
    FUZZ_CHECK(whole.events == parts.events && whole.bytes == parts.bytes && whole.sum == parts.sum &&
               whole.failed == parts.failed);
    return 0;
}
