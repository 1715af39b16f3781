// Every route of the API as everybody who may come: what is answered, and that no answer tells what its reader may not
// know. The table has an entry for each route; a route without one fails the test.
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

// --- who comes ---

enum viewer {
    NOBODY,    // over the network, without token or cookie
    STRANGER,  // a user of the cluster who has nothing to do with the job
    OWNER,
    MATE,  // a member of the job's project
    LEAD,
    OPERATOR,
    ADMIN,
    TOKEN_READ,     // the owner's, for reading
    TOKEN_SUBMIT,   // the owner's, for reading and submitting
    TOKEN_ADMIN,    // an administrator's, for everything
    TOKEN_PROJECT,  // the owner's, for another project
    VIEWERS
};
static const char *const viewer_words[VIEWERS] = {"nobody",
                                                  "a stranger",
                                                  "the owner",
                                                  "a project mate",
                                                  "the lead",
                                                  "an operator",
                                                  "an administrator",
                                                  "a read token",
                                                  "a submit token",
                                                  "an administrator's token",
                                                  "a token of another project"};

static const struct net_peer dave = {.kind = NET_PEER_UNIX, .uid = 1005, .gid = 1005, .address = "unix"};
static const struct net_peer erin = {.kind = NET_PEER_UNIX, .uid = 1006, .gid = 1006, .address = "unix"};
static const struct net_peer frank = {.kind = NET_PEER_UNIX, .uid = 1007, .gid = 1007, .address = "unix"};

struct cluster {
    struct rig r;
    char keys[40], tokens[VIEWERS][256];
    uint64_t job, ended;
};

// --- what is expected ---

// What each viewer gets, a letter for each in the order of the enum:
// '.' success; a 401, f 403, n 404, b 400, c 409, w 421 (only under a name of this server),
// u 426 (wants a WebSocket), t 503
struct expectation {
    const char *method, *path;  // of the route
    const char *target;  // what stands for it, with JOB and ENDED for the numbers of jobs; NULL: the path
    const char *body;
    const char *answers;
    const char *when_hidden;  // with others_jobs = hidden, where it differs
    bool tells_members;       // it answers everybody with the members of projects
};

#define EVERYBODY "a.........."
#define SUBMITTERS "a......f..."
#define ADMINS "afffff.ff.f"
#define OPERATORS "affff..ff.f"
#define JOB_VISIBLE "a..........", "an........n"  // hidden: for strangers there is no such job
#define JOB_PRIVATE                                                                                          \
    "af.fff...."                                                                                             \
    "f",                                                                                                     \
        "an.fff....n"  // owner and administrators

