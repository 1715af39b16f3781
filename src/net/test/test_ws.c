// The WebSocket codec: round trips at every length class, fragments, control frames between them,
// and every rule a peer can break.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "net/ws.h"

static void round_trips(void **state) {
    static const size_t lengths[] = {0, 1, 5, 125, 126, 127, 65535, 65536, 200000};
    for (int role = 0; role < 2; role++) {
        struct ws w;
        ws_init(&w, role ? WS_CLIENT : WS_SERVER, 0);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t len = lengths[i];
            char *data = xmalloc(len + 1);
            for (size_t k = 0; k < len; k++)
                data[k] = (char)(k * 31 + i);
            cleanup_buf struct buf b = {0};
            ws_encode(&b, role ? WS_SERVER : WS_CLIENT, WS_BINARY, data, len, 0xa1b2c3d4);
            struct ws_event ev;
            bool got = false;
            size_t at = 0, step = 1 + len / 7;
            while (!got) {
                size_t n = b.len - at < step ? b.len - at : step;
                ssize_t used = ws_feed(&w, b.data + at, n, &ev, &got);
                assert_true(used > 0);
                at += (size_t)used;
            }
            assert_int_equal(at, b.len);
            assert_int_equal(ev.type, WS_BINARY);
            assert_int_equal(ev.len, len);
            assert_memory_equal(ev.data, data, len);
            free(data);
        }
        ws_done(&w);
    }
}

static void fragments_and_control_frames(void **state) {
    static const char text[] = "\x01\x02He\x89\x01p\x00\x01l\x80\x02lo\x88\x04\x03\xe9go";
    struct ws w;
    ws_init(&w, WS_CLIENT, 0);
    struct ws_event ev;
    bool got;
    size_t at = 0, len = sizeof text - 1;
    at += (size_t)ws_feed(&w, text + at, len - at, &ev, &got);
    assert_true(got && ev.type == WS_PING && ev.len == 1 && ev.data[0] == 'p');
    at += (size_t)ws_feed(&w, text + at, len - at, &ev, &got);
    assert_true(got && ev.type == WS_TEXT);
    assert_string_equal(ev.data, "Hello");
    at += (size_t)ws_feed(&w, text + at, len - at, &ev, &got);
    assert_true(got && ev.type == WS_CLOSE && ev.status == WS_GOING_AWAY);
    assert_string_equal(ev.data, "go");
    assert_int_equal(at, len);
    assert_int_equal(ws_feed(&w, "\x81\x00", 2, &ev, &got), 2);
    assert_false(got);
    ws_done(&w);
}

#define CASE(role, status, bytes) {role, status, bytes, sizeof bytes - 1}

static void refuses_broken_rules(void **state) {
    static const struct {
        enum ws_role role;
        int status;
        const char *bytes;
        size_t len;
    } cases[] = {
        CASE(WS_SERVER, WS_PROTOCOL_ERROR, "\x81\x01x"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x81\x81mask"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\xc1\x01x"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x83\x01x"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x8b\x01x"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x80\x01x"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x01\x01x\x81\x01y"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x09\x01x"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x89\x7e\x00\x7e"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x82\x7e\x00\x7d"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x82\x7f\0\0\0\0\0\0\xff\xff"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x82\x7f\x80\0\0\0\0\0\0\0"),
        CASE(WS_CLIENT, WS_TOO_BIG, "\x82\x7f\0\0\0\0\0\1\0\0"),
        CASE(WS_CLIENT, WS_TOO_BIG, "\x82\x7e\x03\xe9"),
        CASE(WS_CLIENT, WS_BAD_DATA, "\x81\x01\xff"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x88\x01x"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x88\x02\x03\xed"),
        CASE(WS_CLIENT, WS_PROTOCOL_ERROR, "\x88\x02\x00\x01"),
        CASE(WS_CLIENT, WS_BAD_DATA, "\x88\x03\x03\xe8\xff"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ws w;
        ws_init(&w, cases[i].role, 1000);
        struct ws_event ev;
        bool got = false;
        ssize_t r = ws_feed(&w, cases[i].bytes, cases[i].len, &ev, &got);
        if (r != -EPROTO || got || w.fail_status != cases[i].status)
            fail_msg("case %zu: %zd status %d", i, r, w.fail_status);
        assert_int_equal(ws_feed(&w, "\x89\x00", 2, &ev, &got), -EPROTO);
        ws_done(&w);
    }
}

// Many fragments together pass the limit although none does alone.
static void bounds_messages(void **state) {
    struct ws w;
    ws_init(&w, WS_CLIENT, 1000);
    struct ws_event ev;
    bool got;
    char frame[102] = {0x02, 100};
    ssize_t r = 0;
    int n = 0;
    for (; n < 20 && r >= 0; n++) {
        r = ws_feed(&w, frame, sizeof frame, &ev, &got);
        frame[0] = 0;
    }
    assert_int_equal(r, -EPROTO);
    assert_int_equal(n, 11);
    assert_int_equal(w.fail_status, WS_TOO_BIG);
    ws_done(&w);
}

static void handshake(void **state) {
    char out[WS_ACCEPT_LEN + 1], key[WS_KEY_LEN + 1];
    assert_int_equal(ws_accept("dGhlIHNhbXBsZSBub25jZQ==", out), 0);
    assert_string_equal(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_int_equal(ws_accept("dGhlIHNhbXBsZSBub25jZQ=", out), -EINVAL);
    assert_int_equal(ws_accept("dGhlIHNhbXBsZSBub25jZQ=a", out), -EINVAL);
    assert_int_equal(ws_accept("dGhlIHNhbXBsZSB ub25jZQ=", out), -EINVAL);
    ws_key((const unsigned char *)"the sample nonce", key);
    assert_string_equal(key, "dGhlIHNhbXBsZSBub25jZQ==");
}

static void close_reason_is_cut_whole(void **state) {
    char reason[200];
    for (int i = 0; i + 1 < (int)sizeof reason; i += 2)
        memcpy(reason + i, "\xc3\xa9", 2);
    reason[198] = 0;
    cleanup_buf struct buf b = {0};
    ws_encode_close(&b, WS_SERVER, WS_POLICY, reason, 0);
    struct ws w;
    ws_init(&w, WS_CLIENT, 0);
    struct ws_event ev;
    bool got;
    assert_int_equal(ws_feed(&w, b.data, b.len, &ev, &got), (ssize_t)b.len);
    assert_true(got && ev.status == WS_POLICY && ev.len == 122);
    ws_done(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(fragments_and_control_frames),
        cmocka_unit_test(refuses_broken_rules),
        cmocka_unit_test(bounds_messages),
        cmocka_unit_test(handshake),
        cmocka_unit_test(close_reason_is_cut_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
