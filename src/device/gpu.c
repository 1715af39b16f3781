// What all sources share.
#include "device/gpu.h"

#include <stdio.h>
#include <string.h>

struct gpu_source *gpu_source_free(struct gpu_source *s) {
    if (s)
        s->ops->free(s);
    return NULL;
}

void gpu_nodes(const struct gpu *g, struct gpu_nodes *out) {
    *out = (struct gpu_nodes){0};
    const char *p = g->simulated || !g->minor_path ? "" : g->minor_path;
    while (*p && out->count < GPU_NODES_MAX) {
        size_t n = strcspn(p, ",");
        if (n && n < sizeof out->paths[0]) {
            memcpy(out->paths[out->count], p, n);
            out->paths[out->count++][n] = 0;
        }
        p += n + (p[n] == ',');
    }
}

void gpu_common_nodes(struct gpu_nodes *out) {
    static const char *const paths[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                        "/dev/nvidia-modeset"};
    *out = (struct gpu_nodes){0};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        snprintf(out->paths[out->count++], sizeof out->paths[0], "%s", paths[i]);
}
