// Requests: interning by canonical bytes, and deriving what placement and sharing work with (struct sched_demand).
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "fit_class.h"
#include "world_state.h"

const struct sched_request *sched_request_asked(const struct world_request *r) {
    return &r->asked;
}

uint32_t sched_request_tasks(const struct world_request *r) {
    uint32_t sum = r->demand.tasks;
    for (uint32_t i = 0; i < r->parts.len; i++)
        sum += r->parts.at[i]->demand.tasks;
    return sum;
}

uint32_t sched_request_cpus(const struct world_request *r) {
    uint32_t sum = r->demand.tasks * r->demand.cpus_task;
    for (uint32_t i = 0; i < r->parts.len; i++)
        sum += r->parts.at[i]->demand.tasks * r->parts.at[i]->demand.cpus_task;
    return sum;
}

uint64_t sched_request_gpu_milli(const struct world_request *r) {
    return r->gpu_milli;
}

static void add_text(struct buf *b, const char *s) {
    buf_add(b, s ? s : "", s ? strlen(s) : 0);
    buf_add(b, s ? "\1" : "\0", 1);
}

static void add_ids(struct buf *b, const uint32_t *ids, uint32_t n) {
    buf_add(b, &n, sizeof n);
    if (n)
        buf_add(b, ids, n * sizeof *ids);
}

// Two jobs share a request when these bytes are the same; with 100,000 jobs of an array that is one request, which is
// checked and fitted once. A field that changes what a job may get and is missing here would give jobs the wrong
// one's place: it goes here as soon as it goes into struct sched_request.
static void encode(struct buf *b, const struct sched_request *q) {
    uint64_t fixed[] = {
        q->project,
        q->user,
        q->qos,
        q->partition,
        q->class,
        q->nodes_min,
        q->nodes_max,
        q->tasks,
        q->tasks_per_node,
        q->cpus_per_task,
        q->memory_per_node_bytes,
        q->memory_per_cpu_bytes,
        q->memory_per_gpu_bytes,
        q->gpu_milli_per_job,
        q->gpu_milli_per_node,
        q->gpu_milli_per_task,
        q->gpu_memory_bytes,
        q->exclusive,
        q->spread,
        q->same_group,
        (uint64_t)q->time_limit_ms,
        (uint64_t)q->time_min_ms,
        (uint64_t)q->min_runtime_ms,
        (uint64_t)q->deadline_ms,
        (uint64_t)q->priority,
        (uint64_t)q->nice,
        q->preemptible,
        q->feature_count,
    };
    buf_add(b, fixed, sizeof fixed);
    add_text(b, q->gpu_model);
    add_text(b, q->reservation);
    for (uint32_t i = 0; i < q->feature_count; i++)
        add_text(b, q->features[i]);
    add_ids(b, q->nodes_only, q->nodes_only_count);
    add_ids(b, q->nodes_except, q->nodes_except_count);
    if (q->also_count)
        add_ids(b, q->also, q->also_count);
    if (q->optional)
        add_text(b, "optional");
    if (q->license_count) {
        add_text(b, "licenses");
        buf_add(b, q->licenses, q->license_count * sizeof *q->licenses);
    }
    for (uint32_t i = 0; i < q->part_count; i++) {
        add_text(b, "part");
        encode(b, &q->parts[i]);
    }
}

static const uint32_t *copy_ids(const uint32_t *ids, uint32_t n) {
    return n ? xmemdup(ids, n * sizeof *ids) : NULL;
}

static struct world_request *request_new(const struct sched_request *asked, struct buf *code, uint64_t hash) {
    struct world_request *r = xcalloc(1, sizeof *r);
    r->asked = *asked;
    r->asked.gpu_model = asked->gpu_model ? xstrdup(asked->gpu_model) : NULL;
    r->asked.reservation = asked->reservation ? xstrdup(asked->reservation) : NULL;
    char **features = asked->feature_count ? xcalloc(asked->feature_count, sizeof *features) : NULL;
    for (uint32_t i = 0; i < asked->feature_count; i++)
        features[i] = xstrdup(asked->features[i]);
    r->asked.features = (const char *const *)features;
    r->asked.nodes_only = copy_ids(asked->nodes_only, asked->nodes_only_count);
    r->asked.nodes_except = copy_ids(asked->nodes_except, asked->nodes_except_count);
    r->asked.also = copy_ids(asked->also, asked->also_count);
    r->asked.licenses =
        asked->license_count ? xmemdup(asked->licenses, asked->license_count * sizeof *asked->licenses) : NULL;
    r->asked.parts = NULL;  // intern_with_parts
    r->code_len = (uint32_t)code->len;
    r->code = buf_take(code);
    r->hash = hash;
    return r;
}

