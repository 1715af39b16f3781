// Composes notifications and talks to acequia-notify. Messages wait here until the child acknowledges them; when it
// dies they are sent to the next one. The position in the journal up to which everything was acknowledged is kept in
// the store as a named value ("notified"), so that a restart sends again what may not have left.
#include "notifier.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "alerts.h"
#include "api.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "model/notify.h"
#include "model/paths.h"
#include "model/units.h"

#define PROGRAM "acequia-notify"
enum { RESTART_MS = 5000, BLOB_EVERY_TICKS = 5 };

struct message_out {
    uint64_t id, seq;
    char *line;
    bool sent;
};

struct user_count {
    int64_t hour;
    uint32_t sent;
};

struct notifier {
    struct controller *controller;
    const char *program;
    uv_process_t process;
    uv_pipe_t input, output;
    bool running, started;
    int64_t restart_ms;
    VEC(struct message_out) waiting;  // by id
    uint64_t next_id, stored_seq, dropped;
    struct strmap users;  // name → struct user_count
    struct buf answers;
    char problem[ERROR_TEXT_MAX];
    uint32_t ticks;
};

// --- the child process ---

static void write_done(uv_write_t *req, int status) {
    free(req);
}

static void send_message(struct notifier *n, struct message_out *m) {
    uv_write_t *req = xcalloc(1, sizeof *req);
    uv_buf_t data = uv_buf_init(m->line, (unsigned)strlen(m->line));
    // uv_write keeps a reference to the text, which lives until the message is acknowledged or the pipe is closed.
    m->sent = uv_write(req, (uv_stream_t *)&n->input, &data, 1, write_done) == 0;
    if (!m->sent)
        free(req);
}

static void send_waiting(struct notifier *n) {
    for (uint32_t i = 0; n->running && i < n->waiting.len; i++)
        if (!n->waiting.at[i].sent)
            send_message(n, &n->waiting.at[i]);
}

static void on_exit_child(uv_process_t *p, int64_t status, int signal) {
    struct notifier *n = p->data;
    n->running = false;
    n->restart_ms = clock_mono_ms() + RESTART_MS;
    buf_clear(&n->answers);  // half an answer is not the beginning of the next one's first
    snprintf(n->problem, sizeof n->problem,
             "acequia-notify ended (status %lld, signal %d) and is started again", (long long)status, signal);
    log_warn("%s", n->problem);
    for (uint32_t i = 0; i < n->waiting.len; i++)
        n->waiting.at[i].sent = false;
    uv_close((uv_handle_t *)p, NULL);
    uv_close((uv_handle_t *)&n->input, NULL);
    uv_close((uv_handle_t *)&n->output, NULL);
}

static void acknowledge(struct notifier *n, const struct json *answer) {
    uint64_t id = (uint64_t)json_i64(answer, "id", 0);
    const char *error = json_str(answer, "error");
    if (error) {
        snprintf(n->problem, sizeof n->problem, "a notification could not be delivered: %.300s", error);
        log_warn("%s", n->problem);
    } else {
        *n->problem = 0;
    }
    for (uint32_t i = 0; i < n->waiting.len; i++)
        if (n->waiting.at[i].id == id) {
            free(n->waiting.at[i].line);
            vec_remove(&n->waiting, i);
            break;
        }
}

static void on_answer(uv_stream_t *s, ssize_t len, const uv_buf_t *data) {
    struct notifier *n = s->data;
    if (len > 0)
        buf_add(&n->answers, data->base, (size_t)len);
    free(data->base);
    size_t at = 0;
    for (char *end; n->answers.len && (end = memchr(n->answers.data + at, '\n', n->answers.len - at));
         at = (size_t)(end - n->answers.data) + 1) {
        cleanup_arena struct arena a = {0};
        struct json *j;
        if (json_parse(n->answers.data + at, (size_t)(end - n->answers.data) - at, &a, &j, NULL) == 0)
            acknowledge(n, j);
    }
    if (at) {
        memmove(n->answers.data, n->answers.data + at, n->answers.len - at);
        n->answers.len -= at;
    }
}

