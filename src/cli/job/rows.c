// Fetches rows of jobs: in one stream, or page by page.
#include "cli/job/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { ROWS_TIMEOUT_MS = 60 * 1000 };

int job_rows_field(const struct job_rows *r, const char *name) {
    for (uint32_t i = 0; r->fields && r->fields->type == JSON_ARRAY && i < r->fields->len; i++)
        if (r->fields->items[i].type == JSON_STRING && streq(r->fields->items[i].s, name))
            return (int)i;
    return -1;
}

const char *job_rows_text(const struct json *row, int i) {
    return i >= 0 && row->type == JSON_ARRAY && (uint32_t)i < row->len && row->items[i].type == JSON_STRING
               ? row->items[i].s
               : NULL;
}

int64_t job_rows_number(const struct json *row, int i) {
    return i >= 0 && row->type == JSON_ARRAY && (uint32_t)i < row->len && row->items[i].type == JSON_INT
               ? row->items[i].i
               : 0;
}

static int compare_numbers(const void *a, const void *b, void *field) {
    int64_t x = job_rows_number(*(const struct json *const *)a, *(int *)field),
            y = job_rows_number(*(const struct json *const *)b, *(int *)field);
    return x < y ? -1 : x > y;
}

int job_rows_sort_by(struct job_rows *rows, const char *name) {
    int field = job_rows_field(rows, name);
    if (rows->rows.len)
        qsort_r(rows->rows.at, rows->rows.len, sizeof *rows->rows.at, compare_numbers, &field);
    return 0;
}

struct rows_reading {
    struct cli *cli;
    struct job_rows *out;
    struct buf in;  // the beginning of a line
    bool ended;
};

static int read_line(void *ctx, const struct json *line) {
    struct rows_reading *r = ctx;
    const struct json *failed = json_get(line, "error");
    if (failed)
        return error_set(&r->cli->error, EIO, "%s",
                         json_str(failed, "message") ? json_str(failed, "message")
                                                     : "the list is incomplete");
    const struct json *kept = arena_memdup(&r->cli->arena, line, sizeof *line);
    if (line->type == JSON_ARRAY)
        vec_push(&r->out->rows, kept);
    else if (json_get(kept, "fields"))
        r->out->fields = json_get(kept, "fields");
    r->ended = line->type == JSON_OBJECT && json_get(line, "rows");
    return 0;
}

// Whole lines are kept and read where they are; the rest waits for more.
static int read_piece(void *arg, const char *data, size_t len) {
    struct rows_reading *r = arg;
    buf_add(&r->in, data, len);
    const char *last = memrchr(r->in.data, '\n', r->in.len);
    if (!last)
        return 0;
    size_t whole = (size_t)(last - r->in.data) + 1;
    char *text = arena_memdup(&r->cli->arena, r->in.data, whole);
    buf_drop(&r->in, whole);
    return json_each_line(text, whole, &r->cli->arena, read_line, r, &r->cli->error);
}

int job_list_stream(struct cli *c, struct client *k, const char *target, struct job_rows *out) {
    struct rows_reading r = {.cli = c, .out = out};
    int n = client_stream(k, target, ROWS_TIMEOUT_MS, read_piece, &r);
    buf_done(&r.in);
    if (n == 0 && !r.ended)
        n = error_set(&c->error, EPROTO, "the controller's answer is truncated");
    return n;
}

struct each_reading {
    struct cli *cli;
    struct job_rows header;
    struct buf in;
    struct arena scratch;
    job_row_fn *fn;
    void *ctx;
    bool ended;
};

static int each_line(void *ctx, const struct json *line) {
    struct each_reading *r = ctx;
    const struct json *failed = json_get(line, "error");
    if (line->type == JSON_ARRAY)
        return r->fn(r->ctx, &r->header, line);
    if (failed)
        return error_set(&r->cli->error, EIO, "%s",
                         json_str(failed, "message") ? json_str(failed, "message") : "the list is incomplete");
    if (json_get(line, "fields"))
        r->header.fields = json_get(line, "fields");
    r->ended = json_get(line, "rows");
    return 0;
}

// The first lines, with the names of the fields, are kept; later ones only until they are read.
static int each_piece(void *arg, const char *data, size_t len) {
    struct each_reading *r = arg;
    buf_add(&r->in, data, len);
    const char *last = memrchr(r->in.data, '\n', r->in.len);
    if (!last)
        return 0;
    size_t whole = (size_t)(last - r->in.data) + 1;
    struct arena *a = r->header.fields ? &r->scratch : &r->cli->arena;
    char *text = arena_memdup(a, r->in.data, whole);
    buf_drop(&r->in, whole);
    int status = json_each_line(text, whole, a, each_line, r, &r->cli->error);
    arena_reset(&r->scratch);
    return status;
}

int job_list_each(struct cli *c, struct client *k, const char *target, job_row_fn *fn, void *ctx) {
    struct each_reading r = {.cli = c, .fn = fn, .ctx = ctx};
    int n = client_stream(k, target, ROWS_TIMEOUT_MS, each_piece, &r);
    buf_done(&r.in);
    arena_done(&r.scratch);
    if (n == 0 && !r.ended)
        n = error_set(&c->error, EPROTO, "the controller's answer is truncated");
    return n;
}

int job_list_fetch(struct cli *c, struct client *k, const char *target, uint32_t limit, struct job_rows *out) {
    cleanup_buf struct buf after = {0};
    for (;;) {
        struct reply reply;
        int r = client_call(k, "GET", after.len ? buf_str(&after) : target, NULL, &reply);
        if (r < 0)
            return r;
        const struct json *jobs = json_get(reply.json, "jobs");
        out->fields = json_get(reply.json, "fields");
        for (uint32_t i = 0;
             jobs && jobs->type == JSON_ARRAY && i < jobs->len && (!limit || out->rows.len < limit); i++)
            vec_push(&out->rows, &jobs->items[i]);
        const struct json *next = json_get(reply.json, "next");
        out->cut = next && next->type != JSON_NULL && limit && out->rows.len >= limit;
        if (!next || next->type == JSON_NULL || out->cut)
            return 0;
        buf_clear(&after);
        buf_addf(&after, "%s&after=", target);
        if (next->type == JSON_STRING)
            http_percent_encode(&after, next->s);
        else
            buf_addf(&after, "%lld", (long long)json_i64(reply.json, "next", 0));
    }
}
