// Owns the rings. A tier's slot is the time divided by its step; a ring keeps the newest N slots, NaN
// where nothing was written. The minute and the hour that are still running are means so far.
#include "metrics/series.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/schema.h"
#include "base/text.h"
#include "base/vec.h"

static const struct {
    int64_t step_ms;
    uint32_t points;
} tiers[SERIES_TIERS] = {
    {SERIES_FINE_S * 1000LL, SERIES_FINE_POINTS},
    {SERIES_COARSE_S * 1000LL, SERIES_COARSE_POINTS},
    {SERIES_HOURS_S * 1000LL, SERIES_HOURS_POINTS},
};

struct ring {
    float *at;
    int64_t newest;  // slot; -1: empty
    uint32_t kept;   // slots back from the newest that may hold something
    bool lost;       // older slots than these were written once
    double sum;      // of the newest slot
    uint32_t count;
};

struct series {
    char *name;
    int64_t at_ms;
    struct ring rings[SERIES_TIERS];
};

struct series_store {
    struct strmap by_name;
    VEC(struct series *) all;
    uint32_t max;
};

static struct series *series_new(const char *name) {
    struct series *s = xcalloc(1, sizeof *s);
    s->name = xstrdup(name);
    s->at_ms = INT64_MIN;
    for (int t = 0; t < SERIES_TIERS; t++) {
        s->rings[t].at = xmalloc(tiers[t].points * sizeof(float));
        s->rings[t].newest = -1;
    }
    return s;
}

static void series_free(struct series *s) {
    for (int t = 0; t < SERIES_TIERS; t++)
        free(s->rings[t].at);
    free(s->name);
    free(s);
}

struct series_store *series_store_new(uint32_t max) {
    assert(max > 0 && max <= SERIES_MAX);
    struct series_store *s = xcalloc(1, sizeof *s);
    s->max = max;
    return s;
}

struct series_store *series_store_free(struct series_store *s) {
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < s->all.len; i++)
        series_free(s->all.at[i]);
    vec_done(&s->all);
    strmap_done(&s->by_name);
    free(s);
    return NULL;
}

uint32_t series_count(const struct series_store *s) {
    return s->all.len;
}

size_t series_bytes_each(void) {
    size_t n = sizeof(struct series);
    for (int t = 0; t < SERIES_TIERS; t++)
        n += tiers[t].points * sizeof(float);
    return n;
}

void series_drop(struct series_store *s, const char *name) {
    struct series *x = strmap_remove(&s->by_name, name);
    for (uint32_t i = 0; x && i < s->all.len; i++)
        if (s->all.at[i] == x) {
            vec_remove_swap(&s->all, i);
            series_free(x);
            return;
        }
}

static bool of_a_job(const char *name) {
    return str_has_prefix(name, "job/");
}

static struct series *oldest(const struct series_store *s, bool jobs_only) {
    struct series *found = NULL;
    for (uint32_t i = 0; i < s->all.len; i++)
        if ((!jobs_only || of_a_job(s->all.at[i]->name)) && (!found || s->all.at[i]->at_ms < found->at_ms))
            found = s->all.at[i];
    return found;
}

static bool make_room(struct series_store *s, const char *name, int64_t now_ms) {
    if (s->all.len < s->max)
        return true;
    struct series *x = oldest(s, false);
    if (x->at_ms > now_ms - SERIES_STALE_S * 1000LL) {
        x = oldest(s, true);
        if (!x || (of_a_job(name) && x->at_ms > now_ms - SERIES_ENDED_S * 1000LL))
            return false;
    }
    series_drop(s, x->name);
    return true;
}

static struct series *obtain(struct series_store *s, const char *name, int64_t now_ms) {
    struct series *x = strmap_get(&s->by_name, name);
    if (x || !make_room(s, name, now_ms))
        return x;
    x = series_new(name);
    vec_push(&s->all, x);
    strmap_put(&s->by_name, x->name, x);
    return x;
}

static float *cell(const struct ring *r, int tier, int64_t slot) {
    return &r->at[slot % tiers[tier].points];
}

