// Owns the conversion of configuration values between text and struct members, by type.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/vec.h"
#include "model/config_table.h"
#include "model/gpuspec.h"
#include "model/name.h"
#include "model/nodelist.h"
#include "model/units.h"

static const char *const level_words[] = {"error", "warn", "info", "debug"};
static const char *const audit_words[] = {"kill", "warn", "off"};

static int range_check(const struct config_key *k, double v, const char *text, struct error *e) {
    char shown[64];
    if ((k->low != 0 || k->high != 0) && (v < k->low || v > k->high))
        return error_set(e, ERANGE, "\"%s\" is out of range; expected %.15g to %.15g",
                         str_printable(text, shown, sizeof shown), k->low, k->high);
    return 0;
}

// As a sentence needs it.
static const char *expected_text(enum config_type type) {
    switch (type) {
    case CONFIG_IDENTIFIER: return "a name";
    case CONFIG_NODES: return "a node list such as n[01-04]";
    case CONFIG_U32:
    case CONFIG_I32:
    case CONFIG_DOUBLE: return "a number";
    case CONFIG_SIZE: return "a size such as 8G";
    case CONFIG_SECONDS:
    case CONFIG_SPAN: return "a duration such as 30s, 10m or 2d";
    case CONFIG_TIME: return "a time such as 2026-01-31T12:00";
    default: return config_type_text(type);
    }
}

static int wrong(const struct config_key *k, const char *text, struct error *e) {
    char shown[64];
    bool limit = (k->limit_of || k->given_offset) && !k->fallback;
    return error_set(e, EINVAL, "\"%s\" is not understood; expected %s%s",
                     str_printable(text, shown, sizeof shown), expected_text(k->type),
                     limit ? ", or none" : "");
}

static int parse_bool(const struct config_key *k, const char *text, bool *out, struct error *e) {
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *out = !strcasecmp(text, yes[i]);
            return 0;
        }
    }
    return wrong(k, text, e);
}

static int parse_number(const struct config_key *k, const char *text, void *at, struct error *e) {
    int64_t i;
    if (k->type == CONFIG_DOUBLE) {
        char *end;
        double d = strspn(text, "0123456789.") == strlen(text) ? strtod(text, &end) : NAN;
        if (isnan(d) || end == text || *end)
            return wrong(k, text, e);
        int r = range_check(k, d, text, e);
        if (r == 0)
            *(double *)at = d;
        return r;
    }
    if (parse_i64(text, &i) < 0)
        return wrong(k, text, e);
    int r = range_check(k, (double)i, text, e);
    if (r == 0 && (k->type == CONFIG_U32 ? i < 0 || i > UINT32_MAX : i < INT32_MIN || i > INT32_MAX))
        r = wrong(k, text, e);
    if (r < 0)
        return r;
    if (k->type == CONFIG_U32)
        *(uint32_t *)at = (uint32_t)i;
    else
        *(int32_t *)at = (int32_t)i;
    return 0;
}

static int parse_address(const char *text, struct error *e) {
    char shown[80];
    uint32_t port;
    const char *colon = strrchr(text, ':');
    if (!*text || (colon && colon != text && strcspn(text, " /?#@,") == strlen(text) &&
                   parse_u32(colon + 1, &port) == 0 && port > 0 && port < 65536))
        return 0;
    return error_set(e, EINVAL,
                     "\"%s\" is not an address; write ADDRESS:PORT such as 0.0.0.0:6820, or leave it empty",
                     str_printable(text, shown, sizeof shown));
}

static int parse_addresses(const char *text, struct arena *a, struct error *e) {
    for (const char *at = text;; at++) {
        at += strspn(at, " ");
        size_t len = strcspn(at, ",");
        while (len && at[len - 1] == ' ')
            len--;
        const char *one = arena_strndup(a, at, len);
        int r = len || !*text
                    ? parse_address(one, e)
                    : error_set(e, EINVAL, "an address is missing between the commas of \"%.200s\"", text);
        at += strcspn(at, ",");
        if (r < 0 || !*at)
            return r;
    }
}

static int parse_seconds(const struct config_key *k, const char *text, uint32_t *out, struct error *e) {
    uint32_t v;
    bool endless = k->low == 0 && k->high == 0;  // "unlimited" may be written, and is kept as 0
    int r = duration_parse(text, 1, &v, e);
    if (r == 0 && v == 0 && endless)
        return error_set(e, ERANGE, "0 is no time at all; write unlimited for no limit");
    if (r == 0 && v == DURATION_UNLIMITED)
        v = 0;
    if (r == 0)
        r = range_check(k, v, text, e);
    if (r == 0)
        *out = v;
    return r;
}

