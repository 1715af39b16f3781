// Owns the daemon's life: configuration, store, listeners, timers, signals, and an orderly end.
#include "controller/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/text.h"
#include "admission.h"
#include "alerts.h"
#include "backups.h"
#include "api.h"
#include "app.h"
#include "serve.h"
#include "audit.h"
#include "controller.h"
#include "files.h"
#include "job_table.h"
#include "live.h"
#include "journal_replay.h"
#include "login.h"
#include "policy.h"
#include "portal.h"
#include "snapshot_maker.h"
#include "node_look.h"
#include "notifier.h"
#include "providers.h"
#include "past_view.h"
#include "telemetry.h"

enum {
    TICK_MS = 1000,
    DESCRIPTORS = 32 * 1024,
    OTHER_DESCRIPTORS = 1024,  // not for connections of users
    STORE_RESERVE_BYTES = 32 << 20,
    STORE_LOW_BYTES = 64 << 20,
    CLOSE_GRACE_MS = 500,
    PRUNE_TICKS = 60,
    SCHEDULE_SHARE = 4,  // a decision that took t is not repeated before SCHEDULE_SHARE * t have passed
    SCHEDULE_FREE_US = 2000,
    LARGE_BUFFER_BYTES = 64 << 10,
    TRIM_AFTER_BYTES = 4 << 20,  // of requests: what they needed goes back to the system
};

static int32_t zone_offset_s(void) {
    time_t t = time(NULL);
    struct tm tm;
    localtime_r(&t, &tm);
    return (int32_t)tm.tm_gmtoff;
}

// --- the loop ---

static bool too_soon(const struct controller *c) {
    return c->schedule_us > SCHEDULE_FREE_US &&
           clock_mono_us() - c->scheduled_mono_us < SCHEDULE_SHARE * c->schedule_us;
}

static void on_wake(uv_timer_t *t) {
}

static void flush(struct controller *c) {
    bool schedule = !too_soon(c);
    struct core_passes passes, after;
    core_passes(c->core, &passes);
    int64_t before = clock_mono_us(), now = controller_now_ms();
    int64_t next = pipeline_flush(c->pipeline, now, schedule);
    if (schedule) {
        c->scheduled_mono_us = clock_mono_us();
        c->schedule_us = c->scheduled_mono_us - before;
        c->schedules++;
        core_passes(c->core, &after);
        if (after.passes != passes.passes)  // else nothing had to be decided
            metrics_observe(&c->pass_times, (uint64_t)c->schedule_us);
    } else if (next > now + c->schedule_us * SCHEDULE_SHARE / 1000) {
        next = now + c->schedule_us * SCHEDULE_SHARE / 1000 + 1;
    }
    if (next == INT64_MAX)
        uv_timer_stop(&c->wake);
    else
        uv_timer_start(&c->wake, on_wake, next > now ? (uint64_t)(next - now) : 1, 0);
}

// Runs before the loop waits: everything that came in together is committed together.
static void on_prepare(uv_prepare_t *h) {
    struct controller *c = h->data;
    if (c->stopping)
        return;
    controller_lease_look(c);
    controller_requests_turn(c);
    serve_turn_ends(c);
    flush(c);
    apps_turn(c);
    controller_work_turn_ends(c);
    job_table_turn(c);
    controller_reads_turn(c);  // jobs that have ended are in the table now
}

static void on_store(uv_poll_t *h, int status, int events) {
    struct controller *c = h->data;
    pipeline_poll(c->pipeline);
    controller_work_committed(c);
    controller_reads_wake(c);
}

static void on_users(uv_poll_t *h, int status, int events) {
    struct controller *c = h->data;
    if (users_read(c->users, clock_mono_ms()))
        api_users_changed(c);
}

static int write_pid(const struct controller *c, struct error *e) {
    cleanup_arena struct arena a = {0};
    const char *path = paths_pid_file(&c->paths, &a, "controller");
    char text[24];
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    return pki_write_file(path, text, strlen(text), 0644, e);
}

// A full file system must not keep the controller from starting: it is written as soon as there is room.
static void keep_pid(struct controller *c) {
    struct error e = {0};
    int r = write_pid(c, &e);
    if (r < 0 && !c->pid_unwritten)
        log_warn("%s; 'acequia down' will not find this controller, process %d, until that is over", e.text,
                 (int)getpid());
    c->pid_unwritten = r < 0;
}

