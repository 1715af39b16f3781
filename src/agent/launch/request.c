// Owns the translation between messages and launch requests. Nothing is opened or started here;
// the user database and device numbers are all it looks at.
#include "request.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "agent/launch/container.h"
#include "base/text.h"
#include "launch/volume.h"
#include "model/nodelist.h"
#include "device/gpu.h"
#include "model/pattern.h"
#include "model/port.h"

static int64_t seconds_to_ms(uint32_t s) {
    return (int64_t)s * 1000;
}

static int resolve_user(const struct request_node *node, struct users *users, const struct spec *s,
                        int64_t now_ms, const struct user_info **out, struct error *e) {
    int rc = agent_job_user(users, s, now_ms, out, e);
    if (rc == 0 && !node->root && s->uid != node->own_uid)
        rc = error_set(e, EPERM, "this agent does not run as root and cannot start jobs of user %s",
                       s->user ? s->user : "?");
    return rc;
}

static void set_user(struct launch_request *r, const struct request_node *node,
                     const struct user_info *user, struct arena *a) {
    r->uid = user->uid;
    r->gid = user->gid;
    r->groups = arena_memdup(a, user->groups, user->ngroups * sizeof *user->groups);
    r->ngroups = user->ngroups;
    r->switch_user = node->root;
}

static int set_files(const struct request_node *node, const struct message_launch *m,
                     struct launch_request *r, struct arena *a, struct error *e) {
    const struct spec *s = m->spec;
    struct pattern_values v =
        agent_job_file_values(node, m->id, m->array_id, m->array_index, s, m->node_index);
    v.task = m->first_rank;
    r->append = s->append || (m->attempt > 1 && !s->truncate);
    if (!str_empty(s->input) && !(r->in = agent_job_file(s->input, r->cwd, &v, a, e)))
        return -EINVAL;
    if (s->attach)
        return 0;  // kept by the shepherd
    if (!(r->out = agent_job_file(agent_job_output_pattern(s, m->array_id != 0), r->cwd, &v, a, e)))
        return -EINVAL;
    if (!str_empty(s->error) && !(r->err = agent_job_file(s->error, r->cwd, &v, a, e)))
        return -EINVAL;
    // Patterns with %t give every task a file of its own.
    for (uint32_t i = 1; i < r->ntasks; i++) {
        v.task = r->tasks[i].rank;
        const char *out = agent_job_file(agent_job_output_pattern(s, m->array_id != 0), r->cwd, &v, a, e);
        const char *err = str_empty(s->error) ? NULL : agent_job_file(s->error, r->cwd, &v, a, e);
        r->tasks[i].out = streq(out, r->out) ? NULL : out;
        r->tasks[i].err = streq(err, r->err) ? NULL : err;
        if (r->tasks[i].out && !err)
            r->tasks[i].err = out;
    }
    return 0;
}

static void set_tasks(const struct message_launch *m, struct launch_request *r, struct arena *a) {
    uint32_t n = 0;
    switch (m->spec->launch) {
    case LAUNCH_BATCH:
        n = m->node_index == 0 ? 1 : 0;
        break;
    case LAUNCH_TASKS:
        n = m->part->tasks ? m->part->tasks : 1;
        break;
    case LAUNCH_STEPS:
    case LAUNCH_KIND_COUNT:  // refused by agent_request_from_launch
        break;
    }
    r->tasks = arena_alloc(a, (n + 1) * sizeof *r->tasks);
    r->ntasks = n;
    for (uint32_t i = 0; i < n && m->spec->launch == LAUNCH_TASKS; i++) {
        struct env env = {.arena = a};
        agent_environment_task(&env, m->first_rank + i, i);
        r->tasks[i] = (struct launch_process){.rank = m->first_rank + i, .env = env.at,
                                              .nenv = env.len};
    }
}

