// Owns the agent's own listener: one route, one token. Whoever has the token may read the figures and
// nothing else.
#include "metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "agent/gpu/gpus.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "metrics/openmetrics.h"
#include "net/pki.h"
#include "net/server.h"
#include "net/tls.h"

enum { SECRET_BYTES = 24, CLOSE_GRACE_MS = 200, BODY_MAX = 4096, CONNECTIONS_MAX = 64 };

struct agent_metrics {
    struct agent *agent;
    struct net_server *server;
    struct tls_context *tls;
    char token[2 * SECRET_BYTES + 1];
    int64_t start_ms;
};

// Takes as long whatever the first difference is.
static bool same_secret(const char *a, const char *b) {
    size_t n = strlen(a);
    unsigned char difference = 0;
    if (strlen(b) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return !difference;
}

static bool admitted(const struct agent_metrics *m, const struct net_request *req) {
    const char *header = http_message_header(req->http, "Authorization");
    return header && str_has_prefix(header, "Bearer ") && same_secret(m->token, header + 7);
}

static void count_jobs(void *ctx, uint64_t id, uint32_t attempt, enum agent_phase phase) {
    *(uint32_t *)ctx += phase == AGENT_RUNNING || phase == AGENT_LAUNCHING;
}

static void render(struct agent_metrics *m, struct metrics_agent_input *in, struct buf *out) {
    struct agent *a = m->agent;
    const struct message_telemetry *t = gpus_latest(a->gpus);
    uint32_t count = t ? t->gpus.len : 0, gpus = a->shared.node.gpus.len;
    struct metrics_job_gpu *jobs = xcalloc(count + 1, sizeof *jobs);
    uint32_t *held = xcalloc(gpus + 1, sizeof *held), n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct gpu_sample *s = &t->gpus.at[i];
        if (!s->id || s->index >= gpus)
            continue;
        uint32_t milli = gpus_share(a->gpus, s->id, s->attempt, s->index);
        jobs[n++] = (struct metrics_job_gpu){.job = s->id,
                                             .node = a->shared.node.name,
                                             .uuid = a->shared.node.gpus.at[s->index].uuid,
                                             .grant_milli = milli,
                                             .sample = s};
        held[s->index] += milli;
    }
    agent_logic_each(a->shared.logic, count_jobs, &in->jobs);
    in->telemetry = t;
    in->job_gpus.at = jobs;
    in->job_gpus.len = n;
    in->allocated_milli.at = held;
    in->allocated_milli.len = gpus;
    metrics_agent(in, out);
    free(jobs);
    free(held);
}

static void on_request(struct net_request *req, void *user) {
    struct agent_metrics *m = user;
    static const char no[] = "{\"error\":{\"code\":\"EACCES\",\"message\":\"give the token of the agent's "
                             "metrics.token file\"}}\n";
    static const char nothing[] = "{\"error\":{\"code\":\"ENOENT\",\"message\":\"there is only GET /metrics\"}}\n";
    cleanup_buf struct buf b = {0};
    if (!admitted(m, req)) {
        net_reply(req, 401, "application/json", no, sizeof no - 1);
        return;
    }
    if (!streq(req->method, "GET") || !streq(req->path, "/metrics")) {
        net_reply(req, 404, "application/json", nothing, sizeof nothing - 1);
        return;
    }
    struct metrics_agent_input in = {.format = metrics_negotiate(http_message_header(req->http, "Accept")),
                                     .version = ACEQUIA_VERSION,
                                     .now_ms = clock_wall_ms(),
                                     .start_ms = m->start_ms,
                                     .node = &m->agent->shared.node,
                                     .connected = m->agent->shared.open};
    metrics_process_self(&in.process);
    render(m, &in, &b);
    net_reply(req, 200, metrics_content_type(in.format), b.data, b.len);
}

