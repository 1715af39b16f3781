// See the header. Sizes are powers of two: the rate between two of them differs by less than a measurement can tell.
#include "tuner.h"

#include <string.h>

static const double worth = 0.98;  // a larger batch must be faster by so much: it costs memory and waiting
static const double long_batch_us = 4e6;

static unsigned class_of(uint32_t size) {
    unsigned c = 0;
    while (size > 1 && c + 1 < DATA_TUNER_CLASSES) {
        size /= 2;
        c++;
    }
    return c;
}

static uint32_t power_below(uint32_t n) {
    return 1u << class_of(n ? n : 1);
}

void data_tuner_init(struct data_tuner *t, uint32_t fixed, uint32_t max, uint32_t replicas) {
    *t = (struct data_tuner){.fixed = fixed != 0, .settled = fixed != 0, .samples_wanted = 2 * replicas + 1};
    t->max = fixed ? fixed : power_below(max);
    t->size = fixed ? fixed : t->max < DATA_TUNER_FIRST ? t->max : DATA_TUNER_FIRST;
}

// The first size is left upwards; when the next one is not faster, downwards from where it began.
static void decide(struct data_tuner *t) {
    unsigned c = class_of(t->size);
    double here = t->classes[c].row_us;
    double smaller = c && t->classes[c - 1].count ? t->classes[c - 1].row_us : 0;
    double larger = c + 1 < DATA_TUNER_CLASSES && t->classes[c + 1].count ? t->classes[c + 1].row_us : 0;
    if (!t->down) {
        bool pays = !smaller || here < smaller * worth;
        if (pays && t->size * 2 <= t->max && here * t->size * 2 < long_batch_us) {
            t->climbed |= smaller != 0;
            t->size *= 2;
            return;
        }
        if (!pays) {
            t->size /= 2;
            c--;
        }
        if (t->climbed || (smaller && pays)) {
            t->settled = true;
            return;
        }
        t->down = true;
        if (t->size > 1)
            t->size /= 2;
        else
            t->settled = true;
        return;
    }
    if (larger && here > larger * (2 - worth)) {  // a smaller one may be slower by as little
        t->size *= 2;
        t->settled = true;
    } else if (t->size > 1 && here < larger * worth) {
        t->size /= 2;
    } else {
        t->settled = true;
        if (here >= larger)
            t->size *= 2;
    }
}

void data_tuner_report(struct data_tuner *t, uint32_t rows, double us) {
    if (t->settled || rows != t->size)
        return;
    unsigned c = class_of(rows);
    t->classes[c].count++;
    t->classes[c].row_us += (us / rows - t->classes[c].row_us) / t->classes[c].count;
    if (t->classes[c].count >= t->samples_wanted)
        decide(t);
}

void data_tuner_too_large(struct data_tuner *t, uint32_t rows) {
    uint32_t half = rows > 1 ? power_below(rows / 2) : 1;
    if (half < t->max)
        t->max = half;
    if (t->size > t->max) {
        t->size = t->max;
        t->settled = true;
    }
}
