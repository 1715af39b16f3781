// Owns the reading of nodes and partitions.
#include "node_row.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "model/gpuspec.h"
#include "model/nodelist.h"

static const struct {
    const char *api, *full, *brief;
} states[] = {
    [SNODE_IDLE] = {"idle", "idle", "idle"},
    [SNODE_MIXED] = {"mixed", "mixed", "mix"},
    [SNODE_ALLOCATED] = {"allocated", "allocated", "alloc"},
    [SNODE_COMPLETING] = {"cleaning", "completing", "comp"},
    [SNODE_DOWN] = {"down", "down", "down"},
    [SNODE_LOST] = {"unreachable", "down*", "down*"},
    [SNODE_DRAINING] = {"draining", "draining", "drng"},
    [SNODE_DRAINED] = {"drained", "drained", "drain"},
    [SNODE_MAINT] = {"maintenance", "maint", "maint"},
};

const char *slurm_node_long(const struct snode *n) {
    return states[n->state].full;
}

const char *slurm_node_short(const struct snode *n) {
    return states[n->state].brief;
}

bool slurm_node_usable(const struct snode *n) {
    return n->state <= SNODE_COMPLETING;
}

// Words of --states; the state underneath counts, so that an idle node that is drained is "idle", too.
static const char *const state_words[] = {
    "unknown",      "down",       "idle",       "allocated",  "mixed",      "future",        "drained",
    "draining",     "no_respond", "reserved",   "resv",       "perfctrs",   "npc",           "cloud",
    "completing",   "pow_up",     "pow_dn",     "fail",       "failing",    "powering_down", "powered_down",
    "power_down",   "powering_up", "maint",     "reboot",     "planned",    "all",           "drain"};
enum { STATE_WORD_COUNT = sizeof state_words / sizeof *state_words };

// A word may be cut short. NULL: it is none.
static const char *find_state(const char *text, size_t len) {
    for (size_t i = 0; i < STATE_WORD_COUNT && len; i++)
        if (strlen(state_words[i]) == len && !strncasecmp(state_words[i], text, len))
            return state_words[i];
    for (size_t i = 0; i < STATE_WORD_COUNT && len; i++)
        if (!strncasecmp(state_words[i], text, len))
            return state_words[i];
    return NULL;
}

int slurm_node_states_check(struct slurm *s, const char *text) {
    for (const char *p = text ? text : ""; *p;) {
        size_t len = strcspn(p, ",&");
        if (!find_state(p, len)) {
            slurm_error(s, "Bad state string: \"%.*s\"", (int)len, p);
            slurm_error(s, "valid states: all,unknown,down,idle,allocated,mixed,drain,drained,draining,no_respond,"
                           "reserved,completing,maint,fail,planned");
            return SLURM_FAILED;
        }
        p += len + (p[len] != 0);
    }
    return 0;
}

static bool has_state(const struct snode *n, const char *word) {
    bool busy = n->state == SNODE_MIXED || n->state == SNODE_ALLOCATED || n->state == SNODE_DRAINING;
    if (streq(word, "all"))
        return true;
    if (streq(word, "idle"))
        return n->state == SNODE_IDLE || n->state == SNODE_DRAINED;
    if (streq(word, "allocated"))
        return busy;
    if (streq(word, "mixed"))
        return n->state == SNODE_MIXED || (n->state == SNODE_DRAINING && n->cpus_used < n->cpus);
    if (streq(word, "drain"))
        return n->state == SNODE_DRAINED || n->state == SNODE_DRAINING;
    if (streq(word, "down"))
        return n->state == SNODE_DOWN || n->state == SNODE_LOST;
    if (streq(word, "no_respond"))
        return n->state == SNODE_LOST;
    return slurm_same_word(word, slurm_node_long(n));
}

