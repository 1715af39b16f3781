// Options that describe a job, shared by submit, run and when; and the spec that comes out of them.
#pragma once
#include "base/json.h"
#include "cli/command/command.h"
#include "model/job.h"

extern const struct option_table job_resource_options;  // what it needs
extern const struct option_table job_control_options;   // how it is run

// Fills a spec from the options; strings live in the arena of the command or belong to argv.
int job_spec(struct cli *c, const struct cli_options *o, struct spec *out);

// The components of a job that has several kinds of workers; job_spec calls it.
int job_components(struct cli *c, const struct cli_options *o, struct spec *s);
void job_component_of_spec(const struct spec *s,
                           struct job_component *out);  // one worker of it; all but name and argv
char *job_next_word(char **p);  // of a line of options, quotes taken off; NULL at the end. Changes the line.

// A command that is a Python file here is run with python3, as submit does, unless it can be executed by itself.
void job_python_command(struct cli *c);
// Says so when a line of shell was given where a program and its arguments are wanted.
void job_note_shell(char *const *argv, int argc);
void job_umask(struct spec *s);  // the umask here holds for the job, too

// The environment a job gets: --export and --env.
struct job_environment {
    const char **at;
    uint32_t len;
};
// "4" or "2-8"; `option` is what the message names.
int job_workers_parse(const char *option, const char *text, uint32_t *min, uint32_t *max, struct error *e);
int job_environment(struct cli *c, const struct cli_options *o, struct job_environment *out);
// That of an earlier job with what --env adds; --export takes that of this shell instead.
int job_environment_change(struct cli *c, const struct cli_options *o, struct job_environment *e);

struct job_source;
// The script runs as a copy in another folder: modules beside the original are found through PYTHONPATH.
void job_environment_python(struct cli *c, const struct job_source *source, struct job_environment *e);

// What was found after the options: a script's text or a command.
struct job_source {
    const char *script;  // NULL: a command
    size_t script_len;
    const char *upload;  // what is put behind the script on the node; NULL: nothing
    size_t upload_len;
    char **argv;  // command and arguments, or the script's arguments
    int argc;
    const char *name;  // for the job, when none was given
    const char *shown;  // the command as typed
    const char *python_folder;  // of a Python script: where the modules beside it are; else NULL
};
// Reads the script; lines "#ACEQUIA --option value" before the first command add options to `o`
// where the command line has none. `dashes`: "--" came before the arguments.
// The beginning of a command line as it is kept with a job: one line, without control characters.
const char *job_line_shown(struct arena *a, const char *line);
int job_source(struct cli *c, struct cli_options *o, bool dashes, struct job_source *out);
bool job_dashes(const struct cli *c);

struct job_request {
    const struct spec *spec;
    const struct job_source *source;  // may be NULL
    const struct job_environment *environment;
    const char *key;  // idempotency; may be NULL
    bool dry_run;
};
void job_request_write(const struct job_request *q, struct buf *out);