// Somebody, or a program that cleans up, deleted the socket or its folder: without it nobody reaches the controller.
static void keep_socket(struct controller *c) {
    struct error e = {0};
    int r = c->stopping ? 0 : net_server_restore_unix(c->server, &e);
    if (r < 0 && (r = paths_make(c->paths.run, 0755, &e)) == 0)
        r = net_server_restore_unix(c->server, &e);
    if (r > 0)
        log_warn("the socket %s was deleted, and is put back", c->paths.socket);
    if (r > 0 || c->pid_unwritten)
        keep_pid(c);  // the same may have happened to it
    if (r < 0 && c->ticks % 60 == 0)
        log_error("the socket %s was deleted, and cannot be put back: %s", c->paths.socket, e.text);
}

static void prune(struct controller *c, int64_t mono) {
    int64_t jump_ms, now_ms = store_retention_now_ms(&c->retention, controller_now_ms(), mono, &jump_ms);
    if (jump_ms)
        log_warn(
            "the clock was set forward by %lld min; what is old by it is deleted only after a day, so set it "
            "right until then if it is wrong",
            (long long)jump_ms / 60000);
    if (++c->ticks % PRUNE_TICKS == 0)
        store_prune(c->store, now_ms);
}

static void on_tick(uv_timer_t *t) {
    struct controller *c = t->data;
    const struct config_cluster *k = &c->config.cluster;
    int64_t mono = clock_mono_ms();
    agents_tick(c);
    if (c->handing_over) {
        flush(c);
        store_flush(c->store);  // and with it the answers leave
        controller_hand_over(c);
        return;
    }
    pipeline_check_nodes(c->pipeline, mono, (int64_t)k->node_timeout_s * 1000, controller_now_ms());
    if (pipeline_degraded(c->pipeline, NULL, 0))
        pipeline_retry(c->pipeline);
    if (c->body_bytes > TRIM_AFTER_BYTES) {
        c->body_bytes = 0;
        malloc_trim(0);
    }
    prune(c, mono);
    if (c->ticks % 60 == 0 || !c->database_noted)
        controller_note_database(c);
    if (users_tick(c->users, mono))
        api_users_changed(c);
    api_end_tokens(c);
    controller_files_tick(c, mono);
    telemetry_tick(c);
    controller_snapshot_tick(c);
    keep_socket(c);
    alerts_tick(c, mono);
    backups_tick(c);
    controller_node_looks_tick(c);
    notifier_tick(c->notifier);
    providers_tick(c->providers);
    controller_step_sessions_renew(c);
    controller_sessions_tick(c);
    apps_tick(c);
    serve_tick(c);
}

// --- start ---

static void core_config_of(const struct config_cluster *k, struct core_config *out) {
    core_config_default(out);
    rand_secret(&out->epoch_random, sizeof out->epoch_random);
    out->cluster = k->name;
    out->max_jobs = k->max_queue_length;
    out->max_jobs_per_user = k->max_jobs_per_user;
    out->max_text_bytes_per_user = k->max_texts_bytes_per_user;
    out->volume_folder = k->volume_folder;
    out->max_array_size = k->max_array_size;
    out->max_keys_per_user = k->max_keys_per_user;
    out->default_time_s = k->default_time_s == UINT32_MAX ? 0 : k->default_time_s;
    out->default_memory_per_cpu_bytes = k->default_memory_per_cpu_bytes;
    out->grace_s = k->grace_s;
    out->requeue = k->requeue;
    out->policy.grace_ms = (int64_t)k->grace_s * 1000;
}

int controller_init_keys(struct controller *c, struct error *e) {
    uint8_t secret[PIPELINE_KEY_SECRET_BYTES];
    if (rand_secret(secret, sizeof secret) < 0)
        return error_set(e, EIO, "the kernel gives no random numbers; idempotency keys need 16 bytes of them");
    return pipeline_init_keys(c->pipeline, secret, controller_now_ms(), e);
}

// Where others reach this controller.
static const char *own_address(struct controller *c) {
    const char *given = c->config.store.address, *listen = c->config.cluster.listen;
    const char *colon = strrchr(listen, ':');
    return !str_empty(given) ? given : arena_printf(&c->arena, "%s%s", c->hostname, colon ? colon : "");
}

