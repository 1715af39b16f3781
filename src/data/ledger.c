// See the header.
#include "ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/map.h"
#include "base/text.h"

#define LEDGER_MARK "{\"acequia_data\":1"  // how its first line begins

enum { LEDGER_MAX = 2147483647, RECORD_MAX = 64 << 20, MERGE_READ = 64 << 20 };
enum { LOCK_LOOKS = 20, LOCK_PAUSE_NS = 50000000 };

struct data_ledger {
    char *folder;
    bool remote;
    int fd;
    struct map done;  // hashes of items
    VEC(struct data_record) records;
    struct strmap parts;
    uint64_t rows, failures;
};

void data_record_free(struct data_record *r) {
    for (uint32_t i = 0; i < r->failures.len; i++) {
        free((char *)(uintptr_t)r->failures.at[i].address);
        free((char *)(uintptr_t)r->failures.at[i].text);
    }
    vec_done(&r->failures);
    vec_done(&r->items);
    free(r->part);
    *r = (struct data_record){0};
}

void data_record_write(const struct data_record *r, struct buf *out) {
    struct json_writer w = {.out = out};
    char hex[20];
    json_open(&w, '{');
    json_kv_str(&w, "part", r->part);
    json_kv_i64(&w, "rows", (int64_t)r->rows);
    json_kv_i64(&w, "bytes", (int64_t)r->bytes);
    json_open_key(&w, "items", '[');
    for (uint32_t i = 0; i < r->items.len; i++) {
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)r->items.at[i]);
        json_put_str(&w, hex);
    }
    json_close(&w, ']');
    json_open_key(&w, "failures", '[');
    for (uint32_t i = 0; i < r->failures.len; i++) {
        json_open(&w, '{');
        json_kv_str(&w, "input", r->failures.at[i].address);
        json_kv_str(&w, "error", r->failures.at[i].text);
        json_close(&w, '}');
    }
    json_close(&w, ']');
    json_close(&w, '}');
    buf_addc(out, '\n');
}

static bool part_name_fits(const char *part) {
    return !*part || (str_has_prefix(part, "part-") && !strchr(part, '/') && strlen(part) < 64);
}

int data_record_read(const char *line, size_t len, struct data_record *out) {
    struct arena cleanup_arena a = {0};
    struct json *j = NULL;
    *out = (struct data_record){0};
    if (json_parse(line, len, &a, &j, NULL) || j->type != JSON_OBJECT)
        return -EBADMSG;
    const char *part = json_str(j, "part");
    const struct json *items = json_get(j, "items"), *failures = json_get(j, "failures");
    int64_t rows = json_i64(j, "rows", -1), bytes = json_i64(j, "bytes", -1);
    if (!part || !part_name_fits(part) || rows < 0 || bytes < 0 || !items || items->type != JSON_ARRAY || !failures ||
        failures->type != JSON_ARRAY)
        return -EBADMSG;
    out->part = xstrdup(part);
    out->rows = (uint64_t)rows;
    out->bytes = (uint64_t)bytes;
    for (uint32_t i = 0; i < items->len; i++) {
        char *end = NULL;
        if (items->items[i].type != JSON_STRING)
            goto bad;
        vec_push(&out->items, strtoull(items->items[i].s, &end, 16));
        if (items->items[i].len != 16 || *end)
            goto bad;
    }
    for (uint32_t i = 0; i < failures->len; i++) {
        const char *input = json_str(&failures->items[i], "input"), *error = json_str(&failures->items[i], "error");
        if (failures->items[i].type != JSON_OBJECT || !input || !error)
            goto bad;
        vec_push(&out->failures, (struct data_failure){xstrdup(input), xstrdup(error)});
    }
    return 0;
bad:
    data_record_free(out);
    return -EBADMSG;
}

static void take_record(struct data_ledger *l, struct data_record r) {
    for (uint32_t i = 0; i < r.items.len; i++)
        map_put(&l->done, r.items.at[i], l);
    l->rows += r.rows;
    l->failures += r.failures.len;
    vec_push(&l->records, r);
    if (*r.part)
        strmap_put(&l->parts, r.part, l);
}

