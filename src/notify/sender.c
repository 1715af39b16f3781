// Owns the deliveries between their acceptance and their end: waiting for a place or the next try, or on their way
// through libcurl (SMTP, HTTP) or a sendmail process.
#include "sender.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/vec.h"

enum { ANSWER_BYTES_MAX = 64 << 10 };

struct outgoing {
    struct delivery delivery;
    struct arena arena;
    uint32_t tries;
    int64_t next_ms;      // not before this
    int64_t deadline_ms;  // of a sendmail process
    CURL *easy;
    struct curl_slist *recipients, *headers;
    struct buf message;
    size_t sent;  // bytes of the message that curl has read
    size_t received;
    pid_t pid;  // of sendmail
    int input;  // its standard input, while something is left to write
    char problem[CURL_ERROR_SIZE];
};

struct sender {
    struct sender_config config;
    sender_done_fn done;
    void *ctx;
    CURLM *multi;
    VEC(struct outgoing *) list;
    uint32_t active;
    char host[256];
};

struct sender *notify_sender_new(const struct sender_config *config, sender_done_fn done, void *ctx) {
    struct sender *s = xcalloc(1, sizeof *s);
    s->config = *config;
    s->done = done;
    s->ctx = ctx;
    s->multi = curl_multi_init();
    if (gethostname(s->host, sizeof s->host - 1) < 0)
        snprintf(s->host, sizeof s->host, "localhost");
    return s;
}

static void reset(struct sender *s, struct outgoing *o) {
    if (o->easy) {
        curl_multi_remove_handle(s->multi, o->easy);
        curl_easy_cleanup(o->easy);
    }
    curl_slist_free_all(o->recipients);
    curl_slist_free_all(o->headers);
    if (o->pid) {
        kill(o->pid, SIGKILL);
        waitpid(o->pid, NULL, 0);
    }
    if (o->input >= 0)
        close(o->input);
    buf_done(&o->message);
    o->easy = NULL;
    o->recipients = o->headers = NULL;
    o->message = (struct buf){0};
    o->pid = 0;
    o->input = -1;
    o->sent = o->received = 0;
}

static void outgoing_free(struct sender *s, struct outgoing *o) {
    reset(s, o);
    arena_done(&o->arena);
    free(o);
}

struct sender *notify_sender_free(struct sender *s) {
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < s->list.len; i++)
        outgoing_free(s, s->list.at[i]);
    vec_done(&s->list);
    curl_multi_cleanup(s->multi);
    free(s);
    return NULL;
}

void notify_sender_add(struct sender *s, const struct delivery *d) {
    struct outgoing *o = xcalloc(1, sizeof *o);
    o->delivery = *(struct delivery *)schema_copy(&message_delivery_schema, d, &o->arena);
    o->input = -1;
    o->next_ms = clock_mono_ms() + s->config.retry_ms[0];
    vec_push(&s->list, o);
}

uint32_t notify_sender_waiting(const struct sender *s) {
    return s->list.len;
}

// --- results ---

static void remove_from_list(struct sender *s, struct outgoing *o) {
    for (uint32_t i = 0; i < s->list.len; i++)
        if (s->list.at[i] == o) {
            vec_remove(&s->list, i);
            break;
        }
    outgoing_free(s, o);
}

static bool is_active(const struct outgoing *o) {
    return o->easy || o->pid;
}

// `passing`: worth another try.
static void finish(struct sender *s, struct outgoing *o, const char *problem, bool passing) {
    struct error e = {0};
    s->active--;
    if (!problem) {
        s->done(s->ctx, o->delivery.id, NULL);
        remove_from_list(s, o);
    } else if (passing && ++o->tries < SENDER_TRIES) {
        reset(s, o);
        o->next_ms = clock_mono_ms() + s->config.retry_ms[o->tries];
    } else {
        char to[128];
        error_set(&e, EIO, "%s: %.300s (tried %u %s)", str_printable(o->delivery.to, to, sizeof to), problem,
                  o->tries ? o->tries : 1, o->tries > 1 ? "times" : "time");
        s->done(s->ctx, o->delivery.id, &e);
        remove_from_list(s, o);
    }
}

// --- by libcurl ---

static size_t read_message(char *out, size_t size, size_t n, void *ctx) {
    struct outgoing *o = ctx;
    size_t room = size * n, left = o->message.len - o->sent;
    size_t take = left < room ? left : room;
    memcpy(out, o->message.data + o->sent, take);
    o->sent += take;
    return take;
}

// Answers are not used; one that does not end is cut off.
static size_t drop_answer(char *data, size_t size, size_t n, void *ctx) {
    struct outgoing *o = ctx;
    o->received += size * n;
    return o->received > ANSWER_BYTES_MAX ? 0 : size * n;
}

