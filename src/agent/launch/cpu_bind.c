// Owns --cpu-bind of steps: which of the step's CPUs each task on this node is bound to. CPUs are named by the numbers
// that the kernel gives them; one that the step does not have is refused. Nodes have no known sockets or cores here:
// sockets, ldoms and boards are all CPUs of the step, cores and threads an equal share for each task.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "request.h"

enum bind_kind { BIND_SHARE, BIND_ALL, BIND_MAP, BIND_MASK, BIND_RANK };

struct bind {
    enum bind_kind kind;
    const char *list;  // of map and mask
    bool verbose;
};

static bool is_word(const char *text, size_t len, const char *const *words) {
    for (; *words; words++)
        if (strlen(*words) == len && strncasecmp(text, *words, len) == 0)
            return true;
    return false;
}

static int read_bind(const char *text, struct arena *a, struct bind *out, struct error *e) {
    static const char *const all[] = {"none", "no",        "n",      "sockets", "socket", "ldoms",
                                      "ldom", "rank_ldom", "boards", "board",   NULL};
    static const char *const share[] = {"cores", "core", "threads", "thread", "yes", "y", "", NULL};
    static const char *const verbose[] = {"v", "verbose", NULL}, *const quiet[] = {"q", "quiet", NULL};
    static const char *const rank[] = {"rank", NULL}, *const map[] = {"map_cpu", NULL},
                             *const mask[] = {"mask_cpu", NULL};
    static const char *const domains[] = {"map_ldom", "mask_ldom", NULL};
    while (*text) {
        size_t len = strcspn(text, ",:=");
        char after = text[len];
        if (is_word(text, len, map) || is_word(text, len, mask)) {
            out->kind = is_word(text, len, map) ? BIND_MAP : BIND_MASK;
            out->list = after ? text + len + 1 : "";
            return *out->list ? 0
                              : error_set(e, EINVAL, "cpu_bind: %s has no list, such as map_cpu:0,1", text);
        }
        if (is_word(text, len, domains)) {
            out->kind = BIND_ALL;
            return 0;
        }
        if (is_word(text, len, verbose) || is_word(text, len, quiet))
            out->verbose = is_word(text, len, verbose);
        else if (is_word(text, len, all))
            out->kind = BIND_ALL;
        else if (is_word(text, len, rank))
            out->kind = BIND_RANK;
        else if (is_word(text, len, share))
            out->kind = BIND_SHARE;
        else
            return error_set(
                e, EINVAL,
                "cpu_bind: %s is not known; expected none, cores, threads, sockets, ldoms, rank, "
                "map_cpu:LIST or mask_cpu:LIST, and verbose or quiet",
                text);
        text += len + (after != 0);
    }
    return 0;
}

static bool has_cpu(const struct launch_request *r, uint32_t cpu) {
    for (uint32_t i = 0; i < r->ncpus; i++)
        if (r->cpus[i] == cpu)
            return true;
    return !r->ncpus && cpu < LAUNCH_CPUS_MAX;  // the node does not bind jobs
}

static int add_cpu(const struct launch_request *r, struct launch_process *t, uint32_t cpu, struct error *e) {
    cleanup_buf struct buf own = {0};
    if (has_cpu(r, cpu) && t->ncpus < LAUNCH_CPUS_MAX) {
        t->cpus[t->ncpus++] = cpu;
        return 0;
    }
    for (uint32_t i = 0; i < r->ncpus && i < 32; i++)
        buf_addf(&own, "%s%u", i ? "," : "", r->cpus[i]);
    return error_set(e, EINVAL, "cpu_bind: CPU %u is not one of the step's on this node (%s)", cpu,
                     buf_str(&own));
}

// "0xF0", of any length: the last digit has CPUs 0 to 3.
static int add_mask(const struct launch_request *r, struct launch_process *t, const char *text, size_t len,
                    struct error *e) {
    if (len > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        text += 2, len -= 2;
    for (size_t i = 0; i < len; i++) {
        char digit[2] = {text[len - 1 - i], 0}, *end;
        unsigned long v = strtoul(digit, &end, 16);
        if (*end || i * 4 >= LAUNCH_CPUS_MAX)
            return error_set(e, EINVAL, "cpu_bind: %.*s is not a mask such as 0x3", (int)len, text);
        for (uint32_t bit = 0; bit < 4; bit++)
            if (v >> bit & 1) {
                int rc = add_cpu(r, t, (uint32_t)(i * 4) + bit, e);
                if (rc < 0)
                    return rc;
            }
    }
    return t->ncpus ? 0 : error_set(e, EINVAL, "cpu_bind: a mask has no CPU");
}

// The entry of a list for the task; after its end it begins anew.
static int add_entry(const struct bind *b, uint32_t task, const struct launch_request *r,
                     struct launch_process *t, struct error *e) {
    uint32_t count = 1, cpu;
    const char *p = b->list;
    char text[16];
    for (const char *q = p; *q; q++)
        count += *q == ',';
    for (uint32_t i = task % count; i; i--)
        p += strcspn(p, ",") + 1;
    size_t len = strcspn(p, ",");
    if (b->kind == BIND_MASK)
        return add_mask(r, t, p, len, e);
    if (len >= sizeof text || !len)
        return error_set(e, EINVAL, "cpu_bind: %.*s is not a CPU", (int)len, p);
    memcpy(text, p, len);
    text[len] = 0;
    return parse_u32(text, &cpu) < 0 ? error_set(e, EINVAL, "cpu_bind: %s is not a CPU", text)
                                     : add_cpu(r, t, cpu, e);
}

int agent_request_bind(const char *text, struct launch_request *r, bool *verbose, struct arena *a,
                       struct error *e) {
    struct bind b = {0};
    int rc = read_bind(text, a, &b, e);
    *verbose = b.verbose;
    for (uint32_t i = 0; rc == 0 && b.kind != BIND_SHARE && i < r->ntasks; i++) {
        struct launch_process *t = &r->tasks[i];
        t->ncpus = 0;
        if (b.kind == BIND_ALL)
            continue;
        t->cpus = arena_alloc(a, (b.kind == BIND_MASK ? LAUNCH_CPUS_MAX : 1) * sizeof *t->cpus);
        if (b.kind == BIND_RANK)
            t->cpus[t->ncpus++] = r->ncpus ? r->cpus[i % r->ncpus] : i % LAUNCH_CPUS_MAX;
        else
            rc = add_entry(&b, i, r, t, e);
    }
    return rc;
}
