// Opens NVML at run time and finds the GPUs. A function the driver lacks is left out with what it
// would tell; only the few that identify a GPU are needed.
#include "device/nvml.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

static const char *const soname = "libnvidia-ml.so.1";

static void nvml_free(struct gpu_source *base) {
    struct nvml_source *s = (struct nvml_source *)base;
    if (s->events && s->api.events_free)
        s->api.events_free(s->events);
    nvml_gpm_done(s);
    for (uint32_t i = 0; i < s->count; i++) {
        free(s->gpus[i].memory_of);
        free(s->gpus[i].use_of);
        free(s->gpus[i].processes);
    }
    if (s->initialised)
        s->api.shutdown();
    if (s->library)
        dlclose(s->library);
    free(s->scratch);
    free(s->root);
    free(s);
}

static const char *text_of(const struct nvml_source *s, int result) {
    const char *text = s->api.error_text ? s->api.error_text(result) : NULL;
    return text ? text : "unknown error";
}

static int load(struct nvml_source *s, const char *library, struct error *e) {
    s->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!s->library)
        return error_set(e, ENOENT, "no NVIDIA driver on this machine: %s", dlerror());
    const char *missing = NULL;
    void *p;
#define NVML_LOAD(needed, member, symbol, arguments)   \
    p = dlsym(s->library, symbol);                     \
    memcpy(&s->api.member, &p, sizeof p);              \
    if (needed && !p)                                  \
        missing = symbol;
    NVML_FUNCTIONS(NVML_LOAD)
#undef NVML_LOAD
    p = dlsym(s->library, "nvmlErrorString");
    memcpy(&s->api.error_text, &p, sizeof p);
    if (missing)
        return error_set(e, ENOTSUP, "the NVIDIA driver's %s lacks %s: a newer driver is needed", library, missing);
    return 0;
}

// "00000000:1B:00.0" as the kernel writes it: "0000:1b:00.0".
static void kernel_bus_id(const struct nvml_pci *pci, char out[static 32]) {
    const char *from = pci->bus_id;
    size_t n = strcspn(from, ":");
    if (n > 4 && n < sizeof pci->bus_id)
        from += n - 4;
    size_t i = 0;
    for (; i < 31 && from[i]; i++)
        out[i] = (char)(from[i] >= 'A' && from[i] <= 'F' ? from[i] + 32 : from[i]);
    out[i] = 0;
}

static void register_events(struct nvml_source *s, nvml_device d) {
    if (!s->events && s->api.events_new && s->api.events_register && s->api.events_wait &&
        s->api.events_new(&s->events))
        s->events = NULL;
    if (s->events)
        s->api.events_register(d, NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT_ECC, s->events);
}

static int describe(struct nvml_source *s, struct nvml_gpu *g, struct arena *a, struct gpu *out, struct error *e) {
    char name[NVML_NAME_BYTES] = "", uuid[NVML_UUID_BYTES] = "";
    struct nvml_pci pci = {0};
    struct nvml_memory memory = {0};
    int r = s->api.uuid(g->handle, uuid, sizeof uuid);
    if (!r)
        r = s->api.name(g->handle, name, sizeof name);
    if (!r)
        r = s->api.pci(g->physical, &pci);
    if (!r)
        r = s->api.memory(g->handle, &memory);
    if (r)
        return error_set(e, EIO, "GPU %u does not say what it is: %s", (unsigned)(g - s->gpus), text_of(s, r));
    name[sizeof name - 1] = uuid[sizeof uuid - 1] = pci.bus_id[sizeof pci.bus_id - 1] = 0;
    kernel_bus_id(&pci, g->bus_id);
    if (s->api.minor && s->api.minor(g->physical, &g->minor))
        g->minor = 0;
    *out = (struct gpu){
        .uuid = arena_strdup(a, uuid),
        .model = arena_strdup(a, str_has_prefix(name, "NVIDIA ") ? name + 7 : name),
        .memory_bytes = memory.total,
        .pci = arena_strdup(a, g->bus_id),
        .numa = nvml_numa(s, g->bus_id),
        .minor_path = g->mig ? nvml_mig_nodes(s, g, a) : arena_printf(a, "/dev/nvidia%u", g->minor),
    };
    return 0;
}

