// A launch, from the controller's message to the shepherd: the request is made whole (make_request), put into the spool
// folder (put_into_spool), and its name handed to a shepherd (hand_over), which does the rest: src/shepherd/main.c.
//
// Whatever happens in between, a restarted agent finds the attempt in the spool folder or it does not: before it is
// there nothing has begun, and afterwards only the shepherd that locks its folder may begin it.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/launch/container.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/volume.h"
#include "launcher_state.h"

// The node cannot launch it, whatever the job asks for: the controller queues the job again and gives this node
// fewer launches.
static void node_failed(struct launcher *l, uint64_t id, uint32_t attempt, const char *text) {
    struct message_ended end = {.id = id,
                                .attempt = attempt,
                                .cause = END_NODE_FAIL,
                                .launch_failed = true,
                                .end_ms = clock_wall_ms(),
                                .reason = text};
    log_warn("job %llu: not started: %s", (unsigned long long)id, text);
    agent_logic_ended(l->node->logic, &end);
}

static void launch_failed(struct launcher *l, uint64_t id, uint32_t attempt, enum launch_code code,
                          const char *text) {
    cleanup_arena struct arena arena = {0};
    struct message_ended end = {
        .id = id,
        .attempt = attempt,
        .cause = END_LAUNCH,
        .exit_code = 127,
        .end_ms = clock_wall_ms(),
        .reason = arena_printf(&arena, LAUNCH_FAILED_WORDS "%s", text),
    };
    log_info("job %llu: not started (%s): %s", (unsigned long long)id, launch_code_name(code), text);
    agent_logic_ended(l->node->logic, &end);
}

// What is done for a launch before the job's user is asked anything fails for the node's reasons, unless the
// request itself is wrong.
static bool node_is_to_blame(int rc) {
    switch (-rc) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EIO:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EACCES:
    case EPERM:
    case ENOENT:
    case ENODEV:
    case ENOTDIR:
    case ESTALE: return true;
    default: return false;
    }
}

// The descriptors stay the caller's; a launch that has to wait keeps copies.
static bool wait_in_line(struct launcher *l, uint64_t id, uint32_t attempt, const int *fds, int nfds) {
    struct waiting_launch w = {.id = id, .attempt = attempt, .fds = {-1, -1, -1}};
    for (; w.nfds < nfds; w.nfds++)
        if ((w.fds[w.nfds] = fcntl(fds[w.nfds], F_DUPFD_CLOEXEC, 3)) < 0) {
            while (w.nfds > 0)
                close(w.fds[--w.nfds]);
            return false;
        }
    vec_push(&l->handed_back, w);
    return true;
}

static void hand_over(struct launcher *l, uint64_t id, uint32_t attempt, const int *fds, int nfds) {
    int rc = launch_shepherds_launch(l->shepherds, id, attempt, fds, nfds);
    if (rc == 0 || (rc == -EAGAIN && wait_in_line(l, id, attempt, fds, nfds)))
        return;
    struct spool_status s;
    struct error e;
    error_set(&e, -rc, "the process that starts jobs cannot be reached: %s", strerror(-rc));
    spool_close_attempt(l->node->spool_fd, id, attempt, ENDED_NEVER_STARTED, e.text, clock_wall_ms(), &s);
    node_failed(l, id, attempt, e.text);
}

static void wait_for_user(struct launcher *l, const struct agent_action *action) {
    struct unresolved_launch w = {.ncpus = action->ncpus,
                                  .until_ms = clock_mono_ms() + LAUNCHER_USER_PATIENCE_MS};
    w.launch = schema_copy(message_info(MESSAGE_LAUNCH)->schema, action->launch, &w.arena);
    if (action->secrets)
        w.secrets = schema_copy(message_info(MESSAGE_SECRETS)->schema, action->secrets, &w.arena);
    w.cpus = arena_memdup(&w.arena, action->cpus, action->ncpus * sizeof *w.cpus);
    w.origin = arena_memdup(&w.arena, action->origin, action->origin_len);
    w.origin_len = action->origin_len;
    vec_push(&l->unresolved, w);
}

