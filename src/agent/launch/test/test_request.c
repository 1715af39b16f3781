// From messages to launch requests: variables, files, tasks, limits.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../request.h"

static uint32_t groups[] = {100};
static const struct user_info user = {.uid = 1000, .gid = 100, .name = (char[]){"ana"},
                                      .home = (char[]){"/home/ana"}, .shell = (char[]){"/bin/sh"},
                                      .groups = groups, .ngroups = 1};

static void variables_are_set_once(void **state) {
    cleanup_arena struct arena a = {0};
    struct env env = {.arena = &a};
    const char *outer[] = {"SLURM_JOB_ID=99", "SLURM_SUBMIT_DIR=/from", "ACEQUIA_HOME=/h", "HOME=/other",
                           "SLURM_ARRAY_TASK_ID=4", "CUDA_VISIBLE_DEVICES=7", "PATH=/mine", "A=b=c"};
    struct spec spec = {.name = "train", .user = "ana", .tasks = 3, .cpus_per_task = 2,
                        .workdir = "/srv", .launch = LAUNCH_BATCH};
    struct part parts[] = {{.node = "n2", .cpus = 4, .tasks = 2, .memory_bytes = 1 << 30},
                           {.node = "n1", .cpus = 2, .tasks = 1}};
    struct message_launch m = {.id = 7, .attempt = 2, .spec = &spec, .part = parts,
                               .parts = {parts, 2}, .environment = {outer, 8}, .cluster = "lab"};
    agent_environment_job(&env, &m, &user, "n2");
    for (uint32_t i = 0; i < env.len; i++)
        for (uint32_t k = i + 1; k < env.len; k++) {
            size_t len = strcspn(env.at[i], "=") + 1;
            if (strncmp(env.at[i], env.at[k], len) == 0)
                fail_msg("%s is set twice", env.at[i]);
        }
    static const char *const want[][2] = {
        {"SLURM_JOB_ID", "7"}, {"ACEQUIA_JOB_ID", "7"}, {"SLURM_SUBMIT_DIR", "/from"},
        {"ACEQUIA_HOME", "/h"}, {"HOME", "/home/ana"}, {"PATH", "/mine"}, {"A", "b=c"},
        {"SLURM_JOB_NODELIST", "n2,n1"}, {"SLURM_TASKS_PER_NODE", "2,1"}, {"SLURM_NTASKS", "3"},
        {"SLURM_MEM_PER_NODE", "1024"}, {"SLURM_RESTART_COUNT", "1"}, {"SLURM_PROCID", "0"},
        {"CUDA_VISIBLE_DEVICES", ""}, {"SLURM_CPUS_PER_TASK", "2"}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const char *got = agent_environment_find(&env, want[i][0]);
        if (!got || strcmp(got, want[i][1]) != 0)
            fail_msg("%s is %s, expected %s", want[i][0], got ? got : "not set", want[i][1]);
    }
    assert_null(agent_environment_find(&env, "SLURM_ARRAY_TASK_ID"));
}

// A user chooses how many variables there are: each is found by a few looks, not by a walk over the others.
static void many_variables_cost_little(void **state) {
    enum { MANY = 50000 };
    cleanup_arena struct arena a = {0};
    struct env env = {.arena = &a};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++)
            agent_environment_set(&env, arena_printf(&a, "V%d", i), round ? "new" : "old");
    assert_int_equal(env.len, MANY);
    assert_string_equal(agent_environment_find(&env, "V0"), "new");
    assert_string_equal(agent_environment_find(&env, "V49999"), "new");
    assert_null(agent_environment_find(&env, "V50000"));
    assert_true(env.compared < 20 * MANY);
}

static void slurms_language_keeps_the_submitters_home(void **state) {
    cleanup_arena struct arena a = {0};
    struct env env = {.arena = &a};
    const char *outer[] = {"HOME=/other", "LOGNAME=maria"};
    struct spec spec = {.name = "train", .user = "ana", .workdir = "/srv", .slurm_words = true};
    struct part part = {.node = "n2", .cpus = 1, .tasks = 1};
    struct message_launch m = {.id = 7, .attempt = 1, .spec = &spec, .part = &part, .parts = {&part, 1},
                               .environment = {outer, 2}, .cluster = "lab"};
    agent_environment_job(&env, &m, &user, "n2");
    assert_string_equal(agent_environment_find(&env, "HOME"), "/other");
    assert_string_equal(agent_environment_find(&env, "LOGNAME"), "maria");
    assert_string_equal(agent_environment_find(&env, "USER"), "ana");
}

