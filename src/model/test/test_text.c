// Node lists, arrays, dependencies, patterns, GPU requests, names, signals, folders.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <stdlib.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "model/arrayspec.h"
#include "model/constraint.h"
#include "model/dependency.h"
#include "model/gpuspec.h"
#include "model/name.h"
#include "model/nodelist.h"
#include "model/paths.h"
#include "model/pattern.h"
#include "model/port.h"
#include "model/signalname.h"

static void node_lists(void **state) {
    static const struct {
        const char *text;
        uint32_t count;
        const char *folded;
    } good[] = {{"n[01-04,7],gpu1", 6, "gpu1,n[01-04,7]"},
                {"n9,n10,n11", 3, "n[9-11]"},
                {"a,a,a", 1, "a"},
                {"n08,n09,n10", 3, "n[08-10]"},
                {"r[1-2]n[1-2]", 4, "r1n[1-2],r2n[1-2]"},
                {"n1,n01", 2, "n[1,01]"},
                {"cvblab[03-04]", 2, "cvblab[03-04]"},
                {"n3,n1", 2, "n[1,3]"}};
    static const char *const bad[] = {"",      ",",      "n[",      "n[1",           "n[]",
                                      "n[1-]", "n[4-1]", "n[a]",    "n[1-99999999]", "n[1-300][1-300]",
                                      "-a",    "a b",    "n[1],,b", "n]1",           "a,"};
    struct error e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf out = {0};
        struct name_list names;
        assert_int_equal(nodelist_expand(good[i].text, &a, &names, &e), 0);
        assert_int_equal(names.len, good[i].count);
        nodelist_fold(names.at, names.len, &out);
        assert_string_equal(buf_str(&out), good[i].folded);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cleanup_arena struct arena a = {0};
        struct name_list names = {0};
        assert_true(nodelist_expand(bad[i], &a, &names, &e) < 0);
        assert_true(!names.at && e.text[0]);
    }
}

static void arrays(void **state) {
    static const struct {
        const char *text, *again;
        uint64_t elements;
        uint32_t limit;
    } good[] = {{"0-99999:2%50", "0-99998:2%50", 50000, 50},
                {"1,3,5-9", "1-5:2,6-9", 7, 0},
                {"7", "7", 1, 0},
                {"3-1,2", NULL, 0, 0},
                {"5-9,1-6", "1-9", 9, 0},
                {"1,1,1", "1", 1, 0},
                {"3-99%5", "3-99%5", 97, 5},
                {"0-999999", "0-999999", 1000000, 0},
                {"1,9", "1,9", 2, 0}};
    static const char *const bad[] = {"",
                                      "-1",
                                      "1-",
                                      "a",
                                      "1,,2",
                                      "1%",
                                      "1%0",
                                      "1%x",
                                      "4000000",
                                      "0-1000000",
                                      "0-999999,0-999999,0-999999",
                                      "1:2",
                                      "1-5:0",
                                      "99999999999999999999",
                                      "1 ",
                                      "%5"};
    struct error e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf out = {0};
        struct array_spec s;
        if (!good[i].again) {
            assert_true(array_parse(good[i].text, &a, &s, &e) < 0);
            continue;
        }
        assert_int_equal(array_parse(good[i].text, &a, &s, &e), 0);
        assert_int_equal(s.elements, good[i].elements);
        assert_int_equal(s.limit, good[i].limit);
        array_ranges_format(s.at, s.len, s.limit, &out);
        assert_string_equal(buf_str(&out), good[i].again);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cleanup_arena struct arena a = {0};
        struct array_spec s = {0};
        assert_true(array_parse(bad[i], &a, &s, &e) < 0);
        assert_true(!s.at && e.text[0]);
    }
    cleanup_buf struct buf out = {0};
    array_fold((uint32_t[]){3, 4, 5, 9, 20, 30, 40}, 7, 5, &out);
    assert_string_equal(buf_str(&out), "3-5,9,20-40:10%5");
}

