// acequia backup, restore and check as processes of their own, beside a running controller or without one. A backup can
// hold the key of secrets, encrypted with a passphrase: without the key it does not open them.
#include <argon2.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backup_messages.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/vec.h"
#include "controller/daemon.h"
#include "database_seen.h"
#include "core/core.h"
#include "model/feature.h"
#include "model/paths.h"
#include "model/units.h"
#include "net/aead.h"
#include "snapshot_maker.h"
#include "store/store.h"

enum {
    SALT_BYTES = 16,
    KEY_TIME_COST = 3,
    KEY_MEMORY_KIB = 64 << 10,
    PASSPHRASE_MAX = 1024,
    PERCENT_STEP = 5,
    ANSWER_FILES_MAX = 500
};
static const char key_value[] = "secret-key", key_context[] = "key of secrets in a backup";

struct backup_run {
    const char *folder, *file, *keys;
    int passphrase_fd;  // -1: the key of secrets is left out
    bool json, quiet;
    struct core *core;
    struct store_contents contents;
    int shown;  // percent
};

// --- options: they come from the command line client, which has checked them ---

static int read_arguments(struct backup_run *b, int argc, char **argv) {
    uint32_t fd = UINT32_MAX;
    int r = 0;
    *b = (struct backup_run){.shown = -1};
    for (int i = 1; i < argc; i++) {
        const char *eq = strchr(argv[i], '=');
        size_t n = eq ? (size_t)(eq - argv[i]) : strlen(argv[i]);
        if (eq && strncmp(argv[i], "folder", n) == 0)
            b->folder = eq + 1;
        else if (eq && strncmp(argv[i], "file", n) == 0)
            b->file = eq + 1;
        else if (eq && strncmp(argv[i], "keys", n) == 0)
            b->keys = eq + 1;
        else if (eq && strncmp(argv[i], "passphrase", n) == 0)
            r = parse_u32(eq + 1, &fd);
        else if (streq(argv[i], "json"))
            b->json = true;
        else if (streq(argv[i], "quiet"))
            b->quiet = true;
        else
            return -EINVAL;
    }
    b->passphrase_fd = (int)fd;
    return r == 0 && (b->folder || b->file) ? 0 : -EINVAL;
}

static int fail(const struct error *e) {
    fprintf(stderr, "acequia: %s\n", e->text);
    return 1;
}

// --- loading, as the controller would ---

static int load_snapshot(void *ctx, uint64_t seq, const void *data, size_t len) {
    struct backup_run *b = ctx;
    return core_load_snapshot(b->core, seq, data, len, NULL);
}

static int load_event(void *ctx, const struct store_event *e) {
    struct backup_run *b = ctx;
    return core_replay(b->core, e->seq, e->at_ms, (enum event_type)e->type, e->data, e->len);
}

static struct store_loader loader_of(struct backup_run *b) {
    struct core_config config;
    core_config_default(&config);  // the state does not depend on it
    b->core = core_new(&config);
    return (struct store_loader){b, load_snapshot, load_event};
}

// --- the key of secrets ---

static int passphrase_key(const struct backup_run *b, const uint8_t salt[static SALT_BYTES],
                          struct aead_key *out, struct error *e) {
    char text[PASSPHRASE_MAX];
    ssize_t n = pread(b->passphrase_fd, text, sizeof text, 0);
    if (n <= 0)
        return error_set(e, EINVAL, "the passphrase is empty");
    int r = argon2id_hash_raw(KEY_TIME_COST, KEY_MEMORY_KIB, 1, text, (size_t)n, salt, SALT_BYTES, out->bytes,
                              sizeof out->bytes);
    explicit_bzero(text, sizeof text);
    return r == ARGON2_OK ? 0
                          : error_set(e, EIO, "the passphrase cannot be used: %s", argon2_error_message(r));
}

static char *key_path(const struct backup_run *b) {
    return xasprintf("%s/secret.key", b->keys);
}

