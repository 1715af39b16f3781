// Secrets, the sizes of elastic jobs, and the cluster's own keys: what the daemon does with files and the store.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

static const char job[] =
    "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\",\"requeue\":false,\"secrets\":[\"TOKEN\"]}}";
static char folder[] = "/tmp/acequia-test-XXXXXX";

// A rig with a folder for keys and for the state.
static void open_with_folder(struct rig *r) {
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    rig_open(r);
    r->c.paths.state = folder;
    r->c.paths.keys = folder;
}

static void remove_folder(void) {
    char path[300];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

static const char *in_folder(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

// "hush", stored by alice.
static void store_secret(struct rig *r) {
    fake_expect(rig_call(r, &fake_alice, "PUT", "/v1/secrets/TOKEN", "{\"value\":\"68757368\"}"), 200, NULL);
}

static void expect_failed(struct rig *r, const char *reason) {
    struct fake_request *q =
        rig_call(r, &fake_alice, "GET", "/v1/jobs?finished=1&fields=id,state,reason", NULL);
    fake_expect(q, 200, "FAILED");
    fake_expect(q, 200, reason);
}

static void a_secret_reaches_its_node_and_nobody_else(void **state) {
    struct rig r;
    struct stat st;
    cleanup_arena struct arena a = {0};
    void *sealed = NULL;
    char name[STORE_BLOB_NAME_MAX];
    size_t len = 0;
    open_with_folder(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    store_secret(&r);
    assert_int_equal(stat(in_folder("secret.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    pipeline_secret_name(core_secret(r.c.core, "alice", NULL, "TOKEN")->value, name);
    assert_int_equal(store_blob(r.c.store, name, &sealed, &len, NULL), 0);
    assert_null(memmem(sealed, len, "hush", 4));
    free(sealed);
    struct fake_request *list = rig_call(&r, &fake_alice, "GET", "/v1/secrets", NULL);
    fake_expect(list, 200, "TOKEN");
    assert_null(memmem(list->body.data, list->body.len, "hush", 4));
    assert_null(memmem(list->body.data, list->body.len, "68757368", 8));
    fake_expect(rig_call(&r, &fake_bob, "POST", "/v1/jobs", job), 404, "TOKEN");
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", job), 201, NULL);
    rig_settle(&r);
    const struct message_secrets *s = fake_next_message(agent, MESSAGE_SECRETS, &a);
    assert_non_null(s);
    assert_int_equal(s->secrets.at[0].value.len, 4);
    assert_memory_equal(s->secrets.at[0].value.data, "hush", 4);
    const struct message_launch *m = fake_next_message(agent, MESSAGE_LAUNCH, &a);  // after its secrets
    assert_non_null(m);
    assert_int_equal(m->id, s->id);
    rig_close(&r);
    remove_folder();
}

static void a_secret_that_cannot_be_given_fails_the_job(void **state) {
    struct rig r;
    open_with_folder(&r);
    struct net_ws *agent = rig_agent(&r, "n1");
    store_secret(&r);
    struct agent_conn *conn = strmap_get(&r.c.agents, "n1");
    conn->level = FEATURE_LEVEL_FIRST;
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", job), 201, NULL);
    rig_settle(&r);
    expect_failed(&r, "does not know secrets; upgrade it");
    conn->level = FEATURE_LEVEL_NEWEST;
    assert_int_equal(chmod(in_folder("secret.key"), 0644), 0);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", job), 201, NULL);
    rig_settle(&r);
    expect_failed(&r, "mode 600");
    unlink(in_folder("secret.key"));  // not made anew while there are secrets that it is needed for
    fake_expect(rig_call(&r, &fake_alice, "PUT", "/v1/secrets/OTHER", "{\"value\":\"00\"}"), 409,
                "is not there");
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/secrets", NULL), 200, "is not there");
    assert_int_not_equal(access(in_folder("secret.key"), F_OK), 0);
    cleanup_arena struct arena a = {0};
    assert_null(fake_next_message(agent, MESSAGE_LAUNCH, &a));
    rig_close(&r);
    remove_folder();
}

static void workers_belong_to_their_owner(void **state) {
    struct rig r;
    rig_open(&r);
    rig_agent(&r, "n1");
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs",
                 "{\"spec\":{\"argv\":[\"true\"],\"workdir\":\"/\",\"workers_min\":1,\"workers_max\":2}}"),
        201, NULL);
    rig_settle(&r);
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs/1/resize", "{\"workers_min\":1,\"workers_max\":3}"), 200,
        NULL);
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1", NULL), 200, "\"workers_max\":3");
    fake_expect(rig_call(&r, &fake_bob, "POST", "/v1/jobs/1/resize", "{\"workers_min\":1,\"workers_max\":9}"),
                403, NULL);
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs/1/resize", "{\"workers_min\":4,\"workers_max\":3}"), 400,
        NULL);
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs/1/workers", "{\"ranks\":[{\"number\":0,\"rank\":7}]}"),
        200, NULL);
    fake_expect(rig_call(&r, &fake_alice, "GET", "/v1/jobs/1", NULL), 200, "\"rank\":7");
    fake_expect(
        rig_call(&r, &fake_alice, "POST", "/v1/jobs/1/workers", "{\"ranks\":[{\"number\":99,\"rank\":7}]}"),
        404, NULL);
    rig_close(&r);
}

static char *authority(struct rig *r) {
    struct error e = {0};
    static const char *const names[] = {"localhost"};
    if (controller_keys_open(&r->c, names, 1, &e) < 0)
        fail_msg("%s", e.text);
    char *pem = strdup(pki_ca_pem(r->c.ca));
    r->c.ca = pki_ca_free(r->c.ca);
    r->c.tls = tls_context_free(r->c.tls);
    return pem;
}

// The authority is made once and lies in the store; no file is left, and a later start finds the same.
static void the_authority_is_kept_in_the_store(void **state) {
    struct rig r;
    open_with_folder(&r);
    char *first = authority(&r), *again = authority(&r);
    assert_string_equal(first, again);
    assert_int_not_equal(access(in_folder("ca.key"), F_OK), 0);
    free(first);
    free(again);
    rig_close(&r);
    remove_folder();
}

// Files of release 0.1.0 are read once, and go when the journal is of a later level: here it is.
static void files_of_the_first_release_are_imported(void **state) {
    struct rig r;
    struct pki_pair p = {0};
    struct error e = {0};
    open_with_folder(&r);
    assert_int_equal(pki_ca_make("old", controller_now_ms() / 1000, &p, &e), 0);
    assert_int_equal(pki_write_file(in_folder("ca.crt"), p.cert.data, p.cert.len, 0644, &e), 0);
    assert_int_equal(pki_write_file(in_folder("ca.key"), p.key.data, p.key.len, 0600, &e), 0);
    char *pem = authority(&r);
    assert_int_equal(strncmp(pem, p.cert.data, p.cert.len), 0);
    assert_int_not_equal(access(in_folder("ca.key"), F_OK), 0);
    free(pem);
    pki_pair_done(&p);
    rig_close(&r);
    remove_folder();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_secret_reaches_its_node_and_nobody_else),
        cmocka_unit_test(a_secret_that_cannot_be_given_fails_the_job),
        cmocka_unit_test(workers_belong_to_their_owner),
        cmocka_unit_test(the_authority_is_kept_in_the_store),
        cmocka_unit_test(files_of_the_first_release_are_imported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
