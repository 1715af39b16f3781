// Owns the checks of values of options that have no effect here: a mistyped one is refused in
// Slurm's words all the same, so that a script behaves alike on both.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "submit_options.h"

static const char *const mail_words[] = {
    "NONE",           "BEGIN",      "END",           "FAIL",          "REQUEUE",       "ALL",
    "STAGE_OUT",      "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS",
    "INVALID_DEPEND", NULL};
static const char *const distribution_words[] = {"block", "cyclic", "plane", "arbitrary", "fcyclic",
                                                 "pack",  "nopack", "*",     NULL};
static const char *const hint_words[] = {"compute_bound", "memory_bound", "multithread", "nomultithread", NULL};
static const char *const profile_words[] = {"none", "energy", "task", "filesystem", "lustre", "network", "all", NULL};
static const char *const gres_flag_words[] = {"disable-binding", "enforce-binding", NULL};
static const char *const exclusive_words[] = {"user", "mcs", NULL};
static const char *const yes_words[] = {"yes", "no", NULL};
static const char *const off_words[] = {"off", NULL};
static const char *const mem_bind_words[] = {"none",  "local",   "v",        "verbose", "q",
                                             "quiet", "p",       "prefer",   "sort",    "nosort",
                                             "rank",  "map_mem", "mask_mem", "help",    NULL};
static const char *const gpu_bind_words[] = {"closest", "single",  "map_gpu", "mask_gpu", "none", "per_task",
                                             "v",       "verbose", "map",     "mask",     NULL};
static const char *const cpu_bind_words[] = {
    "none",    "rank",   "map_cpu", "mask_cpu", "rank_ldom", "map_ldom", "mask_ldom", "sockets", "cores",
    "threads", "ldoms",  "boards",  "v",        "verbose",   "q",        "quiet",     "help",    "socket",
    "core",    "thread", "ldom",    "board",    "no",        "n",        "yes",       "y",       NULL};

static const struct {
    const char *option;
    const char *const *words;  // NULL: a number
    const char *separators;    // between words; a word ends at '=' or ':' too
    int status;
    const char *message;       // with %s for the value
} rules[] = {
    {"mail-type", mail_words, ",", SLURM_USAGE, "Invalid --mail-type specification"},
    {"distribution", distribution_words, ",:", SLURM_USAGE, "Invalid --distribution specification"},
    {"hint", hint_words, "", SLURM_FAILED, "unrecognized --hint argument \"%s\", see --hint=help"},
    {"profile", profile_words, ",", SLURM_USAGE, "invalid --profile=%s option"},
    {"gres-flags", gres_flag_words, "", SLURM_USAGE, "Invalid --gres-flags specification"},
    {"exclusive", exclusive_words, "", SLURM_USAGE, "Invalid --exclusive specification"},
    {"kill-on-invalid-dep", yes_words, "", SLURM_USAGE, "Invalid --kill-on-invalid-dep specification"},
    {"no-kill", off_words, "", SLURM_USAGE, "Invalid --no-kill specification"},
    {"mem-bind", mem_bind_words, ",", SLURM_USAGE, "unrecognized --mem-bind argument \"%s\""},
    {"gpu-bind", gpu_bind_words, ",", SLURM_USAGE, "Invalid --gpu-bind argument: gpu:%s"},
    {"cpu-bind", cpu_bind_words, ",", SLURM_FAILED, "unrecognized --cpu-bind argument \"%s\""},
    {"threads-per-core", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --threads-per-core."},
    {"ntasks-per-core", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --ntasks-per-core."},
    {"ntasks-per-socket", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --ntasks-per-socket."},
    {"cores-per-socket", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --cores-per-socket."},
    {"sockets-per-node", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --sockets-per-node."},
    {"switches", NULL, "@", SLURM_FAILED, "Invalid numeric value \"%s\" for --switches."},
    {"wait-all-nodes", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --wait-all-nodes."},
    {"core-spec", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --core-spec."},
    {"thread-spec", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --thread-spec."},
    {"threads", NULL, "", SLURM_FAILED, "Invalid numeric value \"%s\" for --threads."},
};

static bool is_word(const char *const *words, const char *p, size_t n) {
    for (; *words; words++)
        if (strlen(*words) == n && !strncasecmp(*words, p, n))
            return true;
    return false;
}

// What follows '=' or ':' is the word's own; it runs to the next word that is known.
static bool words_fit(const char *const *words, const char *separators, const char *value) {
    char stops[8];
    snprintf(stops, sizeof stops, "%s=:", separators);
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, stops);
        if (!is_word(words, p, n))
            return false;
        p += n;
        if (*p == '=' || (*p == ':' && !strchr(separators, ':')))
            return true;  // numbers or masks of its own
        p += *p != 0;
    }
    return true;
}

static bool number_fits(const char *separators, const char *value) {
    size_t n = strspn(value, "0123456789");
    return n && (!value[n] || (*separators && strchr(separators, value[n])));
}

int slurm_job_values_check(struct slurm *s, const struct opts *o) {
    for (uint32_t i = 0; i < o->count; i++) {
        const char *value = o->value[i];
        if (!o->given[i] || !value)
            continue;
        for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
            if (!streq(rules[k].option, o->table[i].name))
                continue;
            if (rules[k].words ? words_fit(rules[k].words, rules[k].separators, value)
                               : number_fits(rules[k].separators, value))
                continue;
            const char *mark = strstr(rules[k].message, "%s");
            slurm_error(s, "%.*s%s%s", (int)(mark ? mark - rules[k].message : (long)strlen(rules[k].message)),
                        rules[k].message, mark ? value : "", mark ? mark + 2 : "");
            return rules[k].status;
        }
    }
    return 0;
}
