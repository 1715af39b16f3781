// See the header. Images of one size are decoded straight into the block; everything else is read first, since only
// then its size is known. What cannot be read becomes a failure of the chunk, not of the run.
#include "load.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "image.h"
#include "split.h"

enum { FILE_BYTES_MAX = 1 << 30, IMAGE_BYTES_MAX = 256 << 20, ROWS_MAX = 1 << 24, CSV_HEADER_MAX = 1 << 20 };

struct text_row {
    const char *at;
    size_t len;
};

struct load_item {
    struct data_task task;
    struct data_load *load;
    uint32_t index;
    struct error error;
    struct data_image image;     // of any size
    struct buf bytes;            // files, and texts that the rows below point into
    VEC(struct text_row) rows;
    struct buf made;             // rows that are made from others
};

struct data_load {
    struct data_loader *loader;
    struct data_chunk *chunk;
    struct data_block *block;    // of images of one size
    uint64_t row_bytes, texts_max;
    uint32_t left, count;
    struct data_load *next;
    struct load_item items[];
};

uint64_t data_load_row_bytes(const struct data_source *s) {
    if ((s->kind != DATA_IMAGES && s->kind != DATA_TAR) || !s->width)
        return 0;
    return (uint64_t)s->width * s->height * (s->mode == DATA_MODE_GREY ? 1 : 3) * (s->planes ? sizeof(float) : 1);
}

// --- on a thread ---

static void load_image(struct load_item *i, struct data_fetcher *f, const struct data_item *item) {
    const struct data_source *s = i->load->loader->source;
    struct data_image image = {0};
    if (data_read(f, item->address, item->offset, item->len, IMAGE_BYTES_MAX, &i->bytes, &i->error))
        return;
    if (data_image_decode(i->bytes.data, i->bytes.len, s->mode, &image, &i->error)) {
        buf_done(&i->bytes);
        return;
    }
    buf_done(&i->bytes);
    if (!i->load->block) {
        i->image = image;
        return;
    }
    uint8_t *slot = i->load->loader->memory->at + i->load->block->columns[0].values + i->index * i->load->row_bytes;
    struct data_fit fit = {s->width, s->height, s->shorter, s->filter};
    if (s->planes) {
        float mean[3] = {0}, std[3] = {1, 1, 1};
        for (uint32_t c = 0; c < s->mean.len; c++)
            mean[c] = (float)s->mean.at[c];
        for (uint32_t c = 0; c < s->std.len; c++)
            std[c] = (float)s->std.at[c];
        uint8_t *pixels = xmalloc((size_t)s->width * s->height * image.channels);
        if (!data_image_fit(&image, &fit, pixels, &i->error))
            data_image_planes(pixels, s->width, s->height, image.channels, mean, std, (float *)(void *)slot);
        free(pixels);
    } else {
        data_image_fit(&image, &fit, slot, &i->error);
    }
    data_image_done(&image);
}

static void split_rows(struct load_item *i) {
    char *at = i->bytes.data, *end = at + i->bytes.len;
    while (at < end && i->rows.len < ROWS_MAX) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at), kept = n;
        while (kept && at[kept - 1] == '\r')
            kept--;
        vec_push(&i->rows, (struct text_row){at, kept});
        at += n + 1;
    }
}

static void load_lines(struct load_item *i, struct data_fetcher *f, const struct data_item *item) {
    if (data_lines_read(f, item->address, item->offset, item->len, FILE_BYTES_MAX, &i->bytes, &i->error))
        return;
    split_rows(i);
    if (i->load->loader->source->kind != DATA_JSONL)
        return;
    struct arena cleanup_arena a = {0};
    uint32_t kept = 0;
    for (uint32_t k = 0; k < i->rows.len; k++) {
        struct json *j = NULL;
        if (!i->rows.at[k].len)
            continue;
        struct error e;
        if (json_parse(i->rows.at[k].at, i->rows.at[k].len, &a, &j, &e) || j->type != JSON_OBJECT) {
            if (!i->error.code)
                error_set(&i->error, EBADMSG, "line %u of the part from byte %llu on is no JSON object%s%s", k + 1,
                          (unsigned long long)item->offset, j ? "" : ": ", j ? "" : e.text);
            continue;
        }
        i->rows.at[kept++] = i->rows.at[k];
        arena_reset(&a);
    }
    i->rows.len = kept;
}

