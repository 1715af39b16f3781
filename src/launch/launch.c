// Owns the encoding of launch requests: fixed-width little-endian fields in one order, strings and
// arrays with a counted length. One table-free walk serves both directions, so they cannot drift.
#include "launch/launch.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

// "AAQ1" and what follows it: the last character says which of the later parts a request has, so that one without them
// can be read by a shepherd of an earlier release.
enum {
    LAUNCH_MAGIC = 0x31514141,
    LAUNCH_HAS_RELAY = 1 << 24,
    LAUNCH_HAS_NETWORK = 2 << 24,
    LAUNCH_HAS_SERVICE = 4 << 24,
    LAUNCH_HAS_VOLUMES = 8 << 24,
    LAUNCH_HAS_MPI = 16 << 24
};

// Either writes to `out` or reads from data…end; the first failure sticks.
struct launch_reader {
    struct buf *out;
    const char *at, *end;
    struct arena *arena;
    const char *bad;  // the field that failed
};

static void walk_bytes(struct launch_reader *w, void *p, size_t n, const char *field) {
    if (w->bad)
        return;
    if (w->out) {
        buf_add(w->out, p, n);
    } else if ((size_t)(w->end - w->at) < n) {
        w->bad = field;
    } else {
        memcpy(p, w->at, n);
        w->at += n;
    }
}

static void walk_flag(struct launch_reader *w, bool *v, const char *field) {
    uint8_t b = *v;
    walk_bytes(w, &b, 1, field);
    if (!w->bad && b > 1)
        w->bad = field;
    if (!w->bad)
        *v = b;
}

static void walk_count(struct launch_reader *w, uint32_t *n, uint32_t max, const char *field) {
    walk_bytes(w, n, sizeof *n, field);
    if (!w->bad && *n > max)
        w->bad = field;
    if (w->bad && !w->out)
        *n = 0;
}

// NULL is a string of its own, different from "".
static void walk_string(struct launch_reader *w, const char **s, const char *field) {
    uint32_t len = w->out && *s ? (uint32_t)strlen(*s) + 1 : 0;
    walk_count(w, &len, LAUNCH_STRING_MAX, field);
    if (w->bad)
        return;
    if (w->out) {
        if (len)
            buf_add(w->out, *s, len - 1);
        return;
    }
    *s = NULL;
    if (!len)
        return;
    if ((size_t)(w->end - w->at) < len - 1 || memchr(w->at, 0, len - 1)) {
        w->bad = field;
        return;
    }
    *s = arena_strndup(w->arena, w->at, len - 1);
    w->at += len - 1;
}

static void walk_strings(struct launch_reader *w, char ***list, uint32_t *n, uint32_t max,
                         const char *field) {
    walk_count(w, n, max, field);
    if (w->bad || (!w->out && (size_t)(w->end - w->at) / 4 < *n)) {
        w->bad = field;
        return;
    }
    if (!w->out)  // one more: execve wants a NULL at the end
        *list = arena_alloc(w->arena, (*n + 1) * sizeof **list);
    for (uint32_t i = 0; i < *n && !w->bad; i++) {
        const char *s = w->out ? (*list)[i] : NULL;
        walk_string(w, &s, field);
        if (!w->out) {
            if (!s)
                w->bad = field;
            memcpy(&(*list)[i], &s, sizeof s);
        }
    }
}

static void *walk_array(struct launch_reader *w, void *array, uint32_t *n, uint32_t max, size_t size,
                        const char *field) {
    walk_count(w, n, max, field);
    if (w->bad || w->out)
        return array;
    if ((size_t)(w->end - w->at) < *n) {  // every element takes at least a byte
        w->bad = field;
        *n = 0;
        return NULL;
    }
    return arena_alloc(w->arena, (*n + 1) * size);
}

static void walk_numbers(struct launch_reader *w, uint32_t **list, uint32_t *n, uint32_t max,
                         const char *field) {
    *list = walk_array(w, *list, n, max, sizeof **list, field);
    for (uint32_t i = 0; i < *n && !w->bad; i++)
        walk_bytes(w, &(*list)[i], sizeof(*list)[i], field);
}

#define FIELD(w, r, name) walk_bytes(w, &(r)->name, sizeof(r)->name, #name)
#define FLAG(w, r, name) walk_flag(w, &(r)->name, #name)