// Each task its own cpus, when they divide evenly.
static void bind_tasks(struct launch_request *r) {
    uint32_t each = r->ntasks > 1 ? r->ncpus / r->ntasks : 0;
    for (uint32_t i = 0; each && i < r->ntasks; i++) {
        r->tasks[i].cpus = r->cpus + i * each;
        r->tasks[i].ncpus = each;
    }
}

static bool granted(const struct part *part, uint32_t index) {
    for (uint32_t i = 0; i < part->gpus.len; i++)
        if (part->gpus.at[i].index == index)
            return true;
    return false;
}

// Parts of one GPU have files in common: what a granted one needs stays.
static bool needed(const struct request_node *node, const struct part *part, const char *path) {
    struct gpu_nodes files;
    for (uint32_t i = 0; i < part->gpus.len; i++) {
        if (part->gpus.at[i].index >= node->node->gpus.len)
            continue;
        gpu_nodes(&node->node->gpus.at[part->gpus.at[i].index], &files);
        for (uint32_t k = 0; k < files.count; k++)
            if (streq(files.paths[k], path))
                return true;
    }
    return false;
}

// Also one that is not there yet: the driver's tools make it when somebody asks for it.
static bool device_of(const char *path, struct launch_device *out) {
    enum { NVIDIA_MAJOR = 195 };
    struct stat st;
    uint32_t number;
    if (stat(path, &st) == 0 && S_ISCHR(st.st_mode))
        *out = (struct launch_device){.major = major(st.st_rdev), .minor = minor(st.st_rdev)};
    else if (str_has_prefix(path, "/dev/nvidia") && parse_u32(path + strlen("/dev/nvidia"), &number) == 0)
        *out = (struct launch_device){.major = NVIDIA_MAJOR, .minor = number};
    else
        return false;
    return true;
}

static void deny_other_gpus(const struct request_node *node, const struct part *part,
                            struct launch_request *r, struct arena *a) {
    struct gpu_nodes files;
    if (!node->can_deny_devices || !node->node->gpus.len)
        return;
    r->denied = arena_alloc(a, node->node->gpus.len * GPU_NODES_MAX * sizeof *r->denied);
    for (uint32_t i = 0; i < node->node->gpus.len; i++) {
        const struct gpu *g = &node->node->gpus.at[i];
        if (g->simulated || str_empty(g->minor_path) || granted(part, i))
            continue;
        gpu_nodes(g, &files);
        for (uint32_t k = 0; k < files.count && r->ndenied < LAUNCH_DEVICES_MAX; k++)
            if (!needed(node, part, files.paths[k]) &&
                device_of(files.paths[k], &r->denied[r->ndenied]))
                r->ndenied++;
    }
}

static void set_limits(const struct request_node *node, const struct message_launch *m,
                       struct launch_request *r) {
    const struct spec *s = m->spec;
    r->memory_bytes = m->part->memory_bytes;
    r->pids_max = node->pids_max ? node->pids_max : REQUEST_PIDS_MAX;
    r->grace_ms = seconds_to_ms(s->grace_s ? s->grace_s : node->grace_s);
    if (m->time_limit_s) {
        uint32_t left = m->elapsed_s < m->time_limit_s ? m->time_limit_s - m->elapsed_s : 1;
        r->time_limit_ms = seconds_to_ms(left);
    }
    if (s->signal && s->signal <= 64) {
        r->warn_signal = s->signal;
        r->warn_before_ms = seconds_to_ms(s->signal_before_s);
        r->warn_target = s->signal_batch_only        ? SIGNAL_MAIN
                         : s->launch == LAUNCH_BATCH ? SIGNAL_STEPS
                                                     : SIGNAL_ALL;
    }
}

// Several nodes, and the workers of an elastic job, must reach each other: they share the nodes' network unless one of
// its own is asked for. Without the gateway a job that did not ask stays connected instead.
static void set_network(const struct request_node *node, const struct message_launch *m,
                        struct launch_request *r) {
    const struct spec *s = m->spec;
    bool alone = m->parts.len <= 1 && !m->workers;
    r->own_network = node->root && (s->network == NETWORK_OWN ||
                                    (s->network == NETWORK_AUTO && s->ports.len && alone && node->gateway));
    r->gateway = r->own_network ? node->gateway : NULL;
}