// Programs take the presence of SLURM_NTASKS for having been started by srun.
static void a_script_is_told_what_was_asked_for(void **state) {
    cleanup_arena struct arena a = {0};
    const char *asked[] = {"SLURM_NTASKS=3", "SLURM_GPUS=v100:2", "SLURM_GPU_BIND=closest", "HOSTNAME=login",
                           "SLURM_ARRAY_TASK_STEP=4"};
    struct spec spec = {.name = "train", .user = "ana", .tasks = 3, .launch = LAUNCH_BATCH, .slurm_words = true,
                        .gpus_milli = 2000};
    struct gpu_grant gpus[] = {{.index = 0, .milli = 1000}, {.index = 1, .milli = 1000}};
    struct part part = {.node = "n2", .cpus = 4, .tasks = 3, .gpus = {gpus, 2}};
    struct message_launch m = {.id = 7, .attempt = 1, .spec = &spec, .part = &part, .parts = {&part, 1}};
    struct env none = {.arena = &a}, told = {.arena = &a};
    agent_environment_job(&none, &m, &user, "n2");
    assert_null(agent_environment_find(&none, "SLURM_NTASKS"));
    assert_null(agent_environment_find(&none, "SLURM_NPROCS"));
    assert_null(agent_environment_find(&none, "SLURM_GPUS"));
    assert_string_equal(agent_environment_find(&none, "ACEQUIA_NTASKS"), "3");
    assert_string_equal(agent_environment_find(&none, "SLURM_GPUS_ON_NODE"), "2");
    m.environment.at = asked;
    m.environment.len = sizeof asked / sizeof *asked;
    agent_environment_job(&told, &m, &user, "n2");
    assert_string_equal(agent_environment_find(&told, "SLURM_NTASKS"), "3");
    assert_string_equal(agent_environment_find(&told, "SLURM_GPUS"), "v100:2");
    assert_string_equal(agent_environment_find(&told, "SLURM_GPU_BIND"), "closest");
    assert_string_equal(agent_environment_find(&told, "SLURM_ARRAY_TASK_STEP"), "4");
    assert_string_equal(agent_environment_find(&told, "HOSTNAME"), "n2");
    assert_string_equal(agent_environment_find(&told, "TMPDIR"), "/tmp");
}

static void launch(const struct message_launch *m, struct arena *a, struct launch_request *r) {
    struct node node = {.name = "n1"};
    struct request_node here = {.name = "n1", .own_uid = geteuid(), .root = geteuid() == 0,
                                .node = &node, .grace_s = 30, .output_folder = "/kept",
                                .cluster_home = "/srv/lab"};
    struct users *users;
    struct error e = {0};
    enum launch_code code;
    assert_int_equal(users_start(&users, &e), 0);
    int rc;
    while ((rc = agent_request_from_launch(&here, users, m, (uint32_t[]){0, 1, 2, 3}, 4, 1, a, r, &code,
                                           &e)) == -EINPROGRESS) {
        usleep(1000);
        users_read(users, 1);
    }
    if (rc < 0)
        fail_msg("%s", e.text);
    users_free(users);
}

