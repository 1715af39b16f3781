// Finds the controller, connects to it, sends requests and reads the answers.
#include "cli/client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/client/addresses.h"
#include "cli/client/daemon.h"
#include "cli/client/saved_login.h"
#include "model/config.h"
#include "model/paths.h"

enum {
    CLIENT_WAIT_MS = 5000,
    TAKEOVER_WAIT_MS = 20000,
    LEADER_WAIT_MS = 2000,
    WHY_TIMEOUT_MS = 5000,
    WAIT_NOTE_MS = 1000,
    WAIT_PAUSE_US = 100 * 1000
};

struct client {
    struct cli *cli;
    struct http_client *http;
    char *addresses;  // of all controllers, in normal form; NULL: the socket of this machine's
    bool several;
    bool not_leading;  // the answer that came last was of a controller that does not lead
    char *socket;  // NULL: TLS
    char *host;
    unsigned port;
    char *folder;         // of keys
    struct saved_login login;  // `acequia login`'s; server NULL: none
    char *authorization;  // header line with the token, or NULL
    char pin[CLIENT_FINGERPRINT_MAX];  // of the server's authority; "": as the folder says
};

struct client *client_free(struct client *k) {
    if (!k)
        return NULL;
    http_client_free(k->http);
    free(k->addresses);
    free(k->host);
    free(k->socket);
    free(k->folder);
    if (k->authorization)
        explicit_bzero(k->authorization, strlen(k->authorization));
    free(k->authorization);
    free(k);
    return NULL;
}

// The address whose turn it is.
static void use_address(struct client *k) {
    unsigned count = addresses_count(k->addresses);
    size_t len;
    const char *at = addresses_at(k->addresses, k->cli->controller % count, &len);
    k->several = count > 1;
    free(k->host);
    free(k->socket);
    k->host = k->socket = NULL;
    if (*at == '/')
        k->socket = xstrndup(at, len);
    else
        addresses_split(at, len, &k->host, &k->port);
}

static int use_addresses(struct client *k, const char *list, struct error *e) {
    cleanup_buf struct buf normal = {0};
    int r = addresses_normal(list, &normal, e);
    if (r < 0)
        return r;
    free(k->addresses);
    k->addresses = buf_take(&normal);
    use_address(k);
    return 0;
}

// A controller that does not lead, or does not answer, is left for the next one.
static void use_next(struct client *k) {
    k->http = http_client_free(k->http);
    k->cli->controller++;
    if (k->addresses)
        use_address(k);
}

// TLS is in another program than the plain command line.
static bool needs_tls(const struct client *k) {
    return k->addresses ? addresses_need_tls(k->addresses) : !k->socket;
}

// The token is a secret: read from a file only its owner can read, sent over TLS only.
static int read_token(struct client *k, struct error *e) {
    const char *file = getenv("ACEQUIA_TOKEN_FILE");
    char token[CLIENT_TOKEN_MAX];
    bool asked = !str_empty(file);
    if (!asked && k->login.server && addresses_within(k->addresses, k->login.server)) {
        k->authorization = xasprintf("Authorization: Bearer %s\r\n", k->login.token);
        return 0;
    }
    if (!asked)
        file = arena_printf(&k->cli->arena, "%s/token", k->folder);
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return asked ? error_set(e, errno, "cannot read the token file %s: %s", file, strerror(errno)) : 0;
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_mode & (S_IRWXG | S_IRWXO))
        return error_set(e, EPERM, "the token file %s is readable by others; protect it: chmod 600 %s", file, file);
    ssize_t n = read(fd, token, sizeof token - 1);
    if (n <= 0)
        return error_set(e, EINVAL, "the token file %s is empty or unreadable", file);
    while (n > 0 && (token[n - 1] == '\n' || token[n - 1] == '\r' || token[n - 1] == ' '))
        n--;
    token[n] = 0;
    if (str_has_control_chars(token, (size_t)n) || !n)
        return error_set(e, EINVAL, "the token file %s contains no token", file);
    k->authorization = xasprintf("Authorization: Bearer %s\r\n", token);
    explicit_bzero(token, sizeof token);
    return 0;
}

