// sinfo: partitions and nodes. Nodes of a partition that look the same in the columns asked for
// share a line; numbers that differ within it are shown as the least with a '+'.
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "columns.h"
#include "job_row.h"
#include "node_row.h"
#include "json.h"
#include "option.h"
#include "model/nodelist.h"

static const struct opt table[] = {
    {"all", 'a', OPT_FLAG, OPT_HARMLESS, "ALL", "no partition is hidden", 0},
    {"clusters", 'M', OPT_VALUE, OPT_DOES, "CLUSTERS", NULL, 0},
    {"dead", 'd', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"exact", 'e', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"federation", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"format", 'o', OPT_VALUE, OPT_DOES, "FORMAT", NULL, 0},
    {"Format", 'O', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"help", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"hide", 0, OPT_FLAG, OPT_HARMLESS, NULL, "no partition is hidden", 0},
    {"iterate", 'i', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"json", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"list-reasons", 'R', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"local", 0, OPT_FLAG, OPT_HARMLESS, NULL, "there is one cluster", 0},
    {"long", 'l', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"noconvert", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"Node", 'N', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"noheader", 'h', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"nodes", 'n', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"partition", 'p', OPT_VALUE, OPT_DOES, "PARTITION", NULL, 0},
    {"reservation", 'T', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"responding", 'r', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"sort", 'S', OPT_VALUE, OPT_DOES, "SORT", NULL, 0},
    {"states", 't', OPT_VALUE, OPT_DOES, NULL, NULL, 0},
    {"summarize", 's', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"usage", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"verbose", 'v', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
    {"version", 'V', OPT_FLAG, OPT_DOES, NULL, NULL, 0},
};

struct sinfo_line {
    const struct spartition *partition;  // NULL: over all partitions
    VEC(const struct snode *) nodes;
};

#define PUT(fn) static void put_##fn(const void *row, struct buf *out)
#define LINE const struct sinfo_line *l = row
#define FIRST (l->nodes.len ? l->nodes.at[0] : NULL)

// The least, with a '+' when others have more.
#define PUT_LEAST(fn, expression)                                       \
    PUT(fn) {                                                           \
        LINE;                                                           \
        uint64_t least = UINT64_MAX, most = 0;                          \
        for (uint32_t i = 0; i < l->nodes.len; i++) {                   \
            const struct snode *n = l->nodes.at[i];                     \
            uint64_t v = (uint64_t)(expression);                        \
            least = v < least ? v : least;                              \
            most = v > most ? v : most;                                 \
        }                                                               \
        buf_addu(out, l->nodes.len ? least : 0);                        \
        if (most > least && l->nodes.len)                               \
            buf_addc(out, '+');                                         \
    }
PUT_LEAST(cpus, n->cpus)
PUT_LEAST(memory, n->memory_bytes >> 20)
PUT_LEAST(tmp, 0 * n->cpus)
PUT_LEAST(free, n->free_bytes >> 20)
PUT_LEAST(sockets, n->sockets)
PUT_LEAST(cores, n->cores)
PUT_LEAST(threads, n->threads)
PUT_LEAST(alloc_memory, n->memory_used_bytes >> 20)

PUT(partition) {
    LINE;
    if (l->partition)
        buf_addf(out, "%s%s", l->partition->p.name, l->partition->p.is_default ? "*" : "");
}
PUT(partition_name) { LINE; buf_adds(out, l->partition ? l->partition->p.name : ""); }
PUT(avail) { LINE; buf_adds(out, l->partition ? slurm_partition_state(l->partition) : "up"); }
static const char *partition_time(const struct spartition *p, bool most, const char *none,
                                  char out[static UNIT_TEXT_MAX]) {
    const uint32_t *limit = p ? most ? &p->p.max_time_s : &p->p.default_time_s : NULL;
    return limit && entity_has(ENTITY_PARTITION, &p->p, limit) ? duration_elapsed_format(*limit, out) : none;
}
PUT(limit) {
    LINE;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, partition_time(l->partition, true, "infinite", t));
}
PUT(default_time) {
    LINE;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, partition_time(l->partition, false, "n/a", t));
}
PUT(tier) { LINE; buf_addu(out, l->partition && l->partition->p.tier ? l->partition->p.tier : 1); }
PUT(count) { LINE; buf_addu(out, l->nodes.len); }
PUT(list) {
    LINE;
    VEC(const char *) names = {0};
    for (uint32_t i = 0; i < l->nodes.len; i++)
        vec_push(&names, l->nodes.at[i]->name);
    nodelist_fold(names.at, names.len, out);
    vec_done(&names);
}
PUT(address) {
    LINE;
    for (uint32_t i = 0; i < l->nodes.len; i++)
        buf_addf(out, "%s%s", i ? "," : "", l->nodes.at[i]->address ? l->nodes.at[i]->address : l->nodes.at[i]->name);
}
PUT(state) {
    LINE;
    buf_adds(out, FIRST ? slurm_node_long(FIRST) : "n/a");
}
PUT(state_short) {
    LINE;
    buf_adds(out, FIRST ? slurm_node_short(FIRST) : "n/a");
}
// The state that is underneath, and what is on top of it.
PUT(state_complete) {
    LINE;
    if (FIRST && FIRST->state == SNODE_DRAINED)
        buf_adds(out, "idle+drain");
    else if (FIRST && FIRST->state == SNODE_DRAINING)
        buf_adds(out, FIRST->cpus_used < FIRST->cpus ? "mixed+drain" : "allocated+drain");
    else
        put_state(row, out);
}
PUT(features) { LINE; buf_adds(out, FIRST && FIRST->features ? FIRST->features : "(null)"); }
PUT(gres) { LINE; buf_adds(out, FIRST && FIRST->gres ? FIRST->gres : "(null)"); }
PUT(gres_used) { LINE; buf_adds(out, FIRST && FIRST->gres_used ? FIRST->gres_used : "(null)"); }
PUT(reason) { LINE; buf_adds(out, FIRST && !str_empty(FIRST->reason) ? FIRST->reason : "none"); }
PUT(reason_user) { LINE; buf_adds(out, FIRST && !str_empty(FIRST->by) ? FIRST->by : "Unknown"); }
PUT(reason_user_long) {
    LINE;
    struct passwd *pw = FIRST && !str_empty(FIRST->by) ? getpwnam(FIRST->by) : NULL;
    put_reason_user(row, out);
    if (pw)
        buf_addf(out, "(%u)", (unsigned)pw->pw_uid);
}
PUT(reason_time) {
    LINE;
    char t[UNIT_TEXT_MAX];
    buf_adds(out, slurm_time(FIRST && !str_empty(FIRST->reason) ? FIRST->reason_ms : 0, "Unknown", t));
}
PUT(version) { LINE; buf_adds(out, FIRST && FIRST->version ? FIRST->version : "N/A"); }
PUT(load) { LINE; buf_addf(out, "%.2f", FIRST ? FIRST->load_milli / 1000.0 : 0.0); }
PUT(sct) {
    LINE;
    if (FIRST)
        buf_addf(out, "%u:%u:%u", FIRST->sockets, FIRST->cores, FIRST->threads);
}
static void node_counts(const struct sinfo_line *l, uint32_t n[4]) {
    for (uint32_t i = 0; i < l->nodes.len; i++) {
        const struct snode *node = l->nodes.at[i];
        bool works = slurm_node_usable(node) || node->state == SNODE_DRAINING;  // jobs still run on it
        int which = !works ? 2 : node->state == SNODE_IDLE ? 1 : 0;
        n[which]++;
        n[3]++;
    }
}
PUT(nodes_ai) {
    LINE;
    uint32_t n[4] = {0};
    node_counts(l, n);
    buf_addf(out, "%u/%u", n[0], n[1]);
}
PUT(nodes_aiot) {
    LINE;
    uint32_t n[4] = {0};
    node_counts(l, n);
    buf_addf(out, "%u/%u/%u/%u", n[0], n[1], n[2], n[3]);
}
PUT(cpus_aiot) {
    LINE;
    uint64_t used = 0, idle = 0, other = 0;
    for (uint32_t i = 0; i < l->nodes.len; i++) {
        const struct snode *n = l->nodes.at[i];
        uint32_t rest = n->cpus > n->cpus_used ? n->cpus - n->cpus_used : 0;
        used += n->cpus_used;
        if (slurm_node_usable(n))
            idle += rest;
        else
            other += rest;
    }
    buf_addf(out, "%llu/%llu/%llu/%llu", (unsigned long long)used, (unsigned long long)idle, (unsigned long long)other,
             (unsigned long long)(used + idle + other));
}
PUT(one) { buf_adds(out, "1"); }
PUT(no) { buf_adds(out, "no"); }
PUT(NO) { buf_adds(out, "NO"); }
PUT(all) { buf_adds(out, "all"); }
PUT(off) { buf_adds(out, "OFF"); }
PUT(size) { buf_adds(out, "1-infinite"); }
PUT(unlimited) { buf_adds(out, "UNLIMITED"); }
PUT(na) { buf_adds(out, "N/A"); }
PUT(null) { buf_adds(out, "(null)"); }

