// Owns Slurm's words about jobs, and which jobs are meant.
#include "job_row.h"

#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "model/arrayspec.h"
#include "model/gpuspec.h"
#include "model/name.h"
#include "model/nodelist.h"

const char *slurm_state_word(enum job_state s) {
    return s == JOB_STARTING ? "RUNNING" : job_state_words[s];
}

const char *slurm_state_letters(enum job_state s) {
    return s == JOB_STARTING ? "R" : job_state_short(s);
}

static const char *pending_word(const char *reason) {
    if (streq(reason, job_reason_words[REASON_PROJECT_GONE]))
        return "InvalidAccount";
    if (streq(reason, job_reason_words[REASON_QOS_GONE]))
        return "InvalidQOS";
    if (streq(reason, job_reason_words[REASON_RESERVATION_GONE]))
        return "ReservationDeleted";
    return reason ? reason : "None";
}

const char *slurm_reason_word(const struct sjob *j) {
    switch (j->state) {
    case JOB_PENDING: return pending_word(j->reason);
    case JOB_STARTING:
    case JOB_RUNNING:
    case JOB_SUSPENDED: return j->hold && j->reason ? j->reason : "None";  // held when it comes back
    case JOB_FAILED:
        if (j->exit_code > 0)
            return "NonZeroExitCode";
        return "JobLaunchFailure";  // Slurm's word for a signal, too
    case JOB_TIMEOUT: return "TimeLimit";
    case JOB_OUT_OF_MEMORY: return "OutOfMemory";
    case JOB_NODE_FAIL: return "NodeDown";
    case JOB_DEADLINE: return "DeadLine";
    default: return "None";
    }
}

static const struct {
    const char *word, *letters;
    uint32_t states;
} state_names[] = {
    {"PENDING", "PD", 1u << JOB_PENDING},
    {"RUNNING", "R", 1u << JOB_RUNNING | 1u << JOB_STARTING},
    {"SUSPENDED", "S", 1u << JOB_SUSPENDED},
    {"COMPLETED", "CD", 1u << JOB_COMPLETED},
    {"CANCELLED", "CA", 1u << JOB_CANCELLED},
    {"FAILED", "F", 1u << JOB_FAILED},
    {"TIMEOUT", "TO", 1u << JOB_TIMEOUT},
    {"NODE_FAIL", "NF", 1u << JOB_NODE_FAIL},
    {"PREEMPTED", "PR", 1u << JOB_PREEMPTED},
    {"BOOT_FAIL", "BF", 0},
    {"DEADLINE", "DL", 1u << JOB_DEADLINE},
    {"OUT_OF_MEMORY", "OOM", 1u << JOB_OUT_OF_MEMORY},
    {"COMPLETING", "CG", 1u << JOB_COMPLETING},
    {"CONFIGURING", "CF", 0},
    {"RESIZING", "RS", 0},
    {"RESV_DEL_HOLD", "RD", 0},
    {"REQUEUED", "RQ", 0},
    {"REQUEUE_FED", "RF", 0},
    {"REQUEUE_HOLD", "RH", 0},
    {"REVOKED", "RV", 0},
    {"SIGNALING", "SI", 0},
    {"SPECIAL_EXIT", "SE", 0},
    {"STAGE_OUT", "SO", 0},
    {"STOPPED", "ST", 0},
};

bool slurm_states_known(const char *word) {
    for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++)
        if (slurm_same_word(word, state_names[i].word) || slurm_same_word(word, state_names[i].letters))
            return true;
    return slurm_same_word(word, "all");
}

