// The table of the configuration: what can be set, of what type, within which range, and why.
#include "model/license.h"
#include "model/config_table.h"

#include <string.h>

#define KEY(S, member, type_, fallback_, low_, high_, text)                                                  \
    {                                                                                                        \
        .name = #member, .type = type_, .offset = offsetof(S, member), .fallback = fallback_, .low = low_,   \
        .high = high_, .help = text                                                                          \
    }
#define KEY_AS(S, name_, member, type_, fallback_, low_, high_, text)                                        \
    {                                                                                                        \
        .name = name_, .type = type_, .offset = offsetof(S, member), .fallback = fallback_, .low = low_,     \
        .high = high_, .help = text                                                                          \
    }
#define KEY_GIVEN(S, name_, member, given, type_, low_, high_, text)                                                \
    {.name = name_, .type = type_, .offset = offsetof(S, member), .given_offset = offsetof(S, given), .low = low_, \
     .high = high_, .help = text}

// A limit: none and unlimited take it away, 0 is a limit of nothing.
#define KEY_LIMIT(S, schema_, name_, member, type_, text)                                                    \
    { .name = name_, .type = type_, .offset = offsetof(S, member), .limit_of = &schema_, .help = text }

const char *const config_others_jobs_words[] = {"visible", "masked", "hidden", NULL};

#define C struct config_cluster
static const struct config_key cluster_keys[] = {
    KEY(C, name, CONFIG_IDENTIFIER, "acequia", 0, 0,
        "The cluster's name, shown by status and given to jobs."),
    KEY(C, listen, CONFIG_ADDRESS, "", 0, 0,
        "Address and port for other machines, with TLS. Empty: only the unix socket of this machine."),
    KEY(C, controller, CONFIG_ADDRESSES, "", 0, 0,
        "Where the controller is, for commands on machines that do not run it; where several share a "
        "database, "
        "all of them, divided by commas: the one that leads is found by itself. Empty: on this machine."),
    KEY(C, admins, CONFIG_NAMES, NULL, 0, 0,
        "Users who may act on everybody's jobs, on nodes and on policy, besides root and the user the "
        "controller runs as."),
    KEY_AS(C, "node_timeout", node_timeout_s, CONFIG_SECONDS, "60s", 2, 86400,
           "A node that was silent for this long is down; its jobs are queued again or fail."),
    KEY_AS(C, "heartbeat", heartbeat_s, CONFIG_SECONDS, "10s", 1, 3600,
           "How often controller and agents make sure of each other. Keep it below a third of node_timeout."),
    KEY_AS(C, "grace", grace_s, CONFIG_SECONDS, "30s", 0, 86400,
           "Time between the signal that asks a job to end and the kill."),
    KEY_AS(C, "default_time", default_time_s, CONFIG_SECONDS, "unlimited", 0, 0,
           "Time limit of jobs that ask for none and whose partition has no default."),
    KEY_AS(
        C, "default_memory_per_cpu", default_memory_per_cpu_bytes, CONFIG_SHARE, "share", 0, 0,
        "Memory per CPU of jobs that ask for none and whose partition has no default; they are held to it. "
        "share: "
        "the part of the smallest node's memory that belongs to the CPUs asked for, or to the GPUs (which "
        "share "
        "three quarters of it), whichever is more, so that memory is never promised twice. none: no limit."),
    KEY_AS(C, "idle_gpu_after", idle_gpu_after_s, CONFIG_SECONDS, "30m", 0, 0,
           "A job that holds GPUs and has used none of them for this long is shown as wasting them."),
    KEY_AS(
        C, "idle_gpu_warn", idle_gpu_warn_s, CONFIG_SECONDS, "unlimited", 0, 0,
        "After this long without use its owner is warned: the job carries a warning, and the log says so."),
    KEY_AS(C, "idle_gpu_end", idle_gpu_end_s, CONFIG_SECONDS, "unlimited", 0, 0,
           "After this long without use the job is ended. Interactive ones too."),
    KEY(C, requeue, CONFIG_BOOL, "true", 0, 0,
        "Whether jobs are queued again when their node fails, unless they say otherwise."),
    KEY_AS(C, "usage_interval", usage_interval_s, CONFIG_SECONDS, "5s", 1, 3600,
           "How often agents report what running jobs use."),
    KEY(C, history_days, CONFIG_U32, "365", 1, 36500,
        "Finished jobs, and what happened to them, are kept this many days."),
    KEY_AS(C, "history_size", history_bytes, CONFIG_SIZE, "20G", 1e6, 1e18,
           "How large the database may become (a finished job takes about 700 bytes and its texts): beyond "
           "it the oldest events go, then the oldest finished jobs."),
    KEY_AS(C, "max_request", max_request_bytes, CONFIG_SIZE, "64M", 65536, 1073741824,
           "The largest request the controller takes."),
    KEY_AS(C, "max_script", max_script_bytes, CONFIG_SIZE, "4M", 1024, 67108864, "The largest job script."),
    KEY_AS(C, "max_environment", max_environment_bytes, CONFIG_SIZE, "1M", 1024, 16777216,
           "The largest environment of a job."),
    KEY_AS(C, "max_texts_per_user", max_texts_bytes_per_user, CONFIG_SIZE, "1G", 65536, 1e18,
           "What the scripts and environments of one user's pending and running jobs may take on the "
           "controller's "
           "disk. The same text counts once, however many jobs, arrays and resubmissions need it."),
    KEY(C, volume_folder, CONFIG_TEXT, "", 0, 0,
        "Folder for volumes (`acequia volume create`), on storage that all nodes mount at this path. It must "
        "be "
        "root's and writable by nobody else. Empty: users cannot create volumes."),
    KEY(C, max_array_size, CONFIG_U32, "1000000", 1, 1000000, "The most elements of one array."),
    KEY(C, max_jobs_per_user, CONFIG_U32, "1000000", 1, 100000000,
        "The most pending and running jobs of one user, array elements counted."),
    KEY(C, max_keys_per_user, CONFIG_U32, "100000", 1, 10000000,
        "The most idempotency keys kept for one user. A key is kept for 7 days; a user who has this many can "
        "submit "
        "only without a key until some have expired. One takes about 100 bytes of the controller's memory."),
    KEY(C, max_queue_length, CONFIG_U32, "2000000", 1, 100000000,
        "The most pending and running jobs of the cluster, array elements counted."),
    {.name = "others_jobs",
     .type = CONFIG_WORD,
     .offset = offsetof(C, others_jobs),
     .fallback = "visible",
     .words = config_others_jobs_words,
     .help = "What users see of jobs that are neither theirs nor of a project that names them as member or "
             "lead. visible: name, user, state, times and resources. masked: the same without name, user and "
             "every other text that the user chose. hidden: nothing; such a job does not exist for them. "
             "Scripts, "
             "paths and output are private in any case."},
    KEY(C, log_level, CONFIG_LEVEL, "info", 0, 0, "How much the daemons log: error, warn, info or debug."),
};
#undef C