// Which endpoint: decided from the environment, then from what is there.
static int find_endpoint(struct client *k, struct error *e) {
    struct arena *a = &k->cli->arena;
    const char *host = getenv("ACEQUIA_HOST");
    struct paths p;
    int r = paths_get(a, &p, e);
    if (r < 0)
        return r;
    // Copies: whoever shows things again and again empties the arena in between.
    k->folder = xstrdup(p.config_dir);
    r = k->cli->local ? -ENOENT : saved_login_read(p.config_dir, a, &k->login, e);
    if (r < 0 && r != -ENOENT)
        return r;
    if (!str_empty(host))
        return use_addresses(k, host, e);
    if (k->login.server)
        return use_addresses(k, k->login.server, e);
    // One whose socket was deleted puts it back within seconds; connecting to it waits for that.
    bool own = access(p.socket, F_OK) == 0 || client_daemon_running(k->cli, &p, "controller");
    bool may_use_system = str_empty(getenv("ACEQUIA_HOME"));
    if (own || (may_use_system && access(PATHS_SYSTEM_SOCKET, F_OK) == 0)) {
        k->socket = xstrdup(own ? p.socket : PATHS_SYSTEM_SOCKET);
        return 0;
    }
    cleanup_config struct config config = {0};
    r = config_load(p.config, clock_wall_ms(), 0, &config, e);
    if (r < 0)
        return r;
    if (!str_empty(config.cluster.controller))
        return use_addresses(k, config.cluster.controller, e);
    // The system's controller has no socket while it restarts; connecting to it waits for that.
    if (may_use_system && geteuid() != 0 && access(PATHS_SYSTEM_RUN, F_OK) == 0) {
        k->socket = xstrdup(PATHS_SYSTEM_SOCKET);
        return 0;
    }
    return error_set(e, ENOENT, "no cluster is running here; start one with: acequia up");
}

// That the socket is gone does not mean that the controller is.
static int not_answering(struct client *k, int r, struct error *e) {
    struct paths p;
    struct error unused = {0};
    pid_t pid = 0;
    if (r == -ENOENT && paths_get(&k->cli->arena, &p, &unused) == 0 && streq(p.socket, k->socket))
        pid = client_daemon_running(k->cli, &p, "controller");
    if (pid)
        return error_set(
            e, ECONNREFUSED,
            "the controller runs (process %d), but its socket %s was deleted, and it has not put it back "
            "yet; its log says why: acequia down && acequia up starts it anew, jobs go on meanwhile",
            (int)pid, k->socket);
    return error_set(e, ECONNREFUSED,
                     "the controller at %s does not answer: it is not running; start it with: acequia up",
                     k->socket);
}

static int connect_once(struct client *k, struct error *e) {
    k->http = http_client_free(k->http);
    if (*k->pin)
        return k->cli->tls->connect_to(k->host, k->port, k->pin, &k->http, e);
    if (!k->socket)
        return k->cli->tls->connect(k->host, k->port, k->folder, &k->http, e);
    int r = http_client_unix(k->socket, &k->http, e);
    if (r == -ENOENT || r == -ECONNREFUSED)
        return not_answering(k, r, e);
    if (r == -EACCES)
        return error_set(e, -r, "permission denied: the controller's socket %s", k->socket);
    return r;
}

// Of several, the one that leads is asked: one that follows says so at once, and one that was stopped or cut off says
// nothing, which must be known before a request is sent that must not be sent twice.
static int check_leads(struct client *k, struct error *e) {
    struct http_message m;
    bool known = k->authorization || k->socket;  // a stranger's connection is closed after a refusal
    struct http_request q = {.method = "GET",
                             .target = known ? "/v1/me" : "/v1/login",
                             .extra = k->authorization,
                             .timeout_ms = LEADER_WAIT_MS};
    if (!k->several)
        return 0;
    int r = http_client_call(k->http, &q, &m, e);
    if (r == 0 && m.status == 503) {
        struct json *j = NULL;
        json_parse(buf_str(&m.body), m.body.len, &k->cli->arena, &j, NULL);
        const char *why = j ? json_str(j, "detail") : NULL;
        r = error_set(e, EAGAIN, "none of the controllers %s leads%s%s", k->addresses,
                      why ? "; the one asked last says: " : "", why ? why : "");
    }
    http_message_done(&m);
    return r;
}

// A controller that is being restarted answers again soon: commands wait for it instead of failing.
static int connect_now(struct client *k, struct error *e) {
    int64_t began = clock_mono_ms();
    int most_ms = k->several ? TAKEOVER_WAIT_MS : CLIENT_WAIT_MS;
    unsigned count = k->addresses ? addresses_count(k->addresses) : 1;
    bool noted = false;
    for (unsigned tried = 1;; tried++) {
        bool all = tried % count == 0;  // each has been asked as often as the others
        int r = connect_once(k, e);
        if (r == 0)
            r = check_leads(k, e);
        int64_t waited = clock_mono_ms() - began;
        if (r == 0 || (k->cli->no_wait && all) || waited >= most_ms)
            return r;
        if (!k->several && r != -ECONNREFUSED)
            return r;
        if (k->several)
            use_next(k);
        if (!noted && waited >= WAIT_NOTE_MS && isatty(STDERR_FILENO))
            noted = fprintf(stderr, "Waiting for the controller, up to %d s ...\n", most_ms / 1000) > 0;
        if (all)
            usleep(WAIT_PAUSE_US);
    }
}