// Makes `slot` the newest; those passed over hold nothing.
static void advance(struct ring *r, int tier, int64_t slot) {
    uint32_t points = tiers[tier].points;
    assert(slot > r->newest);
    if (r->newest < 0 || slot - r->newest >= points) {
        r->lost |= r->newest >= 0;
        r->kept = 1;
    } else {
        for (int64_t k = r->newest + 1; k < slot; k++)
            *cell(r, tier, k) = NAN;
        uint32_t kept = r->kept + (uint32_t)(slot - r->newest);
        r->lost |= kept > points;
        r->kept = kept < points ? kept : points;
    }
    r->newest = slot;
    r->sum = 0;
    r->count = 0;
}

static void ring_add(struct ring *r, int tier, int64_t at_ms, double value) {
    int64_t slot = at_ms / tiers[tier].step_ms;
    if (slot > r->newest)
        advance(r, tier, slot);
    if (tier == 0) {
        r->sum = value;
        r->count = 1;
    } else {
        r->sum += value;
        r->count++;
    }
    *cell(r, tier, slot) = (float)(r->sum / r->count);
}

// The clock was wrong until now. What it wrote beyond this moment goes, or nothing new could be written
// until then; what is before it stays. The minute and the hour at hand begin again.
static void set_back(struct series *x, int64_t at_ms) {
    for (int t = 0; t < SERIES_TIERS; t++) {
        struct ring *r = &x->rings[t];
        int64_t last = at_ms / tiers[t].step_ms - 1;
        if (r->newest < 0 || last >= r->newest)
            continue;
        int64_t cut = r->newest - last;
        if (last < 0 || cut >= r->kept)
            *r = (struct ring){.at = r->at, .newest = -1};
        else {
            r->newest = last;
            r->kept -= (uint32_t)cut;
        }
        r->sum = r->count = 0;
    }
    x->at_ms = INT64_MIN;
}

int series_add(struct series_store *s, const char *name, int64_t at_ms, double value) {
    if (strlen(name) > SERIES_NAME_MAX)
        return -ENAMETOOLONG;
    if (at_ms < 0 || !isfinite(value))
        return -EINVAL;
    struct series *x = obtain(s, name, at_ms);
    if (!x)
        return -ENOSPC;
    if (x->at_ms >= 0 && at_ms < x->at_ms - SERIES_BACK_MS)
        set_back(x, at_ms);
    else if (at_ms < x->at_ms)
        return 0;
    // The second's last value counts, but a minute's mean takes each second once.
    bool again = x->at_ms >= 0 && at_ms / tiers[0].step_ms == x->at_ms / tiers[0].step_ms;
    x->at_ms = at_ms;
    ring_add(&x->rings[0], 0, at_ms, value);
    for (int t = 1; t < SERIES_TIERS && !again; t++)
        ring_add(&x->rings[t], t, at_ms, value);
    return 0;
}

static float value_at(const struct ring *r, int tier, int64_t slot) {
    if (r->newest < 0 || slot > r->newest || slot <= r->newest - r->kept)
        return NAN;
    return *cell(r, tier, slot);
}

static bool reaches_back_to(const struct ring *r, int tier, int64_t from_ms) {
    return !r->lost || (r->newest - r->kept + 1) * tiers[tier].step_ms <= from_ms;
}

// The finest tier that has the beginning, or all there is, and is not finer than asked for.
static int choose_tier(const struct series *x, int64_t from_ms, int64_t step_ms) {
    int t = 0;
    while (t < SERIES_TIERS - 1 && (!reaches_back_to(&x->rings[t], t, from_ms) || tiers[t + 1].step_ms <= step_ms))
        t++;
    return t;
}

static double mean_between(const struct series *x, int tier, int64_t first, int64_t last) {
    const struct ring *r = &x->rings[tier];
    double sum = 0;
    uint32_t count = 0;
    if (r->newest < 0)
        return NAN;
    if (first <= r->newest - r->kept)
        first = r->newest - r->kept + 1;
    for (int64_t slot = first; slot <= last && slot <= r->newest; slot++) {
        float v = value_at(r, tier, slot);
        if (!isnan(v)) {
            sum += v;
            count++;
        }
    }
    return count ? sum / count : NAN;
}

