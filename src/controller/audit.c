// The audit log is a row of pages, each a named value of the store ("audit.12") with one JSON object a line. The newest
// page is rewritten until it is full; the oldest go when there are too many or they are too old. Pages are small, so
// that a record costs little. What others than administrators cause is recorded up to a number a minute, for each user
// or address and for all of them, and counted beyond it: nobody can push out the records of others by making many.
#include "audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "api.h"
#include "base/clock.h"
#include "base/text.h"
#include "requests.h"

enum {
    PAGE_BYTES = 16 << 10,
    PAGES_MAX = 2048,  // 32 MiB, about 200,000 records
    PER_MINUTE = 300,           // records that are not caused by administrators
    SOURCE_PER_MINUTE = 60,     // of one user, or of one address without a user
    LOGINS_MAX = 4096,         // that are remembered
    LOGIN_AGAIN_MS = 3600000,  // a token that is used from the same address is a new login after this
    TARGET_MAX = 200,
    BODY_READ_MAX = 64 << 10,  // larger bodies are not looked into
    ROWS_DEFAULT = 200,
};

struct audit_log {
    uint64_t first, last;  // pages
    struct buf page;       // the newest
    int64_t minute;        // of the records counted
    uint32_t recorded, unrecorded;
    struct strmap sources; // user or address → struct audit_source, of this minute; at most PER_MINUTE
    struct strmap logins;  // address and token → struct audit_seen
};

struct audit_seen {
    int64_t at_ms;
    char key[NET_ADDRESS_MAX + NET_PASS_MAX + 2];
};

struct audit_source {
    uint32_t recorded;
    char name[NET_WHO_MAX + NET_ADDRESS_MAX];
};

static void page_name(uint64_t number, char out[static 32]) {
    snprintf(out, 32, "audit.%llu", (unsigned long long)number);
}

static void save(struct controller *c) {
    char name[32], range[64];
    const struct audit_log *l = c->audit;
    page_name(l->last, name);
    pipeline_keep_blob(c->pipeline, name, buf_str(&l->page), l->page.len);
    int n =
        snprintf(range, sizeof range, "%llu %llu", (unsigned long long)l->first, (unsigned long long)l->last);
    pipeline_keep_blob(c->pipeline, "audit", range, (size_t)n);
}

static void drop_first(struct controller *c) {
    char name[32];
    page_name(c->audit->first++, name);
    pipeline_keep_blob(c->pipeline, name, NULL, 0);
}

// Time of the first record of a page; 0: it cannot be read.
static int64_t page_time(struct controller *c, uint64_t number) {
    char name[32];
    void *data;
    size_t len;
    page_name(number, name);
    if (store_blob(c->store, name, &data, &len, NULL) < 0)
        return 0;
    int64_t at_ms = 0;
    const char *digits = len > 9 ? (const char *)data + 9 : "";  // {"at_ms":
    for (; *digits >= '0' && *digits <= '9'; digits++)
        at_ms = at_ms * 10 + (*digits - '0');
    free(data);
    return at_ms;
}

static void next_page(struct controller *c) {
    struct audit_log *l = c->audit;
    int64_t oldest_ms = controller_now_ms() - (int64_t)c->config.cluster.history_days * 86400000;
    l->last++;
    buf_clear(&l->page);
    while (l->last - l->first >= PAGES_MAX)
        drop_first(c);
    // A page begins before the next one: what is older than the second page's begin is all of the first.
    while (l->last - l->first > 1 && page_time(c, l->first + 1) < oldest_ms)
        drop_first(c);
}

static void record(struct controller *c, struct answer_audit_record *r) {
    struct audit_log *l = c->audit;
    cleanup_buf struct buf b = {0};
    if (!l || c->stopping)
        return;
    r->at_ms = controller_now_ms();
    schema_write_given_json(&answer_audit_record_schema, r, &(struct json_writer){.out = &b});
    buf_addc(&b, '\n');
    if (l->page.len && l->page.len + b.len > PAGE_BYTES)
        next_page(c);
    buf_add(&l->page, b.data, b.len);
    save(c);
}

static void forget_sources(struct audit_log *l) {
    size_t it = 0;
    void *v;
    while (strmap_next(&l->sources, &it, NULL, &v))
        free(v);
    strmap_done(&l->sources);
}

static void next_minute(struct controller *c, int64_t minute) {
    struct audit_log *l = c->audit;
    char text[64];
    uint32_t unrecorded = l->unrecorded;
    snprintf(text, sizeof text, "%u more requests, not recorded one by one", unrecorded);
    l->minute = minute;
    l->recorded = l->unrecorded = 0;
    forget_sources(l);
    if (unrecorded)
        record(c, &(struct answer_audit_record){.what = text, .status = 401});
}

