// What /v1/status and /v1/nodes say of the cluster, in lines for people.
#pragma once
#include "base/json.h"
#include "cli/client/client.h"

struct verb_cluster_totals {
    int64_t nodes, nodes_down, cpus, cpus_used, gpus_milli, gpus_used_milli;
    uint64_t memory_bytes, memory_used_bytes;
};
void verb_cluster_totals(const struct json *nodes, struct verb_cluster_totals *out);
void verb_cluster_status_lines(struct cli *c, const struct json *status, const struct json *nodes,
                               struct buf *out);
void verb_cluster_bar(struct buf *out, double share, int width, bool colour);  // "[#####.....]"