bool data_ledger_has(const struct data_ledger *l, const struct data_item *item) {
    return map_get(&l->done, data_item_hash(item)) != NULL;
}

uint64_t data_ledger_rows(const struct data_ledger *l) {
    return l->rows;
}

uint64_t data_ledger_failures(const struct data_ledger *l) {
    return l->failures;
}

static char *inside(const struct data_ledger *l, const char *name) {
    return xasprintf("%s%s", l->folder, name);
}

// --- a folder ---

static void first_line(uint64_t identity, struct buf *out) {
    buf_addf(out, LEDGER_MARK ",\"pipeline\":\"%016llx\"}\n", (unsigned long long)identity);
}

static int other_pipeline(const struct data_ledger *l, struct error *e) {
    return error_set(e, EEXIST,
                     "%s holds results of another pipeline: choose another output, or --fresh to remove them",
                     l->folder);
}

static bool is_part(const char *name) {
    return str_has_prefix(name, "part-") || str_has_prefix(name, ".part-");
}

static int foreign_part(const struct data_ledger *l, const char *name, struct error *e) {
    char safe[256];
    return error_set(e, EEXIST, "%s holds %s, which is not from acequia data run: choose another output", l->folder,
                     str_printable(name, safe, sizeof safe));
}

// Other programs name their results like ours: where we have begun nothing, parts are somebody else's and stay.
static int check_foreign(const struct data_ledger *l, struct error *e) {
    char first[sizeof LEDGER_MARK - 1];
    cleanup_free char *path = inside(l, "_ledger.jsonl");
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ELOOP)
        return error_set(e, ELOOP, "%s is a symbolic link: remove it, or choose another output", path);
    ssize_t n = fd < 0 ? 0 : pread(fd, first, sizeof first, 0);
    if (n < 0 || memcmp(first, LEDGER_MARK, (size_t)n))
        return error_set(e, EEXIST, "%s is not from acequia data run: choose another output", path);
    DIR *d = n ? NULL : opendir(l->folder);
    int r = 0;
    for (struct dirent *entry; d && !r && (entry = readdir(d));)
        if (is_part(entry->d_name))
            r = foreign_part(l, entry->d_name, e);
    if (d)
        closedir(d);
    return r;
}

static int lock_file(struct data_ledger *l, struct error *e) {
    cleanup_free char *path = inside(l, "_ledger.jsonl");
    l->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (l->fd < 0)
        return error_set(e, errno, "%s cannot be written: %s%s", path, strerror(errno), error_remedy(errno));
    // One that was killed a moment ago lets go when the last of its processes has ended.
    for (int i = 0; flock(l->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; i++) {
        if (i == LOCK_LOOKS)
            return error_set(e, EBUSY, "another run writes into %s", l->folder);
        nanosleep(&(struct timespec){0, LOCK_PAUSE_NS}, NULL);
    }
    return 0;
}

// Whole lines count; what a kill has left of the last one is cut off.
static int read_lines(struct data_ledger *l, uint64_t identity, struct data_fetcher *f, struct error *e) {
    struct buf cleanup_buf text = {0}, cleanup_buf head = {0};
    cleanup_free char *path = inside(l, "_ledger.jsonl");
    int r = data_read(f, path, 0, 0, LEDGER_MAX, &text, e);
    if (r)
        return r;
    first_line(identity, &head);
    size_t at = 0;
    while (at < text.len) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        if (!end)
            break;
        size_t n = (size_t)(end - (text.data + at));
        struct data_record record;
        if (at == 0) {
            if (n + 1 != head.len || memcmp(text.data, head.data, n))
                return other_pipeline(l, e);
        } else if (data_record_read(text.data + at, n, &record) == 0) {
            take_record(l, record);
        } else {
            return error_set(e, EBADMSG,
                             "%s is damaged at byte %zu: choose another output, or --fresh to begin anew",
                             path, at);
        }
        at += n + 1;
    }
    if (at < text.len && ftruncate(l->fd, (off_t)at) < 0)
        return error_set(e, errno, "%s cannot be mended: %s", path, strerror(errno));
    if (at == 0 && (write(l->fd, head.data, head.len) != (ssize_t)head.len || fdatasync(l->fd) < 0))
        return error_set(e, errno, "%s cannot be written: %s%s", path, strerror(errno), error_remedy(errno));
    return 0;
}

