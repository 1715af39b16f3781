// Owns the processes of providers: starts them, writes questions, reads answers, ends those that hang. What is asked is
// decided in provider_questions.c, what an answer means in the core.
#include "providers.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "controller/provider_questions.h"
#include "net/mac.h"
#include "net/token.h"

#define PROGRAM "acequia-provider"
enum {
    RESTART_FIRST_MS = 1000,
    RESTART_LONGEST_MS = 60000,
    ANSWER_LINE_MAX = 1 << 20,  // of an answer
    LINES_MAX = 16,  // after one question; a late answer to an earlier one is among them
    READ_PIECE = 65536,
    TOKEN_DAYS = 30,
    SECRETS_FD = 3,
    VARIABLES_MAX = 16,
};

struct provider_program {
    struct providers *all;
    char *name;  // of the provider
    uint64_t settings;  // hash of what it was started with
    uv_process_t process;
    uv_pipe_t input, output;
    bool running, ending;
    uint32_t open;   // of its three handles
    uint32_t lines;  // since the last question
    int64_t restart_ms, pause_ms;  // steady clock
    struct buf answer;
    struct provider_questions questions;
    char problem[PROVIDER_REASON_MAX];
};

struct providers {
    struct controller *controller;
    const char *program;
    VEC(struct provider_program *) list;
};

static const struct actor asker = {.user = "root", .admin = true};

static void trouble(struct provider_program *p, const char *text) {
    if (!streq(p->problem, text))
        log_warn("provider %s: %s", p->name, text);
    snprintf(p->problem, sizeof p->problem, "%s", text);
}

// --- questions ---

