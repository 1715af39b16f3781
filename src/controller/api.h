// The HTTP API: one table of routes, each with the permission it needs (api.c); handlers in the
// api_*.c files. Who calls is decided by the channel: peer credentials of the unix socket, or a
// token over TLS.
#pragma once
#include "answers.h"
#include "base/json.h"
#include "controller.h"
#include "job_sight.h"
#include "requests.h"
#include "session_messages.h"

enum permission {
    ALLOW_ANYBODY = 1,  // no identity needed: the request proves itself (joining) or says nothing
    ALLOW_USER,         // any user; the handler shows only what they may see
    ALLOW_JOB,          // may see the job's private parts: its user, administrators, sharing projects
    ALLOW_OWNER,        // may act as the job's user: that user and administrators only
    ALLOW_OPERATOR,
    ALLOW_ADMIN,
    ALLOW_AGENT,  // checked in agents_upgrade
};

// What a route answers with.
enum route_form {
    FORM_JSON,       // one object, `answer`
    FORM_LIST,       // a list of them
    FORM_WAIT,       // 200 or 202 with `answer`
    FORM_RPC,        // `answer`, or 202 with nothing when the message wants none
    FORM_SUBMIT,     // one result, or a list of them when a list was sent
    FORM_JOBS,       // a page of jobs, or lines of JSON
    FORM_EVENTS,     // `answer`, or server-sent events
    FORM_LIVE,       // server-sent events
    FORM_ANALYTICS,  // `answer`, or CSV
    FORM_SERIES,     // names, or points
    FORM_TEXT,
    FORM_BYTES,  // as a job wrote them
    FORM_FILE,   // as it is in a file, or a part of it
    FORM_ZIP,
    FORM_CSV,
    FORM_METRICS,
    FORM_OPENAPI,
    FORM_SOCKET,  // becomes a WebSocket
};

struct api_call {
    struct controller *controller;
    struct net_request *req;
    struct actor actor;
    uint64_t job;        // {job} of the path
    enum job_sight sight;  // what the actor may see of it
    const char *name;    // {name} of the path, decoded
    void *query, *body;  // as the route's tables describe them; NULL: it has none
    struct arena arena;  // freed when the handler returns
};

struct route {
    const char *method, *path;
    enum permission permission;
    void (*handler)(struct api_call *call);
    const char *help;
    const struct schema *query, *body, *answer;
    bool body_optional;
    bool body_is_bytes;  // not JSON
    bool reads_body;     // the handler reads the body itself, bit by bit
    bool
        for_all_scopes;  // changes nothing but one's own login, or nothing at all: needs no more than reading
    int status;          // of success; 0: 200
    enum route_form form;
    // FORM_SOCKET: the client's first message (NULL: it sends none), its later ones, and what it is sent.
    const struct schema *first, *later;
    const struct schema *const *sent;  // ends with NULL
};
extern const struct route api_routes[];
extern const size_t api_route_count;
const struct route *api_route_find(const char *method, const char *path);  // NULL: there is none

#define API_NOT_AUTHENTICATED \
    "Not authenticated: the token is missing, expired or revoked. Give a valid token, or use the controller's socket"
void api_request(struct net_request *req, void *user);
void api_dispatch(struct controller *c, struct net_request *req);  // to its handler
bool api_needs_no_user(const struct net_request *req);  // its route is for agents, or for everybody
void api_users_changed(struct controller *c);  // somebody's look-up has an answer, or takes too long
void api_end_tokens(struct controller *c);
void api_replied(const struct net_request *req, int status, bool streams, void *user);  // counts

// Answers. Errors are problem documents (problem.c).
void api_error(struct net_request *req, int status, const char *code, const char *message);
const char *api_problem_type(
    const struct net_request *req);  // the content type of errors that this client reads
void api_no_job(struct net_request *req, uint64_t id);
void api_fail(struct net_request *req, const struct error *e);  // status by errno
void api_json(struct net_request *req, int status, struct buf *body);
void api_when_committed(struct api_call *call, int status, struct buf *body);  // takes the body
struct answer_error *api_error_answer(struct arena *a, const struct error *e);
void api_answer_to(struct net_request *req, int status, const struct schema *schema, const void *value);
void api_answer(struct api_call *call, const struct schema *schema, const void *value);  // 200
int api_give(struct api_call *call, enum command_type type,
             const void *body);  // carries out a command that has no result, and answers
void api_answer_committed(struct api_call *call, int status, const struct schema *schema, const void *value);

// Text messages of WebSocket sessions.
int api_session_read(const char *data, size_t len, const struct schema *schema, struct arena *a, void *out,
                     struct error *e);
void api_session_send(struct net_ws *ws, const struct schema *schema, const void *value);
void api_session_error(struct net_ws *ws, const struct error *e);