static void walk_task(struct launch_reader *w, struct launch_process *t) {
    FIELD(w, t, rank);
    walk_strings(w, &t->env, &t->nenv, LAUNCH_ENV_MAX, "tasks.env");
    walk_strings(w, &t->argv, &t->argc, LAUNCH_ARGS_MAX, "tasks.argv");
    walk_string(w, &t->in, "tasks.in");
    walk_string(w, &t->out, "tasks.out");
    walk_string(w, &t->err, "tasks.err");
    walk_numbers(w, &t->cpus, &t->ncpus, LAUNCH_CPUS_MAX, "tasks.cpus");
}

static void walk_what(struct launch_reader *w, struct launch_request *r) {
    FIELD(w, r, job);
    FIELD(w, r, attempt);
    FIELD(w, r, step);
    FLAG(w, r, switch_user);
    FLAG(w, r, no_new_privs);
    FIELD(w, r, uid);
    FIELD(w, r, gid);
    walk_numbers(w, &r->groups, &r->ngroups, LAUNCH_GROUPS_MAX, "groups");
    FLAG(w, r, has_script);
    walk_strings(w, &r->argv, &r->argc, LAUNCH_ARGS_MAX, "argv");
    walk_strings(w, &r->env, &r->nenv, LAUNCH_ENV_MAX, "env");
    walk_string(w, &r->cwd, "cwd");
    FIELD(w, r, umask);
    FLAG(w, r, slurm_words);
    r->tasks = walk_array(w, r->tasks, &r->ntasks, LAUNCH_TASKS_MAX, sizeof *r->tasks, "tasks");
    for (uint32_t i = 0; i < r->ntasks && !w->bad; i++)
        walk_task(w, &r->tasks[i]);
    FLAG(w, r, kill_on_bad_exit);
    FIELD(w, r, wait_ms);
    walk_string(w, &r->in, "in");
    walk_string(w, &r->out, "out");
    walk_string(w, &r->err, "err");
    FLAG(w, r, append);
    FLAG(w, r, tty);
    FLAG(w, r, use_fds);
}

static void walk_limits(struct launch_reader *w, struct launch_request *r) {
    FIELD(w, r, memory_bytes);
    FIELD(w, r, pids_max);
    walk_numbers(w, &r->cpus, &r->ncpus, LAUNCH_CPUS_MAX, "cpus");
    FIELD(w, r, cpu_weight);
    FIELD(w, r, nice);
    FIELD(w, r, oom_score_adj);
    FIELD(w, r, time_limit_ms);
    FIELD(w, r, grace_ms);
    FIELD(w, r, warn_signal);
    FIELD(w, r, warn_before_ms);
    FIELD(w, r, warn_target);
    r->rlimits = walk_array(w, r->rlimits, &r->nrlimits, LAUNCH_RLIMITS_MAX, sizeof *r->rlimits,
                            "rlimits");
    for (uint32_t i = 0; i < r->nrlimits && !w->bad; i++) {
        FIELD(w, &r->rlimits[i], resource);
        FIELD(w, &r->rlimits[i], soft);
        FIELD(w, &r->rlimits[i], hard);
    }
    r->denied = walk_array(w, r->denied, &r->ndenied, LAUNCH_DEVICES_MAX, sizeof *r->denied,
                           "denied");
    for (uint32_t i = 0; i < r->ndenied && !w->bad; i++) {
        FLAG(w, &r->denied[i], block);
        FIELD(w, &r->denied[i], major);
        FIELD(w, &r->denied[i], minor);
    }
}

// Only there with a magic of its own: requests of an older agent have no relay.
static void walk_relay(struct launch_reader *w, struct launch_request *r) {
    r->relay = true;
    FLAG(w, r, relay_input);
    FIELD(w, r, rows);
    FIELD(w, r, columns);
}

// Only there with a magic of its own, like the relay.
static void walk_network(struct launch_reader *w, struct launch_request *r) {
    r->own_network = true;
    walk_string(w, &r->gateway, "gateway");
}

// Only there with a magic of its own, like the relay.
static void walk_service(struct launch_reader *w, struct launch_request *r) {
    FIELD(w, r, health);
    FIELD(w, r, health_port);
    walk_string(w, &r->health_path, "health_path");
    FIELD(w, r, health_interval_ms);
    FIELD(w, r, health_start_ms);
    FIELD(w, r, health_failures);
    FIELD(w, r, idle_ms);
    walk_strings(w, &r->sockets, &r->nsockets, LAUNCH_SOCKETS_MAX, "sockets");
}

