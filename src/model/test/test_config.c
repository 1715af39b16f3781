// The configuration file.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "model/config.h"
#include "model/units.h"

static const struct config_source source = {"acequia.conf", 1769860800000, 0};

static int parse(const char *text, struct config *c, struct error *e) {
    return config_parse(text, strlen(text), &source, c, e);
}

static void defaults_hold_without_a_file(void **state) {
    cleanup_config struct config c = {0};
    struct error e;
    assert_int_equal(parse("", &c, &e), 0);
    assert_string_equal(c.cluster.name, "acequia");
    assert_string_equal(c.cluster.listen, "");
    assert_int_equal(c.cluster.node_timeout_s, 60);
    assert_int_equal(c.cluster.grace_s, 30);
    assert_int_equal(c.cluster.default_time_s, 0);
    assert_true(c.cluster.requeue && c.cluster.max_script_bytes == 4 * SIZE_M);
    assert_int_equal(c.cluster.log_level, LOG_INFO);
}

struct told {
    uint32_t lines[8], count;
};

static void note(void *ctx, uint32_t line, const char *text) {
    struct told *t = ctx;
    assert_true(t->count < 8 && str_has_prefix(text, "acequia.conf:"));
    t->lines[t->count++] = line;
}

// Who wants to hear of all mistakes does; lines of a section that is none are not mistakes of their own.
static void all_mistakes_are_told(void **state) {
    static const char text[] = "[cluster]\nheartbeet = 3s\nnode_timeout = x\n[projct vision]\nquota = 4\n"
                               "[project a]\nquota = many\nfoo\n";
    struct told told = {0};
    struct config_source all = {"acequia.conf", 1769860800000, 0, note, &told};
    struct config c;
    struct error e = {0};
    assert_true(config_parse(text, strlen(text), &all, &c, &e) < 0);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < told.count; i++)
        sum |= 1u << told.lines[i];
    assert_int_equal(told.count, 5);
    assert_int_equal(sum, 1u << 2 | 1u << 3 | 1u << 4 | 1u << 7 | 1u << 8);
    told.count = 0;
    assert_int_equal(config_parse("[cluster]\n", 10, &all, &c, &e), 0);
    config_done(&c);
    assert_int_equal(told.count, 0);
    assert_true(parse(text, &c, &e) < 0);
    assert_non_null(strstr(e.text, "acequia.conf:2: section [cluster] has no key \"heartbeet\""));
}

static void everything_is_read(void **state) {
    cleanup_config struct config c = {0};
    cleanup_arena struct arena a = {0};
    struct error e;
    struct config_node n;
    assert_int_equal(parse("# a comment\n[cluster]\n  name = lab # the lab\nlisten=0.0.0.0:6820\nadmins = eva, joan\n"
                           "node_timeout = 5m\nlog_level = debug\nrequeue = no\n\n"
                           "[node *]\nreserve_memory = 2G\nfeatures = old\n"
                           "[node dgx[1-2]]\nfeatures = nvlink, big\ngpus = v100:8:32G\ngpus_simulated = true\n"
                           "[project vision]\nquota = 8\nlimit = 12\nmembers = eva\nmodel_quotas = v100=4\n"
                           "[partition short]\ndefault = yes\nmax_time = 4h\nnodes = dgx[1-2]\n"
                           "[qos urgent]\npriority = -7\nusage_factor = 0.5\n"
                           "[reservation up]\nstart = 2026-01-31T08:00\nend = 2026-01-31T18:00\nmaintenance = true\n",
                           &c, &e), 0);
    assert_string_equal(c.cluster.name, "lab");
    assert_int_equal(c.cluster.admins.len, 2);
    assert_string_equal(c.cluster.admins.at[1], "joan");
    assert_int_equal(c.cluster.node_timeout_s, 300);
    assert_false(c.cluster.requeue);
    config_node(&c, "dgx2", &a, &n);
    assert_true(n.reserve_memory_bytes == 2 * SIZE_G && n.gpus_simulated && n.gpus.len == 1 && n.gpus.at[0].count == 8);
    assert_string_equal(n.gpus.at[0].model, "v100");
    assert_true(n.gpus.at[0].memory_bytes == 32 * SIZE_G);
    assert_string_equal(n.features.at[1], "big");
    config_node(&c, "other", &a, &n);
    assert_true(n.gpus.len == 0 && n.features.len == 1);
    assert_int_equal(c.projects.len, 1);
    assert_string_equal(c.projects.at[0].name, "vision");
    assert_true(c.projects.at[0].quota_milligpu == 8000 && c.projects.at[0].has_limit && !c.projects.at[0].has_weight);
    assert_true(c.partitions.at[0].is_default && c.partitions.at[0].max_time_s == 14400);
    assert_int_equal(c.qos.at[0].priority, -7);
    assert_true(c.qos.at[0].usage_factor == 0.5);
    assert_true(c.reservations.at[0].end_ms - c.reservations.at[0].start_ms == 36000000);
}