static int add_key(void *ctx, const char *file, struct error *e) {
    const struct backup_run *b = ctx;
    cleanup_free char *path = key_path(b);
    uint8_t secret[AEAD_KEY_BYTES], salt[SALT_BYTES];
    struct aead_key key;
    cleanup_buf struct buf value = {0};
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return error_set(e, ENOENT, "there is no key of secrets (%s): leave --secret-key out", path);
    if (fd < 0 || read(fd, secret, sizeof secret) != (ssize_t)sizeof secret)
        return error_set(e, fd < 0 ? errno : EBADMSG, "the key of secrets %s cannot be read", path);
    if (rand_secret(salt, sizeof salt) < 0)
        return error_set(e, EIO, "the kernel gives no random numbers");
    buf_add(&value, salt, sizeof salt);
    int r = passphrase_key(b, salt, &key, e);
    if (r == 0)
        r = aead_seal(&key, key_context, secret, sizeof secret, &value, e);
    if (r == 0)
        r = store_backup_value_set(file, key_value, value.data, value.len, e);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(&key, sizeof key);
    return r;
}

static int write_key(const char *path, const struct buf *secret, struct error *e) {
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return error_set(e, EEXIST, "%s exists already; move it away first, or leave --secret-key out", path);
    if (fd < 0 || write(fd, secret->data, secret->len) != (ssize_t)secret->len || fsync(fd) < 0)
        return error_set(e, errno, "%s cannot be written: %s", path, strerror(errno));
    return 0;
}

// Before anything else is restored: a wrong passphrase changes nothing.
static int open_key(const struct backup_run *b, struct buf *secret, struct error *e) {
    cleanup_free void *value = NULL;
    size_t len = 0;
    struct aead_key key;
    int r = store_backup_value(b->file, key_value, &value, &len, e);
    if (r == -ENOENT)
        return error_set(e, ENOENT, "%s does not hold the key of secrets: leave --secret-key out", b->file);
    if (r == 0 && len <= SALT_BYTES)
        r = error_set(e, EBADMSG, "the key of secrets in %s is damaged", b->file);
    if (r == 0)
        r = passphrase_key(b, value, &key, e);
    if (r == 0 &&
        aead_open(&key, key_context, (uint8_t *)value + SALT_BYTES, len - SALT_BYTES, secret, NULL) < 0)
        r = error_set(e, EKEYREJECTED, "the passphrase is not the one the backup was made with");
    explicit_bzero(&key, sizeof key);
    return r;
}

// --- what is said ---

static void show_progress(void *ctx, uint64_t done, uint64_t all) {
    struct backup_run *b = ctx;
    int percent = all ? (int)(done * 100 / all) : 100;
    if (b->quiet || !isatty(STDERR_FILENO) || percent < b->shown + PERCENT_STEP)
        return;
    b->shown = percent;
    fprintf(stderr, "\rcopied %d %%%s", percent, percent == 100 ? "; checking the copy\n" : "");
}

static void print_contents(const struct backup_run *b, const char *path) {
    char when[UNIT_TEXT_MAX], size[UNIT_TEXT_MAX];
    struct tm tm = {0};
    time_t last_s = (time_t)(b->contents.last_ms / 1000);
    struct core_counts n;
    uint64_t live = 0;
    core_counts(b->core, &n);
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        live += job_state_final((enum job_state)i) ? 0 : n.by_state[i];
    struct answer_backup_contents a = {.file = path,
                                       .bytes = b->contents.bytes,
                                       .first_record = b->contents.first_seq,
                                       .newest_record = b->contents.last_seq,
                                       .newest_ms = b->contents.last_ms,
                                       .live_jobs = live,
                                       .finished_jobs = b->contents.finished};
    if (b->json) {
        cleanup_buf struct buf out = {0};
        schema_write_json(&answer_backup_contents_schema, &a, &(struct json_writer){.out = &out});
        puts(buf_str(&out));
        return;
    }
    localtime_r(&last_s, &tm);
    printf("%s is complete and readable (%s).\n  newest record: %" PRIu64 ", written %s\n  jobs: %" PRIu64
           " live, %" PRIu64 " finished\n",
           path, size_format(a.bytes, size), a.newest_record,
           time_format(a.newest_ms, (int32_t)tm.tm_gmtoff, when), a.live_jobs, a.finished_jobs);
}

// --- the programs ---

// A state in PostgreSQL is backed up there.
static int refuse_database(const char *folder, const char *what, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct database_seen seen;
    if (controller_database_seen(folder, &a, &seen) < 0)
        return 0;
    return error_set(
        e, ENOTSUP,
        "this cluster keeps its state in PostgreSQL (%s). %s, and keep a copy of the key of secrets of this "
        "machine",
        seen.place, what);
}