static int parse_quota(const char *item, struct error *e) {
    char shown[64];
    uint32_t milli;
    const char *equals = strchr(item, '=');
    if (!equals || !name_valid(item, (size_t)(equals - item)))
        return error_set(e, EINVAL, "\"%s\" is not a quota; write MODEL=GPUS such as v100=4",
                         str_printable(item, shown, sizeof shown));
    return gpu_count_parse(equals + 1, &milli, e);
}

// "MODEL:COUNT[:MEMORY]"
static int parse_gpus(const char *item, struct arena *a, struct config_gpus *out, struct error *e) {
    char shown[64], count[16];
    const char *one = strchr(item, ':'), *two = one ? strchr(one + 1, ':') : NULL;
    size_t len = one ? (two ? (size_t)(two - one - 1) : strlen(one + 1)) : 0;
    if (!one || !name_valid(item, (size_t)(one - item)) || len >= sizeof count)
        goto bad;
    memcpy(count, one + 1, len);
    count[len] = 0;
    if (parse_u32(count, &out->count) < 0 || !out->count || out->count > 1024)
        goto bad;
    out->model = arena_strndup(a, item, (size_t)(one - item));
    out->memory_bytes = 0;
    return two ? size_parse(two + 1, SIZE_G, &out->memory_bytes, e) : 0;
bad:
    return error_set(e, EINVAL, "\"%s\" does not declare GPUs; write MODEL:COUNT[:MEMORY] such as v100:8:32G",
                     str_printable(item, shown, sizeof shown));
}

static int parse_item(const struct config_key *k, const char *item, struct arena *a, void *at, struct error *e) {
    int r = k->type == CONFIG_GPUS     ? parse_gpus(item, a, at, e)
            : k->type == CONFIG_QUOTAS ? parse_quota(item, e)
                                       : name_check("the word", item, e);
    if (r == 0 && k->type != CONFIG_GPUS)
        *(const char **)at = item;
    return r;
}

// Items are separated by commas or blanks.
static int parse_list(const struct config_key *k, const char *text, struct arena *a, struct any_list *out,
                      struct error *e) {
    static const char separators[] = ", \t";
    size_t size = k->type == CONFIG_GPUS ? sizeof(struct config_gpus) : sizeof(const char *);
    VEC(const char *) items = {0};
    for (const char *p = text + strspn(text, separators); *p; p += strspn(p, separators)) {
        size_t len = strcspn(p, separators);
        vec_push(&items, arena_strndup(a, p, len));
        p += len;
    }
    struct any_list list = {arena_alloc(a, (items.len ? items.len : 1) * size), items.len};
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < items.len; i++)
        r = parse_item(k, items.at[i], a, (char *)list.at + i * size, e);
    vec_done(&items);
    if (r == 0)
        *out = list;
    return r;
}

static int parse_level(const struct config_key *k, const char *text, enum log_level *out, struct error *e) {
    int level = log_level_parse(text);
    if (level < 0)
        return wrong(k, text, e);
    *out = (enum log_level)level;
    return 0;
}

static int parse_audit(const struct config_key *k, const char *text, enum gpu_audit *out, struct error *e) {
    for (int i = GPU_AUDIT_KILL; i <= GPU_AUDIT_OFF; i++)
        if (streq(text, audit_words[i])) {
            *out = (enum gpu_audit)i;
            return 0;
        }
    return wrong(k, text, e);
}

static int parse_word(const struct config_key *k, const char *text, unsigned *out, struct error *e) {
    cleanup_buf struct buf all = {0};
    char shown[64];
    for (unsigned i = 0; k->words[i]; i++) {
        if (streq(text, k->words[i])) {
            *out = i;
            return 0;
        }
        buf_addf(&all, "%s%s", i ? k->words[i + 1] ? ", " : " or " : "", k->words[i]);
    }
    return error_set(e, EINVAL, "\"%s\" is not known; expected %s", str_printable(text, shown, sizeof shown),
                     buf_str(&all));
}