// Requests that would change what the others look at name something that does not exist, so that being allowed shows
// as 404 or 400 and not as 403.
// clang-format off
static const struct expectation expectations[] = {
    // jobs
    {"POST", "/v1/jobs", NULL,
     "{\"dry_run\":true,\"spec\":{\"name\":\"x\",\"workdir\":\"/\",\"argv\":[\"true\"]}}", "a......f..."},
    {"GET", "/v1/jobs", "/v1/jobs?all=1", NULL, EVERYBODY},
    {"POST", "/v1/jobs/{name}", "/v1/jobs/hold",
     "{\"ids\":[\"JOB\"]}", "a......f..."},  // each job is answered by itself
    {"GET", "/v1/jobs/{job}", "/v1/jobs/JOB", NULL, JOB_VISIBLE},
    {"GET", "/v1/jobs/{job}/array", "/v1/jobs/JOB/array", NULL, "annnnnnnnnn"},
    {"GET", "/v1/jobs/{job}/script", "/v1/jobs/JOB/script", NULL, JOB_PRIVATE},
    {"GET", "/v1/jobs/{job}/environment", "/v1/jobs/JOB/environment", NULL, JOB_PRIVATE},
    {"GET", "/v1/jobs/{job}/events", "/v1/jobs/JOB/events", NULL, JOB_VISIBLE},
    {"GET", "/v1/jobs/{job}/efficiency", "/v1/jobs/JOB/efficiency", NULL, "acccccccccc", "anccccccccn"},
    {"GET", "/v1/jobs/{job}/wait", "/v1/jobs/ENDED/wait", NULL, JOB_VISIBLE},
    {"GET", "/v1/jobs/{job}/logs", "/v1/jobs/JOB/logs", NULL, "afcfffccccf", "ancfffccccn"},
    {"GET", "/v1/jobs/{job}/exec", "/v1/jobs/JOB/exec", NULL, "afufffufuuf", "anufffufuun"},
    {"GET", "/v1/jobs/{job}/connect", "/v1/jobs/JOB/connect?port=80", NULL, "afufffufuuf", "anufffufuun"},
    {"GET", "/v1/jobs/{job}/shares", "/v1/jobs/JOB/shares", NULL, JOB_PRIVATE},
    {"POST", "/v1/jobs/{job}/shares", "/v1/jobs/JOB/shares", "{\"user\":\"x\"}", "afbfffbfbbf", "anbfffbfbbn"},
    {"DELETE", "/v1/jobs/{job}/shares", "/v1/jobs/JOB/shares?user=x", NULL, "afbfffbfbbf", "anbfffbfbbn"},
    {"POST", "/v1/jobs/{job}/open", "/v1/jobs/JOB/open", NULL, "afbfffbffbf", "anbfffbffbn"},
    {"GET", "/v1/services", NULL, NULL, EVERYBODY},
    {"POST", "/v1/services", NULL, "{\"name\":\"x\"}", "abbbbbbfbbb"},
    {"GET", "/v1/services/{name}", "/v1/services/none", NULL, "annnnnnnnnn"},
    {"POST", "/v1/services/{name}", "/v1/services/none", "{}", "annnnnnfnnn"},
    {"DELETE", "/v1/services/{name}", "/v1/services/none", NULL, "annnnnnfnnn"},
    {"GET", "/v1/services/{name}/tokens", "/v1/services/none/tokens", NULL, "annnnnnnnnn"},
    {"POST", "/v1/services/{name}/tokens", "/v1/services/none/tokens", "{}", "annnnnnfnnn"},
    {"DELETE", "/v1/services/{name}/tokens", "/v1/services/none/tokens?id=x", NULL, "annnnnnfnnn"},
    {"GET", "/v1/jobs/{job}/attach", "/v1/jobs/JOB/attach", NULL, "afufffufuuf", "anufffufuun"},
    {"GET", "/v1/jobs/{job}/why", "/v1/jobs/JOB/why", NULL, JOB_VISIBLE},
    {"GET", "/v1/jobs/{job}/extension", "/v1/jobs/JOB/extension?time_limit_s=60", NULL, "acccccccccc", "anccccccccn"},
    {"GET", "/v1/jobs/{job}/when", "/v1/jobs/JOB/when?workers=1", NULL, "abbbbbbbbbb", "anbbbbbbbbn"},
    {"POST", "/v1/jobs/{job}/resize", "/v1/jobs/JOB/resize", "{\"workers_max\":2}", "afbfffbfbbf", "anbfffbfbbn"},
    {"POST", "/v1/jobs/{job}/workers", "/v1/jobs/JOB/workers", "{\"ranks\":[]}", "afbfffbfbbf", "anbfffbfbbn"},
    {"GET", "/v1/jobs/{job}/step", "/v1/jobs/JOB/step", NULL, "afufffufuuf", "anufffufuun"},
    {"POST", "/v1/when", NULL, "{\"spec\":{\"name\":\"x\"}}", EVERYBODY},
    {"GET", "/v1/replay", NULL, NULL, ADMINS},
    {"GET", "/v1/allocate", NULL, NULL, "auuuuuufuuu"},
    {"GET", "/v1/trace", NULL, NULL, ADMINS},
    {"GET", "/v1/run", NULL, NULL, "auuuuuufuuu"},

    // the cluster
    {"GET", "/v1/shares", NULL, NULL, EVERYBODY},
    {"GET", "/v1/overview", NULL, NULL, EVERYBODY},
    {"GET", "/v1/live", NULL, NULL, EVERYBODY},
    {"POST", "/v1/mcp", NULL,
     "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\","
     "\"params\":{\"name\":\"get_job\",\"arguments\":{\"job\":\"JOB\"}}}",
     EVERYBODY},
    {"GET", "/v1/at", NULL, NULL, "abbbbbbbbbb"},
    {"GET", "/v1/analytics", "/v1/analytics?by=user", NULL, EVERYBODY},
    {"GET", "/v1/table", NULL, NULL, EVERYBODY},
    {"GET", "/v1/nodes", NULL, NULL, EVERYBODY},
    {"GET", "/v1/nodes/{name}", "/v1/nodes/n1", NULL, EVERYBODY},
    {"GET", "/v1/alerts", NULL, NULL, EVERYBODY},
    {"POST", "/v1/alerts/ack", NULL, "{\"rule\":\"hot\",\"subject\":\"gpu/n1/0/heat\"}", "affffnnffnf"},
    {"PUT", "/v1/alerts/{name}", "/v1/alerts/hot", "{\"metric\":\"cluster/gpus\",\"value\":1}", ADMINS},
    {"DELETE", "/v1/alerts/{name}", "/v1/alerts/none", NULL, "afffffnffnf"},
    {"GET", "/v1/nodes/{name}/processes", "/v1/nodes/none/processes", NULL, "annnnnnnnnn"},
    {"GET", "/v1/nodes/{name}/log", "/v1/nodes/none/log", NULL, "afffffnffnf"},
    {"GET", "/v1/log", NULL, NULL, ADMINS},
    {"POST", "/v1/nodes/{name}/drain", "/v1/nodes/none/drain", "{\"reason\":\"x\"}", "affffnnffnf"},
    {"POST", "/v1/nodes/{name}/resume", "/v1/nodes/none/resume", NULL, "affffnnffnf"},
    {"DELETE", "/v1/nodes/{name}", "/v1/nodes/none", NULL, "afffffnffnf"},
    {"GET", "/v1/status", NULL, NULL, EVERYBODY},
    {"POST", "/v1/reload", NULL, NULL, "afffffbffbf"},  // there is no file here
    {"POST", "/v1/hand-over", NULL, NULL, "afffffcffcf"},  // there is no other

    {"GET", "/v1/backups", NULL, NULL, ADMINS},
    {"POST", "/v1/backups", NULL, NULL, "afffffbffbf"},  // no folder is set
    {"GET", "/v1/audit", NULL, NULL, ADMINS},
    {"GET", "/v1/upgrade", NULL, NULL, EVERYBODY},
    {"POST", "/v1/upgrade/finish", NULL, NULL, ADMINS},
    {"GET", "/v1/events", NULL, NULL, EVERYBODY},
    {"GET", "/metrics", NULL, NULL, EVERYBODY},
    {"GET", "/v1/series", NULL, NULL, EVERYBODY},

    // tokens, secrets, what people keep
    {"POST", "/v1/tokens", NULL, "{\"kind\":\"agent\",\"ttl_s\":60}", "afffff.ff.f"},
    {"GET", "/v1/tokens", NULL, NULL, EVERYBODY},
    {"DELETE", "/v1/tokens/{name}", "/v1/tokens/none", NULL, "annnnnnnnnn"},
    {"GET", "/v1/secrets", NULL, NULL, EVERYBODY},
    {"PUT", "/v1/secrets/{name}", "/v1/secrets/s", "{\"value\":\"00\"}", "a......f..."},
    {"DELETE", "/v1/secrets/{name}", "/v1/secrets/none", NULL, "annnnnnfnnn"},
    {"GET", "/v1/images", NULL, NULL, EVERYBODY},
    {"GET", "/v1/providers", NULL, NULL, EVERYBODY},
    {"PUT", "/v1/providers/{name}", "/v1/providers/cloud", "{\"kind\":\"slurm\"}", "afffffbffbf"},
    {"DELETE", "/v1/providers/{name}", "/v1/providers/none", NULL, "afffffnffnf"},
    {"GET", "/v1/volumes", NULL, NULL, EVERYBODY},
    {"POST", "/v1/volumes", NULL, "{\"name\":\"v\"}", "abbbbbbfbbb"},  // no folder is set
    {"GET", "/v1/volumes/{name}", "/v1/volumes/none", NULL, "annnnnnnnnn"},
    {"POST", "/v1/volumes/{name}/shares", "/v1/volumes/none/shares", "{\"with\":\"bob\"}", "annnnnnfnnn"},
    {"DELETE", "/v1/volumes/{name}", "/v1/volumes/none", NULL, "annnnnnfnnn"},
    // On a node that is not there: who gets so far has files.
    {"GET", "/v1/files", "/v1/files?node=none", NULL, "annnnnnnnnf"},
    {"DELETE", "/v1/files", "/v1/files?path=x&node=none", NULL, "annnnnnfnnf"},
    {"GET", "/v1/files/content", "/v1/files/content?path=x&node=none", NULL, "annnnnnnnnf"},
    {"PUT", "/v1/files/content", "/v1/files/content?path=x&node=none", "text", "annnnnnfnnf"},
    {"GET", "/v1/files/space", "/v1/files/space?path=x&node=none", NULL, "annnnnnnnnf"},
    {"GET", "/v1/files/zip", "/v1/files/zip?path=x&node=none", NULL, "annnnnnnnnf"},
    {"POST", "/v1/files/folder", NULL, "{\"path\":\"x\",\"node\":\"none\"}", "annnnnnfnnf"},
    {"POST", "/v1/files/move", NULL, "{\"path\":\"x\",\"to\":\"y\",\"node\":\"none\"}", "annnnnnfnnf"},
    {"POST", "/v1/files/copy", NULL, "{\"path\":\"x\",\"to\":\"y\",\"node\":\"none\"}", "annnnnnfnnf"},
    {"GET", "/v1/drafts", NULL, NULL, EVERYBODY},
    {"GET", "/v1/drafts/{name}", "/v1/drafts/plan", NULL, "an.nnnn..nn"},
    {"PUT", "/v1/drafts/{name}", "/v1/drafts/mine", "{\"spec\":{}}", "a......f..f"},
    {"DELETE", "/v1/drafts/{name}", "/v1/drafts/none", NULL, "annnnnnfnnn"},
    {"GET", "/v1/templates", NULL, NULL, EVERYBODY},
    {"GET", "/v1/templates/{name}", "/v1/templates/eval?project=lab", NULL, "an...n....n"},
    {"PUT", "/v1/templates/{name}", "/v1/templates/more", "{\"project\":\"lab\",\"spec\":{}}", "af...f.f..f"},
    {"DELETE", "/v1/templates/{name}", "/v1/templates/none?project=lab", NULL, "afnnnfnfnnf"},
    {"GET", "/v1/views", NULL, NULL, EVERYBODY},
    {"PUT", "/v1/views/{name}", "/v1/views/mine", "{\"query\":\"state=PENDING\"}", "a......f..f"},
    {"DELETE", "/v1/views/{name}", "/v1/views/none", NULL, "annnnnnfnnn"},

    // people
    {"GET", "/v1/apps", NULL, NULL, EVERYBODY},
    {"POST", "/v1/apps/{name}", "/v1/apps/program",
     "{\"dry_run\":true,\"workdir\":\"/\",\"values\":[\"command=true\"]}", SUBMITTERS},
    {"GET", "/v1/apps/authorize", "/v1/apps/authorize?app=x", NULL, "nnnnnnnnnnn"},
    {"GET", "/v1/login", NULL, NULL, "w.........."},
    {"POST", "/v1/login", NULL, "{\"method\":\"own\",\"user\":\"x\",\"password\":\"y\"}", "wbbbbbbaaaa"},
    {"POST", "/v1/login/code", NULL, "{\"code\":\"x\"}", "wbbbbbbaaaa"},
    {"POST", "/v1/login/oidc/{name}", "/v1/login/oidc/none", "{}", "wbbbbbbnnnn"},
    {"POST", "/v1/login/oidc/{name}/finish", "/v1/login/oidc/none/finish",
     "{\"code\":\"x\",\"state\":\"x\"}", "wbbbbbbnnnn"},
    {"POST", "/v1/login/device", NULL, "{}", "wbbbbbb...."},
    {"POST", "/v1/login/device/token", NULL, "{\"device_code\":\"x\"}", "w.........."},
    {"GET", "/v1/devices/{name}", "/v1/devices/none", NULL, "annnnnnnnnn"},
    {"POST", "/v1/devices/{name}", "/v1/devices/none", "{\"allow\":false}", "annnnnnfnnn"},
    {"POST", "/v1/logout", NULL, NULL, "w.........."},
    {"POST", "/v1/portal", NULL, NULL, "a......ff.f"},
    {"GET", "/v1/me", NULL, NULL, EVERYBODY},
    {"GET", "/v1/sessions", NULL, NULL, EVERYBODY},
    {"DELETE", "/v1/sessions/{name}", "/v1/sessions/none", NULL, "annnnnnnnnn"},
    {"GET", "/v1/users", NULL, NULL, ADMINS},
    {"PUT", "/v1/users/{name}", "/v1/users/new", "{\"full_name\":\"x\"}", ADMINS},
    {"DELETE", "/v1/users/{name}", "/v1/users/none", NULL, "afffffnffnf"},
    {"PUT", "/v1/users/{name}/password", "/v1/users/none/password", "{\"password\":\"long enough\"}", "afffffnffnf"},
    {"POST", "/v1/join", NULL, "{\"token\":\"x\",\"csr\":\"x\",\"name\":\"n\"}", "bbbbbbbbbbb"},
    {"GET", "/v1/agent", NULL, NULL, "ffffffuffff"},

    // what jobs are shared by
    {"GET", "/v1/policy", NULL, NULL, EVERYBODY},
    {"PUT", "/v1/policy", NULL, "{}", ADMINS},
    {"POST", "/v1/policy/dry-run", NULL, "{\"change\":{}}", "afffffbffbf"},
    {"GET", "/v1/projects", NULL, NULL, EVERYBODY, NULL, true},
    {"GET", "/v1/partitions", NULL, NULL, EVERYBODY},
    {"GET", "/v1/qos", NULL, NULL, EVERYBODY},
    {"GET", "/v1/licenses", NULL, NULL, EVERYBODY},
    {"GET", "/v1/reservations", NULL, NULL, EVERYBODY},
    {"GET", "/v1/projects/{name}", "/v1/projects/lab", NULL, EVERYBODY, NULL, true},
    {"GET", "/v1/partitions/{name}", "/v1/partitions/main", NULL, EVERYBODY},
    {"GET", "/v1/qos/{name}", "/v1/qos/none", NULL, "annnnnnnnnn"},
    {"GET", "/v1/licenses/{name}", "/v1/licenses/none", NULL, "annnnnnnnnn"},
    {"GET", "/v1/reservations/{name}", "/v1/reservations/none", NULL, "annnnnnnnnn"},
    {"PUT", "/v1/projects/{name}", "/v1/projects/lab",
     "{\"name\":\"lab\",\"members\":[\"alice\",\"dave\",\"erin\"],\"leads\":[\"erin\"]}", "afff.f.ff.f", NULL, true},
    {"PUT", "/v1/partitions/{name}", "/v1/partitions/main", "{}", ADMINS},
    {"PUT", "/v1/qos/{name}", "/v1/qos/q", "{}", ADMINS},
    {"PUT", "/v1/licenses/{name}", "/v1/licenses/q", "{}", ADMINS},
    {"PUT", "/v1/reservations/{name}", "/v1/reservations/r", "{}", "affffbbffbf"},
    {"DELETE", "/v1/projects/{name}", "/v1/projects/none", NULL, "afffffnffnf"},
    {"DELETE", "/v1/partitions/{name}", "/v1/partitions/none", NULL, "afffffnffnf"},
    {"DELETE", "/v1/qos/{name}", "/v1/qos/none", NULL, "afffffnffnf"},
    {"DELETE", "/v1/licenses/{name}", "/v1/licenses/none", NULL, "afffffnffnf"},
    {"DELETE", "/v1/reservations/{name}", "/v1/reservations/none", NULL, "affffnnffnf"},
    {"GET", "/v1/openapi.json", NULL, NULL, EVERYBODY},
    {"GET", "/v1", NULL, NULL, EVERYBODY},
};
// clang-format on
enum { EXPECTATIONS = sizeof expectations / sizeof *expectations };

