// Owns the words of a step's options that the packing understands: distribution and GPU binding.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "sched/step_pack.h"

enum { BIND_LIST_MAX = 4096 };

int sched_step_distribution_parse(const char *text, enum step_distribution *out, uint32_t *plane_size,
                                  struct error *e) {
    size_t len = strcspn(text, ":,");
    *plane_size = 0;
    if (str_has_prefix(text, "plane=")) {
        char number[16] = "";
        if (len - 6 < sizeof number)
            memcpy(number, text + 6, len - 6);
        if (parse_u32(number, plane_size) < 0 || !*plane_size)
            return error_set(e, EINVAL, "distribution: plane needs a number of tasks, such as plane=4");
        *out = STEP_PLANE;
        return 0;
    }
    if (strncmp(text, "arbitrary", len) == 0 && len == strlen("arbitrary"))
        return error_set(e, ENOTSUP, "distribution: arbitrary is not supported; expected block, cyclic or plane=SIZE");
    *out = len == strlen("cyclic") && strncmp(text, "cyclic", len) == 0 ? STEP_CYCLIC : STEP_BLOCK;
    return 0;
}

static int bad_list(const char *item, struct error *e) {
    return error_set(e, EINVAL, "gpu_bind: %s is no GPU number or mask; expected a list such as 0,1 or 0x1,0x2", item);
}

// "3", "0x3", "0*4": a value, and how often it comes.
static int parse_item(const char *item, bool mask, uint64_t *value, uint64_t *times, struct error *e) {
    char *end;
    errno = 0;
    *value = strtoull(item, &end, mask ? 16 : 0);
    *times = 1;
    if (end == item || *item == '-' || errno || (*end && *end != '*') || (!mask && *value >= STEP_GPUS_MAX))
        return bad_list(item, e);
    if (*end == '*' && (parse_u64(end + 1, times) < 0 || !*times))
        return bad_list(item, e);
    return 0;
}

static int parse_list(const char *text, bool mask, struct arena *a, struct step_bind *out, struct error *e) {
    char *copy = arena_strdup(a, text), *save = NULL;
    out->list = arena_alloc(a, BIND_LIST_MAX * sizeof *out->list);
    for (char *item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        uint64_t value, times;
        if (parse_item(item, mask, &value, &times, e) < 0)
            return -EINVAL;
        if (times > BIND_LIST_MAX - out->len)
            return error_set(e, E2BIG, "gpu_bind: more than %d entries", BIND_LIST_MAX);
        while (times--)
            out->list[out->len++] = value;
    }
    return out->len ? 0 : error_set(e, EINVAL, "gpu_bind: the list is empty");
}

int sched_step_bind_parse(const char *text, struct arena *a, struct step_bind *out, struct error *e) {
    static const struct {
        const char *word;
        enum step_bind_kind kind;
    } counted[] = {{"single:", STEP_BIND_SINGLE}, {"per_task:", STEP_BIND_PER_TASK}};
    struct step_bind b = {0};
    for (const char *skip[] = {"gpu:", "verbose,", "v,"}, **s = skip; s < skip + 3; s++)
        if (str_has_prefix(text, *s))
            text += strlen(*s);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        if (str_has_prefix(text, counted[i].word)) {
            b.kind = counted[i].kind;
            if (parse_u32(text + strlen(counted[i].word), &b.count) < 0 || !b.count || b.count > STEP_TASKS_MAX)
                return error_set(e, EINVAL, "gpu_bind: %s needs a number, such as %s1", text, counted[i].word);
            *out = b;
            return 0;
        }
    int rc = 0;
    if (str_has_prefix(text, "map_gpu:")) {
        b.kind = STEP_BIND_MAP;
        rc = parse_list(text + strlen("map_gpu:"), false, a, &b, e);
    } else if (str_has_prefix(text, "mask_gpu:")) {
        b.kind = STEP_BIND_MASK;
        rc = parse_list(text + strlen("mask_gpu:"), true, a, &b, e);
    } else if (streq(text, "none") || streq(text, "closest")) {
        b.kind = STEP_BIND_ALL;
    } else {
        rc = error_set(e, EINVAL,
                       "gpu_bind: %s is not known; expected none, closest, single:N, per_task:N, map_gpu:LIST or "
                       "mask_gpu:LIST",
                       text);
    }
    if (rc == 0)
        *out = b;
    return rc;
}