static void unresolved_done(struct unresolved_launch *w) {
    if (w->secrets)
        message_wipe(&(struct message){MESSAGE_SECRETS, w->secrets});
    arena_done(&w->arena);
}

static const char *mounts_of(const struct message_launch *m, struct arena *arena) {
    const char *all = NULL;
    for (uint32_t i = 0; i < m->volumes.len; i++) {
        const struct launch_volume *v = &m->volumes.at[i];
        const char *from = str_has_prefix(v->root, "nfs://") ? launch_nfs_folder(i, arena)
                           : v->path                         ? arena_printf(arena, "%s/%s", v->root, v->path)
                                                             : v->root;
        if (!str_has_prefix(v->root, "s3://"))
            all = arena_printf(arena, "%s%s%s:%s%s", all ? all : "", all ? "," : "", from, v->to,
                               v->read_only ? ":ro" : "");
    }
    return all;
}

// Those that the job's user mounts, a line for each: "s3://… ro /path", or rw.
static const char *buckets_of(const struct message_launch *m, struct arena *arena) {
    const char *all = NULL;
    for (uint32_t i = 0; i < m->volumes.len; i++) {
        const struct launch_volume *v = &m->volumes.at[i];
        if (str_has_prefix(v->root, "s3://"))
            all = arena_printf(arena, "%s%s%s %s %s", all ? all : "", all ? "\n" : "", v->root,
                               v->read_only ? "ro" : "rw", v->to);
    }
    return all;
}

// Folders of volumes are made by the shepherd: their storage may not answer, and the agent must not wait for it.
static void add_volumes(const struct message_launch *m, struct launch_request *r, struct arena *arena) {
    r->volumes = arena_alloc(arena, (m->volumes.len + 1) * sizeof *r->volumes);
    for (uint32_t i = 0; i < m->volumes.len; i++) {
        const struct launch_volume *v = &m->volumes.at[i];
        struct volume_folder f = {.root = v->root,
                                  .path = v->path,
                                  .title = v->title,
                                  .uid = v->uid,
                                  .gid = v->gid,
                                  .mode = v->mode,
                                  .number = v->number,
                                  .size_bytes = v->size_bytes,
                                  .shared = v->shared,
                                  .read_only = v->read_only};
        if (str_has_prefix(v->root, "nfs://"))
            f.path = launch_nfs_folder(i, arena);
        if (f.path)
            r->volumes[r->nvolumes++] = arena_strdup(arena, launch_volume_text(&f, arena));
    }
}

// Its container: the one it asks for, where a worker also sees the membership of its job at the path that it has
// outside.
static struct container_wish container_of(const struct launcher *l, const struct message_launch *m,
                                          struct arena *arena) {
    struct container_wish box = {.image = m->spec->container,
                                 .mounts = m->spec->container_mounts,
                                 .workdir = m->spec->container_workdir,
                                 .name = m->spec->container_name,
                                 .pull = m->spec->container_pull,
                                 .task = m->spec->image_task,
                                 .volumes = mounts_of(m, arena),
                                 .buckets = buckets_of(m, arena)};
    char name[SPOOL_NAME_MAX];
    if (!m->workers || (str_empty(box.image) && str_empty(box.name)))
        return box;
    spool_name(name, m->id, m->attempt);
    const char *members = arena_printf(arena, "%s/%s/" SPOOL_MEMBERS, l->node->spool_path, name);
    box.mounts = arena_printf(arena, "%s%s%s:%s:ro", str_empty(box.mounts) ? "" : box.mounts,
                              str_empty(box.mounts) ? "" : ",", members, members);
    return box;
}