static int parse_span(const struct config_key *k, const char *text, uint32_t *out, struct error *e) {
    uint32_t v;
    int r = duration_parse(text, 1, &v, e);
    if (r == 0 && v == DURATION_UNLIMITED)
        return wrong(k, text, e);
    if (r == 0)
        r = range_check(k, v, text, e);
    if (r == 0)
        *out = v;
    return r;
}

static int parse_text(const struct config_key *k, const char *text, struct arena *a, const char **out,
                      struct error *e) {
    int r = 0;
    struct name_list names;
    if (k->type == CONFIG_IDENTIFIER && *text)
        r = name_check("the name", text, e);
    else if (k->type == CONFIG_ADDRESS)
        r = parse_address(text, e);
    else if (k->type == CONFIG_ADDRESSES)
        r = parse_addresses(text, a, e);
    else if (k->type == CONFIG_NODES && *text)
        r = nodelist_expand(text, a, &names, e);
    if (r == 0)
        *out = arena_strdup(a, text);
    return r;
}

static int parse_quota_amount(const char *text, uint32_t *out, struct error *e) {
    bool rest = streq(text, "rest") || !strcasecmp(text, "unlimited");
    if (!rest && strcasecmp(text, "none") != 0)
        return gpu_count_parse(text, out, e);
    *out = rest ? PROJECT_QUOTA_ALL : 0;
    return 0;
}

static bool is_none(const char *text) {
    return !strcasecmp(text, "none") || !strcasecmp(text, "unlimited") || !strcasecmp(text, "infinite");
}

// Takes a limit away.
static void clear_limit(const struct config_key *k, void *target) {
    char *at = (char *)target + k->offset;
    memset(at, 0, k->type == CONFIG_SIZE || k->type == CONFIG_DOUBLE ? 8 : 4);
    if (k->given_offset)
        *(bool *)((char *)target + k->given_offset) = false;
    else
        schema_unmark(k->limit_of, target, at);
}

int config_value_parse(const struct config_key *k, const char *text, const struct config_source *source,
                       struct arena *a, void *target, struct error *e) {
    void *at = (char *)target + k->offset;
    uint64_t bytes;
    int r = 0;
    // Zero is a limit of its own, so "none" takes the mark away that says that there is a limit. A key with a default
    // has no such state: its own type says what "none" means there.
    if ((k->limit_of || k->given_offset) && !k->fallback && is_none(text)) {
        clear_limit(k, target);
        return 0;
    }
    switch (k->type) {
    case CONFIG_TEXT:
    case CONFIG_IDENTIFIER:
    case CONFIG_ADDRESS:
    case CONFIG_ADDRESSES:
    case CONFIG_NODES: r = parse_text(k, text, a, at, e); break;
    case CONFIG_BOOL: r = parse_bool(k, text, at, e); break;
    case CONFIG_U32:
    case CONFIG_I32:
    case CONFIG_DOUBLE: r = parse_number(k, text, at, e); break;
    case CONFIG_SIZE:
        r = size_parse(text, 1, &bytes, e);
        if (r == 0)
            r = range_check(k, (double)bytes, text, e);
        if (r == 0)
            *(uint64_t *)at = bytes;
        break;
    case CONFIG_SHARE:
        // All ones stand for "share": the part that belongs to the CPUs or GPUs of a job.
        bytes = UINT64_MAX;
        if (streq(text, "none"))
            bytes = 0;
        else if (!streq(text, "share") && (r = size_parse(text, 1, &bytes, e)) < 0)
            error_prefix(e, "expected share, none or a size");
        if (r == 0)
            *(uint64_t *)at = bytes;
        break;
    case CONFIG_SECONDS: r = parse_seconds(k, text, at, e); break;
    case CONFIG_SPAN: r = parse_span(k, text, at, e); break;
    case CONFIG_WORD: r = parse_word(k, text, at, e); break;
    case CONFIG_TIME:
        r = time_parse(text, source ? source->now_ms : 0, source ? source->zone_offset_s : 0, TIME_NEXT, at, e);
        break;
    case CONFIG_MILLIGPU: r = gpu_count_parse(text, at, e); break;
    case CONFIG_QUOTA: r = parse_quota_amount(text, at, e); break;
    case CONFIG_LEVEL: r = parse_level(k, text, at, e); break;
    case CONFIG_AUDIT: r = parse_audit(k, text, at, e); break;
    case CONFIG_NAMES:
    case CONFIG_QUOTAS:
    case CONFIG_GPUS: r = parse_list(k, text, a, at, e); break;
    case CONFIG_TYPE_COUNT: r = -EINVAL; break;
    }
    if (r == 0 && k->given_offset)
        *(bool *)((char *)target + k->given_offset) = true;
    if (r == 0 && k->limit_of)
        schema_give(k->limit_of, target, at);
    return r;
}