// The header's names, once more for each part: it is short, and a file's first bytes are in some cache.
static int csv_names(struct data_fetcher *f, const char *address, struct buf *text, char **names,
                     size_t *lens, struct error *e) {
    bool quoted[DATA_COLUMNS_MAX];
    int r = data_read(f, address, 0, CSV_HEADER_MAX, CSV_HEADER_MAX, text, e);
    if (r)
        return r;
    char *end = text->len ? memchr(text->data, '\n', text->len) : NULL;
    int n =
        end ? data_csv_fields(text->data, (size_t)(end - text->data), names, lens, DATA_COLUMNS_MAX, quoted)
            : -EBADMSG;
    if (n < 0)
        return error_set(e, EBADMSG, "%s has no header of at most %d columns", address, DATA_COLUMNS_MAX);
    for (int i = 0; i < n; i++) {
        names[i][lens[i]] = 0;
        if (!str_utf8_valid(names[i], lens[i]))
            return error_set(e, EBADMSG, "%s: the header is not UTF-8", address);
    }
    return n;
}

static void load_csv(struct load_item *i, struct data_fetcher *f, const struct data_item *item) {
    struct buf cleanup_buf header = {0};
    char *names[DATA_COLUMNS_MAX];
    size_t lens[DATA_COLUMNS_MAX];
    int n = csv_names(f, item->address, &header, names, lens, &i->error);
    if (n < 0 || data_read(f, item->address, item->offset, item->len, FILE_BYTES_MAX, &i->bytes, &i->error))
        return;
    VEC(size_t) ends = {0};
    char *at = i->bytes.data, *end = at + i->bytes.len;
    while (at < end) {
        bool quoted = false;
        char *stop = at;
        for (; stop < end && (*stop != '\n' || quoted); stop++)
            quoted ^= *stop == '"';
        struct error e = {0};
        size_t before = i->made.len;
        if (stop - at > 0 && !(stop - at == 1 && *at == '\r')) {
            if (data_csv_row(at, (size_t)(stop - at), (const char *const *)names, (uint32_t)n, &i->made, &e)) {
                i->made.len = before;
                if (!i->error.code)
                    error_set(&i->error, EBADMSG, "a row after byte %llu: %s",
                              (unsigned long long)(item->offset + (uint64_t)(at - i->bytes.data)), e.text);
            } else {
                vec_push(&ends, i->made.len);
            }
        }
        at = stop + 1;
    }
    for (uint32_t k = 0; k < ends.len; k++) {
        size_t from = k ? ends.at[k - 1] : 0;
        vec_push(&i->rows, (struct text_row){i->made.data + from, ends.at[k] - from});
    }
    vec_done(&ends);
    buf_done(&i->bytes);
}

static void load_run(struct data_task *t, struct data_fetcher *f) {
    struct load_item *i = (struct load_item *)t;
    const struct data_item *item = &i->load->chunk->items.at[i->index];
    switch (i->load->loader->source->kind) {
    case DATA_IMAGES:
    case DATA_TAR: load_image(i, f, item); break;
    case DATA_FILES: data_read(f, item->address, 0, 0, FILE_BYTES_MAX, &i->bytes, &i->error); break;
    case DATA_TEXT:
    case DATA_JSONL: load_lines(i, f, item); break;
    case DATA_CSV: load_csv(i, f, item); break;
    default: break;
    }
}

// --- putting together ---

static const char *item_name(const struct data_item *i) {
    return i->name ? i->name : i->address;
}

static void column_name(struct data_column *c, const char *name, enum data_type type) {
    snprintf(c->name, sizeof c->name, "%s", name);
    c->type = type;
}

static void load_free(struct data_load *l) {
    for (uint32_t k = 0; k < l->count; k++) {
        buf_done(&l->items[k].bytes);
        buf_done(&l->items[k].made);
        vec_done(&l->items[k].rows);
        data_image_done(&l->items[k].image);
    }
    free(l);
}

static void add_origin(struct data_chunk *c, uint32_t *rows, uint32_t item) {
    c->origins = xrealloc(c->origins, (*rows + 1) * sizeof *c->origins);
    c->origins[(*rows)++] = item;
}

static uint64_t write_paths(struct data_load *l, uint64_t at, uint32_t rows, struct data_column *c) {
    const char **names = xcalloc(rows ? rows : 1, sizeof *names);
    for (uint32_t k = 0; k < rows; k++)
        names[k] = item_name(&l->chunk->items.at[l->chunk->origins[k]]);
    uint64_t size = data_texts_size(names, NULL, rows);
    column_name(c, "path", DATA_UTF8);
    if (at != UINT64_MAX)
        data_texts_write(l->loader->memory, at, names, NULL, rows, c);
    free(names);
    return size;
}

