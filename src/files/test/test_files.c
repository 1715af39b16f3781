// Paths, pages, uploads and archives, without a process of their own: what would be sent is kept here.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files.h"
#include "zip.h"

static struct buf sent;
static char folder[] = "/tmp/acequia-files-XXXXXX";

void files_send(struct files *f, enum message_type type, const void *body) {
}

void files_data(struct files *f, const void *data, size_t len) {
    buf_add(&sent, data, len);
}

void files_working(struct files *f) {
}

// What other processes and other file systems do at the worst moment.
static void (*before_flock)(void);
static int copy_error;

int flock(int fd, int operation) {
    void (*then)(void) = before_flock;
    before_flock = NULL;
    if (then)
        then();
    return (int)syscall(SYS_flock, fd, operation);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags) {
    if (copy_error) {
        errno = copy_error;
        return -1;
    }
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
}

typedef int operation(struct files *, struct file_result *, struct error *);

// One request; its texts live until the next.
static int ask(operation *op, struct file_request q, struct file_result *r, struct error *e) {
    static struct files f;
    static struct file_order order;
    static struct file_request request;
    arena_done(&f.arena);
    request = q;
    order = (struct file_order){.uid = geteuid(), .home = folder, .request = &request};
    f = (struct files){.order = &order, .request = &request};
    *r = (struct file_result){0};
    *e = (struct error){0};
    buf_clear(&sent);
    return op(&f, r, e);
}

