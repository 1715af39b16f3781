// What every command of the command line shares: the context of one call, the description of a verb, and how
// errors and notes are printed. Exit status: 0 success, 1 failure, 2 wrong usage; wait and run return the job's.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "cli/command/option.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct http_client;

// How to reach a controller on another machine. The small executable has no transport: it executes acequiad,
// which is linked with a TLS library (client/daemon.h).
struct cli_transport {
    // `host` is a name or an address; the folder holds ca.pem and, where there are, cert.pem and key.pem.
    int (*connect)(const char *host, unsigned port, const char *folder, struct http_client **out, struct error *e);
    // To a server whose authority has this fingerprint; "": any, whose fingerprint is left there. Nothing secret may be
    // said to that one.
    int (*connect_to)(const char *host, unsigned port, char fingerprint[65], struct http_client **out,
                      struct error *e);
};

struct cli {
    const struct verb *verb;
    struct cli_options options;
    char **arguments;  // those that are not options
    int count;
    int argc;  // the whole command line
    char **argv;
    const struct cli_transport *tls;
    struct arena arena;
    struct error error;
    bool json;
    bool local;    // the cluster of this machine is meant, whatever `acequia login` has said
    bool no_wait;  // a controller that does not answer is an error at once; else it is waited for some seconds
    unsigned
        controller;  // of several, whose turn it is to be asked: it grows when one does not lead or does not answer
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
    enum { VERB_NO_JOBS, VERB_JOB_FIRST, VERB_JOBS } jobs;  // which arguments are jobs, by id or by name
    bool live_jobs;         // only jobs that have not ended are meant
};

extern const struct option_table cli_common_options;

// Prints the error and returns CLI_FAILED (or CLI_USAGE with a hint at --help).
int cli_fail(struct cli *c);
int cli_failf(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));  // to standard error
// The controller's message with names of options where it names fields of the API.
const char *cli_field_options(struct cli *c, const char *text);
int cli_print(const struct buf *b);  // to standard output; exit status
