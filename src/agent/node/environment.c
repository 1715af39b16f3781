// Owns the names and forms of a job's variables.
#include "agent/node/environment.h"

#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "base/text.h"
#include "model/nodelist.h"
#include "model/port.h"
#include "model/progress.h"

enum { FEW = 128 };  // are searched one by one

static bool env_named(struct env *env, uint32_t i, const char *name, size_t len) {
    env->compared++;
    return strncmp(env->at[i], name, len) == 0 && env->at[i][len] == '=';
}

// The slot that holds the name, or the empty one where it belongs.
static uint32_t *env_slot(struct env *env, const char *name, size_t len) {
    uint32_t mask = env->slot_count - 1, s = (uint32_t)hash_keyed(name, len) & mask;
    while (env->slots[s] && !env_named(env, env->slots[s] - 1, name, len))
        s = (s + 1) & mask;
    return &env->slots[s];
}

// Users choose how many variables there are: with many, each is found by its hash.
static void env_hash_names(struct env *env) {
    if (env->len * 2 > env->slot_count) {
        env->slot_count = FEW * 4;
        while (env->slot_count < env->len * 4)
            env->slot_count *= 2;
        env->slots = arena_alloc(env->arena, env->slot_count * sizeof *env->slots);
        memset(env->slots, 0, env->slot_count * sizeof *env->slots);
        env->indexed = 0;
    }
    for (; env->indexed < env->len; env->indexed++) {
        const char *entry = env->at[env->indexed];
        uint32_t *slot = env_slot(env, entry, strcspn(entry, "="));
        if (!*slot)  // else the first of the name is the one that counts
            *slot = env->indexed + 1;
    }
}

static uint32_t env_index(struct env *env, const char *name, size_t len) {
    uint32_t i = 0;
    if (env->len > FEW) {
        env_hash_names(env);
        i = *env_slot(env, name, len);
        return i ? i - 1 : env->len;
    }
    while (i < env->len && !env_named(env, i, name, len))
        i++;
    return i;
}

static void env_put(struct env *env, uint32_t i, char *entry) {
    if (i == env->cap) {
        uint32_t cap = env->cap ? env->cap * 2 : 128;
        char **grown = arena_alloc(env->arena, cap * sizeof *grown);
        if (env->len)
            memcpy(grown, env->at, env->len * sizeof *grown);
        env->at = grown;
        env->cap = cap;
    }
    env->at[i] = entry;
    if (i == env->len)
        env->len++;
}

// "NAME=value" in one piece.
static void env_add(struct env *env, const char *name, const char *value, size_t len) {
    size_t name_len = strlen(name);
    char *entry = arena_alloc(env->arena, name_len + len + 2);
    memcpy(entry, name, name_len);
    entry[name_len] = '=';
    memcpy(entry + name_len + 1, value, len);
    env_put(env, env->append_only ? env->len : env_index(env, name, name_len), entry);
}

void agent_environment_set(struct env *env, const char *name, const char *value) {
    env_add(env, name, value, strlen(value));
}