// What the node adds to the request of the job: its GPUs, its container, files for output that is streamed, and room
// in the spool folder. Returns the number of descriptors for the shepherd.
static int add_from_node(struct launcher *l, const struct agent_action *action, struct launch_request *r,
                         int fds[3], struct arena *arena, struct error *e) {
    const struct message_launch *m = action->launch;
    uint64_t files =
        (m->script.len ? spool_file_bytes(m->script.len) : 0) + launcher_secrets_bytes(action->secrets);
    int nfds = 0;
    struct container_wish box = container_of(l, m, arena);
    int rc = gpus_grant(l->gpus, m, r, arena, e);
    add_volumes(m, r, arena);
    if (rc >= 0)
        rc = agent_container_apply(&l->node->request_node, r, &box, false, arena, e);
    if (rc >= 0 && m->spec->attach && r->ntasks)
        rc = nfds = streams_attach(l->streams, m, r, fds, e);
    if (rc >= 0)
        rc = spool_quota_take(&l->quota, m->id, m->attempt, r->uid, spool_quota_bytes(r, files), e);
    if (rc >= 0 && m->workers)
        rc = spool_quota_take_members(&l->quota, m->id, m->attempt,
                                      spool_members_bytes(m->workers->lines.len), e);
    for (int i = 0; rc < 0 && i < nfds; i++)
        close(fds[i]);
    return rc < 0 ? rc : nfds;
}

// A health check that is a command: a step that the shepherd starts again and again.
static int put_health_step(struct launcher *l, const struct message_launch *m, const struct launch_request *r,
                           struct error *e) {
    const char *argv[] = {"/bin/sh", "-c", m->spec->health};
    struct message_exec exec = {.id = m->id,
                                .attempt = m->attempt,
                                .step = SPOOL_HEALTH_STEP,
                                .argv = {argv, 3},
                                .tasks = 1,
                                .total_tasks = 1};
    cleanup_arena struct arena arena = {0};
    struct launch_request step;
    if (r->health != LAUNCH_HEALTH_COMMAND)
        return 0;
    int rc = agent_request_from_exec(&l->node->request_node, r, &exec, SPOOL_HEALTH_STEP, &arena, &step, e);
    struct spool_event event = {m->seq, m->epoch};
    return rc < 0 ? rc : spool_create_step(l->node->spool_fd, &step, &event, clock_wall_ms(), e);
}

// The attempt's folder, whole or not at all.
static int put_into_spool(struct launcher *l, const struct agent_action *action,
                          const struct launch_request *r, struct error *e) {
    const struct message_launch *m = action->launch;
    int spool = l->node->spool_fd;
    int rc = spool_create(spool, r, m->script.len ? m->script.data : NULL, m->script.len,
                          l->node->node.boot_id, clock_wall_ms(), e);
    if (rc < 0)
        return rc;
    if (m->workers) {
        rc = spool_write_members(spool, m->id, m->attempt, m->workers->lines.data, m->workers->lines.len);
        if (rc < 0)
            spool_error(spool, -rc, e, "cannot write the membership of the job's workers");
    }
    if (rc >= 0)
        rc = launcher_secrets_write(l, action->secrets, r, e);
    if (rc >= 0)
        rc = put_health_step(l, m, r, e);
    if (rc < 0) {
        spool_remove(spool, m->id, m->attempt);
        return rc;
    }
    if (action->origin_len &&
        spool_write_origin(spool, m->id, m->attempt, 0, action->origin, action->origin_len) < 0)
        log_warn("job %llu: what it was started from cannot be written; a controller whose state is restored "
                 "will not "
                 "know it",
                 (unsigned long long)m->id);
    return 0;
}

void launcher_launch(struct launcher *l, const struct agent_action *action) {
    const struct message_launch *m = action->launch;
    cleanup_arena struct arena arena = {0};
    struct launch_request r;
    struct error e = {0};
    enum launch_code code;
    int fds[3] = {-1, -1, -1};
    int rc = agent_request_from_launch(&l->node->request_node, l->node->users, m, action->cpus, action->ncpus,
                                       clock_mono_ms(), &arena, &r, &code, &e);
    if (rc == -EINPROGRESS || rc == -ETIMEDOUT) {
        wait_for_user(l, action);
        return;
    }
    if (rc == 0)
        rc = launcher_secrets_apply(l, m, action->secrets, &r, &arena, &e);
    if (rc < 0) {  // nothing of the node is in it yet: the job is to blame
        launch_failed(l, m->id, m->attempt, code, e.text);
        return;
    }
    int nfds = rc = add_from_node(l, action, &r, fds, &arena, &e);
    if (rc >= 0)
        rc = put_into_spool(l, action, &r, &e);
    if (rc >= 0) {
        hand_over(l, m->id, m->attempt, fds, nfds);
        if (r.boxc)
            launcher_image_watch(l, m->id, m->attempt);
    } else if (rc == -EEXIST) {
        launcher_check(l, m->id, m->attempt, true);  // known from before: it is where it is
    } else {
        gpus_forget(l->gpus, m->id, m->attempt);
        spool_quota_release(&l->quota, m->id, m->attempt);
        if (node_is_to_blame(rc))
            node_failed(l, m->id, m->attempt, e.text);
        else
            launch_failed(l, m->id, m->attempt, LAUNCH_REQUEST, e.text);
    }
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
}

