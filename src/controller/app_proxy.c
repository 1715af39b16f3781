// Owns connections of clients to programs of jobs: one request after the other is read by our own strict parser, its
// sender is checked, and it is passed on to the program with a head that is written anew; so is the answer. Bodies pass
// through in pieces, both ways at once: whoever reads slowly holds back only whoever sends to it. A WebSocket becomes a
// tunnel of bytes once the program has agreed.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app_proxy.h"
#include "audit.h"
#include "base/clock.h"
#include "base/text.h"
#include "serve.h"

enum {
    HEAD_MS = 15 * 1000,      // the whole head of a request
    IDLE_MS = 75 * 1000,      // between requests
    BODY_MS = 120 * 1000,     // without a byte of the body, while the program takes them
    ANSWER_MS = 3600 * 1000,  // without a byte of the answer
    COPIED_MAX = 4 << 10,     // larger pieces of answers are sent from where they are
    UNREAD_MAX = 64 << 10,  // bytes of answers that the client has not read, beyond which no request is taken
    ANSWER_HEAD_MAX = 64 << 10,
    RELOAD_S = 3,
    CHECK_TICKS = 5,  // seconds between looks at who may still be connected
    RETURN_PATH_MAX = 2048,
    REPLICAS_TRIED = 3,  // for one request of a service
    REUSE_UNREPEATABLE_MS =
        1000,  // a connection idle for longer may be closed: not for what cannot be sent again
};

enum app_state {
    READS_HEAD,
    WAITS_FOR_USER,  // who the client is must be looked up
    REFUSES_LATE,    // a wrong token
    WAITS_FOR_REPLICA,
    EXCHANGES,  // the request goes to the program, its answer comes back
    TUNNELS,    // bytes, both ways
    ENDS,
};

struct app_conn {
    struct controller *controller;
    struct net_raw *raw;
    struct net_peer peer;
    enum app_state state;
    struct http_parser parser;
    struct http_message request;
    // of the request
    struct app_name name;
    const char *host;            // in `request`
    char user[NET_WHO_MAX + 1];  // "": not known
    char session[TOKEN_ID_HEX + 1];
    struct actor actor;  // strings are in `arena`
    struct arena arena;
    bool by_token, renew;
    bool sent;     // all of it is on its way
    bool blocked;  // the program does not take it at the moment
    struct app_upstream *up;
    enum app_verdict verdict;  // that is told late, and why
    struct error problem;
    // of a service
    struct serve_waiter waiter;
    struct serve_replica *replica;  // that has the request
    uint32_t tried;                 // replicas
    int64_t began_us;
    char token[TOKEN_ID_HEX + 1];  // of the service; "": none
    // of the answer
    struct http_parser answer_parser;
    struct http_message answer;
    bool answered;  // its head has been sent
    bool keep_alive;
    enum http_forward_body body;
};

// --- one request after the other ---

static void begin_head(struct app_conn *x) {
    http_message_done(&x->request);
    http_parser_begin(&x->parser, HTTP_REQUEST, &x->request, 0, INT64_MAX);
    x->parser.by_pieces = true;
    x->state = READS_HEAD;
    x->host = NULL;
    net_raw_deadline(x->raw, IDLE_MS);
}

static void end(struct app_conn *x) {
    x->state = ENDS;
    net_raw_end(x->raw);
}

// The replica has no more to do with the request.
static void release_replica(struct app_conn *x, bool failed) {
    struct serve_replica *r = x->replica;
    x->replica = NULL;
    if (r)
        serve_done(r, x->state != TUNNELS && (x->answered || failed) ? clock_mono_us() - x->began_us : -1,
                   failed);
}

static void drop_upstream(struct app_conn *x, bool reusable) {
    struct app_upstream *u = x->up;
    x->up = NULL;
    if (u)
        app_upstream_put(u, reusable);
    release_replica(x, false);
}

// Answers without the program. Of a request whose body has not been read nothing can follow.
static void answer_page(struct app_conn *x, const struct app_page *p) {
    cleanup_buf struct buf out = {0};
    bool keep = x->parser.state == HTTP_STATE_DONE && x->request.keep_alive;
    drop_upstream(x, false);
    app_page_write(p, x->parser.state == HTTP_STATE_HEAD || !x->request.path ? NULL : &x->request, keep,
                   &out);
    net_raw_write(x->raw, out.data, out.len);
    if (keep)
        begin_head(x);
    else
        end(x);
}