static void mistakes_are_named(void **state) {
    static const struct {
        const char *text, *part;
    } bad[] = {{"[clutser]\n", "did you mean [cluster]"},
               {"[cluster]\nnode_timeuot = 5\n", "did you mean \"node_timeout\""},
               {"name = x\n", "before any section"},
               {"[cluster]\nname\n", "key = value"},
               {"[cluster]\nname = a b\n", "name: "},
               {"[cluster]\ngrace = 2 fortnights\n", "acequia.conf:2: grace"},
               {"[cluster]\nhistory_days = 0\n", "out of range"},
               {"[cluster]\nhistory_days = 99999999999999999999\n", "history_days"},
               {"[cluster]\n[cluster]\n", "twice"},
               {"[cluster]\nname = a\nname = b\n", "twice"},
               {"[node]\n", "needs a name"},
               {"[cluster x]\n", "takes no name"},
               {"[project a b]\n", "not a valid name"},
               {"[node n]\ngpus = v100\n", "MODEL:COUNT"},
               {"[node n]\ncpus = -1\n", "out of range"},
               {"[cluster]\nlisten = 6820\n", "ADDRESS:PORT"},
               {"[cluster]\nlisten = a:1,b:2\n", "ADDRESS:PORT"},
               {"[cluster]\ncontroller = a:1, b\n", "ADDRESS:PORT"},
               {"[cluster]\ncontroller = a:1,,b:2\n", "missing"},
               {"[cluster]\ncontroller = a:1,\n", "missing"},
               {"[cluster]\nnode_timeout = 10\nheartbeat = 9\n", "half of node_timeout"},
               {"[reservation r]\nstart = 2026-01-31\n", "must end after"},
               {"[cluster\n", "alone on its line"},
               {"[cluster]\nmax_script = 1P\n", "out of range"},
               {"[project p]\nquota = 1.5\n", "quota"},
               {"[cluster]\nrequeue = maybe\n", "true or false"},
               {"\xff", "UTF-8"},
               {"[nodes x]\n", "[node]"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct config c = {0};
        struct error e = {0};
        assert_true(parse(bad[i].text, &c, &e) < 0);
        if (!strstr(e.text, bad[i].part))
            print_error("%s\nlacks: %s\n", e.text, bad[i].part);
        assert_non_null(strstr(e.text, bad[i].part));
    }
}

static void what_is_written_reads_back(void **state) {
    cleanup_config struct config c = {0};
    cleanup_buf struct buf text = {0}, docs = {0}, man = {0};
    struct error e;
    config_default_file(&text);
    assert_int_equal(parse(text.data, &c, &e), 0);
    config_reference_markdown(&docs);
    config_reference_man(&man);
    assert_non_null(strstr(docs.data, "| `node_timeout` | duration | `60s` |"));
    assert_non_null(strstr(man.data, "\\fBnode_timeout\\fR"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold_without_a_file), cmocka_unit_test(everything_is_read),
        cmocka_unit_test(all_mistakes_are_told), cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(what_is_written_reads_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