// "idle&drain,down": any of the parts, all words of a part.
bool slurm_node_states_match(const char *text, const struct snode *n) {
    for (const char *p = text; *p;) {
        bool all = true;
        for (;;) {
            size_t len = strcspn(p, ",&");
            const char *word = find_state(p, len);
            all = all && word && has_state(n, word);
            p += len;
            if (*p != '&')
                break;
            p++;
        }
        if (all)
            return true;
        p += *p == ',';
    }
    return false;
}

int slurm_name_order(const char *a, const char *b) {
    return strverscmp(a, b);
}

static const char *joined(struct arena *a, const struct json *list) {
    cleanup_buf struct buf b = {0};
    for (uint32_t i = 0; list && list->type == JSON_ARRAY && i < list->len; i++)
        if (list->items[i].type == JSON_STRING)
            buf_addf(&b, "%s%s", b.len ? "," : "", list->items[i].s);
    return b.len ? arena_strdup(a, buf_str(&b)) : NULL;
}

// A model as GRES name it: a word without the signs that part them.
const char *slurm_gres_model(struct arena *a, const char *model) {
    char *word = arena_strdup(a, model ? model : "");
    for (char *p = word; *p; p++)
        if (*p == ' ' || *p == ',' || *p == ':')
            *p = '_';
    return word;
}

// "gpu:a100:4,gpu:v100:2": one part per model, in the order of the devices.
static const char *gres_of(struct arena *a, const struct json *gpus, uint32_t used_milli, bool used) {
    cleanup_buf struct buf b = {0};
    char text[GPU_TEXT_MAX];
    if (!gpus || gpus->type != JSON_ARRAY || !gpus->len)
        return NULL;
    for (uint32_t i = 0; i < gpus->len; i++) {
        const char *model = json_str(&gpus->items[i], "model");
        uint32_t same = 0, before = 0;
        for (uint32_t k = 0; k < gpus->len; k++)
            if (streq(json_str(&gpus->items[k], "model"), model)) {
                same++;
                before += k < i;
            }
        if (before)
            continue;
        const char *name = slurm_gres_model(a, model);
        if (used && same == gpus->len)
            return arena_printf(a, "gpu:%s%s%s", name, *name ? ":" : "", gpu_milli_format(used_milli, text));
        buf_addf(&b, "%sgpu:%s%s%u", b.len ? "," : "", name, *name ? ":" : "", same);
    }
    if (used)  // of which model is not told
        return arena_printf(a, "gpu:%s", gpu_milli_format(used_milli, text));
    return arena_strdup(a, buf_str(&b));
}

static void read_node(struct arena *a, const struct json *j, struct snode *n) {
    const char *state = json_str(j, "state");
    *n = (struct snode){.name = json_str(j, "name"),
                        .reason = json_str(j, "reason"),
                        .by = json_str(j, "by"),
                        .version = json_str(j, "version"),
                        .address = json_str(j, "address"),
                        .os = json_str(j, "os"),
                        .arch = json_str(j, "arch"),
                        .state = SNODE_DOWN,
                        .partitions = json_get(j, "partitions"),
                        .reason_ms = json_i64(j, "reason_ms", 0),
                        .busy_ms = json_i64(j, "busy_ms", 0),
                        .memory_bytes = (uint64_t)json_i64(j, "memory_bytes", 0),
                        .memory_used_bytes = (uint64_t)json_i64(j, "memory_used_bytes", 0),
                        .tmp_bytes = (uint64_t)json_i64(j, "tmp_bytes", 0),
                        .cpus = (uint32_t)json_i64(j, "cpus", 0),
                        .cpus_used = (uint32_t)json_i64(j, "cpus_used", 0),
                        .sockets = (uint32_t)json_i64(j, "sockets", 1),
                        .cores = (uint32_t)json_i64(j, "cores_per_socket", 1),
                        .threads = (uint32_t)json_i64(j, "threads_per_core", 1),
                        .jobs = (uint32_t)json_i64(j, "jobs", 0),
                        .gpus_milli = (uint32_t)json_i64(j, "gpus_milli", 0),
                        .gpus_used_milli = (uint32_t)json_i64(j, "gpus_used_milli", 0),
                        .load_milli = (uint32_t)json_i64(j, "load_milli", 0),
                        .boot_ms = json_i64(j, "boot_ms", 0),
                        .agent_start_ms = json_i64(j, "agent_start_ms", 0)};
    for (int i = 0; i < SNODE_STATE_COUNT; i++)
        if (streq(states[i].api, state))
            n->state = (enum snode_state)i;
    n->silent = n->state == SNODE_LOST;
    if (streq(n->address, "unix"))  // on the controller's own machine
        n->address = n->name;
    int64_t in_use = json_i64(j, "memory_in_use_bytes", 0);
    n->free_bytes = in_use > 0 && (uint64_t)in_use < n->memory_bytes ? n->memory_bytes - (uint64_t)in_use
                                                                     : n->memory_bytes;
    n->features = joined(a, json_get(j, "features"));
    n->gres = gres_of(a, json_get(j, "gpus"), 0, false);
    n->gres_used = gres_of(a, json_get(j, "gpus"), n->gpus_used_milli, true);
    if (!n->sockets)
        n->sockets = 1;
    if (!n->threads)
        n->threads = 1;
    if (!n->cores)
        n->cores = n->cpus / n->sockets / n->threads;
}