static void alloc_answer(uv_handle_t *h, size_t suggested, uv_buf_t *out) {
    *out = uv_buf_init(xmalloc(4096), 4096);
}

static void start_child(struct notifier *n) {
    const struct config_notify *k = &n->controller->config.notify;
    cleanup_arena struct arena a = {0};
    const char *env[8], *const args[] = {n->program, NULL};
    uint32_t count = 0;
    env[count++] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    const struct {
        const char *name, *value;
    } settings[] = {{"ACEQUIA_NOTIFY_FROM", k->from},
                    {"ACEQUIA_NOTIFY_SMTP", k->smtp_server},
                    {"ACEQUIA_NOTIFY_SMTP_USER", k->smtp_user},
                    {"ACEQUIA_NOTIFY_SMTP_PASSWORD_FILE", k->smtp_password_file},
                    {"ACEQUIA_NOTIFY_SECRET_FILE", k->webhook_secret_file}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!str_empty(settings[i].value))
            env[count++] = arena_printf(&a, "%s=%s", settings[i].name, settings[i].value);
    env[count] = NULL;
    uv_pipe_init(&n->controller->loop, &n->input, 0);
    uv_pipe_init(&n->controller->loop, &n->output, 0);
    n->output.data = n->process.data = n;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&n->input},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&n->output},
        {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t o = {.file = n->program,
                              .args = (char **)(uintptr_t)args,
                              .env = (char **)(uintptr_t)env,
                              .exit_cb = on_exit_child,
                              .stdio_count = 3,
                              .stdio = stdio};
    int r = uv_spawn(&n->controller->loop, &n->process, &o);
    if (r < 0) {
        snprintf(n->problem, sizeof n->problem, "notifications are not sent: cannot start %s: %s", n->program,
                 uv_strerror(r));
        log_error("%s", n->problem);
        n->restart_ms = clock_mono_ms() + RESTART_MS;
        uv_close((uv_handle_t *)&n->process, NULL);
        uv_close((uv_handle_t *)&n->input, NULL);
        uv_close((uv_handle_t *)&n->output, NULL);
        return;
    }
    n->running = true;
    uv_read_start((uv_stream_t *)&n->output, alloc_answer, on_answer);
    send_waiting(n);
}

struct notifier *notifier_new(struct controller *c, const char *program) {
    struct notifier *n = xcalloc(1, sizeof *n);
    n->controller = c;
    n->program = program ? program : paths_program(&c->arena, NULL, "notify", PROGRAM);
    if (!n->program)  // starting it fails, which is logged and tried again
        n->program = "/usr/libexec/acequia/" PROGRAM;
    return n;
}

// The loop has closed the handles by now; the child ends when its input does.
struct notifier *notifier_free(struct notifier *n) {
    if (!n)
        return NULL;
    size_t it = 0;
    void *u;
    for (uint32_t i = 0; i < n->waiting.len; i++)
        free(n->waiting.at[i].line);
    vec_done(&n->waiting);
    while (strmap_next(&n->users, &it, NULL, &u))
        free(u);
    strmap_done(&n->users);
    buf_done(&n->answers);
    free(n);
    return NULL;
}

// --- composing ---

static const char *state_of(const struct job_record *r) {
    return job_state_words[r->state];
}

static bool wanted(uint32_t mask, const struct notice *what, const struct job_record *r) {
    switch (what->type) {
    case EVENT_JOB_STARTED: return mask & NOTIFY_BEGIN;
    case EVENT_JOB_REQUEUED: return mask & NOTIFY_REQUEUE;
    case EVENT_JOB_TIME_WARNING: return true;
    case EVENT_JOB_ENDED: {
        bool failed = what->array_count ? what->array_ok < what->array_count : r->state != JOB_COMPLETED;
        return mask & NOTIFY_END || (failed && mask & NOTIFY_FAIL) ||
               (r->state == JOB_TIMEOUT && mask & NOTIFY_TIME_LIMIT);
    }
    default: return false;
    }
}