#define P struct policy_settings
#define KEY_WORD(name_, words_, fallback_, text)                                                             \
    {                                                                                                        \
        .name = #name_, .type = CONFIG_WORD, .offset = offsetof(P, name_), .fallback = fallback_,            \
        .words = words_, .help = text                                                                        \
    }
static const double TEN_YEARS_S = 315360000;
static const struct config_key policy_keys[] = {
    KEY_WORD(order, policy_order_words, "fair",
             "fair: projects by their shares, inside them by queue time. fcfs: first come, first served."),
    KEY_AS(P, "short_factor", short_factor, CONFIG_DOUBLE, "5", 0, 1000,
           "How many times its time limit is added to a job's queue time: short jobs come sooner. 0: "
           "the limit does not count."),
    KEY_AS(P, "use", use_s, CONFIG_SPAN, "36h", 0, TEN_YEARS_S,
           "Added to the queue time of a user who lately used as much as the whole cluster; in "
           "proportion for less. 0: use does not count."),
    KEY_AS(P, "half_life", half_life_s, CONFIG_SPAN, "7d", 60, TEN_YEARS_S, "Use this long ago counts half."),
    KEY_AS(P, "size", size_s, CONFIG_I32, "0", -31536000, 31536000,
           "Seconds added to a job's queue time for each GPU it asks for; below 0: large jobs sooner."),
    KEY_AS(P, "max_wait", max_wait_s, CONFIG_SPAN, "5d", 0, TEN_YEARS_S,
           "A job that has waited longer comes first among those of its priority. 0: off."),
    KEY_AS(P, "qos_step", qos_step_s, CONFIG_SPAN, "0s", 0, TEN_YEARS_S,
           "How much earlier the queue time is for each step of priority (its QoS's and its own). 0: a "
           "higher priority comes before everything."),
    KEY_AS(P, "nice_step", nice_step_s, CONFIG_SPAN, "0s", 0, TEN_YEARS_S,
           "How much later the queue time is for each step of nice. 0: nice counts like priority, before "
           "everything."),
    KEY_WORD(backfill, policy_backfill_words, "in_order",
             "Who may pass a job that waits, without delaying it: in_order, shortest (limit first), none "
             "(strict order everywhere)."),
    KEY(P, plan_depth, CONFIG_U32, "1", 0, 64,
        "How many blocked jobs of each partition get a planned start that others must not delay."),
    KEY_WORD(placement, policy_placement_words, "fragment",
             "fragment: keep what is left usable for the requests seen lately. pack: fullest node first. "
             "spread: emptiest. first: by number."),
    KEY(P, reclaim, CONFIG_BOOL, "true", 0, 0, "Projects under their share may take from those over theirs."),
    KEY_AS(P, "min_run", min_run_s, CONFIG_SPAN, "0s", 0, TEN_YEARS_S,
           "Nobody is preempted before having run this long."),
    KEY(P, interactive_in_quota, CONFIG_BOOL, "true", 0, 0,
        "Work that is never preempted runs only inside its project's quota."),
};
#undef KEY_WORD
#undef P