// Unix sockets that stand for ports, at the paths that the job's program has them, how it is asked whether it is ready,
// and where it finds programs of ours.
static int set_service(const struct request_node *node, const struct message_launch *m,
                       struct launch_request *r, struct env *env, struct error *e) {
    static const enum launch_health kinds[] = {[HEALTH_COMMAND] = LAUNCH_HEALTH_COMMAND,
                                               [HEALTH_HTTP] = LAUNCH_HEALTH_HTTP,
                                               [HEALTH_JUPYTER] = LAUNCH_HEALTH_JUPYTER};
    struct arena *a = env->arena;
    const struct spec *s = m->spec;
    struct pattern_values v =
        agent_job_file_values(node, m->id, m->array_id, m->array_index, s, m->node_index);
    struct health_check k;
    struct job_port p;
    uint32_t first = 0;
    if (node->data_path)
        agent_environment_set(env, "ACEQUIA_DATA", node->data_path);
    r->sockets = arena_alloc(a, (s->ports.len + 1) * sizeof *r->sockets);
    for (uint32_t i = 0; i < s->ports.len && i < PORTS_PER_JOB; i++) {
        int rc = port_parse(s->ports.at[i], &p, e);
        if (rc < 0)
            return rc;
        uint32_t number = port_number(&p, m->id, i);
        if (p.protocol == PORT_HTTP && !first)
            first = number;
        const char *path = p.path ? agent_job_file(p.path, r->cwd, &v, a, e) : NULL;
        if (p.path && !path)
            return -EINVAL;
        if (path && !r->nsockets)
            agent_environment_set(env, "ACEQUIA_SOCKET", path);
        if (path && !r->nsockets && node->tasks_path)  // a pool listens on such a socket
            agent_environment_set(env, "ACEQUIA_TASKS", node->tasks_path);
        if (path)
            r->sockets[r->nsockets++] = arena_printf(a, "%u:%s", number, path);
    }
    if (str_empty(s->health) || m->node_index)
        return 0;
    int rc = health_parse(s->health, &k, e);
    if (rc < 0)
        return rc;
    r->health = kinds[k.kind];
    r->health_port = k.port ? k.port : first;
    r->health_path = k.path;
    r->health_interval_ms = seconds_to_ms(s->health_interval_s ? s->health_interval_s : HEALTH_INTERVAL_S);
    r->health_failures = s->health_failures ? s->health_failures : HEALTH_FAILURES;
    bool boxed = !str_empty(s->container) || !str_empty(s->container_name);
    r->health_start_ms = seconds_to_ms(boxed ? HEALTH_START_IMAGE_S : HEALTH_START_S);
    r->idle_ms = seconds_to_ms(s->idle_s);
    return 0;
}