static const struct expectation *expected_of(const struct route *r) {
    for (size_t i = 0; i < EXPECTATIONS; i++)
        if (streq(expectations[i].method, r->method) && streq(expectations[i].path, r->path))
            return &expectations[i];
    return NULL;
}

// --- the cluster ---

static const struct net_peer *peer_of(enum viewer v) {
    static const struct net_peer *const peers[VIEWERS] = {
        [STRANGER] = &fake_bob, [OWNER] = &fake_alice, [MATE] = &dave,
        [LEAD] = &erin,         [OPERATOR] = &frank,   [ADMIN] = &fake_root};
    return peers[v];
}

static struct fake_request *ask(struct cluster *k, enum viewer v, const char *method, const char *target,
                                const char *body) {
    if (peer_of(v))
        return rig_call(&k->r, peer_of(v), method, target, body);
    struct net_peer network = fake_tls("[10.0.0.9]:1000", NULL);
    cleanup_buf struct buf head = {0};
    buf_addf(&head, "%s %s HTTP/1.1\r\nHost: head\r\n", method, target);
    if (*k->tokens[v])
        buf_addf(&head, "Authorization: Bearer %s\r\n", k->tokens[v]);
    return rig_bytes(&k->r, &network, buf_str(&head), body);
}

static void make_token(struct cluster *k, enum viewer v, const char *body) {
    struct fake_request *q = rig_call(&k->r, &fake_root, "POST", "/v1/tokens", body);
    fake_expect(q, 201, NULL);
    snprintf(k->tokens[v], sizeof k->tokens[v], "%s", json_str(fake_json(q), "token"));
}