bool launcher_unresolved(const struct launcher *l, uint64_t id, uint32_t attempt) {
    for (uint32_t i = 0; i < l->unresolved.len; i++)
        if (l->unresolved.at[i].launch->id == id && l->unresolved.at[i].launch->attempt == attempt)
            return true;
    return false;
}

// False while it has to wait.
static bool launch_resolved(struct launcher *l, const struct unresolved_launch *w, int64_t now_ms) {
    struct agent_action action = {.launch = w->launch,
                                  .secrets = w->secrets,
                                  .cpus = w->cpus,
                                  .ncpus = w->ncpus,
                                  .origin = w->origin,
                                  .origin_len = w->origin_len};
    const struct user_info *user;
    struct error e = {0};
    int rc = agent_job_user(l->node->users, w->launch->spec, now_ms, &user, &e);
    bool silent = rc == -EINPROGRESS || rc == -ETIMEDOUT;
    if (silent && now_ms < w->until_ms)
        return false;
    if (silent)
        node_failed(l, w->launch->id, w->launch->attempt, "the node's directory of users does not answer");
    else
        launcher_launch(l, &action);
    return true;
}

void launcher_users_changed(struct launcher *l) {
    int64_t now_ms = clock_mono_ms();
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->unresolved.len; i++) {
        struct unresolved_launch w = l->unresolved.at[i];
        if (launch_resolved(l, &w, now_ms))
            unresolved_done(&w);
        else
            l->unresolved.at[kept++] = w;
    }
    l->unresolved.len = kept;
    streams_users_changed(l->streams);
    launcher_execute(l);
}

bool launcher_end_unresolved(struct launcher *l, const struct agent_action *k) {
    struct message_ended end = {.id = k->id,
                                .attempt = k->attempt,
                                .cause = k->cause,
                                .end_ms = clock_wall_ms(),
                                .reason = "ended before it began: its user was still being looked up"};
    for (uint32_t i = 0; i < l->unresolved.len; i++)
        if (l->unresolved.at[i].launch->id == k->id && l->unresolved.at[i].launch->attempt == k->attempt) {
            unresolved_done(&l->unresolved.at[i]);
            vec_remove(&l->unresolved, i);
            agent_logic_ended(l->node->logic, &end);
            return true;
        }
    return false;
}

void launcher_launch_again(struct launcher *l) {
    uint32_t n = l->handed_back.len;
    struct waiting_launch *list = l->handed_back.at;
    l->handed_back.at = NULL;
    l->handed_back.len = l->handed_back.cap = 0;
    for (uint32_t i = 0; i < n; i++) {
        hand_over(l, list[i].id, list[i].attempt, list[i].fds, list[i].nfds);
        for (int k = 0; k < list[i].nfds; k++)
            close(list[i].fds[k]);
    }
    free(list);
}

void launcher_drop_waiting(struct launcher *l) {
    for (uint32_t i = 0; i < l->unresolved.len; i++)
        unresolved_done(&l->unresolved.at[i]);
    vec_done(&l->unresolved);
    for (uint32_t i = 0; i < l->handed_back.len; i++)
        for (int k = 0; k < l->handed_back.at[i].nfds; k++)
            close(l->handed_back.at[i].fds[k]);
    vec_done(&l->handed_back);
}