static int load_token(struct agent_metrics *m, struct error *e) {
    cleanup_arena struct arena a = {0};
    uint8_t bytes[SECRET_BYTES];
    const char *path = arena_printf(&a, "%s/metrics.token", m->agent->options->folder);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(m->token, 1, sizeof m->token - 1, f) : 0;
    if (f)
        fclose(f);
    if (n == sizeof m->token - 1)
        return 0;
    int rc = rand_secret(bytes, sizeof bytes);
    if (rc < 0)
        return error_set(e, -rc, "the kernel gives no random numbers");
    for (size_t i = 0; i < SECRET_BYTES; i++)
        snprintf(m->token + 2 * i, 3, "%02x", bytes[i]);
    return pki_write_file(path, m->token, sizeof m->token - 1, 0600, e);
}

// A certificate of this agent alone: one of the cluster's that is good for servers would let an agent
// pass for the controller.
static int open_tls(struct agent_metrics *m, const char *host, struct error *e) {
    cleanup_arena struct arena a = {0};
    const char *folder = m->agent->options->folder, *name = m->agent->shared.node.name;
    const char *ca = arena_printf(&a, "%s/metrics-ca.crt", folder),
               *ca_key = arena_printf(&a, "%s/metrics-ca.key", folder);
    const char *cert = arena_printf(&a, "%s/metrics.crt", folder), *key = arena_printf(&a, "%s/metrics.key", folder);
    bool any = str_empty(host) || streq(host, "0.0.0.0") || streq(host, "::");
    const char *names[] = {name, m->agent->shared.node.address ? m->agent->shared.node.address : "localhost",
                           "localhost", "127.0.0.1", host};
    struct pki_ca *authority = NULL;
    int64_t now_s = clock_wall_ms() / 1000;
    int rc = pki_ca_create(ca, ca_key, name, now_s, e);
    if (rc == 0 || rc == -EEXIST)
        rc = pki_ca_load(ca, ca_key, &authority, e);
    if (rc == 0 && access(cert, F_OK) != 0)
        rc = pki_server_create(authority, cert, key, names, any ? 4 : 5, now_s, e);
    pki_ca_free(authority);
    return rc < 0 ? rc : tls_context_server(cert, key, ca, &m->tls, e);
}

int agent_metrics_open(struct agent *a, const char *listen, struct agent_metrics **out, struct error *e) {
    cleanup_arena struct arena arena = {0};
    struct agent_metrics *m = xcalloc(1, sizeof *m);
    const char *colon = strrchr(listen, ':');
    uint32_t port = 0;
    *m = (struct agent_metrics){.agent = a, .start_ms = clock_wall_ms()};
    char *host = arena_strndup(&arena, listen, colon ? (size_t)(colon - listen) : 0);
    size_t len = strlen(host);
    if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = 0;
        host++;
    }
    int rc = !colon || parse_u32(colon + 1, &port) < 0 || port > 65535
                 ? error_set(e, EINVAL, "metrics_listen: \"%s\" is not ADDRESS:PORT", listen) : 0;
    rc = rc < 0 ? rc : load_token(m, e);
    rc = rc < 0 ? rc : open_tls(m, host, e);
    if (rc == 0) {
        struct net_server_options o = {
            .on_request = on_request, .user = m, .body_max = BODY_MAX, .connections_max = CONNECTIONS_MAX};
        m->server = net_server_new(&a->shared.loop, &o);
        rc = net_server_listen_tls(m->server, *host ? host : NULL, (uint16_t)port, m->tls, e);
    }
    *out = m;  // also on failure: the server's handles must be closed by the loop
    return rc;
}

static void on_closed(void *user) {
    ((struct agent_metrics *)user)->server = NULL;
}

void agent_metrics_stop(struct agent_metrics *m) {
    if (m && m->server)
        net_server_close(m->server, CLOSE_GRACE_MS, on_closed, m);
}

struct agent_metrics *agent_metrics_free(struct agent_metrics *m) {
    if (m)
        tls_context_free(m->tls);
    free(m);
    return NULL;
}