// Texts that only the owner and administrators may read begin with HUSH; those that are a job's name or tag, which
// are not shown everywhere, with ALIAS.
#define PRIVATE_JOB                                                                                          \
    "{\"spec\":{\"name\":\"ALIASjob\",\"project\":\"lab\",\"workdir\":\"/HUSHdir\",\"output\":\"HUSHout\","  \
    "\"comment\":\"HUSHcomment\",\"argv\":[\"HUSHargument\"],\"command_text\":\"HUSHtext\","                 \
    "\"container_mounts\":\"/HUSHmount\",\"container\":\"/ALIASimage\",\"tags\":[\"ALIAStag\"],"             \
    "\"submit_line\":\"HUSHline\",\"hold\":true},"                                                           \
    "\"script\":\"#!/bin/sh\\n# HUSHscript\\n\",\"environment\":[\"HUSH=HUSHvalue\"]}"

static uint64_t submit(struct cluster *k, const char *body) {
    struct fake_request *q = rig_call(&k->r, &fake_alice, "POST", "/v1/jobs", body);
    fake_expect(q, 201, NULL);
    return (uint64_t)json_i64(fake_json(q), "id", 0);
}

static void open_cluster(struct cluster *k, enum others_jobs others) {
    *k = (struct cluster){0};
    rig_open(&k->r);
    rig_authority(&k->r);
    snprintf(k->keys, sizeof k->keys, "/tmp/acequia-routes-XXXXXX");
    assert_non_null(mkdtemp(k->keys));
    k->r.c.paths.keys = k->keys;
    k->r.c.config.cluster.others_jobs = others;
    fake_expect(rig_call(&k->r, &fake_root, "PUT", "/v1/projects/lab",
                         "{\"name\":\"lab\",\"members\":[\"alice\",\"dave\",\"erin\"],\"leads\":[\"erin\"]}"),
                200, NULL);
    fake_expect(rig_call(&k->r, &fake_root, "PUT", "/v1/projects/other", "{\"name\":\"other\"}"), 200, NULL);
    fake_expect(rig_call(&k->r, &fake_root, "PUT", "/v1/users/frank",
                         "{\"unix_user\":\"frank\",\"role\":\"operator\",\"identities\":[\"pam:frank\"]}"),
                200, NULL);
    make_token(k, TOKEN_READ, "{\"kind\":\"user\",\"user\":\"alice\",\"scopes\":[\"read\"]}");
    make_token(k, TOKEN_SUBMIT, "{\"kind\":\"user\",\"user\":\"alice\",\"scopes\":[\"read\",\"submit\"]}");
    make_token(k, TOKEN_ADMIN, "{\"kind\":\"user\",\"user\":\"root\"}");
    make_token(k, TOKEN_PROJECT, "{\"kind\":\"user\",\"user\":\"alice\",\"project\":\"other\"}");
    k->ended = submit(k, PRIVATE_JOB);
    cleanup_buf struct buf body = {0};
    buf_addf(&body, "{\"ids\":[\"%llu\"],\"reason\":\"ALIASreason\"}", (unsigned long long)k->ended);
    fake_expect(rig_call(&k->r, &fake_alice, "POST", "/v1/jobs/cancel", buf_str(&body)), 200, "\"done\":1");
    k->job = submit(k, PRIVATE_JOB);
    fake_expect(
        rig_call(&k->r, &fake_alice, "PUT", "/v1/drafts/plan",
                 "{\"title\":\"HUSHtitle\",\"spec\":{\"name\":\"HUSHdraft\"},\"script\":\"HUSHscript\"}"),
        200, NULL);
    fake_expect(rig_call(&k->r, &erin, "PUT", "/v1/templates/eval",
                         "{\"project\":\"lab\",\"spec\":{\"name\":\"eval\"},\"script\":\"#!/bin/sh\\n\"}"),
                200, NULL);
    fake_expect(rig_call(&k->r, &fake_alice, "PUT", "/v1/views/late", "{\"query\":\"search=HUSHquery\"}"),
                200, NULL);
    rig_settle(&k->r);
}