// Reads what a controller would, and all checksums.
static int check_database(const struct backup_run *b, const char *place, struct error *e) {
    struct store_config config = {.path = place, .level = FEATURE_LEVEL_NEWEST};
    struct store_loader loader = loader_of((struct backup_run *)(uintptr_t)b);
    struct store *store = NULL;
    uint64_t last = 0;
    int r = store_open(&config, &store, e);
    if (r == 0)
        r = store_load(store, &loader, &last, e);
    if (r == 0)
        r = store_check(store, e);
    store_close(store);
    if (r == 0)
        printf("%s is readable: its journal ends at record %llu\n", place, (unsigned long long)last);
    return r;
}

int controller_backup_main(int argc, char **argv) {
    struct backup_run b;
    struct error e = {0};
    if (read_arguments(&b, argc, argv) < 0 || !b.folder || !b.file)
        return log_error("acequia backup starts this program"), 2;
    struct store_loader loader = loader_of(&b);
    struct store_backup_hooks hooks = {&b, show_progress, b.passphrase_fd >= 0 ? add_key : NULL};
    int r = refuse_database(b.folder, "Back it up with pg_dump --format=custom --schema=acequia", &e);
    if (r == 0)
        r = store_backup(b.folder, b.file, &hooks, &loader, &b.contents, &e);
    if (r < 0)
        return fail(&e);
    if (!b.quiet)
        print_contents(&b, b.file);
    return 0;
}

int controller_check_main(int argc, char **argv) {
    struct backup_run b;
    struct error e = {0};
    struct stat st;
    if (read_arguments(&b, argc, argv) < 0 || !b.file)
        return log_error("acequia check starts this program"), 2;
    cleanup_arena struct arena a = {0};
    struct database_seen seen;
    if (controller_database_seen(b.file, &a, &seen) == 0)
        return check_database(&b, seen.place, &e) < 0 ? fail(&e) : 0;
    struct store_loader loader = loader_of(&b);
    bool folder = stat(b.file, &st) == 0 && S_ISDIR(st.st_mode);
    int r = folder ? store_check_folder(b.file, &loader, FEATURE_LEVEL_NEWEST, &b.contents, &e)
                   : store_check_file(b.file, &loader, FEATURE_LEVEL_NEWEST, &b.contents, &e);
    if (r < 0)
        return fail(&e);
    print_contents(&b, b.file);
    return 0;
}

int controller_restore_main(int argc, char **argv) {
    struct backup_run b;
    struct error e = {0};
    char aside[STORE_ASIDE_MAX];
    cleanup_buf struct buf secret = {0};
    if (read_arguments(&b, argc, argv) < 0 || !b.folder || !b.file || !b.keys)
        return log_error("acequia restore starts this program"), 2;
    cleanup_free char *key = key_path(&b);
    struct store_loader loader = loader_of(&b);
    int r = refuse_database(
        b.folder, "Stop all controllers, restore it with pg_restore --clean --if-exists, and start them", &e);
    if (r == 0)
        r = store_check_file(b.file, &loader, FEATURE_LEVEL_NEWEST, &b.contents, &e);
    if (r == 0 && b.passphrase_fd >= 0)
        r = open_key(&b, &secret, &e);
    if (r == 0 && secret.len && (r = paths_make(b.keys, 0700, &e)) == 0)
        r = write_key(key, &secret, &e);
    bool key_written = r == 0 && secret.len;
    if (r == 0 && (r = paths_make(b.folder, 0700, &e)) == 0)
        r = store_restore(b.file, b.folder, aside, &e);
    if (r < 0 && key_written)
        unlink(key);
    if (secret.len)
        explicit_bzero(secret.data, secret.len);
    if (r < 0)
        return fail(&e);
    print_contents(&b, b.file);
    if (b.json)
        return 0;
    printf("\nIt is in place in %s.\n", b.folder);
    if (*aside)
        printf("What was there is kept as %s/%s; remove it when all is well.\n", b.folder, aside);
    if (core_secret_count(b.core) && access(key, F_OK) < 0)
        printf("Its secrets cannot be decrypted until %s is put back.\n", key);
    puts("Start the controller now. Jobs that run and that the backup does not know are adopted.");
    if (core_level(b.core) < FEATURE_LEVEL_NEWEST)
        printf("The backup is from before 'acequia upgrade finish' (it can be read by release %s): steps of "
               "srun that\n"
               "run are not adopted by such a state, and parts of elastic and multi-node jobs may become "
               "jobs of their\n"
               "own. When there is no need to go back to that release, type 'acequia upgrade finish' and "
               "start the\n"
               "controller once more: steps are adopted then.\n",
               feature_level_release(core_level(b.core)));
    return 0;
}

