// What a job wrote to a bucket and rclone has not sent: as rclone notes it, and when it is no longer waited for.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "box/box.h"

static void put(int folder, const char *path, const char *text) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *p = strchr(copy, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdirat(folder, copy, 0700);
        *p = '/';
    }
    cleanup_close int fd = openat(folder, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void what_is_not_sent_is_found(void **state) {
    cleanup_arena struct arena a = {0};
    char path[] = "/tmp/acequia-unsent.XXXXXX";
    struct box_unsent u;
    assert_non_null(mkdtemp(path));
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    box_unsent_look(fd, &a, &u);
    assert_int_equal(u.files, 0);
    put(fd, "vfsMeta/:s3{1}/models/v1/a", "{\"Size\": 7, \"Dirty\": true}");
    put(fd, "vfsMeta/:s3{1}/models/v1/b", "{\"Size\": 70, \"Dirty\": false}");
    put(fd, "vfsMeta/:s3{1}/models/v1/half", "{\"Size\": 70, \"Di");
    put(fd, "vfsMeta/:s3{1}/models/v1/negative", "{\"Size\": -70, \"Dirty\": true}");
    put(fd, "vfs/:s3{1}/models/v1/a", "1234567");
    assert_int_equal(symlinkat("/etc", fd, "vfsMeta/:s3{1}/models/etc"), 0);
    box_unsent_look(fd, &a, &u);
    assert_int_equal(u.files, 4);  // the link is none that rclone made, and counts as a file that cannot be read
    assert_int_equal(u.bytes, 7);
    bool found = false;
    for (uint32_t i = 0; i < u.names.len; i++)
        found |= strcmp(u.names.at[i], "models/v1/a") == 0;
    assert_true(found);
    box_remove("/tmp", path + strlen("/tmp/"));
}

static void who_sends_is_waited_for(void **state) {
    struct box_unsent u = {.files = 2, .bytes = 1 << 30};
    struct box_sending s;
    int64_t now_ms = 1000;
    uint64_t sent = 500;
    box_sending_begin(&s, &u, sent, now_ms);
    for (int i = 0; i < 1000; i++)  // hours, as long as something goes out
        assert_false(box_sending_stuck(&s, &u, sent += 1 << 20, now_ms += 60000));
    assert_false(box_sending_stuck(&s, &u, sent, now_ms + 80000));
    u.files = 1;
    assert_false(box_sending_stuck(&s, &u, sent, now_ms += 89000));
    assert_false(box_sending_stuck(&s, &u, sent + 1000, now_ms += 89000));
    assert_true(box_sending_stuck(&s, &u, sent + 2000, now_ms += 2000));  // questions alone
    // Sent again and again, and never there: refused when all of it has come.
    box_sending_begin(&s, &u, sent, now_ms);
    int rounds = 0;
    while (!box_sending_stuck(&s, &u, sent += 1 << 30, now_ms += 10000))
        assert_true(++rounds < 10);
    assert_int_equal(rounds, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_sent_is_found),
        cmocka_unit_test(who_sends_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