static void tasks_have_their_own_files_and_cpus(void **state) {
    cleanup_arena struct arena a = {0};
    struct launch_request r;
    const char *argv[] = {"prog", "x"};
    struct spec spec = {.name = "t", .uid = geteuid(), .gid = getegid(), .output = "out-%j-%t",
                        .workdir = "/srv", .launch = LAUNCH_TASKS, .argv = {argv, 2},
                        .signal = SIGUSR1, .signal_before_s = 60, .grace_s = 5};
    struct part part = {.node = "n1", .cpus = 4, .tasks = 2, .memory_bytes = 1 << 30};
    struct message_launch m = {.id = 7, .attempt = 1, .spec = &spec, .part = &part,
                               .parts = {&part, 1}, .first_rank = 4, .time_limit_s = 100,
                               .elapsed_s = 40};
    launch(&m, &a, &r);
    assert_int_equal(r.ntasks, 2);
    assert_string_equal(r.out, "/srv/out-7-4");
    assert_string_equal(r.tasks[1].out, "/srv/out-7-5");
    assert_int_equal(r.tasks[1].rank, 5);
    assert_int_equal(r.tasks[1].ncpus, 2);
    assert_int_equal(r.tasks[1].cpus[0], 2);
    assert_true(r.kill_on_bad_exit);
    assert_int_equal(r.time_limit_ms, 60000);
    assert_int_equal(r.grace_ms, 5000);
    assert_int_equal(r.warn_target, SIGNAL_ALL);
    bool found = false;  // also a job that was given no variables finds its cluster
    for (uint32_t i = 0; i < r.nenv; i++)
        found |= strcmp(r.env[i], "ACEQUIA_HOME=/srv/lab") == 0;
    assert_true(found);
    spec.launch = LAUNCH_BATCH;
    launch(&m, &a, &r);
    assert_int_equal(r.ntasks, 1);
    assert_int_equal(r.warn_target, SIGNAL_STEPS);
    m.node_index = 1;  // the script runs on the first node only
    launch(&m, &a, &r);
    assert_int_equal(r.ntasks, 0);
}

static void ends_are_told_in_the_controllers_words(void **state) {
    cleanup_arena struct arena a = {0};
    struct message_ended m;
    struct spool_status s = {.job = 7, .attempt = 1, .end = ENDED_LAUNCH_FAILED,
                             .launch_code = LAUNCH_CWD, .text = "no folder"};
    agent_request_report(&s, &a, &m);
    assert_int_equal(m.cause, END_LAUNCH);
    assert_string_equal(m.reason, "could not be started: no folder");
    s = (struct spool_status){.end = ENDED_KILLED, .kill_why = END_PREEMPT, .signal = SIGTERM};
    agent_request_report(&s, &a, &m);
    assert_int_equal(m.cause, END_PREEMPT);
    assert_int_equal(m.exit_signal, SIGTERM);
    s = (struct spool_status){.end = ENDED_LOST};
    agent_request_report(&s, &a, &m);
    assert_int_equal(m.cause, END_NODE_FAIL);
}

static void bind_to(const char *text, struct launch_request *r, uint32_t task, const char *cpus) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf got = {0};
    struct error e = {0};
    bool verbose;
    assert_int_equal(agent_request_bind(text, r, &verbose, &a, &e), 0);
    for (uint32_t i = 0; i < r->tasks[task].ncpus; i++)
        buf_addf(&got, "%s%u", i ? "," : "", r->tasks[task].cpus[i]);
    assert_string_equal(buf_str(&got), cpus);
}

static void tasks_are_bound_as_asked(void **state) {
    cleanup_arena struct arena a = {0};
    uint32_t cpus[] = {4, 5, 6, 9};
    struct launch_process tasks[3] = {0};
    struct launch_request r = {.tasks = tasks, .ntasks = 3, .cpus = cpus, .ncpus = 4};
    struct error e = {0};
    bool verbose;
    bind_to("map_cpu:9,4", &r, 0, "9");
    bind_to("quiet,map_cpu:9,4", &r, 2, "9");  // the list begins anew
    bind_to("mask_cpu:0x30,0x240", &r, 0, "4,5");
    bind_to("mask_cpu:0x30,0x240", &r, 1, "6,9");
    bind_to("rank", &r, 1, "5");
    bind_to("none", &r, 1, "");
    bind_to("sockets,v", &r, 1, "");
    assert_int_equal(agent_request_bind("verbose,cores", &r, &verbose, &a, &e), 0);
    assert_true(verbose);
    static const char *const wrong[] = {"map_cpu:7",  "map_cpu:",   "map_cpu:x", "mask_cpu:0x1",
                                        "mask_cpu:0", "mask_cpu:g", "nosuch"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (agent_request_bind(wrong[i], &r, &verbose, &a, &e) != -EINVAL)
            fail_msg("%s is accepted", wrong[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_are_set_once),
        cmocka_unit_test(many_variables_cost_little),
        cmocka_unit_test(slurms_language_keeps_the_submitters_home),
        cmocka_unit_test(a_script_is_told_what_was_asked_for),
        cmocka_unit_test(tasks_have_their_own_files_and_cpus),
        cmocka_unit_test(ends_are_told_in_the_controllers_words),
        cmocka_unit_test(tasks_are_bound_as_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