// --- the controller's own backups: one question on standard input, one answer on standard output ---

struct backup_files {
    struct arena arena;
    VEC(struct answer_backup) list;
};

static int newest_first(const void *a, const void *b) {
    const struct answer_backup *x = a, *y = b;
    return strcmp(y->file, x->file);  // names hold the time
}

static void list_files(const char *folder, struct backup_files *out) {
    DIR *d = opendir(folder);
    struct stat st;
    for (const struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (!str_has_prefix(e->d_name, "acequia-") || len < 7 || !streq(e->d_name + len - 7, ".backup") ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        struct answer_backup b = {.file = arena_strdup(&out->arena, e->d_name),
                                  .bytes = (uint64_t)st.st_size,
                                  .made_ms = (int64_t)st.st_mtim.tv_sec * 1000};
        vec_push(&out->list, b);
    }
    if (d)
        closedir(d);
    if (out->list.len)
        qsort(out->list.at, out->list.len, sizeof *out->list.at, newest_first);
}

static int make_file(const struct backups_question *q, struct error *e) {
    char name[64];
    struct tm tm;
    time_t now = time(NULL);
    strftime(name, sizeof name, "acequia-%Y%m%d-%H%M%S.backup", gmtime_r(&now, &tm));
    cleanup_free char *file = xasprintf("%s/%s", q->folder, name);
    struct backup_run b = {.folder = q->state, .file = file, .quiet = true};
    struct store_loader loader = loader_of(&b);
    store_backup_clear(q->folder);
    return store_backup(b.folder, b.file, NULL, &loader, &b.contents, e);
}

static void remove_oldest(const struct backups_question *q, struct backup_files *f) {
    while (q->keep && f->list.len > q->keep) {
        cleanup_free char *file = xasprintf("%s/%s", q->folder, f->list.at[--f->list.len].file);
        unlink(file);
    }
}

static int do_question(const struct backups_question *q, struct backup_files *f, struct error *e) {
    int r = access(q->folder, F_OK) == 0 || errno != ENOENT ? 0 : paths_make(q->folder, 0700, e);
    if (r < 0)
        return r;
    list_files(q->folder, f);
    int64_t newest_ms = f->list.len ? f->list.at[0].made_ms : 0;
    int64_t age_ms = clock_wall_ms() - newest_ms;
    bool due = q->make || (!q->list && age_ms >= (int64_t)q->older_s * 1000);
    if (!due)
        return 0;
    if ((r = make_file(q, e)) < 0)
        return r;
    vec_clear(&f->list);
    list_files(q->folder, f);
    remove_oldest(q, f);
    return 0;
}

int controller_backups_main(void) {
    struct backup_files f = {0};
    struct backups_question q = {0};
    struct error e = {0};
    struct buf in = {0}, out = {0};
    char piece[4096];
    controller_stay_behind();
    for (ssize_t n; (n = read(STDIN_FILENO, piece, sizeof piece)) > 0;)
        buf_add(&in, piece, (size_t)n);
    struct json *j;
    int r = json_parse(buf_str(&in), in.len, &f.arena, &j, &e);
    r = r == 0 ? schema_read_json(&backups_question_schema, j, &f.arena, &q, &e) : r;
    if (r < 0 || !q.state || !q.folder)
        return log_error("backups is started by the controller"), 2;
    r = do_question(&q, &f, &e);
    struct backups_result result = {.problem = r < 0 ? e.text : NULL};
    result.backups.at = f.list.at;
    result.backups.len = f.list.len < ANSWER_FILES_MAX ? f.list.len : ANSWER_FILES_MAX;
    schema_write_json(&backups_result_schema, &result, &(struct json_writer){.out = &out});
    puts(buf_str(&out));
    return 0;  // the memory goes with the process
}