#define R struct config_report
static const struct config_key report_keys[] = {
    KEY(R, currency, CONFIG_IDENTIFIER, "EUR", 0, 0, "Currency of the prices, as it is printed."),
    KEY(R, price_gpu_hour, CONFIG_DOUBLE, "0", 0, 1e6,
        "Price of one GPU for one hour; fractions of GPUs in proportion."),
    KEY(R, price_cpu_hour, CONFIG_DOUBLE, "0", 0, 1e6, "Price of one CPU for one hour."),
    KEY(R, price_kwh, CONFIG_DOUBLE, "0", 0, 1e6, "Price of one kilowatt hour of measured energy."),
    KEY(R, co2_g_per_kwh, CONFIG_DOUBLE, "0", 0, 1e6,
        "Grams of CO2 per kilowatt hour of measured energy; see the figures of your grid."),
};
#undef R

#define B struct config_backup
static const struct config_key backup_keys[] = {
    KEY(B, folder, CONFIG_TEXT, "", 0, 0,
        "Folder on the controller's machine, best on another disk or a file server. Empty: none are made."),
    KEY_AS(B, "every", every_s, CONFIG_SECONDS, "1d", 0, 31536000,
           "A backup is made when the newest is older than this; 0: only when asked for."),
    KEY(B, keep, CONFIG_U32, "14", 0, 100000, "So many are kept, the oldest go; 0: all."),
};
#undef B

#define T struct config_store
static const struct config_key store_keys[] = {
    KEY(T, database, CONFIG_TEXT, "", 0, 0,
        "Address of a PostgreSQL database, postgresql://HOST/NAME?…, which several controllers may share: "
        "one leads, "
        "the others are ready. On another machine it needs sslmode=verify-full; a password is in a file, "
        "passfile=FILE. Empty: SQLite in the state folder, for one controller."),
    KEY(T, address, CONFIG_ADDRESS, "", 0, 0,
        "Where clients and agents reach this controller, when it shares its database. Empty: this machine's "
        "name and "
        "the port of `listen`."),
    KEY_AS(T, "lease", lease_s, CONFIG_SECONDS, "3s", 2, 60,
           "A leader that has not been heard of for this long is replaced by another controller."),
};
#undef T

