// Damage that can be decoded: records of a snapshot and events of a journal without their fields. They are refused with
// a message that names the record, or change nothing; the fuzz targets of this module try the rest.
#include "rig.h"

#include <errno.h>

#include "snapshot_records.h"

struct record {
    uint64_t type;
    const uint8_t *data;
    size_t len;
};
typedef VEC(struct record) record_list;

static void split(const struct buf *b, record_list *out) {
    const uint8_t *p = (const uint8_t *)b->data, *end = p + b->len;
    uint64_t type, len;
    while (p < end && schema_get_varint(&p, end, &type) == 0 && schema_get_varint(&p, end, &len) == 0) {
        vec_push(out, ((struct record){type, p, len}));
        p += len;
    }
}

static void add(struct buf *b, const struct record *r) {
    schema_put_varint(b, r->type);
    schema_put_varint(b, r->len);
    buf_add(b, r->len ? (const void *)r->data : "", r->len);
}

static int load(const struct buf *b, struct error *e) {
    struct core_config config;
    core_config_default(&config);
    struct core *c = core_new(&config);
    int r = core_load_snapshot(c, 9, b->data, b->len, e);
    core_free(c);
    return r;
}

static void fill(struct rig *r) {
    rig_init(r);
    rig_hello(r, "n1", 8, 2, "boot", NULL, 0);
    struct spec spec = rig_spec();
    rig_submit(r, &alice, &spec);
    struct array_range range = {.first = 0, .last = 2, .step = 1};
    spec.array.at = &range;
    spec.array.len = 1;
    spec.hold = true;
    rig_submit(r, &bob, &spec);
}

static void test_records_without_their_fields(void **state) {
    struct rig r;
    cleanup_buf struct buf whole = {0};
    record_list records = {0};
    fill(&r);
    core_snapshot(r.core, &whole);
    split(&whole, &records);
    assert_true(records.len > 8);
    unsigned refused = 0;
    for (uint32_t i = 0; i < records.len; i++) {
        cleanup_buf struct buf b = {0};
        struct error e = {0};
        char name[32];
        for (uint32_t k = 0; k < records.len; k++)
            add(&b, k == i ? &(struct record){records.at[k].type, NULL, 0} : &records.at[k]);
        int result = load(&b, &e);
        if (records.at[i].type != REC_USER && records.at[i].type != REC_JOB && records.at[i].type != REC_NODE &&
            records.at[i].type != REC_SUBMISSION)
            continue;
        assert_int_equal(result, -EBADMSG);
        snprintf(name, sizeof name, "record %u (", i + 1);
        assert_non_null(strstr(e.text, name));
        refused++;
    }
    assert_true(refused >= 6);
    vec_done(&records);
    rig_done(&r);
}

static void test_a_record_that_refers_to_nothing(void **state) {
    struct rig r;
    cleanup_buf struct buf whole = {0};
    record_list records = {0};
    fill(&r);
    core_snapshot(r.core, &whole);
    split(&whole, &records);
    for (uint32_t i = 0; i < records.len; i++) {  // each is left out in turn
        cleanup_buf struct buf b = {0};
        struct error e = {0};
        for (uint32_t k = 0; k < records.len; k++)
            if (k != i)
                add(&b, &records.at[k]);
        int result = load(&b, &e);
        if (records.at[i].type == REC_NODE || records.at[i].type == REC_SUBMISSION || records.at[i].type == REC_META ||
            records.at[i].type == REC_END)
            assert_int_equal(result, -EBADMSG);
    }
    vec_done(&records);
    rig_done(&r);
}

static void test_events_without_their_fields(void **state) {
    struct rig r;
    fill(&r);
    struct core_config config;
    core_config_default(&config);
    for (int type = 1; type < EVENT_TYPE_MAX; type++) {
        if (!event_info((enum event_type)type))
            continue;
        struct core *c = core_new(&config);
        for (uint32_t i = 0; i < r.journal.len; i++) {
            const struct outbox_event *e = &r.journal.at[i].e;
            assert_int_equal(core_replay(c, e->seq, e->at_ms, e->type, r.journal.at[i].data, e->len), 0);
        }
        uint64_t seq = core_seq(c);
        int result = core_replay(c, seq + 1, 5, (enum event_type)type, "", 0);
        assert_int_equal(core_seq(c), result < 0 ? seq : seq + 1);
        core_schedule(c, 2000000);
        core_assert(c);
        core_free(c);
    }
    rig_done(&r);
}

