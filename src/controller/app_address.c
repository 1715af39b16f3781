// Owns the names of programs: LABEL.localhost on one machine, LABEL.apps.lab.example over TLS. A label is the job's
// number, the port, and a proof that we made it: nobody can guess the name of another user's program, and a page
// cannot be made to ask for one.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app.h"
#include "base/log.h"
#include "base/text.h"
#include "model/port.h"
#include "portal.h"
#include "serve.h"

enum { PROOF_HEX = 24 };  // 96 bits

struct mac_key *app_key(struct controller *c, struct error *e) {
    struct apps *x = c->apps;
    if (!x->has_key && controller_derive_key(c, "programs of jobs", &x->key, e) == 0)
        x->has_key = true;
    return x->has_key ? &x->key : NULL;
}

// --- labels ---

static int label_text(const struct app_name *name, char out[static 32]) {
    return snprintf(out, 32, "%llu-%u", (unsigned long long)name->job, name->port);
}

int app_label(struct controller *c, const struct app_name *name, char out[static APP_LABEL_MAX + 1],
              struct error *e) {
    char text[32], proof[MAC_HEX + 1];
    const struct mac_key *key = app_key(c, e);
    if (!key)
        return e->code ? -e->code : -EIO;
    if (app_is_service(name)) {
        const struct serve_service *s = serve_find(c, name->job);
        snprintf(out, APP_LABEL_MAX + 1, "%s", s ? s->label : "");
        return s ? 0 : error_set(e, ENOENT, "there is no such service");
    }
    int len = label_text(name, text);
    mac_hex(key, "label", text, (size_t)len, proof);
    snprintf(out, APP_LABEL_MAX + 1, "%s-%.*s", text, PROOF_HEX, proof);
    return 0;
}

// Digits without leading zeros: a name is written in one way only.
static bool take_number(const char **at, uint64_t max, uint64_t *out) {
    uint64_t v = 0;
    const char *s = *at;
    if (*s < '1' || *s > '9')
        return false;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (v > (max - (uint64_t)(*s - '0')) / 10)
            return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *at = s;
    *out = v;
    return true;
}

