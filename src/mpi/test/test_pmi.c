// What PMI clients are answered, how ranks on nodes are described, and who may connect to the hub.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mpi/link.h"
#include "mpi/pmi.h"

struct rig {
    struct pmi_world *w;
    struct buf out[2], fence;
    int fences, aborts, code, spawns;
};

static void reply(void *ctx, uint32_t task, const void *data, size_t len) {
    struct rig *r = ctx;
    buf_add(&r->out[task], data, len);
}

static void fence(void *ctx, const void *data, size_t len) {
    struct rig *r = ctx;
    r->fences++;
    buf_add(&r->fence, data, len);
}

static void on_abort(void *ctx, uint32_t rank, int code, const char *text) {
    struct rig *r = ctx;
    r->aborts++;
    r->code = code;
    assert_int_equal(rank, 2);
    assert_string_equal(text, "no luck");
}

static void spawn(void *ctx, uint32_t task, const struct spawn_group *g) {
    struct rig *r = ctx;
    r->spawns++;
    assert_int_equal(spawn_ranks(g), 2);
    assert_string_equal(g->commands.at[0].argv.at[0], "./a");
}

static void begin(struct rig *r) {
    static const struct pmi_host host = {reply, fence, on_abort, spawn};
    static const uint32_t places[] = {0, 0, 1, 1}, ranks[] = {2, 3};
    struct pmi_options o = {.size = 4, .nodes = 2, .places = places, .ranks = ranks, .tasks = 2, .name = "w"};
    *r = (struct rig){0};
    r->w = pmi_world_new(&o, &host, r);
}

static void end(struct rig *r) {
    pmi_world_free(r->w);
    buf_done(&r->out[0]);
    buf_done(&r->out[1]);
    buf_done(&r->fence);
}

static void says(struct rig *r, uint32_t task, const char *text, const char *answer) {
    assert_true(pmi_task_data(r->w, task, text, strlen(text)));
    assert_string_equal(buf_str(&r->out[task]), answer);
    buf_clear(&r->out[task]);
    if (r->out[task].data)
        r->out[task].data[0] = 0;
}