static void answer_problem(struct app_conn *x, int status, const char *title, const char *text,
                           uint32_t reload_s) {
    answer_page(x, &(struct app_page){.status = status, .title = title, .text = text, .reload_s = reload_s});
}

// --- who comes ---

static bool is_visit(const struct http_message *m) {
    const char *accept = http_message_header(m, "Accept"), *mode = http_message_header(m, "Sec-Fetch-Mode");
    return !m->upgrade && (streq(m->method, "GET") || streq(m->method, "HEAD")) && accept &&
           strstr(accept, "text/html") && (!mode || streq(mode, "navigate"));
}

// The browser goes by the portal, where it is known, and comes back with a code.
static void send_to_portal(struct app_conn *x) {
    const struct http_message *m = &x->request;
    cleanup_buf struct buf extra = {0}, to = {0};
    char state[APP_STATE_HEX + 1];
    if (app_is_service(&x->name) && (!is_visit(m) || http_message_header(m, "Authorization"))) {
        answer_page(
            x, &(struct app_page){.status = 401,
                                  .title = "Not authorized",
                                  .text = "The token is missing, wrong or revoked. Send one: Authorization: "
                                          "Bearer TOKEN. The service's owner makes them with 'acequia serve "
                                          "token NAME create'.",
                                  .extra = "WWW-Authenticate: Bearer\r\n"});
        return;
    }
    if (!is_visit(m) || !app_state(&x->peer, m, state)) {
        bool token = http_message_header(m, "Authorization");
        answer_page(
            x, &(struct app_page){.status = 401,
                                  .title = token ? "Wrong token" : "Not logged in",
                                  .text = token ? "The token is wrong, has ended or was revoked. Your "
                                                  "administrator makes one with 'acequia token create --user NAME'; or "
                                                  "open the program in a browser, where you are logged in to the "
                                                  "portal, with 'acequia open'."
                                                : "This is a program of a job. Open it in a browser, where you are "
                                                  "logged in to the portal, with 'acequia open', or send a token: "
                                                  "Authorization: Bearer TOKEN."});
        return;
    }
    buf_addf(&to, "%s%s%s", m->path, *m->query ? "?" : "", m->query);
    buf_adds(&extra, "Location: ");
    app_portal_url(x->controller, x->peer.kind, &extra);
    buf_addf(&extra, "/v1/apps/authorize?app=%.*s&state=%s&to=", (int)strcspn(x->host, "."), x->host, state);
    http_percent_encode(&extra, to.len <= RETURN_PATH_MAX && app_path_ok(buf_str(&to)) ? buf_str(&to) : "/");
    buf_adds(&extra, "\r\nSet-Cookie: ");
    app_state_cookie(&x->peer, state, &extra);
    buf_adds(&extra, "\r\n");
    answer_page(x, &(struct app_page){.status = 303,
                                      .title = "Logging in",
                                      .text = "You are sent to the portal to log in.",
                                      .extra = buf_str(&extra)});
}

// Whom it was, where that is known: a stranger who only has no cookie yet is no denial.
static void record_denial(struct app_conn *x, enum app_verdict v, const struct actor *actor) {
    const struct http_message *m = &x->request;
    struct net_request req = {.method = m->method, .path = m->path, .http = m, .peer = &x->peer};
    char on[64];
    if (v == APP_UNKNOWN && !http_message_header(m, "Authorization"))
        return;
    if (v == APP_REFUSED && actor->user)
        snprintf(req.who, sizeof req.who, "%s", actor->user);
    snprintf(on, sizeof on, app_is_service(&x->name) ? "service %llu" : "job %llu",
             (unsigned long long)x->name.job);
    audit_denied(x->controller, &req, on, v == APP_UNKNOWN ? 401 : v == APP_LOCKED ? 429 : 403);
}

