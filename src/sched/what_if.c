// Saves and restores what a pass leaves in the world beside caches: reasons, marks of preemptors, jobs moved to
// their queue because their begin time has come, and which pass was the latest.
#include "what_if.h"

void sched_question_begin(struct sched_question *q, struct world *w, struct world_job *job, int64_t now_ms) {
    *q = (struct sched_question){
        .w = w, .last_pass = w->last_pass, .releases = w->jobs.releases,
        .job = job, .since_pass = job ? job->since_pass : 0};
    for (uint32_t i = 0; i < w->jobs.with_reason.len; i++) {
        const struct world_job *j = world_find(w, w->jobs.with_reason.at[i]);
        if (j)
            vec_push(&q->reasons, (struct saved_reason){j->id, j->reason});
    }
    for (uint32_t i = 0; i < w->jobs.preemptors.len; i++) {
        const struct world_job *j = world_find(w, w->jobs.preemptors.at[i]);
        vec_push(&q->preemptors, w->jobs.preemptors.at[i]);
        if (j && j->preemptor)
            vec_push(&q->marked, j->id);
    }
    for (uint32_t i = 0; i < w->jobs.promised.len; i++) {
        const struct world_promise *m = w->jobs.promised.at[i]->promise;
        vec_push(&q->promises, ((struct saved_promise){w->jobs.promised.at[i]->id,
                                                       xmemdup(m, sizeof *m + m->count * sizeof *m->nodes)}));
    }
    for (uint32_t i = 0; i < w->jobs.begin_heap.len; i++)
        if (w->jobs.begin_heap.at[i]->begin_ms <= now_ms)
            vec_push(&q->begun, w->jobs.begin_heap.at[i]->id);
}

static void restore_reasons(struct sched_question *q) {
    struct world *w = q->w;
    for (uint32_t i = 0; i < w->jobs.with_reason.len; i++) {
        struct world_job *j = world_find(w, w->jobs.with_reason.at[i]);
        if (j)
            j->reason = SCHED_REASON_NONE;
    }
    vec_clear(&w->jobs.with_reason);
    for (uint32_t i = 0; i < q->reasons.len; i++) {
        world_find(w, q->reasons.at[i].job)->reason = q->reasons.at[i].reason;
        vec_push(&w->jobs.with_reason, q->reasons.at[i].job);
    }
}

void sched_question_end(struct sched_question *q) {
    struct world *w = q->w;
    restore_reasons(q);
    vec_clear(&w->jobs.preemptors);
    for (uint32_t i = 0; i < q->preemptors.len; i++)
        vec_push(&w->jobs.preemptors, q->preemptors.at[i]);
    for (uint32_t i = 0; i < q->marked.len; i++)
        world_find(w, q->marked.at[i])->preemptor = true;
    for (uint32_t i = 0; i < q->begun.len; i++) {
        struct world_job *j = world_find(w, q->begun.at[i]);
        if (j->queued)
            sched_job_unbegin(w, j);
    }
    for (uint32_t i = 0; i < q->promises.len; i++) {
        struct world_promise *m = q->promises.at[i].promise;
        world_job_promise(w, q->promises.at[i].job, m->start_ms, m->partition, m->nodes, m->count);
        world_find(w, q->promises.at[i].job)->promise->searched = m->searched;
        free(m);
    }
    w->jobs.releases = q->releases;
    if (q->job)
        q->job->since_pass = q->since_pass;
    // A number of its own, so that nothing cached by the question's passes counts as cached by the latest one.
    uint64_t number = w->last_pass.number + 1;
    w->last_pass = q->last_pass;
    w->last_pass.number = number;
    vec_done(&q->reasons);
    vec_done(&q->preemptors);
    vec_done(&q->marked);
    vec_done(&q->begun);
    vec_done(&q->promises);
}