static int open_endpoint(struct cli *c, struct client *k) {
    k->cli = c;
    int r = find_endpoint(k, &c->error);
    if (r == 0 && needs_tls(k) && !c->tls)
        r = client_daemon_exec_client(c, &c->error);  // returns only when it failed
    return r;
}

int client_before_fork(struct cli *c) {
    struct client *k = xcalloc(1, sizeof *k);
    int r = open_endpoint(c, k);
    client_free(k);
    return r;
}

int client_open(struct cli *c, struct client **out) {
    struct client *k = xcalloc(1, sizeof *k);
    int r = open_endpoint(c, k);
    if (r == 0 && needs_tls(k))
        r = read_token(k, &c->error);
    if (r == 0)
        r = connect_now(k, &c->error);
    if (r < 0) {
        client_free(k);
        return r;
    }
    *out = k;
    return 0;
}

// Any of them shows the authority of all.
static int learn(struct client *k, char fingerprint[CLIENT_FINGERPRINT_MAX]) {
    struct cli *c = k->cli;
    int r = -ECONNREFUSED;
    for (unsigned left = addresses_count(k->addresses); left && r < 0; left--) {
        r = c->tls->connect_to(k->host, k->port, fingerprint, &k->http, &c->error);
        if (r < 0)
            use_next(k);
    }
    return r;
}

static int open_at(struct client *k, const char *server, char fingerprint[CLIENT_FINGERPRINT_MAX]) {
    struct cli *c = k->cli;
    int r = use_addresses(k, server, &c->error);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < addresses_count(k->addresses); i++) {
        size_t len;
        const char *at = addresses_at(k->addresses, i, &len);
        if (*at == '/')
            return error_set(&c->error, EINVAL,
                             "%.*s is a socket of this machine, which needs no login; give HOST:PORT",
                             (int)len, at);
    }
    snprintf(k->pin, sizeof k->pin, "%s", fingerprint);
    if (!*fingerprint)
        return learn(k, fingerprint);
    return k->several ? connect_now(k, &c->error) : connect_once(k, &c->error);
}

int client_open_at(struct cli *c, const char *server, char fingerprint[CLIENT_FINGERPRINT_MAX],
                   const char *token, struct client **out) {
    struct client *k = xcalloc(1, sizeof *k);
    k->cli = c;
    if (token)
        k->authorization = xasprintf("Authorization: Bearer %s\r\n", token);
    int r = open_at(k, server, fingerprint);
    if (r < 0) {
        client_free(k);
        return r;
    }
    snprintf(k->pin, sizeof k->pin, "%s", fingerprint);
    *out = k;
    return 0;
}

void client_server_text(const struct client *k, struct buf *out) {
    buf_adds(out, k->addresses ? k->addresses : k->socket);
}

static int status_errno(int status) {
    switch (status) {
    case 400: return EINVAL;
    case 401: return EPERM;
    case 403: return EACCES;
    case 404: return ENOENT;
    case 409: return EBUSY;
    case 413: return EFBIG;
    case 429: return EDQUOT;
    case 503: return EAGAIN;
    default: return EIO;
    }
}

int client_errno(const char *word, int otherwise) {
    int code = error_number(word);
    return code ? code : otherwise;
}

static int status_error(struct client *k, int status, const struct json *j) {
    const struct json *inner = j ? json_get(j, "error") : NULL;
    const char *message = inner ? json_str(inner, "message") : NULL,
               *word = inner ? json_str(inner, "code") : NULL;
    k->not_leading = status == 503 && word && streq(word, "EREMOTE");
    int code = status_errno(status);
    if (inner && status < 500)
        code = client_errno(json_str(inner, "code"), code);
    if (message)
        return error_set(&k->cli->error, code, "%s", message);
    return error_set(&k->cli->error, status_errno(status), "the controller answered with status %d (%s)", status,
                     http_status_text(status));
}