static void prepare_smtp(struct sender *s, struct outgoing *o) {
    notify_mail_compose(&o->delivery, s->config.from, s->host, clock_wall_ms() / 1000, &o->message);
    o->recipients = curl_slist_append(NULL, o->delivery.to);
    curl_easy_setopt(o->easy, CURLOPT_URL, s->config.smtp);
    curl_easy_setopt(o->easy, CURLOPT_PROTOCOLS_STR, "smtp,smtps");
    curl_easy_setopt(o->easy, CURLOPT_MAIL_FROM, s->config.from);
    curl_easy_setopt(o->easy, CURLOPT_MAIL_RCPT, o->recipients);
    curl_easy_setopt(o->easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(o->easy, CURLOPT_READFUNCTION, read_message);
    curl_easy_setopt(o->easy, CURLOPT_READDATA, o);
    curl_easy_setopt(o->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)o->message.len);
    // A password is never sent in the clear; without one TLS is used where the server offers it.
    curl_easy_setopt(o->easy, CURLOPT_USE_SSL,
                     s->config.smtp_user ? (long)CURLUSESSL_ALL : (long)CURLUSESSL_TRY);
    if (s->config.smtp_user) {
        curl_easy_setopt(o->easy, CURLOPT_USERNAME, s->config.smtp_user);
        curl_easy_setopt(o->easy, CURLOPT_PASSWORD, s->config.smtp_password);
    }
}