// The instances of a GPU that is cut up by MIG take its place.
static uint32_t add_instances(struct nvml_source *s, nvml_device physical) {
    unsigned current = 0, pending = 0, max = 0, slices = 0;
    if (!s->api.mig_mode || !s->api.mig_max || !s->api.mig_handle ||
        s->api.mig_mode(physical, &current, &pending) || !current)
        return 0;
    if (s->api.mig_max(physical, &max))
        return 0;
    uint32_t first = s->count;
    for (unsigned i = 0; i < max && s->count < GPU_DEVICES_MAX; i++) {
        nvml_device instance;
        if (s->api.mig_handle(physical, i, &instance))
            continue;
        struct nvml_attributes about = {0};
        if (s->api.attributes && s->api.attributes(instance, &about))
            about.compute_slices = 1;
        struct nvml_gpu *g = &s->gpus[s->count++];
        *g = (struct nvml_gpu){
            .handle = instance, .physical = physical, .mig = true, .power_share_milli = about.compute_slices};
        slices += about.compute_slices;
    }
    for (uint32_t i = first; i < s->count; i++)
        s->gpus[i].power_share_milli = slices ? s->gpus[i].power_share_milli * 1000 / slices : 0;
    return s->count - first;
}

static int enumerate(struct nvml_source *s, struct error *e) {
    unsigned count = 0;
    int r = s->api.count(&count);
    if (r)
        return error_set(e, EIO, "the NVIDIA driver does not say how many GPUs there are: %s", text_of(s, r));
    for (unsigned i = 0; i < count && s->count < GPU_DEVICES_MAX; i++) {
        nvml_device d;
        if ((r = s->api.handle(i, &d)))
            return error_set(e, EIO, "GPU %u cannot be opened: %s", i, text_of(s, r));
        register_events(s, d);
        if (add_instances(s, d))
            continue;
        s->gpus[s->count++] = (struct nvml_gpu){.handle = d, .physical = d, .power_share_milli = 1000};
    }
    return 0;
}

static int nvml_discover(struct gpu_source *base, struct arena *a, struct gpu **gpus, uint32_t *count,
                         struct error *e) {
    struct nvml_source *s = (struct nvml_source *)base;
    assert(!s->count);
    int r = enumerate(s, e);
    if (r < 0)
        return r;
    *gpus = arena_alloc(a, (s->count ? s->count : 1) * sizeof **gpus);
    for (uint32_t i = 0; i < s->count; i++)
        if ((r = describe(s, &s->gpus[i], a, &(*gpus)[i], e)) < 0)
            return r;
    nvml_links(s, *gpus);
    *count = s->count;
    return 0;
}

static const struct gpu_source_ops nvml_ops = {
    .name = "nvml", .discover = nvml_discover, .read = nvml_read, .free = nvml_free};

int gpu_nvml_open(const char *library, const char *root, struct gpu_source **out, struct error *e) {
    struct nvml_source *s = xcalloc(1, sizeof *s);
    s->source.ops = &nvml_ops;
    s->root = xstrdup(root ? root : "");
    s->scratch = xmalloc(GPU_PROCESSES_MAX * sizeof(struct nvml_process_use));
    int r = load(s, library ? library : soname, e);
    int n = r < 0 ? 0 : s->api.init();
    if (r == 0 && n)
        r = n == NVML_DRIVER_NOT_LOADED ? error_set(e, ENOENT, "the NVIDIA driver is not loaded")
                                        : error_set(e, EIO, "the NVIDIA driver does not start: %s", text_of(s, n));
    if (r < 0) {
        nvml_free(&s->source);
        return r;
    }
    s->initialised = true;
    *out = &s->source;
    return 0;
}