static const struct column columns_table[] = {
    {'a', "available", "AVAIL", "", put_avail},
    {'A', "nodeai", "NODES(A/I)", "", put_nodes_ai},
    {'b', "features_act", "ACTIVE_FEATURES", "f", put_features},
    {'B', "maxcpuspernode", "MAX_CPUS_PER_NODE", "", put_unlimited},
    {'c', "cpus", "CPUS", "", put_cpus},
    {'C', "cpusstate", "CPUS(A/I/O/T)", "", put_cpus_aiot},
    {'d', "disk", "TMP_DISK", "", put_tmp},
    {'D', "nodes", "NODES", "", put_count},
    {'e', "freemem", "FREE_MEM", "", put_free},
    {'E', "reason", "REASON", "r", put_reason},
    {'f', "features", "AVAIL_FEATURES", "f", put_features},
    {'F', "nodeaiot", "NODES(A/I/O/T)", "", put_nodes_aiot},
    {'g', "groups", "GROUPS", "", put_all},
    {'G', "gres", "GRES", "g", put_gres},
    {'h', "oversubscribe", "OVERSUBSCRIBE", "", put_NO},
    {'H', "timestamp", "TIMESTAMP", "r", put_reason_time},
    {'I', "priorityjobfactor", "PRIO_JOB_FACTOR", "", put_one},
    {'l', "time", "TIMELIMIT", "", put_limit},
    {'L', "defaulttime", "DEFAULTTIME", "", put_default_time},
    {'m', "memory", "MEMORY", "", put_memory},
    {'M', "preemptmode", "PREEMPT_MODE", "", put_off},
    {'n', "nodehost", "HOSTNAMES", "n", put_list},
    {'N', "nodelist", "NODELIST", "", put_list},
    {'o', "nodeaddr", "NODE_ADDR", "n", put_address},
    {'O', "cpusload", "CPU_LOAD", "n", put_load},
    {'p', "prioritytier", "PRIO_TIER", "p", put_tier},
    {'P', "partition", "PARTITION", "p", put_partition},
    {'r', "root", "ROOT", "", put_no},
    {'R', "partitionname", "PARTITION", "p", put_partition_name},
    {'s', "size", "JOB_SIZE", "", put_size},
    {'S', "allocnodes", "ALLOCNODES", "", put_all},
    {'t', "statecompact", "STATE", "t", put_state_short},
    {'T', "statelong", "STATE", "t", put_state},
    {'u', "user", "USER", "r", put_reason_user},
    {'U', "userlong", "USER", "r", put_reason_user_long},
    {'v', "version", "VERSION", "v", put_version},
    {'V', "cluster", "CLUSTER", "", put_na},
    {'w', "weight", "WEIGHT", "", put_one},
    {'X', "sockets", "SOCKETS", "", put_sockets},
    {'Y', "cores", "CORES", "", put_cores},
    {'Z', "threads", "THREADS", "", put_threads},
    {'z', "socketcorethread", "S:C:T", "s", put_sct},
    {0, "allocmem", "ALLOCMEM", "a", put_alloc_memory},
    {0, "gresused", "GRES_USED", "u", put_gres_used},
    {0, "port", "PORT", "", put_na},
    {0, "statecomplete", "STATECOMPLETE", "t", put_state_complete},
    {0, "comment", "COMMENT", "", put_null},
    {0, "extra", "EXTRA", "", put_null},
    {0, "host", "HOST", "n", put_list},
};
enum { COLUMN_COUNT = sizeof columns_table / sizeof *columns_table };