static char **copy_strings(const char *const *list, uint32_t n, struct arena *a) {
    char **out = arena_alloc(a, (n + 1) * sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = arena_strdup(a, list[i]);
    return out;
}

int agent_request_from_launch(const struct request_node *node, struct users *users,
                              const struct message_launch *m, const uint32_t *cpus, uint32_t ncpus,
                              int64_t now_ms, struct arena *a, struct launch_request *out,
                              enum launch_code *code, struct error *e) {
    const struct spec *s = m->spec;
    const struct user_info *user;
    struct env env = {.arena = a};
    struct launch_request r = {.job = m->id,
                               .attempt = m->attempt,
                               .umask = s->has_umask ? s->umask : 022,
                               .slurm_words = s->slurm_words};
    *code = LAUNCH_USER;
    int rc = resolve_user(node, users, s, now_ms, &user, e);
    if (rc < 0)
        return rc;
    *code = LAUNCH_REQUEST;
    if (s->network == NETWORK_OWN && !node->root)
        return error_set(e, EPERM, "a network of its own needs an agent that runs as root");
    if (s->launch >= LAUNCH_KIND_COUNT)
        return error_set(e, EPROTONOSUPPORT,
                         "the job is started in a way that this node's agent does not know; upgrade the agent");
    set_user(&r, node, user, a);
    r.cwd = str_empty(s->workdir) ? arena_strdup(a, user->home) : s->workdir;
    r.has_script = m->script.len > 0;
    r.argv = copy_strings(s->argv.at, s->argv.len, a);
    r.argc = s->argv.len;
    set_tasks(m, &r, a);
    bool boxed = !str_empty(s->container) || !str_empty(s->container_name);
    if (r.ntasks && !r.has_script && !r.argc && !boxed)
        return error_set(e, EINVAL, "the job has neither a script nor a command");
    rc = set_files(node, m, &r, a, e);
    if (rc < 0)
        return rc;
    agent_environment_job(&env, m, user, node->name);
    agent_environment_worker(&env, m, node->spool_path);
    if (node->cluster_home && !agent_environment_find(&env, "ACEQUIA_HOME"))
        agent_environment_set(&env, "ACEQUIA_HOME", node->cluster_home);
    // Open MPI wants an ssh to be there also where it needs none; most images have none.
    if (boxed && m->parts.len < 2 && !agent_environment_find(&env, "OMPI_MCA_plm"))
        agent_environment_set(&env, "OMPI_MCA_plm", "isolated");
    if ((rc = set_service(node, m, &r, &env, e)) < 0)
        return rc;
    r.env = env.at;
    r.nenv = env.len;
    r.kill_on_bad_exit = s->launch == LAUNCH_TASKS && !s->no_kill_on_bad_exit;
    r.cpus = arena_memdup(a, cpus, ncpus * sizeof *cpus);
    r.ncpus = ncpus;
    bind_tasks(&r);
    set_limits(node, m, &r);
    deny_other_gpus(node, m->part, &r, a);
    set_network(node, m, &r);
    if (!boxed)  // else it is whole when the container is added
        rc = launch_check(&r, e);
    if (rc == 0)
        *out = r;
    return rc;
}

static int set_step_files(const struct request_node *node, const struct launch_request *parent,
                          const struct message_exec *m, struct launch_request *r, struct arena *a,
                          struct error *e) {
    struct spec nobody = {0};
    struct pattern_values v = agent_job_file_values(node, parent->job, 0, 0, &nobody, m->node_index);
    const char *patterns[] = {m->input, m->output, m->error};
    const char **places[] = {&r->in, &r->out, &r->err};
    v.step = m->step ? m->step - 1 : 0;
    v.task = m->first_rank;
    for (int i = 0; i < 3; i++)
        if (!str_empty(patterns[i]) && !(*places[i] = agent_job_file(patterns[i], r->cwd, &v, a, e)))
            return -EINVAL;
    for (uint32_t t = 1; t < r->ntasks; t++) {
        v.task = r->tasks[t].rank;
        if (r->out && !(r->tasks[t].out = agent_job_file(m->output, r->cwd, &v, a, e)))
            return -EINVAL;
        if (r->err && !(r->tasks[t].err = agent_job_file(m->error, r->cwd, &v, a, e)))
            return -EINVAL;
        if (streq(r->tasks[t].out, r->out))
            r->tasks[t].out = NULL;
        if (streq(r->tasks[t].err, r->err))
            r->tasks[t].err = NULL;
    }
    return 0;
}

// What a step has of its own beside the job's: memory when it asks for some, and its GPUs.
static void set_step_limits(const struct request_node *node, const struct message_exec *m,
                            struct launch_request *r, struct arena *a) {
    r->time_limit_ms = seconds_to_ms(m->time_limit_s);
    bool own = m->step && (!r->memory_bytes || m->memory_bytes <= r->memory_bytes);
    r->memory_bytes = own ? m->memory_bytes : 0;
    r->denied = NULL;
    r->ndenied = 0;
    if (m->step && m->gpus.len) {
        struct part part = {.gpus = {m->gpus.at, m->gpus.len}};
        deny_other_gpus(node, &part, r, a);
    }
}

static const char *parent_value(const struct launch_request *parent, const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < parent->nenv; i++)
        if (strncmp(parent->env[i], name, len) == 0 && parent->env[i][len] == '=')
            return parent->env[i] + len + 1;
    return NULL;
}