#define W struct config_portal
static const struct config_key portal_keys[] = {
    KEY(W, enabled, CONFIG_BOOL, "true", 0, 0,
        "Whether the controller serves the portal: on this machine by plain HTTP on 127.0.0.1, under a name "
        "that "
        "`acequia portal` prints, and with TLS where `listen` of [cluster] says."),
    KEY(W, port, CONFIG_U32, "0", 0, 65535,
        "Port on 127.0.0.1. 0: the one it had before; at first 6821, if it is free."),
    KEY(W, names, CONFIG_NAMES, NULL, 0, 0,
        "Names of the controller's machine in the address bar of browsers, besides its host name. Requests "
        "of browsers "
        "that name another host are refused."),
    KEY(W, file, CONFIG_TEXT, "", 0, 0,
        "The built portal, portal.pack. Empty: the one that came with the program."),
    KEY_AS(W, "session_idle", session_idle_s, CONFIG_SECONDS, "12h", 60, 31536000,
           "A login ends when it was not used for this long."),
    KEY_AS(W, "session_max", session_max_s, CONFIG_SECONDS, "7d", 60, 31536000,
           "A login ends after this time."),
    KEY(W, url, CONFIG_TEXT, "", 0, 0,
        "The portal's address as browsers come over TLS, e.g. https://head.lab.example. Empty: the first of "
        "`names`, "
        "or the host name, with the port of `listen`. Programs of jobs send browsers there that must log "
        "in."),
    KEY(W, apps_domain, CONFIG_TEXT, "", 0, 0,
        "Programs of jobs (`--port`) are reached with TLS under names of their own below this domain, e.g. "
        "apps.lab.example, or apps.lab.example:443 where another program forwards that port. All names below "
        "it must "
        "lead to the controller (a wildcard in DNS), and nothing else may be served there. Empty: over TLS "
        "only "
        "`acequia port-forward` reaches them; on the controller's own machine they have names below "
        "localhost."),
    KEY(W, apps, CONFIG_TEXT, "", 0, 0,
        "Folder of the site's apps (`acequia app`), on the controller's machine: each is a file NAME.json "
        "and its "
        "script NAME.sh. One with the name of a built-in app replaces it. Empty: only the built-in ones."),
    KEY_AS(
        W, "notebook_idle", notebook_idle_s, CONFIG_SECONDS, "0", 0, 31536000,
        "A Jupyter server is closed when none of its kernels was used for this long, unless its owner says "
        "otherwise (`--idle`). 0: never."),
    KEY(W, apps_certificate, CONFIG_TEXT, "", 0, 0,
        "File with the certificate for *.APPS_DOMAIN and its chain (PEM), shown to browsers that ask for "
        "such a name. "
        "Empty: the cluster's own, which browsers do not know."),
    KEY(W, apps_key, CONFIG_TEXT, "", 0, 0, "File with its key (PEM), readable by the controller alone."),
};
#undef W

#define G struct config_login
static const struct config_key login_keys[] = {
    KEY(G, pam_service, CONFIG_TEXT, "", 0, 0,
        "Users of the controller's machine log in with their password, checked by this service of PAM (a "
        "file in "
        "/etc/pam.d). Empty: they cannot."),
};
#undef G

#define O struct config_oidc
static const struct config_key oidc_keys[] = {
    KEY(O, title, CONFIG_TEXT, "", 0, 0,
        "What the button of the login page says. Empty: the section's name."),
    KEY(O, issuer, CONFIG_TEXT, "", 0, 0,
        "The provider's address, exactly as its configuration document gives it: https://HOST/PATH. Without "
        "TLS only on "
        "this machine (localhost), for tests."),
    KEY(O, client_id, CONFIG_TEXT, "", 0, 0,
        "The name under which this cluster is registered at the provider."),
    KEY(O, client_secret_file, CONFIG_TEXT, "", 0, 0,
        "File with the secret that goes with it, readable by the controller alone. Empty: a public client."),
    KEY(O, ca_file, CONFIG_TEXT, "", 0, 0,
        "Certificates (PEM) that the provider's is checked with. Empty: those of the system."),
    KEY(O, scopes, CONFIG_TEXT, "openid profile email", 0, 0, "Scopes that are asked for."),
    KEY(O, user_claim, CONFIG_TEXT, "", 0, 0,
        "Claim that names the person's Unix user, as preferred_username. Only one that people cannot change "
        "themselves: "
        "their jobs run as that user. Empty: only `acequia user set NAME --identities` maps people; the "
        "others may look."),
    KEY(O, min_uid, CONFIG_U32, "1000", 1, 4294967294,
        "A claim names no Unix user with a smaller number: the system's own users are mapped by an account "
        "alone."),
    KEY(O, groups_claim, CONFIG_TEXT, "", 0, 0, "Claim with the person's groups, as groups. Empty: none."),
    KEY(O, allowed_groups, CONFIG_TEXT, "", 0, 0,
        "Only people in one of these groups, joined by commas, may log in. Empty: all whom the provider "
        "knows."),
    KEY(O, operator_groups, CONFIG_TEXT, "", 0, 0, "People in one of these groups are operators."),
    KEY(O, admin_groups, CONFIG_TEXT, "", 0, 0, "People in one of these groups are administrators."),
    KEY(O, project_groups, CONFIG_TEXT, "", 0, 0,
        "GROUP=PROJECT, joined by commas: people in the group are members of the project. Roles and projects "
        "of groups "
        "hold until the login's longest time (session_max) after the person's last login."),
};
#undef O