// The texts of the columns that tell nodes apart; nodes with the same ones share a line.
static void group_key(const struct columns *c, const struct sinfo_line *l, bool single, struct buf *out) {
    buf_clear(out);
    for (uint32_t i = 0; i < c->at.len; i++)
        if (*c->at.at[i].column->fields && *c->at.at[i].column->fields != 'p') {
            c->at.at[i].column->put(l, out);
            buf_addc(out, 1);
        }
    if (single && l->nodes.len)
        buf_adds(out, l->nodes.at[0]->name);
}

static bool uses_partitions(const struct columns *c) {
    for (uint32_t i = 0; i < c->at.len; i++)
        if (strchr("aBghIlLMpPrRsS", c->at.at[i].column->letter ? c->at.at[i].column->letter : '~'))
            return true;
    return false;
}

struct sinfo_listing {
    struct slurm *s;
    const struct opts *o;
    struct columns columns;
    const char *states;
    struct name_list names;
    VEC(struct sinfo_line) lines;
    bool single;
};

static bool wanted(struct sinfo_listing *l, const struct snode *n) {
    bool named = !slurm_opt_get(l->o, "nodes");
    for (uint32_t i = 0; i < l->names.len && !named; i++)
        named = streq(l->names.at[i], n->name);
    bool dead = n->state == SNODE_DOWN || n->state == SNODE_LOST;
    if (!named || (slurm_opt_given(l->o, "dead") && !dead) || (slurm_opt_given(l->o, "responding") && dead))
        return false;
    if (slurm_opt_given(l->o, "list-reasons") && str_empty(n->reason))
        return false;
    return !l->states || slurm_node_states_match(l->states, n);
}