static void put_points(const struct series *x, int tier, int64_t from_ms, int64_t to_ms, int64_t step_ms,
                       struct json_writer *w) {
    int64_t unit = tiers[tier].step_ms, slots = step_ms / unit;
    json_open(w, '[');
    for (int64_t at = from_ms / step_ms * step_ms; at < to_ms; at += step_ms) {
        double v = mean_between(x, tier, at / unit, at / unit + slots - 1);
        if (isnan(v))
            continue;
        json_open(w, '[');
        json_put_i64(w, at);
        json_put_double(w, v);
        json_close(w, ']');
    }
    json_close(w, ']');
}

int series_query(const struct series_store *s, const char *name, int64_t from_ms, int64_t to_ms,
                 int64_t *step, struct json_writer *w, struct error *e) {
    char shown[64];
    int64_t step_ms = *step;
    const struct series *x = strmap_get(&s->by_name, name);
    if (!x)
        return error_set(e, ENOENT, "there is no series \"%s\"", str_printable(name, shown, sizeof shown));
    if (from_ms < 0 || to_ms <= from_ms || step_ms < 0)
        return error_set(
            e, EINVAL,
            "from, to and step must be a range of time in milliseconds: from %lld, to %lld, step %lld",
            (long long)from_ms, (long long)to_ms, (long long)step_ms);
    int tier = choose_tier(x, from_ms, step_ms);
    int64_t unit = tiers[tier].step_ms, least = (to_ms - from_ms) / SERIES_ANSWER_MAX + 1;
    if (step_ms < least)
        step_ms = least;
    step_ms = (step_ms + unit - 1) / unit * unit;
    put_points(x, tier, from_ms, to_ms, step_ms, w);
    *step = step_ms;
    return 0;
}

double series_mean(const struct series_store *s, const char *name, int64_t from_ms, int64_t to_ms) {
    const struct series *x = strmap_get(&s->by_name, name);
    if (!x || to_ms <= from_ms)
        return NAN;
    int tier = choose_tier(x, from_ms, 0);
    return mean_between(x, tier, from_ms / tiers[tier].step_ms, (to_ms - 1) / tiers[tier].step_ms);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct series *const *)a)->name, (*(const struct series *const *)b)->name);
}

void series_each(const struct series_store *s, const char *prefix, void (*fn)(void *ctx, const char *name), void *ctx) {
    if (!s->all.len)
        return;
    struct series **sorted = xmemdup(s->all.at, s->all.len * sizeof *sorted);
    qsort(sorted, s->all.len, sizeof *sorted, by_name);
    for (uint32_t i = 0; i < s->all.len; i++)
        if (str_has_prefix(sorted[i]->name, prefix))
            fn(ctx, sorted[i]->name);
    free(sorted);
}

// --- as bytes: per series its name and rings; per ring the newest slot, the running mean, and the
// values from old to new as differences of their bits, which are mostly small ---

enum { SAVE_VERSION = 1 };