// Images of one size: rows that failed leave gaps, which the rows after them close.
static struct data_block *finish_images(struct data_load *l) {
    struct data_block *b = l->block;
    uint8_t *values = l->loader->memory->at + b->columns[0].values;
    uint32_t rows = 0;
    for (uint32_t k = 0; k < l->count; k++) {
        if (l->items[k].error.code)
            continue;
        if (rows != k)
            memmove(values + rows * l->row_bytes, values + k * l->row_bytes, l->row_bytes);
        add_origin(l->chunk, &rows, k);
    }
    b->rows = rows;
    b->columns[0].size = rows * l->row_bytes;
    write_paths(l, b->at + (l->count * l->row_bytes + 7) / 8 * 8, rows, &b->columns[1]);
    return b;
}

struct text_parts {  // of a block whose rows have different lengths
    VEC(const char *) texts;
    VEC(size_t) lens;
};

static void collect(struct data_load *l, struct text_parts *p) {
    uint32_t rows = 0, kind = l->loader->source->kind;
    for (uint32_t k = 0; k < l->count; k++) {
        struct load_item *i = &l->items[k];
        bool rows_of_text = kind == DATA_TEXT || kind == DATA_JSONL || kind == DATA_CSV;
        if (i->error.code && !rows_of_text)
            continue;
        if (kind == DATA_IMAGES || kind == DATA_TAR) {
            vec_push(&p->texts, (const char *)i->image.pixels);
            vec_push(&p->lens, (size_t)i->image.width * i->image.height * i->image.channels);
            add_origin(l->chunk, &rows, k);
        } else if (kind == DATA_FILES) {
            vec_push(&p->texts, i->bytes.len ? i->bytes.data : "");
            vec_push(&p->lens, i->bytes.len);
            add_origin(l->chunk, &rows, k);
        }
        for (uint32_t n = 0; n < i->rows.len; n++) {
            vec_push(&p->texts, i->rows.at[n].at);
            vec_push(&p->lens, i->rows.at[n].len);
            add_origin(l->chunk, &rows, k);
        }
    }
}

static void write_shapes(struct data_load *l, uint64_t at, struct data_column *c) {
    c->shapes = at;
    for (uint32_t k = 0, n = 0; k < l->count; k++) {
        const struct data_image *i = &l->items[k].image;
        uint32_t shape[3] = {i->height, i->width, i->channels};
        if (i->pixels)
            memcpy(l->loader->memory->at + at + n++ * sizeof shape, shape, sizeof shape);
    }
}

static uint64_t round8(uint64_t n) {
    return (n + 7) / 8 * 8;
}

// NULL: no room yet.
static struct data_block *finish_varying(struct data_load *l) {
    uint32_t kind = l->loader->source->kind;
    bool image = kind == DATA_IMAGES || kind == DATA_TAR, paths = image || kind == DATA_FILES;
    struct text_parts p = {0};
    struct data_block *b = NULL;
    free(l->chunk->origins);
    l->chunk->origins = NULL;
    collect(l, &p);
    uint32_t rows = p.texts.len;
    struct data_column ignored;
    uint64_t texts = data_texts_size(p.texts.at, p.lens.at, rows),
             shapes = image ? round8(rows * 3 * sizeof(uint32_t)) : 0, at;
    uint64_t size = texts + shapes + (paths ? write_paths(l, UINT64_MAX, rows, &ignored) : 0);
    if (data_memory_take(l->loader->memory, size, true, &at)) {
        b = data_block_new(paths ? 2 : 1, rows);
        b->at = at;
        b->size = size;
        column_name(&b->columns[0], image ? "image" : kind == DATA_FILES ? "bytes" : kind == DATA_TEXT ? "text" : "row",
                    image ? DATA_ARRAY : kind == DATA_FILES ? DATA_BYTES : kind == DATA_TEXT ? DATA_UTF8 : DATA_ROW);
        data_texts_write(l->loader->memory, at, p.texts.at, p.lens.at, rows, &b->columns[0]);
        if (image)
            write_shapes(l, at + texts, &b->columns[0]);
        if (paths)
            write_paths(l, at + texts + shapes, rows, &b->columns[1]);
    }
    vec_done(&p.texts);
    vec_done(&p.lens);
    return b;
}

