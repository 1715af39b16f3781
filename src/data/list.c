// See the header. The queue between the threads is bounded, so a long list waits for those who work it off.
#include "list.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <dirent.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "split.h"

enum {
    QUEUE_MAX = 16384,
    DEPTH_MAX = 64,
    LIST_BYTES_MAX = 1 << 30,  // of a text that lists addresses
    NAMES_MAX = 1 << 26,       // of one folder
};

uint64_t data_item_hash(const struct data_item *item) {
    uint64_t h = hash_bytes(item->address, strlen(item->address));
    if (item->name)
        h = hash_u64(h ^ hash_bytes(item->name, strlen(item->name)));
    return hash_u64(h ^ hash_u64(item->offset * 2 + 1) ^ item->len);
}

struct data_lister {
    const struct data_source *source;
    struct data_fetcher *fetcher;
    const char *python, *worker;
    void (*wake)(void *ctx);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t room;
    VEC(struct data_item) queue;
    uint32_t from;
    uint64_t found;
    bool stop, ended;
    bool fitting;  // a file of the folder that is being listed; it may hold no rows
    struct error error;
};

static void item_free(struct data_item *i) {
    free((char *)(uintptr_t)i->address);
    free((char *)(uintptr_t)i->name);
}

// -ECANCELED once nobody wants more.
static int put(struct data_lister *l, const char *address, const char *name, uint64_t offset, uint64_t len) {
    pthread_mutex_lock(&l->lock);
    while (l->queue.len - l->from >= QUEUE_MAX && !l->stop)
        pthread_cond_wait(&l->room, &l->lock);
    bool stop = l->stop, first = l->queue.len == l->from;
    if (!stop) {
        if (l->from && l->from == l->queue.len)
            l->from = l->queue.len = 0;
        vec_push(&l->queue, (struct data_item){xstrdup(address), name ? xstrdup(name) : NULL, offset, len});
        l->found++;
    }
    pthread_mutex_unlock(&l->lock);
    if (stop)
        return -ECANCELED;
    if (first)
        l->wake(l->ctx);
    return 0;
}

uint32_t data_lister_take(struct data_lister *l, uint32_t max, struct arena *a, data_items *out, bool *ended,
                          struct error *e) {
    uint32_t n = 0;
    pthread_mutex_lock(&l->lock);
    for (; n < max && l->from < l->queue.len; n++) {
        struct data_item *i = &l->queue.at[l->from++];
        vec_push(out, (struct data_item){arena_strdup(a, i->address),
                                         i->name ? arena_strdup(a, i->name) : NULL, i->offset, i->len});
        item_free(i);
    }
    *ended = l->ended && l->from == l->queue.len;
    if (*ended)
        *e = l->error;
    if (l->from > QUEUE_MAX / 2) {
        memmove(l->queue.at, l->queue.at + l->from, (l->queue.len - l->from) * sizeof *l->queue.at);
        l->queue.len -= l->from;
        l->from = 0;
    }
    pthread_cond_signal(&l->room);
    pthread_mutex_unlock(&l->lock);
    return n;
}

uint64_t data_lister_found(struct data_lister *l) {
    pthread_mutex_lock(&l->lock);
    uint64_t n = l->found;
    pthread_mutex_unlock(&l->lock);
    return n;
}

// --- which names are meant ---

// What folders and prefixes are searched for; a file that is named itself is always taken.
static const char *const endings[][12] = {
    [DATA_IMAGES] = {"jpg", "jpeg", "png", "webp", NULL},
    [DATA_FILES] = {NULL},
    [DATA_TEXT] = {"txt", "text", "log", NULL},
    [DATA_JSONL] = {"jsonl", "ndjson", "json", NULL},
    [DATA_CSV] = {"csv", NULL},
    [DATA_PARQUET] = {"parquet", "pq", NULL},
    [DATA_TAR] = {"tar", NULL},
    [DATA_RANGE] = {NULL},
};

static bool name_fits(const struct data_source *s, const char *name) {
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    if (!*base || *base == '.' || *base == '_')  // also our own marks in folders of results
        return false;
    if (s->any_name || !endings[s->kind][0])
        return true;
    const char *dot = strrchr(base, '.');
    if (!dot)
        return s->kind == DATA_IMAGES;  // the format is found in the bytes
    for (const char *const *ending = endings[s->kind]; *ending; ending++)
        if (!strcasecmp(dot + 1, *ending))
            return true;
    return false;
}