#define F struct config_notify
static const struct config_key notify_keys[] = {
    KEY(F, from, CONFIG_TEXT, "acequia@localhost", 0, 0, "Address that mails come from."),
    KEY(F, smtp_server, CONFIG_TEXT, "", 0, 0,
        "smtp://HOST:PORT or smtps://HOST:PORT. Empty: /usr/sbin/sendmail is used."),
    KEY(F, smtp_user, CONFIG_TEXT, "", 0, 0, "User name at the SMTP server; it is then only used with TLS."),
    KEY(F, smtp_password_file, CONFIG_TEXT, "", 0, 0,
        "File with its password, readable by the controller alone."),
    KEY(F, webhook_secret_file, CONFIG_TEXT, "", 0, 0,
        "File with the secret that signs webhooks (X-Acequia-Signature: t=TIME,v1=HMAC-SHA256 of "
        "\"TIME.BODY\")."),
    KEY(F, webhook_hosts, CONFIG_NAMES, NULL, 0, 0,
        "Hosts that webhooks of users may be sent to. Not given: none, because the controller's machine may "
        "reach "
        "what a user's cannot."),
    KEY(F, alerts_to, CONFIG_TEXT, "", 0, 0,
        "Mail addresses, users and URLs, with commas, that are told of alerts whose rule names nobody. "
        "Empty: nobody."),
};
#undef F

#define N struct config_node
static const struct config_key node_keys[] = {
    KEY(N, cpus, CONFIG_U32, NULL, 0, 65536, "CPUs for jobs. Not given: those the machine has."),
    KEY_AS(N, "memory", memory_bytes, CONFIG_SIZE, NULL, 0, 1e18,
           "Memory for jobs. Not given: what the machine has, less reserve_memory."),
    KEY_AS(N, "reserve_memory", reserve_memory_bytes, CONFIG_SIZE, NULL, 0, 1e18,
           "Memory kept from jobs for the system."),
    KEY(N, processes_per_job, CONFIG_U32, NULL, 0, 4194304,
        "The most processes and threads of one job on the node. Not given: 32768, or half of what the kernel "
        "can have if that is less."),
    KEY(N, features, CONFIG_NAMES, NULL, 0, 0, "Words that jobs can ask for with --constraint."),
    KEY(N, gpus, CONFIG_GPUS, NULL, 0, 0, "GPUs as MODEL:COUNT[:MEMORY]. Not given: those the machine has."),
    KEY(N, gpus_simulated, CONFIG_BOOL, "false", 0, 0,
        "The GPUs of this section are pretended, for tests and demonstrations."),
    KEY(N, gpu_audit, CONFIG_AUDIT, "kill", 0, 0,
        "What happens to a job that goes around the limits of its part of a GPU: kill it, warn, or off. See "
        "docs/gpu-sharing.md."),
    KEY(N, image_folder, CONFIG_TEXT, "", 0, 0,
        "Folder for the unpacked container images of users, on a local disk. Empty: /var/cache/acequia/images, or "
        "images in the state folder of an agent that is not root's."),
    KEY_AS(N, "image_cache", image_cache_bytes, CONFIG_SIZE, "100G", 1e6, 1e18,
           "How much of it one user's images may take: beyond that the least recently used go."),
    KEY(N, metrics_listen, CONFIG_ADDRESS, "", 0, 0,
        "Address and port at which the agent answers GET /metrics by itself, with TLS. Empty: only the "
        "controller does. See docs/monitoring.md."),
};
#undef N

