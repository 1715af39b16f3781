// Owns the text form of GPU requests.
#include "model/gpuspec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

static int spec_error(const char *text, struct error *e) {
    char shown[64];
    return error_set(e, EINVAL, "\"%s\" is not a GPU request; write for example 2, 0.5, a100:2 or gpu:a100:1",
                     str_printable(text, shown, sizeof shown));
}

static int count_error(const char *text, struct error *e) {
    char shown[64];
    return error_set(e, EINVAL, "\"%s\" is not a number of GPUs; write for example 2 or 0.5",
                     str_printable(text, shown, sizeof shown));
}

int gpu_count_parse(const char *text, uint32_t *milli, struct error *e) {
    char shown[64];
    uint64_t whole = 0, thousandths = 0;
    const char *p = text;
    bool overflow = false;
    if (*p != '.' && !(*p >= '0' && *p <= '9'))
        return count_error(text, e);
    // Too large is said only after the rest was read: "99999x" is no number at all.
    for (; *p >= '0' && *p <= '9'; p++) {
        whole = whole * 10 + (uint64_t)(*p - '0');
        overflow = overflow || whole > GPU_MILLI_MAX / 1000;
        whole = overflow ? 0 : whole;
    }
    if (*p == '.') {
        uint64_t scale = 100;
        if (!(p[1] >= '0' && p[1] <= '9'))
            return count_error(text, e);
        for (p++; *p >= '0' && *p <= '9'; p++, scale /= 10) {
            if (!scale && *p != '0')
                return error_set(e, EINVAL,
                                 "\"%s\" is finer than a thousandth of a GPU; use at most three decimals",
                                 str_printable(text, shown, sizeof shown));
            thousandths += scale * (uint64_t)(*p - '0');
        }
    }
    if (*p)
        return count_error(text, e);
    if (overflow)
        return error_set(e, ERANGE, "\"%s\" is too many GPUs; the limit is %d",
                         str_printable(text, shown, sizeof shown), GPU_MILLI_MAX / 1000);
    if (whole && thousandths)
        return error_set(
            e, EINVAL,
            "\"%s\" GPUs cannot be given: a fraction is a part of one GPU; use a whole number or less than 1",
            str_printable(text, shown, sizeof shown));
    *milli = (uint32_t)(whole * 1000 + thousandths);
    return 0;
}

int gpu_spec_parse(const char *text, struct gpu_spec *out, struct error *e) {
    struct gpu_spec g = {.milli = 1000};
    if (str_empty(text))
        return spec_error("", e);
    const char *p = text;
    if (!strcasecmp(p, "gpu")) {
        *out = g;
        return 0;
    }
    if (!strncasecmp(p, "gpu:", 4))
        p += 4;
    const char *colon = strchr(p, ':');
    size_t len = colon ? (size_t)(colon - p) : strlen(p);
    // Without a colon a number is a count; anything else is a model.
    if (colon || strspn(p, "0123456789.") != len) {
        if (!name_valid(p, len))
            return spec_error(text, e);
        memcpy(g.model, p, len);
        p = colon ? colon + 1 : NULL;
    }
    if (p) {
        if (strspn(p, "0123456789.") != strlen(p))
            return spec_error(text, e);
        int r = gpu_count_parse(p, &g.milli, e);
        if (r < 0)
            return r;
    }
    *out = g;
    return 0;
}

const char *gpu_milli_format(uint64_t milli, char out[static GPU_TEXT_MAX]) {
    unsigned long long whole = milli / 1000, rest = milli % 1000;
    if (!rest)
        snprintf(out, GPU_TEXT_MAX, "%llu", whole);
    else if (rest % 100 == 0)
        snprintf(out, GPU_TEXT_MAX, "%llu.%llu", whole, rest / 100);
    else if (rest % 10 == 0)
        snprintf(out, GPU_TEXT_MAX, "%llu.%02llu", whole, rest / 10);
    else
        snprintf(out, GPU_TEXT_MAX, "%llu.%03llu", whole, rest);
    return out;
}