static int put_file(struct data_lister *l, const char *address, uint64_t size) {
    struct data_split_ctx c = {.put = (data_split_fn *)put,
                               .ctx = l,
                               .fetcher = l->fetcher,
                               .python = l->python,
                               .worker = l->worker};
    switch (l->source->kind) {
    case DATA_TEXT:
    case DATA_JSONL: return data_split_lines(&c, address, size);
    case DATA_CSV: return data_split_csv(&c, address, &l->error);
    case DATA_TAR: return data_split_tar(&c, address, l->source, &l->error);
    case DATA_PARQUET: return data_split_parquet(&c, address, &l->error);
    default: return put(l, address, NULL, 0, 0);
    }
}

// --- folders ---

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_folder(struct data_lister *l, const char *path, int depth) {
    if (depth > DEPTH_MAX)
        return error_set(&l->error, ELOOP, "%s is more than %d folders deep", path, DEPTH_MAX);
    DIR *d = opendir(path);
    if (!d)
        return error_set(&l->error, errno, "%s cannot be read: %s", path, strerror(errno));
    VEC(char *) names = {0};
    for (struct dirent *entry; (entry = readdir(d)) && names.len < NAMES_MAX;)
        if (entry->d_name[0] != '.' && entry->d_name[0] != '_')
            vec_push(&names, xstrdup(entry->d_name));
    closedir(d);
    qsort(names.at, names.len, sizeof *names.at, by_name);
    int r = 0;
    for (uint32_t i = 0; i < names.len; i++) {
        cleanup_free char *child = xasprintf("%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", names.at[i]);
        struct stat st;
        if (!r && stat(child, &st) == 0) {
            if (S_ISDIR(st.st_mode)) {
                struct stat link;
                if (lstat(child, &link) == 0 && !S_ISLNK(link.st_mode))  // links to folders can lead round in circles
                    r = list_folder(l, child, depth + 1);
            } else if (S_ISREG(st.st_mode) && name_fits(l->source, names.at[i])) {
                l->fitting = true;
                r = put_file(l, child, (uint64_t)st.st_size);
            }
        }
        free(names.at[i]);
    }
    vec_done(&names);
    return r;
}