#define P struct project
static const struct config_key project_keys[] = {
    KEY(P, parent, CONFIG_IDENTIFIER, NULL, 0, 0, "The project this one is a part of."),
    KEY_AS(P, "quota", quota_milligpu, CONFIG_QUOTA, "0", 0, 0,
           "GPUs that are guaranteed to the project. rest (or unlimited): all that no other project is "
           "guaranteed. "
           "none: 0."),
    KEY_GIVEN(P, "weight", weight_milli, has_weight, CONFIG_MILLIGPU, 0, 0,
              "Its part of what nobody is guaranteed, relative to others. Not given or none: the quota."),
    KEY_GIVEN(P, "limit", limit_milligpu, has_limit, CONFIG_MILLIGPU, 0, 0,
              "The most GPUs it may hold at once. Not given or none: no limit."),
    KEY(P, members, CONFIG_NAMES, NULL, 0, 0, "Users who may submit to it. Not given: everybody."),
    KEY(P, nodes, CONFIG_NODES, NULL, 0, 0, "Nodes its jobs may use. Not given: all."),
    KEY_LIMIT(P, entity_project_schema, "interactive_time", interactive_limit_s, CONFIG_SPAN,
              "Time limit of its interactive jobs. Not given or none: no limit. 0: none may run."),
    KEY(P, model_quotas, CONFIG_QUOTAS, NULL, 0, 0, "Quotas by GPU model, as MODEL=GPUS."),
    KEY(P, default_qos, CONFIG_IDENTIFIER, NULL, 0, 0, "QoS of its jobs that ask for none."),
    KEY(P, leads, CONFIG_NAMES, NULL, 0, 0,
        "Users who may cancel, hold and change its jobs, and name its members and secrets."),
    KEY(P, shared_logs, CONFIG_BOOL, "false", 0, 0,
        "Members may see each other's scripts, environments and logs."),
};
#undef P

#define A struct partition
static const struct config_key partition_keys[] = {
    KEY(A, nodes, CONFIG_NODES, NULL, 0, 0, "Its nodes. Not given: all."),
    KEY_AS(A, "default", is_default, CONFIG_BOOL, "false", 0, 0, "Jobs that name no partition go here."),
    KEY(A, fifo, CONFIG_BOOL, "false", 0, 0, "Strictly in order, without backfill."),
    KEY(A, down, CONFIG_BOOL, "false", 0, 0, "Jobs are taken but none is started."),
    KEY(A, closed, CONFIG_BOOL, "false", 0, 0, "New jobs are refused; those that wait are still started."),
    KEY_LIMIT(A, entity_partition_schema, "default_time", default_time_s, CONFIG_SPAN,
              "Time limit of jobs that ask for none. Not given or none: max_time, or that of [cluster]."),
    KEY_LIMIT(A, entity_partition_schema, "max_time", max_time_s, CONFIG_SPAN,
              "The longest time limit. Not given or none: no limit. 0: no job may run."),
    KEY(A, tier, CONFIG_U32, "0", 0, 65535, "Jobs of a higher tier go first."),
    KEY_LIMIT(A, entity_partition_schema, "default_memory_per_cpu", default_memory_per_cpu_bytes, CONFIG_SIZE,
              "Memory of jobs that ask for none, per CPU. Not given or none: as [cluster] says."),
};
#undef A

#define Q struct qos
static const struct config_key qos_keys[] = {
    KEY(Q, priority, CONFIG_I32, "0", -1000000, 1000000, "Added to the priority of its jobs."),
    KEY_LIMIT(Q, entity_qos_schema, "max_jobs_per_user", max_jobs_per_user, CONFIG_U32,
              "The most running jobs of one user. Not given or none: no limit. 0: its jobs wait."),
    KEY_LIMIT(Q, entity_qos_schema, "max_gpus_per_user", max_gpus_per_user_milli, CONFIG_MILLIGPU,
              "The most GPUs one user holds. Not given or none: no limit. 0: only jobs without GPUs run."),
    KEY_LIMIT(Q, entity_qos_schema, "max_time", max_wall_s, CONFIG_SPAN,
              "The longest time limit, also of jobs that ask for none. Not given or none: no limit. 0: no "
              "job may run."),
    KEY(Q, preempts, CONFIG_NAMES, NULL, 0, 0, "QoS whose jobs may be preempted for its jobs."),
    {.name = "usage_factor",
     .type = CONFIG_DOUBLE,
     .offset = offsetof(Q, usage_factor),
     .fallback = "1",
     .high = 1000,
     .limit_of = &entity_qos_schema,
     .help = "How much its use counts against fair share. 0: it is not counted."},
    KEY(Q, no_preempt, CONFIG_BOOL, "false", 0, 0, "Its jobs are never preempted."),
};
#undef Q