static void compose_subject(const struct notifier *n, const struct notice *what, const struct job_record *r,
                            const char *label, struct buf *out) {
    char took[UNIT_TEXT_MAX];
    buf_addf(out, "[%s] %s %s (%s) ", n->controller->config.cluster.name, what->array_count ? "Array" : "Job",
             label, r->spec->name);
    switch (what->type) {
    case EVENT_JOB_STARTED: buf_adds(out, "started"); break;
    case EVENT_JOB_REQUEUED: buf_adds(out, "was queued again"); break;
    case EVENT_JOB_TIME_WARNING: buf_addf(out, "has used %u%% of its time limit", what->percent); break;
    default:
        if (what->array_count)
            buf_addf(out, "ended: %llu of %llu elements completed", (unsigned long long)what->array_ok,
                     (unsigned long long)what->array_count);
        else
            buf_addf(out, "ended: %s after %s", state_of(r),
                     duration_format(r->start_ms ? (uint64_t)(r->end_ms - r->start_ms) / 1000 : 0, took));
    }
}

static void compose_text(const struct notifier *n, const struct notice *what, const struct job_record *r,
                         const char *label, struct buf *out) {
    char text[UNIT_TEXT_MAX];
    buf_addf(out, "Job:      %s (%s)\nUser:     %s\nProject:  %s\nState:    %s\n", label, r->spec->name,
             r->spec->user, r->spec->project, state_of(r));
    if (!str_empty(r->reason))
        buf_addf(out, "Reason:   %s\n", r->reason);
    if (r->state >= JOB_COMPLETED && r->exit_signal)
        buf_addf(out, "Exit:     signal %u\n", r->exit_signal);
    else if (r->state >= JOB_COMPLETED)
        buf_addf(out, "Exit:     %d\n", r->exit_code);
    if (r->spec->time_limit_s)
        buf_addf(out, "Limit:    %s\n", duration_format(r->spec->time_limit_s, text));
    for (uint32_t i = 0; i < r->parts.len && i < 16; i++)
        buf_addf(out, "%s%s", i ? "," : "Nodes:    ", r->parts.at[i].node);
    if (r->parts.len)
        buf_adds(out, r->parts.len > 16 ? ",...\n" : "\n");
    buf_addf(out, "\nDetails:  acequia get %s\nOutput:   acequia logs %s\n", label, label);
}

static void add_delivery(struct notifier *n, uint64_t seq, struct delivery *d) {
    cleanup_buf struct buf line = {0};
    struct message_out m = {.id = ++n->next_id, .seq = seq};
    d->id = m.id;
    schema_write_json(&message_delivery_schema, d, &(struct json_writer){.out = &line});
    buf_addc(&line, '\n');
    m.line = xstrdup(buf_str(&line));
    vec_push(&n->waiting, m);
}

// What a webhook receives: "text" is what Slack and its relatives show; the rest is for programs.
struct webhook_body {
    const char *text, *event, *cluster;
    uint64_t seq, job;
    const char *name, *user, *project;
    enum job_state state;
    int32_t exit_code;
};

#define S struct webhook_body
static const struct field webhook_fields[] = {
    FIELD(1, S, text, ""),       FIELD(2, S, event, ""),   FIELD(3, S, cluster, ""),
    FIELD(4, S, seq, ""),        FIELD(5, S, job, ""),     FIELD(6, S, name, ""),
    FIELD(7, S, user, ""),       FIELD(8, S, project, ""), FIELD_WORDS_OPEN(9, S, state, job_state_words, ""),
    FIELD(10, S, exit_code, ""),
};
static const struct schema webhook_schema = SCHEMA(S, "the body of a webhook", webhook_fields);
#undef S

