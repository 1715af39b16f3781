// What users and administrators keep beside jobs: shares of ports, volumes, services, alerts, accounts, sessions, saved
// texts and secrets. Included by state.h, for the same readers.
#pragma once
#include "core/core.h"

struct core_job;

// share.c
void core_apply_share(struct core *c, const struct event *e);
bool core_share_loads(const struct event_share *s);
// volume.c
void core_apply_volume(struct core *c, const struct event *e);
bool core_volume_loads(const struct event_volume *v);
void core_volumes_free(struct core *c);
// Names in full what the job asks for, and checks that its user may.
int core_volumes_resolve(const struct core *c, struct spec *s, struct arena *a, struct error *e);
int core_volumes_launch(const struct core *c, const struct spec *s, struct arena *a,
                        struct message_launch *out, struct error *e);
uint32_t core_volumes_of_project(const struct core *c, const char *project);
void core_shares_free(struct core *c);

// service_jobs.c: one replica as a job with `replicas` workers.
void core_service_spec(const struct event_service *s, const struct service_revision *r, uint32_t replicas,
                       struct arena *a, struct spec *out);
// service.c
void core_apply_service(struct core *c, const struct event *e);
void core_apply_service_token(struct core *c, const struct event *e);
bool core_service_loads(const struct event_service *s);
bool core_service_token_loads(const struct event_service_token *t);
void core_services_free(struct core *c);
void core_service_job_linked(struct core *c, const struct core_job *j);
void core_service_jobs_done(struct core *c);
void core_service_job_gone(struct core *c, const struct core_job *j, int64_t at_ms);

// provider.c
void core_apply_provider(struct core *c, const struct event *e);
void core_apply_wanted(struct core *c, const struct event *e);
bool core_provider_loads(const struct node_provider *p);
bool core_wanted_loads(const struct wanted_node *n);
void core_providers_free(struct core *c);
struct provider_entry *core_provider_entry(const struct core *c, const char *name);
void core_wanted_emit(struct core *c, struct wanted_node *n, int64_t now_ms);
void core_wanted_hello(struct core *c, const char *node, int64_t now_ms);  // its agent is there, and it may get jobs
void core_provider_emit(struct core *c, const struct node_provider *p, int64_t now_ms);
void core_provider_shapes_to_world(struct core *c);

// alert.c
void core_apply_alert_rule(struct core *c, const struct event *e);
void core_apply_alert(struct core *c, const struct event *e);
bool core_alert_loads(const struct event_alert *a);
void core_alerts_free(struct core *c);

// user.c
void core_apply_user(struct core *c, const struct event *e);
bool core_account_loads(const struct core *c, const struct user_account *u);  // whether it can be applied
void core_users_free(struct core *c);
bool core_users_add_up(const struct core *c);

// login_session.c
void core_apply_session(struct core *c, const struct event *e);
void core_apply_grant(struct core *c, const struct event_user_grant *b);
void core_grants_free(struct core *c);
void core_grants_expire(struct core *c, int64_t now_ms);
bool core_grant_loads(const struct event_user_grant *g);
void core_sessions_free(struct core *c);
// Those of one account, but one.
void core_sessions_of_account_end(struct core *c, const char *account, const char *but, const char *by,
                                  int64_t now_ms);

// saved.c
bool core_saved_loads(const struct event_saved *s);
void core_apply_saved(struct core *c, const struct event *e);
void core_saved_free(struct core *c);
void core_saved_of_project_delete(struct core *c, const char *project, const char *by, int64_t now_ms);
bool core_saved_adds_up(const struct core *c);

// secret.c
void core_apply_secret(struct core *c, const struct event *e);
void core_secrets_free(struct core *c);
// One for each owner who has deleted some: the owner and the highest version.
void core_each_deleted_secret(const struct core *c, bool (*fn)(void *ctx, const struct event_secret *s),
                              void *ctx);
void core_secrets_of_project_delete(struct core *c, const char *project, const char *by, int64_t now_ms);
int core_secrets_check(const struct core *c, const struct spec *s, struct error *e);  // that all it names exist
bool core_secrets_add_up(const struct core *c);