// No placement has one GPU and a half.
static void test_a_submit_with_an_impossible_number_of_gpus(void **state) {
    struct rig r;
    struct spec spec = rig_spec();
    cleanup_buf struct buf b = {0};
    rig_init(&r);
    rig_hello(&r, "n1", 8, 2, "boot", NULL, 0);
    spec.user = "alice";
    spec.project = "default";
    spec.partition = "main";
    spec.gpus_per_node_milli = 1001;
    struct event_job_submitted submitted = {.id = 1, .spec = &spec};
    schema_encode(event_info(EVENT_JOB_SUBMITTED)->schema, &submitted, &b);
    assert_int_equal(core_replay(r.core, core_seq(r.core) + 1, 5, EVENT_JOB_SUBMITTED, b.data, b.len), -EBADMSG);
    core_schedule(r.core, r.now_ms);
    rig_done(&r);
}

// --- jobs with workers ---

static int replay(struct core *c, enum event_type type, const void *body) {
    cleanup_buf struct buf b = {0};
    schema_encode(event_info(type)->schema, body, &b);
    return core_replay(c, core_seq(c) + 1, 5, type, b.data, b.len);
}

// What the program has written itself can be loaded.
static void reload(const struct core *c) {
    cleanup_buf struct buf whole = {0};
    struct error e = {0};
    core_snapshot(c, &whole);
    if (load(&whole, &e) < 0)
        fail_msg("%s", e.text);
}

static struct spec submitted_spec(void) {
    struct spec spec = rig_spec();
    spec.user = "alice";
    spec.project = "default";
    spec.partition = "main";
    return spec;
}

// Only a job that is no array has workers, and it has them from its submit on: the snapshot of any other would be read
// as that of a job with workers.
static void test_workers_where_there_are_none(void **state) {
    struct rig r;
    struct array_range range = {.first = 0, .last = 3, .step = 1};
    rig_init(&r);
    rig_hello(&r, "n1", 8, 2, "boot", NULL, 0);
    struct spec spec = submitted_spec();
    uint64_t plain = rig_submit(&r, &alice, &spec);
    spec.array.at = &range;
    spec.array.len = 1;
    struct event_job_submitted submitted = {.id = plain + 1, .spec = &spec};
    spec.workers_min = 1;
    spec.workers_max = 2;
    assert_int_equal(replay(r.core, EVENT_JOB_SUBMITTED, &submitted), -EBADMSG);
    spec.array.len = 0;
    struct event_job_updated updated = {.id = plain, .spec = &spec};
    assert_int_equal(replay(r.core, EVENT_JOB_UPDATED, &updated), -EBADMSG);
    reload(r.core);
    rig_done(&r);
}

// A job with one to three workers that was submitted and not yet placed: ids from the job's own on.
static uint64_t submit_workers(struct rig *r) {
    struct spec spec = submitted_spec();
    rig_init(r);
    rig_hello(r, "n1", 8, 2, "boot", NULL, 0);
    spec.workers_min = 1;
    spec.workers_max = 3;
    spec.hold = true;
    struct event_job_submitted submitted = {.id = 1, .spec = &spec};
    assert_int_equal(replay(r->core, EVENT_JOB_SUBMITTED, &submitted), 0);
    return submitted.id;
}

// A journal of the first level has no records that would start workers, and levels only rise.
static void test_workers_before_their_level(void **state) {
    struct core_config config;
    struct spec spec = submitted_spec();
    core_config_default(&config);
    struct core *c = core_new(&config);
    spec.workers_min = spec.workers_max = 2;
    struct event_job_submitted submitted = {.id = 1, .spec = &spec};
    struct event_level_set level = {.level = 2};
    assert_int_equal(replay(c, EVENT_JOB_SUBMITTED, &submitted), -EBADMSG);
    assert_int_equal(replay(c, EVENT_LEVEL_SET, &level), 0);
    assert_int_equal(replay(c, EVENT_JOB_SUBMITTED, &submitted), 0);
    level.level = 1;
    assert_int_equal(replay(c, EVENT_LEVEL_SET, &level), -EBADMSG);
    core_free(c);
}