static struct world_request *intern(struct world *w, const struct sched_request *asked,
                                    const struct world_request *choice, bool part) {
    cleanup_buf struct buf code = {0};
    encode(&code, asked);
    if (part)  // its time limit is that of the request it belongs to
        add_text(&code, "is a part");
    if (choice)
        buf_add(&code, choice->code, choice->code_len);
    uint64_t hash = hash_keyed(code.data, code.len);
    struct world_request *first = map_get(&w->requests.by_hash, hash);
    for (struct world_request *r = first; r; r = r->next)
        if (r->code_len == code.len && memcmp(r->code, code.data, code.len) == 0) {
            r->refs++;
            return r;
        }
    struct world_request *r = request_new(asked, &code, hash);
    r->choice = choice;
    r->next = first;
    r->refs = 1;
    map_put(&w->requests.by_hash, hash, r);
    sched_request_derive(w, r);
    w->requests.by_memory += r->demand.gpu_by_memory;
    return r;
}

static bool has_option(const struct world_request *r, const struct world_request *option) {
    for (uint32_t i = 0; i < r->options.len; i++)
        if (r->options.at[i] == option)
            return true;
    return false;
}

// Makes one option for each partition named. Options belong to one choice, so its jobs have the same order in all.
static void make_options(struct world *w, struct world_request *r) {
    for (uint32_t i = 0; i <= r->asked.also_count; i++) {
        struct sched_request one = r->asked;
        one.partition = i ? r->asked.also[i - 1] : r->asked.partition;
        one.also = NULL;
        one.also_count = 0;
        struct world_request *option = intern(w, &one, r, false);
        if (has_option(r, option)) {
            world_request_unref(w, option);  // named twice
            continue;
        }
        option->nth = (uint8_t)(r->options.len < OPTIONS_ORDERED ? r->options.len : OPTIONS_ORDERED);
        vec_push(&r->options, option);
    }
}

// A part with everything that is as in the request it belongs to.
static struct sched_request part_of(const struct sched_request *q, uint32_t i) {
    struct sched_request one = q->parts[i];
    one.project = q->project;
    one.user = q->user;
    one.qos = q->qos;
    one.class = q->class;
    one.partition = one.partition ? one.partition : q->partition;
    one.also = NULL;
    one.also_count = 0;
    one.exclusive = q->exclusive;
    one.reservation = q->reservation;
    one.time_limit_ms = q->time_limit_ms;
    one.min_runtime_ms = q->min_runtime_ms;
    one.deadline_ms = q->deadline_ms;
    one.priority = q->priority;
    one.nice = q->nice;
    one.preemptible = q->preemptible;
    one.optional = false;
    one.licenses = NULL;
    one.license_count = 0;
    one.parts = NULL;
    one.part_count = 0;
    return one;
}

// Each part is a request of its own, which no job waits for.
static struct world_request *intern_with_parts(struct world *w, const struct sched_request *asked) {
    struct sched_request all = *asked, *parts = xcalloc(asked->part_count, sizeof *parts);
    for (uint32_t i = 0; i < asked->part_count; i++)
        parts[i] = part_of(asked, i);
    all.parts = parts;
    struct world_request *r = intern(w, &all, NULL, false);
    if (!r->parts.len) {
        for (uint32_t i = 0; i < asked->part_count; i++) {
            struct world_request *part = intern(w, &parts[i], NULL, true);
            vec_push(&r->parts, part);
            parts[i] = part->asked;  // its texts and lists live as long as the part
        }
        r->asked.parts = parts;
        sched_request_derive(w, r);
    } else {
        free(parts);
    }
    return r;
}

const struct world_request *world_request(struct world *w, const struct sched_request *asked) {
    if (asked->part_count)
        return intern_with_parts(w, asked);
    struct world_request *r = intern(w, asked, NULL, false);
    if (asked->also_count && !r->options.len)
        make_options(w, r);
    return r;
}