static void add_line(struct notifier *n, const struct notice *what, const struct job_record *r,
                     const char *to, const char *subject, const char *text) {
    cleanup_buf struct buf body = {0};
    struct delivery d = {.to = to};
    if (spec_notify_target_is_url(to, strlen(to))) {
        struct webhook_body b = {.text = subject,
                                 .event = event_info(what->type)->name,
                                 .cluster = n->controller->config.cluster.name,
                                 .seq = what->seq,
                                 .job = r->id,
                                 .name = r->spec->name,
                                 .user = r->spec->user,
                                 .project = r->spec->project,
                                 .state = r->state,
                                 .exit_code = r->exit_code};
        schema_write_json(&webhook_schema, &b, &(struct json_writer){.out = &body});
        d.kind = DELIVERY_WEBHOOK;
        d.body = buf_str(&body);
    } else {
        d.subject = subject;
        d.text = text;
    }
    add_delivery(n, what->seq, &d);
}

// A user's webhook may only lead to hosts that an administrator has named: the controller's machine can reach more
// than the user's own.
static bool host_allowed(const struct controller *c, const char *url) {
    const char *host = strstr(url, "://") + 3;
    size_t len = strcspn(host, ":/?#");
    const struct config_notify *k = &c->config.notify;
    for (uint32_t i = 0; i < k->webhook_hosts.len; i++)
        if (strlen(k->webhook_hosts.at[i]) == len && strncasecmp(k->webhook_hosts.at[i], host, len) == 0)
            return true;
    return false;
}

int notifier_check(const struct controller *c, const struct spec *s, struct error *e) {
    const char *target;
    for (const char *at = str_empty(s->notify_to) ? "" : s->notify_to; *at;) {
        cleanup_arena struct arena a = {0};
        uint32_t len = spec_notify_target_next(&at, &target);
        const char *to = arena_strndup(&a, target, len);
        char shown[80];
        if (!spec_notify_target_is_url(to, len) || host_allowed(c, to))
            continue;
        const char *host = strstr(to, "://") + 3;
        return error_set(e, EPERM,
                         "notify_to: webhooks to \"%s\" are not allowed here; an administrator can add the host to "
                         "webhook_hosts of [notify] in the configuration",
                         str_printable(arena_strndup(&a, host, strcspn(host, ":/?#")), shown, sizeof shown));
    }
    return 0;
}

static bool within_limit(struct notifier *n, const char *user, bool *last) {
    struct user_count *u = strmap_get(&n->users, user);
    int64_t hour = controller_now_ms() / 3600000;
    if (!u) {
        u = xcalloc(1, sizeof *u);
        strmap_put(&n->users, core_intern(n->controller->core, user), u);
    }
    if (u->hour != hour)
        *u = (struct user_count){.hour = hour};
    *last = ++u->sent == NOTIFIER_PER_USER_HOUR;
    return u->sent <= NOTIFIER_PER_USER_HOUR;
}

// --- alerts ---

struct webhook_alert {
    const char *text, *event, *cluster;
    uint64_t seq;
    const char *rule, *subject;
    double value;
};
#define S struct webhook_alert
static const struct field webhook_alert_fields[] = {
    FIELD(1, S, text, ""), FIELD(2, S, event, ""),   FIELD(3, S, cluster, ""), FIELD(4, S, seq, ""),
    FIELD(5, S, rule, ""), FIELD(6, S, subject, ""), FIELD(7, S, value, ""),
};
static const struct schema webhook_alert_schema =
    SCHEMA(S, "the body of a webhook about an alert", webhook_alert_fields);
#undef S

