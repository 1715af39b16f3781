// A user's own defaults for submit, run and when: lines "OPTION = VALUE" in ~/.config/acequia/defaults, and named
// templates, whose lines are "TEMPLATE.OPTION = VALUE". Command line and #ACEQUIA lines take precedence.
#pragma once
#include "cli/command/command.h"

enum { JOB_DEFAULTS_MAX = 256 };

struct job_default {
    const char *template, *option, *value;  // template NULL: holds always
};

struct job_defaults {
    struct job_default at[JOB_DEFAULTS_MAX];
    uint32_t count;
    const char *path;
};

// An entry of the options of verbs that use templates.
#define JOB_TEMPLATE_OPTION                                                                                  \
    {                                                                                                        \
        "template", 0, "NAME", "Begin from this template; see acequia template and acequia config set.", 0,  \
            NULL, NULL                                                                                       \
    }

int job_defaults_load(struct cli *c, struct job_defaults *out);  // no file: empty
// Replaces the file. `value` NULL removes the entry; -ENOENT when there is none.
int job_defaults_change(struct cli *c, const char *template, const char *option, const char *value);
bool job_defaults_have(struct cli *c,
                       const char *template);  // in the user's file; others are the controller's
// Adds the options of --template, if it is in the file, then the user's defaults, where `o` has none.
int job_defaults_apply(struct cli *c, struct cli_options *o);
