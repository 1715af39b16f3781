// Services in the simulator: they are made, updated, become ready, are rolled back and deleted, and tokens of theirs
// are made and revoked, while the controller is killed. What is kept is compared with the journal as all else is
// (check_equal); here are the rules for what it says: who takes requests, and who is let in.
#include <stdio.h>

#include "base/text.h"
#include "fault_sim.h"
#include "state.h"

static const struct actor admin = {"root", 0, 0, true};

static void give(struct sim *s, enum command_type type, const void *body) {
    struct command m = {type, body};
    struct error e = {0};
    core_command(s->head->core, &admin, NULL, &m, head_wall_ms(s), NULL, &e);  // what is refused is refused
}

// What follows from the state: as the controller does when replicas are ready, or have answered what they had.
static void follow(struct sim *s, const char *name, uint32_t pick) {
    const struct event_service *v = core_service(s->head->core, "root", name);
    struct command_service m = {.user = "root", .name = name};
    for (uint32_t i = 0; v && i < v->revisions.len; i++) {
        const struct service_revision *r = &v->revisions.at[i];
        m.revision = r->number;
        m.replicas = pick % 5;
        if (pick % 3 == 0 && r->state == REVISION_STARTING) {
            give(s, COMMAND_SERVICE_READY, &m);
            return;
        }
        if (pick % 3 == 1 && r->state == REVISION_RETIRING) {
            give(s, COMMAND_SERVICE_RETIRED, &m);
            return;
        }
        if (pick % 3 == 2 && r->state == REVISION_SERVING) {
            give(s, COMMAND_SERVICE_SCALE, &m);
            return;
        }
    }
}

void service_command(struct sim *s, const struct item *it) {
    const char *argv[] = {"model"};
    char name[24], id[24];
    char script_id[33];
    const char script[] = JOB_SCRIPT;
    pipeline_text_id(script, sizeof script - 1, script_id);
    struct spec spec = {.name = "x",
                        .workdir = "/",
                        .argv = {argv, 1},
                        .cpus_per_task = 1,
                        .memory_per_node_bytes = 64 << 20,
                        .script_id = script_id,
                        .script_bytes = sizeof script - 1};
    struct service_revision program = {.spec = &spec, .script = script};
    snprintf(name, sizeof name, "model-%u", it->pick % 2);
    snprintf(id, sizeof id, "%016u", it->pick % 3);
    struct event_service service = {.name = name,
                                    .replicas_min = it->amount % 3,
                                    .replicas_max = 4,
                                    .canary = it->amount % 4 == 3 ? 10 : 0,
                                    .revisions = {&program, 1}};
    struct command_service m = {.user = "root", .name = name};
    struct command_service_token token = {.user = "root", .name = name, .id = id, .hash = "hash"};
    give(s, COMMAND_SERVICE_CREATE, &service);
    give(s, COMMAND_SERVICE_TOKEN_SET, &token);
    switch (it->amount % 9) {
    case 0:
    case 1: give(s, COMMAND_SERVICE_UPDATE, &service); break;
    case 2: give(s, COMMAND_SERVICE_PROMOTE, &m); break;
    case 3: give(s, COMMAND_SERVICE_ROLLBACK, &m); break;
    case 4:
    case 5: give(s, COMMAND_SERVICE_TOKEN_REVOKE, &token); break;
    case 6:
        if (it->pick % 4 == 0)
            give(s, COMMAND_SERVICE_DELETE, &m);
        break;
    default: break;
    }
    follow(s, name, it->pick);
}

// A revision has one job. Those that are being ended, or run since before a restore, do not count.
static void one_job_each(struct sim *s) {
    const struct core *c = s->head->core;
    for (uint32_t i = 0; i < c->order.len; i++) {
        const struct core_job *j = c->order.at[i].job;
        bool counts = j && core_is_group(j) && core_group_of(j)->service &&
                      !(j->run && (j->run->ending || j->run->adopted));
        uint64_t job =
            counts ? core_service_job(c, core_group_of(j)->service, core_group_of(j)->revision) : 0;
        if (counts && !s->restored && job != j->id)
            sim_fail(s, "jobs %llu and %llu are of one revision of a service", (unsigned long long)j->id,
                     (unsigned long long)job);
    }
}

// Requests are shared out completely and to revisions that serve alone; only the newest one may be starting.
void service_rules(struct sim *s) {
    const struct event_service *v = NULL;
    one_job_each(s);
    while ((v = core_service_next(s->head->core, v))) {
        uint32_t weights = 0, serving = 0;
        for (uint32_t i = 0; i < v->revisions.len; i++) {
            const struct service_revision *r = &v->revisions.at[i];
            weights += r->weight;
            serving += r->state == REVISION_SERVING;
            if (r->state != REVISION_SERVING && r->weight)
                sim_fail(s, "revision %u of service %s takes requests and is %s", r->number, v->name,
                         service_revision_words[r->state]);
            if (r->state == REVISION_STARTING && i + 1 < v->revisions.len)
                sim_fail(s, "revision %u of service %s starts after it was replaced", r->number, v->name);
        }
        if (serving && weights != 100)
            sim_fail(s, "service %s gives %u of 100 requests to its revisions", v->name, weights);
    }
}

static void keep_script(void *ctx, uint64_t job, const struct event_service *v, uint32_t revision) {
    struct sim *s = ctx;
    const char script[] = JOB_SCRIPT;
    pipeline_keep_text(s->head->pipeline, job, script, sizeof script - 1);
}

// As the controller does before each commit: jobs become what services want.
void service_reconcile(struct sim *s) {
    core_services_reconcile(s->head->core, head_wall_ms(s), keep_script, s);
}
