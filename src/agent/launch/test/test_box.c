// Containers without any: what images say, variables inside, what an image is, last words of programs,
// and the options that the agent derives from a request.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/launch/container.h"
#include "base/buf.h"
#include "base/text.h"
#include "box/box.h"

static const char *find(char **env, const char *name) {
    size_t n = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

static void images_speak_for_themselves(void **state) {
    cleanup_arena struct arena a = {0};
    struct box_config c = {0};
    struct error e = {0};
    const char *text = "{\"config\":{\"Env\":[\"PATH=/x\",3],\"Entrypoint\":[\"run\"],\"Cmd\":[\"it\"],\"WorkingDir\":\"/w\"}}";
    assert_int_equal(box_config_image(text, strlen(text), &a, &c, &e), 0);
    assert_int_equal(c.env.len, 1);
    assert_string_equal(c.entrypoint.at[0], "run");
    assert_string_equal(c.command.at[0], "it");
    assert_string_equal(c.workdir, "/w");
    assert_true(box_config_image("{", 1, &a, &c, &e) < 0);
    assert_true(box_config_image("[]", 2, &a, &c, &e) < 0);
}

static void bundles_name_what_they_bind(void **state) {
    cleanup_arena struct arena a = {0};
    struct box_config c = {0};
    struct error e = {0};
    const char *text = "{\"root\":{\"path\":\"r\"},\"process\":{\"args\":[\"x\"],\"cwd\":\"/c\"},\"mounts\":["
                       "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
                       "{\"destination\":\"/d\",\"type\":\"none\",\"source\":\"/s\",\"options\":[\"rbind\",\"ro\"]},"
                       "{\"destination\":\"relative\",\"type\":\"bind\",\"source\":\"/s\"}]}";
    assert_int_equal(box_config_bundle(text, strlen(text), &a, &c, &e), 0);
    assert_string_equal(c.rootfs, "r");
    assert_int_equal(c.mounts.len, 1);
    assert_string_equal(c.mounts.at[0].from, "/s");
    assert_true(c.mounts.at[0].read_only);
    vec_done(&c.mounts);
}

static void variables_of_the_job_come_over_those_of_the_image(void **state) {
    cleanup_arena struct arena a = {0};
    struct box_config c = {0};
    struct box_wish w = {.image = "img", .shim = "/shim", .driver = "/proc"};
    char *job[] = {"PATH=/outside", "LANG=job", "LD_LIBRARY_PATH=/outside", "LD_PRELOAD=/x.so", "TMPDIR=/no/such", "X=1", NULL};
    box_list_add(&c.env, &a, "PATH=/inside");
    box_list_add(&c.env, &a, "LANG=image");
    box_list_add(&c.env, &a, "LD_LIBRARY_PATH=/image/lib");
    box_list_add(&c.env, &a, "no variable");
    char **env = box_env(&w, &c, job, &a);
    assert_string_equal(find(env, "PATH"), "/inside");
    assert_string_equal(find(env, "LANG"), "job");
    assert_string_equal(find(env, "LD_LIBRARY_PATH"), "/shim:/proc:/image/lib");
    assert_null(find(env, "LD_PRELOAD"));
    assert_string_equal(find(env, "TMPDIR"), "/tmp");
    assert_string_equal(find(env, "SLURM_CONTAINER"), "img");
    assert_string_equal(find(env, "X"), "1");
}

static void what_an_image_is(void **state) {
    static const struct {
        const char *text, *reference;
        bool plain, digested;
    } names[] = {{"debian:12", "docker://debian:12", false, false},
                 {"docker://nvcr.io/nvidia/pytorch:24.01-py3", "docker://nvcr.io/nvidia/pytorch:24.01-py3", false, false},
                 {"nvcr.io#nvidia/pytorch:24.01", "docker://nvcr.io/nvidia/pytorch:24.01", false, false},
                 {"localhost:5000/a", "docker://localhost:5000/a", true, false},
                 {"a@sha256:0123", "docker://a@sha256:0123", false, true}};
    cleanup_arena struct arena a = {0};
    struct box_source s;
    struct error e = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(box_source_find(names[i].text, &a, &s, &e), 0);
        assert_int_equal(s.kind, BOX_SKOPEO);
        assert_string_equal(s.reference, names[i].reference);
        assert_true(s.remote && s.plain_http == names[i].plain && s.digested == names[i].digested);
    }
    static const char *const wrong[] = {"", "/no/such/image", "./nosuch", "-option", "two words", "a;b", "docker://"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e.text[0] = 0;
        assert_true(box_source_find(wrong[i], &a, &s, &e) < 0);
        assert_true(e.text[0] != 0);
    }
    assert_int_equal(box_source_find("/", &a, &s, &e), 0);
    assert_int_equal(s.kind, BOX_ROOTFS);
}