static void test_placements_of_workers(void **state) {
    struct rig r;
    struct gpu_grant missing = {.index = 5, .milli = 1000};
    uint64_t job = submit_workers(&r);
    struct part part = {.node = "n1", .cpus = 1, .tasks = 1}, nowhere = {.node = "n9", .cpus = 1},
                wrong_gpu = {.node = "n1", .cpus = 1, .gpus = {&missing, 1}};
    struct placed_worker one = {.number = 0, .attempt = 1, .id = job + 1, .part = &part};
    struct event_workers_placed placed = {.id = job, .attempt = 1, .workers = {&one, 1}};
    struct event_job_placed alone = {.id = job + 2, .attempt = 1, .parts = {&part, 1}};
    struct event_job_adopted adopted = {.id = job, .attempt = 1, .start_ms = INT64_MIN};
    assert_int_equal(replay(r.core, EVENT_JOB_ADOPTED, &adopted), -EBADMSG);
    assert_int_equal(replay(r.core, EVENT_JOB_PLACED, &alone), -EBADMSG);  // its job does not run
    one.part = &nowhere;
    assert_int_equal(replay(r.core, EVENT_WORKERS_PLACED, &placed), -EBADMSG);
    one.part = &wrong_gpu;
    assert_int_equal(replay(r.core, EVENT_WORKERS_PLACED, &placed), -EBADMSG);
    one.part = &part;
    assert_int_equal(replay(r.core, EVENT_WORKERS_PLACED, &placed), 0);
    assert_int_equal(replay(r.core, EVENT_WORKERS_PLACED, &placed), -EBADMSG);  // it runs
    alone.start_ms = -1;
    assert_int_equal(replay(r.core, EVENT_JOB_PLACED, &alone), -EBADMSG);
    alone.start_ms = 0;
    assert_int_equal(replay(r.core, EVENT_JOB_PLACED, &alone), 0);
    // A job neither ends nor goes back to the queue before its workers, and these do not change apart from it.
    struct event_job_ended ended = {.id = job, .attempt = 1, .state = JOB_COMPLETED};
    struct event_job_requeued requeued = {.id = job, .attempt = 1};
    struct spec spec = submitted_spec();
    struct event_job_updated updated = {.id = job + 1, .spec = &spec};
    spec.workers_min = spec.workers_max = 1;
    assert_int_equal(replay(r.core, EVENT_JOB_ENDED, &ended), -EBADMSG);
    assert_int_equal(replay(r.core, EVENT_JOB_REQUEUED, &requeued), -EBADMSG);
    assert_int_equal(replay(r.core, EVENT_JOB_UPDATED, &updated), -EBADMSG);
    core_assert(r.core);
    reload(r.core);
    rig_done(&r);
}

static void test_resizes_and_ranks_of_workers(void **state) {
    struct rig r;
    uint64_t job = submit_workers(&r);
    for (uint64_t id = job + 1; id <= job + 3;
         id++) {  // the last one stays: a job that waits has one to start
        struct event_job_ended ended = {.id = id, .state = JOB_CANCELLED};
        assert_int_equal(replay(r.core, EVENT_JOB_ENDED, &ended), id == job + 3 ? -EBADMSG : 0);
    }
    struct event_job_resized more = {.id = job, .workers_min = 0, .workers_max = 1};
    assert_int_equal(replay(r.core, EVENT_JOB_RESIZED, &more), -EBADMSG);  // it would start with none
    more = (struct event_job_resized){.id = job, .workers_min = 2, .workers_max = 1};
    assert_int_equal(replay(r.core, EVENT_JOB_RESIZED, &more), -EBADMSG);  // from 2 to 1
    more = (struct event_job_resized){.id = job};
    assert_int_equal(replay(r.core, EVENT_JOB_RESIZED, &more), -EBADMSG);  // none at all
    more = (struct event_job_resized){
        .id = job, .workers_min = 1, .workers_max = 4, .added = 1, .first_id = job + 1};
    assert_int_equal(replay(r.core, EVENT_JOB_RESIZED, &more), -EBADMSG);  // an id that a worker has
    more.added = UINT32_MAX;
    more.first_id = job + 100;
    assert_int_equal(replay(r.core, EVENT_JOB_RESIZED, &more), -EBADMSG);
    more.added = 1;
    assert_int_equal(replay(r.core, EVENT_JOB_RESIZED, &more), 0);
    struct worker_rank rank = {.number = 0, .rank = INT32_MIN, .idle = true};
    struct event_workers_ranked ranked = {.id = job, .ranks = {&rank, 1}};
    assert_int_equal(replay(r.core, EVENT_WORKERS_RANKED, &ranked), -EBADMSG);
    rank.rank = -JOB_WORKER_RANK_MAX;
    assert_int_equal(replay(r.core, EVENT_WORKERS_RANKED, &ranked), 0);
    core_assert(r.core);
    reload(r.core);
    rig_done(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_without_their_fields),
        cmocka_unit_test(test_a_record_that_refers_to_nothing),
        cmocka_unit_test(test_events_without_their_fields),
        cmocka_unit_test(test_a_submit_with_an_impossible_number_of_gpus),
        cmocka_unit_test(test_workers_where_there_are_none),
        cmocka_unit_test(test_workers_before_their_level),
        cmocka_unit_test(test_placements_of_workers),
        cmocka_unit_test(test_resizes_and_ranks_of_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