// Users are told apart by their name, strangers by their address without its port.
static struct audit_source *source_of(struct audit_log *l, const struct net_request *req) {
    char name[sizeof((struct audit_source *)0)->name] = "";
    if (*req->who)
        snprintf(name, sizeof name, "user %s", req->who);
    else
        net_address_network(req->peer->address, name, sizeof name);
    struct audit_source *s = strmap_get(&l->sources, name);
    if (!s) {
        s = xcalloc(1, sizeof *s);
        memcpy(s->name, name, sizeof name);
        strmap_put(&l->sources, s->name, s);
    }
    return s;
}

static bool fits(struct controller *c, const struct net_request *req) {
    struct audit_log *l = c->audit;
    int64_t minute = clock_mono_ms() / 60000;
    if (minute != l->minute)
        next_minute(c, minute);
    if (l->recorded < PER_MINUTE && source_of(l, req)->recorded++ < SOURCE_PER_MINUTE) {
        l->recorded++;
        return true;
    }
    l->unrecorded++;
    return false;
}

// The one that was used longest ago makes room.
static void forget_login(struct audit_log *l) {
    struct audit_seen *oldest = NULL;
    size_t it = 0;
    void *v;
    while (strmap_next(&l->logins, &it, NULL, &v))
        if (!oldest || ((struct audit_seen *)v)->at_ms < oldest->at_ms)
            oldest = v;
    strmap_remove(&l->logins, oldest->key);
    free(oldest);
}

void audit_login(struct controller *c, const struct net_request *req, const char *user, const char *token) {
    struct audit_log *l = c->audit;
    char key[sizeof((struct audit_seen *)0)->key];
    const char *port = strrchr(req->peer->address, ':');
    int64_t now = clock_mono_ms();
    if (!l)
        return;
    snprintf(key, sizeof key, "%.*s %s", port ? (int)(port - req->peer->address) : 0, req->peer->address,
             token);
    struct audit_seen *seen = strmap_get(&l->logins, key);
    if (seen && now - seen->at_ms < LOGIN_AGAIN_MS) {
        seen->at_ms = now;
        return;
    }
    if (!seen) {
        if (l->logins.len >= LOGINS_MAX)
            forget_login(l);
        seen = xcalloc(1, sizeof *seen);
        memcpy(seen->key, key, sizeof key);
        strmap_put(&l->logins, seen->key, seen);
    }
    seen->at_ms = now;
    char on[NET_PASS_MAX + 8];
    snprintf(on, sizeof on, "token %s", token);
    record(c, &(struct answer_audit_record){
                  .who = user, .from = req->peer->address, .what = "login", .on = on, .status = 200});
}

// Jobs that a request names in its body, shortened.
static const char *target_of(const struct net_request *req, struct arena *a) {
    cleanup_buf struct buf b = {0};
    struct json *j;
    struct json_writer w = {.out = &b};
    static const char *const names[] = {"ids",       "user", "name", "state", "project",
                                        "partition", "qos",  "all",  "kind",  "node"};
    if (!req->body_len || str_has_prefix(req->path, "/v1/files"))  // a user's file
        return NULL;
    if (req->body_len > BODY_READ_MAX || json_parse(req->body, req->body_len, a, &j, NULL) < 0 ||
        j->type != JSON_OBJECT)
        return "a large or unreadable request";
    json_open(&w, '{');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *v = json_get(j, names[i]);
        if (!v)
            continue;
        json_key(&w, names[i]);
        json_write(&w, v);
    }
    json_close(&w, '}');
    if (b.len <= TARGET_MAX)
        return arena_strdup(a, buf_str(&b));
    size_t len = TARGET_MAX;
    while (len && ((unsigned char)b.data[len] & 0xc0) == 0x80)
        len--;  // not in the middle of a character
    return arena_printf(a, "%.*s…", (int)len, b.data);
}

static bool is_recorded(const struct net_request *req, const struct route *r) {
    if (!r)
        return false;
    if (r->permission == ALLOW_ADMIN || r->permission == ALLOW_OPERATOR || req->of_others || streq(r->path, "/v1/join"))
        return true;
    // What everybody does all day is left out: what becomes of jobs is in the journal.
    bool reads = streq(r->method, "GET");
    static const char *const always[] = {"/v1/login",    "/v1/portal", "/v1/sessions", "/v1/users",
                                         "/v1/projects", "/v1/tokens", "/v1/secrets",  "/v1/devices",
                                         "/v1/volumes",  "/v1/logout"};
    for (size_t i = 0; !reads && i < sizeof always / sizeof *always; i++)
        if (str_has_prefix(r->path, always[i]))
            return true;
    // Who gives others access, to a program or to a service.
    return !reads && (strstr(r->path, "/tokens") || strstr(r->path, "/shares") ||
                      (req->admin && streq(r->path, "/v1/jobs/{name}")));
}