// 1: it was told to stop.
static int open_store(struct controller *c, struct error *e) {
    static const char *const companions[] = {"ca.crt", "ca.key", "server.crt", "server.key", "series.bin", NULL};
    struct store_config config = {
        .path = c->place,
        .address = own_address(c),
        .states = job_state_words,
        .lease_ms = c->config.store.lease_s * 1000,
        .watch = pipeline_watch(c->pipeline),
        .reserve_bytes = STORE_RESERVE_BYTES,
        .low_bytes = STORE_LOW_BYTES,
        .level = FEATURE_LEVEL_NEWEST,
        .companions = companions,
        .retention = {.journal_ms = (int64_t)c->config.cluster.history_days * 86400000,
                      .history_ms = (int64_t)c->config.cluster.history_days * 86400000,
                      .file_bytes = c->config.cluster.history_bytes}};
    int64_t before = clock_mono_ms();
    int r = 0;
    if (c->shared) {
        keep_pid(c);
        r = controller_stand_by(c, &config, e);
        before = clock_mono_ms();
        if (r == 0)
            pipeline_begin(c->pipeline, controller_now_ms());
    } else if ((r = store_open(&config, &c->store, e)) == 0) {
        pipeline_attach(c->pipeline, c->store);
        r = pipeline_load(c->pipeline, controller_now_ms(), e);
    }
    if (r == 0)
        r = controller_init_keys(c, e);
    if (r != 0)
        return r;
    store_retention_begin(&c->retention, core_last_event_before_start_ms(c->core), controller_now_ms(),
                          clock_mono_ms());
    struct core_counts n;
    core_counts(c->core, &n);
    log_info("state loaded in %lld ms: event %llu, %llu pending, %llu running", (long long)(clock_mono_ms() - before),
             (unsigned long long)core_seq(c->core), (unsigned long long)n.by_state[JOB_PENDING],
             (unsigned long long)(n.by_state[JOB_RUNNING] + n.by_state[JOB_STARTING]));
    return 0;
}

static int use_apps_certificate(struct controller *c, struct error *e) {
    const struct config_portal *k = &c->config.portal;
    if (str_empty(k->apps_certificate))
        return 0;
    if (str_empty(k->apps_domain) || str_empty(k->apps_key))
        return error_set(e, EINVAL, "[portal]: apps_certificate needs apps_domain and apps_key");
    const char *domain = arena_strndup(&c->arena, k->apps_domain, strcspn(k->apps_domain, ":"));
    return tls_context_server_below(c->tls, domain, k->apps_certificate, k->apps_key, e);
}

int controller_listen_tls(struct controller *c, struct net_server *server, struct error *e) {
    const char *listen = c->config.cluster.listen;
    if (str_empty(listen))
        return 0;
    const char *colon = strrchr(listen, ':');
    const char *host = colon ? arena_strndup(&c->arena, listen, (size_t)(colon - listen)) : "";
    uint32_t port;
    if (!colon || parse_u32(colon + 1, &port) < 0 || port > 65535)
        return error_set(e, EINVAL, "listen: \"%s\" is not ADDRESS:PORT", listen);
    if (*host == '[' && host[strlen(host) - 1] == ']')
        host = arena_strndup(&c->arena, host + 1, strlen(host) - 2);
    const char *names[5] = {c->hostname, "localhost", "127.0.0.1", host};
    // An address that stands for all of them is none that anybody connects to.
    size_t count = str_empty(host) || streq(host, "0.0.0.0") || streq(host, "::") ? 3 : 4;
    const char *given = c->config.store.address, *end = strrchr(given, ':');
    if (end && *given != '[')
        names[count++] = arena_strndup(&c->arena, given, (size_t)(end - given));
    int r = controller_keys_open(c, names, count, e);
    if (r == 0)
        r = use_apps_certificate(c, e);
    if (r < 0 || (r = net_server_listen_tls(server, *host ? host : NULL, (uint16_t)port, c->tls, e)) < 0)
        return r;
    log_info("listening on %s with TLS", listen);
    return 0;
}

// Connections may use all descriptors but those for the store, files of clients and administrators' connections.
static uint32_t connections_max(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= NET_CONNECTIONS_MAX + OTHER_DESCRIPTORS)
        return NET_CONNECTIONS_MAX;
    return l.rlim_cur > 2 * OTHER_DESCRIPTORS ? (uint32_t)l.rlim_cur - OTHER_DESCRIPTORS : (uint32_t)l.rlim_cur / 2;
}

