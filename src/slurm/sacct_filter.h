// Which jobs sacct is asked for: filters, and the window of time as Slurm means it.
#pragma once
#include "job_row.h"
#include "option.h"

struct acct_range {
    bool given;
    uint32_t low, high;
};

struct acct_wanted {
    const char *ids, *users, *accounts, *names, *partitions, *qos, *nodes, *features;
    bool nobody;                // a filter that nothing here can match
    bool by_group;
    uint32_t gid;
    struct acct_range node_count, cpus, limit_s;
    uint32_t states;            // bit per state
    bool by_state;              // states were named: the window is about them
    bool truncate;
    int64_t from_s, to_s;       // the window; what begins at its end is outside
    int64_t now_s;
};

// 0, or the exit status with the error printed.
int sacct_wanted_read(struct slurm *s, const struct opts *o, const char *ids, struct acct_wanted *out);
bool sacct_wanted_has(const struct acct_wanted *w, const struct sjob *j);
// What the controller can leave out is not sent; sacct_wanted_has has the last word.
struct job_query sacct_wanted_query(struct slurm *s, const struct acct_wanted *w, const char *fields,
                                    bool elements);
// Fields besides those that are shown.
const char *sacct_wanted_fields(struct arena *a, const struct acct_wanted *w, const char *fields);
// With -T: start and end within the window.
void sacct_wanted_cut(const struct acct_wanted *w, struct sjob *j);