static void refuse(struct app_conn *x, enum app_verdict v, const struct error *e) {
    const char *user, *project;
    if (v == APP_LOCKED)
        answer_problem(x, 429, "Too many wrong tokens", e->text, 0);
    else if (v == APP_FOREIGN)
        answer_problem(x, 403, "Not from here",
                       "A page of another host asked for this; only the program's own pages may.", 0);
    else if (v == APP_UNKNOWN)
        send_to_portal(x);
    else if (app_is_service(&x->name))
        answer_problem(x, 403, "Not yours", e->text, 0);
    else if (!core_job_owner(x->controller->core, x->name.job, &user, &project))
        answer_problem(x, 410, "The job has ended", "The job that this program was part of has ended.", 0);
    else
        answer_problem(x, 403, "Not yours", e->text, 0);
}

// Wrong tokens are answered as late as those of the API.
static void refuse_after(struct app_conn *x, enum app_verdict v, const struct error *e, uint32_t delay_ms) {
    if (!delay_ms) {
        refuse(x, v, e);
        return;
    }
    x->state = REFUSES_LATE;
    x->verdict = v;
    x->problem = *e;
    net_raw_deadline(x->raw, delay_ms);
}

// Back from the portal, or with the link of acequia open: the code becomes a cookie.
static void enter(struct app_conn *x) {
    const struct http_message *m = &x->request;
    cleanup_buf struct buf code = {0}, to = {0}, extra = {0};
    char session[TOKEN_ID_HEX + 1];
    struct error e = {0};
    bool has_to = http_query_get(m->query, "to", &to) == 0 && app_path_ok(buf_str(&to));
    int r = !is_visit(m) && !streq(m->method, "GET") ? -EINVAL
            : http_query_get(m->query, "code", &code) < 0
                ? -EINVAL
                : app_take_code(x->controller, &x->peer, m, &x->name, buf_str(&code), session, &e);
    if (r == -EINPROGRESS) {
        x->state = WAITS_FOR_USER;
        return;
    }
    if (r < 0) {
        answer_page(x, &(struct app_page){.status = 403,
                                          .title = "The link does not work any more",
                                          .text = *e.text ? e.text : "The link is not complete.",
                                          .link = "/",
                                          .link_text = "Log in by way of the portal"});
        return;
    }
    buf_addf(&extra, "Location: %s\r\nSet-Cookie: ", has_to ? buf_str(&to) : "/");
    app_cookie(x->controller, &x->peer, &x->name, session, &extra);
    buf_adds(&extra, "\r\n");
    answer_page(
        x, &(struct app_page){
               .status = 303, .title = "Logged in", .text = "You are logged in.", .extra = buf_str(&extra)});
}

// --- to the program ---

static void forward_of(const struct app_conn *x, struct http_forward *f,
                       char client[static NET_ADDRESS_MAX]) {
    const char *address = x->peer.address, *end = strrchr(address, ']');
    snprintf(client, NET_ADDRESS_MAX, "%.*s", end ? (int)(end - address) - 1 : 0, end ? address + 1 : "");
    *f = (struct http_forward){.host = x->host,
                               .scheme = x->peer.kind == NET_PEER_TLS ? "https" : "http",
                               .client = *client ? client : NULL,
                               .user = http_header_ok("X-Acequia-User", x->user) ? x->user : NULL,
                               .port = x->name.port,
                               .own_cookie = APP_OWN_COOKIES,
                               .own_authorization = x->by_token};
}

static bool has_body(const struct app_conn *x) {
    return x->request.chunked || x->request.content_length > 0;
}

// May be sent again: nothing of it is lost, and doing it twice does no harm.
static bool repeatable(const struct app_conn *x) {
    return x->sent && !has_body(x) && (streq(x->request.method, "GET") || streq(x->request.method, "HEAD"));
}

// A service without a replica for the request.
static void answer_no_replica(struct app_conn *x, enum serve_verdict v) {
    if (v == SERVE_GONE)
        answer_problem(x, 410, "The service is gone", "This service was deleted.", 0);
    else if (v == SERVE_FULL)
        answer_problem(x, 503, "Too many requests wait",
                       "As many requests as the service allows wait for a replica already; try again later.",
                       RELOAD_S);
    else
        answer_problem(
            x, 503, "No replica is ready",
            "No replica of the service became ready in time; 'acequia serve get' says why. Try again later.",
            RELOAD_S);
}