static int open_server(struct controller *c, struct error *e) {
    struct net_server_options o = {.on_request = api_request,
                                   .on_head = admission_check,
                                   .on_reply = api_replied,
                                   .takeover = apps_takeover,
                                   .user = c,
                                   .connections_max = connections_max(),
                                   .body_max = c->config.cluster.max_request_bytes};
    c->server = net_server_new(&c->loop, &o);
    // Without root every job runs as this user: then nobody else may submit.
    int r = net_server_listen_unix(c->server, c->paths.socket, c->uid == 0 ? 0666 : 0600, e);
    return r < 0 ? r : controller_listen_tls(c, c->server, e);
}

// As many descriptors as we may have: connections are bounded elsewhere, by user and in all.
static void raise_limits(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= DESCRIPTORS)
        return;
    l.rlim_cur = l.rlim_max == RLIM_INFINITY || l.rlim_max > DESCRIPTORS ? DESCRIPTORS : l.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &l) < 0)
        log_warn("only few connections are possible: the limit of open files cannot be raised");
}

static void on_signal(uv_signal_t *h, int signal);

static void hook_notify(void *ctx, const struct notice *what) {
    notifier_event(((struct controller *)ctx)->notifier, what);
}

static void hook_job_ended(void *ctx, const struct store_history *row) {
    job_table_ended(ctx, row);
}

static int start(struct controller *c, struct error *e) {
    int r;
    struct core_config core_config;
    struct pipeline_hooks hooks = {.ctx = c,
                                   .send = controller_hook_send,
                                   .has_room = controller_hook_has_room,
                                   .secret = controller_hook_secret,
                                   .job_changed = controller_hook_job_changed,
                                   .job_ended = hook_job_ended,
                                   .node_lost = controller_hook_node_lost,
                                   .notify = hook_notify,
                                   .storage = controller_hook_storage,
                                   .make_snapshot = controller_snapshot_start};
    if ((r = users_start(&c->users, e)) < 0 || (r = paths_get(&c->arena, &c->paths, e)) < 0 ||
        (r = config_load(c->paths.config, controller_now_ms(), zone_offset_s(), &c->config, e)) < 0 ||
        (r = paths_make(c->paths.state, 0700, e)) < 0 || (r = paths_make(c->paths.run, 0755, e)) < 0)
        return r;
    log_set_level(c->config.cluster.log_level);
    core_config_of(&c->config.cluster, &core_config);
    c->core = core_new(&core_config);
    c->streams =
        (struct stream_table){.host = &agents_stream_host, .ctx = c, .window_bytes = STREAM_WINDOW_BYTES};
    c->pipeline = pipeline_new(c->core, &hooks);
    c->shared = !str_empty(c->config.store.database);
    c->place = c->shared ? c->config.store.database : c->paths.state;
    if (c->shared && !str_empty(c->config.backup.folder))
        log_warn("[backup]: no backups are made of a PostgreSQL database here; use its own tools, for "
                 "example pg_dump");
    if ((r = open_store(c, e)) != 0)
        return r;
    controller_policy_from_config(c);
    const char *lost = controller_secret_key_lost(c, &c->arena);
    if (lost)
        log_warn("%s", lost);
    audit_open(c);
    telemetry_open(c);
    c->notifier = notifier_new(c, NULL);
    c->providers = providers_new(c, NULL);
    c->alerts = alerts_new();
    c->backups = backups_new();
    notifier_start(c->notifier);
    uv_prepare_init(&c->loop, &c->prepare);
    uv_timer_init(&c->loop, &c->wake);
    uv_timer_init(&c->loop, &c->tick);
    controller_reads_init(c);
    controller_requests_init(c);
    query_throttle_init(c);
    controller_work_init(c);
    job_table_open(c);
    live_open(c);
    apps_open(c);
    serve_open(c);
    uv_poll_init(&c->loop, &c->store_poll, store_fd(c->store));
    uv_poll_init(&c->loop, &c->users_poll, users_fd(c->users));
    c->prepare.data = c->tick.data = c->store_poll.data = c->users_poll.data = c;
    uv_prepare_start(&c->prepare, on_prepare);
    uv_timer_start(&c->tick, on_tick, TICK_MS, TICK_MS);
    uv_poll_start(&c->store_poll, UV_READABLE, on_store);
    uv_poll_start(&c->users_poll, UV_READABLE, on_users);
    uv_signal_t *const handles[] = {&c->sigterm, &c->sigint, &c->sighup};
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 3; i++) {
        uv_signal_init(&c->loop, handles[i]);
        handles[i]->data = c;
        uv_signal_start(handles[i], on_signal, numbers[i]);
    }
    if ((r = open_server(c, e)) < 0)
        return r;
    portal_open(c);
    keep_pid(c);
    return 0;
}

