// The agent daemon against a controller made of the test: launches, ends, acknowledgements, being
// killed, being cut off, logs, commands inside jobs.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "head.h"
#include "model/file.h"
#include "rig.h"

static struct head head;

enum { WAIT_MAX_MS = 60000 };

struct work {
    struct spec spec;
    struct part part;
    struct message_launch m;
    const char *argv[4];
    const char *env[1];
    char out[200];
};

static void work_sh(struct work *w, const char *text) {
    *w = (struct work){.argv = {"/bin/sh", "-c", text}, .env = {"MINE=yes"}};
    uint64_t id = head.next_job++;
    snprintf(w->out, sizeof w->out, "%s/%llu.out", head.dir, (unsigned long long)id);
    w->spec = (struct spec){.name = "work", .uid = geteuid(), .gid = getegid(), .output = w->out,
                            .workdir = head.dir, .tasks = 1, .cpus_per_task = 1,
                            .argv = {w->argv, 3}};
    w->part = (struct part){.node = "n1", .cpus = 1, .tasks = 1, .memory_bytes = 256 << 20};
    w->m = (struct message_launch){.id = id, .attempt = 1, .spec = &w->spec, .part = &w->part,
                                   .parts = {&w->part, 1}, .environment = {w->env, 1},
                                   .time_limit_s = 60, .cluster = "test"};
}

static void launch(struct work *w) {
    w->m.parts.at = &w->part;
    head_send(&head, MESSAGE_LAUNCH, &w->m);
}

static void ack(const struct work *w) {
    struct message_ack m = {w->m.id, 1};
    head_send(&head, MESSAGE_ACK, &m);
}

static struct message_ended *ended(const struct work *w, struct said **keep) {
    for (;;) {
        *keep = head_wait(&head, MESSAGE_ENDED, 8000);
        struct message_ended *m = (*keep)->m.body;
        if (m->id == w->m.id)
            return m;
        said_free(*keep);
    }
}

