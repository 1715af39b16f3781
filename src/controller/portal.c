// The portal on one machine: plain HTTP on 127.0.0.1 under a name that only its users know, RANDOM.localhost. Browsers
// resolve every *.localhost to the machine itself. Cookies do not tell ports apart: under the name "localhost" the
// server of another user on this machine would be sent the session.
// Name and port are kept in the store, so that bookmarks and sessions outlive a restart.
#include "portal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/text.h"
#include "model/paths.h"
#include "portal_pack.h"

enum { LABEL_BYTES = 16, LABEL_HEX = 2 * LABEL_BYTES, PORT_FIRST = 6821 };
#define BLOB "portal"

struct portal {
    char label[LABEL_HEX + 1];
    char host[LABEL_HEX + 32];
    uint16_t port;
    struct stat loaded;  // of the file that was read
    struct portal_pack pack;
};

// --- name and port ---

static bool is_label(const char *s) {
    return strlen(s) == LABEL_HEX && strspn(s, "0123456789abcdef") == LABEL_HEX;
}

static void make_label(struct portal *p) {
    unsigned char bytes[LABEL_BYTES];
    if (rand_secret(bytes, sizeof bytes) < 0)
        return;  // no name, no portal
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(p->label + 2 * i, 3, "%02x", bytes[i]);
}

static void read_place(struct controller *c, struct portal *p) {
    void *data;
    size_t len;
    char label[LABEL_HEX + 1];
    unsigned port;
    if (store_blob(c->store, BLOB, &data, &len, NULL) < 0)
        return;
    cleanup_arena struct arena a = {0};
    if (sscanf(arena_strndup(&a, data, len), "%32s %u", label, &port) == 2 && is_label(label) &&
        port <= UINT16_MAX) {
        memcpy(p->label, label, sizeof label);
        p->port = (uint16_t)port;
    }
    free(data);
}

static void keep_place(struct controller *c, const struct portal *p) {
    char text[LABEL_HEX + 16];
    int n = snprintf(text, sizeof text, "%s %u", p->label, p->port);
    pipeline_keep_blob(c->pipeline, BLOB, text, (size_t)n);
}

// The port of the configuration; else the one it had, the usual one, or any.
static int listen_somewhere(struct controller *c, struct portal *p, struct error *e) {
    uint16_t ports[] = {(uint16_t)c->config.portal.port, p->port, PORT_FIRST, 0};
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        uint16_t port = ports[i];
        bool last = i + 1 == sizeof ports / sizeof *ports;
        if (!port && !last)
            continue;
        int r = net_server_listen_loopback(c->server, &port, e);
        if (r == 0)
            p->port = port;
        if (r == 0 || i == 0 || last)
            return r;
    }
    return -EADDRINUSE;
}

void portal_open(struct controller *c) {
    struct error e = {0};
    struct portal *p = xcalloc(1, sizeof *p);
    c->portal = p;
    if (!c->config.portal.enabled)
        return;
    read_place(c, p);
    char label[sizeof p->label];
    uint16_t port = p->port;
    memcpy(label, p->label, sizeof label);
    if (!*p->label)
        make_label(p);
    if (!*p->label || listen_somewhere(c, p, &e) < 0) {
        log_warn("no portal on this machine: %s", *e.text ? e.text : "the kernel gives no random numbers");
        return;
    }
    snprintf(p->host, sizeof p->host, "%s.localhost:%u", p->label, p->port);
    if (!streq(label, p->label) || port != p->port)
        keep_place(c, p);
}

void portal_close(struct controller *c) {
    if (!c->portal)
        return;
    portal_pack_done(&c->portal->pack);
    free(c->portal);
    c->portal = NULL;
}

const char *portal_host(const struct controller *c) {
    return c->portal ? c->portal->host : "";
}

// --- files ---

// That of the configuration; else beside the program, or where the build leaves it.
static bool find_file(const struct controller *c, char out[static PATH_MAX]) {
    static const char *const places[] = {".", "../portal", "../../portal", NULL};
    cleanup_arena struct arena a = {0};
    const char *folder, *given = c->config.portal.file;
    if (!str_empty(given))
        return snprintf(out, PATH_MAX, "%s", given) < PATH_MAX;
    folder = paths_beside(&a, NULL, places, "portal.pack", R_OK);
    return folder && snprintf(out, PATH_MAX, "%s/portal.pack", folder) < PATH_MAX;
}

