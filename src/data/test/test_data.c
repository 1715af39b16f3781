// Pure parts of the engine: resizing, rows as text, ranges of lines, archives, signatures, the ledger, sizes of batches,
// and the flow of chunks through random histories.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/rand.h"
#include "base/text.h"
#include "block.h"
#include "credentials.h"
#include "flow.h"
#include "image.h"
#include "ledger.h"
#include "sign.h"
#include "split.h"

// --- images ---

static void resizing_equals_pillow(void **state) {
    (void)state;
    uint8_t in[6 * 4], out[3 * 2], big[12 * 8];
    for (int i = 0; i < 24; i++)
        in[i] = (uint8_t)(i * 37 % 251);
    struct data_image image = {6, 4, 1, in};
    // Image.fromarray(...).resize((3, 2), filter) of Pillow 9.4
    static const uint8_t bilinear[] = {82, 77, 138, 175, 94, 93}, bicubic[] = {75, 69, 148, 192, 88, 88}, lanczos[] = {72, 63, 154, 201, 85, 83}, box[] = {67, 79, 153, 198, 83, 95};
    data_image_resize(&image, 3, 2, DATA_FILTER_BILINEAR, out);
    assert_memory_equal(out, bilinear, 6);
    data_image_resize(&image, 3, 2, DATA_FILTER_BICUBIC, out);
    assert_memory_equal(out, bicubic, 6);
    data_image_resize(&image, 3, 2, DATA_FILTER_LANCZOS, out);
    assert_memory_equal(out, lanczos, 6);
    data_image_resize(&image, 3, 2, DATA_FILTER_BOX, out);
    assert_memory_equal(out, box, 6);
    data_image_resize(&image, 12, 8, DATA_FILTER_BILINEAR, big);
    assert_int_equal(big[0], in[0]);
    assert_int_equal(big[95], in[23]);
}

static void the_middle_is_cut_out(void **state) {
    (void)state;
    uint8_t in[8 * 4], out[4];
    for (int i = 0; i < 32; i++)
        in[i] = (uint8_t)(i % 8 * 10 + i / 8);
    struct data_image image = {8, 4, 1, in};
    struct error e = {0};
    struct data_fit fit = {.width = 2, .height = 2, .shorter = 4};
    assert_int_equal(data_image_fit(&image, &fit, out, &e), 0);
    assert_int_equal(out[0], 31);
    assert_int_equal(out[3], 42);
    fit.height = 5;
    assert_int_equal(data_image_fit(&image, &fit, out, &e), -EINVAL);
}

static void planes_are_normalized(void **state) {
    (void)state;
    uint8_t pixels[] = {0, 128, 255, 255, 0, 51};
    float mean[] = {0.5f, 0, 0}, std[] = {0.5f, 1, 2}, out[6];
    data_image_planes(pixels, 2, 1, 3, mean, std, out);
    assert_float_equal(out[0], -1, 1e-6);
    assert_float_equal(out[1], 1, 1e-6);
    assert_float_equal(out[2], 128 / 255.0, 1e-6);
    assert_float_equal(out[5], 0.1, 1e-6);
}

static void what_is_no_image_is_said(void **state) {
    (void)state;
    struct data_image image;
    struct error e = {0};
    assert_int_equal(data_image_decode("", 0, DATA_MODE_RGB, &image, &e), -EBADMSG);
    assert_string_equal(e.text, "the file is empty");
    assert_int_equal(data_image_decode("GIF89a", 6, DATA_MODE_RGB, &image, &e), -EBADMSG);
    assert_int_equal(data_image_decode("\xff\xd8\xff\xe0", 4, DATA_MODE_RGB, &image, &e), -EBADMSG);
    assert_int_equal(data_image_decode("\x89PNG\r\n\x1a\n", 8, DATA_MODE_RGB, &image, &e), -EBADMSG);
    assert_int_equal(data_image_decode("RIFF\0\0\0\0WEBP", 12, DATA_MODE_RGB, &image, &e), -EBADMSG);
}

// --- rows ---