// A launch sets about fifty variables: printf would be a fifth of the agent's work on a short job.
static void env_number(struct env *env, const char *name, uint64_t value) {
    char digits[20], *p = digits + sizeof digits;
    do {
        *--p = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    env_add(env, name, p, (size_t)(digits + sizeof digits - p));
}

const char *agent_environment_find(struct env *env, const char *name) {
    size_t len = strlen(name);
    uint32_t i = env_index(env, name, len);
    return i < env->len ? env->at[i] + len + 1 : NULL;
}

static void env_default(struct env *env, const char *name, const char *value) {
    if (!agent_environment_find(env, name))
        agent_environment_set(env, name, value);
}

// Under both families of names.
#define BOTH(env, name, value)                                                                               \
    do {                                                                                                     \
        agent_environment_set(env, "ACEQUIA_" name, value);                                                  \
        agent_environment_set(env, "SLURM_" name, value);                                                    \
    } while (0)
#define BOTH_NUMBER(env, name, value)            \
    do {                                         \
        env_number(env, "ACEQUIA_" name, value); \
        env_number(env, "SLURM_" name, value);   \
    } while (0)

// "4(x2),3": how Slurm writes a number per node.
static void fold_counts(const struct part *parts, uint32_t count, bool tasks, struct buf *out) {
    for (uint32_t i = 0; i < count;) {
        uint32_t v = tasks ? parts[i].tasks : parts[i].cpus, run = 1;
        while (i + run < count && (tasks ? parts[i + run].tasks : parts[i + run].cpus) == v)
            run++;
        buf_addf(out, run > 1 ? "%s%u(x%u)" : "%s%u", out->len ? "," : "", v, run);
        i += run;
    }
}

// Folded if that keeps the order: programs take the first host of the list for that of rank 0.
static void list_nodes(const char *const *names, uint32_t count, struct arena *a, struct buf *out) {
    struct name_list back = {0};
    bool same = true;
    nodelist_fold(names, count, out);
    if (nodelist_expand(buf_str(out), a, &back, NULL) == 0 && back.len == count)
        for (uint32_t i = 0; i < count && same; i++)
            same = streq(names[i], back.at[i]);
    if (same && back.len == count)
        return;
    buf_clear(out);
    for (uint32_t i = 0; i < count; i++)
        buf_addf(out, i ? ",%s" : "%s", names[i]);
}

static const char *submitted_with(const struct message_launch *m, const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < m->environment.len; i++)
        if (strncmp(m->environment.at[i], name, len) == 0 && m->environment.at[i][len] == '=')
            return m->environment.at[i] + len + 1;
    return NULL;
}

static bool from_sbatch(const struct message_launch *m) {
    return m->spec->slurm_words && m->spec->launch == LAUNCH_BATCH;
}

// What was asked for, in the words it was asked in; sbatch says so. A script finds the number of tasks only
// if it was asked for: programs take its presence for having been started by srun.
static void set_asked(struct env *env, const struct message_launch *m) {
    static const char *const names[] = {"SLURM_NTASKS",          "SLURM_NPROCS",            "SLURM_GPUS",
                                        "SLURM_GPUS_PER_NODE",   "SLURM_GPUS_PER_TASK",     "SLURM_GPU_BIND",
                                        "SLURM_GPU_FREQ",        "SLURM_NTASKS_PER_CORE",   "SLURM_NTASKS_PER_SOCKET",
                                        "SLURM_ARRAY_TASK_STEP"};
    for (uint32_t i = 0; i < m->environment.len; i++) {
        const char *entry = m->environment.at[i];
        size_t len = str_has_prefix(entry, "SLURM_") ? strcspn(entry, "=") : 0;
        for (size_t k = 0; len && k < sizeof names / sizeof *names; k++)
            if (strlen(names[k]) == len && !strncmp(names[k], entry, len) && entry[len])
                agent_environment_set(env, names[k], entry + len + 1);
    }
}

static void set_counted(struct env *env, const struct message_launch *m, uint32_t tasks) {
    const struct spec *s = m->spec;
    env_number(env, "SLURM_NTASKS", tasks);
    env_number(env, "SLURM_NPROCS", tasks);
    if (m->is_array && s->array.len)
        env_number(env, "SLURM_ARRAY_TASK_STEP", s->array.at[0].step);
    if (!m->part->gpus.len)
        return;
    if (s->gpus_milli >= 1000)
        env_number(env, "SLURM_GPUS", s->gpus_milli / 1000);
    if (s->gpus_per_node_milli >= 1000)
        env_number(env, "SLURM_GPUS_PER_NODE", s->gpus_per_node_milli / 1000);
    if (s->gpus_per_task_milli >= 1000)
        env_number(env, "SLURM_GPUS_PER_TASK", s->gpus_per_task_milli / 1000);
}