static void put_file(const char *name, const char *text) {
    cleanup_free char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char *content(const char *name) {
    static char text[1024];
    struct file_result r;
    struct error e;
    int rc = ask(files_read, (struct file_request){.path = name}, &r, &e);
    snprintf(text, sizeof text, "%s", rc < 0 ? e.text : buf_str(&sent));
    return text;
}

static int entries(const char *path) {
    struct file_result r;
    struct error e;
    return ask(files_list, (struct file_request){.path = path}, &r, &e) < 0 ? -e.code : (int)r.entries.len;
}

static int in_new_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/acequia-files-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int without_folder(void **state) {
    struct file_result r;
    struct error e;
    char path[sizeof folder];
    memcpy(path, folder, sizeof folder);
    snprintf(folder, sizeof folder, "/");  // a home is not removed
    return ask(files_remove, (struct file_request){.path = path, .recursive = true}, &r, &e);
}

static void test_names(void **state) {
    static const struct {
        const char *bytes, *text;
    } names[] = {{"plain", "plain"},     {"50%", "50%25"},      {"a\nb", "a%0Ab"},
                 {"\xff\xfe", "%FF%FE"}, {"cafè", "cafè"},      {"x\xe2\x80\xaegpj", "x%E2%80%AEgpj"},
                 {"\xc3", "%C3"},        {"a b+c&d", "a b+c&d"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cleanup_buf struct buf text = {0}, back = {0};
        file_name_write(names[i].bytes, strlen(names[i].bytes), &text);
        assert_string_equal(buf_str(&text), names[i].text);
        assert_int_equal(file_name_read(buf_str(&text), &back, NULL), 0);
        assert_string_equal(buf_str(&back), names[i].bytes);
    }
    static const char *const wrong[] = {"%", "%1", "%zz", "%00", "a%2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cleanup_buf struct buf back = {0};
        assert_true(file_name_read(wrong[i], &back, NULL) < 0);
    }
    assert_true(files_is_hidden("/home/x/.ssh/id"));
    assert_true(files_is_hidden("/home/x/.netrc"));
    assert_true(files_is_hidden("/home/x/...") && files_is_hidden("/a/..b"));
    assert_false(files_is_hidden("/home/x.y/a.b") || files_is_hidden("/home/../x/./y"));
}

static void test_pages(void **state) {
    struct file_result r;
    struct error e;
    for (char name[] = "a"; *name <= 'e'; ++*name)
        put_file(name, "x");
    put_file(".hidden", "x");
    assert_int_equal(entries(""), 6);
    assert_int_equal(ask(files_list, (struct file_request){.path = "~", .limit = 3}, &r, &e), 0);
    assert_true(r.space_bytes > 0 && r.space_free_bytes <= r.space_bytes);
    assert_int_equal(r.entries.len, 3);
    assert_string_equal(r.entries.at[0].name, ".hidden");
    assert_string_equal(r.next, "b");
    char *next = strdup(r.next);
    assert_int_equal(ask(files_list, (struct file_request){.path = "~", .limit = 3, .after = next}, &r, &e),
                     0);
    free(next);
    assert_int_equal(r.entries.len, 3);
    assert_string_equal(r.entries.at[2].name, "e");
    assert_null(r.next);
    assert_int_equal(ask(files_list, (struct file_request){.path = "~", .visible_only = true}, &r, &e), 0);
    assert_int_equal(r.entries.len, 5);
    assert_true(ask(files_read, (struct file_request){.path = ".hidden", .visible_only = true}, &r, &e) < 0);
    assert_int_equal(e.code, EPERM);
}

static void test_what_is_not_opened(void **state) {
    struct file_result r;
    struct error e;
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(symlink("/proc/self/environ", "proc"), 0);
    assert_int_equal(symlink("/proc/self/fd/0", "magic"), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
    static const struct {
        const char *path;
        int code;
    } refused[] = {{"pipe", ENOTSUP},
                   {"proc", EPERM},
                   {"magic", ELOOP},
                   {"loop", ELOOP},
                   {"/dev/null", ENOTSUP},
                   {"/proc/1/cmdline", EPERM},
                   {"/proc/self/root/etc/passwd", ELOOP},
                   {"/proc/self/cwd/x", ELOOP},
                   {"/sys/kernel/uevent_seqnum", EPERM},
                   {"", EISDIR}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_true(ask(files_read, (struct file_request){.path = refused[i].path}, &r, &e) < 0);
        // The link itself is magic only while what it leads to can be named.
        if (!(streq(refused[i].path, "magic") && e.code != ELOOP))
            assert_int_equal(e.code, refused[i].code);
    }
    struct file_request write = {.path = "pipe", .upload = "whole", .data = {"x", 1}, .size = 1};
    assert_true(ask(files_write, write, &r, &e) < 0);
    assert_int_equal(e.code, ENOTSUP);
    assert_int_equal(entries(""), 4);  // nothing partial is left
}

static void test_upload_in_pieces(void **state) {
    struct file_result r;
    struct error e;
    struct file_request q = {.path = "big", .upload = "u1", .data = {"hello ", 6}, .size = 11};
    assert_int_equal(ask(files_write, q, &r, &e), 0);
    assert_int_equal(r.offset, 6);
    assert_false(r.complete);
    assert_int_equal(entries("big"), -ENOENT);
    // The same piece once more, as after a lost answer; then an empty one asks where it stands.
    assert_true(ask(files_write, q, &r, &e) < 0);
    assert_int_equal(e.code, ESPIPE);
    q.data = (struct bytes){0};
    assert_int_equal(ask(files_write, q, &r, &e), 0);
    assert_int_equal(r.offset, 6);
    // Another upload of the same name is another file.
    struct file_request other = {.path = "big", .upload = "u2", .data = {"OTHER", 5}, .size = 9};
    assert_int_equal(ask(files_write, other, &r, &e), 0);
    q.data = (struct bytes){"world", 5};
    q.offset = 6;
    assert_int_equal(ask(files_write, q, &r, &e), 0);
    assert_true(r.complete);
    assert_string_equal(content("big"), "hello world");
    assert_int_equal(entries(""), 2);  // and the partial file of the other
    q.data.len = 6;
    assert_true(ask(files_write, q, &r, &e) < 0);  // beyond the end
}

static void test_upload_is_locked_and_swept(void **state) {
    struct file_result r;
    struct error e;
    char name[FILES_NAME_MAX];
    cleanup_free char *path = NULL;
    struct file_request q = {.path = "f", .upload = "u", .data = {"ab", 2}, .size = 4};
    assert_int_equal(ask(files_write, q, &r, &e), 0);
    files_upload_name("f", "u", 4, name);
    assert_true(files_upload_is_partial(name));
    assert_false(files_upload_is_partial(".acequia-upload-short"));
    assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
    int fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    q.offset = 2;
    assert_true(ask(files_write, q, &r, &e) < 0);
    assert_int_equal(e.code, EBUSY);
    close(fd);
    struct timespec old[2] = {{.tv_sec = time(NULL) - (FILE_UPLOAD_DAYS + 1) * 86400}};
    old[1] = old[0];
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    struct file_request another = {.path = "g", .upload = "whole", .data = {"x", 1}, .size = 1};
    assert_int_equal(ask(files_write, another, &r, &e), 0);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_replace(void **state) {
    struct file_result r;
    struct error e;
    assert_int_equal(chdir(folder), 0);
    put_file("target", "one");
    assert_int_equal(chmod("target", 0640), 0);
    assert_int_equal(symlink("target", "link"), 0);
    assert_int_equal(ask(files_list, (struct file_request){.path = "target"}, &r, &e), 0);
    char *version = strdup(r.entry->version);
    struct file_request q = {
        .path = "link", .upload = "whole", .data = {"second", 6}, .size = 6, .match = version};
    assert_int_equal(ask(files_write, q, &r, &e), 0);
    struct stat st;
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));  // the file was replaced, not the link
    assert_int_equal(lstat("target", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_string_equal(content("target"), "second");
    assert_true(ask(files_write, q, &r, &e) < 0);  // the version is of before
    assert_int_equal(e.code, ESTALE);
    free(version);
    q.match = NULL;
    q.create = true;
    assert_true(ask(files_write, q, &r, &e) < 0);
    assert_int_equal(e.code, EEXIST);
    assert_string_equal(content("target"), "second");
    assert_int_equal(entries(""), 2);
}

static void test_move_copy_remove(void **state) {
    struct file_result r;
    struct error e;
    assert_int_equal(chdir(folder), 0);
    put_file("a", "content");
    put_file("outside", "stays");
    struct file_request mkdir_ = {.path = "x/y/z", .recursive = true};
    assert_int_equal(ask(files_make_folder, mkdir_, &r, &e), 0);
    assert_int_equal(ask(files_make_folder, mkdir_, &r, &e), 0);  // as mkdir -p
    mkdir_.recursive = false;
    assert_true(ask(files_make_folder, mkdir_, &r, &e) < 0);
    assert_int_equal(e.code, EEXIST);
    assert_true(ask(files_make_folder, (struct file_request){.path = "a", .recursive = true}, &r, &e) < 0);
    assert_int_equal(e.code, EEXIST);  // a file
    assert_int_equal(ask(files_copy, (struct file_request){.path = "a", .to = "x/b", .create = true}, &r, &e),
                     0);
    assert_string_equal(content("x/b"), "content");
    assert_true(ask(files_copy, (struct file_request){.path = "a", .to = "x/b", .create = true}, &r, &e) < 0);
    assert_int_equal(e.code, EEXIST);
    assert_int_equal(
        ask(files_move, (struct file_request){.path = "a", .to = "x/y/c", .create = true}, &r, &e), 0);
    assert_string_equal(content("x/y/c"), "content");
    assert_int_equal(symlink("../outside", "x/link"), 0);
    assert_int_equal(symlink("..", "x/up"), 0);
    assert_true(ask(files_remove, (struct file_request){.path = "x"}, &r, &e) < 0);
    assert_int_equal(e.code, ENOTEMPTY);
    assert_int_equal(ask(files_remove, (struct file_request){.path = "x", .recursive = true}, &r, &e), 0);
    assert_string_equal(content("outside"), "stays");
    assert_int_equal(entries(""), 1);
    static const char *const no_name[] = {"/", ".", "x/..", "", "~", "~/"};
    for (size_t i = 0; i < sizeof no_name / sizeof *no_name; i++)
        assert_true(ask(files_remove, (struct file_request){.path = no_name[i], .recursive = true}, &r, &e) <
                    0);
}

static void finish_the_other_upload(void) {
    cleanup_free char *partial = NULL, *target = NULL;
    char name[FILES_NAME_MAX];
    files_upload_name("f", "whole", 3, name);
    assert_true(asprintf(&partial, "%s/%s", folder, name) > 0 && asprintf(&target, "%s/f", folder) > 0);
    put_file(name, "one");
    assert_int_equal(rename(partial, target), 0);
}

// The file that is open for a second upload may become the target of the first one before it is locked.
static void test_upload_does_not_write_into_its_target(void **state) {
    struct file_result r;
    struct error e;
    struct file_request q = {.path = "f", .upload = "whole", .size = 3, .data = {"two", 3}};
    before_flock = finish_the_other_upload;
    assert_int_equal(ask(files_write, q, &r, &e), -EBUSY);
    assert_string_equal(content("f"), "one");
    assert_int_equal(ask(files_write, q, &r, &e), 0);
    assert_string_equal(content("f"), "two");
    assert_int_equal(entries(""), 1);
}

static void test_copy_between_file_systems(void **state) {
    static const int errors[] = {EXDEV, EOPNOTSUPP, ENOSYS, EINVAL};
    struct file_result r;
    struct error e;
    size_t len = 3 * FILES_BLOCK + 7;
    char *text = malloc(len + 1);
    for (size_t i = 0; i < len; i++)
        text[i] = (char)('a' + i % 26 + i / FILES_BLOCK);
    text[len] = 0;
    put_file("from", text);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        copy_error = errors[i];
        assert_int_equal(ask(files_copy, (struct file_request){.path = "from", .to = "to"}, &r, &e), 0);
        assert_int_equal(ask(files_read, (struct file_request){.path = "to"}, &r, &e), 0);
        assert_int_equal(sent.len, len);
        assert_memory_equal(sent.data, text, len);
    }
    copy_error = ENOSPC;
    assert_int_equal(ask(files_copy, (struct file_request){.path = "from", .to = "to"}, &r, &e), -ENOSPC);
    assert_non_null(strstr(e.text, "no space is left"));
    copy_error = EDQUOT;
    assert_int_equal(ask(files_copy, (struct file_request){.path = "from", .to = "to"}, &r, &e), -EDQUOT);
    assert_non_null(strstr(e.text, "your disk quota is used up"));
    copy_error = 0;
    free(text);
}

// What a copy that was killed has left is in nobody's way, and two at once do not mix.
static void test_copy_of_a_folder_again(void **state) {
    struct file_result r;
    struct error e;
    char partial[FILES_NAME_MAX], path[512];
    assert_int_equal(
        ask(files_make_folder, (struct file_request){.path = "tree/in", .recursive = true}, &r, &e), 0);
    put_file("tree/in/file", "text");
    files_upload_name("again", "copy", 0, partial);
    snprintf(path, sizeof path, "%s/%s", folder, partial);
    assert_int_equal(mkdir(path, 0700), 0);
    int held = open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(held, LOCK_EX), 0);
    struct file_request q = {.path = "tree", .to = "again"};
    assert_int_equal(ask(files_copy, q, &r, &e), -EBUSY);
    close(held);
    snprintf(path, sizeof path, "%s/left", partial);
    put_file(path, "by one that was killed");
    assert_int_equal(ask(files_copy, q, &r, &e), 0);
    assert_int_equal(ask(files_read, (struct file_request){.path = "again/in/file"}, &r, &e), 0);
    assert_memory_equal(sent.data, "text", 4);
    assert_int_equal(ask(files_read, (struct file_request){.path = "again/left"}, &r, &e), -ENOENT);
    copy_error = EDQUOT;
    q.to = "third";
    assert_int_equal(ask(files_copy, q, &r, &e), -EDQUOT);
    copy_error = 0;
    assert_int_equal(ask(files_list, (struct file_request){.path = "third"}, &r, &e), -ENOENT);
}

// An agent that was started with a low priority serves files too, and no faster than that.
static void test_priority_only_falls(void **state) {
    struct file_order order = {.uid = geteuid(), .gid = getegid(), .home = folder};
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct error e = {0};
        setpriority(PRIO_PROCESS, 0, 10);
        int rc = files_become(&order, &e);
        _exit(rc < 0 ? 100 : getpriority(PRIO_PROCESS, 0));
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 10);
}

static void test_ranges(void **state) {
    struct file_result r;
    struct error e;
    put_file("f", "0123456789");
    assert_int_equal(ask(files_read, (struct file_request){.path = "f", .offset = 3, .length = 4}, &r, &e),
                     0);
    assert_string_equal(buf_str(&sent), "3456");
    assert_int_equal(ask(files_read, (struct file_request){.path = "f", .last = 2}, &r, &e), 0);
    assert_string_equal(buf_str(&sent), "89");
    assert_int_equal(ask(files_read, (struct file_request){.path = "f", .offset = 8, .match = "old"}, &r, &e),
                     0);
    assert_int_equal(r.length, 10);  // of another version: all of it
    assert_true(ask(files_read, (struct file_request){.path = "f", .offset = 11}, &r, &e) < 0);
    assert_int_equal(e.code, ERANGE);
}

static void keep(void *ctx, const void *data, size_t len) {
    buf_add(ctx, data, len);
}

static uint32_t number(const struct buf *b, size_t at) {
    uint32_t v;
    memcpy(&v, b->data + at, sizeof v);
    return v;
}

// Its structure; that other programs read it is shown in tests/journeys/test_files.py.
static void test_zip(void **state) {
    cleanup_buf struct buf out = {0};
    struct zip z = {.put = keep, .ctx = &out};
    files_zip_begin(&z, "a/", 040755, 1700000000);
    files_zip_end(&z);
    files_zip_begin(&z, "a/b", 0100644, 1700000000);
    files_zip_data(&z, "1234", 4);
    files_zip_data(&z, "56789", 5);
    files_zip_end(&z);
    uint64_t second = z.file_at;
    files_zip_finish(&z);
    assert_int_equal(number(&out, 0), 0x04034b50);
    assert_int_equal(number(&out, second), 0x04034b50);
    const char *descriptor = memmem(out.data + second, out.len - second, "PK\7\10", 4);
    assert_non_null(descriptor);
    assert_int_equal(number(&out, (size_t)(descriptor - out.data) + 4),
                     0xcbf43926);  // the check value of CRC-32
    const char *central = memmem(out.data, out.len, "PK\1\2", 4), *entry = central ? central + 4 : NULL;
    entry = entry ? memmem(entry, out.len - (size_t)(entry - out.data), "PK\1\2", 4) : NULL;
    assert_non_null(
        entry);  // of the second, with the same value: programs that list do not read the descriptor
    assert_int_equal(number(&out, (size_t)(entry - out.data) + 16), 0xcbf43926);
    assert_int_equal(number(&out, out.len - 22), 0x06054b50);
    assert_int_equal(number(&out, out.len - 42), 0x07064b50);
}

int main(void) {
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, in_new_folder, without_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        IN_FOLDER(test_pages),
        IN_FOLDER(test_what_is_not_opened),
        IN_FOLDER(test_upload_in_pieces),
        IN_FOLDER(test_upload_is_locked_and_swept),
        IN_FOLDER(test_replace),
        IN_FOLDER(test_move_copy_remove),
        IN_FOLDER(test_ranges),
        IN_FOLDER(test_upload_does_not_write_into_its_target),
        IN_FOLDER(test_copy_between_file_systems),
        IN_FOLDER(test_copy_of_a_folder_again),
        cmocka_unit_test(test_priority_only_falls),
        cmocka_unit_test(test_zip),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buf_done(&sent);
    return failed;
}