static void add_node(struct sinfo_listing *l, uint32_t from, const struct spartition *p, const struct snode *n) {
    cleanup_buf struct buf mine = {0}, other = {0};
    struct sinfo_line line = {.partition = p};
    vec_push(&line.nodes, n);
    group_key(&l->columns, &line, l->single, &mine);
    for (uint32_t i = from; i < l->lines.len; i++) {
        group_key(&l->columns, &l->lines.at[i], l->single, &other);
        if (streq(buf_str(&mine), buf_str(&other))) {
            vec_push(&l->lines.at[i].nodes, n);
            vec_done(&line.nodes);
            return;
        }
    }
    vec_push(&l->lines, line);
}

static void add_partition(struct sinfo_listing *l, const struct cluster_view *c, const struct spartition *p) {
    uint32_t from = l->lines.len;
    // Lines of a partition come in the order of states, busy ones first, as nodes are in order of name.
    static const enum snode_state order[] = {SNODE_LOST,    SNODE_DOWN,      SNODE_DRAINING,
                                             SNODE_DRAINED, SNODE_MAINT,     SNODE_COMPLETING,
                                             SNODE_MIXED,   SNODE_ALLOCATED, SNODE_IDLE};
    bool by_name = l->single || slurm_opt_get(l->o, "sort");
    for (size_t k = 0; k < (by_name ? 1 : sizeof order / sizeof *order); k++)
        for (uint32_t i = 0; i < c->nodes.len; i++) {
            const struct snode *n = &c->nodes.at[i];
            if ((by_name || n->state == order[k]) && (!p || slurm_node_in(n, p->p.name)) && wanted(l, n))
                add_node(l, from, p, n);
        }
    if (l->lines.len == from && p && !slurm_opt_get(l->o, "nodes") &&
        !slurm_opt_given(l->o, "list-reasons") && !l->single) {
        struct sinfo_line empty = {.partition = p};
        vec_push(&l->lines, empty);
    }
}

static int state_rank(const struct sinfo_line *l) {
    static const int ranks[] = {[SNODE_IDLE] = 0,       [SNODE_ALLOCATED] = 1, [SNODE_MIXED] = 2,
                                [SNODE_COMPLETING] = 3, [SNODE_MAINT] = 4,     [SNODE_DRAINED] = 5,
                                [SNODE_DRAINING] = 6,   [SNODE_DOWN] = 7,      [SNODE_LOST] = 8};
    return l->nodes.len ? ranks[l->nodes.at[0]->state] : -1;
}

