// Programs of jobs in browsers: a job's HTTP port has a host name of its own, under which the controller is a reverse
// proxy for it. Every such host is another origin than the portal's: what a program of a job does in the browser is
// done with its own cookies alone. Shared by the files app_*.c; how it fits together: docs/decisions/services.md.
#pragma once
#include "api.h"
#include "net/mac.h"
#include "net/token.h"

enum {
    APP_LABEL_MAX = 63,  // bytes of one label of a host name
    APP_HOST_MAX = 256,
    APP_COOKIE_S = 3600,       // how long a browser is let in without going by the portal again
    APP_COOKIE_RENEW_S = 600,  // a cookie older than that is replaced with the next answer
    APP_STATE_HEX = 32,
};
#define APP_ENTER_PATH "/.acequia/enter"
#define APP_OWN_COOKIES "acequia_"  // what names of our cookies begin with, after __Host-

// One program: a port of a job, or a service.
struct app_name {
    uint64_t job;  // or the number of the service
    uint32_t port;
    bool service;
};
static inline bool app_is_service(const struct app_name *name) {
    return name->service;
}

struct app_user;
struct app_conn;
struct app_upstream;
struct app_code;
struct apps {
    bool has_key;
    struct mac_key key;
    VEC(struct app_code *) codes;          // one-time codes that were not used
    VEC(struct app_conn *) conns;          // browsers and other clients
    VEC(struct app_upstream *) upstreams;  // connections to programs, idle ones too
    struct strmap users;                   // name → struct app_user
    struct buf answer;                     // of the answer that is passed on now; empty in between
    struct buf chunks;                     // of the request
    bool users_changed;
};
void apps_open(struct controller *c);
void apps_close(struct controller *c);
void apps_tick(struct controller *c);
void apps_turn(struct controller *c);           // before the loop waits
void apps_users_changed(struct controller *c);  // somebody's look-up has an answer
extern const struct net_takeover apps_takeover;

// --- names (app_address.c) ---

bool app_owns_host(const struct controller *c, const struct net_peer *peer, const char *host);
// The program that the host stands for. False: none; such a name was not made here.
bool app_of_host(struct controller *c, const struct net_peer *peer, const char *host, struct app_name *out);
bool app_of_label(struct controller *c, const char *label, size_t len, struct app_name *out);
int app_label(struct controller *c, const struct app_name *name, char out[static APP_LABEL_MAX + 1],
              struct error *e);
// "http://LABEL.localhost:6821" or "https://LABEL.apps.lab.example", as whoever comes this way reaches it.
int app_url(struct controller *c, enum net_peer_kind way, const struct app_name *name, struct buf *out,
            struct error *e);
void app_portal_url(const struct controller *c, enum net_peer_kind way, struct buf *out);
struct mac_key *app_key(struct controller *c, struct error *e);  // NULL: it cannot be read or made
// Addresses of a job's HTTP ports, in the arena.
struct answer_job;
void app_job_ports(struct controller *c, const struct job_record *r, struct arena *a, struct answer_job *out);
void app_job_urls(struct controller *c, enum net_peer_kind way, uint64_t job, uint32_t attempt,
                  const struct spec *spec, struct arena *a, struct answer_job *out);

// --- who comes (app_access.c) ---

// A visitor, known by the cookie of the program's host or by a token.
#define APP_SERVICE_TOKEN "Bearer aqs1."
struct app_visitor {
    struct actor actor;
    const char *caller;            // of a token of a service: what it is for; else NULL
    char token[TOKEN_ID_HEX + 1];  // likewise its id; else ""
    bool by_token;
    char session[TOKEN_ID_HEX + 1];  // the login it stands for; "": a token
    char pass[NET_PASS_MAX + 1];
    int64_t issued_s;   // of the cookie
    uint32_t delay_ms;  // of a wrong token: when it is answered
};
enum app_verdict {
    APP_LET_IN,
    APP_WAITS,    // until the user is looked up
    APP_UNKNOWN,  // must go by the portal
    APP_LOCKED,   // too many wrong tokens came from there
    APP_REFUSED,  // is known, and may not: the error says why
    APP_FOREIGN,  // the browser says that a page of another host asks
};
enum app_verdict app_visitor_of(struct controller *c, const struct net_peer *peer,
                                const struct http_message *m, const struct app_name *name, struct arena *a,
                                struct app_visitor *out, struct error *e);
bool app_service_token_holds(struct controller *c, const struct app_name *name, const char *token);
bool app_may_use(struct controller *c, const struct actor *actor, const struct app_name *name);
// The port that is meant: the one given, or the first of the job that speaks HTTP.
int app_choose_port(struct controller *c, uint64_t job, uint64_t given, uint32_t *out, struct error *e);
bool app_session_may_use(struct controller *c, const char *session, const struct app_name *name);
// The same by a token, as the header Authorization gives it.
bool app_token_may_use(struct controller *c, const char *header, const struct app_name *name);
// The value of a Set-Cookie header that lets the login in for a while.
void app_cookie(struct controller *c, const struct net_peer *peer, const struct app_name *name,
                const char *session, struct buf *out);
// Of the browser that is sent to the portal: what comes back must carry it. Made if it has none.
bool app_state(const struct net_peer *peer, const struct http_message *m, char out[static APP_STATE_HEX + 1]);
void app_state_cookie(const struct net_peer *peer, const char *state, struct buf *out);
// Takes a one-time code: the login that it lets in. -EINPROGRESS: the user is looked up; come again.
int app_take_code(struct controller *c, const struct net_peer *peer, const struct http_message *m,
                  const struct app_name *name, const char *code, char session[static TOKEN_ID_HEX + 1],
                  struct error *e);
void app_codes_done(struct controller *c);
bool app_path_ok(const char *to);  // a path of the same host, to be sent to

// --- pages (app_page.c) ---

// A whole answer: a page for browsers, a problem document for others. reload_s 0: it does not reload itself.
struct app_page {
    int status;
    const char *title, *text;
    uint32_t reload_s;
    const char *link, *link_text;  // may be NULL
    const char *extra;             // header lines, each ended by CRLF; may be NULL
};
void app_page_write(const struct app_page *p, const struct http_message *request, bool keep_alive,
                    struct buf *out);