bool app_of_label(struct controller *c, const char *label, size_t len, struct app_name *out) {
    char text[APP_LABEL_MAX + 1];
    const char *at = text;
    uint64_t job, port;
    struct error e = {0};
    if (len > APP_LABEL_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        text[i] = label[i] >= 'A' && label[i] <= 'Z' ? (char)(label[i] | 0x20) : label[i];
    text[len] = 0;
    if ((job = serve_of_label(c, text))) {
        *out = (struct app_name){.job = job, .service = true};
        return true;
    }
    if (strlen(text) != len || !take_number(&at, UINT64_MAX, &job) || *at++ != '-' ||
        !take_number(&at, UINT16_MAX, &port) || *at != '-' || strlen(at + 1) != PROOF_HEX)
        return false;
    const struct mac_key *key = app_key(c, &e);
    if (!key || !mac_matches(key, "label", text, (size_t)(at - text), at + 1, PROOF_HEX))
        return false;
    *out = (struct app_name){.job = job, .port = (uint32_t)port};
    return true;
}

// --- hosts ---

// ".localhost:6821", as the name of the portal on this machine ends.
static const char *loopback_suffix(const struct controller *c) {
    const char *dot = strchr(portal_host(c), '.');
    return dot ? dot : "";
}

// The domain without the port that it may be given with.
static size_t domain_length(const struct controller *c) {
    return strcspn(c->config.portal.apps_domain, ":");
}

// The label of a host that is below ours; NULL: it is not. A port over TLS may be another one: somebody may forward it.
static const char *label_of(const struct controller *c, const struct net_peer *peer, const char *host,
                            size_t *len) {
    const char *dot = host ? strchr(host, '.') : NULL;
    if (!dot || dot == host)
        return NULL;
    *len = (size_t)(dot - host);
    if (peer->kind == NET_PEER_HTTP) {
        const char *suffix = loopback_suffix(c);
        return *suffix && strcasecmp(dot, suffix) == 0 && strcasecmp(host, portal_host(c)) != 0 ? host : NULL;
    }
    size_t domain = domain_length(c), rest = strcspn(dot + 1, ":");
    bool below = peer->kind == NET_PEER_TLS && domain && rest == domain &&
                 strncasecmp(dot + 1, c->config.portal.apps_domain, domain) == 0;
    return below ? host : NULL;
}

bool app_owns_host(const struct controller *c, const struct net_peer *peer, const char *host) {
    size_t len;
    return c->apps && label_of(c, peer, host, &len);
}

bool app_of_host(struct controller *c, const struct net_peer *peer, const char *host, struct app_name *out) {
    size_t len;
    const char *label = label_of(c, peer, host, &len);
    return label && app_of_label(c, label, len, out);
}

// The port at which TLS is reached; "" for the usual one.
static void add_tls_port(const struct controller *c, struct buf *out) {
    const char *colon = strrchr(c->config.cluster.listen, ':');
    if (colon && !streq(colon, ":443"))
        buf_adds(out, colon);
}

int app_url(struct controller *c, enum net_peer_kind way, const struct app_name *name, struct buf *out,
            struct error *e) {
    const char *domain = c->config.portal.apps_domain;
    char label[APP_LABEL_MAX + 1];
    bool tls = way == NET_PEER_TLS || (way == NET_PEER_UNIX && !str_empty(domain));
    if (tls && (str_empty(domain) || str_empty(c->config.cluster.listen)))
        return error_set(
            e, ENOTSUP,
            "programs of jobs have no address over the network here; use 'acequia port-forward', or "
            "have an administrator set apps_domain in [portal]");
    if (!tls && !*portal_host(c))
        return error_set(
            e, ENOTSUP,
            "the portal does not listen on this machine, so programs of jobs have no address; use "
            "'acequia port-forward', or see enabled and port in [portal], and the log");
    int r = app_label(c, name, label, e);
    if (r < 0)
        return r;
    buf_addf(out, "%s://%s", tls ? "https" : "http", label);
    if (!tls) {
        buf_adds(out, loopback_suffix(c));
        return 0;
    }
    buf_addf(out, ".%.*s", (int)domain_length(c), domain);
    const char *port = domain + domain_length(c);
    if (!*port)
        add_tls_port(c, out);
    else if (!streq(port, ":443"))
        buf_adds(out, port);
    return 0;
}

void app_portal_url(const struct controller *c, enum net_peer_kind way, struct buf *out) {
    const struct config_portal *k = &c->config.portal;
    if (way != NET_PEER_TLS) {
        buf_addf(out, "http://%s", portal_host(c));
        return;
    }
    if (!str_empty(k->url)) {
        size_t len = strlen(k->url);
        buf_add(out, k->url, len && k->url[len - 1] == '/' ? len - 1 : len);
        return;
    }
    buf_addf(out, "https://%s", k->names.len ? k->names.at[0] : c->hostname);
    add_tls_port(c, out);
}

// What a job with a head serves is its head's; the attempt becomes the head's.
static uint64_t serving_job(const struct controller *c, uint64_t job, uint32_t *attempt) {
    uint64_t head = core_head(c->core, job);
    struct job_view v;
    if (!head || !core_view(c->core, head, &v))
        return job;
    *attempt = v.attempt;
    return head;
}

void app_job_urls(struct controller *c, enum net_peer_kind way, uint64_t job, uint32_t attempt,
                  const struct spec *spec, struct arena *a, struct answer_job *out) {
    struct job_port p;
    struct error e = {0};
    if (!c->apps || !spec->ports.len)
        return;
    out->urls.at = arena_alloc(a, spec->ports.len * sizeof *out->urls.at);
    job = serving_job(c, job, &attempt);
    uint64_t number = core_agent_job_number(c->core, job, attempt);
    for (uint32_t i = 0; i < spec->ports.len; i++) {
        cleanup_buf struct buf url = {0};
        if (port_parse(spec->ports.at[i], &p, &e) < 0 || p.protocol != PORT_HTTP)
            continue;
        struct app_name name = {job, port_number(&p, number, i)};
        if (app_url(c, way, &name, &url, &e) == 0)
            out->urls.at[out->urls.len++] = arena_printf(a, "%s/", buf_str(&url));
    }
}

void app_job_ports(struct controller *c, const struct job_record *r, struct arena *a,
                   struct answer_job *out) {
    static const char *const words[] = {[PORT_HTTP] = "http", [PORT_TCP] = "tcp"};
    struct job_port p;
    struct error e = {0};
    uint32_t attempt = r->attempt;
    uint64_t job = serving_job(c, r->id, &attempt);
    out->ports.at = arena_alloc(a, (r->spec->ports.len + 1) * sizeof *out->ports.at);
    for (uint32_t i = 0; i < r->spec->ports.len; i++) {
        bool chosen = port_parse(r->spec->ports.at[i], &p, &e) == 0 && !p.number && !p.path;
        uint64_t number = chosen ? core_agent_job_number(c->core, job, attempt) : 0;
        out->ports.at[out->ports.len++] =
            chosen ? arena_printf(a, "%s:%u", words[p.protocol], port_number(&p, number, i))
                   : r->spec->ports.at[i];
    }
}