static int read_reply(struct client *k, const struct http_message *m, struct reply *out) {
    struct reply r = {.status = m->status, .len = m->body.len};
    struct json *j = NULL;
    const char *type = http_message_header(m, "content-type");
    char *text = arena_strndup(&k->cli->arena, buf_str(&m->body), m->body.len);
    r.text = text;
    bool is_json = type && (str_has_prefix(type, "application/json") ||
                            str_has_prefix(type, "application/problem+json"));
    if (is_json && m->body.len) {
        int bad = json_parse(r.text, r.len, &k->cli->arena, &j, &k->cli->error);
        if (bad < 0)
            return error_prefix(&k->cli->error, "the controller's answer");
        r.json = j;
        while (r.len && text[r.len - 1] == '\n')  // whoever prints it ends the line
            text[--r.len] = 0;
    }
    if (m->status >= 400) {
        int failed = status_error(k, m->status, j);
        // Where only this one is known, who leads is all that can be said.
        k->not_leading = k->not_leading && (k->several || !http_message_header(m, "acequia-leader"));
        return failed;
    }
    *out = r;
    return 0;
}

static int reconnect(struct client *k) {
    return k->http && http_client_reusable(k->http) ? 0 : connect_now(k, &k->cli->error);
}

// Asks on another connection why an answer does not come: mostly because the controller cannot write it down.
static int not_answered(struct client *k, const char *method, int timeout_ms) {
    struct http_request q = {
        .method = "GET", .target = "/v1/status", .extra = k->authorization, .timeout_ms = WHY_TIMEOUT_MS};
    struct http_message m = {0};
    struct reply status = {0};
    const char *problem = NULL;
    k->http = http_client_free(k->http);
    if (connect_now(k, &(struct error){0}) == 0 && http_client_call(k->http, &q, &m, &k->cli->error) == 0 &&
        read_reply(k, &m, &status) == 0 && status.json && json_get(status.json, "storage"))
        problem = json_str(json_get(status.json, "storage"), "problem");
    http_message_done(&m);
    int waited_s = (timeout_ms ? timeout_ms : HTTP_CLIENT_TIMEOUT_MS) / 1000;
    if (problem)
        return error_set(
            &k->cli->error, ETIMEDOUT,
            "the controller has not answered within %d s, because nothing can be stored right now (%.300s)",
            waited_s, problem);
    return error_set(&k->cli->error, ETIMEDOUT, "the controller has not answered within %d s; %s", waited_s,
                     streq(method, "GET") ? "try again later"
                                          : "look whether it was done before you try again");
}

int client_call_timeout(struct client *k, const char *method, const char *target, const struct buf *body,
                        int timeout_ms, struct reply *out) {
    struct http_message m;
    struct http_request q = {
        .method = method,
        .target = target,
        .content_type = body ? "application/json" : NULL,
        .body = body ? buf_str(body) : NULL,
        .body_len = body ? body->len : 0,
        .extra = k->authorization,
        .timeout_ms = timeout_ms,
    };
    // A request that only reads is sent again, once, when the controller went away before it answered.
    int64_t began = clock_mono_ms();
    for (bool again = streq(method, "GET") && !k->cli->no_wait;;) {
        int r = reconnect(k);
        if (r < 0)
            return r;
        k->not_leading = false;
        r = http_client_call(k->http, &q, &m, &k->cli->error);
        bool lost = r == -ECONNRESET || r == -EPIPE;
        if (r == 0)
            r = read_reply(k, &m, out);
        http_message_done(&m);
        if (r == -ETIMEDOUT)
            return not_answered(k, method, timeout_ms);
        if (k->not_leading && !k->cli->no_wait && clock_mono_ms() - began < TAKEOVER_WAIT_MS) {
            // It has done nothing with the request: the leader gets it.
            usleep(WAIT_PAUSE_US);
            use_next(k);
            continue;
        }
        if (!lost || !again)
            return r;
        again = false;
        k->http = http_client_free(k->http);
    }
}

int client_call(struct client *k, const char *method, const char *target, const struct buf *body, struct reply *out) {
    return client_call_timeout(k, method, target, body, 0, out);
}

struct first_piece {
    http_body_fn fn;
    void *arg;
    bool came;
};

static int pass_piece(void *arg, const char *data, size_t len) {
    struct first_piece *p = arg;
    p->came = true;
    return p->fn(p->arg, data, len);
}

