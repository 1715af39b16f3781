// Options of the command line. A verb declares its options in tables; the tables yield the parser
// here, and help, man pages and shell completion elsewhere. What is not declared is refused.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/vec.h"

enum { OPTION_TABLES_MAX = 5 };

enum option_flags {
    OPTION_REPEAT = 1,    // may be given several times, all count
    OPTION_OPTIONAL = 2,  // the value may be left out; with one: --name=value
    OPTION_HIDDEN = 4,
};

struct option_spec {
    const char *name;
    char letter;        // 0: none
    const char *value;  // what the value is called; NULL: a flag without value
    const char *help;
    unsigned flags;
    const char *aliases;   // other long names, separated by blanks
    const char *complete;  // what completes the value: "a b c", "@job", "@node", "@file", "@dir"
};

struct option_table {
    const char *title;
    const struct option_spec *at;
    size_t count;
};
#define OPTION_TABLE(title_, specs) {title_, specs, sizeof(specs) / sizeof((specs)[0])}

struct option_value {
    const struct option_spec *option;
    const char *value;  // NULL: none given
};

struct cli_options {
    const struct option_table *const *tables;  // NULL-terminated
    VEC(struct option_value) values;
    VEC(char *) arguments;
};

// Reads argv[0 … argc-1]. `stop`: the first argument ends the options. Strings stay the caller's.
int options_parse(const struct option_table *const *tables, int argc, char **argv, bool stop, struct cli_options *out,
                  struct error *e);
void options_done(struct cli_options *o);

bool option_known(const struct cli_options *o, const char *name);  // whether a table declares it
// Names must be declared in the tables. Of repeated ones the last counts.
bool option_given(const struct cli_options *o, const char *name);
const char *option_get(const struct cli_options *o, const char *name);                       // NULL: not given
const char *option_next(const struct cli_options *o, const char *name, uint32_t *iterator);  // each one
// Options that options of `later` do not override already: for lines inside scripts.
void options_add_missing(struct cli_options *o, const struct cli_options *earlier);

// Typed values. Not given: 0 is returned and *out stays. Messages name the option.
int option_u32(const struct cli_options *o, const char *name, uint32_t low, uint32_t high, uint32_t *out,
               struct error *e);
int option_i32(const struct cli_options *o, const char *name, int32_t low, int32_t high, int32_t *out, struct error *e);
int option_size(const struct cli_options *o, const char *name, uint64_t bare_bytes, uint64_t *out, struct error *e);
int option_duration(const struct cli_options *o, const char *name, uint32_t bare_s, uint32_t *out, struct error *e);
int option_time(const struct cli_options *o, const char *name, int64_t *at_ms, struct error *e);  // local time zone