static int each_local_part(struct data_ledger *l, bool all) {
    DIR *d = opendir(l->folder);
    if (!d)
        return -errno;
    for (struct dirent *entry; (entry = readdir(d));) {
        const char *name = entry->d_name;
        bool ours = is_part(name) || (all && (streq(name, "_manifest.json") || streq(name, "_errors.jsonl")));
        if (ours && (all || !strmap_get(&l->parts, name)))
            unlinkat(dirfd(d), name, 0);
    }
    closedir(d);
    return 0;
}

static int make_folders(const char *folder, struct error *e) {
    cleanup_free char *path = xstrdup(folder);
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return error_set(e, errno, "folder %s cannot be made: %s%s", path, strerror(errno), error_remedy(errno));
        *at = '/';
    }
    return 0;
}

// The first line stays until the parts are gone: they are known as ours whenever this is killed.
static int empty_folder(struct data_ledger *l, uint64_t identity, struct error *e) {
    struct buf cleanup_buf head = {0};
    struct stat st;
    first_line(identity, &head);
    if (fstat(l->fd, &st) < 0 || (st.st_size > (off_t)head.len && ftruncate(l->fd, (off_t)head.len) < 0))
        return error_set(e, errno, "%s cannot be emptied: %s", l->folder, strerror(errno));
    each_local_part(l, true);
    return ftruncate(l->fd, 0) < 0 ? error_set(e, errno, "%s cannot be emptied: %s", l->folder, strerror(errno)) : 0;
}

static int open_folder(struct data_ledger *l, uint64_t identity, bool fresh, struct data_fetcher *f, struct error *e) {
    int r = make_folders(l->folder, e);
    if (!r)
        r = check_foreign(l, e);
    if (!r)
        r = lock_file(l, e);
    if (!r && fresh)
        r = empty_folder(l, identity, e);
    if (!r)
        r = read_lines(l, identity, f, e);
    if (!r)
        each_local_part(l, false);
    return r;
}

// --- a bucket ---

struct bucket_scan {
    struct data_ledger *l;
    char bucket[256];
    VEC(char *) keys;
};

static int on_key(void *ctx, const struct data_object *object) {
    struct bucket_scan *s = ctx;
    vec_push(&s->keys, xstrdup(object->key));
    return 0;
}

static void scan_done(struct bucket_scan *s) {
    for (uint32_t i = 0; i < s->keys.len; i++)
        free(s->keys.at[i]);
    vec_done(&s->keys);
}

static int bucket_record(struct data_ledger *l, const char *address, struct data_fetcher *f, struct error *e) {
    struct buf cleanup_buf text = {0};
    struct data_record record;
    int r = data_read(f, address, 0, 0, RECORD_MAX, &text, e);
    if (r)
        return r;
    if (data_record_read(text.data, text.len, &record))
        return error_set(e, EBADMSG, "%s is damaged: choose another output, or --fresh to begin anew", address);
    take_record(l, record);
    return 0;
}