// A step may come with the environment of another machine's shell. What holds the job to its part of a
// GPU stays; otherwise an honest step would look like one that goes around it.
static void keep_shim(struct env *env, const struct launch_request *parent, struct arena *a) {
    static const char *const kept[] = {"ACEQUIA_GPU_LEDGER_DIR", "ACEQUIA_GPU_ARBITER_DIR", "ACEQUIA_GPU_GRANTS"};
    const char *path = parent_value(parent, "LD_LIBRARY_PATH"),
               *own = agent_environment_find(env, "LD_LIBRARY_PATH");
    if (!path || !parent_value(parent, kept[0]))
        return;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (parent_value(parent, kept[i]))
            agent_environment_set(env, kept[i], parent_value(parent, kept[i]));
    const char *shim = arena_strndup(a, path, strcspn(path, ":"));  // it comes first
    if (str_empty(own))
        agent_environment_set(env, "LD_LIBRARY_PATH", shim);
    else if (!str_has_prefix(own, shim))
        agent_environment_set(env, "LD_LIBRARY_PATH", arena_printf(a, "%s:%s", shim, own));
}

// A step is in the container of its job unless it names one itself.
static int set_step_container(const struct request_node *node, const struct launch_request *parent,
                              const struct message_exec *m, struct launch_request *r, struct arena *a,
                              struct error *e) {
    struct container_wish own = {
        .image = m->container,
        .mounts = m->container_mounts,
        .workdir = m->container_workdir,
        .name = m->container_name};
    struct container_wish w = str_empty(own.image) && str_empty(own.name) ? agent_container_of(parent) : own;
    r->box = NULL;
    r->boxc = 0;
    launch_volumes_keep_nfs(r);  // folders are there, but mounts are those of one process
    if (!str_empty(own.mounts))
        w.mounts = own.mounts;
    if (!str_empty(own.workdir))
        w.workdir = own.workdir;
    w.volumes = agent_container_of(parent).volumes;
    w.buckets = agent_container_of(parent).buckets;
    w.ssh = m->argv.len > 1 && streq(m->argv.at[0], EXEC_OWN_PROGRAM) && streq(m->argv.at[1], EXEC_SSH);
    return agent_container_apply(node, r, &w, !m->argv.len, a, e);
}

static void add_word(struct launch_request *r, struct arena *a, const char *word) {
    r->mpi[r->mpic++] = arena_strdup(a, word);
}

static void add_pair(struct launch_request *r, struct arena *a, const char *name, const char *value) {
    add_word(r, a, name);
    add_word(r, a, value);
}

// Runs of equal numbers: "0*4,1*4".
static const char *places(const struct message_exec *m, uint32_t size, struct arena *a) {
    cleanup_buf struct buf b = {0};
    if (m->node_count < 2)
        return arena_printf(a, "0*%u", size);
    for (uint32_t i = 0, run; i < m->task_nodes.len; i += run) {
        for (run = 1; i + run < m->task_nodes.len && m->task_nodes.at[i + run] == m->task_nodes.at[i];)
            run++;
        buf_addf(&b, run > 1 ? "%s%u*%u" : "%s%u", b.len ? "," : "", m->task_nodes.at[i], run);
    }
    return arena_strdup(a, buf_str(&b));
}