static void dependencies(void **state) {
    static const struct {
        const char *text, *again;
        bool any;
    } good[] = {{"afterok:12:13_4,singleton", "afterok:12,afterok:13_4,singleton", false},
                {"after:12+10:13", "after:12+10,after:13", false},
                {"afterany:1?afternotok:2", "afterany:1?afternotok:2", true},
                {"aftercorr:7", "aftercorr:7", false},
                {"12", "afterany:12", false},
                {"12,13_4", "afterany:12,afterany:13_4", false},
                {"AfterOK: 12,13", "afterok:12,afterany:13", false},
                {"afterok:12?13", "afterok:12?afterany:13", true},
                {"singleton", "singleton", false}};
    static const char *const bad[] = {"",
                                      "afterok",
                                      "afterok:",
                                      "afterok:0",
                                      "afterok:x",
                                      "afterok:1,",
                                      "12:13",
                                      "12,",
                                      "12_",
                                      "before:1",
                                      "afterok:1,after:2?after:3",
                                      "afterok:1+5",
                                      "after:1+",
                                      "singleton:1",
                                      "afterok:99999999999999999999",
                                      "afterok:1_",
                                      "afterok:-1",
                                      "afterok:1 "};
    struct error e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf out = {0};
        struct dependency d;
        assert_int_equal(dependency_parse(good[i].text, &a, &d, &e), 0);
        assert_int_equal(d.any, good[i].any);
        dependency_format(&d, &out);
        assert_string_equal(buf_str(&out), good[i].again);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cleanup_arena struct arena a = {0};
        struct dependency d;
        assert_true(dependency_parse(bad[i], &a, &d, &e) < 0);
    }
}

static void patterns(void **state) {
    struct pattern_values v = {.job = 12,
                               .array = 10,
                               .array_index = 2,
                               .name = "a/b",
                               .user = "eva",
                               .node = "n1",
                               .node_index = 3,
                               .task = 4,
                               .step = 5};
    static const struct {
        const char *pattern, *path;
    } good[] = {{"out-%j.txt", "/w/out-12.txt"},
                {"/t/%x-%u-%A_%3a", "/t/a_b-eva-10_002"},
                {"%N.%n.%t.%s.%J.%b%%", "/w/n1.3.4.5.12.5.2%"}};
    static const char *const bad[] = {"", "%", "%q", "%99j", "a\nb", "%5"};
    struct error e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cleanup_buf struct buf out = {0};
        assert_int_equal(pattern_expand(good[i].pattern, "/w", &v, &out, &e), 0);
        assert_string_equal(buf_str(&out), good[i].path);
    }
    cleanup_buf struct buf none = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(pattern_expand(bad[i], "/w", &v, &none, &e) < 0);
    assert_true(pattern_expand("x", NULL, &v, &none, &e) < 0);
    assert_int_equal(none.len, 0);
}

static void gpu_requests(void **state) {
    static const struct {
        const char *text, *model;
        uint32_t milli;
    } good[] = {{"2", "", 2000},
                {"0.5", "", 500},
                {".25", "", 250},
                {"a100:2", "a100", 2000},
                {"gpu:2", "", 2000},
                {"gpu:a100:1", "a100", 1000},
                {"v100:0.25", "v100", 250},
                {"gpu", "", 1000},
                {"gpu:a100", "a100", 1000},
                {"2.0", "", 2000},
                {"0", "", 0},
                {"0.5000", "", 500}};
    static const char *const bad[] = {"",       "1.5",         "-1",   "a100:",    ":2", "2:2:2", "gpu:a:b:1",
                                      "0.0001", "99999999999", "1x:y", "a100:1.5", "1.", "gpu:"};
    struct gpu_spec g;
    struct error e;
    char out[GPU_TEXT_MAX];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(gpu_spec_parse(good[i].text, &g, &e), 0);
        assert_int_equal(g.milli, good[i].milli);
        assert_string_equal(g.model, good[i].model);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(gpu_spec_parse(bad[i], &g, &e) < 0 && e.text[0]);
    assert_string_equal(gpu_milli_format(2500, out), "2.5");
    assert_string_equal(gpu_milli_format(125, out), "0.125");
}