static int open_bucket(struct data_ledger *l, uint64_t identity, bool fresh, struct data_fetcher *f, struct error *e) {
    struct bucket_scan s = {.l = l};
    struct buf cleanup_buf head = {0}, cleanup_buf found = {0};
    snprintf(s.bucket, sizeof s.bucket, "%.*s", (int)strcspn(l->folder + 5, "/"), l->folder + 5);
    size_t prefix = strlen(l->folder) - 5 - strlen(s.bucket) - 1;
    int r = data_list_objects(f, l->folder, on_key, &s, e);
    first_line(identity, &head);
    cleanup_free char *header = inside(l, "_ledger/pipeline");
    bool begun = false;
    for (uint32_t i = 0; i < s.keys.len; i++)
        begun |= streq(s.keys.at[i] + prefix, "_ledger/pipeline");
    for (uint32_t i = 0; i < s.keys.len && !r && !begun; i++)
        if (is_part(s.keys.at[i] + prefix))
            r = foreign_part(l, s.keys.at[i] + prefix, e);
    for (uint32_t i = 0; i < s.keys.len && !r && !fresh; i++) {
        const char *name = s.keys.at[i] + prefix;
        cleanup_free char *address = inside(l, name);
        if (streq(name, "_ledger/pipeline")) {
            r = data_read(f, address, 0, 0, RECORD_MAX, &found, e);
            if (!r && (found.len != head.len || memcmp(found.data, head.data, head.len)))
                r = other_pipeline(l, e);
        } else if (str_has_prefix(name, "_ledger/")) {
            r = bucket_record(l, address, f, e);
        }
    }
    // Keys come in order: what says that parts are ours goes after them, or is written over.
    for (uint32_t i = 0; i < s.keys.len && !r; i++) {
        const char *name = s.keys.at[i] + prefix;
        cleanup_free char *address = inside(l, name);
        bool ours = is_part(name) ||
                    (fresh && (str_has_prefix(name, "_ledger/part-") || streq(name, "_manifest.json") ||
                               streq(name, "_errors.jsonl")));
        if (ours && (fresh || !strmap_get(&l->parts, name)))
            r = data_remove(f, address, e);
    }
    if (!r && (fresh || !begun))
        r = data_write(f, header, head.data, head.len, e);
    scan_done(&s);
    return r;
}

int data_ledger_open(const char *folder, uint64_t identity, bool fresh, struct data_fetcher *f,
                     struct data_ledger **out, struct error *e) {
    struct data_ledger *l = xcalloc(1, sizeof *l);
    *l = (struct data_ledger){.folder = xstrdup(folder), .remote = data_is_remote(folder), .fd = -1};
    int r = l->remote ? open_bucket(l, identity, fresh, f, e) : open_folder(l, identity, fresh, f, e);
    if (r) {
        data_ledger_close(l);
        return r;
    }
    *out = l;
    return 0;
}

void data_ledger_close(struct data_ledger *l) {
    if (!l)
        return;
    if (l->fd >= 0)
        close(l->fd);
    strmap_done(&l->parts);
    map_done(&l->done);
    for (uint32_t i = 0; i < l->records.len; i++)
        data_record_free(&l->records.at[i]);
    vec_done(&l->records);
    free(l->folder);
    free(l);
}

static int append(struct data_ledger *l, const struct buf *lines, struct error *e) {
    off_t before = lseek(l->fd, 0, SEEK_END);
    size_t at = 0;
    int failed = 0;
    while (at < lines->len && !failed) {
        ssize_t n = write(l->fd, lines->data + at, lines->len - at);
        if (n > 0)
            at += (size_t)n;
        else if (n < 0 && errno != EINTR)
            failed = errno;
    }
    if (!failed && fdatasync(l->fd) < 0)
        failed = errno;
    if (!failed)
        return 0;
    (void)!ftruncate(l->fd, before);
    return error_set(e, failed, "%s_ledger.jsonl cannot be written: %s%s", l->folder, strerror(failed),
                     error_remedy(failed));
}

int data_ledger_commit(struct data_ledger *l, struct data_record *records, uint32_t count,
                       struct data_fetcher *f, struct error *e) {
    struct buf cleanup_buf lines = {0};
    int r = 0;
    for (uint32_t i = 0; i < count; i++) {
        data_record_write(&records[i], &lines);
        if (l->remote && !r) {
            cleanup_free char *name =
                xasprintf("%s_ledger/%s%016llx.json", l->folder, records[i].part,
                          (unsigned long long)(records[i].items.len ? records[i].items.at[0] : 0));
            r = data_write(f, name, lines.data, lines.len, e);
            buf_clear(&lines);
        }
    }
    if (!l->remote)
        r = append(l, &lines, e);
    for (uint32_t i = 0; i < count; i++) {
        if (r)
            data_record_free(&records[i]);
        else
            take_record(l, records[i]);
    }
    return r;
}

