// The controller of rig.h: what the daemon sets up, without its sockets, signals and files.
#include "rig.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../admission.h"
#include "../app.h"
#include "../job_table.h"
#include "../live.h"
#include "../node_look.h"
#include "../alerts.h"
#include "../backups.h"
#include "../notifier.h"
#include "../portal.h"
#include "../telemetry.h"
#include "base/clock.h"
#include "base/log.h"
#include "controller/daemon.h"

enum { TURNS_MAX = 10000, WAIT_MAX_MS = 60000 };

struct net_peer fake_tls(const char *address, const char *node) {
    struct net_peer p = {.kind = NET_PEER_TLS, .uid = (uid_t)-1, .gid = (gid_t)-1, .has_cert = node != NULL};
    snprintf(p.address, sizeof p.address, "%s", address);
    snprintf(p.cert_cn, sizeof p.cert_cn, "%s", node ? node : "");
    return p;
}

static void hook_job_ended(void *ctx, const struct store_history *row) {
    job_table_ended(ctx, row);
}

void rig_open(struct rig *r) {
    rig_open_on(r, NULL);
}

void rig_open_on(struct rig *r, const char *folder) {
    struct controller *c = &r->c;
    struct core_config config;
    struct error e = {0};
    *r = (struct rig){.disk_ms = 1};
    log_set_level(LOG_ERROR);
    fake_users_answer = false;
    assert_int_equal(config_parse("", 0, &(struct config_source){.file = "test"}, &c->config, &e), 0);
    c->config.cluster.name = "test";
    c->place = c->paths.state = c->paths.run = "/nonexistent";
    c->uid = 999;
    c->started_ms = controller_now_ms();
    uv_loop_init(&c->loop);
    core_config_default(&config);
    config.cluster = "test";
    c->core = core_new(&config);
    c->streams =
        (struct stream_table){.host = &agents_stream_host, .ctx = c, .window_bytes = STREAM_WINDOW_BYTES};
    struct pipeline_hooks hooks = {.ctx = c,
                                   .send = controller_hook_send,
                                   .has_room = controller_hook_has_room,
                                   .secret = controller_hook_secret,
                                   .job_changed = controller_hook_job_changed,
                                   .job_ended = hook_job_ended,
                                   .node_lost = controller_hook_node_lost,
                                   .storage = controller_hook_storage};
    c->pipeline = pipeline_new(c->core, &hooks);
    r->disk = folder ? NULL : sim_disk_new(1);
    struct store_config store = {
        .path = folder, .watch = pipeline_watch(c->pipeline), .level = FEATURE_LEVEL_NEWEST};
    assert_int_equal(
        folder ? store_open(&store, &c->store, &e) : sim_store_open(r->disk, &store, &c->store, &e), 0);
    pipeline_attach(c->pipeline, c->store);
    assert_int_equal(pipeline_load(c->pipeline, controller_now_ms(), &e), 0);
    assert_int_equal(controller_init_keys(c, &e), 0);
    audit_open(c);
    if (!c->paths.keys)
        c->paths.keys = "/dev/null/keys";  // cannot be made
    portal_open(c);
    telemetry_open(c);
    c->notifier = notifier_new(c, NULL);
    c->alerts = alerts_new();
    c->backups = backups_new();
    controller_reads_init(c);
    controller_requests_init(c);
    c->request_turn_us = 0;  // tests do not depend on the machine's speed
    query_throttle_init(c);
    controller_work_init(c);
    job_table_open(c);
    live_open(c);
    apps_open(c);
    rig_settle(r);
}

void rig_authority(struct rig *r) {
    struct pki_pair p = {0};
    struct error e = {0};
    assert_int_equal(pki_ca_make("test", controller_now_ms() / 1000, &p, &e), 0);
    assert_int_equal(pki_ca_parse(&p, &r->c.ca, &e), 0);
    pki_pair_done(&p);
}

bool rig_turn(struct rig *r) {
    struct controller *c = &r->c;
    struct store_stats before, after;
    store_stats(c->store, &before);
    uint32_t work = c->work.len;
    bool requests = controller_requests_turn(c);
    pipeline_flush(c->pipeline, controller_now_ms(), true);
    bool reads = job_table_turn(c) | controller_reads_turn(c);
    r->disk_ms += 1000;
    if (r->disk && r->disk_waits)
        ;
    else if (r->disk)
        sim_disk_tick(r->disk, r->disk_ms);
    else
        store_flush(c->store);
    pipeline_poll(c->pipeline);
    controller_work_committed(c);
    controller_reads_wake(c);
    uv_run(&c->loop, UV_RUN_NOWAIT);
    controller_work_turn_ends(c);
    apps_turn(c);
    bool closed = false;
    for (uint32_t i = 0; i < r->raws.len; i++) {
        struct net_raw *raw = r->raws.at[i];
        reads |= fake_raw_go_on(raw);
        if (raw->closed || (!raw->ended && !raw->aborted))
            continue;
        closed = raw->closed = true;
        raw->callbacks->on_close(raw, raw->user);
    }
    for (uint32_t i = 0; i < r->sockets.len; i++) {
        struct net_ws *ws = r->sockets.at[i];
        if (!ws->closing || ws->closed)
            continue;
        closed = ws->closed = true;
        ws->callbacks.on_close(ws, ws->status, ws->reason, ws->user);
    }
    store_stats(c->store, &after);
    return closed || work || reads || requests || pipeline_dirty(c->pipeline) ||
           before.committed_seq != after.committed_seq;
}