static void names(void **state) {
    struct error e;
    assert_int_equal(job_name_check("train resnet caf\xc3\xa9", &e), 0);
    // What terminals obey: C1 controls, and marks that reverse the text around them.
    assert_true(job_name_check("a\xc2\x9b" "2J", &e) < 0 && job_name_check("txt.\xe2\x80\xaegpj.exe", &e) < 0);
    assert_true(job_name_check("", &e) < 0 && job_name_check("a\nb", &e) < 0 && job_name_check("\xff", &e) < 0);
    char deep[JOB_NAME_MAX + 2];
    memset(deep, 'a', sizeof deep);
    deep[JOB_NAME_MAX + 1] = 0;
    assert_true(job_name_check(deep, &e) < 0);
    deep[JOB_NAME_MAX] = 0;
    assert_int_equal(job_name_check(deep, &e), 0);
    assert_int_equal(name_check("project", "vision-2.x", &e), 0);
    assert_true(name_check("project", "-x", &e) < 0 && name_check("project", "a b", &e) < 0);
    assert_non_null(strstr(e.text, "project \"a b\""));
    deep[IDENTIFIER_MAX] = 0;
    assert_int_equal(name_check("node", deep, &e), 0);
    deep[IDENTIFIER_MAX] = 'a';
    deep[IDENTIFIER_MAX + 1] = 0;
    assert_true(name_check("node", deep, &e) < 0);
}

static void signals(void **state) {
    struct signal_spec s;
    struct error e;
    uint32_t n;
    char out[SIGNAL_TEXT_MAX];
    assert_true(signal_parse("TERM", &n, &e) == 0 && n == 15);
    assert_true(signal_parse("SIGUSR1", &n, &e) == 0 && n == 10);
    assert_true(signal_parse("usr2", &n, &e) == 0 && n == 12);
    assert_true(signal_parse("9", &n, &e) == 0 && n == 9);
    assert_true(signal_parse("0", &n, &e) < 0 && signal_parse("65", &n, &e) < 0 && signal_parse("SIG", &n, &e) < 0);
    assert_true(signal_spec_parse("B:USR1@120", &s, &e) == 0 && s.batch_only && s.signal == 10 && s.before_s == 120);
    assert_true(signal_spec_parse("USR2", &s, &e) == 0 && !s.batch_only && s.before_s == SIGNAL_BEFORE_DEFAULT_S);
    assert_true(signal_spec_parse("X:USR1", &s, &e) < 0 && signal_spec_parse("USR1@", &s, &e) < 0 &&
                signal_spec_parse("USR1@99999", &s, &e) < 0);
    assert_string_equal(signal_name(15, out), "TERM");
    assert_string_equal(signal_name(40, out), "RTMIN+6");
}

static void folders(void **state) {
    cleanup_arena struct arena a = {0};
    struct paths p;
    struct error e;
    struct paths_environment env = {.acequia_home = "/tmp/h"};
    assert_int_equal(paths_resolve(&env, &a, &p, &e), 0);
    assert_string_equal(p.config, "/tmp/h/acequia.conf");
    assert_string_equal(p.socket, "/tmp/h/run/api.sock");
    assert_string_equal(paths_agent_spool(&p, &a, "n1"), "/tmp/h/agent-n1/spool");
    env = (struct paths_environment){.root = true};
    assert_int_equal(paths_resolve(&env, &a, &p, &e), 0);
    assert_string_equal(p.socket, PATHS_SYSTEM_SOCKET);
    env = (struct paths_environment){.home = "/home/u", .xdg_runtime = "/run/user/7"};
    assert_int_equal(paths_resolve(&env, &a, &p, &e), 0);
    assert_string_equal(p.config, "/home/u/.config/acequia/acequia.conf");
    assert_string_equal(p.state, "/home/u/.local/state/acequia");
    assert_string_equal(p.socket, "/run/user/7/acequia/api.sock");
    env = (struct paths_environment){.acequia_home = "relative"};
    assert_true(paths_resolve(&env, &a, &p, &e) < 0);
    env = (struct paths_environment){0};
    assert_true(paths_resolve(&env, &a, &p, &e) < 0);
}