static int compare_by(const struct sinfo_line *a, const struct sinfo_line *b, int key) {
    const struct snode *m = a->nodes.len ? a->nodes.at[0] : NULL, *n = b->nodes.len ? b->nodes.at[0] : NULL;
    switch (key) {
    case 'P':
    case 'R': return a->partition && b->partition ? strcmp(a->partition->p.name, b->partition->p.name) : 0;
    case 't':
    case 'T': return state_rank(a) - state_rank(b);
    case 'D': return a->nodes.len < b->nodes.len ? -1 : a->nodes.len > b->nodes.len;
    case 'n':
    case 'N': return m && n ? slurm_name_order(m->name, n->name) : !m - !n;
    case 'c': return m && n ? (m->cpus > n->cpus) - (m->cpus < n->cpus) : 0;
    case 'm': return m && n ? (m->memory_bytes > n->memory_bytes) - (m->memory_bytes < n->memory_bytes) : 0;
    case 'O': return m && n ? (m->load_milli > n->load_milli) - (m->load_milli < n->load_milli) : 0;
    case 'e': return m && n ? (m->free_bytes > n->free_bytes) - (m->free_bytes < n->free_bytes) : 0;
    case 'H': return m && n ? (m->reason_ms > n->reason_ms) - (m->reason_ms < n->reason_ms) : 0;
    case 'E': return m && n ? strcmp(m->reason ? m->reason : "", n->reason ? n->reason : "") : 0;
    case 'u': return m && n ? strcmp(m->by ? m->by : "", n->by ? n->by : "") : 0;
    default: return 0;  // the same for all
    }
}

static bool comes_after(const struct sinfo_line *a, const struct sinfo_line *b, const char *by) {
    for (const char *p = by; *p; p++) {
        bool down = *p == '-', listed = *p == '#';  // '#': in the order of the partitions, as the lines are
        if (strchr("+-#", *p) && !*++p)
            break;
        int d = listed ? 0 : compare_by(a, b, *p);
        if (d)
            return down ? d < 0 : d > 0;
    }
    return false;
}

// Few lines, and those that are equal stay as they were.
static void sort_lines(struct sinfo_listing *l) {
    const char *by = slurm_opt_get(l->o, "sort");
    for (uint32_t i = 1; by && i < l->lines.len; i++) {
        struct sinfo_line moved = l->lines.at[i];
        uint32_t k = i;
        for (; k && comes_after(&l->lines.at[k - 1], &moved, by); k--)
            l->lines.at[k] = l->lines.at[k - 1];
        l->lines.at[k] = moved;
    }
}

static const char *format_of(const struct opts *o) {
    if (slurm_opt_get(o, "format"))
        return slurm_opt_get(o, "format");
    bool wide = slurm_opt_given(o, "long");
    if (slurm_opt_given(o, "summarize"))
        return "%9P %.5a %.10l %.16F %N";
    if (slurm_opt_given(o, "list-reasons"))
        return wide ? "%20E %12U %19H %6t %N" : "%20E %9u %19H %N";
    if (slurm_opt_given(o, "Node"))
        return wide ? "%N %.5D %.9P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E" : "%N %.5D %.9P %6t";
    return wide ? "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N" : "%9P %.5a %.10l %.6D %.6t %N";
}

// With -N the first column is as wide as the longest name, at least ten.
static void widen_names(struct sinfo_listing *l, const struct cluster_view *c) {
    if (!l->single || slurm_opt_get(l->o, "format") || slurm_opt_get(l->o, "Format"))
        return;
    int width = 10;
    for (uint32_t i = 0; i < c->nodes.len; i++)
        width = (int)strlen(c->nodes.at[i].name) > width ? (int)strlen(c->nodes.at[i].name) : width;
    l->columns.at.at[0].width = width;
}

static int list_reservations(struct slurm *s, bool heading) {
    struct reply r;
    cleanup_buf struct buf out = {0};
    if (slurm_get(s, "/v1/reservations", &r))
        return SLURM_FAILED;
    const struct json *list = json_get(r.json, "reservations");
    if (!list || !list->len) {
        printf("No reservations in the system\n");
        return SLURM_OK;
    }
    if (heading)
        buf_addf(&out, "%-11s %8s %19s %19s %11s  %s\n", "RESV_NAME", "STATE", "START_TIME", "END_TIME",
                 "DURATION", "NODELIST");
    for (uint32_t i = 0; i < list->len; i++) {
        const struct json *j = &list->items[i];
        int64_t from = json_i64(j, "start_ms", 0), to = json_i64(j, "end_ms", 0), now = (int64_t)time(NULL) * 1000;
        char a[UNIT_TEXT_MAX], b[UNIT_TEXT_MAX], d[UNIT_TEXT_MAX];
        buf_addf(&out, "%-11s %8s %19s %19s %11s  %s\n", json_str(j, "name"),
                 from <= now && now < to ? "ACTIVE" : "INACTIVE", slurm_time(from, "N/A", a),
                 slurm_time(to, "N/A", b), duration_elapsed_format_full((to - from) / 1000, d),
                 json_str(j, "nodes"));
    }
    return cli_print(&out);
}