static bool has_service(const struct launch_request *r) {
    return r->health || r->nsockets;
}

static void walk_volumes(struct launch_reader *w, struct launch_request *r) {
    walk_strings(w, &r->volumes, &r->nvolumes, LAUNCH_VOLUMES_MAX, "volumes");
}

static void walk_mpi(struct launch_reader *w, struct launch_request *r) {
    walk_strings(w, &r->mpi, &r->mpic, LAUNCH_ARGS_MAX, "mpi");
}

// Only there in requests for containers: older ones, which may still run, end before it.
static void walk_box(struct launch_reader *w, struct launch_request *r) {
    walk_strings(w, &r->box, &r->boxc, LAUNCH_ARGS_MAX, "box");
    if (!w->bad && !r->boxc)
        w->bad = "box";
}

void launch_encode(const struct launch_request *r, struct buf *out) {
    struct launch_request copy = *r;  // the walk is shared with decoding, which writes
    struct launch_reader w = {.out = out};
    uint32_t magic = LAUNCH_MAGIC + (copy.relay ? LAUNCH_HAS_RELAY : 0) +
                     (copy.own_network ? LAUNCH_HAS_NETWORK : 0) +
                     (has_service(&copy) ? LAUNCH_HAS_SERVICE : 0) +
                     (copy.nvolumes ? LAUNCH_HAS_VOLUMES : 0) + (copy.mpic ? LAUNCH_HAS_MPI : 0);
    walk_bytes(&w, &magic, sizeof magic, "magic");
    walk_what(&w, &copy);
    walk_limits(&w, &copy);
    if (copy.relay)
        walk_relay(&w, &copy);
    if (copy.own_network)
        walk_network(&w, &copy);
    if (has_service(&copy))
        walk_service(&w, &copy);
    if (copy.nvolumes)
        walk_volumes(&w, &copy);
    if (copy.mpic)
        walk_mpi(&w, &copy);
    if (copy.boxc)
        walk_box(&w, &copy);
    assert(!w.bad);  // launch_check ran before
}

int launch_decode(const char *data, size_t len, struct arena *arena, struct launch_request *r,
                  struct error *e) {
    struct launch_request got = {0};
    struct launch_reader w = {.at = data, .end = data + len, .arena = arena};
    uint32_t magic = 0;
    walk_bytes(&w, &magic, sizeof magic, "magic");
    // Optional parts are bits above the magic number: a shepherd of an earlier release refuses what it does not know.
    uint32_t parts = magic - LAUNCH_MAGIC;
    const uint32_t known =
        LAUNCH_HAS_RELAY | LAUNCH_HAS_NETWORK | LAUNCH_HAS_SERVICE | LAUNCH_HAS_VOLUMES | LAUNCH_HAS_MPI;
    if (!w.bad && parts & ~known)
        w.bad = "magic";
    if (!w.bad)
        walk_what(&w, &got);
    if (!w.bad)
        walk_limits(&w, &got);
    if (!w.bad && parts & LAUNCH_HAS_RELAY)
        walk_relay(&w, &got);
    if (!w.bad && parts & LAUNCH_HAS_NETWORK)
        walk_network(&w, &got);
    if (!w.bad && parts & LAUNCH_HAS_SERVICE)
        walk_service(&w, &got);
    if (!w.bad && parts & LAUNCH_HAS_VOLUMES)
        walk_volumes(&w, &got);
    if (!w.bad && parts & LAUNCH_HAS_MPI)
        walk_mpi(&w, &got);
    if (!w.bad && w.at != w.end)
        walk_box(&w, &got);
    if (!w.bad && w.at != w.end)
        w.bad = "end";
    if (w.bad)
        return error_set(e, EBADMSG, "launch request: field %s is damaged", w.bad);
    int rc = launch_check(&got, e);
    if (rc == 0)
        *r = got;
    return rc;
}

static int check_strings(char *const *list, uint32_t n, const char *field, struct error *e) {
    for (uint32_t i = 0; i < n; i++)
        if (strlen(list[i]) >= LAUNCH_STRING_MAX)
            return error_set(e, E2BIG, "launch request: an entry of %s is over %d bytes long",
                             field, LAUNCH_STRING_MAX);
    return 0;
}