static uint32_t bits_of(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

// Values that resemble each other differ in their low bits last: turned round, the varint is short.
static uint32_t turned(uint32_t v) {
    return __builtin_bswap32(v);
}

static void save_ring(const struct ring *r, int tier, struct buf *out) {
    schema_put_varint(out, r->newest < 0 ? 0 : (uint64_t)r->newest + 1);
    if (r->newest < 0)
        return;
    schema_put_varint(out, r->kept * 2ULL + r->lost);
    schema_put_varint(out, r->count);
    buf_add(out, &r->sum, sizeof r->sum);
    uint32_t last = 0;
    for (int64_t slot = r->newest - r->kept + 1; slot <= r->newest; slot++) {
        uint32_t b = bits_of(*cell(r, tier, slot));
        schema_put_varint(out, turned(b ^ last));
        last = b;
    }
}

static void save_from(const struct series_store *s, uint32_t first, uint32_t count, struct buf *out) {
    schema_put_varint(out, SAVE_VERSION);
    schema_put_varint(out, count);
    for (uint32_t i = first; i < first + count; i++) {
        const struct series *x = s->all.at[i];
        schema_put_varint(out, strlen(x->name));
        buf_adds(out, x->name);
        schema_put_varint(out, x->at_ms < 0 ? 0 : (uint64_t)x->at_ms + 1);
        for (int t = 0; t < SERIES_TIERS; t++)
            save_ring(&x->rings[t], t, out);
    }
}

void series_save(const struct series_store *s, struct buf *out) {
    save_from(s, 0, s->all.len, out);
}

const char *series_save_one(const struct series_store *s, uint32_t i, struct buf *out) {
    assert(i < s->all.len);
    save_from(s, i, 1, out);
    return s->all.at[i]->name;
}

bool series_has(const struct series_store *s, const char *name) {
    return strmap_get(&s->by_name, name) != NULL;
}

static int load_ring(struct ring *r, int tier, const uint8_t **p, const uint8_t *end) {
    uint64_t newest, kept, count, difference;
    if (schema_get_varint(p, end, &newest) < 0)
        return -EBADMSG;
    if (!newest)
        return 0;
    if (schema_get_varint(p, end, &kept) < 0)
        return -EBADMSG;
    r->lost = kept & 1;
    kept /= 2;
    // From a file: a count beyond the ring would write past its end.
    if (schema_get_varint(p, end, &count) < 0 || newest > INT64_MAX / 2 || !kept ||
        kept > tiers[tier].points || kept > newest || !count || count > UINT32_MAX ||
        (size_t)(end - *p) < sizeof r->sum)
        return -EBADMSG;
    double sum;
    memcpy(&sum, *p, sizeof sum);
    *p += sizeof sum;
    uint32_t last = 0;
    for (uint64_t i = 0; i < kept; i++) {
        if (schema_get_varint(p, end, &difference) < 0 || difference > UINT32_MAX)
            return -EBADMSG;
        last ^= turned((uint32_t)difference);
        memcpy(cell(r, tier, (int64_t)(newest - kept + i)), &last, sizeof last);
    }
    r->newest = (int64_t)newest - 1;
    r->kept = (uint32_t)kept;
    r->count = (uint32_t)count;
    r->sum = isfinite(sum) ? sum : 0;
    return 0;
}

static int load_one(struct series_store *s, const uint8_t **p, const uint8_t *end) {
    char name[SERIES_NAME_MAX + 1];
    uint64_t len, at;
    if (schema_get_varint(p, end, &len) < 0 || len > SERIES_NAME_MAX || (size_t)(end - *p) < len ||
        memchr(*p, 0, len))
        return -EBADMSG;
    memcpy(name, *p, len);
    name[len] = 0;
    *p += len;
    if (schema_get_varint(p, end, &at) < 0 || at > INT64_MAX || strmap_get(&s->by_name, name))
        return -EBADMSG;
    struct series *x = obtain(s, name, 0);
    assert(x);  // the caller stops at the limit
    x->at_ms = at ? (int64_t)at - 1 : INT64_MIN;
    for (int t = 0; t < SERIES_TIERS; t++)
        if (load_ring(&x->rings[t], t, p, end) < 0) {
            series_drop(s, name);
            return -EBADMSG;
        }
    return 0;
}

int series_load(struct series_store *s, const void *data, size_t len) {
    const uint8_t *p = data, *end = p + len;
    uint64_t version, count;
    if (schema_get_varint(&p, end, &version) < 0 || version != SAVE_VERSION ||
        schema_get_varint(&p, end, &count) < 0 || count > SERIES_MAX)
        return -EBADMSG;
    for (uint64_t i = 0; i < count && s->all.len < s->max; i++)
        if (load_one(s, &p, end) < 0)
            return -EBADMSG;
    return 0;
}
