// Fuzz target: launch requests as read from the spool folder. What is accepted encodes to the same
// bytes again.
#include <assert.h>
#include <string.h>

#include "driver.h"
#include "launch/launch.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("AAQ1"),
    {0},
};

// The seeds of the driver are texts; requests are not. So the input is also laid over a real one.
static void overlay(const uint8_t *data, size_t size) {
    char sh[] = "/bin/sh", c[] = "-c", text[] = "echo", var[] = "A=b";
    char *argv[] = {sh, c, text, NULL}, *env[] = {var, NULL};
    uint32_t cpus[] = {0, 1}, groups[] = {1, 2};
    struct launch_device denied = {.major = 195, .minor = 1};
    struct launch_rlimit limit = {.resource = 7, .soft = 10, .hard = 20};
    struct launch_process tasks[2] = {{.rank = 0, .env = env, .nenv = 1}, {.rank = 1, .out = "/o"}};
    struct launch_request r = {
        .job = 1,
        .attempt = 1,
        .argv = argv,
        .argc = 3,
        .env = env,
        .nenv = 1,
        .tasks = tasks,
        .ntasks = 2,
        .cpus = cpus,
        .ncpus = 2,
        .groups = groups,
        .ngroups = 2,
        .cwd = "/",
        .denied = &denied,
        .ndenied = 1,
        .rlimits = &limit,
        .nrlimits = 1,
    };
    cleanup_buf struct buf b = {0};
    cleanup_arena struct arena a = {0};
    struct launch_request back;
    launch_encode(&r, &b);
    for (size_t i = 0; i + 1 < size; i += 2)  // position, value
        b.data[data[i] * b.len / 256] = (char)data[i + 1];
    launch_decode(b.data, b.len, &a, &back, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    struct launch_request r;
    struct error e = {0};
    if (launch_decode((const char *)data, size, &a, &r, &e) == 0) {
        cleanup_buf struct buf again = {0};
        launch_encode(&r, &again);
        assert(again.len == size && memcmp(again.data, data, size) == 0);
    } else {
        assert(e.text[0]);
    }
    overlay(data, size);
    return 0;
}