static void make_file(const char *top, const char *path, mode_t mode) {
    char all[256];
    struct error e = {0};
    snprintf(all, sizeof all, "%s/%s", top, path);
    char *slash = strrchr(all, '/');
    *slash = 0;
    assert_int_equal(paths_make(all, 0755, &e), 0);
    *slash = '/';
    int fd = open(all, O_WRONLY | O_CREAT, mode);
    assert_true(fd >= 0);
    close(fd);
}

// A program finds its companions after `make install` and in a build folder.
static void programs_beside(void **state) {
    static const char *const places[] = {"../share", "../../share", NULL};
    static const char *const files[] = {"bin/acequia", "libexec/acequia/acequiad", "share/rules",
                                        "src/notify/notify-one", "src/acequiad/acequiad"};
    cleanup_arena struct arena a = {0};
    char top[] = "/tmp/acequia-beside-XXXXXX";
    assert_non_null(mkdtemp(top));
    for (int i = 0; i < 5; i++)
        make_file(top, files[i], i == 2 ? 0644 : 0755);
    const char *bin = arena_printf(&a, "%s/bin", top), *libexec = arena_printf(&a, "%s/libexec/acequia", top);
    const char *build = arena_printf(&a, "%s/src/acequiad", top);
    assert_string_equal(paths_program(&a, bin, "acequiad", "acequiad"),
                        arena_printf(&a, "%s/acequiad", libexec));
    assert_string_equal(paths_program(&a, libexec, "acequiad", "acequiad"),
                        arena_printf(&a, "%s/acequiad", libexec));
    assert_string_equal(paths_program(&a, libexec, "cli", "acequia"), arena_printf(&a, "%s/acequia", bin));
    assert_string_equal(paths_program(&a, build, "notify", "notify-one"),
                        arena_printf(&a, "%s/src/notify/notify-one", top));
    assert_null(paths_program(&a, bin, "notify", "notify-two"));
    assert_string_equal(paths_beside(&a, libexec, places, "rules", R_OK), arena_printf(&a, "%s/share", top));
    assert_null(paths_beside(&a, libexec, places, "rules", X_OK));
    // Of the running program: this test.
    assert_non_null(paths_beside(&a, NULL, (const char *const[]){".", NULL}, "test_model_text", X_OK));
    for (int i = 0; i < 5; i++)
        assert_int_equal(unlink(arena_printf(&a, "%s/%s", top, files[i])), 0);
    static const char *const folders[] = {"bin",        "libexec/acequia", "libexec", "share",
                                          "src/notify", "src/acequiad",    "src",     ""};
    for (int i = 0; i < 8; i++)
        assert_int_equal(rmdir(arena_printf(&a, "%s/%s", top, folders[i])), 0);
}

