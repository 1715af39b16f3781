// Where a GPU sits: its NUMA node, the group it is joined with by NVLink, and the device files of a
// MIG instance.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "device/nvml.h"

enum { SMALL_FILE_MAX = 512, PATH_BYTES = 512 };

static int read_small(const char *path, char out[static SMALL_FILE_MAX]) {
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, SMALL_FILE_MAX - 1);
    if (n < 0)
        return -1;
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return 0;
}

int32_t nvml_numa(const struct nvml_source *s, const char *bus_id) {
    char path[PATH_BYTES], text[SMALL_FILE_MAX];
    int64_t node;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/numa_node", s->root, bus_id);
    if (read_small(path, text) < 0 || parse_i64(text, &node) < 0 || node < 0 || node > 65535)
        return 0;
    return (int32_t)node;
}

// "DeviceFileMinor: 12" of one capability; -1: unknown.
static int capability_minor(const struct nvml_source *s, const char *tail, unsigned gpu, unsigned gi, unsigned ci) {
    char path[PATH_BYTES], text[SMALL_FILE_MAX];
    if (streq(tail, "gi"))
        snprintf(path, sizeof path, "%s/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/access", s->root, gpu, gi);
    else
        snprintf(path, sizeof path, "%s/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/ci%u/access", s->root,
                 gpu, gi, ci);
    static const char *const label = "DeviceFileMinor: ";
    uint32_t minor;
    if (read_small(path, text) < 0 || !str_has_prefix(text, label) || parse_u32(text + strlen(label), &minor) < 0)
        return -1;
    return (int)minor;
}

const char *nvml_mig_nodes(const struct nvml_source *s, struct nvml_gpu *g, struct arena *a) {
    unsigned gi = 0, ci = 0;
    if (!s->api.mig_gpu_instance || s->api.mig_gpu_instance(g->handle, &gi) || !s->api.mig_compute_instance ||
        s->api.mig_compute_instance(g->handle, &ci))
        return arena_printf(a, "/dev/nvidia%u", g->minor);
    int gi_minor = capability_minor(s, "gi", g->minor, gi, ci), ci_minor = capability_minor(s, "ci", g->minor, gi, ci);
    if (gi_minor < 0 || ci_minor < 0)
        return arena_printf(a, "/dev/nvidia%u", g->minor);
    return arena_printf(a, "/dev/nvidia%u,/dev/nvidia-caps/nvidia-cap%d,/dev/nvidia-caps/nvidia-cap%d",
                        g->minor, gi_minor, ci_minor);
}

// Connected components by the smallest member; all GPUs on switches are one component.
static uint32_t find(uint32_t *parent, uint32_t i) {
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

static void join(uint32_t *parent, uint32_t a, uint32_t b) {
    a = find(parent, a);
    b = find(parent, b);
    if (a < b)
        parent[b] = a;
    else
        parent[a] = b;
}

static void join_links_of(struct nvml_source *s, uint32_t i, uint32_t *parent, int64_t *on_switch) {
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        unsigned active = 0, type = NVML_REMOTE_GPU;
        if (s->api.link_state(s->gpus[i].physical, link, &active) || !active)
            continue;
        if (s->api.link_type && !s->api.link_type(s->gpus[i].physical, link, &type) && type == NVML_REMOTE_SWITCH) {
            if (*on_switch >= 0)
                join(parent, i, (uint32_t)*on_switch);
            *on_switch = i;
            continue;
        }
        struct nvml_pci remote = {0};
        if (!s->api.link_pci || s->api.link_pci(s->gpus[i].physical, link, &remote))
            continue;
        remote.bus_id[sizeof remote.bus_id - 1] = 0;
        // Drivers write the domain of a bus id with four or eight digits: the ends are compared.
        for (uint32_t k = 0; k < s->count; k++)
            if (!s->gpus[k].mig && strlen(remote.bus_id) >= strlen(s->gpus[k].bus_id) &&
                !strcasecmp(remote.bus_id + strlen(remote.bus_id) - strlen(s->gpus[k].bus_id), s->gpus[k].bus_id))
                join(parent, i, k);
    }
}

void nvml_links(struct nvml_source *s, struct gpu *gpus) {
    uint32_t parent[GPU_DEVICES_MAX], size[GPU_DEVICES_MAX] = {0}, group[GPU_DEVICES_MAX] = {0}, groups = 0;
    int64_t on_switch = -1;
    if (!s->api.link_state)
        return;
    for (uint32_t i = 0; i < s->count; i++)
        parent[i] = i;
    for (uint32_t i = 0; i < s->count; i++)
        if (!s->gpus[i].mig)  // instances cannot use NVLink
            join_links_of(s, i, parent, &on_switch);
    for (uint32_t i = 0; i < s->count; i++)
        size[find(parent, i)]++;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t top = find(parent, i);
        if (size[top] < 2)
            continue;
        if (!group[top])
            group[top] = ++groups;
        gpus[i].link_group = group[top];
    }
}
