// Owns the table of metrics and its form in the documentation.
#include "metrics/table.h"

#include <assert.h>

static const struct metric_info infos[METRIC_COUNT] = {
#define METRIC_ROW(id, where_, type_, name_, unit_, labels_, help_)                                           \
    [M_##id] = {.name = name_, .type = METRIC_##type_, .where = METRIC_##where_, .unit = unit_, .labels = labels_, \
                .help = help_},
    METRICS_ALL(METRIC_ROW)
#undef METRIC_ROW
};

const struct metric_info *metric_info(enum metric_id id) {
    assert(id < METRIC_COUNT);
    return &infos[id];
}

static const char *type_text(enum metric_type t) {
    static const char *const texts[] = {"gauge", "counter", "histogram", "info", "unknown"};
    return texts[t];
}

static const char *where_text(enum metric_where w) {
    return w == METRIC_CONTROLLER ? "controller" : w == METRIC_AGENT ? "agent" : "both";
}

static const char *suffix_text(enum metric_type t) {
    return t == METRIC_COUNTER ? "_total" : t == METRIC_INFO ? "_info" : "";
}

void metrics_reference_markdown(struct buf *out) {
    static const struct {
        enum metric_id first;
        const char *title;
    } groups[] = {
        {M_BUILD, "The daemons"},      {M_JOBS, "Jobs"},           {M_NODES, "Nodes"},
        {M_PASS, "Controller"},        {M_GPU_HEALTHY, "GPUs and jobs on GPUs"},
        {M_DCGM_SM_CLOCK, "GPUs, with the names of NVIDIA's DCGM exporter"},
        {M_SLURM_NODES_ALLOC, "The names of Slurm exporters"},
    };
    size_t group = 0;
    for (int id = 0; id < METRIC_COUNT; id++) {
        if (group < sizeof groups / sizeof *groups && groups[group].first == (enum metric_id)id) {
            buf_addf(out, "%s### %s\n\n| name | type | on | labels | meaning |\n| --- | --- | --- | --- | --- |\n",
                     id ? "\n" : "", groups[group].title);
            group++;
        }
        const struct metric_info *m = &infos[id];
        buf_addf(out, "| `%s%s` | %s | %s | %s | %s |\n", m->name, suffix_text(m->type), type_text(m->type),
                 where_text(m->where), m->labels, m->help);
    }
    assert(group == sizeof groups / sizeof *groups);
}
