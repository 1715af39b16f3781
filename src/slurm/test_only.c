// Owns the answer of --test-only.
#include "test_only.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "submit_options.h"
#include "job_row.h"
#include "node_row.h"
#include "model/nodelist.h"

enum { SOON_MS = 5000 };
#include "model/name.h"

struct place {
    struct slurm *s;
    const struct spec *spec;
    const char *partition;
    uint32_t cpus;        // that it needs
    bool now;             // it starts at once: only on what is free
    VEC(const char *) names;
    uint32_t found;       // CPUs there
};

static uint32_t room(const struct place *p, const struct snode *n) {
    uint32_t free_milli = n->gpus_milli - (p->now ? n->gpus_used_milli : 0);
    if (p->spec->gpus_per_node_milli > free_milli)
        return 0;
    return n->cpus - (p->now ? n->cpus_used : 0);
}

// In the order in which nodes are filled: what is asked for by name, else the first that have room.
static void choose(struct place *p, const struct cluster_view *v) {
    const struct spec *s = p->spec;
    uint32_t least = s->nodes_min ? s->nodes_min : 1;
    uint32_t each = (p->cpus + least - 1) / least;
    for (uint32_t i = 0; i < v->nodes.len; i++) {
        const struct snode *n = &v->nodes.at[i];
        bool named = s->nodes && slurm_nodes_meet(s->nodes, n->name);
        if (!slurm_node_in(n, p->partition) || (s->exclude && slurm_nodes_meet(s->exclude, n->name)) ||
            (s->nodes && !named))
            continue;
        if (!named && (p->names.len >= least && p->found >= p->cpus))
            break;
        uint32_t free_cpus = slurm_node_usable(n) || !p->now ? room(p, n) : 0;
        if (!named && (!free_cpus || (p->now && least > 1 && free_cpus < each)))
            continue;
        vec_push(&p->names, n->name);
        p->found += least > 1 && free_cpus > each ? each : free_cpus;
    }
}

// The nodes it would use, folded; NULL: none have room.
static const char *place_of(struct slurm *s, const struct spec *spec, uint32_t cpus, bool now, const char **partition) {
    struct cluster_view v;
    cleanup_buf struct buf folded = {0};
    struct place p = {.s = s, .spec = spec, .cpus = cpus, .now = now};
    const char *first = spec->partition ? arena_strndup(&s->cli.arena, spec->partition, strcspn(spec->partition, ","))
                                        : NULL;
    *partition = first;
    if (slurm_cluster_fetch(s, &v))
        return NULL;
    for (uint32_t i = 0; i < v.partitions.len; i++)
        if (first ? streq(v.partitions.at[i].p.name, first) : v.partitions.at[i].p.is_default)
            *partition = p.partition = arena_strdup(&s->cli.arena, v.partitions.at[i].p.name);
    if (p.partition)
        choose(&p, &v);
    nodelist_fold(p.names.at, p.names.len, &folded);
    vec_done(&p.names);
    slurm_cluster_done(&v);
    return folded.len ? arena_strdup(&s->cli.arena, buf_str(&folded)) : NULL;
}

int slurm_test_only(struct slurm *s, const struct spec *spec) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply r;
    char at[UNIT_TEXT_MAX];
    const char *partition;
    json_open(&w, '{');
    json_key(&w, "spec");
    schema_write_given_json(&spec_schema, spec, &w);
    json_close(&w, '}');
    if (!slurm_client(s))
        return SLURM_FAILED;
    if (client_call(s->client, "POST", "/v1/when", &body, &r) < 0) {
        fprintf(stderr, "allocation failure: %s\n", slurm_submit_error_text(s, spec));
        return SLURM_FAILED;
    }
    const struct json *variants = json_get(r.json, "variants");
    const struct json *start = variants && variants->len ? json_get(&variants->items[0], "start") : NULL;
    // What cannot be foreseen has no time: jobs in its way have no limit.
    int64_t late = start ? json_i64(start, "late_ms", 0) : 0;
    uint32_t least = spec->nodes_min ? spec->nodes_min : 1, tasks = spec->tasks > least ? spec->tasks : least;
    uint32_t cpus = tasks * (spec->cpus_per_task ? spec->cpus_per_task : 1);
    const char *nodes = place_of(s, spec, cpus, late && late < clock_wall_ms() + SOON_MS, &partition);
    fprintf(stderr, "%s: Job %lld to start at %s using %u processors on nodes %s in partition %s\n",
            s->program, (long long)json_i64(r.json, "id", 0), slurm_time(late, "N/A", at), cpus,
            nodes ? nodes : "(null)", partition ? partition : "(null)");
    return SLURM_OK;
}
