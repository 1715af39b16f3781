// The rules of OpenMetrics over everything the exporters write, and the bounds of their lists.
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "example.h"

static bool has_suffix(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

static void test_table(void **state) {
    struct strmap names = {0};
    for (int id = 0; id < METRIC_COUNT; id++) {
        const struct metric_info *m = metric_info((enum metric_id)id);
        assert_null(strmap_get(&names, m->name));
        strmap_put(&names, m->name, (void *)(uintptr_t)m);
        for (const char *p = m->name; *p; p++)
            assert_true(isalnum((unsigned char)*p) || *p == '_');
        if (*m->unit) {
            assert_true(has_suffix(m->name, m->unit));
            assert_int_equal(m->name[strlen(m->name) - strlen(m->unit) - 1], '_');
        }
        assert_true(*m->help && has_suffix(m->help, "."));
        assert_null(strpbrk(m->help, "\"\\\n|"));
        assert_false(m->type == METRIC_COUNTER && has_suffix(m->name, "_total"));
        assert_false(m->type == METRIC_INFO && *m->unit);
        if (str_has_prefix(m->name, "acequia_"))
            assert_false(has_suffix(m->name, "_total") || has_suffix(m->name, "_info") ||
                         has_suffix(m->name, "_count"));
    }
    strmap_done(&names);
}

// One exposition, line by line: what comes where, and nothing twice.
struct reader {
    struct strmap families, series;
    const struct metric_info *family;
    char *text;
    uint32_t samples;
    bool eof;
};

static const struct metric_info *info_by_name(const char *name) {
    for (int id = 0; id < METRIC_COUNT; id++)
        if (!strcmp(metric_info((enum metric_id)id)->name, name))
            return metric_info((enum metric_id)id);
    return NULL;
}

static bool sample_name_fits(const struct metric_info *m, const char *name) {
    size_t n = strlen(m->name);
    if (strncmp(m->name, name, n))
        return false;
    const char *rest = name + n;
    switch (m->type) {
    case METRIC_COUNTER: return streq(rest, "_total");
    case METRIC_INFO: return streq(rest, "_info");
    case METRIC_HISTOGRAM: return streq(rest, "_bucket") || streq(rest, "_sum") || streq(rest, "_count");
    default: return !*rest;
    }
}

static void read_comment(struct reader *r, char *line) {
    char *word = line + 2, *name = strchr(word, ' ');
    if (!name) {
        assert_string_equal(word, "EOF");
        r->eof = true;
        return;
    }
    *name++ = 0;
    char *rest = strchr(name, ' ');
    assert_non_null(rest);
    *rest++ = 0;
    if (streq(word, "TYPE")) {
        r->family = info_by_name(name);
        assert_non_null(r->family);
        assert_null(strmap_get(&r->families, r->family->name));
        strmap_put(&r->families, r->family->name, r);
    } else {
        assert_string_equal(r->family->name, name);
        assert_string_equal(rest, streq(word, "UNIT") ? r->family->unit : r->family->help);
    }
}

static void read_sample(struct reader *r, char *line) {
    char *value = strrchr(line, ' ');
    assert_non_null(value);
    *value++ = 0;
    assert_true(isdigit((unsigned char)*value) || *value == '-');
    assert_null(strmap_get(&r->series, line));
    strmap_put(&r->series, line, value);
    char name[128];
    size_t n = strcspn(line, "{");
    assert_true(n < sizeof name);
    memcpy(name, line, n);
    name[n] = 0;
    assert_true(sample_name_fits(r->family, name));
    r->samples++;
}

static void read_all(struct reader *r, const struct buf *text) {
    *r = (struct reader){.text = strndup(text->data, text->len)};
    assert_int_equal(text->data[text->len - 1], '\n');
    char *next;
    for (char *line = r->text; *line; line = next) {
        next = strchr(line, '\n');
        *next++ = 0;
        assert_false(r->eof);
        if (*line == '#')
            read_comment(r, line);
        else
            read_sample(r, line);
    }
    assert_true(r->eof);
}

static void reader_done(struct reader *r) {
    strmap_done(&r->families);
    strmap_done(&r->series);
    free(r->text);
}

static const char *value_of(const struct reader *r, const char *series) {
    const char *v = strmap_get(&r->series, series);
    if (!v)
        fail_msg("no series %s", series);
    return v;
}

static void test_controller(void **state) {
    struct arena a = {0};
    struct buf out = {0};
    struct metrics_input in;
    struct reader r;
    example_input(&a, 5, 1800000000000, &in);
    metrics_controller(&in, &out);
    read_all(&r, &out);
    for (int id = 0; id < METRIC_COUNT; id++) {
        const struct metric_info *m = metric_info((enum metric_id)id);
        if (m->where & METRIC_CONTROLLER && !strmap_get(&r.families, m->name))
            fail_msg("%s is in the table but not exported", m->name);
    }
    assert_string_equal(value_of(&r, "acequia_jobs{state=\"PENDING\"}"), "5");
    assert_string_equal(value_of(&r, "slurm_queue_pending_dependency"), "1");
    assert_string_equal(value_of(&r, "acequia_nodes{state=\"mixed\"}"), "1");
    assert_string_equal(value_of(&r, "acequia_nodes{state=\"down\"}"), "1");
    assert_string_equal(value_of(&r, "slurm_cpus_other"), "64");
    assert_string_equal(value_of(&r, "slurm_cpus_idle"), "104");
    assert_string_equal(value_of(&r, "slurm_gpus_utilization"), "0.312");
    assert_string_equal(value_of(&r, "acequia_queue_oldest_wait_seconds"), "4200");
    assert_string_equal(value_of(&r, "slurm_user_jobs_pending{user=\"o\\\"brien\\\\\"}"), "1");
    assert_string_equal(value_of(&r, "acequia_build_info{version=\"0.1.0\"}"), "1");
    assert_string_equal(value_of(&r, "DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",UUID=\"GPU-00000002-0000-0000-0000-000000000000\","
                                     "pci_bus_id=\"\",device=\"nvidia2\",modelName=\"NVIDIA H200\",GPU_I_PROFILE=\"\",Hostname=\"gpu1\"}"), "20.5");
    assert_string_equal(value_of(&r, "DCGM_FI_DEV_FB_USED{gpu=\"1\",UUID=\"GPU-00000001-0000-0000-0000-000000000000\","
                                     "pci_bus_id=\"\",device=\"nvidia1\",modelName=\"NVIDIA H200\",GPU_I_PROFILE=\"\",Hostname=\"gpu1\"}"), "4096");
    assert_string_equal(
        value_of(&r, "acequia_job_gpu_energy_joules_total{job_id=\"100_7\",user=\"ana\",project=\"vision\","
                     "node=\"gpu1\",gpu=\"0\",uuid=\"GPU-00000000-0000-0000-0000-000000000000\"}"),
        "2.5");
    assert_string_equal(
        value_of(
            &r,
            "acequia_gpu_healthy{node=\"gpu2\",gpu=\"3\",uuid=\"GPU-00000007-0000-0000-0000-000000000000\","
            "model=\"NVIDIA H200\"}"),
        "0");
    assert_string_equal(value_of(&r, "acequia_scheduler_pass_seconds_bucket{le=\"+Inf\"}"), "6");
    assert_string_equal(value_of(&r, "acequia_scheduler_pass_seconds_bucket{le=\"0.0001\"}"), "2");
    reader_done(&r);
    buf_done(&out);
    arena_done(&a);
}

static void test_agent(void **state) {
    struct arena a = {0};
    struct buf out = {0};
    struct metrics_agent_input in;
    struct reader r;
    example_agent(&a, 5, 1800000000000, &in);
    metrics_agent(&in, &out);
    read_all(&r, &out);
    for (int id = 0; id < METRIC_COUNT; id++) {
        const struct metric_info *m = metric_info((enum metric_id)id);
        assert_int_equal((m->where & METRIC_AGENT) != 0, strmap_get(&r.families, m->name) != NULL);
    }
    assert_string_equal(value_of(&r, "acequia_node_cpu_utilization_ratio{node=\"gpu2\"}"), "0.375");
    reader_done(&r);
    buf_done(&out);
    arena_done(&a);
}

static void test_empty(void **state) {
    struct buf out = {0};
    struct metrics_input in = {.version = "0"};
    struct reader r;
    metrics_controller(&in, &out);
    read_all(&r, &out);
    assert_string_equal(value_of(&r, "acequia_jobs{state=\"RUNNING\"}"), "0");
    reader_done(&r);
    buf_done(&out);
}

static void test_bounds(void **state) {
    enum { USERS = METRICS_USERS_MAX + 20, NODES = METRICS_NODES_MAX + 3 };
    struct arena a = {0};
    struct buf out = {0};
    struct metrics_group *users = arena_alloc(&a, USERS * sizeof *users);
    for (uint32_t i = 0; i < USERS; i++)
        users[i] = (struct metrics_group){.name = i == 7 ? "other" : arena_printf(&a, "u%u", i),
                                          .running = i == USERS - 1 ? 99 : 2};
    struct metrics_node *nodes = arena_alloc(&a, NODES * sizeof *nodes);
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = (struct metrics_node){.name = arena_printf(&a, "n%u", i), .cpus = 1};
    struct metrics_input in = {.version = "0"};
    in.users.at = users;
    in.users.len = USERS;
    in.nodes.at = nodes;
    in.nodes.len = NODES;
    struct reader r;
    metrics_controller(&in, &out);
    read_all(&r, &out);
    assert_string_equal(value_of(&r, "slurm_user_jobs_running{user=\"u519\"}"), "99");  // the busiest stays
    // 20 beyond the limit, and the user who is called so
    assert_string_equal(value_of(&r, "slurm_user_jobs_running{user=\"other\"}"), "42");
    assert_string_equal(value_of(&r, "acequia_metrics_left_out{list=\"users\"}"), "20");
    assert_string_equal(value_of(&r, "acequia_metrics_left_out{list=\"nodes\"}"), "3");
    assert_null(strmap_get(&r.series, "acequia_node_up{node=\"n10000\"}"));
    assert_string_equal(value_of(&r, "slurm_cpus_total"), "10003");
    reader_done(&r);
    buf_done(&out);
    arena_done(&a);
}

static void test_plain(void **state) {
    struct arena a = {0};
    struct buf out = {0};
    struct metrics_input in;
    example_input(&a, 5, 1800000000000, &in);
    in.format = METRICS_PLAIN;
    metrics_controller(&in, &out);
    assert_non_null(strstr(out.data, "# TYPE acequia_jobs_submitted_total counter\n"));
    assert_non_null(strstr(out.data, "# TYPE acequia_build_info gauge\n"));
    assert_non_null(strstr(out.data, "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION untyped\n"));
    assert_null(strstr(out.data, "# UNIT"));
    assert_null(strstr(out.data, "# EOF"));
    buf_done(&out);
    arena_done(&a);
}

static void test_labels(void **state) {
    struct buf b = {0};
    metrics_label(&b, "a", "x\ny\"z\\");
    metrics_label(&b, "b", "caf\xc3\xa9");
    metrics_label(&b, "c", "bad\xff");
    assert_string_equal(buf_str(&b), "a=\"x\\ny\\\"z\\\\\",b=\"caf\xc3\xa9\",c=\"bad?\"");
    buf_done(&b);
}

static void test_negotiate(void **state) {
    assert_int_equal(metrics_negotiate(NULL), METRICS_OPENMETRICS);
    assert_int_equal(metrics_negotiate("*/*"), METRICS_OPENMETRICS);
    assert_int_equal(metrics_negotiate("text/plain;version=0.0.4"), METRICS_PLAIN);
    assert_int_equal(metrics_negotiate("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
                     METRICS_OPENMETRICS);
}

static void test_recent(void **state) {
    struct metrics_recent r = {0};
    uint64_t n[JOB_STATE_COUNT] = {0};
    int64_t now = 1000000;
    for (int s = 0; s < 2000; s++, now += 1000) {  // one job ends each second
        n[JOB_COMPLETED]++;
        metrics_recent_update(&r, now, n);
        uint64_t have = metrics_recent_count(&r, now, JOB_COMPLETED);
        uint64_t most = s < 300 ? (uint64_t)s : 300;
        assert_true(have <= most && have + 15 >= most);
    }
    metrics_recent_update(&r, now + 600000, n);  // nothing for ten minutes
    assert_int_equal(metrics_recent_count(&r, now + 600000, JOB_COMPLETED), 0);
    assert_int_equal(metrics_recent_count(&r, now, JOB_FAILED), 0);
}

static const char *page;  // docs/monitoring.md

static void test_documented(void **state) {
    struct buf want = {0}, have = {0};
    FILE *f = fopen(page, "r");
    assert_non_null(f);
    have.len = fread(buf_reserve(&have, 1 << 20), 1, 1 << 20, f);
    have.data[have.len] = 0;
    fclose(f);
    metrics_reference_markdown(&want);
    const char *tables = strstr(have.data, "### The daemons");
    if (!tables || strcmp(tables, buf_str(&want)))
        fail_msg("docs/monitoring.md differs from the table: run make docs");
    buf_done(&want);
    buf_done(&have);
}

static void test_process(void **state) {
    struct metrics_process p;
    metrics_process_self(&p);
    assert_true(p.memory_bytes > 100000 && p.fds >= 3 && p.fds < 100);
}

// An instance of a GPU that is cut up: named by its profile, as NVIDIA's exporter does, on its GPU's device.
static void test_mig_labels(void **state) {
    struct arena a = {0};
    struct buf out = {0};
    struct metrics_input in;
    struct reader r;
    example_input(&a, 5, 1800000000000, &in);
    struct metrics_gpu mig = in.gpus.at[1];
    struct gpu about = *mig.gpu;
    about.model = "NVIDIA H200 MIG 1g.18gb";
    about.pci = "0000:1b:00.0";
    about.minor_path = "/dev/nvidia1,/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13";
    mig.gpu = &about;
    in.gpus.at = &mig;
    in.gpus.len = 1;
    metrics_controller(&in, &out);
    read_all(&r, &out);
    value_of(&r, "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-00000001-0000-0000-0000-000000000000\",pci_bus_id=\"0000:1b:00.0\","
                 "device=\"nvidia1\",modelName=\"NVIDIA H200 MIG 1g.18gb\",GPU_I_PROFILE=\"1g.18gb\",Hostname=\"gpu1\"}");
    reader_done(&r);
    buf_done(&out);
    arena_done(&a);
}

int main(int argc, char **argv) {
    page = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mig_labels),
        cmocka_unit_test(test_table),  cmocka_unit_test(test_controller), cmocka_unit_test(test_agent),
        cmocka_unit_test(test_empty),  cmocka_unit_test(test_bounds),     cmocka_unit_test(test_plain),
        cmocka_unit_test(test_labels), cmocka_unit_test(test_negotiate),  cmocka_unit_test(test_recent),
        cmocka_unit_test(test_process), cmocka_unit_test(test_documented),
    };
    return argc < 2 ? 2 : cmocka_run_group_tests(tests, NULL, NULL);
}