static const char *read_file(const char *path) {
    static char text[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = 0;
    return text;
}

static void a_job_runs_and_is_reported(void **state) {
    struct work w;
    struct said *s;
    head_agent_start(&head);
    s = head_wait(&head, MESSAGE_HELLO, 1);
    struct message_hello *h = s->m.body;
    assert_string_equal(h->node->name, "n1");
    assert_true(h->node->cpus >= 1 && h->node->memory_bytes > 0 && h->node->boot_id[0]);
    assert_int_equal(h->attempts.len, 0);
    assert_int_equal(h->node->gpus.len, 2);
    said_free(s);
    work_sh(&w, "echo $MINE $SLURM_JOB_ID $ACEQUIA_JOB_NAME $SLURM_NTASKS; sleep 0.1; exit 3");
    launch(&w);
    s = head_wait(&head, MESSAGE_STARTED, 5000);
    assert_int_equal(((struct message_started *)s->m.body)->id, w.m.id);
    assert_true(((struct message_started *)s->m.body)->pid > 0);
    said_free(s);
    struct message_ended *e = ended(&w, &s);
    assert_int_equal(e->cause, END_EXIT);
    assert_int_equal(e->exit_code, 3);
    assert_true(e->usage && e->usage->wall_ms >= 100 && e->start_ms > 0 && e->end_ms >= e->start_ms);
    said_free(s);
    assert_string_equal(read_file(w.out), "yes 1 work 1\n");
    launch(&w);  // a repeat brings the end again and nothing else
    e = ended(&w, &s);
    assert_int_equal(e->exit_code, 3);
    said_free(s);
    ack(&w);
    head_pump(&head, 100);
    launch(&w);
    head_pump(&head, 200);
    for (uint32_t i = 0; i < head.said.len; i++)
        assert_true(head.said.at[i]->m.type == MESSAGE_TELEMETRY ||
                    head.said.at[i]->m.type == MESSAGE_USAGE ||
                    head.said.at[i]->m.type == MESSAGE_NODE_IMAGES);
}

static void failures_carry_reasons(void **state) {
    struct work w;
    struct said *s;
    work_sh(&w, "exit 0");
    w.argv[0] = "no-such-command";
    launch(&w);
    struct message_ended *e = ended(&w, &s);
    assert_int_equal(e->cause, END_LAUNCH);
    assert_true(str_has_prefix(e->reason, "could not be started: "));
    said_free(s);
    ack(&w);
    work_sh(&w, "exit 0");
    w.spec.uid = 60987;
    w.spec.user = "nobody-knows";
    launch(&w);
    e = ended(&w, &s);
    assert_int_equal(e->cause, END_LAUNCH);
    assert_string_equal(e->reason, "could not be started: user nobody-knows (id 60987) does not exist on this node");
    assert_int_equal(e->start_ms, 0);
    said_free(s);
    ack(&w);
}

// A later controller: messages and kinds of launches that this agent does not know.
static void later_controllers_are_answered(void **state) {
    struct work w;
    struct said *s;
    cleanup_buf struct buf b = {0};
    schema_put_varint(&b, 999);
    buf_adds(&b, "whatever");
    net_ws_send(head.ws, WS_BINARY, b.data, b.len);
    work_sh(&w, "exit 0");
    w.spec.launch = (enum launch_kind)77;
    launch(&w);
    struct message_ended *e = ended(&w, &s);
    assert_int_equal(e->cause, END_LAUNCH);
    assert_non_null(strstr(e->reason, "upgrade the agent"));
    said_free(s);
    ack(&w);
    for (uint32_t i = 0; i < head.said.len; i++)
        assert_int_not_equal(head.said.at[i]->m.type, MESSAGE_HELLO);  // it was connected all the time
}

static void kills_end_jobs(void **state) {
    struct work w;
    struct said *s;
    work_sh(&w, "sleep 100");
    launch(&w);
    struct message_kill k = {.id = w.m.id, .attempt = 1, .cause = END_PREEMPT, .reason = "room"};
    head_send(&head, MESSAGE_KILL, &k);  // before it can have started
    struct message_ended *e = ended(&w, &s);
    assert_int_equal(e->cause, END_PREEMPT);
    said_free(s);
    ack(&w);
    k.id = 4711;
    k.cause = END_CANCEL;
    head_send(&head, MESSAGE_KILL, &k);
    s = head_wait(&head, MESSAGE_ENDED, 2000);
    assert_int_equal(((struct message_ended *)s->m.body)->id, 4711);
    said_free(s);
    head_forget(&head);
}

// Creates a file that a job waits for.
static void touch(const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", head.dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    close(fd);
}

static void wait_for_end_in_spool(uint64_t job) {
    struct spool_status s = {0};
    struct error e;
    cleanup_close int spool = spool_open(head.spool, &e);
    for (int64_t until_ms = clock_mono_ms() + WAIT_MAX_MS; s.state != SPOOL_ENDED; usleep(1000)) {
        if (clock_mono_ms() > until_ms)
            fail_msg("job %llu has not ended after %d ms", (unsigned long long)job, WAIT_MAX_MS);
        spool_read_status(spool, job, 1, 0, &s);
    }
}

static void jobs_outlive_the_agent(void **state) {
    struct work w, done;
    struct said *s;
    work_sh(&w, "until [ -e agent-is-back ]; do sleep 0.02; done; exit 5");
    launch(&w);
    said_free(head_wait(&head, MESSAGE_STARTED, 5000));
    work_sh(&done, "until [ -e agent-is-gone ]; do sleep 0.02; done; exit 6");
    launch(&done);
    said_free(head_wait(&head, MESSAGE_STARTED, 5000));
    head_agent_kill(&head, SIGKILL);
    touch("agent-is-gone");
    wait_for_end_in_spool(done.m.id);
    head_agent_start(&head);
    s = head_wait(&head, MESSAGE_HELLO, 1);
    struct message_hello *h = s->m.body;
    assert_int_equal(h->attempts.len, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct attempt *a = &h->attempts.at[i];
        assert_int_equal(a->state, a->id == done.m.id ? ATTEMPT_ENDED : ATTEMPT_RUNNING);
        if (a->id == done.m.id)
            assert_int_equal(a->end->exit_code, 6);
    }
    said_free(s);
    ack(&done);
    touch("agent-is-back");
    struct message_ended *e = ended(&w, &s);
    assert_int_equal(e->exit_code, 5);
    said_free(s);
    // Not acknowledged, cut off: said again.
    head_hang_up(&head);
    s = head_wait(&head, MESSAGE_HELLO, 5000);
    h = s->m.body;
    assert_int_equal(h->attempts.len, 1);
    assert_int_equal(h->attempts.at[0].end->exit_code, 5);
    said_free(s);
    ack(&w);
    head_pump(&head, 100);
    head_hang_up(&head);
    s = head_wait(&head, MESSAGE_HELLO, 5000);
    assert_int_equal(((struct message_hello *)s->m.body)->attempts.len, 0);
    said_free(s);
}

static void ends_survive_a_reboot(void **state) {
    struct work w;
    struct said *s;
    char kept[300];
    work_sh(&w, "exit 12");
    launch(&w);
    ended(&w, &s);
    said_free(s);
    head_close_door(&head, true);
    snprintf(kept, sizeof kept, "%s/ends/%llu.1", head.folder, (unsigned long long)w.m.id);
    for (int i = 0; i < WAIT_MAX_MS / 50 && access(kept, F_OK) < 0; i++)
        head_pump(&head, 50);
    assert_int_equal(access(kept, F_OK), 0);
    head_agent_kill(&head, SIGKILL);
    usleep(100000);
    head_lose_spool(&head);  // what a reboot does to memory
    head_close_door(&head, false);
    head_agent_start(&head);
    s = head_wait(&head, MESSAGE_HELLO, 1);
    struct message_hello *h = s->m.body;
    assert_int_equal(h->attempts.len, 1);
    assert_int_equal(h->attempts.at[0].end->exit_code, 12);
    said_free(s);
    ack(&w);
    for (int i = 0; i < WAIT_MAX_MS / 50 && access(kept, F_OK) == 0; i++)
        head_pump(&head, 50);
    assert_int_not_equal(access(kept, F_OK), 0);
}

// All data of a stream until its end, which is kept.
static void read_stream(uint64_t stream, char *text, size_t size, struct said **end) {
    size_t n = 0;
    *end = head_wait_stream(&head, MESSAGE_STREAM_END, stream, 8000);
    text[0] = 0;
    for (uint32_t i = 0; i < head.said.len;) {
        struct message_stream *m = head.said.at[i]->m.body;
        if (head.said.at[i]->m.type != MESSAGE_STREAM_DATA || m->stream != stream) {
            i++;
            continue;
        }
        size_t len = m->data.len < size - 1 - n ? m->data.len : size - 1 - n;
        memcpy(text + n, m->data.data, len);
        n += len;
        text[n] = 0;
        said_free(head.said.at[i]);
        vec_remove(&head.said, i);
    }
}

static void logs_are_read_and_followed(void **state) {
    struct work w;
    struct said *s;
    char text[4096];
    work_sh(&w, "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done");
    launch(&w);
    struct message_log_read r = {.stream = 10, .id = w.m.id, .attempt = 1, .spec = &w.spec,
                                 .part = &w.part, .follow = true, .tail_lines = -1,
                                 .credit = 1 << 20};
    head_send(&head, MESSAGE_LOG_READ, &r);
    read_stream(10, text, sizeof text, &s);
    said_free(s);
    assert_string_equal(text, "line 1\nline 2\nline 3\nline 4\nline 5\n");
    ended(&w, &s);
    said_free(s);
    ack(&w);
    r.stream = 11;
    r.follow = false;
    r.tail_lines = 2;
    head_send(&head, MESSAGE_LOG_READ, &r);  // also when the attempt is forgotten
    read_stream(11, text, sizeof text, &s);
    said_free(s);
    assert_string_equal(text, "line 4\nline 5\n");
    // Credit is kept to.
    r.stream = 12;
    r.tail_lines = -1;
    r.credit = 7;
    head_send(&head, MESSAGE_LOG_READ, &r);
    head_pump(&head, 200);
    s = head_wait_stream(&head, MESSAGE_STREAM_DATA, 12, 10);
    assert_int_equal(((struct message_stream *)s->m.body)->data.len, 7);
    said_free(s);
    struct message_stream credit = {.stream = 12, .credit = 1000};
    head_send(&head, MESSAGE_STREAM_CREDIT, &credit);
    read_stream(12, text, sizeof text, &s);
    said_free(s);
    assert_string_equal(text, "line 2\nline 3\nline 4\nline 5\n");
    // Nobody reads through the agent what they may not read.
    if (geteuid() == 0) {
        chmod(w.out, 0600);
        w.spec.uid = w.spec.gid = 65534;
        r.stream = 13;
        r.credit = 1000;
        head_send(&head, MESSAGE_LOG_READ, &r);
        read_stream(13, text, sizeof text, &s);
        assert_string_equal(text, "");
        assert_non_null(strstr(((struct message_stream *)s->m.body)->error, "ermission"));
        said_free(s);
    }
}

static void restart_agent(void) {
    head_agent_kill(&head, SIGKILL);
    head_agent_start(&head);
    said_free(head_wait(&head, MESSAGE_HELLO, 20000));
}

static struct step_end *wait_step_end(uint32_t step, struct said **s) {
    for (;;) {
        *s = head_wait(&head, MESSAGE_STEP_END, 20000);
        struct step_end *e = (*s)->m.body;
        if (e->step == step)
            return e;
        said_free(*s);
    }
}

// The output of a stream of a step, by task and in order; *offset: where it ends.
static void read_step(uint64_t stream, char text[][64], uint64_t *offset) {
    struct said *s = head_wait_stream(&head, MESSAGE_STREAM_END, stream, 20000);
    said_free(s);
    for (uint32_t i = 0; i < head.said.len; i++) {
        struct message_stream *m = head.said.at[i]->m.body;
        if (head.said.at[i]->m.type != MESSAGE_STREAM_DATA || m->stream != stream)
            continue;
        assert_true(m->offset > *offset);
        *offset = m->offset;
        size_t len = strlen(text[m->task]);
        assert_true(len + m->data.len < sizeof text[0]);
        memcpy(text[m->task] + len, m->data.data, m->data.len);
    }
}

// A step of three tasks: started once however often it is asked for, read from any position, fed once
// however often input is sent, and its end repeated until it is acknowledged, over a new agent too.
static void steps_belong_to_nobody(void **state) {
    struct work w;
    struct said *s;
    work_sh(&w, "sleep 100");
    launch(&w);
    const char *argv[] = {"/bin/sh", "-c",
                          "echo task $SLURM_PROCID of $SLURM_NTASKS; cat; [ $SLURM_PROCID != 2 ] || exit 9"};
    struct message_exec x = {.id = w.m.id, .attempt = 1, .step = 1, .argv = {argv, 3}, .tasks = 3, .total_tasks = 3};
    head_send(&head, MESSAGE_STEP, &x);
    head_send(&head, MESSAGE_STEP, &x);
    struct message_step at = {.id = w.m.id, .attempt = 1, .step = 1, .stream = 52, .credit = 1 << 20};
    head_send(&head, MESSAGE_STEP_ATTACH, &at);
    s = head_wait_stream(&head, MESSAGE_STREAM_CREDIT, 52, 20000);  // it takes input now
    said_free(s);
    struct message_stream in = {.stream = 52, .data = {"one\n", 4}};
    head_send(&head, MESSAGE_STREAM_DATA, &in);
    head_send(&head, MESSAGE_STREAM_DATA, &in);
    restart_agent();
    at.stream = 53;
    at.offset = 0;
    head_send(&head, MESSAGE_STEP_ATTACH, &at);
    said_free(head_wait_stream(&head, MESSAGE_STREAM_CREDIT, 53, 20000));
    in = (struct message_stream){.stream = 53, .offset = 0, .data = {"one\ntwo\n", 8}, .eof = true};
    head_send(&head, MESSAGE_STREAM_DATA, &in);
    struct step_end *e = wait_step_end(1, &s);
    assert_int_equal(e->exit_code, 9);
    assert_int_equal(e->exits.len, 3);
    said_free(s);
    char text[3][64] = {"", "", ""}, again[3][64] = {"", "", ""};
    uint64_t offset = 0, from = 0;
    read_step(53, text, &offset);
    assert_string_equal(text[0], "task 0 of 3\none\ntwo\n");
    assert_string_equal(text[2], "task 2 of 3\none\ntwo\n");
    // Nothing from its end on; the same again from its beginning.
    at.stream = 54;
    at.offset = offset;
    head_send(&head, MESSAGE_STEP_ATTACH, &at);
    from = offset;
    read_step(54, again, &from);
    assert_string_equal(again[0], "");
    restart_agent();
    struct message_step forget = {.id = w.m.id, .attempt = 1, .step = 1};
    head_send(&head, MESSAGE_STEP, &x);  // a late copy is answered with its end
    e = wait_step_end(1, &s);
    assert_int_equal(e->exit_code, 9);
    said_free(s);
    head_send(&head, MESSAGE_STEP_RECEIVED, &forget);
    head_send(&head, MESSAGE_STEP_ACK, &forget);
    head_send(&head, MESSAGE_STEP, &x);
    e = wait_step_end(1, &s);  // whoever sends it again must not wait for it
    assert_non_null(strstr(e->error, "how it ended was lost"));
    said_free(s);
    struct spool_status st;
    struct error e2;
    cleanup_close int spool = spool_open(head.spool, &e2);
    for (int i = 0; i < WAIT_MAX_MS / 50 && spool_read_status(spool, w.m.id, 1, 1, &st) == 0; i++)
        head_pump(&head, 50);
    assert_true(spool_read_status(spool, w.m.id, 1, 1, &st) < 0);  // forgotten, and not started again
    struct message_kill k = {.id = w.m.id, .attempt = 1, .cause = END_CANCEL, .signal = SIGKILL};
    head_send(&head, MESSAGE_KILL, &k);
    ended(&w, &s);
    said_free(s);
    ack(&w);
}

// A controller of release 0.1 is told why its commands are not run any more.
static void commands_of_an_old_controller_are_refused(void **state) {
    struct said *s;
    const char *argv[] = {"/bin/true"};
    struct message_exec x = {.stream = 20, .id = 1, .attempt = 1, .argv = {argv, 1}, .credit = 1 << 20};
    head_send(&head, MESSAGE_EXEC, &x);
    s = head_wait_stream(&head, MESSAGE_STREAM_END, 20, 8000);
    assert_non_null(strstr(((struct message_stream *)s->m.body)->error, "upgrade the controller"));
    said_free(s);
}

// Work on many files takes as long as it takes: the controller hears that it goes on, before the answer.
static void work_on_files_gives_signs_of_life(void **state) {
    struct said *s;
    struct file_request q = {
        .stream = 21, .operation = FILE_LIST, .path = head.dir, .uid = geteuid(), .credit = 1 << 20};
    head_send(&head, MESSAGE_FILE, &q);
    for (int i = 0; i < 2; i++) {
        s = head_wait(&head, MESSAGE_FILE_RESULT, 30000);
        const struct file_result *r = s->m.body;
        assert_int_equal(r->stream, 21);
        assert_int_equal(r->error, 0);
        assert_int_equal(r->working, i == 0);
        assert_int_equal(r->entries.len > 0, i == 1);
        said_free(s);
    }
    said_free(head_wait_stream(&head, MESSAGE_STREAM_END, 21, 30000));
}

static void steps_have_terminals(void **state) {
    struct work w;
    struct said *s;
    char text[4096];
    work_sh(&w, "sleep 100");
    launch(&w);
    const char *argv[] = {"/bin/sh", "-c", "stty size; tty -s && echo terminal"};
    struct message_exec x = {.id = w.m.id,
                             .attempt = 1,
                             .step = 1,
                             .argv = {argv, 3},
                             .tasks = 1,
                             .total_tasks = 1,
                             .pty = true,
                             .rows = 31,
                             .columns = 99};
    struct message_step from = {.id = w.m.id, .attempt = 1, .step = 1, .stream = 21, .credit = 1 << 20};
    head_send(&head, MESSAGE_STEP, &x);
    head_send(&head, MESSAGE_STEP_ATTACH, &from);
    read_stream(21, text, sizeof text, &s);
    said_free(s);
    s = head_wait(&head, MESSAGE_STEP_END, 20000);
    const struct step_end *end = s->m.body;
    if (end->error)
        fail_msg("%s", end->error);
    assert_int_equal(end->output_bytes, strlen(text));
    said_free(s);
    assert_string_equal(text, "31 99\r\nterminal\r\n");
    // Its output stays after the acknowledgement until the client has it.
    struct message_step forget = {.id = w.m.id, .attempt = 1, .step = 1};
    head_send(&head, MESSAGE_STEP_ACK, &forget);
    from.stream = 22;
    head_send(&head, MESSAGE_STEP_ATTACH, &from);
    read_stream(22, text, sizeof text, &s);
    said_free(s);
    assert_string_equal(text, "31 99\r\nterminal\r\n");
    // Positions that are none are refused.
    const struct {
        uint64_t at;
        const char *why;
    } wrong[] = {{1 << 30, "beyond the end"}, {3, "not the beginning"}};
    for (uint32_t i = 0; i < 2; i++) {
        from.stream = 23 + i;
        from.offset = wrong[i].at;
        head_send(&head, MESSAGE_STEP_ATTACH, &from);
        s = head_wait_stream(&head, MESSAGE_STREAM_END, 23 + i, 8000);
        assert_non_null(strstr(((struct message_stream *)s->m.body)->error, wrong[i].why));
        said_free(s);
    }
    head_send(&head, MESSAGE_STEP_RECEIVED, &forget);
    struct spool_status st;
    struct error e;
    cleanup_close int spool = spool_open(head.spool, &e);
    for (int i = 0; i < WAIT_MAX_MS / 50 && spool_read_status(spool, w.m.id, 1, 1, &st) == 0; i++)
        head_pump(&head, 50);
    assert_true(spool_read_status(spool, w.m.id, 1, 1, &st) < 0);
    struct message_kill k = {.id = w.m.id, .attempt = 1, .cause = END_CANCEL, .signal = SIGKILL};
    head_send(&head, MESSAGE_KILL, &k);
    ended(&w, &s);
    said_free(s);
    ack(&w);
}

static uint64_t input_position(uint64_t stream, struct message_stream *out) {
    struct said *s = head_wait_stream(&head, MESSAGE_STREAM_CREDIT, stream, 20000);
    *out = *(struct message_stream *)s->m.body;
    assert_true(out->position);
    uint64_t at = out->input_taken;
    said_free(s);
    return at;
}

static void attached_jobs_talk(void **state) {
    struct work w;
    struct said *s;
    struct message_stream at;
    char text[4096];
    work_sh(&w, "read x; echo heard $x; echo oops >&2");
    w.spec.attach = w.spec.stdin_open = true;
    struct message_log_read r = {.stream = 30,
                                 .id = w.m.id,
                                 .attempt = 1,
                                 .spec = &w.spec,
                                 .part = &w.part,
                                 .follow = true,
                                 .tail_lines = -1,
                                 .credit = 1 << 20,
                                 .placed = true,
                                 .attached = true};
    head_send(&head, MESSAGE_LOG_READ, &r);
    head_pump(&head, 100);
    launch(&w);  // who attaches may be quicker
    assert_int_equal(input_position(30, &at), 0);
    struct message_stream gap = {.stream = 30, .data = {"that\n", 5}, .offset = 100};
    head_send(&head, MESSAGE_STREAM_DATA, &gap);
    assert_int_equal(input_position(30, &at), 0);
    assert_true(at.resend);
    struct message_stream in = {.stream = 30, .data = {"th", 2}};
    head_send(&head, MESSAGE_STREAM_DATA, &in);
    in = (struct message_stream){
        .stream = 30, .data = {"this\n", 5}, .eof = true};  // its beginning comes again
    head_send(&head, MESSAGE_STREAM_DATA, &in);
    read_stream(30, text, sizeof text, &s);
    said_free(s);
    assert_string_equal(text, "heard this\n");
    r.stream = 31;
    r.source = LOG_SOURCE_ERROR;
    r.offset = 2;
    head_send(&head, MESSAGE_LOG_READ, &r);
    read_stream(31, text, sizeof text, &s);
    said_free(s);
    assert_string_equal(text, "ps\n");
    r.stream = 33;
    r.offset = 1000;
    head_send(&head, MESSAGE_LOG_READ, &r);
    s = head_wait_stream(&head, MESSAGE_STREAM_END, 33, 8000);
    assert_non_null(strstr(((struct message_stream *)s->m.body)->error, "beyond the end"));
    said_free(s);
    ended(&w, &s);
    said_free(s);
    ack(&w);
    // With a terminal, and for a controller of release 0.1, which gives no positions.
    work_sh(&w, "tty -s && echo terminal; read x; echo heard $x");
    w.spec.attach = w.spec.pty = true;
    launch(&w);
    r = (struct message_log_read){.stream = 32,
                                  .id = w.m.id,
                                  .attempt = 1,
                                  .spec = &w.spec,
                                  .part = &w.part,
                                  .follow = true,
                                  .tail_lines = -1,
                                  .credit = 1 << 20,
                                  .attached = true};
    head_send(&head, MESSAGE_LOG_READ, &r);
    input_position(32, &at);
    in = (struct message_stream){.stream = 32, .data = {"m", 1}};
    head_send(&head, MESSAGE_STREAM_DATA, &in);
    in = (struct message_stream){.stream = 32, .data = {"e\n", 2}};
    head_send(&head, MESSAGE_STREAM_DATA, &in);
    read_stream(32, text, sizeof text, &s);
    said_free(s);
    assert_non_null(strstr(text, "terminal\r\n"));
    assert_non_null(strstr(text, "heard me\r\n"));
    ended(&w, &s);
    said_free(s);
    ack(&w);
}

static void usage_is_told(void **state) {
    struct work w;
    struct said *s;
    work_sh(&w, "sleep 100");
    head_forget(&head);
    launch(&w);
    s = head_wait(&head, MESSAGE_USAGE, 5000);
    struct message_usage *u = s->m.body;
    assert_int_equal(u->id, w.m.id);
    assert_true(u->processes >= 1);
    assert_true(u->memory_now_bytes > 0);
    said_free(s);
    struct message_kill k = {.id = w.m.id, .attempt = 1, .cause = END_CANCEL};
    head_send(&head, MESSAGE_KILL, &k);
    ended(&w, &s);
    said_free(s);
    ack(&w);
}

static void a_dead_zygote_is_replaced(void **state) {
    struct work w;
    struct said *s;
    char path[64];
    uint32_t pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", head.agent, head.agent);
    for (int i = 0; i < 2; i++) {
        char text[64] = "";
        const char *list = read_file(path);
        memcpy(text, list, strnlen(list, sizeof text - 1));
        text[strcspn(text, " ")] = 0;
        assert_int_equal(parse_u32(text, &pid), 0);
        kill((pid_t)pid, SIGKILL);
        work_sh(&w, "exit 11");
        launch(&w);
        assert_int_equal(ended(&w, &s)->exit_code, 11);
        said_free(s);
        ack(&w);
        head_pump(&head, 20);
    }
}

static void gpus_are_granted_and_measured(void **state) {
    struct work w;
    struct said *s;
    struct gpu_grant grants[] = {{.index = 1, .milli = 1000}};
    const char *uuids[] = {"GPU-xyz"};
    head_forget(&head);
    work_sh(&w, "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS $ACEQUIA_GPU_GRANTS;"
                "until [ -e was-measured ]; do sleep 0.05; done");
    w.part.gpus.at = grants;
    w.part.gpus.len = 1;
    w.m.gpu_uuids.at = uuids;
    w.m.gpu_uuids.len = 1;
    launch(&w);
    bool device = false, job = false;
    for (int i = 0; i < 60 && !(device && job); i++) {
        s = head_wait(&head, MESSAGE_TELEMETRY, 4000);
        struct message_telemetry *t = s->m.body;
        for (uint32_t k = 0; k < t->gpus.len; k++) {
            device |= t->gpus.at[k].id == 0 && t->gpus.at[k].power_mw > 0;
            job |= t->gpus.at[k].id == w.m.id && t->gpus.at[k].index == 1;
        }
        said_free(s);
    }
    assert_true(device);
    assert_true(job);
    touch("was-measured");
    struct message_ended *e = ended(&w, &s);
    assert_true(e->usage->energy_mj > 0);
    said_free(s);
    assert_string_equal(read_file(w.out), "GPU-xyz 1 1:1000\n");
    ack(&w);
}

// What the next message with readings of GPUs says of these jobs; one that it does not name keeps its number.
static void read_energy(const struct work *w, uint32_t count, uint64_t *energy_mj) {
    struct said *s = head_wait(&head, MESSAGE_TELEMETRY, 4000);
    const struct message_telemetry *t = s->m.body;
    for (uint32_t k = 0; k < t->gpus.len; k++)
        for (uint32_t i = 0; i < count; i++)
            if (t->gpus.at[k].id == w[i].m.id)
                energy_mj[i] = t->gpus.at[k].energy_mj;
    said_free(s);
}

// What was used before the agent was killed counts, whether the job ends before or after the next one.
static void gpu_use_survives_the_agent(void **state) {
    struct work w[2];
    struct said *s;
    uint64_t energy_mj[2] = {0}, later_mj = 0;
    struct gpu_grant grants[] = {{.index = 0, .milli = 1000}, {.index = 1, .milli = 1000}};
    head_forget(&head);
    for (int i = 0; i < 2; i++) {
        work_sh(&w[i], i == 0 ? "until [ -e gpu-agent-is-gone ]; do sleep 0.05; done"
                              : "until [ -e gpu-agent-is-back ]; do sleep 0.05; done");
        w[i].env[0] = "ACEQUIA_SIMULATED_GPU_LOAD=1000";
        w[i].part.gpus.at = &grants[i];
        w[i].part.gpus.len = 1;
        launch(&w[i]);
    }
    while (!energy_mj[0] || !energy_mj[1])
        read_energy(w, 2, energy_mj);
    head_agent_kill(&head, SIGKILL);
    touch("gpu-agent-is-gone");
    wait_for_end_in_spool(w[0].m.id);
    head_agent_start(&head);
    head_send(&head, MESSAGE_WELCOME, &(struct message_welcome){.heartbeat_s = 60, .grace_s = 1});
    s = head_wait(&head, MESSAGE_HELLO, 1);
    struct message_hello *h = s->m.body;
    bool found = false;
    for (uint32_t i = 0; i < h->attempts.len; i++)
        if (h->attempts.at[i].id == w[0].m.id && h->attempts.at[i].end) {
            found = true;
            assert_true(h->attempts.at[i].end->usage->energy_mj >= energy_mj[0]);
        }
    assert_true(found);
    said_free(s);
    while (!later_mj)
        read_energy(&w[1], 1, &later_mj);
    assert_true(later_mj >= energy_mj[1]);
    touch("gpu-agent-is-back");
    struct message_ended *e = ended(&w[1], &s);
    assert_true(e->usage->energy_mj > energy_mj[1]);  // and went on
    said_free(s);
    ack(&w[0]);
    ack(&w[1]);
    head_pump(&head, 50);
}

// Two halves of a GPU of 16 GiB: the one that takes more than its half is ended and told why, also by
// an agent that was killed in between; its neighbour is not touched.
static void more_than_the_granted_part_ends_the_job(void **state) {
    struct work greedy, honest;
    struct said *s;
    struct gpu_grant grants[] = {{.index = 0, .milli = 500}};
    struct work *both[] = {&honest, &greedy};
    for (int i = 0; i < 2; i++) {
        struct work *w = both[i];
        work_sh(w, "sleep 30");
        w->env[0] = w == &greedy ? "ACEQUIA_SIMULATED_GPU_MEMORY=12G" : "ACEQUIA_SIMULATED_GPU_MEMORY=8G";
        w->part.gpus.at = grants;
        w->part.gpus.len = 1;
        launch(w);
        said_free(head_wait(&head, MESSAGE_STARTED, 4000));
    }
    head_agent_kill(&head, SIGKILL);
    head_agent_start(&head);
    head_send(&head, MESSAGE_WELCOME, &(struct message_welcome){.heartbeat_s = 60, .grace_s = 1});
    struct message_ended *e = ended(&greedy, &s);
    assert_int_equal(e->cause, END_GPU);
    assert_int_equal(e->exit_signal, SIGKILL);
    assert_string_equal(e->reason, "its processes held 12288 MiB of GPU 0 where the job may hold 8192 MiB; "
                                   "ask for more with --gpu-memory");
    said_free(s);
    ack(&greedy);
    head_pump(&head, 1500);
    struct message_kill kill = {.id = honest.m.id, .attempt = 1, .cause = END_CANCEL, .signal = SIGKILL};
    head_send(&head, MESSAGE_KILL, &kill);
    assert_int_equal(ended(&honest, &s)->cause, END_CANCEL);
    said_free(s);
    ack(&honest);
}

// AGENT_TEST_JOBS=3000 makes a benchmark of it.
static void many_jobs_pass(void **state) {
    const char *text = getenv("AGENT_TEST_JOBS");
    uint32_t count = 200, sent = 0, done = 0;
    int64_t start = clock_mono_us();
    if (text)
        assert_int_equal(parse_u32(text, &count), 0);
    while (done < count) {
        for (; sent < count && sent - done < 16; sent++) {
            struct work w;
            work_sh(&w, "");
            w.argv[0] = "/bin/true";
            w.spec.argv.len = 1;
            w.spec.output = "/dev/null";
            w.part.cpus = 0;
            launch(&w);
        }
        struct said *s = head_wait(&head, MESSAGE_ENDED, 10000);
        struct message_ended *e = s->m.body;
        if (e->exit_code || e->cause != END_EXIT)
            fail_msg("job %llu: %s", (unsigned long long)e->id, e->reason);
        struct message_ack m = {e->id, 1};
        head_send(&head, MESSAGE_ACK, &m);
        said_free(s);
        done++;
    }
    printf("%.0f jobs/s through the agent\n", count * 1e6 / (double)(clock_mono_us() - start));
    head_pump(&head, 100);
    head_forget(&head);
}

int main(int argc, char **argv) {
    if (argc == 7 && strcmp(argv[1], "agent") == 0)
        return head_agent_main(argv);
    if (argc < 3)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_runs_and_is_reported),
        cmocka_unit_test(failures_carry_reasons),
        cmocka_unit_test(later_controllers_are_answered),
        cmocka_unit_test(kills_end_jobs),
        cmocka_unit_test(jobs_outlive_the_agent),
        cmocka_unit_test(ends_survive_a_reboot),
        cmocka_unit_test(logs_are_read_and_followed),
        cmocka_unit_test(steps_belong_to_nobody),
        cmocka_unit_test(commands_of_an_old_controller_are_refused),
        cmocka_unit_test(work_on_files_gives_signs_of_life),
        cmocka_unit_test(steps_have_terminals),  // also while a restarted agent still launches
        cmocka_unit_test(attached_jobs_talk),
        cmocka_unit_test(usage_is_told),
        cmocka_unit_test(a_dead_zygote_is_replaced),
        cmocka_unit_test(gpus_are_granted_and_measured),
        cmocka_unit_test(more_than_the_granted_part_ends_the_job),
        cmocka_unit_test(gpu_use_survives_the_agent),
        cmocka_unit_test(many_jobs_pass),
    };
    head_start(&head, argv[1], argv[2]);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return head_stop(&head) ? 1 : rc;
}