// Sends an alert to whom its rule names, else to whom the configuration does.
static void alert_event(struct notifier *n, const struct notice *what) {
    const struct controller *c = n->controller;
    const struct alert_rule *r = alerts_rule(c, what->rule);
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf subject = {0}, text = {0};
    const char *target, *to = r && !str_empty(r->to) ? r->to : c->config.notify.alerts_to;
    buf_addf(&subject, "[%s] %s: ", c->config.cluster.name, what->rule);
    alerts_describe(c, what->rule, what->subject, what->value, &subject);
    buf_addf(&text, "%s\n\nAlerts:       acequia alert list\nAcknowledge:  acequia alert ack %s %s\n",
             buf_str(&subject), what->rule, what->subject);
    for (const char *at = str_empty(to) ? "" : to; *at;) {
        uint32_t len = spec_notify_target_next(&at, &target);
        cleanup_buf struct buf body = {0};
        struct delivery d = {.to = arena_strndup(&a, target, len)};
        bool last;
        if (spec_notify_target_is_url(d.to, len) && !host_allowed(c, d.to)) {
            snprintf(n->problem, sizeof n->problem,
                     "alert %s: its webhook's host is not allowed; add it to webhook_hosts of [notify]",
                     what->rule);
            continue;
        }
        if (n->waiting.len >= NOTIFIER_WAITING_MAX || !within_limit(n, "alerts", &last)) {
            n->dropped++;
            return;
        }
        if (spec_notify_target_is_url(d.to, len)) {
            struct webhook_alert b = {.text = buf_str(&subject),
                                      .event = event_info(what->type)->name,
                                      .cluster = c->config.cluster.name,
                                      .seq = what->seq,
                                      .rule = what->rule,
                                      .subject = what->subject,
                                      .value = what->value};
            schema_write_json(&webhook_alert_schema, &b, &(struct json_writer){.out = &body});
            d.kind = DELIVERY_WEBHOOK;
            d.body = buf_str(&body);
        } else {
            d.subject = buf_str(&subject);
            d.text = buf_str(&text);
        }
        add_delivery(n, what->seq, &d);
    }
}

static void start_or_send(struct notifier *n) {
    if (!n->running && clock_mono_ms() >= n->restart_ms)
        start_child(n);
    else
        send_waiting(n);
}

void notifier_event(struct notifier *n, const struct notice *what) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf subject = {0}, text = {0};
    struct job_record r;
    bool live, last = false;
    uint32_t mask, len;
    char label[32];
    if (n->started && what->type == EVENT_ALERT_RAISED) {
        alert_event(n, what);
        start_or_send(n);
        return;
    }
    if (!n->started || api_record(n->controller, what->job, &a, &r, &live) < 0 || str_empty(r.spec->notify) ||
        spec_notify_parse(r.spec->notify, &mask, NULL) < 0 || !wanted(mask, what, &r))
        return;
    if (what->array_count)
        snprintf(label, sizeof label, "%llu", (unsigned long long)r.array_id);
    else
        api_label(&r, label, sizeof label);
    compose_subject(n, what, &r, label, &subject);
    compose_text(n, what, &r, label, &text);
    const char *target;
    for (const char *at = str_empty(r.spec->notify_to) ? r.spec->user : r.spec->notify_to; *at;) {
        len = spec_notify_target_next(&at, &target);
        const char *to = arena_strndup(&a, target, len);
        if (spec_notify_target_is_url(to, len) && !host_allowed(n->controller, to)) {
            snprintf(n->problem, sizeof n->problem,
                     "job %s: its webhook's host is not allowed; add it to webhook_hosts of [notify]", label);
            continue;
        }
        if (n->waiting.len >= NOTIFIER_WAITING_MAX || !within_limit(n, r.spec->user, &last)) {
            n->dropped++;
            break;
        }
        // Said in the last one: who is told no more should know why.
        if (last)
            buf_addf(&text,
                     "\nThis is message %d within one hour: no more are sent for your jobs before the next hour.\n",
                     NOTIFIER_PER_USER_HOUR);
        add_line(n, what, &r, to, buf_str(&subject), buf_str(&text));
    }
    start_or_send(n);
}

// --- start, and what a restart must send again ---