// The helper that the tasks of an MPI program find each other by (launch/mpi.h).
static int set_mpi(const struct request_node *node, const struct message_exec *m, struct launch_request *r,
                   struct arena *a, struct error *e) {
    enum { MPI_WORDS = 21 };
    cleanup_buf struct buf names = {0};
    struct name_list list = {0};
    uint32_t size = m->total_tasks ? m->total_tasks : r->ntasks;
    r->mpic = 0;
    if (!m->mpi || m->mpi >= STEP_MPI_COUNT)
        return 0;
    if (!node->mpi_path)
        return error_set(e, ENOENT, "the helper for MPI (acequia-mpi) is not installed on the node");
    if (r->own_network && m->node_count > 1)
        return error_set(e, EINVAL,
                         "MPI over several nodes needs the nodes' network; the job has one of its own");
    if (!str_empty(m->nodes) && nodelist_expand(m->nodes, a, &list, e) < 0)
        return -EINVAL;
    for (uint32_t i = 0; i < list.len; i++)
        buf_addf(&names, "%s%s", i ? "," : "", list.at[i]);
    r->mpi = arena_alloc(a, (MPI_WORDS + 1) * sizeof *r->mpi);
    add_word(r, a, node->mpi_path);
    add_pair(r, a, "--kind", message_step_mpi_words[m->mpi]);
    add_pair(r, a, "--size", arena_printf(a, "%u", size));
    add_pair(r, a, "--nodes", arena_printf(a, "%u", m->node_count ? m->node_count : 1));
    add_pair(r, a, "--node", arena_printf(a, "%u", m->node_index));
    add_pair(r, a, "--places", places(m, size, a));
    add_pair(r, a, "--name",
             arena_printf(a, "acequia.%llu.%u.%u", (unsigned long long)m->id, m->attempt, m->step));
    if (r->boxc)
        add_pair(r, a, "--container", "yes");
    if (node->tools_path)
        add_pair(r, a, "--tools", node->tools_path);
    add_pair(r, a, "--node-list", names.len ? buf_str(&names) : node->name);
    return 0;
}

static bool in_container(const struct launch_request *parent) {
    struct container_wish w = agent_container_of(parent);
    return w.image || w.name;
}

int agent_request_from_exec(const struct request_node *node, const struct launch_request *parent,
                            const struct message_exec *m, uint32_t step, struct arena *a,
                            struct launch_request *out, struct error *e) {
    struct env env = {.arena = a};
    struct launch_request r = *parent;  // user, limits of processes, cpus
    uint32_t n = m->tasks ? m->tasks : 1;
    r.step = step;
    r.has_script = false;
    r.in = r.out = r.err = NULL;
    r.append = m->append;
    r.use_fds = r.tty = r.relay = r.relay_input = false;
    r.warn_signal = 0;
    r.health = r.nsockets = 0;
    set_step_limits(node, m, &r, a);
    r.kill_on_bad_exit = m->kill_on_bad_exit;
    r.wait_ms = seconds_to_ms(m->wait_s);
    if (!str_empty(m->workdir))
        r.cwd = m->workdir;
    for (uint32_t i = 0; i < parent->nenv; i++)
        agent_environment_set(&env, arena_strndup(a, parent->env[i], strcspn(parent->env[i], "=")),
                              strchr(parent->env[i], '=') + 1);
    if (m->umask_plus && m->umask_plus <= 01000)
        r.umask = m->umask_plus - 1;
    agent_environment_step(&env, m);
    if (m->step)
        agent_environment_set(&env, "SLURM_UMASK", arena_printf(a, "%04o", r.umask));
    keep_shim(&env, parent, a);
    if (m->argv.len) {
        r.argv = copy_strings(m->argv.at, m->argv.len, a);
        r.argc = m->argv.len;
        if (streq(r.argv[0], EXEC_OWN_PROGRAM))  // a container has it in its PATH
            r.argv[0] = arena_strdup(
                a, in_container(parent) || !node->tools_path ? "acequia" : node->tools_path);
    } else {  // a login shell
        const char *shell = agent_environment_find(&env, "SHELL");
        const char *argv[] = {shell ? shell : "/bin/sh", "-l"};
        r.argv = copy_strings(argv, 2, a);
        r.argc = 2;
    }
    if (n > LAUNCH_TASKS_MAX)
        return error_set(e, E2BIG, "%u tasks on one node; at most %d are supported", n,
                         LAUNCH_TASKS_MAX);
    r.tasks = arena_alloc(a, (n + 1) * sizeof *r.tasks);
    r.ntasks = n;
    if (m->cpus.len) {
        uint32_t *cpus = arena_alloc(a, m->cpus.len * sizeof *cpus);
        r.ncpus = 0;
        for (uint32_t i = 0; i < m->cpus.len; i++)
            if (m->cpus.at[i] < parent->ncpus)
                cpus[r.ncpus++] = parent->cpus[m->cpus.at[i]];
        r.cpus = cpus;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct env task = {.arena = a};
        uint32_t rank = agent_environment_rank(m, i);
        agent_environment_task(&task, rank, i);
        agent_environment_task_gpus(&task, m, i);
        r.tasks[i] = (struct launch_process){.rank = rank, .env = task.at,
                                             .nenv = m->step ? task.len : 0};
    }
    bool verbose = false;
    if (m->cpus.len || m->cpu_bind)
        bind_tasks(&r);
    if (m->cpu_bind) {
        int bound = agent_request_bind(m->cpu_bind, &r, &verbose, a, e);
        if (bound < 0)
            return bound;
    }
    if (m->cpu_bind || agent_environment_find(&env, "SLURM_CPU_BIND_VERBOSE"))
        agent_environment_set(&env, "SLURM_CPU_BIND_VERBOSE", verbose ? "verbose" : "quiet");
    r.env = env.at;
    r.nenv = env.len;
    int rc = set_step_container(node, parent, m, &r, a, e);
    if (rc == 0)
        rc = set_mpi(node, m, &r, a, e);
    if (rc == 0)
        rc = set_step_files(node, parent, m, &r, a, e);
    if (rc == 0)
        rc = launch_check(&r, e);
    if (rc == 0)
        *out = r;
    return rc;
}