static void set_shape(struct env *env, const struct message_launch *m) {
    cleanup_buf struct buf nodes = {0}, tasks = {0}, cpus = {0};
    const char **names = arena_alloc(env->arena, (m->parts.len + 1) * sizeof *names);
    uint32_t total = 0;
    for (uint32_t i = 0; i < m->parts.len; i++) {
        names[i] = m->parts.at[i].node;
        total += m->parts.at[i].tasks;
    }
    list_nodes(names, m->parts.len, env->arena, &nodes);
    fold_counts(m->parts.at, m->parts.len, true, &tasks);
    fold_counts(m->parts.at, m->parts.len, false, &cpus);
    BOTH(env, "JOB_NODELIST", buf_str(&nodes));
    agent_environment_set(env, "SLURM_NODELIST", buf_str(&nodes));
    BOTH_NUMBER(env, "JOB_NUM_NODES", m->parts.len);
    env_number(env, "SLURM_NNODES", m->parts.len);
    agent_environment_set(env, "SLURM_TASKS_PER_NODE", buf_str(&tasks));
    agent_environment_set(env, "SLURM_JOB_CPUS_PER_NODE", buf_str(&cpus));
    env_number(env, "ACEQUIA_NTASKS", total);
    if (from_sbatch(m))
        set_asked(env, m);
    else
        set_counted(env, m, total);
    BOTH_NUMBER(env, "CPUS_ON_NODE", m->part->cpus);
    if (m->spec->cpus_per_task > 1 && !m->spec->cpus_per_gpu)
        BOTH_NUMBER(env, "CPUS_PER_TASK", m->spec->cpus_per_task);
    if (m->spec->cpus_per_gpu)
        env_number(env, "SLURM_CPUS_PER_GPU", m->spec->cpus_per_gpu);
    if (m->spec->ntasks_per_gpu)
        env_number(env, "SLURM_NTASKS_PER_GPU", m->spec->ntasks_per_gpu);
    if (m->spec->memory_per_gpu_bytes)
        env_number(env, "SLURM_MEM_PER_GPU", m->spec->memory_per_gpu_bytes >> 20);
    if (m->spec->tasks_per_node)
        BOTH_NUMBER(env, "NTASKS_PER_NODE", m->spec->tasks_per_node);
    if (m->spec->memory_per_cpu_bytes)
        BOTH_NUMBER(env, "MEM_PER_CPU", m->spec->memory_per_cpu_bytes >> 20);
    else if (m->part->memory_bytes && !m->spec->memory_per_gpu_bytes)
        BOTH_NUMBER(env, "MEM_PER_NODE", m->part->memory_bytes >> 20);
}

static void set_array(struct env *env, const struct message_launch *m) {
    if (!m->is_array)
        return;
    BOTH_NUMBER(env, "ARRAY_JOB_ID", m->array_id);
    BOTH_NUMBER(env, "ARRAY_TASK_ID", m->array_index);
    BOTH_NUMBER(env, "ARRAY_TASK_COUNT", m->array_count);
    BOTH_NUMBER(env, "ARRAY_TASK_MIN", m->array_min);
    BOTH_NUMBER(env, "ARRAY_TASK_MAX", m->array_max);
    if (m->spec->array.len)
        env_number(env, "ACEQUIA_ARRAY_TASK_STEP", m->spec->array.at[0].step);
}

// Both names that Slurm has for it.
static void set_group(struct env *env, const char *name, uint32_t group, const char *value) {
    agent_environment_set(env, arena_printf(env->arena, "SLURM_%s_HET_GROUP_%u", name, group), value);
    agent_environment_set(env, arena_printf(env->arena, "SLURM_%s_PACK_GROUP_%u", name, group), value);
}

static void set_group_number(struct env *env, const char *name, uint32_t group, uint64_t value) {
    if (value)
        set_group(env, name, group, arena_printf(env->arena, "%llu", (unsigned long long)value));
}