static int check_task(const struct launch_request *r, const struct launch_process *t,
                      struct error *e) {
    if (!r->has_script && !r->argc && !t->argc && !r->boxc)  // an image may have a command of its own
        return error_set(e, EINVAL, "launch request: task %u has neither script nor command",
                         t->rank);
    if (t->argc > LAUNCH_ARGS_MAX || t->nenv > LAUNCH_ENV_MAX || t->ncpus > LAUNCH_CPUS_MAX)
        return error_set(e, E2BIG, "launch request: task %u has too many arguments, variables or "
                         "cpus", t->rank);
    int rc = check_strings(t->env, t->nenv, "the task's environment", e);
    return rc ? rc : check_strings(t->argv, t->argc, "the task's arguments", e);
}

int launch_check(const struct launch_request *r, struct error *e) {
    // Counts first: what follows walks the lists they belong to.
    if (r->argc > LAUNCH_ARGS_MAX || r->nenv > LAUNCH_ENV_MAX || r->ngroups > LAUNCH_GROUPS_MAX ||
        r->ntasks > LAUNCH_TASKS_MAX || r->ncpus > LAUNCH_CPUS_MAX || r->boxc > LAUNCH_ARGS_MAX ||
        r->nsockets > LAUNCH_SOCKETS_MAX || r->nvolumes > LAUNCH_VOLUMES_MAX || r->mpic > LAUNCH_ARGS_MAX ||
        r->nrlimits > LAUNCH_RLIMITS_MAX || r->ndenied > LAUNCH_DEVICES_MAX)
        return error_set(e, E2BIG, "launch request: too many arguments, variables, groups, tasks, "
                         "cpus, limits or devices");
    if (r->time_limit_ms < 0 || r->grace_ms < 0 || r->warn_before_ms < 0 || r->health_start_ms < 0 ||
        r->idle_ms < 0 || (r->health && r->health_interval_ms < 1))
        return error_set(e, EINVAL, "launch request: a time is negative");
    if (r->health > LAUNCH_HEALTH_JUPYTER)
        return error_set(e, EINVAL, "launch request: health check %u is unknown", r->health);
    if (r->warn_signal > 64 || r->warn_target > SIGNAL_STEPS)
        return error_set(e, EINVAL, "launch request: warn signal %u or target %u is unknown",
                         r->warn_signal, r->warn_target);
    if (r->nice < -20 || r->nice > 19 || r->oom_score_adj < -1000 || r->oom_score_adj > 1000)
        return error_set(e, EINVAL, "launch request: nice %d or oom score %d is out of range",
                         r->nice, r->oom_score_adj);
    if (r->cpu_weight > 10000 || r->umask > 0777)
        return error_set(e, EINVAL, "launch request: cpu weight %u or umask %o is out of range",
                         r->cpu_weight, r->umask);
    for (uint32_t i = 0; i < r->ncpus; i++)
        if (r->cpus[i] >= LAUNCH_CPUS_MAX)
            return error_set(e, EINVAL, "launch request: cpu %u does not exist", r->cpus[i]);
    int rc = check_strings(r->argv, r->argc, "the arguments", e);
    if (rc == 0)
        rc = check_strings(r->box, r->boxc, "the container's options", e);
    if (rc == 0)
        rc = check_strings(r->sockets, r->nsockets, "the sockets", e);
    if (rc == 0)
        rc = check_strings(r->env, r->nenv, "the environment", e);
    if (rc == 0)
        rc = check_strings(r->volumes, r->nvolumes, "the volumes", e);
    if (rc == 0)
        rc = check_strings(r->mpi, r->mpic, "the helper for MPI", e);
    for (uint32_t i = 0; rc == 0 && i < r->ntasks; i++)
        rc = check_task(r, &r->tasks[i], e);
    return rc;
}

const char *launch_code_name(enum launch_code code) {
    static const char *const names[LAUNCH_CODES] = {
        "ok", "request", "user", "privilege", "limits", "cwd", "input", "output",
        "command_not_found", "permission", "interpreter", "format", "resource", "disk_full",
        "container", "node",
    };
    return code < LAUNCH_CODES ? names[code] : "unknown";
}

const char *launch_end_name(enum launch_end end) {
    static const char *const names[ENDED_REASONS] = {
        "none", "exited", "signaled", "timeout", "out_of_memory", "killed", "launch_failed",
        "never_started", "lost", "reboot",
    };
    return end < ENDED_REASONS ? names[end] : "unknown";
}