static void close_cluster(struct cluster *k) {
    char path[80];
    rig_close(&k->r);
    snprintf(path, sizeof path, "%s/secret.key", k->keys);
    unlink(path);
    rmdir(k->keys);
}

// --- what may be read ---

// What the viewer may see of the two jobs.
static enum job_sight sight_of(enum viewer v, enum others_jobs others) {
    switch (v) {
    case OWNER:
    case ADMIN:
    case TOKEN_READ:
    case TOKEN_SUBMIT:
    case TOKEN_ADMIN: return SIGHT_ALL;
    case MATE:
    case LEAD:
    case OPERATOR: return SIGHT_PUBLIC;
    default:
        return others == OTHERS_JOBS_VISIBLE  ? SIGHT_PUBLIC
               : others == OTHERS_JOBS_MASKED ? SIGHT_MASKED
                                              : SIGHT_NONE;
    }
}

static void tells_no_more(struct fake_request *q, enum viewer v, enum others_jobs others,
                          bool tells_members) {
    enum job_sight sight = sight_of(v, others);
    const char *text = buf_str(&q->body);
    const char *const forbidden[] = {sight < SIGHT_ALL ? "HUSH" : NULL, sight < SIGHT_PUBLIC ? "ALIAS" : NULL,
                                     v == STRANGER && sight < SIGHT_PUBLIC && !tells_members ? "alice" : NULL,
                                     v == STRANGER && sight < SIGHT_PUBLIC ? "\"uid\":1001" : NULL};
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (forbidden[i] && strstr(text, forbidden[i]))
            fail_msg("%s %s tells %s, with others_jobs = %s, \"%s\": %s", q->message.method, q->message.path,
                     viewer_words[v], config_others_jobs_words[others], forbidden[i], text);
}

