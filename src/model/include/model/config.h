// The cluster's configuration: an INI file whose sections and keys are declared in one table
// (config_table.c). The table yields the parser, `acequia config`, docs/configuration.md and
// acequia.conf(5). Unknown sections and keys are refused; every value has a type and a range.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/schema.h"
#include "model/node.h"

enum { CONFIG_BYTES_MAX = 4 << 20, CONFIG_LINE_MAX = 65536, CONFIG_SECTIONS_MAX = 65536 };

// What is shown of the jobs of others to those who have nothing to do with them.
enum others_jobs { OTHERS_JOBS_VISIBLE, OTHERS_JOBS_MASKED, OTHERS_JOBS_HIDDEN };
extern const char *const config_others_jobs_words[];

struct config_cluster {
    const char *name;
    const char *listen;      // "ADDRESS:PORT"; "": unix socket only
    const char *controller;  // "HOST:PORT" of a controller on another machine
    LIST(const char *) admins;
    uint32_t node_timeout_s, heartbeat_s, grace_s, usage_interval_s;
    uint32_t default_time_s;  // 0: none
    uint64_t default_memory_per_cpu_bytes;  // 0: none, UINT64_MAX: a share
    uint32_t idle_gpu_after_s, idle_gpu_warn_s, idle_gpu_end_s;  // 0: never
    bool requeue;
    uint32_t history_days;
    uint64_t history_bytes;
    uint64_t max_request_bytes, max_script_bytes, max_environment_bytes, max_texts_bytes_per_user;
    const char *volume_folder;
    uint32_t max_array_size, max_jobs_per_user, max_keys_per_user, max_queue_length;
    enum others_jobs others_jobs;
    enum log_level log_level;
};

// What happens to a job that does not keep to its part of a GPU.
enum gpu_audit { GPU_AUDIT_KILL, GPU_AUDIT_WARN, GPU_AUDIT_OFF };

struct config_gpus {  // "v100:8:32G"
    const char *model;
    uint32_t count;
    uint64_t memory_bytes;
};

struct config_node {
    uint32_t cpus;                  // 0: as found
    uint64_t memory_bytes;          // 0: as found
    uint64_t reserve_memory_bytes;  // kept from jobs
    uint32_t processes_per_job;     // 0: as the machine allows
    LIST(const char *) features;
    LIST(struct config_gpus) gpus;  // empty: as found
    bool gpus_simulated;
    enum gpu_audit gpu_audit;
    const char *image_folder;       // "": the usual place
    uint64_t image_cache_bytes;     // of one user's unpacked images
    const char *metrics_listen;     // "ADDRESS:PORT" of the agent's own /metrics; "": none
};

struct config_entry {
    const struct config_key *key;
    const char *text;
    uint32_t line;
};

struct config_block {  // one section of the file, as written
    const struct config_section *section;
    const char *name;  // after the section's word; NULL: none
    uint32_t line;
    LIST(struct config_entry) entries;
};

// Mails and webhooks about jobs.
struct config_notify {
    const char *from;                 // sender's address
    const char *smtp_server;          // "smtp://HOST:PORT"; "": the program sendmail
    const char *smtp_user, *smtp_password_file;
    const char *webhook_secret_file;  // signs webhooks
    LIST(const char *) webhook_hosts;  // hosts that users' webhooks may name
    const char *alerts_to;             // who is told of alerts whose rule names nobody
};

// What acequia report multiplies use with; 0: not shown.
struct config_report {
    const char *currency;
    double price_gpu_hour, price_cpu_hour, price_kwh, co2_g_per_kwh;
};

// Backups that the controller makes.
struct config_backup {
    const char *folder;  // "": none
    uint32_t every_s;    // 0: only when asked for
    uint32_t keep;       // 0: all
};

// Where the state is kept.
struct config_store {
    const char *database;  // postgresql://…; "": SQLite in the state folder
    const char *
        address;  // of this controller, for clients and agents of the others; "": host name and port of listen
    uint32_t lease_s;
};

// The web portal.
struct config_portal {
    bool enabled;
    uint32_t port;             // on 127.0.0.1; 0: the one it had, or any
    LIST(const char *) names;  // of this machine, as browsers come over TLS
    const char *file;          // portal.pack; "": the usual place
    uint32_t session_idle_s, session_max_s;
    const char *url;                          // as browsers come over TLS; "": made of names and listen
    const char *apps_domain;                  // programs of jobs have names below it; "": not over TLS
    const char *apps_certificate, *apps_key;  // files, for those names
    const char *apps;                         // folder of the site's apps; "": none
    uint32_t notebook_idle_s;                 // of notebooks that do not say; 0: never
};

// Who may log in, besides own users.
struct config_login {
    const char *pam_service;  // "": nobody of the system
};

// A provider of OpenID Connect.
struct config_oidc {
    const char *name;
    const char *title;  // on its button; "": its name
    const char *issuer, *client_id, *client_secret_file, *ca_file, *scopes;
    const char *user_claim, *groups_claim;  // "": none
    // Lists of groups, joined by commas; "": none. project_groups: GROUP=PROJECT.
    const char *allowed_groups, *operator_groups, *admin_groups, *project_groups;
    uint32_t min_uid;  // a claim names no Unix user below it
};

struct config {
    struct arena arena;
    struct config_cluster cluster;
    struct policy_settings policy;
    struct config_notify notify;
    struct config_report report;
    struct config_backup backup;
    struct config_store store;
    struct config_portal portal;
    struct config_login login;
    LIST(struct project) projects;
    LIST(struct partition) partitions;
    LIST(struct qos) qos;
    LIST(struct license) licenses;
    LIST(struct reservation) reservations;
    LIST(struct config_oidc) oidc;
    LIST(struct config_block) blocks;
};

// Times without a zone in the file are local: the offset is an argument.
struct config_source {
    const char *file;  // for messages
    int64_t now_ms;
    int32_t zone_offset_s;
    // Told each mistake, in any order, and reading goes on; what is read is of no use then. NULL: the first ends it.
    void (*on_mistake)(void *ctx, uint32_t line, const char *text);
    void *ctx;
};

int config_parse(const char *text, size_t len, const struct config_source *source, struct config *out, struct error *e);
// A missing file is an empty one.
int config_load(const char *path, int64_t now_ms, int32_t zone_offset_s, struct config *out, struct error *e);
int config_load_from(const struct config_source *source, struct config *out, struct error *e);
void config_done(struct config *c);
#define cleanup_config __attribute__((__cleanup__(config_done)))

// The settings of one node: those of [node *], then those of sections that name it.
void config_node(const struct config *c, const char *node, struct arena *a, struct config_node *out);

// For people and documents.
void config_show(const struct config *c, bool defaults_too, struct buf *out);  // a file with the same meaning
void config_show_json(const struct config *c, struct json_writer *w);
void config_reference_markdown(struct buf *out);
void config_reference_man(struct buf *out);  // the body of acequia.conf(5)
void config_default_file(struct buf *out);   // what `acequia up` writes the first time