static void csv_rows_become_objects(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    static const struct {
        const char *line, *json;
    } cases[] = {{"1,x,", "{\"a\":1,\"b\":\"x\",\"c\":null}"},
                 {"-1.5e3,\"q\"\"u,o\",\"\"", "{\"a\":-1.5e3,\"b\":\"q\\\"u,o\",\"c\":\"\"}"},
                 {"007,1.,.5", "{\"a\":\"007\",\"b\":\"1.\",\"c\":\".5\"}"},
                 {"\"1\",true,2\r\n", "{\"a\":\"1\",\"b\":\"true\",\"c\":2}"},
                 {"1,2", NULL},
                 {"1,2,3,4", NULL},
                 {"1,\"2,3", NULL},
                 {"1,\"2\"3,4", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf cleanup_buf out = {0};
        struct error e = {0};
        cleanup_free char *line = xstrdup(cases[i].line);
        int r = data_csv_row(line, strlen(line), names, 3, &out, &e);
        assert_int_equal(r, cases[i].json ? 0 : -EBADMSG);
        if (cases[i].json)
            assert_string_equal(out.data, cases[i].json);
    }
}

static void ranges_of_lines_meet(void **state) {
    (void)state;
    char path[] = "/tmp/acequia-data-linesXXXXXX";
    int fd = mkstemp(path);
    struct buf cleanup_buf whole = {0}, cleanup_buf got = {0}, cleanup_buf one = {0};
    struct rand r;
    rand_seed(&r, 7);
    for (int i = 0; i < 300; i++) {
        buf_fill(&whole, (char)('a' + i % 26), rand_below(&r, 40));
        buf_addc(&whole, '\n');
    }
    whole.len--;  // the last line has no end
    assert_int_equal(write(fd, whole.data, whole.len), whole.len);
    close(fd);
    struct data_remote *remote = data_remote_new();
    struct data_fetcher *f = data_fetcher_new(remote);
    struct error e = {0};
    for (uint64_t step = 1; step < 97; step += 5) {
        buf_clear(&got);
        for (uint64_t at = 0; at < whole.len; at += step) {
            uint64_t n = whole.len - at < step ? whole.len - at : step;
            assert_int_equal(data_lines_read(f, path, at, n, 1 << 20, &one, &e), 0);
            buf_add(&got, one.data, one.len);
        }
        assert_int_equal(got.len, whole.len);
        assert_memory_equal(got.data, whole.data, whole.len);
    }
    data_fetcher_free(f);
    data_remote_free(remote);
    unlink(path);
}

static void headers_of_archives(void **state) {
    (void)state;
    uint8_t block[512] = {0};
    char name[256];
    uint64_t size;
    assert_int_equal(data_tar_header(block, name, sizeof name, &size), -ENODATA);
    memcpy(block, "a/b.jpg", 7);
    memcpy(block + 124, "00000001750", 11);
    memcpy(block + 257, "ustar", 5);
    block[156] = '0';
    assert_int_equal(data_tar_header(block, name, sizeof name, &size), -EBADMSG);
    unsigned sum = 8 * ' ';
    for (int i = 0; i < 512; i++)
        sum += i < 148 || i >= 156 ? block[i] : 0;
    snprintf((char *)block + 148, 8, "%06o", sum);
    assert_int_equal(data_tar_header(block, name, sizeof name, &size), 1);
    assert_string_equal(name, "a/b.jpg");
    assert_int_equal(size, 1000);
}

// --- S3 ---

static void requests_are_signed(void **state) {
    (void)state;
    // "GET Object" of the examples in Amazon's description of the signature has a Range header among the signed ones;
    // "GET Bucket Lifecycle" there has exactly those that are signed here.
    struct data_keys keys = {(char *)(uintptr_t)"AKIAIOSFODNN7EXAMPLE", (char *)(uintptr_t)"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL, 0};
    char hash[DATA_SHA256_HEX + 1];
    data_sha256_hex("", 0, hash);
    assert_string_equal(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    struct buf cleanup_buf headers = {0};
    data_sign(&(struct data_request){"GET", "examplebucket.s3.amazonaws.com", "/", "lifecycle=", "us-east-1", hash}, &keys, 1369353600, &headers);
    assert_non_null(strstr(headers.data, "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543\n"));
    buf_clear(&headers);
    data_sign(&(struct data_request){"GET", "examplebucket.s3.amazonaws.com", "/", "max-keys=2&prefix=J", "us-east-1", hash}, &keys, 1369353600, &headers);
    assert_non_null(strstr(headers.data, "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\n"));
}

static int count_objects(void *ctx, const struct data_object *o) {
    struct buf *b = ctx;
    buf_addf(b, "%s=%llu ", o->key, (unsigned long long)o->size);
    return 0;
}

static void pages_of_lists(void **state) {
    (void)state;
    static const char page[] = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a&amp;b/&#x63;.jpg</Key>"
                               "<Size>12</Size></Contents><Contents><Key>z</Key><Size>0</Size></Contents>"
                               "<NextContinuationToken>t/=</NextContinuationToken></ListBucketResult>";
    struct buf cleanup_buf next = {0}, cleanup_buf got = {0};
    struct error e = {0};
    assert_int_equal(data_list_page(page, sizeof page - 1, count_objects, &got, &next, &e), 0);
    assert_string_equal(got.data, "a&b/c.jpg=12 z=0 ");
    assert_string_equal(next.data, "t/=");
    assert_int_equal(data_list_page("<html>", 6, count_objects, &got, &next, &e), -EPROTO);
}

static void keys_of_files(void **state) {
    (void)state;
    static const char text[] = "[default]\naws_access_key_id = A\n# no = 1\n[profile other]\r\naws_access_key_id=B\r\n";
    cleanup_free char *first = data_ini_value(text, "default", "aws_access_key_id"), *second = data_ini_value(text, "other", "aws_access_key_id");
    assert_string_equal(first, "A");
    assert_string_equal(second, "B");
    assert_null(data_ini_value(text, "default", "no"));
}

// --- the ledger ---

static void records_read_back(void **state) {
    (void)state;
    struct data_record r = {.part = xstrdup("part-000000000007.csv"), .rows = 3, .bytes = 9}, back;
    vec_push(&r.items, 0xfeedfacecafebeefull);
    vec_push(&r.items, 1);
    vec_push(&r.failures, (struct data_failure){xstrdup("a\"b"), xstrdup("line\nbreak")});
    struct buf cleanup_buf b = {0};
    data_record_write(&r, &b);
    assert_int_equal(data_record_read(b.data, b.len, &back), 0);
    assert_string_equal(back.part, r.part);
    assert_int_equal(back.items.len, 2);
    assert_true(back.items.at[0] == 0xfeedfacecafebeefull);
    assert_string_equal(back.failures.at[0].text, "line\nbreak");
    data_record_free(&back);
    data_record_free(&r);
    static const char outside[] = "{\"part\":\"part-/../../x\",\"rows\":1,\"bytes\":1,\"items\":[],\"failures\":[]}";
    assert_int_equal(data_record_read(outside, sizeof outside - 1, &back), -EBADMSG);
}

// --- sizes of batches ---

// A stage whose batches cost so much once and so much per row; the size that is found, and how its rate is to the best.
static double tuned(double once_us, double row_us, uint32_t max, uint32_t memory_rows) {
    struct data_tuner t;
    data_tuner_init(&t, 0, max, 2);
    for (int i = 0; i < 500 && !t.settled; i++) {
        if (t.size > memory_rows)
            data_tuner_too_large(&t, t.size);
        else
            data_tuner_report(&t, t.size, once_us + row_us * t.size);
    }
    assert_true(t.settled && t.size && t.size <= max && t.size <= memory_rows);
    double best = 1e300;
    for (uint32_t n = 1; n <= max && n <= memory_rows; n *= 2)
        best = once_us / n + row_us < best ? once_us / n + row_us : best;
    return (once_us / t.size + row_us) / best;
}

static void good_sizes_are_found(void **state) {
    (void)state;
    assert_true(tuned(100, 1, 1024, 1024) < 1.05);
    assert_true(tuned(2000, 10, 1024, 1024) < 1.1);
    assert_true(tuned(0, 80000, 1024, 1024) < 1.05);
    assert_true(tuned(1e5, 100, 64, 64) < 1.05);
    assert_true(tuned(1e5, 100, 1024, 20) < 1.05);
    assert_true(tuned(100, 1, 1, 1) < 1.05);
}

// --- the flow: random histories with ends of workers, failures and lack of room ---

struct world {
    struct data_flow flow;
    struct rand r;
    uint32_t blocks, running[2][4];
    VEC(struct data_chunk *) loading, writing;
    uint64_t written, failed, given, seen[4096];
    uint64_t poison;  // rows with this remainder of 97 fail, or end their worker
};

static struct data_block *make_block(struct world *w, uint64_t rows) {
    w->blocks++;
    return data_block_new(0, rows);
}

static bool w_load(void *ctx, struct data_chunk *c) {
    struct world *w = ctx;
    vec_push(&w->loading, c);
    return true;
}

static void w_run(void *ctx, uint32_t stage, uint32_t worker, struct data_piece *p) {
    struct world *w = ctx;
    assert_int_equal(w->running[stage][worker], 0);
    assert_int_equal(p->stage, stage);
    assert_true(p->count > 0 && p->count <= w->flow.stages[stage].tuner.size);
    w->running[stage][worker] = 1;
}

static void w_write(void *ctx, struct data_chunk *c) {
    struct world *w = ctx;
    vec_push(&w->writing, c);
}

static void w_free(void *ctx, struct data_block *b) {
    struct world *w = ctx;
    w->blocks--;
    data_block_free(b);
}

static bool poisoned(const struct world *w, const struct data_piece *p) {
    for (uint64_t i = 0; i < p->count; i++)
        if ((p->chunk->id + p->first_row + i) % 97 == w->poison)
            return true;
    return false;
}

static void work_once(struct world *w, uint32_t stage, uint32_t worker, int64_t now) {
    struct data_piece *p = w->flow.stages[stage].busy.at[worker];
    w->running[stage][worker] = 0;
    bool bad = stage == 0 && poisoned(w, p);
    uint64_t dice = rand_below(&w->r, 20);
    if (dice == 0 || (bad && dice < 10)) {
        data_flow_worker_lost(&w->flow, stage, worker, bad && dice < 3, "killed");
        if (rand_below(&w->r, 2))
            data_flow_advance(&w->flow, now);  // while it is gone
        data_flow_worker_ready(&w->flow, stage, worker);
    } else if (bad) {
        data_flow_failed(&w->flow, stage, worker, dice == 11, "error");
    } else {
        struct data_block *b = make_block(w, p->count);
        data_flow_result(&w->flow, stage, worker, b, now);
    }
}

static void one_history(uint64_t seed) {
    struct world w = {.poison = seed % 120};
    rand_seed(&w.r, seed);
    uint32_t nstages = (uint32_t)rand_below(&w.r, 3), ids = 0;
    data_flow_init(&w.flow, nstages, &(struct data_flow_hooks){w_load, w_run, w_write, w_free}, &w);
    for (uint32_t s = 0; s < nstages; s++) {
        data_flow_stage_init(&w.flow, s, seed % 3 ? 0 : 1 + (uint32_t)rand_below(&w.r, 9), 64, 1 + (uint32_t)rand_below(&w.r, 4));
        for (uint32_t i = 0; i < w.flow.stages[s].workers; i++)
            data_flow_worker_ready(&w.flow, s, i);
    }
    for (int64_t now = 0; now < 100000; now++) {
        uint32_t rows;
        if (ids < 1500 && data_flow_wants(&w.flow, &rows)) {
            struct data_chunk *c = data_chunk_new(ids);
            for (uint32_t i = 0; i < rows && ids < 1500; i++, ids++)
                vec_push(&c->items, (struct data_item){.address = "x"});
            c->origins = xcalloc(c->items.len, sizeof *c->origins);
            w.given += c->items.len;
            data_flow_add(&w.flow, c);
            w_load(&w, c);
        }
        if (w.loading.len && rand_below(&w.r, 2)) {
            uint32_t i = (uint32_t)rand_below(&w.r, w.loading.len);
            struct data_chunk *c = w.loading.at[i];
            vec_remove(&w.loading, i);
            data_flow_loaded(&w.flow, c, make_block(&w, c->items.len));
        }
        uint32_t s = nstages ? (uint32_t)rand_below(&w.r, nstages) : 0;
        if (nstages) {
            uint32_t i = (uint32_t)rand_below(&w.r, w.flow.stages[s].workers);
            if (w.running[s][i])
                work_once(&w, s, i, now);
        }
        if (w.writing.len && rand_below(&w.r, 3) == 0) {
            struct data_chunk *c = w.writing.at[0];
            vec_remove(&w.writing, 0);
            w.written += c->rows_out;
            w.failed += c->failures.len;
            assert_int_equal(c->rows_out + c->failures.len, c->items.len);
            data_flow_written(&w.flow, c);
        }
        data_flow_advance(&w.flow, now);
        if (ids >= 1500 && !w.flow.nchunks)
            break;
    }
    assert_int_equal(w.flow.nchunks, 0);
    assert_int_equal(w.written + w.failed, 1500);
    uint64_t poison = nstages && w.poison < 97 ? (1500 - w.poison + 96) / 97 : 0;
    assert_true(w.failed >= poison);
    assert_int_equal(w.blocks, 0);
    data_flow_done(&w.flow);
    vec_done(&w.loading);
    vec_done(&w.writing);
}

static void every_row_counts_once(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++)
        one_history(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_equals_pillow), cmocka_unit_test(the_middle_is_cut_out), cmocka_unit_test(planes_are_normalized),
        cmocka_unit_test(what_is_no_image_is_said), cmocka_unit_test(csv_rows_become_objects), cmocka_unit_test(ranges_of_lines_meet),
        cmocka_unit_test(headers_of_archives), cmocka_unit_test(requests_are_signed), cmocka_unit_test(pages_of_lists),
        cmocka_unit_test(keys_of_files), cmocka_unit_test(records_read_back), cmocka_unit_test(good_sizes_are_found),
        cmocka_unit_test(every_row_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