static void folders_of_others_are_not_used(void **state) {
    char top[] = "/tmp/acequia-paths-XXXXXX", path[64];
    struct error e = {0};
    assert_non_null(mkdtemp(top));
    snprintf(path, sizeof path, "%s/state", top);
    assert_int_equal(paths_make(path, 0700, &e), 0);
    assert_int_equal(paths_make(path, 0700, &e), 0);
    assert_int_equal(chmod(path, 0770), 0);
    assert_int_equal(paths_make(path, 0700, &e), -EPERM);
    assert_non_null(strstr(e.text, "nobody else may write"));
    assert_int_equal(chmod(path, 0707), 0);
    assert_int_equal(paths_make(path, 0700, &e), -EPERM);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(paths_make(path, 0700, &e), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_int_equal(paths_make(path, 0700, &e), -EPERM);
    }
    assert_int_equal(rmdir(path), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(paths_make(path, 0700, &e), -ENOTDIR);
    unlink(path);
    rmdir(top);
}

static void ports(void **state) {
    static const char *const bad[] = {"",      "x",  "http:", "http:x",    "udp:53",
                                      "65536", "-1", "8 0",   "tcp:http:1"};
    const char *given[PORTS_PER_JOB + 1] = {"8888", "tcp:5432", "http:0", "0"};
    enum port_protocol protocol;
    struct job_port p;
    struct error e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(port_parse(bad[i], &p, &e), -EINVAL);
    assert_int_equal(ports_check(given, 4, &e), 0);
    assert_true(port_find(given, 4, 7, 8888, &protocol) && protocol == PORT_HTTP);
    assert_true(port_find(given, 4, 7, 5432, &protocol) && protocol == PORT_TCP);
    assert_false(port_find(given, 4, 7, 80, &protocol));
    // Chosen numbers differ within a job and between neighbours, and stay below those of clients.
    uint32_t first = port_number(&(struct job_port){PORT_HTTP, 0}, 7, 2),
             second = port_number(&(struct job_port){PORT_HTTP, 0}, 7, 3),
             next = port_number(&(struct job_port){PORT_HTTP, 0}, 8, 2);
    assert_true(first != second && first != next && first >= PORT_CHOSEN_FIRST && second < 32768);
    assert_true(port_find(given, 4, 7, first, &protocol) && port_find(given, 4, 7, second, &protocol));
    given[1] = "tcp:8888";
    assert_int_equal(ports_check(given, 4, &e), -EINVAL);
    for (int i = 0; i <= PORTS_PER_JOB; i++)
        given[i] = "0";
    assert_int_equal(ports_check(given, PORTS_PER_JOB, &e), 0);
    assert_int_equal(ports_check(given, PORTS_PER_JOB + 1, &e), -E2BIG);
}

static void constraints(void **state) {
    static const struct {
        const char *text, *terms;
    } good[] = {{"", ""},
                {"a", "a"},
                {"a&b|c", "a b|c"},
                {"a,b", "a b"},
                {"(a&b)|c", "a|c b|c"},
                {"((a))&(b)", "a b"},
                {"(a&b)|(c&d)", "a|c a|d b|c b|d"},
                {"[a|b]", "a|b"},
                {"ib&(v100|(a100&big))", "ib v100|a100 v100|big"}};
    static const char *const bad[] = {
        "&",   "a&",      "|a",  "a||b", "(a",   "a)", "()",
        "a b", "a*2&b*4", "(a]", "[a)",  "a(b)", "*a", "((((((((((((((((((a))))))))))))))))))"};
    struct error e;
    struct constraint c;
    cleanup_buf struct buf wide = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf out = {0};
        assert_int_equal(constraint_parse(good[i].text, &a, &c, &e), 0);
        for (uint32_t k = 0; k < c.len; k++)
            buf_addf(&out, "%s%s", k ? " " : "", c.terms[k]);
        assert_string_equal(out.len ? buf_str(&out) : "", good[i].terms);
        assert_int_equal(c.alike, strchr(good[i].text, '[') != NULL);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cleanup_arena struct arena a = {0};
        assert_int_equal(constraint_parse(bad[i], &a, &c, &e), -EINVAL);
    }
    for (int i = 0; i < 12; i++)  // 4,096 terms when it is written out
        buf_addf(&wide, "%s(a%d&b%d)", i ? "|" : "", i, i);
    cleanup_arena struct arena a = {0};
    assert_int_equal(constraint_parse(buf_str(&wide), &a, &c, &e), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders_of_others_are_not_used),
                                       cmocka_unit_test(node_lists),
                                       cmocka_unit_test(arrays),
                                       cmocka_unit_test(dependencies),
                                       cmocka_unit_test(patterns),
                                       cmocka_unit_test(gpu_requests),
                                       cmocka_unit_test(names),
                                       cmocka_unit_test(signals),
                                       cmocka_unit_test(folders),
                                       cmocka_unit_test(programs_beside),
                                       cmocka_unit_test(ports),
                                       cmocka_unit_test(constraints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