// Versions (api_version.c). False: the request names another version, and was refused.
void api_version_tag(struct net_request *req, uint64_t version);  // the header ETag
bool api_job_version_holds(struct api_call *call, const struct request_action *q);
// A draft, template or view: its version is the time it was set. `now` NULL: there is none.
bool api_saved_version_holds(struct api_call *call, const char *word, const struct event_saved *now);
bool api_entity_version_holds(struct api_call *call, enum entity_kind kind, const void *now);
// What differs: "quota: 4 -> 8, members: eva -> eva, joan". `before` NULL: it is new.
void api_entity_changes(const char *section, const void *before, const void *after, struct arena *a,
                        struct buf *out);

// Questions about the request.
size_t api_document_max(const struct controller *c);  // bytes that are read in one go: all but lists of jobs
int api_check_storage(struct controller *c, struct error *e);       // whether new work can be kept
// Checks script and environment of a job, and sets their ids in its spec.
int api_text_ids(struct api_call *call, struct spec *spec, const char *script, const char *const *environment,
                 uint32_t environment_len, struct error *e);
// 0, -EACCES, or what base/users.h says when the user is not known yet. `again`: the same request was
// identified before.
int api_actor_of(struct controller *c, struct net_request *req, bool again, struct arena *a, struct actor *out,
                 struct error *e);

// Whether there is a Unix user of this name: a slip in it would be found out late. -EINPROGRESS: the request comes
// again when that is known.
int api_need_user(struct api_call *call, const char *field, const char *user, struct error *e);
// Who somebody is that logged in; -EACCES: they may not. Without a Unix user they may only look.
int api_actor_of_person(struct controller *c, const char *identity, const char *claimed, bool again,
                        struct arena *a, struct actor *out, struct error *e);
// By a token; its id is left in `id`.
int api_actor_of_token(struct controller *c, const char *header, bool again, struct arena *a,
                       struct actor *out, char *id, struct error *e);

bool query_throttle_begin(struct api_call *call);  // false: it waits for its turn, or was refused
void query_throttle_end(struct controller *c);

// Jobs.
// "12", "12_3"; 0: none. What the viewer may not know of is none.
uint64_t api_parse_job(struct controller *c, const struct actor *viewer, const char *text, struct error *e);
int api_record(struct controller *c, uint64_t id, struct arena *a, struct job_record *out, bool *live);
void api_reply_record(struct controller *c, struct net_request *req, uint64_t id, int status);
// GPUs right now (api_gpus.c): of one node; of all, with a note on those out of use; why a job's GPU is.
void api_gpus_now(struct controller *c, const struct actor *viewer, const struct node_view *v,
                  struct arena *a, struct answer_node_status *out);
void api_gpu_counts(struct controller *c, struct answer_gpu_counts *out, struct buf *warning);
const char *api_sick_gpu(const struct controller *c, const struct job_record *r, char *out, size_t size);
enum answer_node_state api_node_state(const struct node_view *v);
const char *api_launch_trouble(const struct node_view *v, struct arena *a);  // NULL: none
void api_fill_shares(struct core *core, struct arena *a, struct answer_shares *out);
// Where a pending job's turn comes from; NULL: it does not wait.
struct answer_order *api_order(struct controller *c, uint64_t id, int64_t now, struct arena *a);
bool api_owns(struct controller *c, const struct actor *actor, uint64_t id);
bool api_may_see(struct controller *c, const struct actor *actor, uint64_t id);
void api_hide_private(struct spec *s);  // what is nobody else's business
void api_label(const struct job_record *r, char *out, size_t size);
int api_submit_one(struct api_call *call, const struct request_submit *q, struct command_result *out,
                   struct error *e);
void api_event_json(const struct store_event *e, enum job_sight sight, struct json_writer *w);