static int hex_digit(char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

// The token of a node is the same each time the engine is asked for it, so that a repeated question says the same. It
// is made from a key that no backup of the state has, and lets one agent in, once, under one name.
static int make_token(struct controller *c, const struct question_node *n, char out[static TOKEN_TEXT_LEN + 1],
                      struct error *e) {
    struct mac_key key;
    struct token t;
    char hash[TOKEN_SHA256_HEX + 1], hex[MAC_HEX + 1];
    int r;
    if (!c->ca)
        return error_set(e, ENOTSUP,
                         "agents cannot join: this controller serves only its own machine; set listen in [cluster], "
                         "for example listen = 0.0.0.0:6820, and restart it");
    if ((r = controller_derive_key(c, "tokens of provider nodes", &key, e)) < 0 ||
        (r = token_create(pki_ca_sha256(c->ca), &t, e)) < 0)
        return r;
    mac_hex(&key, "id", n->key, strlen(n->key), hex);
    memcpy(t.id, hex, TOKEN_ID_HEX);
    mac_hex(&key, "secret", n->key, strlen(n->key), hex);
    for (int i = 0; i < TOKEN_SECRET_BYTES; i++)
        t.secret[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    explicit_bzero(hex, sizeof hex);
    token_hash(&t, hash);
    token_format(&t, out);
    struct command_token_create create = {.id = t.id,
                                          .hash = hash,
                                          .node = n->node,
                                          .expires_ms = controller_now_ms() + (int64_t)TOKEN_DAYS * 86400000};
    if (!core_token_holds(c->core, t.id, controller_now_ms()))
        r = core_command(c->core, &asker, NULL, &(struct command){COMMAND_TOKEN_CREATE, &create}, controller_now_ms(),
                         NULL, e);
    explicit_bzero(&key, sizeof key);
    token_wipe(&t);
    return r;
}

static int write_question(struct controller *c, const struct provider_question *q, struct buf *out,
                          struct error *e) {
    struct json_writer w = {.out = out};
    json_open(&w, '{');
    json_kv_i64(&w, "id", (int64_t)q->id);
    json_kv_str(&w, "verb", provider_verb_words[q->verb]);
    if (q->verb == VERB_START)
        json_kv_str(&w, "shape", q->shape);
    if (q->verb == VERB_START || q->verb == VERB_STOP)
        json_open_key(&w, "nodes", '[');
    for (uint32_t i = 0; i < q->nodes.len; i++) {
        const struct question_node *n = &q->nodes.at[i];
        char token[TOKEN_TEXT_LEN + 1];
        json_open(&w, '{');
        json_kv_str(&w, "key", n->key);
        if (n->node)
            json_kv_str(&w, "node", n->node);
        if (n->handle)
            json_kv_str(&w, "handle", n->handle);
        if (q->verb == VERB_START) {
            int r = make_token(c, n, token, e);
            if (r < 0)
                return r;
            json_kv_str(&w, "token", token);
            explicit_bzero(token, sizeof token);
        }
        json_close(&w, '}');
    }
    if (q->verb == VERB_START || q->verb == VERB_STOP)
        json_close(&w, ']');
    json_close(&w, '}');
    buf_addc(out, '\n');
    return 0;
}

struct question_line {
    struct providers *all;
    char *name;
    uint64_t question;
    struct buf line;
    uv_write_t req;
};

static void outgoing_free(struct question_line *o) {
    if (o->line.data)
        explicit_bzero(o->line.data, o->line.len);
    buf_done(&o->line);
    free(o->name);
    free(o);
}

static void written(uv_write_t *req, int status) {
    outgoing_free(req->data);
}

static struct provider_program *find(const struct providers *all, const char *name) {
    for (uint32_t i = 0; i < all->list.len; i++)
        if (streq(all->list.at[i]->name, name))
            return all->list.at[i];
    return NULL;
}

// Committed: what the question is about is known whatever happens now.
static void send_question(void *arg) {
    struct question_line *o = arg;
    struct provider_program *p = find(o->all, o->name);
    uv_buf_t data = uv_buf_init(o->line.data, (unsigned)o->line.len);
    o->req.data = o;
    if (!p || !p->running || p->ending || p->questions.waiting != o->question ||
        uv_write(&o->req, (uv_stream_t *)&p->input, &data, 1, written) != 0)
        outgoing_free(o);
}

static void ask(struct provider_program *p) {
    struct controller *c = p->all->controller;
    cleanup_arena struct arena a = {0};
    struct provider_question q;
    struct error e = {0};
    bool late;
    if (!provider_question_next(&p->questions, c->core, p->name, controller_now_ms(), clock_mono_ms(), &a, &q, &late)) {
        if (late) {
            trouble(p, "its program has not answered for two minutes, and is started again");
            uv_process_kill(&p->process, SIGKILL);
        }
        return;
    }
    p->lines = 0;
    struct question_line *o = xcalloc(1, sizeof *o);
    *o = (struct question_line){.all = p->all, .name = xstrdup(p->name), .question = q.id};
    if (write_question(c, &q, &o->line, &e) < 0) {
        trouble(p, e.text);
        p->questions.waiting = 0;
        outgoing_free(o);
        return;
    }
    pipeline_when_committed(c->pipeline, send_question, o);
}

// --- answers ---

static const char *cut(const char *text, struct arena *a, size_t most) {
    return text && strlen(text) > most ? arena_strndup(a, text, most) : text;
}

static void on_line(struct provider_program *p, const char *line, size_t len) {
    p->lines++;  // before the next question is asked
    struct controller *c = p->all->controller;
    cleanup_arena struct arena a = {0};
    struct provider_report r;
    struct json *j;
    struct error e = {0};
    bool settled = clock_mono_ms() - c->started_mono_ms > PROVIDER_SETTLED_MS;
    if (json_parse(line, len, &a, &j, &e) < 0 || schema_read_json(&provider_report_schema, j, &a, &r, &e) < 0) {
        error_prefix(&e, "its program's answer is not understood");
        trouble(p, e.text);
        return;
    }
    for (uint32_t i = 0; i < r.nodes.len; i++) {
        r.nodes.at[i].reason = cut(r.nodes.at[i].reason, &a, PROVIDER_REASON_MAX);
        r.nodes.at[i].error = cut(r.nodes.at[i].error, &a, PROVIDER_REASON_MAX);
    }
    r.error = cut(r.error, &a, PROVIDER_REASON_MAX);
    r.provider = p->name;
    r.verb = p->questions.verb;  // the number says which question it is
    if (!provider_question_answered(&p->questions, c->core, &r, settled, controller_now_ms(), &e))
        return;
    if (e.code)
        trouble(p, e.text);
    else
        *p->problem = 0;
    p->pause_ms = RESTART_FIRST_MS;
    core_providers_tick(c->core, controller_now_ms());
    ask(p);
}

static void on_read(uv_stream_t *s, ssize_t len, const uv_buf_t *data) {
    struct provider_program *p = s->data;
    if (len > 0 && !p->ending)
        buf_add(&p->answer, data->base, (size_t)len);
    free(data->base);
    if (len <= 0 || p->ending)
        return;
    size_t at = 0;
    for (char *end; p->lines < LINES_MAX && at < p->answer.len &&
                    (end = memchr(p->answer.data + at, '\n', p->answer.len - at));
         at = (size_t)(end - p->answer.data) + 1)
        on_line(p, p->answer.data + at, (size_t)(end - p->answer.data) - at);
    memmove(p->answer.data, p->answer.data + at, p->answer.len - at);
    p->answer.len -= at;
    if (p->lines >= LINES_MAX || p->answer.len > ANSWER_LINE_MAX) {
        trouble(p, p->lines >= LINES_MAX ? "its program says more than it is asked, and is started again"
                                         : "its program answers with more than 1 MiB in a line, and is started again");
        buf_clear(&p->answer);
        uv_read_stop(s);
        uv_process_kill(&p->process, SIGKILL);
    }
}

static void alloc_read(uv_handle_t *h, size_t suggested, uv_buf_t *out) {
    *out = uv_buf_init(xmalloc(READ_PIECE), READ_PIECE);
}

// --- life of a program ---

static void program_free(struct provider_program *p) {
    provider_questions_begin(&p->questions);
    buf_done(&p->answer);
    free(p->name);
    free(p);
}

static void forget_program(struct provider_program *p) {
    struct providers *all = p->all;
    for (uint32_t i = 0; i < all->list.len; i++)
        if (all->list.at[i] == p) {
            vec_remove(&all->list, i);
            break;
        }
    program_free(p);
}

// The handles are part of the program, and it is not said in which order they are closed.
static void on_handle_closed(uv_handle_t *h) {
    struct provider_program *p = h->data;
    if (--p->open)
        return;
    p->running = false;
    if (p->ending)
        forget_program(p);
}

static void close_handles(struct provider_program *p) {
    uv_handle_t *const handles[] = {(uv_handle_t *)&p->process, (uv_handle_t *)&p->input, (uv_handle_t *)&p->output};
    p->open = 3;
    for (int i = 0; i < 3; i++)
        uv_close(handles[i], on_handle_closed);
}

static void on_exit_program(uv_process_t *process, int64_t status, int signal) {
    struct provider_program *p = process->data;
    char text[160];
    snprintf(text, sizeof text, "its program ended (status %lld, signal %d) and is started again", (long long)status,
             signal);
    if (!p->ending)
        trouble(p, text);
    p->restart_ms = clock_mono_ms() + p->pause_ms;
    p->pause_ms = p->pause_ms * 2 < RESTART_LONGEST_MS ? p->pause_ms * 2 : RESTART_LONGEST_MS;
    buf_clear(&p->answer);
    close_handles(p);
}

// Secrets are in a file without a name that only the program has.
static int secrets_file(struct controller *c, const struct node_provider *s, struct error *e) {
    cleanup_buf struct buf text = {0};
    cleanup_arena struct arena a = {0};
    struct json_writer w = {.out = &text};
    int fd = memfd_create("secrets", MFD_CLOEXEC), r = 0;
    if (fd < 0)
        return error_set(e, errno, "no file for its secrets can be made: %m");
    json_open(&w, '{');
    for (uint32_t i = 0; i < s->secrets.len && r == 0; i++) {
        const struct event_secret *secret = core_secret(c->core, s->by, NULL, s->secrets.at[i]);
        struct bytes value = {0};
        r = secret ? controller_hook_secret(c, "", secret, &a, &value, e)
                   : error_set(e, ENOENT, "%s has no secret \"%s\" any more", s->by, s->secrets.at[i]);
        if (r == 0)
            json_kv_str(&w, s->secrets.at[i], arena_strndup(&a, value.data, value.len));
    }
    json_close(&w, '}');
    if (r == 0 && (write(fd, text.data, text.len) != (ssize_t)text.len || lseek(fd, 0, SEEK_SET) != 0))
        r = error_set(e, errno, "its secrets cannot be written: %m");
    if (text.data)
        explicit_bzero(text.data, text.len);
    if (r < 0)
        close(fd);
    return r < 0 ? r : fd;
}

static const char **environment(struct controller *c, const struct node_provider *s, struct arena *a) {
    static const char *const kept[] = {"PATH", "HOME", "LANG", "TZ", "SLURM_CONF", "KUBECONFIG", "ACEQUIA_HOME"};
    const char **env = arena_alloc(a, VARIABLES_MAX * sizeof *env);
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (getenv(kept[i]))
            env[n++] = arena_printf(a, "%s=%s", kept[i], getenv(kept[i]));
    const char *listen = c->config.cluster.listen, *colon = str_empty(listen) ? NULL : strrchr(listen, ':');
    env[n++] = arena_printf(a, "ACEQUIA_PROVIDER=%s", s->name);
    env[n++] = arena_printf(a, "ACEQUIA_PROVIDER_TAG=%s", s->tag);
    env[n++] = arena_printf(a, "ACEQUIA_CLUSTER=%s", c->config.cluster.name);
    bool everywhere =
        colon && (strncmp(listen, "0.0.0.0", 7) == 0 || strncmp(listen, "[::]", 4) == 0 || colon == listen);
    if (!str_empty(c->config.store.address))
        env[n++] = arena_printf(a, "ACEQUIA_CONTROLLER=%s", c->config.store.address);
    else if (colon)
        env[n++] = everywhere ? arena_printf(a, "ACEQUIA_CONTROLLER=%s%s", c->hostname, colon)
                              : arena_printf(a, "ACEQUIA_CONTROLLER=%s", listen);
    env[n] = NULL;
    return env;
}

static void start(struct provider_program *p, const struct node_provider *s) {
    struct controller *c = p->all->controller;
    cleanup_arena struct arena a = {0};
    struct error e = {0};
    const char *file = s->kind == PROVIDER_PROGRAM ? s->program : p->all->program;
    const char **args = arena_alloc(&a, (s->args.len + 3) * sizeof *args);
    uint32_t n = 0;
    args[n++] = file;
    if (s->kind != PROVIDER_PROGRAM)
        args[n++] = provider_kind_words[s->kind];
    for (uint32_t i = 0; i < s->args.len; i++)
        args[n++] = s->args.at[i];
    args[n] = NULL;
    int secrets = secrets_file(c, s, &e);
    if (secrets < 0) {
        trouble(p, e.text);
        p->restart_ms = clock_mono_ms() + RESTART_LONGEST_MS;
        return;
    }
    uv_pipe_init(&c->loop, &p->input, 0);
    uv_pipe_init(&c->loop, &p->output, 0);
    p->input.data = p->output.data = p->process.data = p;
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&p->input},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&p->output},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = secrets}};
    uv_process_options_t o = {.file = file,
                              .args = (char **)(uintptr_t)args,
                              .env = (char **)(uintptr_t)environment(c, s, &a),
                              .exit_cb = on_exit_program,
                              .stdio_count = SECRETS_FD + 1,
                              .stdio = stdio};
    int r = uv_spawn(&c->loop, &p->process, &o);
    close(secrets);
    p->lines = 0;
    p->running = true;  // until its handles are closed
    provider_questions_begin(&p->questions);
    if (r < 0) {
        char text[PATH_MAX + 100];
        snprintf(text, sizeof text, "its program %s cannot be started: %s", file, uv_strerror(r));
        trouble(p, text);
        p->restart_ms = clock_mono_ms() + RESTART_LONGEST_MS;
        close_handles(p);
        return;
    }
    uv_read_start((uv_stream_t *)&p->output, alloc_read, on_read);
}