static void test_values_are_known_to_all_after_a_fence(void **state) {
    struct rig r;
    begin(&r);
    says(&r, 0, "cmd=init pmi_version=1 pmi_subversion=1\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    says(&r, 0, "cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=w rc=0\n");
    says(&r, 0, "cmd=get kvsname=w key=PMI_process_mapping\n",
         "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))\n");
    says(&r, 0, "cmd=put kvsname=w key=a value=b c=d\n", "cmd=put_result rc=0 msg=success\n");
    says(&r, 0, "cmd=get kvsname=w key=a\n", "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    says(&r, 0, "cmd=barrier_in\n", "");
    assert_int_equal(r.fences, 0);  // the other task here has not entered
    says(&r, 1, "cmd=init pmi_version=2 pmi_subversion=0\n",
         "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
    says(&r, 1, "    29cmd=kvs-put;key=e;value=f;;g;", "    26cmd=kvs-put-response;rc=0;");
    says(&r, 1, "    22cmd=kvs-fence;thrid=7;", "");
    assert_int_equal(r.fences, 1);
    cleanup_buf struct buf all = {0};
    buf_add(&all, r.fence.data, r.fence.len);
    buf_add(&all, "\1\0\1\0\0\0xy", 8);  // of the other node
    assert_true(pmi_fence_done(r.w, all.data, all.len));
    assert_string_equal(buf_str(&r.out[0]), "cmd=barrier_out rc=0\n");
    assert_string_equal(buf_str(&r.out[1]), "    36cmd=kvs-fence-response;thrid=7;rc=0;");
    buf_clear(&r.out[0]);
    buf_clear(&r.out[1]);
    says(&r, 0, "cmd=get kvsname=w key=e\n", "cmd=get_result rc=0 msg=success value=f;g\n");
    says(&r, 1, "    18cmd=kvs-get;key=a;", "    49cmd=kvs-get-response;found=TRUE;value=b c=d;rc=0;");
    says(&r, 1, "    18cmd=kvs-get;key=x;", "    45cmd=kvs-get-response;found=TRUE;value=y;rc=0;");
    end(&r);
}

static void test_ranks_that_were_asked_for(void **state) {
    static const uint32_t places[] = {0, 0}, ranks[] = {0, 1};
    static const struct pmi_host host = {reply, fence, on_abort, spawn};
    struct pmi_options o = {
        .size = 2, .nodes = 1, .places = places, .ranks = ranks, .tasks = 2, .name = "w", .spawned = "1,1\nPORT=a=b\n"};
    struct rig r;
    begin(&r);
    says(&r, 0, "cmd=init pmi_version=1 pmi_subversion=1\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    says(&r, 0, "mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=1\nspawnssofar=1\nargcnt=0\n", "");
    says(&r, 0, "endcmd\n", "");
    assert_int_equal(r.spawns, 1);
    pmi_spawn_done(r.w, 0, NULL);
    assert_string_equal(buf_str(&r.out[0]), "cmd=spawn_result rc=0\n");
    buf_clear(&r.out[0]);
    says(&r, 0, "mcmd=spawn\nnprocs=0\nexecname=./a\ntotspawns=1\nendcmd\n",
         "cmd=spawn_result rc=-1 msg=no_such_number_of_processes\n");
    assert_int_equal(r.spawns, 1);
    end(&r);
    r = (struct rig){0};
    r.w = pmi_world_new(&o, &host, &r);
    says(&r, 1, "cmd=init pmi_version=1 pmi_subversion=1\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    says(&r, 1, "cmd=get_appnum\n", "cmd=appnum appnum=1 rc=0\n");
    says(&r, 1, "cmd=get kvsname=w key=PORT\n", "cmd=get_result rc=0 msg=success value=a=b\n");
    end(&r);
}

static void test_an_end_before_finalize_is_noticed(void **state) {
    struct rig r;
    begin(&r);
    assert_false(pmi_task_gone(r.w, 1));  // it never began MPI
    says(&r, 0, "cmd=init pmi_version=1 pmi_subversion=1\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    assert_true(pmi_task_runs(r.w, 0));
    assert_true(pmi_task_data(r.w, 0, "cmd=abort exitcode=7 message=no luck\n", 37));
    assert_int_equal(r.aborts, 1);
    assert_int_equal(r.code, 7);
    says(&r, 0, "cmd=finalize\n", "cmd=finalize_ack rc=0\n");
    assert_false(pmi_task_runs(r.w, 0));
    says(&r, 0, "cmd=init pmi_version=1 pmi_subversion=1\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    assert_true(pmi_task_gone(r.w, 0));
    end(&r);
}

static void test_what_is_not_pmi_is_not_answered(void **state) {
    struct rig r;
    begin(&r);
    assert_false(pmi_task_data(r.w, 0, "GET / HTTP/1.1\n", 15));
    assert_false(pmi_task_data(r.w, 1, "cmd=put key=a value=b\n", 22));  // before init
    assert_int_equal(r.out[0].len, 0);
    end(&r);
}

static void test_limits_of_values(void **state) {
    struct rig r;
    char key[PMI_KEY_MAX + 2], line[256];
    begin(&r);
    memset(key, 'k', sizeof key);
    key[PMI_KEY_MAX + 1] = 0;
    says(&r, 0, "cmd=init pmi_version=1 pmi_subversion=1\n",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    snprintf(line, sizeof line, "cmd=put kvsname=w key=%s value=b\n", key);
    says(&r, 0, line, "cmd=put_result rc=-1 msg=key_or_value_is_too_long\n");
    end(&r);
}

static void mapping_is(const uint32_t *places, uint32_t size, const char *expected) {
    struct pmi_options o = {.size = size, .places = places};
    cleanup_buf struct buf b = {0};
    pmi_mapping(&o, &b);
    assert_string_equal(buf_str(&b), expected);
}

static void test_mappings(void **state) {
    mapping_is((uint32_t[]){0, 0, 0}, 3, "(vector,(0,1,3))");
    mapping_is((uint32_t[]){0, 0, 1, 1}, 4, "(vector,(0,2,2))");
    mapping_is((uint32_t[]){0, 1, 0, 1}, 4, "(vector,(0,2,1),(0,2,1))");
    mapping_is((uint32_t[]){0, 0, 1}, 3, "(vector,(0,1,2),(1,1,1))");
    mapping_is((uint32_t[]){0, 1, 1, 2}, 4, "(vector,(0,1,1),(1,1,2),(2,1,1))");
}

static int frames(void *ctx, struct mpi_link *l, enum link_frame type, const char *data, size_t len) {
    assert_int_equal(type, LINK_FENCE);
    buf_add(ctx, data, len);
    return 0;
}

static int pass(struct mpi_link *from, struct mpi_link *to, struct buf *got) {
    cleanup_buf struct buf bytes = {0};
    buf_add(&bytes, from->out.data, from->out.len);
    buf_clear(&from->out);
    return link_data(to, bytes.data, bytes.len, frames, got);
}

static int meet(const uint8_t *hub_key, const uint8_t *node_key, struct buf *got) {
    uint8_t a[LINK_NONCE_BYTES] = {1}, b[LINK_NONCE_BYTES] = {2};
    struct mpi_link hub, node;
    link_init(&hub, true, 0, hub_key, a);
    link_init(&node, false, 3, node_key, b);
    link_send(&node, LINK_FENCE, "early", 5);
    int rc = pass(&node, &hub, got);
    rc = rc ? rc : pass(&hub, &node, got);
    rc = rc ? rc : pass(&node, &hub, got);
    rc = rc ? rc : link_data(&hub, NULL, 0, frames, got);
    if (rc == 0) {
        assert_true(hub.open && node.open);
        assert_int_equal(hub.node, 3);
    } else {
        assert_false(hub.open);
    }
    link_done(&hub);
    link_done(&node);
    return rc;
}

static void test_only_those_with_the_key_meet(void **state) {
    uint8_t key[MPI_KEY_BYTES] = {7}, other[MPI_KEY_BYTES] = {8};
    cleanup_buf struct buf got = {0};
    assert_int_equal(meet(key, key, &got), 0);
    assert_string_equal(buf_str(&got), "early");
    assert_true(meet(key, other, &got) < 0);
}

static void test_a_stranger_cannot_fill_memory(void **state) {
    uint8_t key[MPI_KEY_BYTES] = {7}, nonce[LINK_NONCE_BYTES] = {1};
    struct mpi_link hub;
    cleanup_buf struct buf got = {0};
    link_init(&hub, true, 0, key, nonce);
    assert_true(link_data(&hub, "\0\1\0\0\4", 5, frames, &got) < 0);
    link_done(&hub);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_known_to_all_after_a_fence),
        cmocka_unit_test(test_ranks_that_were_asked_for),
        cmocka_unit_test(test_an_end_before_finalize_is_noticed),
        cmocka_unit_test(test_what_is_not_pmi_is_not_answered),
        cmocka_unit_test(test_limits_of_values),
        cmocka_unit_test(test_mappings),
        cmocka_unit_test(test_only_those_with_the_key_meet),
        cmocka_unit_test(test_a_stranger_cannot_fill_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