// Numbers of a range, or the groups of Parquet files, which a worker opens: nothing is read here.
static struct data_block *finish_numbers(struct data_load *l) {
    const struct data_chunk *c = l->chunk;
    bool range = l->loader->source->kind == DATA_RANGE;
    uint64_t rows = range ? 0 : c->items.len, at;
    for (uint32_t k = 0; range && k < c->items.len; k++)
        rows += c->items.at[k].len;
    const char **names = xcalloc(c->items.len, sizeof *names);
    for (uint32_t k = 0; k < c->items.len; k++)
        names[k] = c->items.at[k].address;
    uint64_t numbers = rows * sizeof(int64_t), size = numbers + (range ? 0 : data_texts_size(names, NULL, rows));
    struct data_block *b = NULL;
    if (data_memory_take(l->loader->memory, size, true, &at)) {
        b = data_block_new(range ? 1 : 2, rows);
        b->at = at;
        b->size = size;
        column_name(&b->columns[0], range ? "id" : "group", DATA_I64);
        b->columns[0].values = at;
        b->columns[0].size = numbers;
        int64_t *out = (int64_t *)(void *)(l->loader->memory->at + at);
        for (uint32_t k = 0; k < c->items.len; k++)
            for (uint64_t n = 0; n < (range ? c->items.at[k].len : 1); n++)
                *out++ = (int64_t)(c->items.at[k].offset + n);
        if (!range) {
            column_name(&b->columns[1], "path", DATA_UTF8);
            data_texts_write(l->loader->memory, at + numbers, names, NULL, rows, &b->columns[1]);
        }
    }
    free(names);
    return b;
}

static bool finish(struct data_load *l) {
    struct data_block *b = l->block ? finish_images(l)
                           : l->loader->source->kind == DATA_RANGE || l->loader->source->kind == DATA_PARQUET
                               ? finish_numbers(l)
                               : finish_varying(l);
    if (!b)
        return false;
    for (uint32_t k = 0; k < l->count; k++)
        if (l->items[k].error.code)
            l->loader->failed(l->loader->ctx, l->chunk, item_name(&l->chunk->items.at[k]), l->items[k].error.text);
    struct data_loader *loader = l->loader;
    struct data_chunk *c = l->chunk;
    load_free(l);
    loader->loaded(loader->ctx, c, b);
    return true;
}

static void load_done(struct data_task *t) {
    struct data_load *l = ((struct load_item *)t)->load;
    if (--l->left || finish(l))
        return;
    l->next = l->loader->waiting;
    l->loader->waiting = l;
}

void data_load_again(struct data_loader *loader) {
    for (struct data_load **at = &loader->waiting; *at;) {
        struct data_load *l = *at, *next = l->next;
        if (finish(l))
            *at = next;
        else
            at = &l->next;
    }
}

bool data_load_begin(struct data_loader *loader, struct data_chunk *c) {
    uint32_t n = c->items.len;
    struct data_load *l = xcalloc(1, sizeof *l + n * sizeof *l->items);
    *l = (struct data_load){.loader = loader,
                            .chunk = c,
                            .count = n,
                            .left = n,
                            .row_bytes = data_load_row_bytes(loader->source)};
    if (l->row_bytes) {
        uint64_t names = (n + 1) * sizeof(uint64_t), at;
        for (uint32_t k = 0; k < n; k++)
            names += strlen(item_name(&c->items.at[k]));
        uint64_t size = round8(n * l->row_bytes) + round8(names);
        if (!data_memory_take(loader->memory, size, true, &at)) {
            free(l);
            return false;
        }
        const struct data_source *s = loader->source;
        uint32_t colours = s->mode == DATA_MODE_GREY ? 1 : 3;
        l->block = data_block_new(2, 0);
        l->block->at = at;
        l->block->size = size;
        struct data_column *image = &l->block->columns[0];
        column_name(image, "image", s->planes ? DATA_F32 : DATA_U8);
        image->values = at;
        image->dimensions = 3;
        memcpy(image->shape,
               s->planes ? (uint32_t[]){colours, s->height, s->width}
                         : (uint32_t[]){s->height, s->width, colours},
               3 * sizeof(uint32_t));
    }
    for (uint32_t k = 0; k < n; k++) {
        l->items[k].task = (struct data_task){.run = load_run, .done = load_done};
        l->items[k].load = l;
        l->items[k].index = k;
        data_pool_give(loader->pool, &l->items[k].task);
    }
    return true;
}
