// The client side of the HTTP API: finds the controller, asks, and turns its errors into ours.
#pragma once
#include "base/json.h"
#include "cli/command/command.h"
#include "net/client.h"

enum { CLIENT_PORT_DEFAULT = 6820, CLIENT_TOKEN_MAX = 4096 };

struct client;

struct reply {
    int status;
    const struct json *json;  // NULL when the body is none
    const char *text;         // the body, NUL-terminated
    size_t len;
};

// Finds and connects: $ACEQUIA_HOST, this user's own cluster, the machine's, the configured one.
int client_open(struct cli *c, struct client **out);
// To be called before a command divides into processes of which one opens a client: where that needs TLS, the whole
// command is begun anew by the program that has it, and only the whole command can be.
int client_before_fork(struct cli *c);
struct client *client_free(struct client *k);
// Connects to this server, or to the one of several (addresses.h) that leads, whose authority must have this
// fingerprint; "": any, whose fingerprint is left there, and to whom nothing secret may be said. Needs c->tls. `token`
// may be NULL.
enum { CLIENT_FINGERPRINT_MAX = 65 };
int client_open_at(struct cli *c, const char *server, char fingerprint[CLIENT_FINGERPRINT_MAX],
                   const char *token, struct client **out);
void client_server_text(const struct client *k, struct buf *out);  // all addresses, in normal form
// Results live in the arena of the command. A status of 400 and more is an error with the
// controller's sentence. `body` may be NULL.
int client_call(struct client *k, const char *method, const char *target, const struct buf *body, struct reply *out);
int client_call_timeout(struct client *k, const char *method, const char *target, const struct buf *body,
                        int timeout_ms, struct reply *out);
// The body goes to `fn` as it arrives. timeout_ms: of each wait; negative: for ever.
int client_stream(struct client *k, const char *target, int timeout_ms, http_body_fn fn, void *arg);
int client_to_output(void *arg, const char *data, size_t len);  // for client_stream: standard output
int client_errno(const char *word, int otherwise);  // of an error's "code"
// This machine's address as the controller sees it; beside the controller, one that others can reach.
enum { CLIENT_ADDRESS_MAX = 64 };
void client_own_address(const struct client *k, char out[CLIENT_ADDRESS_MAX]);
// A WebSocket; the client stays the owner.
int client_socket(struct client *k, const char *target, struct http_client **out);

// Builds "path?a=b&c=d"; values are encoded, NULL ones left out.
struct query {
    struct buf text;
    bool has;
};
void client_query_begin(struct query *q, const char *path);
void client_query_add(struct query *q, const char *key, const char *value);
void client_query_addf(struct query *q, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void client_query_done(struct query *q);
#define cleanup_query __attribute__((__cleanup__(client_query_done)))

// One call with the connection's whole life: prints the error; 0 or the exit status.
int client_get(struct cli *c, const char *target, struct reply *out);
int client_post(struct cli *c, const char *target, const struct buf *body, struct reply *out);
int client_request(struct cli *c, const char *method, const char *target, const struct buf *body, struct reply *out);
// DELETE of each further argument of the command below `route`; says "NOUN ARGUMENT DONE" for each.
int client_delete_each(struct cli *c, const char *route, const char *noun, const char *done);