// Of the script of a heterogeneous job: what each of its components has.
static void set_components(struct env *env, const struct message_launch *m) {
    for (uint32_t i = 0; i < m->components.len; i++) {
        const struct launch_component *k = &m->components.at[i];
        cleanup_buf struct buf nodes = {0}, tasks = {0}, cpus = {0};
        const char **names = arena_alloc(env->arena, (k->parts.len + 1) * sizeof *names);
        for (uint32_t n = 0; n < k->parts.len; n++)
            names[n] = k->parts.at[n].node;
        list_nodes(names, k->parts.len, env->arena, &nodes);
        fold_counts(k->parts.at, k->parts.len, true, &tasks);
        fold_counts(k->parts.at, k->parts.len, false, &cpus);
        set_group_number(env, "JOB_ID", i, k->id);
        set_group(env, "JOB_NAME", i, m->spec->name ? m->spec->name : "");
        set_group(env, "JOB_NODELIST", i, buf_str(&nodes));
        set_group_number(env, "JOB_NUM_NODES", i, k->parts.len);
        set_group(env, "JOB_CPUS_PER_NODE", i, buf_str(&cpus));
        set_group(env, "TASKS_PER_NODE", i, buf_str(&tasks));
        set_group_number(env, "NTASKS", i, k->tasks);
        set_group_number(env, "NPROCS", i, k->tasks);
        set_group_number(env, "NTASKS_PER_NODE", i, k->tasks_per_node);
        set_group_number(env, "CPUS_PER_TASK", i, k->cpus_per_task > 1 ? k->cpus_per_task : 0);
        set_group_number(env, "MEM_PER_NODE", i, k->memory_per_node_bytes >> 20);
        set_group_number(env, "MEM_PER_CPU", i, k->memory_per_cpu_bytes >> 20);
        if (!str_empty(k->partition))
            set_group(env, "JOB_PARTITION", i, k->partition);
    }
    if (!m->components.len)
        return;
    env_number(env, "SLURM_HET_SIZE", m->components.len);
    env_number(env, "SLURM_PACK_SIZE", m->components.len);
    env_number(env, "SLURM_JOB_ID", m->workers->job);  // the first component has the job's number
    env_number(env, "SLURM_JOBID", m->workers->job);
}

// Of a worker of an elastic job; what changes while it runs is in the file.
void agent_environment_worker(struct env *env, const struct message_launch *m, const char *spool_path) {
    if (!m->workers)
        return;
    set_components(env, m);
    env_number(env, "ACEQUIA_WORKER", m->worker);
    env_number(env, "ACEQUIA_WORKERS", m->spec->workers_max);
    env_number(env, "ACEQUIA_WORKERS_MIN", m->spec->workers_min);
    env_number(env, "ACEQUIA_WORKERS_JOB", m->workers->job);
    agent_environment_set(env, "ACEQUIA_COMPONENT", m->spec->component ? m->spec->component : "worker");
    if (spool_path)
        agent_environment_set(env, "ACEQUIA_WORKERS_FILE",
                              arena_printf(env->arena, "%s/%llu.%u/members/workers", spool_path,
                                           (unsigned long long)m->id, m->attempt));
}

static void set_gpus(struct env *env, const struct message_launch *m) {
    cleanup_buf struct buf ids = {0}, uuids = {0}, grants = {0};
    for (uint32_t i = 0; i < m->part->gpus.len; i++) {
        const char *comma = i ? "," : "";
        buf_addf(&ids, "%s%u", comma, m->part->gpus.at[i].index);
        buf_addf(&grants, "%s%u:%u", comma, m->part->gpus.at[i].index, m->part->gpus.at[i].milli);
        if (m->spec->gpu_memory_bytes)
            buf_addf(&grants, ":%llu", (unsigned long long)m->spec->gpu_memory_bytes);
        if (i < m->gpu_uuids.len)
            buf_addf(&uuids, "%s%s", comma, m->gpu_uuids.at[i]);
    }
    // Also without a GPU: none is visible then.
    agent_environment_set(env, "CUDA_VISIBLE_DEVICES", buf_str(&uuids));
    if (!m->part->gpus.len)
        return;
    agent_environment_set(env, "NVIDIA_VISIBLE_DEVICES", buf_str(&uuids));
    BOTH(env, "JOB_GPUS", buf_str(&ids));
    BOTH_NUMBER(env, "GPUS_ON_NODE", m->part->gpus.len);
    agent_environment_set(env, "ACEQUIA_GPU_GRANTS", buf_str(&grants));
}

