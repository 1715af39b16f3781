// Owns the cluster's own history as a trace: finished jobs and machines in the CSV forms that the
// simulator reads, so that a policy can be tried on what really happened here.
#include "base/text.h"
#include "list_stream.h"

void api_trace_head(struct listing *l) {
    buf_adds(&l->out, "submit_s,run_s,limit_s,user,project,nodes,tasks,cpus_per_task,memory_mib,gpu_milli,"
                      "gpu_model,class,workers_max\n");
}

// Of an elastic job: what its minimum asks for. Its workers have no rows of their own then.
static void add_minimum(const struct spec *s, uint64_t *memory, uint64_t *gpus) {
    uint64_t cpus = s->cpus_per_task ? s->cpus_per_task : 1;
    uint64_t each = s->gpus_milli            ? s->gpus_milli
                    : s->gpus_per_node_milli ? s->gpus_per_node_milli
                                             : s->gpus_per_task_milli;
    *memory = s->workers_min * (s->memory_per_node_bytes  ? s->memory_per_node_bytes
                                : s->memory_per_gpu_bytes ? s->memory_per_gpu_bytes * (each / 1000)
                                                          : s->memory_per_cpu_bytes * cpus);
    *gpus = s->workers_min * each;
}

int api_trace_row(struct listing *l, const struct store_history *row) {
    struct job_record j;
    arena_reset(&l->scratch);
    if (!row->start_ms || schema_decode(&job_record_schema, row->data, row->len, &l->scratch, &j) < 0 || !j.spec)
        return 0;  // never ran: nothing to replay
    const struct spec *s = j.spec;
    uint64_t memory = 0, gpus = 0;
    // A row has one shape: of a job with several kinds of workers each worker is a job of the trace.
    if (j.job ? !s->component : s->components.len)
        return 0;
    bool elastic = !j.job && s->workers_max;
    for (uint32_t i = 0; i < j.parts.len; i++) {
        memory += j.parts.at[i].memory_bytes;
        for (uint32_t g = 0; g < j.parts.at[i].gpus.len; g++)
            gpus += j.parts.at[i].gpus.at[g].milli;
    }
    if (elastic)
        add_minimum(s, &memory, &gpus);
    else if (j.parts.len)
        memory /= j.parts.len;  // the simulator reads memory per node and GPUs per task
    uint64_t tasks = elastic ? s->workers_min : s->tasks;
    gpus /= tasks ? tasks : 1;
    int64_t run_s = (j.end_ms - j.start_ms + 999) / 1000;
    buf_addf(&l->out, "%lld,%lld,%u,%s,%s,%u,%u,%u,%llu,%llu,%s,%s,%u\n", (long long)j.submit_ms / 1000,
             (long long)(run_s > 0 ? run_s : 1), s->time_limit_s, s->user, s->project,
             elastic       ? 0
             : j.parts.len ? j.parts.len
                           : 1,
             elastic    ? s->workers_min
             : s->tasks ? s->tasks
                        : 1,
             s->cpus_per_task ? s->cpus_per_task : 1, (unsigned long long)(memory >> 20),
             (unsigned long long)gpus, s->gpu_model ? s->gpu_model : "",
             schema_word_name(job_class_words, s->class), elastic ? s->workers_max : 0);
    return 0;
}

static bool add_node(void *ctx, const struct node_view *v) {
    struct buf *out = ctx;
    const struct node *n = v->node;
    buf_addf(out, "%s,%llu,%llu,%u,%s\n", n->name, (unsigned long long)n->cpus * 1000,
             (unsigned long long)(n->memory_bytes >> 20), n->gpus.len,
             n->gpus.len ? n->gpus.at[0].model : "");
    return true;
}

void api_trace(struct api_call *call) {
    cleanup_buf struct buf out = {0};
    if (!((const struct query_trace *)call->query)->nodes) {
        listing_stream_begin(call, LIST_TRACE);
        return;
    }
    buf_adds(&out, "sn,cpu_milli,memory_mib,gpu,model\n");
    core_each_node(call->controller->core, add_node, &out);
    net_reply(call->req, 200, "text/csv; charset=utf-8", out.data, out.len);
}