static int print_json(struct slurm *s) {
    struct cluster_view c;
    cleanup_buf struct buf out = {0};
    struct json_writer w = {.out = &out};
    if (slurm_cluster_fetch(s, &c))
        return SLURM_FAILED;
    slurm_json_open(&w, "openapi/v0.0.38", "nodes");
    for (uint32_t i = 0; i < c.nodes.len; i++)
        slurm_node_json(&c.nodes.at[i], &w);
    slurm_json_close(&w);
    slurm_cluster_done(&c);
    return cli_print(&out);
}

static int show(struct slurm *s, const struct opts *o) {
    struct sinfo_listing l = {
        .s = s, .o = o, .states = slurm_opt_get(o, "states"), .single = slurm_opt_given(o, "Node")};
    struct cluster_view c;
    cleanup_buf struct buf out = {0};
    if (slurm_opt_get(o, "nodes") &&
        nodelist_expand(slurm_opt_get(o, "nodes"), &s->cli.arena, &l.names, &s->cli.error) < 0) {
        slurm_error(s, "%s", s->cli.error.text);
        return SLURM_FAILED;
    }
    if (slurm_cluster_fetch(s, &c))
        return SLURM_FAILED;
    if (slurm_opt_get(o, "Format") &&
        (!slurm_opt_get(o, "format") || streq(slurm_opt_get(o, "format"), getenv("SINFO_FORMAT"))))
        slurm_columns_by_names(s, columns_table, COLUMN_COUNT, slurm_opt_get(o, "Format"), "job", &l.columns);
    else
        slurm_columns_by_letters(s, columns_table, COLUMN_COUNT, format_of(o), "node", &l.columns);
    widen_names(&l, &c);
    if (uses_partitions(&l.columns)) {
        for (uint32_t i = 0; i < c.partitions.len; i++)
            if (slurm_list_has(slurm_opt_get(o, "partition"), c.partitions.at[i].p.name))
                add_partition(&l, &c, &c.partitions.at[i]);
    } else if (!slurm_opt_get(o, "partition")) {
        add_partition(&l, &c, NULL);
    } else {
        for (uint32_t i = 0; i < c.partitions.len; i++)
            if (slurm_list_has(slurm_opt_get(o, "partition"), c.partitions.at[i].p.name))
                add_partition(&l, &c, &c.partitions.at[i]);
    }
    sort_lines(&l);
    if (!slurm_opt_given(o, "noheader"))
        slurm_columns_head(s, slurm_opt_given(o, "long"), &l.columns, &out);
    for (uint32_t i = 0; i < l.lines.len; i++) {
        slurm_columns_row(&l.columns, &l.lines.at[i], &out);
        vec_done(&l.lines.at[i].nodes);
    }
    vec_done(&l.lines);
    slurm_columns_done(&l.columns);
    slurm_cluster_done(&c);
    return cli_print(&out);
}

int sinfo_run(struct slurm *s, int argc, char **argv) {
    struct opts o;
    int status;
    uint32_t pause = 0;
    slurm_opts_init(&o, table, sizeof table / sizeof *table, 0);
    if (!slurm_opts_begin(&o, s, argc, argv, "SINFO", "[OPTIONS]", &status))
        return status;
    if (slurm_node_states_check(s, slurm_opt_get(&o, "states")) || slurm_check_clusters(s))
        return SLURM_FAILED;
    if (slurm_opt_given(&o, "json"))
        return print_json(s);
    if (slurm_opt_given(&o, "reservation"))
        return list_reservations(s, !slurm_opt_given(&o, "noheader"));
    if (slurm_opt_get(&o, "iterate") && (parse_u32(slurm_opt_get(&o, "iterate"), &pause) < 0 || !pause)) {
        slurm_error(s, "Error: invalid entry for --iterate=%s", slurm_opt_get(&o, "iterate"));
        return SLURM_FAILED;
    }
    for (;;) {
        status = show(s, &o);
        if (status || !pause)
            return status;
        sleep(pause);
    }
}