void world_request_unref(struct world *w, const struct world_request *cr) {
    if (!cr)
        return;
    struct world_request *r = map_get(&w->requests.by_hash, cr->hash);
    while (r != cr)
        r = r->next;
    assert(r->refs);
    if (--r->refs)
        return;
    assert(!r->queue.len && !r->optional);
    // Requests with the same hash are a chain under one key: it is taken out and put back without this one.
    struct world_request *first = map_remove(&w->requests.by_hash, r->hash);
    if (first == r) {
        first = r->next;
    } else {
        struct world_request *before = first;
        while (before->next != r)
            before = before->next;
        before->next = r->next;
    }
    if (first)
        map_put(&w->requests.by_hash, r->hash, first);
    w->requests.by_memory -= r->demand.gpu_by_memory;
    sched_fit_forget(w, r);
    for (uint32_t i = 0; i < r->options.len; i++)
        world_request_unref(w, r->options.at[i]);
    for (uint32_t i = 0; i < r->parts.len; i++)
        world_request_unref(w, r->parts.at[i]);
    sched_request_free(r);
}

void sched_request_free(struct world_request *r) {
    const struct sched_request *q = &r->asked;
    for (uint32_t i = 0; i < q->feature_count; i++)
        free((void *)(uintptr_t)q->features[i]);
    free((void *)(uintptr_t)q->features);
    free((void *)(uintptr_t)q->gpu_model);
    free((void *)(uintptr_t)q->reservation);
    free((void *)(uintptr_t)q->nodes_only);
    free((void *)(uintptr_t)q->nodes_except);
    free((void *)(uintptr_t)q->also);
    free((void *)(uintptr_t)q->licenses);
    free((void *)(uintptr_t)q->parts);
    vec_done(&r->options);
    vec_done(&r->parts);
    vec_done(&r->features);
    free(r->queue.at);
    free(r->code);
    free(r);
}

static uint32_t divide_up(uint32_t a, uint32_t b) {
    return (a + b - 1) / b;
}

static void derive_layout(const struct sched_request *q, struct sched_demand *d) {
    uint32_t per = q->tasks_per_node, nodes = q->nodes_min;
    d->tasks = q->tasks ? q->tasks : (nodes ? nodes : 1) * (per ? per : 1);
    if (nodes > d->tasks)
        nodes = d->tasks;  // no node without a task
    d->nodes_min = nodes ? nodes : per ? divide_up(d->tasks, per) : 1;
    d->nodes_max = q->nodes_max ? q->nodes_max : nodes ? nodes : d->tasks;
    if (!q->nodes_max && !nodes && (q->gpu_milli_per_node || q->gpu_milli_per_job))
        d->nodes_max = d->nodes_min;  // so that the total of GPUs is known
    if (d->nodes_max > d->tasks)
        d->nodes_max = d->tasks;
    if (d->nodes_max < d->nodes_min)
        d->nodes_max = d->nodes_min;
    d->node_tasks = per ? per : d->tasks;
    d->even = d->nodes_min == d->nodes_max && d->tasks % d->nodes_min == 0;
    if (d->even)
        d->node_tasks = d->tasks / d->nodes_min;
}

static void derive_gpus(const struct sched_request *q, struct sched_demand *d) {
    d->gpu_task = q->gpu_milli_per_task;
    d->gpu_node = q->gpu_milli_per_node;
    d->gpu_memory = q->gpu_memory_bytes;
    uint32_t all = q->gpu_milli_per_job;
    if (all) {
        if (d->nodes_max == 1)
            d->gpu_node = all;
        else if (all % d->tasks == 0 && (all / d->tasks) % SCHED_GPU == 0)
            d->gpu_task = all / d->tasks;
        else if (d->even && all % d->nodes_min == 0 && (all / d->nodes_min) % SCHED_GPU == 0)
            d->gpu_node = all / d->nodes_min;
        else if (all % SCHED_GPU == 0 && all / SCHED_GPU >= d->nodes_min) {
            d->gpu_total = all;
            d->gpu_node = SCHED_GPU;
            if (d->nodes_max > all / SCHED_GPU)
                d->nodes_max = all / SCHED_GPU;
        } else {
            d->gpu_uneven = true;
        }
    }
    d->gpu_by_memory = d->gpu_memory && !d->gpu_task && !d->gpu_node;
    if (d->node_tasks == 1 && d->gpu_node && !d->gpu_total) {  // the same in one canonical form
        d->gpu_task = d->gpu_node;
        d->gpu_node = 0;
    }
}

