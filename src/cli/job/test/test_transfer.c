// Copies of files and folders through a pipe, and streams that were made to do harm.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "cli/job/transfer.h"

static char folder[64];

static const char *in(const char *name) {
    static char paths[4][512];
    static int next;
    char *out = paths[next++ % 4];
    snprintf(out, sizeof paths[0], "%s/%s", folder, name);
    return out;
}

static int set_up(void **state) {
    snprintf(folder, sizeof folder, "/tmp/acequia-transfer-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(1);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

static void write_file(const char *name, const void *data, size_t len, mode_t mode) {
    int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_true(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    fchmod(fd, mode);
    close(fd);
}

static void assert_file(const char *name, const void *data, size_t len) {
    cleanup_buf struct buf b = {0};
    int fd = open(in(name), O_RDONLY | O_NOFOLLOW);
    assert_true(fd >= 0);
    ssize_t n;
    while ((n = read(fd, buf_reserve(&b, 65536), 65536)) > 0)
        b.len += (size_t)n;
    close(fd);
    assert_int_equal(b.len, len);
    assert_true(!len || !memcmp(b.data, data, len));
}

static int copy(const char *from, const char *to, bool recursive, struct error *e) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct job_transfer t = {.recursive = recursive};
        close(ends[0]);
        _exit(job_transfer_send(ends[1], from, &t, NULL) < 0);
    }
    close(ends[1]);
    struct job_transfer t = {.recursive = recursive};
    *e = (struct error){0};
    int r = job_transfer_receive(ends[0], to, &t, e);
    close(ends[0]);
    waitpid(pid, NULL, 0);
    return r;
}

static void files(void **state) {
    struct error e;
    size_t len = 1000000;
    char *data = malloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(i * 7 + i / 251);
    write_file("big", data, len, 0755);
    write_file("empty", "", 0, 0600);
    write_file("a b\nc", "x", 1, 0644);
    assert_int_equal(copy(in("big"), in("copy"), false, &e), 0);
    assert_file("copy", data, len);
    struct stat st;
    assert_true(stat(in("copy"), &st) == 0 && (st.st_mode & 0111));
    assert_int_equal(copy(in("empty"), in("copy"), false, &e), 0);  // replaces it
    assert_file("copy", "", 0);
    mkdir(in("into"), 0700);
    assert_int_equal(copy(in("a b\nc"), in("into"), false, &e), 0);
    assert_file("into/a b\nc", "x", 1);
    assert_true(copy(in("big"), in("nowhere/x"), false, &e) < 0);
    assert_true(copy(in("into"), in("x"), false, &e) < 0);  // a folder, not recursive
    free(data);
}

static void folders(void **state) {
    struct error e;
    struct stat st;
    char target[64] = "";
    mkdir(in("src"), 0755);
    mkdir(in("src/sub"), 0755);
    mkdir(in("src/sub/deep"), 0755);
    write_file("src/sub/deep/f", "deep", 4, 0644);
    write_file("src/top", "top", 3, 0644);
    assert_int_equal(symlink("../top", in("src/sub/up")), 0);
    assert_int_equal(symlink("/etc/passwd", in("src/absolute")), 0);
    assert_int_equal(symlink("../../outside", in("src/sub/out")), 0);
    assert_int_equal(symlink("sub/../..", in("src/around")), 0);
    mkfifo(in("src/pipe"), 0600);
    chmod(in("src/sub/deep"), 0555);
    assert_int_equal(copy(in("src"), in("dst"), true, &e), 0);
    assert_file("dst/sub/deep/f", "deep", 4);
    assert_file("dst/top", "top", 3);
    assert_true(stat(in("dst/sub/deep"), &st) == 0 && (st.st_mode & 0777) == 0555);
    assert_true(readlink(in("dst/sub/up"), target, sizeof target - 1) == 6 && !strcmp(target, "../top"));
    const char *const left_out[] = {"dst/absolute", "dst/sub/out", "dst/around", "dst/pipe"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        assert_true(lstat(in(left_out[i]), &st) < 0);
    assert_int_equal(copy(in("src"), in("dst"), true, &e), 0);  // into it
    assert_file("dst/src/top", "top", 3);
    chmod(in("src/sub/deep"), 0755);
    chmod(in("dst/sub/deep"), 0755);
    chmod(in("dst/src/sub/deep"), 0755);
}

// --- streams that somebody made ---

static void add_text(struct buf *b, const char *text, size_t len) {
    uint32_t n = (uint32_t)len;
    buf_add(b, &n, 4);
    buf_add(b, text, len);
}

static void begin(struct buf *b, const char *name) {
    buf_clear(b);
    buf_adds(b, "ACQCP1\n");
    add_text(b, name, strlen(name));
}

static void entry(struct buf *b, char type, const char *path) {
    uint32_t mode = 0755;
    buf_addc(b, type);
    buf_add(b, &mode, 4);
    add_text(b, path, strlen(path));
}

static void file(struct buf *b, const char *path, const char *text) {
    entry(b, 'F', path);
    add_text(b, text, strlen(text));
    add_text(b, "", 0);
}

static int receive(const struct buf *b, const char *to) {
    int ends[2];
    struct error e = {0};
    struct job_transfer t = {.recursive = true};
    assert_int_equal(pipe(ends), 0);
    assert_true(b->len < 60000 && write(ends[1], b->data, b->len) == (ssize_t)b->len);
    close(ends[1]);
    int r = job_transfer_receive(ends[0], to, &t, &e);
    close(ends[0]);
    assert_true(r == 0 || e.text[0]);
    return r;
}

static void say(void *ctx, const struct job_transfer *t) {
    assert_int_equal(write(*(int *)ctx, "x", 1), 1);
}

// Cancelled at any moment, a copy leaves nothing behind and what was there before as it was.
static void cancelled(void **state) {
    for (int named = 0; named <= 1; named++) {
        cleanup_buf struct buf b = {0};
        int ends[2], said[2], status;
        char ready;
        begin(&b, "file");
        entry(&b, 'F', "");
        assert_int_equal(mkdir(in("cancelled"), 0700), 0);
        write_file("cancelled/file", "old", 3, 0600);
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(pipe(said), 0);
        add_text(&b, "the first piece", 15);
        assert_int_equal(write(ends[1], b.data, b.len), (ssize_t)b.len);
        pid_t pid = fork();
        if (pid == 0) {
            struct error e = {0};
            struct job_transfer t = {.named = named, .progress = say, .ctx = &said[1]};
            job_transfer_receive(ends[0], in("cancelled"), &t, &e);
            _exit(0);
        }
        assert_int_equal(read(said[0], &ready, 1), 1);  // it has the piece, and waits for the next
        assert_int_equal(kill(pid, SIGTERM), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        assert_file("cancelled/file", "old", 3);
        assert_int_equal(unlink(in("cancelled/file")), 0);
        assert_int_equal(rmdir(in("cancelled")), 0);  // nothing else is in it
        for (int i = 0; i < 2; i++) {
            close(ends[i]);
            close(said[i]);
        }
    }
}

static void hostile(void **state) {
    cleanup_buf struct buf b = {0};
    struct stat st;
    mkdir(in("box"), 0755);
    write_file("victim", "mine", 4, 0644);
    static const char *const names[] = {"..", ".", "", "../victim", "a/b", "/etc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        begin(&b, names[i]);
        file(&b, "", "evil");
        buf_addc(&b, 'E');
        assert_true(receive(&b, in("box")) < 0);
    }
    static const char *const paths[] = {"../victim", "/etc/x", "a/../../victim", "./a", "a//b", "a/",
                                        "..",        "a/.."};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        begin(&b, "d");
        entry(&b, 'D', "");
        file(&b, paths[i], "evil");
        buf_addc(&b, 'E');
        assert_true(receive(&b, in("box")) < 0);
    }
    // Through a link that came before it, or that was there.
    begin(&b, "d2");
    entry(&b, 'D', "");
    entry(&b, 'L', "l");
    add_text(&b, "../..", 5);
    file(&b, "l/victim", "evil");
    buf_addc(&b, 'E');
    assert_true(receive(&b, in("box")) < 0);
    mkdir(in("box/d3"), 0755);
    assert_int_equal(symlink("../..", in("box/d3/l")), 0);
    begin(&b, "d3");
    entry(&b, 'D', "");
    file(&b, "l/victim", "evil");
    buf_addc(&b, 'E');
    assert_true(receive(&b, in("box")) < 0);
    // A link where a file goes is replaced, not written through.
    assert_int_equal(symlink(in("victim"), in("box/link")), 0);
    begin(&b, "link");
    file(&b, "", "new");
    buf_addc(&b, 'E');
    assert_int_equal(receive(&b, in("box")), 0);
    assert_file("box/link", "new", 3);
    assert_file("victim", "mine", 4);
    // Broken off, of another kind, without an end: nothing half is left.
    begin(&b, "part");
    entry(&b, 'F', "");
    add_text(&b, "half", 4);
    assert_true(receive(&b, in("box")) < 0);
    assert_true(stat(in("box/part"), &st) < 0);
    for (size_t len = b.len; len-- > 0;) {
        b.len = len;
        assert_true(receive(&b, in("box")) < 0);
    }
    begin(&b, "z");
    entry(&b, 'B', "");
    assert_true(receive(&b, in("box")) < 0);
    begin(&b, "set");
    entry(&b, 'F', "");
    b.data[b.len - 8 + 1] |= 0x0f;  // set-user and others among the permissions
    add_text(&b, "x", 1);
    add_text(&b, "", 0);
    buf_addc(&b, 'E');
    assert_int_equal(receive(&b, in("box")), 0);
    assert_true(stat(in("box/set"), &st) == 0 && !(st.st_mode & 07000));
}

static int receive_wanted(const char *wanted, const char *name, char type, const char *to) {
    cleanup_buf struct buf b = {0};
    int ends[2];
    struct error e = {0};
    struct job_transfer t = {.recursive = true, .wanted = wanted};
    begin(&b, name);
    if (type == 'F')
        file(&b, "", "evil");
    else
        entry(&b, 'D', "");
    buf_addc(&b, 'E');
    assert_int_equal(pipe(ends), 0);
    assert_true(write(ends[1], b.data, b.len) == (ssize_t)b.len);
    close(ends[1]);
    int r = job_transfer_receive(ends[0], to, &t, &e);
    close(ends[0]);
    return r;
}

static void another_name_than_asked_for(void **state) {
    struct stat st;
    mkdir(in("home"), 0755);
    mkdir(in("home/bin"), 0755);
    write_file("home/.bashrc", "mine", 4, 0644);
    static const char *const wanted[] = {"/data/result.txt", "result.txt", "result.txt//", ".", "..", "/", "a/.."};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_true(receive_wanted(wanted[i], ".bashrc", 'F', in("home")) < 0);
        assert_true(receive_wanted(wanted[i], ".ssh", 'D', in("home")) < 0);
        assert_true(receive_wanted(wanted[i], "bin", 'D', in("home")) < 0);
    }
    assert_file("home/.bashrc", "mine", 4);
    assert_true(stat(in("home/.ssh"), &st) < 0);
    // What was asked for comes, under the name given here also with another one.
    assert_int_equal(receive_wanted("/data/r", "r", 'F', in("home")), 0);
    assert_int_equal(receive_wanted("/data/.r/", ".r", 'D', in("home")), 0);
    assert_int_equal(receive_wanted(".", "work", 'D', in("home")), 0);
    assert_true(stat(in("home/work"), &st) == 0 && S_ISDIR(st.st_mode));
    assert_int_equal(receive_wanted(".", "work", 'D', in("home/other")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(files), cmocka_unit_test(folders),
                                       cmocka_unit_test(cancelled), cmocka_unit_test(hostile),
                                       cmocka_unit_test(another_name_than_asked_for)};
    return cmocka_run_group_tests_name("transfer", tests, set_up, tear_down);
}
