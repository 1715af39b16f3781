// The life of the daemon: it starts on an empty folder, keeps its state over a restart, reads its configuration again,
// and says why it cannot start. Its sockets and users are those of fake_net.c, everything else is real.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "controller/daemon.h"
#include "rig.h"

enum { WAIT_MAX_MS = 60000 };

struct life {
    char home[64];
    bool (*during)(struct life *l);  // while it is up, on another thread; false: it is not as it should be
    bool well;
};

static void path_of(const struct life *l, const char *name, char out[static 128]) {
    snprintf(out, 128, "%s/%s", l->home, name);
}

static bool exists(const struct life *l, const char *name) {
    char path[128];
    path_of(l, name, path);
    return access(path, F_OK) == 0;
}

static bool wait_for(const struct life *l, const char *name) {
    for (int64_t until_ms = clock_mono_ms() + WAIT_MAX_MS; clock_mono_ms() < until_ms; usleep(2000))
        if (exists(l, name))
            return true;
    return false;
}

static void configure(const struct life *l, const char *text) {
    char path[128];
    path_of(l, "acequia.conf", path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void begin(struct life *l) {
    *l = (struct life){.home = "/tmp/acequia-daemon-XXXXXX"};
    assert_non_null(mkdtemp(l->home));
    setenv("ACEQUIA_HOME", l->home, 1);
}

static void *beside(void *arg) {
    struct life *l = arg;
    l->well = wait_for(l, "run/controller.pid") && (!l->during || l->during(l));
    kill(getpid(), SIGTERM);
    return NULL;
}

// From its start until it is told to end.
static int live(struct life *l, bool (*during)(struct life *)) {
    pthread_t thread;
    char *argv[] = {"controller", NULL};
    l->during = during;
    assert_int_equal(pthread_create(&thread, NULL, beside, l), 0);
    int r = controller_main(1, argv);
    pthread_join(thread, NULL);
    assert_true(l->well);
    return r;
}

static void it_starts_ends_and_starts_again(void **state) {
    struct life l;
    begin(&l);
    configure(&l, "[cluster]\nname = alpha\n");
    assert_int_equal(live(&l, NULL), 0);
    assert_false(exists(&l, "run/controller.pid"));  // nobody takes a dead one for it
    assert_true(exists(&l, "state"));
    assert_int_equal(live(&l, NULL), 0);
    rig_remove_folder(l.home);
}

static bool delete_the_socket(struct life *l) {
    char path[128];
    path_of(l, "run/controller.pid", path);
    unlink(path);
    fake_socket_deleted = true;
    return wait_for(l, "run/controller.pid");  // whatever deleted the socket took it too
}

static void a_deleted_socket_comes_back(void **state) {
    struct life l;
    begin(&l);
    assert_int_equal(live(&l, delete_the_socket), 0);
    rig_remove_folder(l.home);
}

static bool break_the_configuration(struct life *l) {
    configure(l, "[cluster]\nheartbeat = never\n");
    kill(getpid(), SIGHUP);
    return delete_the_socket(l);  // its loop goes on
}

static void a_broken_configuration_stops_a_start_but_no_running_controller(void **state) {
    struct life l;
    char *argv[] = {"controller", "extra", NULL};
    begin(&l);
    assert_int_equal(live(&l, break_the_configuration), 0);
    assert_int_equal(controller_main(1, argv), 1);  // now it does not start
    assert_int_equal(controller_main(2, argv), 2);
    configure(&l, "[cluster]\nlisten = nonsense\n");
    assert_int_equal(controller_main(1, argv), 1);
    assert_false(exists(&l, "run/controller.pid"));
    rig_remove_folder(l.home);
}

// What an administrator asks for with `acequia reload`.
static void a_reload_changes_limits_and_a_bad_one_nothing(void **state) {
    struct rig r;
    struct life l;
    struct error e = {0};
    char path[128];
    begin(&l);
    rig_open(&r);
    path_of(&l, "acequia.conf", path);
    r.c.paths.config = path;
    configure(&l, "[cluster]\nname = beta\nmax_jobs_per_user = 1\n");
    assert_int_equal(controller_reload(&r.c, &e), 0);
    log_set_level(LOG_ERROR);
    assert_string_equal(r.c.config.cluster.name, "beta");
    const char *job = "{\"spec\":{\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true}}";
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", job), 201, NULL);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", job), 429, "max_jobs_per_user");
    configure(&l, "[cluster]\nmax_jobs_per_user = many\n");
    log_set_level(LOG_ERROR + 1);
    assert_true(controller_reload(&r.c, &e) < 0);
    assert_non_null(strstr(e.text, "max_jobs_per_user"));
    assert_string_equal(r.c.config.cluster.name, "beta");
    configure(&l, "[cluster]\nname = beta\nmax_jobs_per_user = 2\n");
    assert_int_equal(controller_reload(&r.c, &e), 0);
    fake_expect(rig_call(&r, &fake_alice, "POST", "/v1/jobs", job), 201, NULL);
    rig_close(&r);
    rig_remove_folder(l.home);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_starts_ends_and_starts_again),
        cmocka_unit_test(a_deleted_socket_comes_back),
        cmocka_unit_test(a_broken_configuration_stops_a_start_but_no_running_controller),
        cmocka_unit_test(a_reload_changes_limits_and_a_bad_one_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
