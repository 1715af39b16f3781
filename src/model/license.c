// Owns the writing of what a job asks for of licenses.
#include "model/license.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "model/name.h"
#include "model/units.h"

static int parse_one(char *one, struct license_ask *out, struct error *e) {
    char *colon = strpbrk(one, ":=");
    *out = (struct license_ask){.name = one, .count = 1};
    if (colon) {
        *colon = 0;
        if (parse_u32(colon + 1, &out->count) < 0 || !out->count || out->count > LICENSE_SEATS_MAX) {
            char shown[64];
            return error_set(e, EINVAL, "licenses: \"%s\" is no number of seats; expected 1 to %d, as in matlab:2",
                             str_printable(colon + 1, shown, sizeof shown), LICENSE_SEATS_MAX);
        }
    }
    int r = name_check("license", one, e);
    if (r < 0)
        error_prefix(e, "licenses");
    return r;
}

int license_asks_parse(const char *text, struct arena *a, struct license_asks *out, struct error *e) {
    struct license_asks s = {.len = 0};
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ",");
        if (n && s.len == LICENSES_PER_JOB)
            return error_set(e, E2BIG, "licenses: a job may ask for at most %d", LICENSES_PER_JOB);
        int r = n ? parse_one(arena_strndup(a, p, n), &s.at[s.len], e) : 0;
        if (r < 0)
            return r;
        for (uint32_t i = 0; n && i < s.len; i++)
            if (streq(s.at[i].name, s.at[s.len].name))
                return error_set(e, EINVAL, "licenses: %s is named twice; add up its seats", s.at[i].name);
        s.len += n > 0;
        p += n + (p[n] == ',');
    }
    *out = s;
    return 0;
}

const char *license_asks_text(const struct license_asks *asks, struct arena *a) {
    cleanup_buf struct buf b = {0};
    for (uint32_t i = 0; i < asks->len; i++)
        buf_addf(&b, "%s%s:%u", i ? "," : "", asks->at[i].name, asks->at[i].count);
    return asks->len ? arena_strdup(a, buf_str(&b)) : NULL;
}
