// Writes what leaves: mail messages (RFC 5322 with MIME) and signatures of webhooks.
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "delivery.h"

enum { ENCODED_WORD_BYTES = 42, LINE_COLUMNS_MAX = 72 };

static bool is_ascii(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s >= 0x80)
            return false;
    return true;
}

// RFC 2047: "=?utf-8?B?…?=" words of at most 75 characters, cut between characters.
static void add_subject(struct buf *out, const char *s) {
    unsigned char word[128];
    if (is_ascii(s)) {
        buf_adds(out, s);
        return;
    }
    for (size_t left = strlen(s); left;) {
        size_t n = left < ENCODED_WORD_BYTES ? left : ENCODED_WORD_BYTES;
        while (n < left && n && ((unsigned char)s[n] & 0xc0) == 0x80)
            n--;
        EVP_EncodeBlock(word, (const unsigned char *)s, (int)n);
        buf_addf(out, "=?utf-8?B?%s?=", (char *)word);
        s += n;
        left -= n;
        if (left)
            buf_adds(out, "\r\n ");
    }
}

// RFC 2045, 6.7. A dot at the start of a line is encoded too, so that no SMTP server can take it for the end.
static void add_quoted_printable(struct buf *out, const char *text) {
    size_t column = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '\n') {
            buf_adds(out, "\r\n");
            column = 0;
            continue;
        }
        if (*p == '\r')
            continue;
        bool line_ends = !p[1] || p[1] == '\n' || p[1] == '\r';
        bool plain =
            (*p > ' ' && *p < 0x7f && *p != '=' && !(*p == '.' && !column)) || (*p == ' ' && !line_ends);
        if (column + (plain ? 1 : 3) > LINE_COLUMNS_MAX) {
            buf_adds(out, "=\r\n");
            column = 0;
            plain = plain && *p != '.';
        }
        if (plain)
            buf_addc(out, (char)*p);
        else
            buf_addf(out, "=%02X", *p);
        column += plain ? 1 : 3;
    }
    buf_adds(out, "\r\n");
}

void notify_mail_compose(const struct delivery *d, const char *from, const char *host, int64_t now_s,
                         struct buf *out) {
    time_t t = (time_t)now_s;
    struct tm tm;
    char date[64];
    gmtime_r(&t, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S +0000", &tm);
    buf_addf(out,
             "Date: %s\r\nFrom: Acequia <%s>\r\nTo: %s\r\nMessage-ID: <acequia.%llu.%lld@%s>\r\nSubject: ",
             date, from, d->to, (unsigned long long)d->id, (long long)now_s, host);
    add_subject(out, d->subject);
    buf_adds(
        out,
        "\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n");
    add_quoted_printable(out, d->text ? d->text : "");
}

void notify_webhook_signature(const char *secret, size_t secret_len, const char *body, int64_t now_s,
                              struct buf *out) {
    cleanup_buf struct buf text = {0};
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    buf_addf(&text, "%lld.", (long long)now_s);
    buf_adds(&text, body);
    HMAC(EVP_sha256(), secret, (int)secret_len, (const unsigned char *)text.data, text.len, mac, &len);
    buf_addf(out, "t=%lld,v1=", (long long)now_s);
    for (unsigned i = 0; i < len; i++)
        buf_addf(out, "%02x", mac[i]);
}