// --- the walk ---

static char letter_of(int status) {
    switch (status) {
    case 400: return 'b';
    case 401: return 'a';
    case 403: return 'f';
    case 404: return 'n';
    case 409: return 'c';
    case 421: return 'w';
    case 426: return 'u';
    case 503: return 't';
    default: return status >= 200 && status < 300 ? '.' : '?';
    }
}

static void put_target(const struct cluster *k, const char *text, struct buf *out) {
    for (const char *at = text; *at;) {
        const char *mark = strstr(at, "JOB"), *ended = strstr(at, "ENDED");
        const char *first = mark && (!ended || mark < ended) ? mark : ended;
        buf_add(out, at, first ? (size_t)(first - at) : strlen(at));
        if (first)
            buf_addf(out, "%llu", (unsigned long long)(first == mark ? k->job : k->ended));
        at = first ? first + (first == mark ? 3 : 5) : "";
    }
}

static uint32_t walk_as(struct cluster *k, enum viewer v, enum others_jobs others) {
    uint32_t wrong = 0;
    for (size_t i = 0; i < api_route_count; i++) {
        const struct expectation *x = expected_of(&api_routes[i]);
        cleanup_buf struct buf target = {0}, body = {0};
        if (!x)
            continue;
        put_target(k, x->target ? x->target : x->path, &target);
        put_target(k, x->body ? x->body : "", &body);
        struct fake_request *q = ask(k, v, x->method, buf_str(&target), body.len ? buf_str(&body) : NULL);
        rig_wait(&k->r, q);
        char got = letter_of(q->status);
        char want = (others == OTHERS_JOBS_HIDDEN && x->when_hidden ? x->when_hidden : x->answers)[v];
        if (got != want) {
            print_error("%s %s as %s, others_jobs = %s: %d, expected '%c': %.300s\n", x->method,
                        buf_str(&target), viewer_words[v], config_others_jobs_words[others], q->status, want,
                        buf_str(&q->body));
            wrong++;
        }
        tells_no_more(q, v, others, x->tells_members);
        if (!q->done)
            fake_leave(q);
        rig_settle(&k->r);
    }
    return wrong;
}

static void walk(enum others_jobs others) {
    struct cluster k;
    uint32_t wrong = 0;
    open_cluster(&k, others);
    rig_agent(&k.r, "n1");
    for (int v = 0; v < VIEWERS; v++)
        wrong += walk_as(&k, (enum viewer)v, others);
    close_cluster(&k);
    assert_int_equal(wrong, 0);
}

static void every_route_is_in_the_table(void **state) {
    for (size_t i = 0; i < api_route_count; i++)
        if (!expected_of(&api_routes[i]))
            fail_msg("%s %s: say in the table above what everybody gets there", api_routes[i].method,
                     api_routes[i].path);
    for (size_t i = 0; i < EXPECTATIONS; i++) {
        assert_int_equal(strlen(expectations[i].answers), VIEWERS);
        if (expectations[i].when_hidden)
            assert_int_equal(strlen(expectations[i].when_hidden), VIEWERS);
    }
}

static void everybody_gets_what_is_theirs(void **state) {
    walk(OTHERS_JOBS_VISIBLE);
}

static void everybody_gets_what_is_theirs_when_masked(void **state) {
    walk(OTHERS_JOBS_MASKED);
}

static void everybody_gets_what_is_theirs_when_hidden(void **state) {
    walk(OTHERS_JOBS_HIDDEN);
}