static void prepare_webhook(struct sender *s, struct outgoing *o) {
    cleanup_buf struct buf header = {0};
    o->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (s->config.secret) {
        buf_adds(&header, "X-Acequia-Signature: ");
        notify_webhook_signature(s->config.secret, strlen(s->config.secret), o->delivery.body,
                                 clock_wall_ms() / 1000, &header);
        o->headers = curl_slist_append(o->headers, buf_str(&header));
    }
    curl_easy_setopt(o->easy, CURLOPT_URL, o->delivery.to);
    curl_easy_setopt(o->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(o->easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(o->easy, CURLOPT_HTTPHEADER, o->headers);
    curl_easy_setopt(o->easy, CURLOPT_POSTFIELDS, o->delivery.body);
    curl_easy_setopt(o->easy, CURLOPT_USERAGENT, "acequia/" ACEQUIA_VERSION);
}

static void start_curl(struct sender *s, struct outgoing *o) {
    o->easy = curl_easy_init();
    *o->problem = 0;
    curl_easy_setopt(o->easy, CURLOPT_PRIVATE, o);
    curl_easy_setopt(o->easy, CURLOPT_ERRORBUFFER, o->problem);
    curl_easy_setopt(o->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(o->easy, CURLOPT_PROXY, "");  // nothing of the environment decides where messages go
    curl_easy_setopt(o->easy, CURLOPT_TIMEOUT, (long)SENDER_TIME_LIMIT_S);
    curl_easy_setopt(o->easy, CURLOPT_WRITEFUNCTION, drop_answer);
    curl_easy_setopt(o->easy, CURLOPT_WRITEDATA, o);
    if (s->config.ca_file)
        curl_easy_setopt(o->easy, CURLOPT_CAINFO, s->config.ca_file);
    if (o->delivery.kind == DELIVERY_MAIL)
        prepare_smtp(s, o);
    else
        prepare_webhook(s, o);
    curl_multi_add_handle(s->multi, o->easy);
}

// 4xx of HTTP and 5xx of SMTP are final (too many requests and time-outs are not).
static void curl_finished(struct sender *s, struct outgoing *o, CURLcode code) {
    long status = 0;
    char text[CURL_ERROR_SIZE + 64];
    curl_easy_getinfo(o->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK) {
        snprintf(text, sizeof text, "%s", *o->problem ? o->problem : curl_easy_strerror(code));
        finish(s, o, text, o->delivery.kind == DELIVERY_WEBHOOK || status < 500);
    } else if (o->delivery.kind == DELIVERY_WEBHOOK && (status < 200 || status >= 300)) {
        snprintf(text, sizeof text, "the server answered with status %ld", status);
        finish(s, o, text, status == 408 || status == 429 || status >= 500);
    } else {
        finish(s, o, NULL, false);
    }
}

// --- by the program sendmail ---

static void start_sendmail(struct sender *s, struct outgoing *o) {
    char text[256];
    int ends[2] = {-1, -1};
    const char *const argv[] = {"sendmail", "-i", "-f", s->config.from, "--", o->delivery.to, NULL};
    static const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    notify_mail_compose(&o->delivery, s->config.from, s->host, clock_wall_ms() / 1000, &o->message);
    int r = pipe2(ends, O_CLOEXEC) < 0 ? errno : 0;
    if (!r) {
        posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        r = posix_spawn(&o->pid, s->config.sendmail, &actions, NULL, (char *const *)(uintptr_t)argv,
                        (char *const *)(uintptr_t)env);
        close(ends[0]);
        if (r) {
            close(ends[1]);
            o->pid = 0;
        }
    }
    posix_spawn_file_actions_destroy(&actions);
    if (r) {
        snprintf(text, sizeof text, "cannot start %s: %s; install a mail server or set smtp_server",
                 s->config.sendmail, strerror(r));
        finish(s, o, text, false);
        return;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    o->input = ends[1];
    o->deadline_ms = clock_mono_ms() + SENDER_TIME_LIMIT_S * 1000;
}

static void work_sendmail(struct sender *s, struct outgoing *o) {
    char text[64];
    int status;
    while (o->input >= 0) {
        ssize_t n = o->sent < o->message.len
                        ? write(o->input, o->message.data + o->sent, o->message.len - o->sent)
                        : 0;
        if (n < 0 && errno == EAGAIN)
            break;
        o->sent += n > 0 ? (size_t)n : 0;
        if (n < 0 || o->sent == o->message.len) {
            close(o->input);
            o->input = -1;
        }
    }
    pid_t ended = waitpid(o->pid, &status, WNOHANG);
    if (ended == o->pid) {
        o->pid = 0;
        snprintf(text, sizeof text, "sendmail failed with status %d",
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        finish(s, o, WIFEXITED(status) && !WEXITSTATUS(status) ? NULL : text, true);
    } else if (clock_mono_ms() > o->deadline_ms) {
        finish(s, o, "sendmail did not end in time", true);
    }
}

// --- the turn ---

static bool same_destination(const struct sender *s, const struct outgoing *a, const struct outgoing *b) {
    if (a->delivery.kind != b->delivery.kind)
        return false;
    if (a->delivery.kind == DELIVERY_MAIL)
        return true;  // all go through one server
    // Without the port: a user chooses it, and may choose ones that never answer.
    const char *x = strstr(a->delivery.to, "://") + 3, *y = strstr(b->delivery.to, "://") + 3;
    size_t n = strcspn(x, ":/?#");
    return n == strcspn(y, ":/?#") && strncasecmp(x, y, n) == 0;
}

static bool has_place(const struct sender *s, const struct outgoing *o) {
    uint32_t same = 0, webhooks = 0;
    for (uint32_t i = 0; i < s->list.len; i++) {
        const struct outgoing *other = s->list.at[i];
        same += is_active(other) && same_destination(s, other, o);
        webhooks += is_active(other) && other->delivery.kind == DELIVERY_WEBHOOK;
    }
    if (o->delivery.kind == DELIVERY_WEBHOOK && webhooks >= SENDER_PLACES - SENDER_PER_HOST)
        return false;  // the rest is for mails
    return s->active < SENDER_PLACES && same < SENDER_PER_HOST;
}

static int64_t start_due(struct sender *s, int64_t now_ms) {
    int64_t next_ms = INT64_MAX;
    for (uint32_t i = 0; i < s->list.len && s->active < SENDER_PLACES; i++) {
        struct outgoing *o = s->list.at[i];
        if (is_active(o))
            continue;
        if (o->next_ms > now_ms) {
            next_ms = o->next_ms < next_ms ? o->next_ms : next_ms;
        } else if (has_place(s, o)) {
            s->active++;
            uint32_t before = s->list.len;
            if (o->delivery.kind == DELIVERY_MAIL && !s->config.smtp)
                start_sendmail(s, o);
            else
                start_curl(s, o);
            if (s->list.len < before)  // it has failed at once and is gone
                i--;
        }
    }
    return next_ms;
}

static void work_on_processes(struct sender *s) {
    for (uint32_t i = 0; i < s->list.len; i++) {
        struct outgoing *o = s->list.at[i];
        uint32_t before = s->list.len;
        if (o->pid)
            work_sendmail(s, o);
        if (s->list.len < before)
            i--;
    }
}

void notify_sender_work(struct sender *s, int fd, int timeout_ms) {
    enum { PROCESS_POLL_MS = 20 };
    struct curl_waitfd extra = {.fd = fd, .events = CURL_WAIT_POLLIN};
    int64_t now_ms = clock_mono_ms(), next_ms = start_due(s, now_ms);
    int running, left;
    if (next_ms - now_ms < timeout_ms)
        timeout_ms = (int)(next_ms - now_ms);
    for (uint32_t i = 0; i < s->list.len; i++)
        if (s->list.at[i]->pid && timeout_ms > PROCESS_POLL_MS)
            timeout_ms = PROCESS_POLL_MS;
    curl_multi_perform(s->multi, &running);
    curl_multi_poll(s->multi, &extra, fd >= 0, timeout_ms < 0 ? 0 : timeout_ms, NULL);
    curl_multi_perform(s->multi, &running);
    for (CURLMsg *m; (m = curl_multi_info_read(s->multi, &left));) {
        struct outgoing *o;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&o);
        curl_finished(s, o, m->data.result);
    }
    work_on_processes(s);
}