// Why the program cannot be reached, by what the job does.
static void answer_unreachable(struct app_conn *x, const char *why) {
    struct job_view v;
    char text[ERROR_TEXT_MAX + 64], title[96];
    unsigned long long job = x->name.job;
    if (app_is_service(&x->name)) {
        snprintf(text, sizeof text,
                 "The replica that had the request ended or closed the connection before it answered (%s). "
                 "It was not "
                 "sent to another one, which might do it twice; send it again if that does no harm.",
                 why);
        answer_problem(x, 502, "A replica failed", text, 0);
        return;
    }
    if (!core_view(x->controller->core, x->name.job, &v) || job_state_final(v.state)) {
        answer_problem(x, 410, "The job has ended", "The job that this program was part of has ended.", 0);
        return;
    }
    bool runs = v.state == JOB_RUNNING;
    snprintf(title, sizeof title, runs ? "Job %llu does not answer yet" : "Job %llu does not run yet", job);
    snprintf(text, sizeof text, "Job %llu is %s: %s.", job, job_state_words[v.state], why);
    answer_problem(x, runs ? 502 : 503, title, text, RELOAD_S);
}

// While the job's health check does not say that its program is ready. False: it may be asked.
static bool answer_not_ready(struct app_conn *x, uint64_t job) {
    struct job_view v;
    char text[ERROR_TEXT_MAX + 64], title[96];
    if (!core_view(x->controller->core, job, &v) || v.state != JOB_RUNNING || job_health_serves(v.health))
        return false;
    unsigned long long id = x->name.job;
    snprintf(title, sizeof title, v.health == HEALTH_SICK ? "Job %llu is sick" : "Job %llu is not ready yet",
             id);
    snprintf(text, sizeof text, "Job %llu runs, and its health check says: %s.", id,
             v.health_reason ? v.health_reason : "not ready yet");
    answer_problem(x, 503, title, text, RELOAD_S);
    return true;
}

static void begin_answer(struct app_conn *x) {
    http_message_done(&x->answer);
    http_parser_begin(&x->answer_parser, HTTP_RESPONSE, &x->answer, ANSWER_HEAD_MAX, INT64_MAX);
    x->answer_parser.no_body = streq(x->request.method, "HEAD");
    x->answer_parser.by_pieces = true;
}