uint32_t slurm_states_parse(struct slurm *s, const char *text) {
    enum { MATCHED_NOTHING = 1u << 31 };  // a state of Slurm that no job has here
    uint32_t mask = MATCHED_NOTHING;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *word = arena_strndup(&s->cli.arena, p, n);
        bool known = slurm_same_word(word, "all");
        mask |= known ? STATES_ALL : 0;
        for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++)
            if (slurm_same_word(word, state_names[i].word) || slurm_same_word(word, state_names[i].letters)) {
                mask |= state_names[i].states;
                known = true;
            }
        if (!known) {
            cleanup_buf struct buf all = {0};
            for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++)
                buf_addf(&all, "%s%s", i ? "," : "", state_names[i].word);
            slurm_error(s, "Invalid job state specified: %s", word);
            slurm_error(s, "Valid job states include: %s\n", buf_str(&all));
            return 0;
        }
        p += n + (p[n] == ',');
    }
    return mask;
}

bool slurm_list_has(const char *list, const char *word) {
    if (str_empty(list))
        return true;
    size_t len = word ? strlen(word) : 0;
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (word && n == len && !strncmp(p, word, n))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

bool slurm_list_meets(const char *list, const char *words) {
    return str_empty(list) || name_list_meet(list, words);
}

void slurm_jobs_by_partition(const char *wanted, struct arena *a, sjob_vec *jobs) {
    sjob_vec all = {0};
    for (uint32_t i = 0; i < jobs->len; i++) {
        struct sjob row = jobs->at[i];
        size_t len;
        const char *rest = name_list_several(row.partition) ? row.partition : NULL;
        if (!rest)
            vec_push(&all, row);
        for (const char *at; (at = name_list_next(&rest, &len));) {
            row.partition = arena_strndup(a, at, len);
            if (slurm_list_has(wanted, row.partition))
                vec_push(&all, row);
        }
    }
    vec_done(jobs);
    *jobs = all;
}

// The end of one item of a list; commas in brackets do not count.
static size_t item_len(const char *p) {
    size_t n = 0;
    for (bool inside = false; p[n] && (inside || p[n] != ','); n++)
        inside = p[n] == '[' || (inside && p[n] != ']');
    return n;
}

static bool item_has(const char *item, size_t len, const struct sjob *j) {
    char head[64], inner[4096];
    uint64_t number;
    const char *mark = memchr(item, '_', len);
    size_t n = mark ? (size_t)(mark - item) : strcspn(item, ".,+");
    n = n < len ? n : len;
    if (n >= sizeof head)
        return false;
    memcpy(head, item, n);
    head[n] = 0;
    if (parse_u64(head, &number) < 0)
        return false;
    uint64_t job;
    uint32_t offset;
    if (!mark && slurm_job_component(j, &job, &offset) && job == number)
        return true;  // any of them stands for all, as in squeue
    if (!mark)
        return j->id == number || j->array_id == number;
    if (j->array_id != number)
        return false;
    bool bracket = mark[1] == '[';
    size_t inner_len = len - n - 1 - (bracket ? 2 : 0);
    if (inner_len >= sizeof inner || len < n + 2 + (bracket ? 2u : 0u))
        return false;
    memcpy(inner, mark + 1 + (bracket ? 1 : 0), inner_len);
    inner[inner_len] = 0;
    inner[strcspn(inner, ".")] = 0;
    cleanup_arena struct arena a = {0};
    struct array_spec spec;
    if (array_parse(inner, &a, &spec, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < spec.len; i++)
        if (j->elements || (j->array_index >= spec.at[i].first && j->array_index <= spec.at[i].last &&
                            (j->array_index - spec.at[i].first) % spec.at[i].step == 0))
            return true;
    return false;
}

bool slurm_ids_have_step(const char *list, const struct sjob *j, const char *step) {
    if (!list)
        return true;
    for (const char *p = list; *p;) {
        size_t n = item_len(p);
        const char *dot = memchr(p, '.', n);
        size_t len = dot ? (size_t)(p + n - dot - 1) : 0;
        if (item_has(p, n, j) && (!dot || (strlen(step) == len && !strncmp(dot + 1, step, len))))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

bool slurm_ids_have(const char *list, const struct sjob *j) {
    if (str_empty(list))
        return true;
    for (const char *p = list; *p;) {
        size_t n = item_len(p);
        if (item_has(p, n, j))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

bool slurm_nodes_meet(const char *wanted, const char *nodes) {
    cleanup_arena struct arena a = {0};
    struct name_list have, want;
    if (str_empty(nodes) || nodelist_expand(nodes, &a, &have, NULL) < 0 || nodelist_expand(wanted, &a, &want, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < have.len; i++)
        for (uint32_t k = 0; k < want.len; k++)
            if (streq(have.at[i], want.at[k]))
                return true;
    return false;
}

const char *slurm_ids_plain(struct arena *a, const char *list, const char **bad) {
    cleanup_buf struct buf out = {0};
    for (const char *p = list; *p;) {
        size_t n = item_len(p), digits = strspn(p, "0123456789");
        if (!digits || digits > n || strspn(p, "0") == digits || (digits < n && !strchr("_.+", p[digits]))) {
            *bad = arena_strndup(a, p, n);
            return NULL;
        }
        buf_addf(&out, "%s%.*s", out.len ? "," : "", (int)digits, p);
        // One element by its index; more of them are picked from the whole array.
        if (p[digits] == '_' && p[digits + 1] >= '0' && p[digits + 1] <= '9')
            buf_addf(&out, "_%.*s", (int)strspn(p + digits + 1, "0123456789"), p + digits + 1);
        p += n + (p[n] == ',');
    }
    return arena_strdup(a, buf_str(&out));
}

const char *slurm_user_name_of(struct arena *a, const char *text) {
    uint32_t uid;
    struct passwd *pw = parse_u32(text, &uid) == 0 ? getpwuid(uid) : getpwnam(text);
    return pw ? arena_strdup(a, pw->pw_name) : NULL;
}

const char *slurm_group_name(struct arena *a, uint32_t gid) {
    struct group *g = getgrgid(gid);
    return g ? arena_strdup(a, g->gr_name) : arena_printf(a, "%u", gid);
}

const char *slurm_own_name(struct arena *a) {
    struct passwd *pw = getpwuid(geteuid());
    return pw ? arena_strdup(a, pw->pw_name) : arena_printf(a, "%u", (unsigned)geteuid());
}

void slurm_tres_text(const struct sjob *j, bool sorted, struct buf *out) {
    char memory[UNIT_TEXT_MAX], gpus[GPU_TEXT_MAX];
    uint32_t nodes = j->node_count ? j->node_count : 1;
    if (sorted)
        buf_addf(out, "billing=%u,", j->cpus);
    buf_addf(out, "cpu=%u", j->cpus);
    if (sorted && j->gpus_milli)
        buf_addf(out, ",gres/gpu=%s", gpu_milli_format(j->gpus_milli, gpus));
    if (j->memory_bytes)
        buf_addf(out, ",mem=%s", slurm_megabytes(j->memory_bytes, memory));
    buf_addf(out, ",node=%u", nodes);
    if (!sorted)
        buf_addf(out, ",billing=%u", j->cpus);
    if (!sorted && j->gpus_milli)
        buf_addf(out, ",gres/gpu=%s", gpu_milli_format(j->gpus_milli, gpus));
}

bool slurm_job_component(const struct sjob *j, uint64_t *job, uint32_t *offset) {
    const char *plus = j->label ? strchr(j->label, '+') : NULL;
    char first[24];
    if (!plus || (size_t)(plus - j->label) >= sizeof first)
        return false;
    memcpy(first, j->label, (size_t)(plus - j->label));
    first[plus - j->label] = 0;
    return parse_u64(first, job) == 0 && parse_u32(plus + 1, offset) == 0;
}

uint64_t slurm_job_number(const struct sjob *j) {
    uint64_t job;
    uint32_t offset;
    return slurm_job_component(j, &job, &offset) && !offset ? job : j->id;
}