// --- searches, filters, order ---

static void a_search_tells_nothing(enum others_jobs others) {
    // Each finds the job for those who may see it.
    static const char *const searches[] = {"/v1/table?search=ALIAS",
                                           "/v1/table?search=alice",
                                           "/v1/table?name=ALIASjob",
                                           "/v1/table?user=alice",
                                           "/v1/table?where=name%3DALIASjob",
                                           "/v1/table?where=tag%3DALIAStag",
                                           "/v1/jobs?name=ALIASjob&all=1",
                                           "/v1/jobs?user=alice&all=1",
                                           "/v1/jobs?where=user%3Dalice&all=1",
                                           "/v1/jobs?where=image%3D*ALIAS*&all=1",
                                           "/v1/jobs?where=reason%3D*ALIAS*&all=1&finished=1"};
    struct cluster k;
    open_cluster(&k, others);
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) {
        struct fake_request *mine = ask(&k, OWNER, "GET", searches[i], NULL),
                            *theirs = ask(&k, STRANGER, "GET", searches[i], NULL);
        if (mine->status != 200 || !strstr(buf_str(&mine->body), "\"state\":\""))
            fail_msg("%s finds nothing: %s", searches[i], buf_str(&mine->body));
        fake_expect(theirs, 200, NULL);
        if (strstr(buf_str(&theirs->body), "\"state\":\""))
            fail_msg("%s finds what may not be seen: %s", searches[i], buf_str(&theirs->body));
    }
    close_cluster(&k);
}

static void a_search_does_not_find_masked_texts(void **state) {
    a_search_tells_nothing(OTHERS_JOBS_MASKED);
}

static void a_search_does_not_find_hidden_jobs(void **state) {
    a_search_tells_nothing(OTHERS_JOBS_HIDDEN);
}

// Jobs whose names may not be seen are not put in the order of their names, which would tell where they lie.
static void order_tells_nothing(void **state) {
    struct cluster k;
    open_cluster(&k, OTHERS_JOBS_MASKED);
    uint64_t z = submit(&k, "{\"spec\":{\"name\":\"zz\",\"project\":\"default\",\"workdir\":\"/"
                            "\",\"argv\":[\"true\"],\"hold\":true}}");
    uint64_t a = submit(&k, "{\"spec\":{\"name\":\"aa\",\"project\":\"default\",\"workdir\":\"/"
                            "\",\"argv\":[\"true\"],\"hold\":true}}");
    const struct json *rows = json_get(
        fake_json(ask(&k, STRANGER, "GET", "/v1/table?sort=name&state=PENDING&project=default", NULL)),
        "rows");
    assert_int_equal(rows->len, 2);
    assert_int_equal(json_i64(&rows->items[0], "id", 0), z);
    assert_int_equal(json_i64(&rows->items[1], "id", 0), a);
    assert_null(json_str(&rows->items[0], "name"));
    assert_null(json_str(&rows->items[0], "user"));
    assert_string_equal(json_str(&rows->items[0], "project"), "default");
    close_cluster(&k);
}

// --- live ---

static void wait_for(struct cluster *k, struct fake_request *q, const char *text) {
    for (int64_t until_ms = clock_mono_ms() + 60000;
         clock_mono_ms() < until_ms && !strstr(buf_str(&q->body), text);) {
        usleep(1000);
        rig_settle(&k->r);
    }
    if (!strstr(buf_str(&q->body), text))
        fail_msg("\"%s\" does not come; there is: %s", text, buf_str(&q->body));
}

static void live(enum others_jobs others) {
    struct cluster k;
    open_cluster(&k, others);
    struct fake_request *feeds[VIEWERS] = {0};
    struct fake_request *named = ask(&k, STRANGER, "GET", "/v1/live?topics=jobs&where=name%3DALIASjob", NULL),
                        *of_alice = ask(&k, STRANGER, "GET", "/v1/live?topics=jobs&user=alice", NULL);
    for (int v = STRANGER; v < VIEWERS; v++)
        feeds[v] = ask(&k, (enum viewer)v, "GET", "/v1/live?topics=jobs", NULL);
    submit(&k, PRIVATE_JOB);
    // A job of the stranger's own comes after it: when it is there, so is all before it.
    struct fake_request *q =
        rig_call(&k.r, &fake_bob, "POST", "/v1/jobs",
                 "{\"spec\":{\"name\":\"last\",\"workdir\":\"/\",\"argv\":[\"true\"],\"hold\":true}}");
    cleanup_buf struct buf last = {0};
    buf_addf(&last, "\"id\":%lld,", (long long)json_i64(fake_json(q), "id", 0));
    for (int v = STRANGER; v < VIEWERS; v++) {
        enum job_sight sight = sight_of((enum viewer)v, others);
        bool sees_bobs =
            v == STRANGER || v == OPERATOR || v == ADMIN || v == TOKEN_ADMIN || others != OTHERS_JOBS_HIDDEN;
        if (sees_bobs)
            wait_for(&k, feeds[v], buf_str(&last));
        if (sight >= SIGHT_PUBLIC)
            wait_for(&k, feeds[v], "ALIASjob");
        tells_no_more(feeds[v], (enum viewer)v, others, false);
    }
    bool found = others == OTHERS_JOBS_VISIBLE;
    assert_int_equal(strstr(buf_str(&named->body), "ALIASjob") != NULL, found);
    assert_int_equal(strstr(buf_str(&of_alice->body), "\"jobs\":[{") != NULL, found);
    close_cluster(&k);
}

