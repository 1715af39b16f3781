// Options in Slurm's way: the rules of getopt_long (abbreviations, options after arguments), and
// three kinds of options: those that do something here, those that have no meaning here and do no
// harm, and those that are refused by name with a hint.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "context.h"

enum opt_value { OPT_FLAG, OPT_VALUE, OPT_MAYBE };
enum opt_use { OPT_DOES, OPT_HARMLESS, OPT_REFUSED, OPT_ALIAS };  // alias: `hint` is what it is called otherwise

struct opt {
    const char *name;
    int letter;         // 0: none
    uint8_t value;      // enum opt_value
    uint8_t use;        // enum opt_use
    const char *env;    // suffix of the variable ("ACCOUNT" in SBATCH_ACCOUNT); NULL: none
    const char *hint;   // of refused ones: what to do instead; of harmless ones: why it has no meaning
    unsigned programs;  // bits; 0: all
};

enum { OPT_MAX = 192 };

struct opts {
    const struct opt *table;
    uint32_t count;
    unsigned program;            // which bit of `programs`
    bool given[OPT_MAX];
    const char *value[OPT_MAX];  // the last one given; NULL for flags
    char **arguments;            // what is left
    int argument_count;
};

void slurm_opts_init(struct opts *o, const struct opt *table, uint32_t count, unsigned program);
// Reads argv[1…]. `stop`: the first argument ends the options. argv is reordered. The messages of
// getopt are printed; false then.
bool slurm_opts_parse(struct opts *o, struct slurm *s, int argc, char **argv, bool stop);
// Variables PREFIX_NAME for options that are not given yet.
void slurm_opts_environment(struct opts *o, const char *prefix);
// Puts values of `later` over those of `o`.
void slurm_opts_override(struct opts *o, const struct opts *later);
// Refuses what must be refused, notes what has no meaning; false: refused.
bool slurm_opts_check(const struct opts *o, struct slurm *s);
bool slurm_opt_given(const struct opts *o, const char *name);
const char *slurm_opt_get(const struct opts *o, const char *name);  // NULL: not given, or no value
// The same where an empty value is none: programs that fill in templates leave "--reservation=".
const char *slurm_opt_filled(const struct opts *o, const char *name);
void slurm_opts_help(const struct opts *o, const char *program, const char *usage, struct buf *out);
// The beginning of every command that only looks: options, variables (`prefix` may be NULL), --version
// and --help. False: done, with *status. Its table holds OPTS_COMMON.
bool slurm_opts_begin(struct opts *o, struct slurm *s, int argc, char **argv, const char *prefix,
                      const char *usage, int *status);
#define OPTS_COMMON                                        \
    {"clusters", 'M', OPT_VALUE, OPT_DOES, NULL, NULL, 0}, \
    {"help", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},        \
    {"usage", 0, OPT_FLAG, OPT_DOES, NULL, NULL, 0},       \
    {"verbose", 'v', OPT_FLAG, OPT_DOES, NULL, NULL, 0},   \
    {"version", 'V', OPT_FLAG, OPT_DOES, NULL, NULL, 0}