static void set_identity(struct env *env, const struct message_launch *m,
                         const struct user_info *user, const char *node) {
    const struct spec *s = m->spec;
    char host[256] = "";
    BOTH_NUMBER(env, "JOB_ID", m->id);
    env_number(env, "SLURM_JOBID", m->id);
    BOTH(env, "JOB_NAME", s->name ? s->name : "");
    BOTH(env, "JOB_USER", user->name);
    BOTH_NUMBER(env, "JOB_UID", user->uid);
    BOTH_NUMBER(env, "JOB_GID", user->gid);
    if (!str_empty(s->project)) {
        agent_environment_set(env, "ACEQUIA_PROJECT", s->project);
        agent_environment_set(env, "SLURM_JOB_ACCOUNT", s->project);
    }
    if (!str_empty(s->partition))
        BOTH(env, "JOB_PARTITION", s->partition);
    if (!str_empty(s->qos))
        BOTH(env, "JOB_QOS", s->qos);
    if (!str_empty(s->reservation))
        BOTH(env, "JOB_RESERVATION", s->reservation);
    BOTH(env, "CLUSTER_NAME", m->cluster ? m->cluster : "");
    BOTH_NUMBER(env, "NODEID", m->node_index);
    agent_environment_set(env, "ACEQUIA_NODE", node);
    agent_environment_set(env, "SLURMD_NODENAME", node);
    agent_environment_set(env, "SLURM_TOPOLOGY_ADDR", node);
    agent_environment_set(env, "SLURM_TOPOLOGY_ADDR_PATTERN", "node");
    // Where it was submitted is known to whoever submitted it; sbatch says so.
    const char *from = submitted_with(m, "SLURM_SUBMIT_DIR"), *at = submitted_with(m, "SLURM_SUBMIT_HOST");
    BOTH(env, "SUBMIT_DIR", from ? from : s->workdir ? s->workdir : user->home);
    if (at || gethostname(host, sizeof host - 1) == 0)
        BOTH(env, "SUBMIT_HOST", at ? at : host);
    if (!str_empty(s->dependency))
        BOTH(env, "JOB_DEPENDENCY", s->dependency);
    if (!str_empty(s->comment))
        agent_environment_set(env, "SLURM_JOB_COMMENT", s->comment);
    agent_environment_set(env, "SLURM_NODE_ALIASES", "(null)");
    env_number(env, "ACEQUIA_ATTEMPT", m->attempt);
    const char *own = submitted_with(m, PROGRESS_FILE_VARIABLE);
    if (!own ||
        str_has_prefix(own, PROGRESS_FILE_PREFIX)) {  // with the prefix: of the job that submitted this one
        char path[PROGRESS_PATH_MAX];
        progress_file_path(m->id, m->attempt, m->epoch, path);
        agent_environment_set(env, PROGRESS_FILE_VARIABLE, path);
    }
    if (m->attempt > 1)
        BOTH_NUMBER(env, "RESTART_COUNT", m->attempt - 1);
    agent_environment_set(env, "SLURM_PRIO_PROCESS", "0");
}