static int by_name(const void *a, const void *b) {
    return slurm_name_order(((const struct snode *)a)->name, ((const struct snode *)b)->name);
}

const char *slurm_partition_state(const struct spartition *p) {
    return p->p.down && p->p.closed ? "inactive" : p->p.closed ? "drain" : p->p.down ? "down" : "up";
}

bool slurm_node_in(const struct snode *n, const char *partition) {
    for (uint32_t i = 0; n->partitions && i < n->partitions->len; i++)
        if (n->partitions->items[i].type == JSON_STRING && streq(n->partitions->items[i].s, partition))
            return true;
    return false;
}

static void sum_partition(struct arena *a, const struct cluster_view *c, struct spartition *p) {
    VEC(const char *) names = {0};
    cleanup_buf struct buf b = {0};
    for (uint32_t i = 0; i < c->nodes.len; i++) {
        const struct snode *n = &c->nodes.at[i];
        if (!slurm_node_in(n, p->p.name))
            continue;
        vec_push(&names, n->name);
        p->nodes++;
        p->cpus += n->cpus;
        p->memory_bytes += n->memory_bytes;
        p->gpus_milli += n->gpus_milli;
    }
    nodelist_fold(names.at, names.len, &b);
    p->node_list = arena_strdup(a, buf_str(&b));
    vec_done(&names);
}

int slurm_cluster_fetch(struct slurm *s, struct cluster_view *out) {
    struct reply nodes, partitions;
    *out = (struct cluster_view){0};
    if (slurm_get(s, "/v1/nodes", &nodes) || slurm_get(s, "/v1/partitions", &partitions))
        return SLURM_FAILED;
    const struct json *list = json_get(nodes.json, "nodes");
    for (uint32_t i = 0; list && i < list->len; i++) {
        struct snode n;
        read_node(&s->cli.arena, &list->items[i], &n);
        if (n.name)
            vec_push(&out->nodes, n);
    }
    if (out->nodes.len)
        qsort(out->nodes.at, out->nodes.len, sizeof *out->nodes.at, by_name);
    list = json_get(partitions.json, "partitions");
    for (uint32_t i = 0; list && i < list->len; i++) {
        struct spartition p = {0};
        if (schema_read_json(&entity_partition_schema, &list->items[i], &s->cli.arena, &p.p, NULL) < 0)
            continue;
        sum_partition(&s->cli.arena, out, &p);
        vec_push(&out->partitions, p);
    }
    return 0;
}

void slurm_cluster_done(struct cluster_view *c) {
    vec_done(&c->nodes);
    vec_done(&c->partitions);
}