static int by_part(const void *a, const void *b) {
    const struct data_record *x = a, *y = b;
    return strcmp(x->part, y->part);
}

int data_ledger_finish(struct data_ledger *l, bool complete, struct data_fetcher *f, struct error *e) {
    struct buf cleanup_buf text = {0}, cleanup_buf errors = {0};
    struct json_writer w = {.out = &text};
    // The table of parts borrows the names: sorting moves the structs, not the texts.
    qsort(l->records.at, l->records.len, sizeof *l->records.at, by_part);
    json_open(&w, '{');
    json_kv_bool(&w, "complete", complete);
    json_kv_i64(&w, "rows", (int64_t)l->rows);
    json_kv_i64(&w, "failures", (int64_t)l->failures);
    json_open_key(&w, "parts", '[');
    for (uint32_t i = 0; i < l->records.len; i++) {
        const struct data_record *r = &l->records.at[i];
        if (*r->part) {
            json_open(&w, '{');
            json_kv_str(&w, "part", r->part);
            json_kv_i64(&w, "rows", (int64_t)r->rows);
            json_kv_i64(&w, "bytes", (int64_t)r->bytes);
            json_close(&w, '}');
        }
        for (uint32_t k = 0; k < r->failures.len; k++) {
            struct json_writer line = {.out = &errors};
            json_open(&line, '{');
            json_kv_str(&line, "input", r->failures.at[k].address);
            json_kv_str(&line, "error", r->failures.at[k].text);
            json_close(&line, '}');
            buf_addc(&errors, '\n');
        }
    }
    json_close(&w, ']');
    json_close(&w, '}');
    buf_addc(&text, '\n');
    cleanup_free char *manifest = inside(l, "_manifest.json"), *list = inside(l, "_errors.jsonl");
    int r = data_write(f, manifest, text.data, text.len, e);
    if (!r && errors.len)
        r = data_write(f, list, errors.data, errors.len, e);
    return r;
}

static int merge_text(struct data_ledger *l, bool csv, int fd, struct data_fetcher *f, struct error *e) {
    struct buf cleanup_buf text = {0};
    bool first = true;
    for (uint32_t i = 0; i < l->records.len; i++) {
        if (!*l->records.at[i].part)
            continue;
        cleanup_free char *part = inside(l, l->records.at[i].part);
        uint64_t at = 0;
        do {
            int r = data_read(f, part, at, MERGE_READ, MERGE_READ, &text, e);
            if (r)
                return r;
            size_t skip = 0;
            if (csv && !first && at == 0) {  // one header is enough
                const char *end = text.len ? memchr(text.data, '\n', text.len) : NULL;
                skip = end ? (size_t)(end - text.data) + 1 : text.len;
            }
            for (size_t done = skip; done < text.len;) {
                ssize_t n = write(fd, text.data + done, text.len - done);
                if (n < 0 && errno != EINTR)
                    return error_set(e, errno, "the merged file cannot be written: %s%s", strerror(errno),
                                     error_remedy(errno));
                done += n > 0 ? (size_t)n : 0;
            }
            at += text.len;
        } while (text.len == MERGE_READ);
        first = false;
    }
    return 0;
}

int data_ledger_merge(struct data_ledger *l, uint32_t kind, const char *file, struct data_fetcher *f, struct error *e) {
    cleanup_free char *beside = xasprintf("%s.merging", file);
    unlink(beside);  // of an earlier run, or a link to somewhere else
    cleanup_close int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return error_set(e, errno, "%s cannot be written: %s%s", beside, strerror(errno), error_remedy(errno));
    qsort(l->records.at, l->records.len, sizeof *l->records.at, by_part);
    int r = merge_text(l, kind == DATA_OUT_CSV, fd, f, e);
    if (!r && (fsync(fd) < 0 || rename(beside, file) < 0))
        r = error_set(e, errno, "%s cannot be written: %s%s", file, strerror(errno), error_remedy(errno));
    if (r)
        unlink(beside);
    return r;
}