void rig_settle(struct rig *r) {
    uint32_t quiet = 0;
    for (int i = 0; i < TURNS_MAX && quiet < 3; i++)
        quiet = rig_turn(r) ? 0 : quiet + 1;
}

void rig_wait(struct rig *r, const struct fake_request *q) {
    for (int64_t until_ms = clock_mono_ms() + WAIT_MAX_MS; !q->status && clock_mono_ms() < until_ms;) {
        usleep(1000);
        rig_settle(r);
    }
}

void rig_disk_fails(struct rig *r, bool fails) {
    sim_disk_faults(r->disk, &(struct sim_disk_faults){.fail_permille = fails ? 1000 : 0});
    if (!fails) {
        pipeline_retry(r->c.pipeline);
        rig_settle(r);
    }
}

static void close_handle(uv_handle_t *h, void *arg) {
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

void rig_close(struct rig *r) {
    struct controller *c = &r->c;
    for (uint32_t i = 0; i < r->sockets.len; i++)
        net_ws_close(r->sockets.at[i], WS_GOING_AWAY, "");
    for (uint32_t i = 0; i < r->raws.len; i++)
        r->raws.at[i]->aborted = true;
    rig_settle(r);
    for (uint32_t i = 0; i < r->requests.len; i++)
        if (!r->requests.at[i]->done)
            fake_leave(r->requests.at[i]);
    rig_settle(r);
    c->stopping = true;
    controller_node_looks_stop(c);
    api_users_changed(c);
    controller_work_stop(c);
    controller_requests_stop(c);
    uv_walk(&c->loop, close_handle, NULL);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    controller_release(c);
    assert_int_equal(uv_loop_close(&c->loop), 0);
    sim_disk_free(r->disk);
    for (uint32_t i = 0; i < r->requests.len; i++) {
        struct fake_request *q = r->requests.at[i];
        http_message_done(&q->message);
        arena_done(&q->arena);
        buf_done(&q->headers);
        buf_done(&q->body);
        free(q);
    }
    vec_done(&r->requests);
    for (uint32_t i = 0; i < r->sockets.len; i++) {
        struct net_ws *ws = r->sockets.at[i];
        for (uint32_t k = 0; k < ws->sent.len; k++)
            free(ws->sent.at[k].data);
        vec_done(&ws->sent);
        free(ws);
    }
    vec_done(&r->sockets);
    for (uint32_t i = 0; i < r->raws.len; i++) {
        buf_done(&r->raws.at[i]->out);
        buf_done(&r->raws.at[i]->kept);
        free(r->raws.at[i]);
    }
    vec_done(&r->raws);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    return remove(path);
}

void rig_remove_folder(const char *path) {
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

// --- reading answers ---

const struct json *fake_json(struct fake_request *q) {
    struct json *j;
    struct error e = {0};
    if (json_parse(q->body.data, q->body.len, &q->arena, &j, &e) < 0)
        fail_msg("%s %s answered %d, no JSON: %s", q->pub.method, q->pub.path, q->status, buf_str(&q->body));
    return j;
}

void fake_expect(const struct fake_request *q, int status, const char *text) {
    struct buf body = q->body;
    if (q->status != status || (text && !strstr(buf_str(&body), text)))
        fail_msg("%s %s answered %d, not %d with %s: %s", q->message.method, q->message.path, q->status,
                 status, text ? text : "anything", buf_str(&body));
}

// --- agents ---

void rig_message(struct rig *r, struct net_ws *ws, enum message_type type, void *body) {
    cleanup_buf struct buf b = {0};
    message_encode(&(struct message){type, body}, &b);
    fake_binary(r, ws, b.data, b.len);
}

void rig_hello(struct rig *r, struct net_ws *ws, const char *name) {
    struct node node = {
        .name = name, .cpus = 8, .memory_bytes = 16ULL << 30, .boot_id = "b1", .spool_id = "s1"};
    struct message_hello hello = {.node = &node, .protocol = 1, .level = FEATURE_LEVEL_NEWEST};
    rig_message(r, ws, MESSAGE_HELLO, &hello);
}

struct net_ws *rig_agent(struct rig *r, const char *name) {
    struct net_ws *ws = rig_socket(r, &fake_root, "/v1/agent");
    assert_non_null(ws);
    rig_hello(r, ws, name);
    if (ws->closed)
        fail_msg("the hello of %s is refused: %s", name, ws->reason);
    return ws;
}
