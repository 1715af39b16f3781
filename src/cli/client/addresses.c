// Reads and compares lists of controllers' addresses.
#include "cli/client/addresses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/client/client.h"

enum { SHOWN_MAX = 200 };

static bool is_socket(const char *one) {
    return *one == '/' || str_has_prefix(one, "unix:");
}

static int refuse(const char *one, size_t len, struct error *e) {
    char shown[SHOWN_MAX];
    cleanup_free char *text = xstrndup(one, len);
    return error_set(
        e, EINVAL,
        "the controller's address is \"%s\"; write HOST:PORT or the path of a unix socket, several "
        "divided by commas",
        str_printable(text, shown, sizeof shown));
}

static int add_host(const char *one, size_t len, struct buf *out, struct error *e) {
    cleanup_free char *text = xstrndup(one, len);
    uint32_t port = CLIENT_PORT_DEFAULT;
    char *colon = strrchr(text, ':'), *host = text;
    bool bare_v6 = colon && *text != '[' && strchr(text, ':') != colon;
    bool has_port = colon && !bare_v6 && !strchr(colon, ']');
    if (has_port && (parse_u32(colon + 1, &port) < 0 || !port || port > 65535))
        return refuse(one, len, e);
    if (has_port)
        *colon = 0;
    size_t n = strlen(host);
    if (*host == '[' && n > 2 && host[n - 1] == ']') {
        host[n - 1] = 0;
        host++;
    }
    if (!*host || strpbrk(host, " /[]"))
        return refuse(one, len, e);
    buf_addf(out, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    return 0;
}

int addresses_normal(const char *list, struct buf *out, struct error *e) {
    size_t begin = out->len;
    for (const char *at = list;; at++) {
        at += strspn(at, " ");
        size_t whole = strcspn(at, ","), len = whole;
        while (len && at[len - 1] == ' ')
            len--;
        if (out->len > begin)
            buf_addc(out, ',');
        int r = 0;
        if (len && is_socket(at))
            buf_add(out, *at == '/' ? at : at + 5, *at == '/' ? len : len - 5);
        else
            r = len ? add_host(at, len, out, e) : refuse(list, strlen(list), e);
        if (r < 0)
            return r;
        at += whole;
        if (!*at)
            return 0;
    }
}

unsigned addresses_count(const char *list) {
    unsigned count = 1;
    for (const char *p = list; *p; p++)
        count += *p == ',';
    return count;
}

const char *addresses_at(const char *list, unsigned number, size_t *len) {
    for (; number; number--)
        list = strchr(list, ',') + 1;
    *len = strcspn(list, ",");
    return list;
}

bool addresses_need_tls(const char *list) {
    size_t len;
    for (unsigned i = 0; i < addresses_count(list); i++)
        if (*addresses_at(list, i, &len) != '/')
            return true;
    return false;
}

static bool has(const char *list, const char *one, size_t one_len) {
    size_t len;
    for (unsigned i = 0; i < addresses_count(list); i++) {
        const char *at = addresses_at(list, i, &len);
        if (len == one_len && memcmp(at, one, len) == 0)
            return true;
    }
    return false;
}

bool addresses_within(const char *list, const char *known) {
    size_t len;
    for (unsigned i = 0; i < addresses_count(list); i++) {
        const char *at = addresses_at(list, i, &len);
        if (!has(known, at, len))
            return false;
    }
    return true;
}

void addresses_split(const char *one, size_t len, char **host, unsigned *port) {
    size_t colon = len;
    while (colon && one[colon - 1] != ':')
        colon--;
    bool v6 = *one == '[';
    *host = xstrndup(one + v6, colon - 1 - 2 * (size_t)v6);
    *port = (unsigned)strtoul(one + colon, NULL, 10);
}