static int read_file(const char *path, struct stat *st, struct buf *out, struct error *e) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) < 0)
        return error_set(e, errno, "the portal's file %s cannot be read: %m", path);
    if (!S_ISREG(st->st_mode) || st->st_size > PORTAL_PACK_BYTES_MAX)
        return error_set(e, EFBIG, "the portal's file %s is no plain file of at most %d MiB", path,
                         PORTAL_PACK_BYTES_MAX >> 20);
    size_t want = (size_t)st->st_size;
    buf_reserve(out, want);
    while (out->len < want) {
        ssize_t n = read(fd, out->data + out->len, want - out->len);
        if (n <= 0)
            return error_set(e, EIO, "the portal's file %s cannot be read to its end", path);
        out->len += (size_t)n;
    }
    return 0;
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// A portal that was built again is served without a restart. What cannot be read leaves the one before in place.
static int load(struct controller *c, struct error *e) {
    struct portal *p = c->portal;
    struct stat st;
    cleanup_buf struct buf bytes = {0};
    struct portal_pack pack;
    char path[PATH_MAX];
    if (!find_file(c, path) || stat(path, &st) < 0)
        return p->pack.files.len ? 0 : -ENOENT;
    if (p->pack.files.len && same_file(&st, &p->loaded))
        return 0;
    int r = read_file(path, &st, &bytes, e);
    if (r < 0 || (r = portal_pack_parse(&pack, &bytes, e)) < 0)
        return p->pack.files.len ? 0 : r;
    portal_pack_done(&p->pack);
    p->pack = pack;
    p->loaded = st;
    return 0;
}

bool portal_has_path(const struct net_request *req) {
    const char *path = req->path;
    return req->peer->kind != NET_PEER_UNIX && !streq(path, "/metrics") &&
           !(str_has_prefix(path, "/v1") && (!path[3] || path[3] == '/'));
}

static void send_file(struct net_request *req, const struct portal_file *f) {
    const char *known = http_message_header(req->http, "If-None-Match");
    bool asset = str_has_prefix(f->path, "/assets/");
    char etag[128];
    snprintf(etag, sizeof etag, "\"%.100s\"", f->etag);
    net_reply_header(req, "Cache-Control", asset ? "public, max-age=31536000, immutable" : "no-cache");
    net_reply_header(req, "ETag", etag);
    net_reply_header(req, "Vary", "Accept-Encoding");
    if (known && streq(known, etag)) {
        net_reply(req, 304, NULL, NULL, 0);
        return;
    }
    if (http_message_has_token(req->http, "Accept-Encoding", "gzip")) {
        net_reply_header(req, "Content-Encoding", "gzip");
        net_reply(req, 200, f->type, f->data, f->len);
        return;
    }
    cleanup_buf struct buf plain = {0};
    struct error e = {0};
    if (portal_pack_unpack(f, &plain, &e) < 0)
        api_error(req, 500, "EIO", e.text);
    else
        net_reply(req, 200, f->type, plain.data, plain.len);
}

void portal_reply(struct controller *c, struct net_request *req) {
    static const char missing[] =
        "The portal is not built here; everything else works. It is built by \"./run up\" (or \"make "
        "portal\") in the "
        "sources, which needs Node 18 or newer and npm, and is part of the Debian package.\n";
    struct error e = {0};
    if (!streq(req->method, "GET") && !streq(req->method, "HEAD")) {
        net_reply_header(req, "Allow", "GET, HEAD");
        api_error(req, 405, "EINVAL",
                  "this path takes GET and HEAD only; GET /v1 lists the paths of the API");
        return;
    }
    if (!c->portal || !c->config.portal.enabled) {
        api_error(req, 404, "ENOENT", "the portal is turned off; GET /v1 lists the paths of the API");
        return;
    }
    if (load(c, &e) < 0) {
        net_reply(req, 503, "text/plain; charset=utf-8", *e.text ? e.text : missing,
                  strlen(*e.text ? e.text : missing));
        return;
    }
    const struct portal_file *f = portal_pack_find(&c->portal->pack, req->path);
    // A page of the portal's own making; a name with a dot is a file that is not there.
    if (!f && !str_has_prefix(req->path, "/assets/") && !strchr(strrchr(req->path, '/'), '.'))
        f = portal_pack_find(&c->portal->pack, "/index.html");
    if (f)
        send_file(req, f);
    else
        api_error(req, 404, "ENOENT", "there is no such file of the portal");
}
