// Prints what the exporters make of the example cluster: `metrics_show controller|agent|reference
// open|plain STEP NOW_MS`. The tests with Prometheus scrape it.
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "example.h"

int main(int argc, char **argv) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    uint64_t step = 1, now_ms = (uint64_t)clock_wall_ms();
    if (argc < 2 || (argc > 3 && parse_u64(argv[3], &step) < 0) || (argc > 4 && parse_u64(argv[4], &now_ms) < 0)) {
        fprintf(stderr, "usage: metrics_show controller|agent|reference [open|plain [STEP [NOW_MS]]]\n");
        return 2;
    }
    enum metrics_format format = argc > 2 && streq(argv[2], "plain") ? METRICS_PLAIN : METRICS_OPENMETRICS;
    if (streq(argv[1], "reference")) {
        metrics_reference_markdown(&out);
    } else if (streq(argv[1], "agent")) {
        struct metrics_agent_input in;
        example_agent(&a, step, (int64_t)now_ms, &in);
        in.format = format;
        metrics_agent(&in, &out);
    } else {
        struct metrics_input in;
        example_input(&a, step, (int64_t)now_ms, &in);
        in.format = format;
        metrics_controller(&in, &out);
    }
    return fwrite(out.data, 1, out.len, stdout) == out.len ? 0 : 1;
}