// Handlers, in the order of the table.
void api_submit(struct api_call *call);
void api_list(struct api_call *call);
void api_get(struct api_call *call);
void api_array(struct api_call *call);
// Whose output is meant, and where commands run: of an elastic job its first worker that runs; else the job itself.
uint64_t api_first_worker(struct controller *c, uint64_t id);
void api_resize(struct api_call *call);
void api_rank_workers(struct api_call *call);
void api_script(struct api_call *call);
void api_environment(struct api_call *call);
void api_action(struct api_call *call);
void api_job_events(struct api_call *call);
void api_wait(struct api_call *call);
void api_logs(struct api_call *call);
void api_run(struct api_call *call);
void api_exec(struct api_call *call);
void api_connect(struct api_call *call);
void api_attach(struct api_call *call);
void api_step(struct api_call *call);
void api_allocate(struct api_call *call);
void api_why(struct api_call *call);
void api_when_workers(struct api_call *call);
void api_extension(struct api_call *call);
void api_node_processes(struct api_call *call);
void api_node_log(struct api_call *call);
void api_controller_log(struct api_call *call);
void api_alerts(struct api_call *call);
void api_alert_set(struct api_call *call);
void api_alert_delete(struct api_call *call);
void api_alert_ack(struct api_call *call);
void api_when(struct api_call *call);
void api_replay(struct api_call *call);
void api_trace(struct api_call *call);
void api_shares(struct api_call *call);
void api_overview(struct api_call *call);
void api_live(struct api_call *call);
void api_mcp(struct api_call *call);
void api_at(struct api_call *call);
void api_backups(struct api_call *call);
void api_backup_make(struct api_call *call);
void api_analytics(struct api_call *call);
void api_table(struct api_call *call);
void api_nodes(struct api_call *call);
void api_node(struct api_call *call);
void api_node_action(struct api_call *call);
void api_node_remove(struct api_call *call);
void api_reload(struct api_call *call);
void api_hand_over(struct api_call *call);
void api_audit(struct api_call *call);
void api_secret_set(struct api_call *call);
void api_image_list(struct api_call *call);
void api_providers(struct api_call *call);
void api_provider_set(struct api_call *call);
void api_provider_remove(struct api_call *call);
void api_volume_list(struct api_call *call);
void api_volume_create(struct api_call *call);
void api_volume_get(struct api_call *call);
void api_volume_share(struct api_call *call);
void api_volume_delete(struct api_call *call);
void api_secret_list(struct api_call *call);
void api_secret_delete(struct api_call *call);
void api_upgrade(struct api_call *call);
void api_upgrade_finish(struct api_call *call);
const char *api_upgrade_warning(const struct core *core, struct arena *a);  // NULL: none
const char *api_restore_warning(const struct core *core, int64_t now, struct arena *a);  // NULL: none
void api_status(struct api_call *call);
void api_events(struct api_call *call);
void api_metrics(struct api_call *call);
void api_efficiency(struct api_call *call);
void api_series(struct api_call *call);
void api_token_create(struct api_call *call);
void api_token_list(struct api_call *call);
void api_token_revoke(struct api_call *call);
void api_join(struct api_call *call);
void api_agent(struct api_call *call);
void api_drafts(struct api_call *call);
void api_draft(struct api_call *call);
void api_draft_set(struct api_call *call);
void api_draft_delete(struct api_call *call);
void api_templates(struct api_call *call);
void api_template(struct api_call *call);
void api_template_set(struct api_call *call);
void api_template_delete(struct api_call *call);
void api_views(struct api_call *call);
void api_apps(struct api_call *call);
void api_app_start(struct api_call *call);
void apps_site_done(struct controller *c);
uint64_t apps_site_reads(const struct controller *c);  // of the folder of the site's apps, so far
void api_view_set(struct api_call *call);
void api_view_delete(struct api_call *call);
void api_login_methods(struct api_call *call);
void api_login(struct api_call *call);
void api_login_code(struct api_call *call);
void api_oidc_begin(struct api_call *call);
void api_oidc_finish(struct api_call *call);
void api_device_begin(struct api_call *call);
void api_device_token(struct api_call *call);
void api_device_show(struct api_call *call);
void api_device_answer(struct api_call *call);
void api_portal_link(struct api_call *call);
void api_logout(struct api_call *call);
void api_me(struct api_call *call);
void api_sessions(struct api_call *call);
void api_session_end(struct api_call *call);
void api_users(struct api_call *call);
void api_user_set(struct api_call *call);
void api_user_remove(struct api_call *call);
void api_user_password(struct api_call *call);
void api_app_authorize(struct api_call *call);
void api_app_open(struct api_call *call);
void api_share_set(struct api_call *call);
void api_share_end(struct api_call *call);
void api_shares_list(struct api_call *call);
void api_services_list(struct api_call *call);
void api_service_create(struct api_call *call);
void api_service_get(struct api_call *call);
void api_service_update(struct api_call *call);
void api_service_delete(struct api_call *call);
void api_service_token_create(struct api_call *call);
void api_service_token_list(struct api_call *call);
void api_service_token_revoke(struct api_call *call);
void api_files(struct api_call *call);
void api_file_space(struct api_call *call);
void api_file_content(struct api_call *call);
void api_file_write(struct api_call *call);
void api_file_remove(struct api_call *call);
void api_file_zip(struct api_call *call);
void api_file_folder(struct api_call *call);
void api_file_move(struct api_call *call);
void api_file_copy(struct api_call *call);
void api_policy(struct api_call *call);
void api_policy_set(struct api_call *call);
void api_policy_trial(struct api_call *call);
void api_entities(struct api_call *call);
void api_entity(struct api_call *call);
void api_entity_set(struct api_call *call);
void api_entity_delete(struct api_call *call);
void api_routes_list(struct api_call *call);
void api_openapi(struct api_call *call);

void api_openapi_write(struct buf *out);  // the OpenAPI document