static void the_live_feed_tells_no_more(void **state) {
    live(OTHERS_JOBS_VISIBLE);
    live(OTHERS_JOBS_MASKED);
    live(OTHERS_JOBS_HIDDEN);
}

// --- reasons that name others ---

static void why_names_no_hidden_job(void **state) {
    for (int others = OTHERS_JOBS_VISIBLE; others <= OTHERS_JOBS_HIDDEN; others++) {
        struct cluster k;
        open_cluster(&k, (enum others_jobs)others);
        rig_agent(&k.r, "n1");
        submit(&k, "{\"spec\":{\"name\":\"ALIASall\",\"project\":\"default\",\"workdir\":\"/"
                   "\",\"argv\":[\"true\"],\"cpus_per_task\":8}}");
        struct fake_request *q =
            rig_call(&k.r, &fake_bob, "POST", "/v1/jobs",
                     "{\"spec\":{\"name\":\"waits\",\"workdir\":\"/\",\"argv\":[\"true\"]}}");
        cleanup_buf struct buf target = {0};
        buf_addf(&target, "/v1/jobs/%lld/why", (long long)json_i64(fake_json(q), "id", 0));
        rig_settle(&k.r);
        struct fake_request *why = ask(&k, STRANGER, "GET", buf_str(&target), NULL);
        fake_expect(why, 200, "held by 1 job");
        tells_no_more(why, STRANGER, (enum others_jobs)others, false);
        assert_int_equal(strstr(buf_str(&why->body), "ALIASall (alice, default)") != NULL,
                         others == OTHERS_JOBS_VISIBLE);
        close_cluster(&k);
    }
}

// A project that shares logs shows everything to its members, of ended jobs as well; others learn no more than before.
static void a_sharing_project_shows_everything(void **state) {
    struct cluster k;
    open_cluster(&k, OTHERS_JOBS_HIDDEN);
    fake_expect(rig_call(&k.r, &fake_root, "PUT", "/v1/projects/lab",
                         "{\"name\":\"lab\",\"members\":[\"alice\",\"dave\",\"erin\"],\"leads\":[\"erin\"],"
                         "\"shared_logs\":true}"),
                200, NULL);
    cleanup_buf struct buf job = {0}, ended = {0};
    buf_addf(&job, "/v1/jobs/%llu/script", (unsigned long long)k.job);
    buf_addf(&ended, "/v1/jobs/%llu/script", (unsigned long long)k.ended);
    fake_expect(ask(&k, MATE, "GET", buf_str(&job), NULL), 200, "HUSHscript");
    fake_expect(ask(&k, MATE, "GET", buf_str(&ended), NULL), 200, "HUSHscript");
    fake_expect(ask(&k, OPERATOR, "GET", buf_str(&job), NULL), 403, NULL);
    fake_expect(ask(&k, STRANGER, "GET", buf_str(&job), NULL), 404, "there is no job");
    close_cluster(&k);
}

// What is hidden is answered in the words for what does not exist.
static void hidden_is_like_absent(void **state) {
    struct cluster k;
    open_cluster(&k, OTHERS_JOBS_HIDDEN);
    static const char *const targets[][2] = {{"/v1/jobs/", ""},
                                             {"/v1/jobs/", "/script"},
                                             {"/v1/jobs/", "/why"},
                                             {"/v1/jobs/", "+1"},
                                             {"/v1/series?name=job/", "/gpu_utilisation"}};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        char text[2][400];
        int status[2];
        for (int n = 0; n < 2; n++) {
            char target[100], number[24];
            unsigned long long id = n ? 7777777 : (unsigned long long)k.job;
            snprintf(target, sizeof target, "%s%llu%s", targets[i][0], id, targets[i][1]);
            struct fake_request *q = ask(&k, STRANGER, "GET", target, NULL);
            status[n] = q->status;
            snprintf(text[n], sizeof text[n], "%s", json_str(fake_json(q), "detail"));
            snprintf(number, sizeof number, "%llu", id);
            char *at = strstr(text[n], number);
            assert_non_null(at);
            memmove(at, at + strlen(number), strlen(at + strlen(number)) + 1);
        }
        assert_int_equal(status[0], 404);
        assert_int_equal(status[0], status[1]);
        assert_string_equal(text[0], text[1]);
    }
    close_cluster(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_in_the_table),
        cmocka_unit_test(everybody_gets_what_is_theirs),
        cmocka_unit_test(everybody_gets_what_is_theirs_when_masked),
        cmocka_unit_test(everybody_gets_what_is_theirs_when_hidden),
        cmocka_unit_test(a_search_does_not_find_masked_texts),
        cmocka_unit_test(a_search_does_not_find_hidden_jobs),
        cmocka_unit_test(order_tells_nothing),
        cmocka_unit_test(the_live_feed_tells_no_more),
        cmocka_unit_test(why_names_no_hidden_job),
        cmocka_unit_test(a_sharing_project_shows_everything),
        cmocka_unit_test(hidden_is_like_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