enum end_cause agent_request_cause(const struct spool_status *s) {
    switch ((enum launch_end)s->end) {
    case ENDED_TIMEOUT:
        return END_TIMEOUT;
    case ENDED_OUT_OF_MEMORY:
        return END_OOM;
    case ENDED_KILLED:
        return s->kill_why < END_CAUSE_COUNT ? (enum end_cause)s->kill_why : END_CANCEL;
    case ENDED_LAUNCH_FAILED:
        return s->launch_code == LAUNCH_NODE ? END_NODE_FAIL : END_LAUNCH;
    case ENDED_NEVER_STARTED:
    case ENDED_LOST:
    case ENDED_REBOOT:
        return END_NODE_FAIL;
    default:
        return END_EXIT;
    }
}

struct usage agent_request_usage(const struct launch_usage *u) {
    return (struct usage){.cpu_user_us = u->user_us,
                          .cpu_system_us = u->system_us,
                          .memory_peak_bytes = u->peak_bytes,
                          .wall_ms = u->wall_ms > 0 ? (uint64_t)u->wall_ms : 0};
}

void agent_request_report(const struct spool_status *s, struct arena *a, struct message_ended *out) {
    struct usage *u = arena_alloc(a, sizeof *u);
    *u = agent_request_usage(&s->usage);
    *out = (struct message_ended){
        .id = s->job,
        .attempt = s->attempt,
        .cause = agent_request_cause(s),
        .exit_code = s->exit_code,
        .exit_signal = (uint32_t)s->signal,
        .usage = u,
        .start_ms = s->started_wall_ms,
        .end_ms = s->ended_wall_ms,
        .launch_failed = s->end == ENDED_LAUNCH_FAILED && s->launch_code == LAUNCH_NODE,
    };
    if (out->launch_failed)
        out->start_ms = 0;
    if (s->end == ENDED_LAUNCH_FAILED)
        out->reason = arena_printf(a, LAUNCH_FAILED_WORDS "%s", s->text);
    else if (s->text[0])
        out->reason = arena_strdup(a, s->text);
}
