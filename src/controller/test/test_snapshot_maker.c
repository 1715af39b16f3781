// Snapshots made by another process: what the controller makes of its ends, and that what it writes is the state. The
// process here is a script that writes what a test wants; the maker's own main runs in a forked child.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../snapshot_maker.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "controller/daemon.h"
#include "rig.h"

enum { DATA_AT = 4096, WAIT_MAX_MS = 60000, MAKER_FD = 3 };

struct bench {
    struct rig r;
    char folder[64], program[96], made[96];
};

static void write_file(const char *path, const void *data, size_t len, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void open_bench(struct bench *b) {
    rig_open(&b->r);
    snprintf(b->folder, sizeof b->folder, "/tmp/acequia-maker-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    snprintf(b->program, sizeof b->program, "%s/maker", b->folder);
    snprintf(b->made, sizeof b->made, "%s/made", b->folder);
    b->r.c.program = b->program;
    for (int i = 0; i < 3; i++)
        fake_expect(rig_call(&b->r, &fake_alice, "POST", "/v1/jobs",
                             "{\"spec\":{\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true}}"),
                    201, NULL);
}

static void close_bench(struct bench *b) {
    rig_close(&b->r);
    rig_remove_folder(b->folder);
}

static void script(struct bench *b, const char *text) {
    cleanup_buf struct buf s = {0};
    buf_addf(&s, "#!/bin/sh\n%s\n", text);
    write_file(b->program, s.data, s.len, 0700);
}

// The script writes the file `made` into the shared memory; this is what a maker would write.
static void make(struct bench *b, const char *magic, uint64_t seq, bool whole) {
    cleanup_buf struct buf state = {0}, file = {0}, text = {0};
    core_snapshot(b->r.c.core, &state);
    uint64_t len = state.len;
    buf_add(&file, magic, 8);
    buf_add(&file, &seq, sizeof seq);
    buf_add(&file, &len, sizeof len);
    buf_fill(&file, 0, DATA_AT - file.len);
    buf_add(&file, state.data, whole ? state.len : state.len / 2);
    write_file(b->made, file.data, file.len, 0600);
    buf_addf(&text, "cat %s >&3", b->made);
    script(b, buf_str(&text));
}

// Starts it and lets the controller look until it has ended. True: the store has a new snapshot.
static bool run(struct bench *b) {
    uint64_t before = sim_disk_snapshot(b->r.disk);
    assert_int_equal(controller_snapshot_start(&b->r.c), 0);
    assert_int_equal(controller_snapshot_start(&b->r.c), -EBUSY);  // one at a time
    int waited = 0;
    while (controller_snapshot_tick(&b->r.c) && waited++ < WAIT_MAX_MS)
        usleep(1000);
    assert_true(waited < WAIT_MAX_MS);
    rig_settle(&b->r);
    return sim_disk_snapshot(b->r.disk) > before;
}

static void what_a_maker_wrote_is_kept(void **state) {
    struct bench b;
    open_bench(&b);
    make(&b, "AQMADE1", core_seq(b.r.c.core), true);
    assert_true(run(&b));
    close_bench(&b);
}

static void what_is_not_a_snapshot_is_not_kept(void **state) {
    struct bench b;
    open_bench(&b);
    uint64_t seq = core_seq(b.r.c.core);
    make(&b, "AQMADE2", seq, true);
    assert_false(run(&b));
    make(&b, "AQMADE1", 0, true);
    assert_false(run(&b));
    make(&b, "AQMADE1", seq + 1, true);  // of a state that this controller never had
    assert_false(run(&b));
    make(&b, "AQMADE1", seq, false);  // shorter than it says
    assert_false(run(&b));
    make(&b, "AQMADE1", seq, true);  // and after all that it works
    assert_true(run(&b));
    close_bench(&b);
}

static void a_maker_that_fails_changes_nothing(void **state) {
    struct bench b;
    open_bench(&b);
    make(&b, "AQMADE1", core_seq(b.r.c.core), true);
    cleanup_buf struct buf text = {0};
    buf_addf(&text, "cat %s >&3; exit 3", b.made);
    script(&b, buf_str(&text));
    assert_false(run(&b));
    script(&b, "kill -9 $$");
    assert_false(run(&b));
    script(&b, "");
    assert_false(run(&b));
    b.r.c.program = "/nonexistent/acequiad";
    assert_true(controller_snapshot_start(&b.r.c) < 0);
    assert_false(controller_snapshot_tick(&b.r.c));
    close_bench(&b);
}

static void one_under_way_ends_with_the_controller(void **state) {
    struct bench b;
    open_bench(&b);
    script(&b, "exec sleep 600");
    assert_int_equal(controller_snapshot_start(&b.r.c), 0);
    assert_true(controller_snapshot_tick(&b.r.c));
    controller_snapshot_stop(&b.r.c);
    assert_false(controller_snapshot_tick(&b.r.c));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);  // no child is left
    close_bench(&b);
}

// The maker's side: a store's journal becomes the snapshot of the same state.
static void the_makers_snapshot_is_the_state(void **state) {
    struct rig r;
    struct error e = {0};
    char folder[] = "/tmp/acequia-maker-XXXXXX";
    assert_non_null(mkdtemp(folder));
    rig_open_on(&r, folder);
    for (int i = 0; i < 3; i++)
        fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                             "{\"spec\":{\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true}}"),
                    201, NULL);
    int fd = memfd_create("made", 0), status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {"make-snapshot", folder, folder, NULL};
        dup2(fd, MAKER_FD);
        log_set_level(LOG_ERROR);
        _exit(controller_snapshot_main(3, argv));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    uint64_t head[3];
    assert_int_equal(pread(fd, head, sizeof head, 0), sizeof head);
    assert_memory_equal(head, "AQMADE1", 8);
    assert_int_equal(head[1], core_seq(r.c.core));
    cleanup_free char *data = malloc(head[2]);
    assert_int_equal(pread(fd, data, head[2], DATA_AT), head[2]);
    cleanup_buf struct buf own = {0};
    core_snapshot(r.c.core, &own);
    struct core_config config;
    core_config_default(&config);
    struct core *copy = core_new(&config);
    assert_int_equal(core_load_snapshot(copy, head[1], data, head[2], &e), 0);
    cleanup_buf struct buf again = {0};
    core_snapshot(copy, &again);
    assert_int_equal(again.len, own.len);
    assert_memory_equal(again.data, own.data, own.len);
    core_free(copy);
    close(fd);
    rig_close(&r);
    rig_remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_maker_wrote_is_kept),
        cmocka_unit_test(what_is_not_a_snapshot_is_not_kept),
        cmocka_unit_test(a_maker_that_fails_changes_nothing),
        cmocka_unit_test(one_under_way_ends_with_the_controller),
        cmocka_unit_test(the_makers_snapshot_is_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