static uint64_t alternatives(struct world *w, const char *text, bool *unknown) {
    uint64_t mask = 0;
    while (text && *text) {
        size_t len = strcspn(text, "|");
        char *word = xstrndup(text, len);
        int i = world_model(w, word, false);
        mask |= i >= 0 ? 1ULL << i : 0;
        free(word);
        text += len + (text[len] == '|');
    }
    *unknown = !mask;
    return mask;
}

static void derive_features(struct world *w, struct world_request *r) {
    vec_clear(&r->features);
    r->feature_unknown = false;
    for (uint32_t i = 0; i < r->asked.feature_count; i++) {
        struct world_features f = {0};
        bool any = false;
        for (const char *text = r->asked.features[i]; *text;) {
            size_t len = strcspn(text, "|");
            char *word = xstrndup(text, len);
            int k = world_feature(w, word, false);
            free(word);
            if (k >= 0) {
                f.bits[k / 64] |= 1ULL << (k % 64);
                any = true;
            }
            text += len + (text[len] == '|');
        }
        r->feature_unknown |= !any;
        vec_push(&r->features, f);
    }
}

uint32_t sched_demand_milli(const struct sched_demand *d, uint32_t milli, uint64_t gpu_memory) {
    if (milli >= SCHED_GPU || !d->gpu_memory)
        return milli;
    if (gpu_memory == 0 || d->gpu_memory > gpu_memory)
        return SCHED_GPU + 1;  // does not fit on this GPU at all
    uint64_t part = (uint64_t)(((unsigned __int128)d->gpu_memory * SCHED_GPU + gpu_memory - 1) / gpu_memory);
    return part > milli ? (uint32_t)part : milli;
}

// Until it is placed, a request for GPU memory counts as the smallest fraction it can become.
static uint64_t estimate_by_memory(const struct world *w, const struct sched_demand *d) {
    uint32_t least = SCHED_GPU;
    for (uint32_t i = 0; i < w->cluster.gpu_sizes.len; i++) {
        uint32_t m = sched_demand_milli(d, 0, w->cluster.gpu_sizes.at[i].bytes);
        least = m < least ? m : least;
    }
    return least;
}

void sched_request_derive(struct world *w, struct world_request *r) {
    sched_fit_forget(w, r);
    r->limit_version = 0;
    const struct sched_request *q = &r->asked;
    struct sched_demand *d = &r->demand;
    *d = (struct sched_demand){.exclusive = q->exclusive, .spread = q->spread, .same_group = q->same_group};
    derive_layout(q, d);
    derive_gpus(q, d);
    d->cpus_task = q->cpus_per_task ? q->cpus_per_task : 1;
    uint64_t milli_task = d->gpu_by_memory ? estimate_by_memory(w, d) : d->gpu_task;
    d->memory_node = q->memory_per_node_bytes + q->memory_per_gpu_bytes * d->gpu_node / SCHED_GPU;
    d->memory_task = q->memory_per_cpu_bytes * d->cpus_task + q->memory_per_gpu_bytes * milli_task / SCHED_GPU;
    d->memory_gpu = d->gpu_total ? q->memory_per_gpu_bytes : 0;
    if (q->gpu_model)
        d->models = alternatives(w, q->gpu_model, &d->model_unknown);
    derive_features(w, r);
    r->gpu_milli = d->gpu_total ? d->gpu_total : d->tasks * milli_task + (uint64_t)d->nodes_min * d->gpu_node;
    for (uint32_t i = 0; i < r->parts.len; i++) {
        sched_request_derive(w, r->parts.at[i]);
        r->gpu_milli += r->parts.at[i]->gpu_milli;
    }
}

void sched_requests_derive(struct world *w) {
    size_t it = 0;
    void *v;
    while (map_next(&w->requests.by_hash, &it, NULL, &v))
        for (struct world_request *r = v; r; r = r->next)
            sched_request_derive(w, r);
    world_recount(w);
}

static int64_t lesser_limit(int64_t a, int64_t b) {
    return a == SCHED_UNLIMITED || (b != SCHED_UNLIMITED && b < a) ? b : a;
}