// Whether a variable of the submitter has a name that we set: what an outer job left behind is not
// this job's. After this, ours can be appended without looking.
static bool names_ours(const char *entry, bool slurm_words) {
    static const char *const families[] = {"SLURM_", "ACEQUIA_"};
    static const char *const ours[] = {"JOB", "ARRAY_", "NTASKS", "NPROCS", "CPUS_", "MEM_PER_",
                                       "NODEID", "NODELIST", "NODE_ALIASES", "NNODES", "NODE=", "SUBMIT_",
                                       "RESTART_COUNT", "PROCID", "LOCALID", "GTIDS", "STEP",
                                       "CLUSTER_NAME", "GPU", "PROJECT", "ATTEMPT", "TASKS_PER_NODE",
                                       "TOPOLOGY_ADDR", "PRIO_PROCESS"};
    static const char *const whole[] = {
        "CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=", "SLURMD_NODENAME=", "ENVIRONMENT=",
        PROGRESS_FILE_VARIABLE "=" PROGRESS_FILE_PREFIX};
    static const char *const person[] = {"HOME=", "USER=", "LOGNAME="};
    if (!strchr("SACNEHUL", entry[0]))  // what all of them begin with
        return false;
    for (size_t i = 0; i < 2; i++) {
        size_t len = strlen(families[i]);
        if (strncmp(entry, families[i], len) != 0)
            continue;
        for (size_t k = 0; k < sizeof ours / sizeof ours[0]; k++)
            if (str_has_prefix(entry + len, ours[k]))
                return true;
    }
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (str_has_prefix(entry, whole[i]))
            return true;
    for (size_t i = 0; !slurm_words && i < sizeof person / sizeof person[0]; i++)
        if (str_has_prefix(entry, person[i]))
            return true;
    return false;
}