static void format_list(const struct config_key *k, const struct any_list *list, struct buf *out) {
    char text[UNIT_TEXT_MAX];
    for (uint32_t i = 0; i < list->len; i++) {
        if (i)
            buf_adds(out, ", ");
        if (k->type != CONFIG_GPUS) {
            buf_adds(out, ((const char *const *)list->at)[i]);
            continue;
        }
        const struct config_gpus *g = (const struct config_gpus *)list->at + i;
        buf_addf(out, "%s:%u", g->model, g->count);
        if (g->memory_bytes)
            buf_addf(out, ":%s", size_format(g->memory_bytes, text));
    }
}

// A size as an exact number with the largest unit that divides it.
static void format_size(uint64_t bytes, struct buf *out) {
    static const char units[] = "KMGTP";
    int unit = -1;
    while (bytes && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    buf_addu(out, bytes);
    if (unit >= 0)
        buf_addc(out, units[unit]);
}

bool config_value_given(const struct config_key *k, const void *target) {
    if (k->given_offset)
        return *(const bool *)((const char *)target + k->given_offset);
    return !k->limit_of || schema_given(k->limit_of, target, (const char *)target + k->offset);
}

void config_value_format(const struct config_key *k, const void *target, struct buf *out) {
    const void *at = (const char *)target + k->offset;
    char text[UNIT_TEXT_MAX];
    if (!config_value_given(k, target)) {
        buf_adds(out, "none");
        return;
    }
    switch (k->type) {
    case CONFIG_TEXT:
    case CONFIG_IDENTIFIER:
    case CONFIG_ADDRESS:
    case CONFIG_ADDRESSES:
    case CONFIG_NODES: buf_adds(out, *(const char *const *)at ? *(const char *const *)at : ""); break;
    case CONFIG_BOOL: buf_adds(out, *(const bool *)at ? "true" : "false"); break;
    case CONFIG_U32: buf_addu(out, *(const uint32_t *)at); break;
    case CONFIG_I32: buf_addf(out, "%d", *(const int32_t *)at); break;
    case CONFIG_DOUBLE: buf_addf(out, "%.15g", *(const double *)at); break;
    case CONFIG_SIZE: format_size(*(const uint64_t *)at, out); break;
    case CONFIG_SHARE:
        if (*(const uint64_t *)at == 0 || *(const uint64_t *)at == UINT64_MAX)
            buf_adds(out, *(const uint64_t *)at ? "share" : "none");
        else
            format_size(*(const uint64_t *)at, out);
        break;
    case CONFIG_SECONDS:
        buf_adds(out, *(const uint32_t *)at || k->low > 0 ? duration_format(*(const uint32_t *)at, text) : "unlimited");
        break;
    case CONFIG_SPAN: buf_adds(out, duration_format(*(const uint32_t *)at, text)); break;
    case CONFIG_WORD: buf_adds(out, k->words[*(const unsigned *)at]); break;
    case CONFIG_TIME: buf_addf(out, "@%lld", (long long)(*(const int64_t *)at / 1000)); break;
    case CONFIG_QUOTA:
        if (*(const uint32_t *)at == PROJECT_QUOTA_ALL) {
            buf_adds(out, "rest");
            break;
        }  // fall through
    case CONFIG_MILLIGPU: buf_adds(out, gpu_milli_format(*(const uint32_t *)at, text)); break;
    case CONFIG_LEVEL: buf_adds(out, level_words[*(const enum log_level *)at]); break;
    case CONFIG_AUDIT: buf_adds(out, audit_words[*(const enum gpu_audit *)at]); break;
    case CONFIG_NAMES:
    case CONFIG_QUOTAS:
    case CONFIG_GPUS: format_list(k, at, out); break;
    case CONFIG_TYPE_COUNT: break;
    }
}

void config_defaults(const struct config_section *s, struct arena *a, void *target) {
    memset(target, 0, s->size);
    for (size_t i = 0; i < s->count; i++) {
        if (!s->keys[i].fallback)
            continue;
        int r = config_value_parse(&s->keys[i], s->keys[i].fallback, NULL, a, target, NULL);
        if (r < 0)
            abort();  // the table contradicts itself
    }
}