void audit_denied(struct controller *c, const struct net_request *req, const char *on, int status) {
    cleanup_arena struct arena a = {0};
    if (!c->audit || !fits(c, req))
        return;
    record(c, &(struct answer_audit_record){.who = *req->who ? req->who : NULL,
                                            .from = req->peer->address,
                                            .what = arena_printf(&a, "%s %.200s", req->method, req->path),
                                            .on = on,
                                            .status = (uint32_t)status});
}

void audit_reply(struct controller *c, const struct net_request *req, int status) {
    cleanup_arena struct arena a = {0};
    const struct route *r = req->tag ? &api_routes[req->tag - 1] : NULL;
    // 429 without a route: somebody was turned away before it was known what they wanted.
    bool denied = status == 401 || status == 403 || (status == 429 && !r);
    if (!c->audit || !req->method || !(denied || is_recorded(req, r)) || (!req->admin && !fits(c, req)))
        return;
    bool reads = streq(req->method, "GET");
    record(c, &(struct answer_audit_record){.who = *req->who ? req->who : NULL,
                                            .from = req->peer->address,
                                            .what = arena_printf(&a, "%s %.200s", req->method, req->path),
                                            .on = *req->note        ? req->note
                                                  : reads || denied ? NULL
                                                                    : target_of(req, &a),
                                            .status = (uint32_t)status});
}

// --- reading ---

struct audit_reading {
    struct arena *arena;
    const struct query_audit *query;
    VEC(struct answer_audit_record) rows;
    uint32_t limit;
    bool old;  // what follows is before query->since_ms
};

// Newest first: lines from the end.
static void read_page(struct audit_reading *q, const char *text, size_t len) {
    while (len && q->rows.len < q->limit && !q->old) {
        struct answer_audit_record r;
        struct json *j;
        size_t end = len - 1, begin = end;
        while (begin && text[begin - 1] != '\n')
            begin--;
        len = begin;
        if (json_parse(text + begin, end - begin, q->arena, &j, NULL) < 0 ||
            schema_read_json(&answer_audit_record_schema, j, q->arena, &r, NULL) < 0)
            continue;
        q->old = r.at_ms < q->query->since_ms;
        if (!q->old && (!q->query->user || (r.who && streq(r.who, q->query->user))))
            vec_push(&q->rows, r);
    }
}

void api_audit(struct api_call *call) {
    struct controller *c = call->controller;
    const struct audit_log *l = c->audit;
    struct audit_reading q = {.arena = &call->arena, .query = call->query};
    q.limit = q.query->limit ? q.query->limit : ROWS_DEFAULT;
    read_page(&q, buf_str(&l->page), l->page.len);
    for (uint64_t n = l->last; n > l->first && q.rows.len < q.limit && !q.old; n--) {
        char name[32];
        void *data;
        size_t len;
        page_name(n - 1, name);
        if (store_blob(c->store, name, &data, &len, NULL) < 0)
            continue;
        read_page(&q, data, len);
        free(data);
    }
    struct answer_audit answer = {.records = {q.rows.at, q.rows.len}};
    api_answer(call, &answer_audit_schema, &answer);
    vec_done(&q.rows);
}

void audit_open(struct controller *c) {
    struct audit_log *l = xcalloc(1, sizeof *l);
    void *data;
    size_t len;
    char name[32];
    unsigned long long first = 0, last = 0;
    c->audit = l;
    if (store_blob(c->store, "audit", &data, &len, NULL) == 0) {
        if (sscanf(data, "%llu %llu", &first, &last) == 2 && first <= last && last - first <= PAGES_MAX) {
            l->first = first;
            l->last = last;
        }
        free(data);
    }
    page_name(l->last, name);
    if (store_blob(c->store, name, &data, &len, NULL) == 0) {
        buf_add(&l->page, data, len);
        free(data);
    }
}

void audit_close(struct controller *c) {
    struct audit_log *l = c->audit;
    size_t it = 0;
    void *v;
    if (!l)
        return;
    while (strmap_next(&l->logins, &it, NULL, &v))
        free(v);
    strmap_done(&l->logins);
    forget_sources(l);
    buf_done(&l->page);
    free(l);
    c->audit = NULL;
}