static int list_path(struct data_lister *l, const char *path) {
    struct stat st;
    if (stat(path, &st) < 0)
        return error_set(&l->error, errno, "input %s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return put_file(l, path, (uint64_t)st.st_size);
    l->fitting = false;
    int r = list_folder(l, path, 0);
    if (!r && !l->fitting)
        return error_set(&l->error, ENOENT,
                         "input %s: no file there has a name that fits; --kind says what the inputs are, "
                         "--any-name takes every file", path);
    return r;
}

static int list_pattern(struct data_lister *l, const char *pattern) {
    glob_t found;
    int r = glob(pattern, 0, NULL, &found);
    if (r)
        return error_set(&l->error, ENOENT, "input %s: %s", pattern,
                         r == GLOB_NOMATCH ? "nothing has such a name" : "cannot be read");
    r = 0;
    for (size_t i = 0; !r && i < found.gl_pathc; i++)
        r = list_path(l, found.gl_pathv[i]);
    globfree(&found);
    return r;
}

// --- S3 ---

struct s3_listing {
    struct data_lister *l;
    char bucket[256];
    const char *pattern;
    uint64_t taken;
};

static int on_object(void *ctx, const struct data_object *object) {
    struct s3_listing *s = ctx;
    size_t n = strlen(object->key);
    if (!n || object->key[n - 1] == '/')
        return 0;
    if (s->pattern ? fnmatch(s->pattern, object->key, FNM_PATHNAME) != 0 : !name_fits(s->l->source, object->key))
        return 0;
    cleanup_free char *address = xasprintf("s3://%s/%s", s->bucket, object->key);
    s->taken++;
    return put_file(s->l, address, object->size);
}

static int list_s3(struct data_lister *l, const char *address) {
    struct s3_listing s = {.l = l};
    const char *bucket = address + 5;
    size_t n = strcspn(bucket, "/");
    if (n >= sizeof s.bucket)
        return error_set(&l->error, EINVAL, "%s: the bucket's name is too long", address);
    memcpy(s.bucket, bucket, n);
    const char *key = bucket[n] ? bucket + n + 1 : "";
    size_t plain = strcspn(key, "*?[");
    cleanup_free char *prefix = xasprintf("s3://%s/%.*s", s.bucket, (int)plain, key);
    if (key[plain])
        s.pattern = key;
    int r = data_list_objects(l->fetcher, prefix, on_object, &s, &l->error);
    if (!r && !s.taken)
        return error_set(&l->error, ENOENT, "input %s: no object there has a name that fits", address);
    return r;
}

static int list_input(struct data_lister *l, const char *input);

// What one line of a list names. Objects and files are not asked for one by one: what is not there is a row that fails.
static int list_line(struct data_lister *l, const char *line) {
    bool whole = l->source->kind == DATA_IMAGES || l->source->kind == DATA_FILES, plain = !strpbrk(line, "*?[");
    struct stat st;
    if (*line == '@')
        return error_set(&l->error, EINVAL, "input %s: a list cannot name another list", line);
    if (data_is_remote(line) ? whole && plain && line[strlen(line) - 1] != '/'
                             : stat(line, &st) < 0 ? plain : whole && S_ISREG(st.st_mode))
        return put(l, line, NULL, 0, 0);
    return list_input(l, line);
}

// A text with an address per line.
static int list_addresses(struct data_lister *l, const char *address) {
    struct buf cleanup_buf text = {0};
    int r = data_read(l->fetcher, address, 0, 0, LIST_BYTES_MAX, &text, &l->error);
    for (char *at = text.data; !r && at && *at;) {
        size_t n = strcspn(at, "\n");
        bool more = at[n] == '\n';
        at[n] = 0;
        size_t end = n;
        while (end && (at[end - 1] == '\r' || at[end - 1] == ' '))
            at[--end] = 0;
        if (*at && *at != '#')
            r = list_line(l, at);
        at += n + more;
    }
    return r;
}

static int list_input(struct data_lister *l, const char *input) {
    if (*input == '@')
        return list_addresses(l, input + 1);
    if (data_is_s3(input))
        return list_s3(l, input);
    if (data_is_remote(input))
        return l->source->kind <= DATA_FILES
                   ? put(l, input, NULL, 0, 0)
                   : error_set(&l->error, EINVAL, "input %s: images and files are read over http", input);
    struct stat st;
    if (strpbrk(input, "*?[") && stat(input, &st) < 0)
        return list_pattern(l, input);
    return list_path(l, input);
}

static void *run(void *ctx) {
    struct data_lister *l = ctx;
    int r = 0;
    if (l->source->kind == DATA_RANGE) {
        for (uint64_t at = 0; !r && at < l->source->rows; at += DATA_RANGE_ROWS)
            r = put(l, "range", NULL, at,
                    l->source->rows - at < DATA_RANGE_ROWS ? l->source->rows - at : DATA_RANGE_ROWS);
    }
    for (uint32_t i = 0; !r && i < l->source->inputs.len; i++)
        r = list_input(l, l->source->inputs.at[i]);
    pthread_mutex_lock(&l->lock);
    l->ended = true;
    if (r == -ECANCELED)
        l->error.code = 0;
    else if (r && !l->error.code)
        error_set(&l->error, -r, "the inputs cannot be listed: %s", strerror(-r));
    pthread_mutex_unlock(&l->lock);
    l->wake(l->ctx);
    return NULL;
}

struct data_lister *data_lister_start(const struct data_source *source, struct data_remote *remote, const char *python,
                                      const char *worker, void (*wake)(void *ctx), void *ctx) {
    struct data_lister *l = xcalloc(1, sizeof *l);
    *l = (struct data_lister){.source = source,
                              .fetcher = data_fetcher_new(remote),
                              .python = python,
                              .worker = worker,
                              .wake = wake,
                              .ctx = ctx};
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->room, NULL);
    pthread_create(&l->thread, NULL, run, l);
    return l;
}

void data_lister_stop(struct data_lister *l) {
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->room);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    for (uint32_t i = l->from; i < l->queue.len; i++)
        item_free(&l->queue.at[i]);
    vec_done(&l->queue);
    data_fetcher_free(l->fetcher);
    pthread_cond_destroy(&l->room);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