// Slurm leaves the submitter's HOME, USER and LOGNAME as they are; `acequia` may be called on a laptop
// whose home is none here, so there they are those of the node.
static void set_person(struct env *env, const struct user_info *user, bool slurm_words) {
    const char *const values[][2] = {{"HOME", user->home}, {"USER", user->name}, {"LOGNAME", user->name}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (!slurm_words || !agent_environment_find(env, values[i][0]))
            agent_environment_set(env, values[i][0], values[i][1]);
}

static void set_ports(struct env *env, const struct message_launch *m) {
    cleanup_buf struct buf all = {0};
    struct job_port p;
    struct error e;
    for (uint32_t i = 0; i < m->spec->ports.len; i++)
        if (port_parse(m->spec->ports.at[i], &p, &e) == 0 && !p.path)
            buf_addf(&all, "%s%u", all.len ? "," : "", port_number(&p, m->id, i));
    if (!all.len)
        return;
    agent_environment_set(env, "ACEQUIA_PORTS", buf_str(&all));
    agent_environment_set(env, "ACEQUIA_PORT",
                          arena_strndup(env->arena, buf_str(&all), strcspn(buf_str(&all), ",")));
}

void agent_environment_job(struct env *env, const struct message_launch *m, const struct user_info *user,
                           const char *node) {
    for (uint32_t i = 0; i < m->environment.len; i++) {
        const char *entry = m->environment.at[i];
        if (strchr(entry, '=') && !names_ours(entry, m->spec->slurm_words))
            env_put(env, env->len, arena_strdup(env->arena, entry));
    }
    env_default(env, "PATH", "/usr/local/bin:/usr/bin:/bin");
    env_default(env, "SHELL", user->shell);
    set_person(env, user, m->spec->slurm_words);
    if (m->spec->slurm_words)
        env_default(env, "TMPDIR", "/tmp");
    if (from_sbatch(m))  // of a login node, as it came
        agent_environment_set(env, "HOSTNAME", node);
    env->append_only = true;
    set_identity(env, m, user, node);
    set_shape(env, m);
    set_array(env, m);
    set_gpus(env, m);
    set_ports(env, m);
    if (m->spec->launch == LAUNCH_BATCH) {
        agent_environment_set(env, "ENVIRONMENT", "BATCH");
        agent_environment_task(env, 0, 0);
        agent_environment_set(env, "SLURM_GTIDS", "0");
    }
    env->append_only = false;
}

void agent_environment_task(struct env *env, uint32_t rank, uint32_t local) {
    BOTH_NUMBER(env, "PROCID", rank);
    BOTH_NUMBER(env, "LOCALID", local);
}

// The GPUs whose positions are set in the mask.
static void set_visible(struct env *env, const struct message_exec *m, uint64_t mask) {
    cleanup_buf struct buf uuids = {0}, ids = {0};
    for (uint32_t i = 0; i < m->gpus.len; i++) {
        if (i < 64 ? !(mask >> i & 1) : mask != UINT64_MAX)
            continue;
        buf_addf(&ids, "%s%u", ids.len ? "," : "", m->gpus.at[i].index);
        if (i < m->gpu_uuids.len)
            buf_addf(&uuids, "%s%s", uuids.len ? "," : "", m->gpu_uuids.at[i]);
    }
    agent_environment_set(env, "CUDA_VISIBLE_DEVICES", buf_str(&uuids));
    agent_environment_set(env, "NVIDIA_VISIBLE_DEVICES", buf_str(&uuids));
    agent_environment_set(env, "SLURM_STEP_GPUS", buf_str(&ids));
}

void agent_environment_task_gpus(struct env *env, const struct message_exec *m, uint32_t local) {
    if (local < m->task_gpus.len)
        set_visible(env, m, m->task_gpus.at[local]);
}

uint32_t agent_environment_rank(const struct message_exec *m, uint32_t local) {
    return local < m->ranks.len ? m->ranks.at[local] : m->first_rank + local;
}

static void step_tasks(struct env *env, const struct message_exec *m) {
    cleanup_buf struct buf counts = {0}, ranks = {0};
    for (uint32_t i = 0; i < m->tasks_per_node.len;) {
        uint32_t v = m->tasks_per_node.at[i], run = 1;
        while (i + run < m->tasks_per_node.len && m->tasks_per_node.at[i + run] == v)
            run++;
        buf_addf(&counts, run > 1 ? "%s%u(x%u)" : "%s%u", counts.len ? "," : "", v, run);
        i += run;
    }
    for (uint32_t i = 0; i < m->tasks; i++)
        buf_addf(&ranks, "%s%u", i ? "," : "", agent_environment_rank(m, i));
    if (counts.len) {
        BOTH(env, "STEP_TASKS_PER_NODE", buf_str(&counts));
        agent_environment_set(env, "SLURM_TASKS_PER_NODE", buf_str(&counts));
    }
    agent_environment_set(env, "SLURM_GTIDS", buf_str(&ranks));
}

void agent_environment_step(struct env *env, const struct message_exec *m) {
    for (uint32_t i = 0; i < m->environment.len; i++) {
        const char *entry = m->environment.at[i];
        size_t len = strcspn(entry, "=");
        if (entry[len])
            env_put(env, env_index(env, entry, len), arena_strdup(env->arena, entry));
    }
    if (!m->step)
        return;
    BOTH_NUMBER(env, "STEP_ID", m->step - 1);
    env_number(env, "SLURM_STEPID", m->step - 1);
    BOTH_NUMBER(env, "NODEID", m->node_index);
    if (m->total_tasks) {
        BOTH_NUMBER(env, "NTASKS", m->total_tasks);
        env_number(env, "SLURM_NPROCS", m->total_tasks);
        BOTH_NUMBER(env, "STEP_NUM_TASKS", m->total_tasks);
    }
    if (m->node_count) {
        BOTH_NUMBER(env, "STEP_NUM_NODES", m->node_count);
        env_number(env, "SLURM_NNODES", m->node_count);
    }
    if (!str_empty(m->nodes))
        BOTH(env, "STEP_NODELIST", m->nodes);
    if (m->cpus_per_task)
        BOTH_NUMBER(env, "CPUS_PER_TASK", m->cpus_per_task);
    if (m->cpus.len)
        BOTH_NUMBER(env, "CPUS_ON_NODE", m->cpus.len);
    step_tasks(env, m);
    if (m->gpus.len) {
        set_visible(env, m, UINT64_MAX);
        BOTH_NUMBER(env, "GPUS_ON_NODE", m->gpus.len);
    }
    agent_environment_set(env, "SLURM_STEP_LAUNCHER_PORT", "0");
}
