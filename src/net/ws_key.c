// The WebSocket handshake's key and its answer: base64 of a SHA-1. SHA-1 proves nothing here, the
// protocol only uses it to show that both sides speak WebSocket; having it in place keeps the
// command line free of the TLS library.
#include <errno.h>
#include <string.h>

#include "net/ws.h"

enum { SHA1_LEN = 20, SHA1_BLOCK = 64 };

static uint32_t rotate(uint32_t x, unsigned n) {
    return x << n | x >> (32 - n);
}

static void sha1_block(uint32_t h[5], const unsigned char *p) {
    uint32_t w[80];
    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (unsigned i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

// `len` is at most one block less the padding twice over: the handshake needs 60 bytes.
static void sha1_short(const unsigned char *data, size_t len, unsigned char out[SHA1_LEN]) {
    unsigned char block[2 * SHA1_BLOCK] = {0};
    memcpy(block, data, len);
    block[len] = 0x80;
    size_t total = len + 9 <= SHA1_BLOCK ? SHA1_BLOCK : 2 * SHA1_BLOCK;
    uint64_t bits = (uint64_t)len * 8;
    for (unsigned i = 0; i < 8; i++)
        block[total - 1 - i] = (unsigned char)(bits >> (8 * i));
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    for (size_t at = 0; at < total; at += SHA1_BLOCK)
        sha1_block(h, block + at);
    for (unsigned i = 0; i < SHA1_LEN; i++)
        out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void base64(const unsigned char *p, size_t len, char *out) {
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < len ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < len ? p[i + 2] : 0);
        *out++ = base64_digits[v >> 18 & 63];
        *out++ = base64_digits[v >> 12 & 63];
        *out++ = i + 1 < len ? base64_digits[v >> 6 & 63] : '=';
        *out++ = i + 2 < len ? base64_digits[v & 63] : '=';
    }
    *out = 0;
}

void ws_key(const unsigned char nonce[static 16], char out[static WS_KEY_LEN + 1]) {
    base64(nonce, 16, out);
}

int ws_accept(const char *key, char out[static WS_ACCEPT_LEN + 1]) {
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    if (strlen(key) != WS_KEY_LEN || strspn(key, base64_digits) != WS_KEY_LEN - 2 ||
        strcmp(key + WS_KEY_LEN - 2, "==") != 0)
        return -EINVAL;
    unsigned char text[WS_KEY_LEN + sizeof guid - 1], digest[SHA1_LEN];
    memcpy(text, key, WS_KEY_LEN);
    memcpy(text + WS_KEY_LEN, guid, sizeof guid - 1);
    sha1_short(text, sizeof text, digest);
    base64(digest, SHA1_LEN, out);
    return 0;
}
