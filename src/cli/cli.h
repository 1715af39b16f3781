// The command line: a table of verbs, each with its options, its help and the function that does it.
// Exit status: 0 done, 1 failed, 2 wrong usage; wait and run give the job's own.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "cli/option.h"
#include "net/client.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

// How to reach a controller on another machine. The small executable has none and hands over to
// the one that is linked with a TLS library.
struct cli_transport {
    // `host` is a name or an address; the folder holds ca.pem and, where there are, cert.pem and key.pem.
    int (*connect)(const char *host, unsigned port, const char *folder, struct http_client **out, struct error *e);
};

struct cli {
    const struct verb *verb;
    struct options options;
    char **arguments;  // what is left besides options
    int count;
    int argc;  // the whole command line
    char **argv;
    const struct cli_transport *tls;
    struct arena arena;
    struct error error;
    bool json;
};

struct verb {
    const char *name;
    const char *alias;      // another name for it
    const char *group;      // heading in the overview; NULL: hidden
    const char *arguments;  // as shown after the name
    const char *summary;    // a line without full stop
    const char *text;       // more about it
    const char *examples;   // "command\n  # comment" lines
    const struct option_table *options[OPTION_TABLES_MAX + 1];  // NULL-terminated
    int (*run)(struct cli *c);  // returns the exit status
    bool stop;      // the first argument ends the options
    bool raw;       // arguments are passed on unread
    const char *complete;   // what completes arguments, as in option_spec
    int least, most;        // how many arguments; most < 0: any
};

int cli_main(int argc, char **argv, const struct cli_transport *tls);

const struct verb *const *verbs_all(size_t *count);
const struct verb *verb_find(const char *name);
extern const struct option_table common_options;

// Prints the error and returns CLI_FAILED (or CLI_USAGE with a hint at --help).
int cli_fail(struct cli *c);
int cli_failf(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));  // to standard error
const char *cli_field_words(struct cli *c, const char *text);  // the controller's sentence, with options for fields
int cli_print(const struct buf *b);  // to standard output; exit status

// Texts made from the tables.
// Text in lines of at most 80 columns; the first begins at column `at`, the others at `indent`.
void help_wrap(struct buf *out, const char *text, size_t at, size_t indent);
void help_overview(struct buf *out, bool colour);
void help_verb(const struct verb *v, struct buf *out);
void man_overview(struct buf *out);
void man_verb(const struct verb *v, struct buf *out);
void man_config(struct buf *out);
void docs_markdown(struct buf *out);
void completion_bash(struct buf *out);
void completion_zsh(struct buf *out);
void completion_fish(struct buf *out);