// Sends the request to its program; of a service to the replica that was chosen.
static void start_exchange(struct app_conn *x, bool fresh) {
    struct error e = {0};
    struct http_forward f;
    char client[NET_ADDRESS_MAX];
    cleanup_buf struct buf head = {0};
    struct app_name real =
        x->replica ? (struct app_name){x->replica->job, x->replica->port}
                   : (struct app_name){api_first_worker(x->controller, x->name.job), x->name.port};
    if (!x->replica && answer_not_ready(x, real.job))
        return;
    bool gentle =
        x->replica && (has_body(x) || !(streq(x->request.method, "GET") || streq(x->request.method, "HEAD")));
    x->up = app_upstream_get(x->controller, &x->actor, &real, x,
                             fresh    ? 0
                             : gentle ? REUSE_UNREPEATABLE_MS
                                      : APP_UPSTREAM_IDLE_MS,
                             &e);
    if (!x->up) {
        if (x->replica)
            serve_replica_lost(x->replica, e.text);
        answer_unreachable(x, e.text);
        return;
    }
    forward_of(x, &f, client);
    http_forward_request(&x->request, &f, &head);
    x->state = EXCHANGES;
    x->answered = false;
    x->sent = x->parser.state == HTTP_STATE_DONE;
    begin_answer(x);
    x->blocked = !app_upstream_send(x->up, head.data, head.len);
    net_raw_deadline(x->raw, x->sent ? ANSWER_MS : BODY_MS);
    if (x->request.expect_continue && has_body(x))
        net_raw_write(x->raw, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

// A replica for the request, or a place in the queue for one.
static void find_replica(struct app_conn *x, const struct serve_replica *avoid) {
    const struct event_service *s = core_service_by_id(x->controller->core, x->name.job);
    enum serve_verdict v = serve_take(x->controller, x->name.job, &x->waiter, avoid, &x->replica);
    x->tried++;
    if (v == SERVE_TAKEN) {
        start_exchange(x, false);
    } else if (v == SERVE_WAITS && s) {
        x->state = WAITS_FOR_REPLICA;
        net_raw_deadline(x->raw, (uint64_t)s->wait_s * 1000 + HEAD_MS);
    } else {
        answer_no_replica(x, v);
    }
}

void app_conn_replica(struct serve_waiter *w, struct serve_replica *r, enum serve_verdict why) {
    struct app_conn *x = (struct app_conn *)((char *)w - offsetof(struct app_conn, waiter));
    x->replica = r;
    if (r)
        start_exchange(x, false);
    else
        answer_no_replica(x, why);
    net_raw_resume(x->raw);
}

// The head of a request is complete.
static void take_request(struct app_conn *x) {
    struct controller *c = x->controller;
    struct app_visitor v;
    struct error e = {0};
    char account[NET_WHO_MAX + 16];
    x->host = http_message_header(&x->request, "Host");
    if (!x->host || !app_of_host(c, &x->peer, x->host, &x->name)) {
        bool other = x->host && !app_owns_host(c, &x->peer, x->host);
        answer_problem(x, other ? 421 : 404, "No such program",
                       "There is no program of a job under this name. 'acequia get JOB' shows its address.",
                       0);
        return;
    }
    if (streq(x->request.method, "TRACE") || streq(x->request.path, "*")) {
        answer_problem(x, 405, "Not allowed", "This method is not passed on to programs of jobs.", 0);
        return;
    }
    if (streq(x->request.path, APP_ENTER_PATH)) {
        enter(x);
        return;
    }
    arena_done(&x->arena);
    enum app_verdict verdict = app_visitor_of(c, &x->peer, &x->request, &x->name, &x->arena, &v, &e);
    if (verdict == APP_WAITS) {
        x->state = WAITS_FOR_USER;
        net_raw_deadline(x->raw, HEAD_MS);
        return;
    }
    if (verdict != APP_LET_IN) {
        record_denial(x, verdict, &v.actor);
        refuse_after(x, verdict, &e, v.delay_ms);
        return;
    }
    x->actor = v.actor;
    x->by_token = v.by_token;
    memcpy(x->session, v.session, sizeof x->session);
    memcpy(x->token, v.token, sizeof x->token);
    snprintf(x->user, sizeof x->user, "%s", v.caller ? v.caller : v.actor.user);
    x->renew = *v.session && controller_now_ms() / 1000 - v.issued_s > APP_COOKIE_RENEW_S;
    if (v.caller)
        snprintf(account, sizeof account, "service %llu", (unsigned long long)x->name.job);
    else
        snprintf(account, sizeof account, "user %s", x->user);
    if (!net_raw_identify(x->raw, account, v.pass))
        answer_problem(x, 429, "Too many connections", "You have too many connections; close some of them.",
                       RELOAD_S);
    else if (app_is_service(&x->name)) {
        x->tried = 0;
        x->began_us = clock_mono_us();
        x->answered = false;
        find_replica(x, NULL);
    } else {
        start_exchange(x, false);
    }
}

// Reads pieces of a chunked body and writes them as chunks into `framed`, as many as come together.
static ssize_t frame_chunks(struct app_conn *x, const char *data, size_t len, struct buf *framed) {
    size_t used = 0;
    while (used < len && x->parser.state != HTTP_STATE_DONE) {
        ssize_t n = http_parser_feed(&x->parser, data + used, len - used);
        if (n < 0)
            return n;
        used += (size_t)n;
        if (x->parser.piece_len)
            http_write_chunk(framed, x->parser.piece, x->parser.piece_len);
    }
    if (x->parser.state == HTTP_STATE_DONE)
        http_write_last_chunk(framed);
    return (ssize_t)used;
}

// A part of the body, framed as the client's was. Returns the bytes taken.
static size_t send_body(struct app_conn *x, const char *data, size_t len) {
    struct buf *framed = &x->controller->apps->chunks;
    if (x->blocked || x->sent)
        return 0;
    buf_clear(framed);
    ssize_t n =
        x->request.chunked ? frame_chunks(x, data, len, framed) : http_parser_feed(&x->parser, data, len);
    if (n < 0 && !x->answered)
        answer_problem(x, x->parser.fail_status, "The request is malformed", x->parser.fail_text, 0);
    else if (n < 0)
        net_raw_abort(x->raw);
    if (n < 0)
        return len;
    x->sent = x->parser.state == HTTP_STATE_DONE;
    const char *piece = x->request.chunked ? framed->data : x->parser.piece;
    size_t piece_len = x->request.chunked ? framed->len : x->parser.piece_len;
    if (piece_len)
        x->blocked = !app_upstream_send(x->up, piece, piece_len);
    net_raw_deadline(x->raw, x->sent || x->blocked ? ANSWER_MS : BODY_MS);
    return (size_t)n;
}

static size_t read_head(struct app_conn *x, const char *data, size_t len) {
    if (net_raw_pending(x->raw) > UNREAD_MAX)
        return 0;
    if (!x->request.head.len)
        net_raw_deadline(x->raw, HEAD_MS);
    ssize_t n = http_parser_feed(&x->parser, data, len);
    if (n < 0) {
        answer_problem(x, x->parser.fail_status, "The request is malformed", x->parser.fail_text, 0);
        return len;
    }
    if (x->parser.state != HTTP_STATE_HEAD)
        take_request(x);
    return (size_t)n;
}

// Goes one step on with the bytes given, at most to the end of a head: in between others may have their turn. Returns
// how many it took; 0: nothing can be done now.
static size_t step(struct app_conn *x, const char *data, size_t len) {
    switch (x->state) {
    case READS_HEAD: return read_head(x, data, len);
    case EXCHANGES: return x->up ? send_body(x, data, len) : 0;
    case TUNNELS:
        if (x->blocked || !x->up)
            return 0;
        x->blocked = !app_upstream_send(x->up, data, len);
        return len;
    case ENDS: return len;
    case WAITS_FOR_USER:
    case REFUSES_LATE:
    case WAITS_FOR_REPLICA: break;
    }
    return 0;
}

// --- from the program ---

// What is written while one part of an answer is looked at leaves together: heads, chunks and their ends are small.
// Large pieces are not copied for that.
static void put(struct app_conn *x, const char *data, size_t len, bool copy) {
    struct buf *answer = &x->controller->apps->answer;
    if (copy) {
        buf_add(answer, data, len);
        return;
    }
    net_raw_write_parts(x->raw, answer->data, answer->len, data, len);
    buf_clear(answer);
}

static void put_all(struct app_conn *x) {
    struct buf *answer = &x->controller->apps->answer;
    if (answer->len)
        net_raw_write(x->raw, answer->data, answer->len);
    buf_clear(answer);
}

static void bad_answer(struct app_conn *x, const char *why) {
    if (x->answered) {
        put_all(x);
        drop_upstream(x, false);
        net_raw_abort(x->raw);  // the client sees that something is missing
        return;
    }
    answer_problem(x, 502, "The program's answer is malformed", why, 0);
}

static void finish_answer(struct app_conn *x, bool surplus) {
    if (x->body == HTTP_FORWARD_CHUNKED)
        put(x, "0\r\n\r\n", 5, true);
    put_all(x);
    drop_upstream(x,
                  x->answer.keep_alive && !surplus && x->sent && x->answer_parser.state == HTTP_STATE_DONE);
    http_message_done(&x->answer);
    if (x->keep_alive && x->sent)
        begin_head(x);
    else
        end(x);
}

static void begin_tunnel(struct app_conn *x) {
    x->state = TUNNELS;
    net_raw_deadline(x->raw, 0);
    http_message_done(&x->answer);
}

// The head of the answer is complete. False: the answer cannot be passed on, or another head follows.
static bool pass_head(struct app_conn *x) {
    struct http_forward f;
    char client[NET_ADDRESS_MAX];
    cleanup_buf struct buf out = {0}, extra = {0};
    int status = x->answer.status;
    if (status < 200 && status != 101) {  // an interim answer
        begin_answer(x);
        return false;
    }
    if (status == 101 && !http_forward_is_websocket(&x->request)) {
        bad_answer(x, "It changes to another protocol, which it was not asked for.");
        return false;
    }
    forward_of(x, &f, client);
    if (x->renew) {
        buf_adds(&extra, "Set-Cookie: ");
        app_cookie(x->controller, &x->peer, &x->name, x->session, &extra);
        buf_adds(&extra, "\r\n");
    }
    x->keep_alive = x->request.keep_alive;
    x->body = http_forward_response(&x->answer, &x->request, &f, &x->keep_alive,
                                    extra.len ? extra.data : NULL, &out);
    x->answered = true;
    put(x, out.data, out.len, true);
    if (status == 101)
        begin_tunnel(x);
    return true;
}

static void pass_body(struct app_conn *x) {
    const struct http_parser *p = &x->answer_parser;
    if (!p->piece_len || x->body == HTTP_FORWARD_NONE)
        return;
    if (x->body == HTTP_FORWARD_CHUNKED)
        http_write_chunk(&x->controller->apps->answer, p->piece, p->piece_len);
    else
        put(x, p->piece, p->piece_len, p->piece_len <= COPIED_MAX);
}

size_t app_conn_data(struct app_conn *x, const char *data, size_t len) {
    assert(!x->controller->apps->answer.len);
    while (len && x->up && x->state == EXCHANGES && x->answer_parser.state != HTTP_STATE_DONE) {
        bool in_head = x->answer_parser.state == HTTP_STATE_HEAD;
        ssize_t n = http_parser_feed(&x->answer_parser, data, len);
        if (n < 0) {
            bad_answer(x, x->answer_parser.fail_text);
            break;
        }
        data += n;
        len -= (size_t)n;
        if (in_head && x->answer_parser.state != HTTP_STATE_HEAD && !pass_head(x))
            continue;
        if (x->answered && x->state == EXCHANGES)
            pass_body(x);
    }
    if (x->state == TUNNELS && len)
        put(x, data, len, false);
    if (x->state == EXCHANGES && x->up && x->answer_parser.state == HTTP_STATE_DONE)
        finish_answer(x, len > 0);
    else if (x->state == EXCHANGES)
        net_raw_deadline(x->raw, ANSWER_MS);
    put_all(x);
    net_raw_resume(x->raw);
    return net_raw_pending(x->raw);
}

void app_conn_room(struct app_conn *x) {
    x->blocked = false;
    net_raw_resume(x->raw);
}

// The replica ended or its connection did. False: the request cannot be given to another one.
static bool try_another(struct app_conn *x, const char *error, bool reused) {
    struct serve_replica *r = x->replica;
    bool answering = x->answered || x->answer.head.len;
    if (!r || answering || x->state != EXCHANGES)
        return false;
    if (!reused)
        serve_replica_lost(r, error ? error : "it closed a connection without an answer");
    if (!repeatable(x) || x->tried >= REPLICAS_TRIED)
        return false;
    release_replica(x, false);
    find_replica(x, reused ? NULL : r);
    return true;
}

void app_conn_upstream_ended(struct app_conn *x, const char *error, bool reused) {
    bool again = reused && !x->answered && repeatable(x) && !x->answer.head.len;
    x->up = NULL;
    x->blocked = false;
    if (try_another(x, error, reused)) {
        net_raw_resume(x->raw);
        return;
    }
    if (x->state == TUNNELS)
        end(x);
    else if (x->state == EXCHANGES && again)
        start_exchange(x, true);  // it had closed a connection that it had kept for us
    else if (x->state == EXCHANGES && x->answered && http_parser_eof(&x->answer_parser) == 0)
        finish_answer(x, false);
    else if (x->state == EXCHANGES && x->answered)
        net_raw_abort(x->raw);
    else if (x->state == EXCHANGES) {
        release_replica(x, true);
        answer_unreachable(x, error ? error : "its program ended the connection without an answer");
    }
    if (!x->up)
        release_replica(x, x->state == EXCHANGES);
    net_raw_resume(x->raw);
}

// --- the client's connection ---

static size_t on_data(struct net_raw *raw, const char *data, size_t len, void *user) {
    return step(user, data, len);
}

static void on_eof(struct net_raw *raw, void *user) {
    struct app_conn *x = user;
    if (x->state == TUNNELS && x->up && x->up->port)
        port_conn_send_eof(x->up->port);
    else if (x->state == EXCHANGES && x->sent)
        x->request.keep_alive = x->keep_alive = false;  // it still reads
    else
        net_raw_abort(raw);
}

static void on_deadline(struct net_raw *raw, void *user) {
    struct app_conn *x = user;
    if (x->state != REFUSES_LATE) {
        net_raw_abort(raw);
        return;
    }
    x->state = READS_HEAD;
    refuse(x, x->verdict, &x->problem);
    net_raw_resume(raw);
}

static void on_drain(struct net_raw *raw, void *user) {
    struct app_conn *x = user;
    if (x->up)
        app_upstream_drained(x->up);
    net_raw_resume(raw);
}

static void conn_free(struct app_conn *x) {
    http_message_done(&x->request);
    http_message_done(&x->answer);
    arena_done(&x->arena);
    free(x);
}

static void on_close(struct net_raw *raw, void *user) {
    struct app_conn *x = user;
    struct apps *a = x->controller->apps;
    serve_unwait(&x->waiter);
    drop_upstream(x, false);
    for (uint32_t i = 0; i < a->conns.len; i++)
        if (a->conns.at[i] == x) {
            vec_remove_swap(&a->conns, i);
            break;
        }
    conn_free(x);
}

static bool wants(const struct net_request *req, void *user) {
    return app_owns_host(user, req->peer, http_message_header(req->http, "Host"));
}

static void *begin(struct net_raw *raw, const struct net_peer *peer, const struct http_parser *parser,
                   struct http_message *message, void *user) {
    struct controller *c = user;
    struct app_conn *x = xcalloc(1, sizeof *x);
    *x = (struct app_conn){.controller = c,
                           .raw = raw,
                           .peer = *peer,
                           .parser = *parser,
                           .request = *message,
                           .state = READS_HEAD};
    http_message_init(&x->answer);
    x->parser.message = &x->request;
    x->parser.by_pieces = true;
    vec_push(&c->apps->conns, x);
    take_request(x);
    return x;
}

static const struct net_raw_callbacks callbacks = {.on_data = on_data,
                                                   .on_eof = on_eof,
                                                   .on_drain = on_drain,
                                                   .on_deadline = on_deadline,
                                                   .on_close = on_close};
const struct net_takeover apps_takeover = {.wants = wants, .begin = begin, .callbacks = &callbacks};

// --- the daemon's life ---

void apps_open(struct controller *c) {
    c->apps = xcalloc(1, sizeof *c->apps);
}

void apps_close(struct controller *c) {
    if (!c->apps)
        return;
    app_codes_done(c);
    for (uint32_t i = 0; i < c->apps->conns.len; i++)
        conn_free(c->apps->conns.at[i]);
    vec_done(&c->apps->conns);
    buf_done(&c->apps->chunks);
    buf_done(&c->apps->answer);
    app_upstreams_done(c);
    explicit_bzero(&c->apps->key, sizeof c->apps->key);
    free(c->apps);
    c->apps = NULL;
}

void apps_turn(struct controller *c) {
    if (c->apps)
        app_upstreams_turn(c);
}

// Whoever may not use the program any more is cut off, also in the middle of a tunnel.
void apps_tick(struct controller *c) {
    if (!c->apps)
        return;
    app_upstreams_tick(c);
    for (uint32_t i = 0; c->ticks % CHECK_TICKS == 0 && i < c->apps->conns.len; i++) {
        struct app_conn *x = c->apps->conns.at[i];
        if (x->state != TUNNELS && x->state != EXCHANGES)
            continue;
        const char *header = http_message_header(&x->request, "Authorization");
        bool may = *x->token     ? app_service_token_holds(c, &x->name, x->token)
                   : *x->session ? app_session_may_use(c, x->session, &x->name)
                                 : app_token_may_use(c, header, &x->name);
        if (!may)
            net_raw_abort(x->raw);
    }
}

void apps_users_changed(struct controller *c) {
    for (uint32_t i = 0; c->apps && i < c->apps->conns.len; i++) {
        struct app_conn *x = c->apps->conns.at[i];
        if (x->state != WAITS_FOR_USER)
            continue;
        x->state = READS_HEAD;
        take_request(x);
        net_raw_resume(x->raw);
    }
}