static void store_position(struct notifier *n) {
    uint64_t seq = core_seq(n->controller->core);
    for (uint32_t i = 0; i < n->waiting.len; i++)
        if (n->waiting.at[i].seq && n->waiting.at[i].seq - 1 < seq)
            seq = n->waiting.at[i].seq - 1;
    if (seq == n->stored_seq)
        return;
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seq);
    pipeline_keep_blob(n->controller->pipeline, "notified", text, strlen(text));
    n->stored_seq = seq;
}

// Of the job's events only those that were a notice when they happened (core/notify.c): of an array the first start and
// the last end, of workers the first start, which is their job's. False: nobody is to hear of it.
static bool notice_of(struct notifier *n, const struct store_event *e, const struct event *event,
                      struct notice *out) {
    cleanup_arena struct arena a = {0};
    struct job_record r;
    bool live;
    uint32_t mask;
    if (api_record(n->controller, e->job, &a, &r, &live) < 0 || str_empty(r.spec->notify) ||
        spec_notify_parse(r.spec->notify, &mask, NULL) < 0)
        return false;
    bool whole = r.array_id && !(mask & NOTIFY_ARRAY_TASKS);
    *out = (struct notice){.seq = e->seq, .job = r.job ? r.job : e->job, .type = event->type};
    if (event->type == EVENT_JOB_TIME_WARNING)
        out->percent = ((const struct event_job_time_warning *)event->body)->percent;
    if (event->type == EVENT_JOB_ENDED) {
        out->array_count = ((const struct event_job_ended *)event->body)->array_elements;
        out->array_ok = ((const struct event_job_ended *)event->body)->array_completed;
        return !r.job && (!whole || out->array_count);
    }
    if (event->type == EVENT_JOB_STARTED) {
        out->array_count = whole;  // how many there are is not said of a start
        return (!whole && !r.job) || ((const struct event_job_started *)event->body)->first;
    }
    return !whole && !r.job;
}

static int recover_event(void *ctx, const struct store_event *e) {
    struct notifier *n = ctx;
    cleanup_arena struct arena a = {0};
    struct event event;
    struct notice what;
    bool about_job = e->type == EVENT_JOB_STARTED || e->type == EVENT_JOB_ENDED ||
                     e->type == EVENT_JOB_REQUEUED || e->type == EVENT_JOB_TIME_WARNING;
    if ((!about_job && e->type != EVENT_ALERT_RAISED) ||
        event_decode((enum event_type)e->type, e->data, e->len, &a, &event) < 0)
        return 0;
    if (about_job && notice_of(n, e, &event, &what))
        notifier_event(n, &what);
    const struct event_alert *alert = event.body;
    if (!about_job && alert->rule && alert->subject) {
        what = (struct notice){.seq = e->seq, .type = EVENT_ALERT_RAISED, .value = alert->value};
        snprintf(what.rule, sizeof what.rule, "%s", alert->rule);
        snprintf(what.subject, sizeof what.subject, "%s", alert->subject);
        notifier_event(n, &what);
    }
    return 0;
}

void notifier_start(struct notifier *n) {
    void *data;
    size_t len;
    uint64_t seq = 0;
    n->started = true;
    if (store_blob(n->controller->store, "notified", &data, &len, NULL) == 0) {
        cleanup_free char *text = xstrndup(data, len);
        free(data);
        if (parse_u64(text, &seq) == 0 && seq < core_seq(n->controller->core))
            store_events(n->controller->store, 0, seq, NOTIFIER_RECOVER_EVENTS, recover_event, n, NULL);
    }
    n->stored_seq = seq;
    store_position(n);  // from the first start on there is one
}

void notifier_tick(struct notifier *n) {
    if (n->started && n->waiting.len && !n->running && clock_mono_ms() >= n->restart_ms)
        start_child(n);
    if (++n->ticks % BLOB_EVERY_TICKS == 0)
        store_position(n);
}

const char *notifier_problem(const struct notifier *n) {
    return n && *n->problem ? n->problem : NULL;
}