// 0: a rule allows no time at all; the job does not start.
int64_t sched_request_limit_ms(const struct world *w, const struct world_request *r) {
    int64_t limit = r->asked.time_limit_ms ? r->asked.time_limit_ms : SCHED_UNLIMITED;
    const struct world_partition *p = world_partition(w, r->asked.partition);
    const struct world_qos *qos = world_qos(w, r->asked.qos);
    const struct world_project *project = world_project(w, r->asked.project);
    if (!r->asked.time_limit_ms && p)
        limit = p->default_time_ms >= 0 ? p->default_time_ms : p->max_time_ms;
    if (!r->asked.time_limit_ms && qos)
        limit = lesser_limit(limit, qos->max_time_ms);
    if (r->asked.class == SCHED_INTERACTIVE && project)
        limit = lesser_limit(limit, project->interactive_limit_ms);  // whatever was asked for
    return limit >= 0 ? limit : INT64_MAX;
}

int64_t world_request_limit_ms(const struct world *w, const struct world_request *r) {
    int64_t least = sched_request_limit_ms(w, r->options.len ? r->options.at[0] : r);
    for (uint32_t i = 1; i < r->options.len; i++) {
        int64_t other = sched_request_limit_ms(w, r->options.at[i]);
        least = other < least ? other : least;
    }
    return least;
}

static bool contains(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

bool sched_request_features_ok(const struct world_request *r, const struct world_node *n) {
    if (r->feature_unknown)
        return false;
    for (uint32_t i = 0; i < r->features.len; i++) {
        uint64_t hit = 0;
        for (unsigned k = 0; k < FEATURE_WORDS; k++)
            hit |= r->features.at[i].bits[k] & n->features.bits[k];
        if (!hit)
            return false;
    }
    return true;
}

bool sched_project_allows(const struct world_project *p, uint32_t node) {
    if (!p || !p->nodes.len)
        return true;
    uint32_t low = 0, high = p->nodes.len;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (p->nodes.at[mid] < node)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->nodes.len && p->nodes.at[low] == node;
}

static bool node_in(const struct world_node *n, uint32_t partition) {
    return n->partitions[partition / 64] >> (partition % 64) & 1;
}

bool sched_request_partition_has(const struct sched_request *q, const struct world_node *n) {
    bool has = !q->partition || node_in(n, q->partition);
    for (uint32_t i = 0; i < q->also_count && !has; i++)
        has = node_in(n, q->also[i]);
    return has;
}

// May the request use the node, whatever runs there? Partition, project, node lists, features, GPU model.
bool sched_request_node_allowed(const struct world *w, const struct world_request *r, const struct world_node *n) {
    const struct sched_request *q = &r->asked;
    if (!sched_request_partition_has(q, n) || (n->user && n->user != q->user))
        return false;
    if (q->nodes_only_count && !contains(q->nodes_only, q->nodes_only_count, n->id))
        return false;
    if (contains(q->nodes_except, q->nodes_except_count, n->id))
        return false;
    if (r->demand.model_unknown || (r->demand.models && !(r->demand.models & n->models)))
        return false;
    return sched_request_features_ok(r, n) && sched_project_allows(world_project(w, q->project), n->id);
}

unsigned sched_request_dim(const struct world *w, const struct world_request *r) {
    uint64_t models = r->parts.len ? 0 : r->demand.models;
    if (models && !(models & (models - 1))) {
        unsigned dim = w->cluster.dim_of_model[__builtin_ctzll(models)];
        if (dim)
            return dim;
    }
    return r->gpu_milli ? DIM_GPU : DIM_CPU;
}

int64_t sched_request_amount(const struct world *w, const struct world_request *r, unsigned dim) {
    if (dim == DIM_CPU)
        return sched_request_cpus(r);
    if (dim == DIM_GPU || dim == sched_request_dim(w, r))
        return (int64_t)r->gpu_milli;
    return 0;
}

bool sched_request_preemptible(const struct world *w, const struct world_request *r) {
    if (r->asked.preemptible != SCHED_BY_CLASS)
        return r->asked.preemptible == SCHED_YES;
    const struct world_qos *q = world_qos(w, r->asked.qos);
    if (q && q->preemptible != SCHED_BY_CLASS)
        return q->preemptible == SCHED_YES;
    return r->asked.class == SCHED_TRAIN;
}

int32_t sched_request_priority(const struct world *w, const struct world_request *r) {
    const struct world_qos *q = world_qos(w, r->asked.qos);
    int64_t p = (int64_t)(q ? q->priority : 0) + r->asked.priority - r->asked.nice;
    return p > INT32_MAX ? INT32_MAX : p < INT32_MIN ? INT32_MIN : (int32_t)p;
}
