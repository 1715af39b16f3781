// Notifications: who is told what, that nothing is lost when the program that delivers dies, and that one user cannot
// make it deliver for ever. The program here is a script that keeps what it was told.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../notifier.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "rig.h"

enum { WAIT_MAX_MS = 60000 };

struct post {
    struct rig r;
    struct notifier *n;
    char folder[64], program[96], told[96];
};

// Acknowledges every line and keeps it.
#define DELIVERS                                                                                             \
    "while read -r line; do printf '%s\\n' \"$line\" >>$0.told; n=${line#*\\\"id\\\":}; echo "               \
    "\"{\\\"id\\\":${n%%,*}}\"; done"

static void script(struct post *p, const char *text) {
    FILE *f = fopen(p->program, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    fclose(f);
    assert_int_equal(chmod(p->program, 0700), 0);
}

static void name_program(struct post *p, const char *name) {
    snprintf(p->program, sizeof p->program, "%s/%s", p->folder, name);
    snprintf(p->told, sizeof p->told, "%s/%s.told", p->folder, name);
}

static void open_post(struct post *p, const char *text) {
    rig_open(&p->r);
    snprintf(p->folder, sizeof p->folder, "/tmp/acequia-post-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    name_program(p, "notify");
    script(p, text);
    p->n = notifier_new(&p->r.c, p->program);
    notifier_start(p->n);
}

static void close_post(struct post *p) {
    notifier_free(p->r.c.notifier);
    p->r.c.notifier = p->n;  // ends with the loop's handles
    rig_close(&p->r);
    rig_remove_folder(p->folder);
}

static uint64_t submit(struct post *p, const char *more) {
    cleanup_buf struct buf body = {0};
    buf_addf(&body, "{\"spec\":{\"name\":\"train\",\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true%s}}",
             more);
    struct fake_request *q = rig_call(&p->r, &fake_alice, "POST", "/v1/jobs", buf_str(&body));
    fake_expect(q, 201, NULL);
    return (uint64_t)json_i64(fake_json(q), "id", 0);
}

static void tell(struct post *p, uint64_t job, enum event_type type) {
    notifier_event(p->n, &(struct notice){.seq = core_seq(p->r.c.core), .job = job, .type = type});
}

static void told(const struct post *p, struct buf *out) {
    char piece[4096];
    buf_clear(out);
    FILE *f = fopen(p->told, "r");
    for (size_t n; f && (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(out, piece, n);
    if (f)
        fclose(f);
}

static unsigned lines(const struct buf *b) {
    unsigned n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

// Lets the loop run until so many messages have arrived.
static void wait_told(struct post *p, unsigned count, struct buf *out) {
    for (int64_t until_ms = clock_mono_ms() + WAIT_MAX_MS; clock_mono_ms() < until_ms; usleep(1000)) {
        rig_turn(&p->r);
        notifier_tick(p->n);
        told(p, out);
        if (lines(out) >= count)
            break;
    }
    assert_int_equal(lines(out), count);
}

static void who_asked_is_told_what_they_asked_for(void **state) {
    struct post p;
    cleanup_buf struct buf text = {0};
    open_post(&p, DELIVERS);
    uint64_t quiet = submit(&p, ""), begin = submit(&p, ",\"notify\":\"begin\""),
             end = submit(&p, ",\"notify\":\"end\",\"notify_to\":\"eva@example.org,joan@example.org\"");
    tell(&p, quiet, EVENT_JOB_STARTED);
    tell(&p, begin, EVENT_JOB_STARTED);
    tell(&p, begin, EVENT_JOB_ENDED);
    tell(&p, end, EVENT_JOB_STARTED);
    tell(&p, end, EVENT_JOB_ENDED);
    wait_told(&p, 3, &text);
    assert_non_null(strstr(buf_str(&text), "\"to\":\"alice\""));
    assert_non_null(strstr(buf_str(&text), "[test] Job 2 (train) started"));
    assert_non_null(strstr(buf_str(&text), "\"to\":\"eva@example.org\""));
    assert_non_null(strstr(buf_str(&text), "\"to\":\"joan@example.org\""));
    assert_null(notifier_problem(p.n));
    close_post(&p);
}

// Each message is given to a program that dies of it, then to the next one.
static void a_dead_program_loses_nothing(void **state) {
    struct post p;
    cleanup_buf struct buf text = {0};
    open_post(&p, "if mkdir $0.died 2>/dev/null; then read -r line; exit 1; fi\n" DELIVERS);
    uint64_t job = submit(&p, ",\"notify\":\"begin,end\"");
    tell(&p, job, EVENT_JOB_STARTED);
    tell(&p, job, EVENT_JOB_ENDED);
    wait_told(&p, 2, &text);
    assert_non_null(strstr(buf_str(&text), "started"));
    assert_non_null(strstr(buf_str(&text), "ended"));
    close_post(&p);
}

static void what_cannot_be_delivered_is_said(void **state) {
    struct post p;
    open_post(&p, "read -r line; echo '{\"id\":1,\"error\":\"no such host\"}'; cat >/dev/null");
    tell(&p, submit(&p, ",\"notify\":\"begin\""), EVENT_JOB_STARTED);
    for (int64_t until_ms = clock_mono_ms() + WAIT_MAX_MS;
         !notifier_problem(p.n) && clock_mono_ms() < until_ms; usleep(1000))
        rig_turn(&p.r);
    assert_non_null(notifier_problem(p.n));
    assert_non_null(strstr(notifier_problem(p.n), "no such host"));
    close_post(&p);
}

// After a restart the journal is read again from the first event that may not have been delivered.
static void a_restart_sends_what_was_not_acknowledged(void **state) {
    struct post p;
    cleanup_buf struct buf text = {0};
    open_post(&p, "cat >/dev/null");  // takes everything and acknowledges nothing
    struct net_ws *agent = rig_agent(&p.r, "n1");
    uint64_t job = submit(&p, ",\"notify\":\"begin\"");
    fake_expect(rig_call(&p.r, &fake_alice, "POST", "/v1/jobs/release", "{\"ids\":[\"1\"]}"), 200, NULL);
    rig_message(&p.r, agent, MESSAGE_STARTED, &(struct message_started){.id = job, .attempt = 1});
    uint64_t seq = core_seq(p.r.c.core);
    notifier_event(p.n, &(struct notice){.seq = seq - 1, .job = job, .type = EVENT_JOB_STARTED});
    for (int i = 0; i < 10; i++)
        notifier_tick(p.n);  // keeps its position
    rig_settle(&p.r);
    struct notifier *first = p.n;
    name_program(&p, "second");  // the shell of the first may not have read its script yet
    script(&p, DELIVERS);
    p.n = notifier_new(&p.r.c, p.program);
    notifier_start(p.n);
    wait_told(&p, 1, &text);
    assert_non_null(strstr(buf_str(&text), "Job 1 (train) started"));
    notifier_free(p.r.c.notifier);
    p.r.c.notifier = first;
    rig_close(&p.r);
    notifier_free(p.n);
    rig_remove_folder(p.folder);
}

static void one_user_is_told_so_much_an_hour(void **state) {
    struct post p;
    cleanup_buf struct buf text = {0};
    open_post(&p, DELIVERS);
    uint64_t job = submit(&p, ",\"notify\":\"begin\"");
    for (int i = 0; i < NOTIFIER_PER_USER_HOUR + 20; i++)
        tell(&p, job, EVENT_JOB_STARTED);
    wait_told(&p, NOTIFIER_PER_USER_HOUR, &text);
    const char *said = strstr(buf_str(&text), "no more are sent for your jobs");
    assert_non_null(said);
    assert_null(strstr(said + 1, "no more are sent for your jobs"));
    close_post(&p);
}

static void webhooks_go_only_to_hosts_that_are_allowed(void **state) {
    struct post p;
    cleanup_buf struct buf text = {0};
    struct error e = {0};
    const char *hosts[] = {"hooks.example.org"};
    open_post(&p, DELIVERS);
    p.r.c.config.notify.webhook_hosts.at = hosts;
    p.r.c.config.notify.webhook_hosts.len = 1;
    struct spec s = {.notify_to = "https://hooks.example.org/x"};
    assert_int_equal(notifier_check(&p.r.c, &s, &e), 0);
    const char *refused[] = {"https://hooks.example.org.evil.net/", "http://127.0.0.1:6820/v1",
                             "https://evil.net/#hooks.example.org", "eva@example.org,https://evil.net/"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        s.notify_to = refused[i];
        assert_true(notifier_check(&p.r.c, &s, &e) < 0);
        assert_non_null(strstr(e.text, "webhook_hosts"));
    }
    // The list has changed since the job was submitted.
    uint64_t job = submit(&p, ",\"notify\":\"begin\",\"notify_to\":\"https://hooks.example.org/x\"");
    tell(&p, job, EVENT_JOB_STARTED);
    wait_told(&p, 1, &text);
    assert_non_null(strstr(buf_str(&text), "\\\"event\\\":\\\"job_started\\\""));
    p.r.c.config.notify.webhook_hosts.len = 0;
    tell(&p, job, EVENT_JOB_STARTED);
    wait_told(&p, 1, &text);
    assert_non_null(strstr(notifier_problem(p.n), "not allowed"));
    p.r.c.config.notify.webhook_hosts.at = NULL;
    close_post(&p);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);  // as in the daemon: a program may die while it is written to
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_asked_is_told_what_they_asked_for),
        cmocka_unit_test(a_dead_program_loses_nothing),
        cmocka_unit_test(what_cannot_be_delivered_is_said),
        cmocka_unit_test(a_restart_sends_what_was_not_acknowledged),
        cmocka_unit_test(one_user_is_told_so_much_an_hour),
        cmocka_unit_test(webhooks_go_only_to_hosts_that_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