static const struct config_key license_keys[] = {
    KEY(struct license, count, CONFIG_U32, "0", 0, LICENSE_SEATS_MAX,
        "Seats that running jobs can hold together, on whichever nodes. 0: jobs that ask for it wait."),
};

#define R struct reservation
static const struct config_key reservation_keys[] = {
    KEY(R, nodes, CONFIG_NODES, NULL, 0, 0, "The nodes that are reserved. Not given: all."),
    KEY_AS(R, "start", start_ms, CONFIG_TIME, NULL, 0, 0, "When it begins, for example 2026-01-31T12:00."),
    KEY_AS(R, "end", end_ms, CONFIG_TIME, NULL, 0, 0, "When it ends."),
    KEY(R, users, CONFIG_NAMES, NULL, 0, 0, "Users who may run in it."),
    KEY(R, projects, CONFIG_NAMES, NULL, 0, 0, "Projects that may run in it."),
    KEY(R, maintenance, CONFIG_BOOL, "false", 0, 0, "Nobody's jobs run then."),
};
#undef R

#define TABLE(keys_) .keys = keys_, .count = sizeof keys_ / sizeof keys_[0]

static const struct config_section sections[] = {
    {"cluster", NULL, TABLE(cluster_keys), sizeof(struct config_cluster), 0, 0,
     "The cluster as a whole, and its limits.",
     "[cluster]\nname = lab\nlisten = 0.0.0.0:6820\nadmins = alice, bob\n", offsetof(struct config, cluster)},
    {"policy", NULL, TABLE(policy_keys), sizeof(struct policy_settings), 0, 0,
     "The order of pending jobs, backfill, placement and preemption. Read at the start and on SIGHUP; "
     "changes are recorded. "
     "`acequia policy` shows and changes it while the cluster runs; what stands in the file is taken again "
     "at the next start. "
     "The time between a preempted job's signal and its end is `grace` of [cluster].",
     "[policy]\nshort_factor = 3\nuse = 1d\nhalf_life = 14d\nmin_run = 10m\n",
     offsetof(struct config, policy)},
    {"notify", NULL, TABLE(notify_keys), sizeof(struct config_notify), 0, 0,
     "Mails and webhooks about jobs (`--notify`, Slurm's `--mail-type`). Mails go through an SMTP server, or "
     "through "
     "the program sendmail when none is named.",
     "[notify]\nfrom = acequia@lab.example\nsmtp_server = smtp://mail.lab.example:25\nwebhook_hosts = "
     "hooks.slack.com\n",
     offsetof(struct config, notify)},
    {"report", NULL, TABLE(report_keys), sizeof(struct config_report), 0, 0,
     "Prices for `acequia report`. Energy is what the GPUs measured; prices of 0 are left out.",
     "[report]\ncurrency = EUR\nprice_gpu_hour = 1.20\nprice_cpu_hour = 0.02\nprice_kwh = "
     "0.25\nco2_g_per_kwh = 180\n",
     offsetof(struct config, report)},
    {"backup", NULL, TABLE(backup_keys), sizeof(struct config_backup), 0, 0,
     "Backups of the state that the controller makes by itself, complete and checked; see `acequia backup`.",
     "[backup]\nfolder = /backup/acequia\nevery = 12h\nkeep = 28\n", offsetof(struct config, backup)},
    {"store", NULL, TABLE(store_keys), sizeof(struct config_store), 0, 0,
     "Where the state is kept. A change takes a restart.",
     "[store]\ndatabase = "
     "postgresql://db.lab.example/acequia?sslmode=verify-full&passfile=/etc/acequia/pgpass\n"
     "address = head1.lab.example:6820\n",
     offsetof(struct config, store)},
    {"portal", NULL, TABLE(portal_keys), sizeof(struct config_portal), 0, 0,
     "The web portal, programs of jobs in the browser, and the logins of browsers. A change of enabled, port "
     "and "
     "apps_certificate takes a restart.",
     "[portal]\nport = 6821\nnames = head.lab.example\nsession_idle = 8h\n", offsetof(struct config, portal)},
    {"login", NULL, TABLE(login_keys), sizeof(struct config_login), 0, 0,
     "Who may log in to the portal and with `acequia login`, besides own users (`acequia user`).",
     "[login]\npam_service = acequia\n", offsetof(struct config, login)},
    {"oidc", "the provider's name, part of its users' identities: oidc:NAME:SUBJECT", TABLE(oidc_keys),
     sizeof(struct config_oidc), offsetof(struct config, oidc), offsetof(struct config_oidc, name),
     "A provider of OpenID Connect that people may log in with. Register "
     "https://HOST:PORT/login/NAME/callback there as "
     "the address to come back to. See docs/guide-admin.md.",
     "[oidc lab]\ntitle = Lab account\nissuer = https://id.lab.example/realms/lab\nclient_id = acequia\n"
     "client_secret_file = /etc/acequia/oidc.secret\nuser_claim = preferred_username\n"},
    {"node", "a node, a list such as n[01-04], or * for all", TABLE(node_keys), sizeof(struct config_node), 0,
     0,
     "What a node offers, where it differs from what its agent finds. [node *] holds for all; a section that "
     "names the node overrides it.",
     "[node dgx1]\nreserve_memory = 8G\nfeatures = nvlink\ngpus = v100:8:32G\ngpus_simulated = true\n"},
    {"project", "the project's name", TABLE(project_keys), sizeof(struct project),
     offsetof(struct config, projects), offsetof(struct project, name),
     "A project: who shares, and how much is guaranteed.",
     "[project vision]\nquota = 8\nmembers = alice, bob\n"},
    {"partition", "the partition's name", TABLE(partition_keys), sizeof(struct partition),
     offsetof(struct config, partitions), offsetof(struct partition, name),
     "A partition: a set of nodes with rules of its own.",
     "[partition short]\nnodes = n[01-04]\nmax_time = 4h\ndefault = true\n"},
    {"qos", "the QoS's name", TABLE(qos_keys), sizeof(struct qos), offsetof(struct config, qos),
     offsetof(struct qos, name), "A quality of service that jobs can ask for.",
     "[qos urgent]\npriority = 1000\nmax_jobs_per_user = 2\n"},
    {"license", "the license's name", TABLE(license_keys), sizeof(struct license),
     offsetof(struct config, licenses), offsetof(struct license, name),
     "A license that jobs ask for with --license: a number of seats that running jobs share.",
     "[license matlab]\ncount = 10\n"},
    {"reservation", "the reservation's name", TABLE(reservation_keys), sizeof(struct reservation),
     offsetof(struct config, reservations), offsetof(struct reservation, name), "Nodes set aside for a time.",
     "[reservation upgrade]\nnodes = n[01-02]\nstart = 2026-01-31T08:00\nend = 2026-01-31T18:00\nmaintenance "
     "= true\n"},
};