// What a program is started with. Whatever else is changed needs no other process.
static uint64_t settings_of(const struct controller *c, const struct node_provider *s) {
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "%d %s %s ", s->kind, s->tag, s->program ? s->program : "");
    for (uint32_t i = 0; i < s->args.len; i++)
        buf_add(&b, s->args.at[i], strlen(s->args.at[i]) + 1);
    for (uint32_t i = 0; i < s->secrets.len; i++) {
        const struct event_secret *v = core_secret(c->core, s->by, NULL, s->secrets.at[i]);
        buf_addf(&b, "%s %u ", s->secrets.at[i], v ? v->version : 0);
    }
    return hash_bytes(b.data, b.len);
}

static void end(struct provider_program *p) {
    p->ending = true;
    if (p->running)
        uv_process_kill(&p->process, SIGKILL);
    else
        forget_program(p);
}

static bool look_after(void *ctx, const struct node_provider *s) {
    struct providers *all = ctx;
    struct provider_program *p = find(all, s->name);
    uint64_t settings = settings_of(all->controller, s);
    if (!p) {
        p = xcalloc(1, sizeof *p);
        *p = (struct provider_program){.all = all, .name = xstrdup(s->name), .pause_ms = RESTART_FIRST_MS};
        vec_push(&all->list, p);
    }
    if (p->running && !p->ending && p->settings != settings) {
        p->pause_ms = RESTART_FIRST_MS;
        uv_process_kill(&p->process, SIGKILL);
        p->settings = settings;
        return true;
    }
    bool changed = p->settings != settings;
    if (!p->running && (changed || clock_mono_ms() >= p->restart_ms)) {
        p->settings = settings;
        start(p, s);
    }
    return true;
}

void providers_tick(struct providers *all) {
    struct controller *c = all->controller;
    core_providers_tick(c->core, controller_now_ms());
    core_each_provider(c->core, look_after, all);
    for (uint32_t i = all->list.len; i-- > 0;) {
        struct provider_program *p = all->list.at[i];
        if (!core_provider(c->core, p->name) && !p->ending)
            end(p);
        else if (p->running && !p->ending)
            ask(p);
    }
}

struct providers *providers_new(struct controller *c, const char *program) {
    struct providers *p = xcalloc(1, sizeof *p);
    p->controller = c;
    p->program = program ? program : paths_program(&c->arena, NULL, "provider", PROGRAM);
    if (!p->program)  // starting it fails, which is said
        p->program = "/usr/libexec/acequia/" PROGRAM;
    return p;
}

// The loop has closed the handles by now; programs end when their input does.
struct providers *providers_free(struct providers *all) {
    for (uint32_t i = 0; all && i < all->list.len; i++)
        program_free(all->list.at[i]);
    if (all)
        vec_done(&all->list);
    free(all);
    return NULL;
}

const char *providers_problem(const struct providers *all, const char *name) {
    const struct provider_program *p = all ? find(all, name) : NULL;
    return p && *p->problem ? p->problem : NULL;
}
