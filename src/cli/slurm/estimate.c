// Owns the answer of --test-only.
#include "cli/slurm/estimate.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/slurm/job_args.h"
#include "cli/slurm/nodes.h"
#include "model/name.h"

// Where it may start: what it asks for, else the nodes of its partition, of several the first.
static const char *place_of(struct slurm *s, const struct spec *spec, const char **partition) {
    struct cluster_view v;
    const char *nodes = NULL;
    const char *rest = spec->partition, *first;
    size_t len;
    *partition = (first = names_next(&rest, &len)) ? arena_strndup(&s->cli.arena, first, len) : NULL;
    const char *name = *partition;
    if (cluster_fetch(s, &v))
        return NULL;
    for (uint32_t i = 0; i < v.partitions.len; i++) {
        const struct spartition *p = &v.partitions.at[i];
        if (name ? streq(p->p.name, name) : p->p.is_default) {
            *partition = arena_strdup(&s->cli.arena, p->p.name);
            nodes = p->node_list ? arena_strdup(&s->cli.arena, p->node_list) : NULL;
        }
    }
    cluster_done(&v);
    return spec->nodes ? spec->nodes : nodes;
}

int estimate_show(struct slurm *s, const struct spec *spec) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply r;
    char at[UNIT_TEXT_MAX];
    const char *partition;
    json_open(&w, '{');
    json_key(&w, "spec");
    schema_write_json(&spec_schema, spec, &w);
    json_close(&w, '}');
    if (!slurm_client(s))
        return SLURM_FAILED;
    if (client_call(s->client, "POST", "/v1/when", &body, &r) < 0) {
        fprintf(stderr, "allocation failure: %s\n", submit_error_text(s, spec));
        return SLURM_FAILED;
    }
    const struct json *variants = json_get(r.json, "variants");
    const struct json *start = variants && variants->len ? json_get(&variants->items[0], "start") : NULL;
    // What cannot be foreseen has no time: jobs in its way have no limit.
    int64_t late = start ? json_i64(start, "late_ms", 0) : 0;
    const char *nodes = place_of(s, spec, &partition);
    uint32_t tasks = spec->tasks ? spec->tasks : 1, each = spec->cpus_per_task ? spec->cpus_per_task : 1;
    fprintf(stderr, "%s: Job %lld to start at %s using %u processors on nodes %s in partition %s\n",
            s->program, (long long)json_i64(r.json, "id", 0), slurm_time(late, "N/A", at), tasks * each,
            nodes ? nodes : "(null)", partition ? partition : "(null)");
    return SLURM_OK;
}