const struct config_section *config_sections(size_t *count) {
    *count = sizeof sections / sizeof *sections;
    return sections;
}

const struct config_section *config_section_find(const char *word) {
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!strcmp(sections[i].word, word))
            return &sections[i];
    return NULL;
}

const char *config_type_text(enum config_type type) {
    static const char *const texts[CONFIG_TYPE_COUNT] = {
        [CONFIG_TEXT] = "text",
        [CONFIG_IDENTIFIER] = "name",
        [CONFIG_ADDRESS] = "address:port",
        [CONFIG_ADDRESSES] = "address:port, ...",
        [CONFIG_NODES] = "node list",
        [CONFIG_BOOL] = "true or false",
        [CONFIG_U32] = "number",
        [CONFIG_I32] = "number",
        [CONFIG_DOUBLE] = "number",
        [CONFIG_SIZE] = "size",
        [CONFIG_SHARE] = "share, none or size",
        [CONFIG_SECONDS] = "duration",
        [CONFIG_SPAN] = "duration",
        [CONFIG_WORD] = "word",
        [CONFIG_TIME] = "time",
        [CONFIG_MILLIGPU] = "GPUs",
        [CONFIG_QUOTA] = "GPUs, or rest",
        [CONFIG_LEVEL] = "log level",
        [CONFIG_AUDIT] = "kill, warn or off",
        [CONFIG_NAMES] = "names",
        [CONFIG_QUOTAS] = "model=GPUs list",
        [CONFIG_GPUS] = "GPU list",
    };
    return texts[type];
}
