// See the header.
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

enum { LINE_EVERY_MS = 10000, RATE_OVER_MS = 5000 };

void data_progress_begin(struct data_progress *p, bool on, int64_t now_ms) {
    *p = (struct data_progress){.on = on, .terminal = isatty(2), .begun_ms = now_ms, .rate_ms = now_ms, .stage = ""};
}

void data_progress_clear(struct data_progress *p) {
    if (p->on && p->terminal && p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}

static void duration(struct buf *b, double seconds) {
    if (seconds < 100)
        buf_addf(b, "%.0f s", seconds);
    else if (seconds < 6000)
        buf_addf(b, "%.0f min", seconds / 60);
    else
        buf_addf(b, "%.1f h", seconds / 3600);
}

// What everything else waits for.
static void limit(const struct data_progress *p, struct buf *b) {
    if (p->working > 0.8)
        buf_addf(b, ", limited by %s", p->stage);
    else if (p->loading > 0.8)
        buf_adds(b, ", limited by decoding");
    else if (p->loading > p->working)
        buf_adds(b, ", limited by reading");
}

void data_progress_show(struct data_progress *p, int64_t now_ms, bool last) {
    if (!p->on || (last && p->listed && !p->items_found))  // what was wrong with the inputs is said
        return;
    int percent = p->items_found ? (int)(100 * p->items_done / p->items_found) : p->listed ? 100 : 0;
    if (now_ms - p->rate_ms >= RATE_OVER_MS || (now_ms > p->rate_ms && !p->rate)) {
        p->rate = (double)(p->rows - p->rate_rows) * 1000 / (double)(now_ms - p->rate_ms);
        p->rate_ms = now_ms;
        p->rate_rows = p->rows;
    }
    bool due = p->terminal || last || now_ms - p->shown_ms >= LINE_EVERY_MS ||
               (p->listed && percent / 10 > p->shown_percent / 10);
    if (!due)
        return;
    struct buf cleanup_buf b = {0};
    double span = (double)(now_ms - p->begun_ms) / 1000;
    if (p->listed)
        buf_addf(&b, "%d%%  ", percent);
    buf_addf(&b, "%llu of %llu%s inputs, %llu rows, %.1f rows/s", (unsigned long long)p->items_done,
             (unsigned long long)p->items_found, p->listed ? "" : " found so far",
             (unsigned long long)p->rows, last && span > 0 ? (double)p->rows / span : p->rate);
    if (p->failures)
        buf_addf(&b, ", %llu left out", (unsigned long long)p->failures);
    if (last) {
        buf_adds(&b, ", ");
        duration(&b, span);
    } else {
        if (p->listed && p->items_done && p->items_done < p->items_found) {
            buf_adds(&b, ", ready in ");
            duration(&b, span / (double)p->items_done * (double)(p->items_found - p->items_done));
        }
        limit(p, &b);
    }
    data_progress_clear(p);
    fputs(buf_str(&b), stderr);
    if (!p->terminal || last)
        fputc('\n', stderr);
    fflush(stderr);
    p->shown = p->terminal && !last;
    p->shown_ms = now_ms;
    p->shown_percent = percent;
}
