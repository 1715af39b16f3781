// The table of verbs. Each verb is defined in the file of its name.
#pragma once
#include "base/json.h"
#include "cli/command/command.h"

// In the order of the overview; verbs of a group stand together.
#define VERBS(X)                                                                                             \
    X(submit)                                                                                                \
    X(run)                                                                                                   \
    X(list)                                                                                                  \
    X(get)                                                                                                   \
    X(logs) X(wait) X(notify) X(cancel) X(hold) X(release) X(requeue) X(resubmit) X(suspend) X(continue)     \
        X(tasks) X(actors) X(objects)                                                                        \
        X(update) X(resize) X(workers) X(progress) X(draft) X(view) X(template) X(secret) X(bash) X(exec)    \
            X(cp) X(files) X(attach) X(events) X(efficiency) X(app) X(notebook) X(cluster) X(serve) X(data)  \
            X(open) X(share)                                                                                 \
                X(provider) X(providers) \
                X(port_forward) X(ssh) X(ssh_proxy) X(ssh_config) X(volume) X(image) X(docker) X(why)        \
                    X(when) X(shares) X(report) X(project) X(partition) X(qos) X(reservation) X(license)     \
                    X(policy)  \
                        X(sim) X(trace) X(mcp) X(replay) X(up) X(down) X(status) X(top) X(monitor) X(nodes)  \
                            X(drain) X(resume) X(forget) X(upgrade) X(token) X(user) X(login) X(logout)      \
                                X(whoami) X(session) X(alert) X(portal) X(audit) X(join) X(reload) X(backup) \
                                    X(restore) X(check) X(config) X(slurm_commands) X(docker_commands)       \
                                        X(slurm) X(runai) X(controller) X(agent) X(version) X(completion)    \
                                            X(help) X(man)

#define DECLARE(name) extern const struct verb verb_##name;
VERBS(DECLARE)
#undef DECLARE

int verb_list_past(struct cli *c);                     // acequia list --at (list_past.c)
int verb_view_apply(struct cli *c, const char *name);  // acequia list --view (view.c): adds its filters
int verb_write_all(int fd, const char *p, size_t n);   // 0 or a negative errno (port_forward.c)
// One line from the terminal, which is not shown while it is typed (secret.c).
int verb_read_hidden(struct cli *c, const char *what, struct buf *out);
// What is to be run, and what is asked for it: options over template over defaults (submit.c). CLI_OK, or the exit
// status after the error was printed.
struct spec;
struct job_source;
int verb_read_job(struct cli *c, struct spec *s, struct job_source *source);
void verb_complete_job(struct spec *s);
// --upload and --requirements become parts of the script.
int verb_upload(struct cli *c, struct job_source *source);  // what a submit adds
// Submits the job and stays attached to it until it ends; the exit status is its own. It is sent again under the same
// key after a lost connection, and not run again by itself.
struct job_environment;
int verb_run_attached(struct cli *c, struct spec *s, const struct job_environment *environment);
// A job from options that a verb makes itself, as the command line would read them: for verbs in which letters of a
// job's options mean something else. Either may be NULL (submit.c).
int verb_job_of_words(struct cli *c, int argc, char **argv, struct spec *s, struct job_environment *environment);
int verb_read_password(struct cli *c, const char *what,
                       struct buf *out);  // likewise, or a line of standard input (user.c)
// The members scopes (a list), project and ttl_s of a request for a token, from the options of those names (token.c).
int verb_token_wish(struct cli *c, struct json_writer *w);
const struct verb *const *verbs_all(size_t *count);
const struct verb *verb_find(const char *name);