static void last_words_are_one_clean_line(void **state) {
    static const char *const pairs[][2] = {
        {"first\ntime=\"now\" level=fatal msg=\"it is \\\"bad\\\"\"\n\n", "it is \"bad\""},
        {"plain words\n", "plain words"}, {"", "it did not say why"}, {"tab\there", "tab?here"}};
    cleanup_arena struct arena a = {0};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        cleanup_buf struct buf b = {0};
        buf_adds(&b, pairs[i][0]);
        assert_string_equal(box_tool_last_words(&b, &a), pairs[i][1]);
    }
}

static uint32_t count(const struct launch_request *r, const char *option, const char *value) {
    uint32_t n = 0;
    for (uint32_t i = 1; i + 1 < r->boxc; i++)
        n += streq(r->box[i], option) && (!value || streq(r->box[i + 1], value));
    return n;
}

static void a_container_has_the_gpus_of_its_job_or_step(void **state) {
    cleanup_arena struct arena a = {0};
    char folder[] = "/tmp/acequia-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct gpu gpus[] = {{.uuid = "a", .model = "m", .minor_path = "/dev/nvidia0"},
                         {.uuid = "b", .model = "m", .minor_path = "/dev/nvidia1,/dev/nvidia-caps/nvidia-cap3"},
                         {.uuid = "c", .model = "m", .minor_path = "/dev/nvidia2"}};
    struct node node = {.name = "n", .gpus = {gpus, 3}};
    struct request_node here = {.name = "n", .node = &node, .box_path = "/box", .driver_folder = "/driver",
                                .image_folder = folder, .image_cache_bytes = 5};
    char *env[] = {"ACEQUIA_JOB_GPUS=0,1", "SLURM_STEP_GPUS=1", "USER=ana", "HOME=/home/ana"};
    char *argv[] = {"x"};
    struct launch_process task = {0};
    struct launch_request r = {.job = 1, .attempt = 1, .uid = geteuid(), .gid = getegid(), .env = env, .nenv = 4,
                               .argv = argv, .argc = 1, .tasks = &task, .ntasks = 1};
    struct container_wish w = {"img", "/m", NULL}, back;
    struct error e = {0};
    if (agent_container_apply(&here, &r, &w, false, &a, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(r.box[0], "/box");
    assert_int_equal(count(&r, "--device", "/dev/nvidia0") + count(&r, "--device", "/dev/nvidia1"), 2);
    assert_int_equal(count(&r, "--device", "/dev/nvidia-caps/nvidia-cap3") + count(&r, "--device", "/dev/nvidiactl"), 2);
    assert_int_equal(count(&r, "--device", "/dev/nvidia2") + count(&r, "--shim", NULL), 0);
    assert_int_equal(count(&r, "--driver", "/driver"), 1);
    back = agent_container_of(&r);
    assert_string_equal(back.image, "img");
    assert_string_equal(back.mounts, "/m");
    assert_null(back.workdir);
    r.step = 2;
    assert_int_equal(agent_container_apply(&here, &r, &back, false, &a, &e), 0);
    assert_int_equal(count(&r, "--device", "/dev/nvidia0"), 0);
    assert_int_equal(count(&r, "--device", "/dev/nvidia1"), 1);
    r.step = 0;
    r.env = env + 2;
    r.nenv = 2;
    assert_int_equal(agent_container_apply(&here, &r, &w, false, &a, &e), 0);
    assert_int_equal(count(&r, "--device", NULL) + count(&r, "--driver", NULL), 0);
    here.no_containers = "not here";
    assert_true(agent_container_apply(&here, &r, &w, false, &a, &e) < 0);
    assert_string_equal(e.text, "not here");
    rmdir(arena_printf(&a, "%s/%u", folder, geteuid()));
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_speak_for_themselves),
        cmocka_unit_test(bundles_name_what_they_bind),
        cmocka_unit_test(variables_of_the_job_come_over_those_of_the_image),
        cmocka_unit_test(what_an_image_is),
        cmocka_unit_test(last_words_are_one_clean_line),
        cmocka_unit_test(a_container_has_the_gpus_of_its_job_or_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