// --- end ---

static void close_handle(uv_handle_t *h, void *arg) {
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void on_server_closed(void *user) {
    struct controller *c = user;
    c->server = NULL;
    uv_walk(&c->loop, close_handle, NULL);
}

static void stop(struct controller *c) {
    if (c->stopping)
        return;
    log_info("stopping; running jobs go on");
    telemetry_save(c);
    flush(c);
    controller_snapshot_stop(c);
    pipeline_snapshot(c->pipeline);
    store_flush(c->store);
    c->stopping = true;
    controller_journal_replay_stop(c);
    past_views_stop(c);
    controller_node_looks_stop(c);
    api_users_changed(c);
    controller_work_stop(c);
    controller_requests_stop(c);
    net_server_close(c->server, CLOSE_GRACE_MS, on_server_closed, c);
}

int controller_reload(struct controller *c, struct error *e) {
    struct config fresh;
    struct core_config core_config;
    int r = config_load(c->paths.config, controller_now_ms(), zone_offset_s(), &fresh, e);
    if (r < 0) {
        log_error("configuration not applied, the previous one stays in force: %s", e->text);
        return r;
    }
    config_done(&c->config);
    c->config = fresh;
    log_set_level(fresh.cluster.log_level);
    core_config_of(&fresh.cluster, &core_config);
    core_configure(c->core, &core_config);
    controller_policy_from_config(c);
    log_info("configuration read again");
    return 0;
}

static void on_signal(uv_signal_t *h, int signal) {
    if (signal == SIGHUP)
        controller_reload(h->data, &(struct error){0});
    else
        stop(h->data);
}

void controller_release(struct controller *c) {
    cleanup_arena struct arena a = {0};
    apps_close(c);
    serve_close(c);
    if (c->store)
        unlink(paths_pid_file(&c->paths, &a, "controller"));
    vec_done(&c->step_sessions);
    vec_done(&c->sessions);
    vec_done(&c->file_calls);
    controller_streams_done(&c->streams);
    controller_watch_done(c);
    controller_reads_done(c);
    controller_requests_done(c);
    live_close(c);
    job_table_close(c);
    buf_done(&c->overview);
    past_views_done(c);
    apps_site_done(c);
    query_throttle_done(c);
    telemetry_done(c);
    controller_secrets_done(c);
    notifier_free(c->notifier);
    providers_free(c->providers);
    alerts_free(c->alerts);
    backups_free(c->backups);
    buf_done(&c->configured);
    strmap_done(&c->agents);
    admission_done(c);
    audit_close(c);
    portal_close(c);
    login_done(c);
    users_free(c->users);
    size_t it = 0;
    void *v;
    while (map_next(&c->replies, &it, NULL, &v))
        free(v);
    map_done(&c->replies);
    c->store = c->store ? store_close(c->store) : NULL;
    pipeline_free(c->pipeline);
    free(c->snapshot_maker);
    core_free(c->core);
    tls_context_free(c->tls);
    pki_ca_free(c->ca);
    config_done(&c->config);
    arena_done(&c->arena);
}

int controller_main(int argc, char **argv) {
    struct error e = {0};
    int result = 0;
    if (argc > 1) {
        log_error("controller takes no arguments; everything is in the configuration file");
        return 2;
    }
    struct controller *c = xcalloc(1, sizeof *c);
    // Large buffers of requests come and go; kept out of the heap they leave no holes in it.
    mallopt(M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES);
    umask(022);
    raise_limits();
    c->uid = geteuid();
    c->program = "/proc/self/exe";
    c->started_ms = controller_now_ms();
    c->started_mono_ms = clock_mono_ms();
    gethostname(c->hostname, sizeof c->hostname - 1);
    uv_loop_init(&c->loop);
    int r = start(c, &e);
    if (r != 0) {
        if (r < 0)
            log_error("the controller cannot start: %s", e.text);
        result = r < 0;
        if (c->server)
            net_server_close(c->server, 0, on_server_closed, c);
        else
            uv_walk(&c->loop, close_handle, NULL);
        c->stopping = true;
    } else {
        log_info("controller of cluster %s is up (version %s)", c->config.cluster.name, ACEQUIA_VERSION);
    }
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    controller_release(c);
    free(c);
    return result;
}