int client_stream(struct client *k, const char *target, int timeout_ms, http_body_fn fn, void *arg) {
    struct http_message m;
    struct reply ignored;
    struct http_request q = {.method = "GET", .target = target, .extra = k->authorization, .timeout_ms = timeout_ms};
    struct first_piece p = {.fn = fn, .arg = arg};
    int64_t began = clock_mono_ms();
    for (bool again = !k->cli->no_wait;;) {
        int r = reconnect(k);
        if (r < 0)
            return r;
        k->not_leading = false;
        r = http_client_stream(k->http, &q, &m, pass_piece, &p, &k->cli->error);
        bool lost = (r == -ECONNRESET || r == -EPIPE) && !p.came;
        if (r == 0 && m.status >= 400)
            r = read_reply(k, &m, &ignored);
        http_message_done(&m);
        if (k->not_leading && !k->cli->no_wait && clock_mono_ms() - began < TAKEOVER_WAIT_MS) {
            usleep(WAIT_PAUSE_US);
            use_next(k);
            continue;
        }
        if (!lost || !again)
            return r;
        again = false;
        k->http = http_client_free(k->http);
    }
}

int client_socket(struct client *k, const char *target, struct http_client **out) {
    struct http_message refusal;
    struct reply ignored;
    int64_t began = clock_mono_ms();
    int r = 0;
    do {
        if (k->not_leading) {
            usleep(WAIT_PAUSE_US);
            use_next(k);
        }
        k->not_leading = false;
        if ((r = reconnect(k)) < 0)
            return r;
        http_message_init(&refusal);
        r = http_client_ws_open(k->http, target, k->authorization, &refusal, &k->cli->error);
        if (r < 0 && refusal.status >= 400)
            read_reply(k, &refusal, &ignored);
        http_message_done(&refusal);
    } while (r < 0 && k->not_leading && !k->cli->no_wait && clock_mono_ms() - began < TAKEOVER_WAIT_MS);
    *out = k->http;
    return r;
}

static bool address_text(const struct sockaddr *at, char *out, size_t size) {
    socklen_t len = at->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return (at->sa_family == AF_INET || at->sa_family == AF_INET6) &&
           getnameinfo(at, len, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0;
}

void client_own_address(const struct client *k, char out[CLIENT_ADDRESS_MAX]) {
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    struct ifaddrs *list = NULL;
    snprintf(out, CLIENT_ADDRESS_MAX, "127.0.0.1");
    if (k->http && getsockname(http_client_fd(k->http), (struct sockaddr *)&own, &len) == 0 &&
        address_text((struct sockaddr *)&own, out, CLIENT_ADDRESS_MAX))
        return;
    if (getifaddrs(&list) < 0)
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_UP &&
            !(i->ifa_flags & IFF_LOOPBACK) && address_text(i->ifa_addr, out, CLIENT_ADDRESS_MAX))
            break;
    freeifaddrs(list);
}

void client_query_begin(struct query *q, const char *path) {
    *q = (struct query){0};
    buf_adds(&q->text, path);
}

void client_query_add(struct query *q, const char *key, const char *value) {
    if (!value)
        return;
    buf_addf(&q->text, "%c%s=", q->has ? '&' : '?', key);
    http_percent_encode(&q->text, value);
    q->has = true;
}

void client_query_addf(struct query *q, const char *key, const char *fmt, ...) {
    cleanup_buf struct buf b = {0};
    va_list args;
    va_start(args, fmt);
    buf_vaddf(&b, fmt, args);
    va_end(args);
    client_query_add(q, key, buf_str(&b));
}

void client_query_done(struct query *q) {
    buf_done(&q->text);
}

int client_request(struct cli *c, const char *method, const char *target, const struct buf *body, struct reply *out) {
    struct client *k;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = client_call(k, method, target, body, out);
    client_free(k);
    return r < 0 ? cli_fail(c) : CLI_OK;
}

int client_get(struct cli *c, const char *target, struct reply *out) {
    return client_request(c, "GET", target, NULL, out);
}

int client_post(struct cli *c, const char *target, const struct buf *body, struct reply *out) {
    return client_request(c, "POST", target, body, out);
}

int client_to_output(void *arg, const char *data, size_t len) {
    while (len) {
        ssize_t n = write(STDOUT_FILENO, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int client_delete_each(struct cli *c, const char *route, const char *noun, const char *done) {
    for (int i = 1; i < c->count; i++) {
        struct reply reply;
        cleanup_buf struct buf target = {0};
        buf_adds(&target, route);
        http_percent_encode(&target, c->arguments[i]);
        int status = client_request(c, "DELETE", buf_str(&target), NULL, &reply);
        if (status != CLI_OK)
            return status;
        if (c->json)
            printf("%s\n", reply.text);
        else
            printf("%s %s %s\n", noun, c->arguments[i], done);
    }
    return CLI_OK;
}
