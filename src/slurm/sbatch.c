// sbatch
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/job/options.h"
#include "het.h"
#include "test_only.h"
#include "submit_options.h"
#include "model/name.h"

enum { WAIT_ROUND_S = 50 };

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

// A name that no rule of names refuses.
static const char *safe_name(struct slurm *s, const char *name) {
    if (job_name_check(name, NULL) == 0)
        return name;
    cleanup_buf struct buf b = {0};
    for (const char *p = name; *p && b.len < 60; p++)
        buf_addc(&b, (unsigned char)*p < 33 || (unsigned char)*p > 126 ? '_' : *p);
    return job_name_check(buf_str(&b), NULL) == 0 ? arena_strdup(&s->cli.arena, buf_str(&b)) : "job";
}

static int take_script(struct slurm *s, const struct opts *line, struct script *script) {
    const char *wrap = slurm_opt_get(line, "wrap");
    if (wrap && line->argument_count) {
        slurm_error(s, "Script arguments not permitted with --wrap option");
        return SLURM_FAILED;
    }
    int r = wrap ? slurm_script_wrap(s, wrap, script)
                 : slurm_script_read(s, line->argument_count ? line->arguments[0] : NULL, script);
    return r ? r : slurm_script_check(s, script);
}

static const char *as_typed(struct slurm *s, const char *path, const struct opts *o) {
    cleanup_buf struct buf b = {0};
    char here[4096];
    if (*path != '/' && getcwd(here, sizeof here))
        buf_addf(&b, "%s/%s", here, path);
    else
        buf_adds(&b, path);
    for (int i = 1; i < o->argument_count; i++)
        buf_addf(&b, " %s", o->arguments[i]);
    return job_line_shown(&s->cli.arena, buf_str(&b));
}

static void name_job(struct slurm *s, const struct opts *o, const struct script *script, struct spec *spec) {
    if (!spec->name)
        spec->name = slurm_opt_get(o, "wrap") ? "wrap" : script->path ? base_name(script->path) : "sbatch";
    spec->name = safe_name(s, spec->name);
    if (script->path)
        spec->command_text = as_typed(s, script->path, o);
    if (!spec->output)
        spec->output = spec->array.len ? "slurm-%A_%a.out" : "slurm-%j.out";
    if (o->argument_count > 1) {
        spec->argv.at = arena_memdup(&s->cli.arena, o->arguments + 1,
                                     (size_t)(o->argument_count - 1) * sizeof *o->arguments);
        spec->argv.len = (uint32_t)o->argument_count - 1;
    }
    if (slurm_opt_given(o, "requeue"))
        spec->requeue = true;
}

static int wait_for(struct slurm *s, uint64_t first, uint64_t count) {
    int worst = 0;
    for (uint64_t id = first; id < first + count;) {
        struct reply r;
        const char *target = arena_printf(&s->cli.arena, "/v1/jobs/%llu/wait?timeout_s=%d",
                                          (unsigned long long)id, WAIT_ROUND_S);
        if (client_call_timeout(s->client, "GET", target, NULL, (WAIT_ROUND_S + 30) * 1000, &r) < 0) {
            slurm_error(s, "%s", s->cli.error.text);
            return SLURM_FAILED;
        }
        if (r.status == 202)
            continue;
        int64_t code = json_i64(r.json, "exit_code", 0), signal = json_i64(r.json, "exit_signal", 0);
        const char *state = json_str(r.json, "state");
        int one = code ? (int)(code & 255) : signal || !streq(state, "COMPLETED") ? 1 : 0;
        worst = one > worst ? one : worst;
        id++;
    }
    return worst;
}

static int report(struct slurm *s, const struct opts *o, const struct reply *r) {
    long long id = (long long)json_i64(r->json, "id", 0);
    if (slurm_opt_given(o, "parsable") && !s->quiet)
        printf(s->clusters ? "%lld;%s\n" : "%lld\n", id, s->clusters);
    else if (!s->quiet)
        printf(s->clusters ? "Submitted batch job %lld on cluster %s\n" : "Submitted batch job %lld\n", id,
               s->clusters);
    fflush(stdout);
    return slurm_opt_given(o, "wait") ? wait_for(s, (uint64_t)id, (uint64_t)json_i64(r->json, "count", 1))
                                      : SLURM_OK;
}

static int submit(struct slurm *s, const struct opts *o, uint32_t blocks, const struct script *script) {
    struct spec spec;
    struct texts environment;
    struct reply reply;
    cleanup_buf struct buf body = {0};
    int r = slurm_job_spec_from(s, o, &spec);
    r = r ? r : slurm_job_export(s, o, &spec, &environment);
    if (r)
        return r;
    name_job(s, o, script, &spec);
    if (blocks > 1 && (r = slurm_het_spec(s, o, blocks, &spec)))
        return r;
    slurm_job_request(&spec, script, &environment, false, slurm_opt_given(o, "no-requeue") && !spec.requeue,
                      &body);
    if (!slurm_client(s) || slurm_check_clusters(s))
        return SLURM_FAILED;
    if (slurm_opt_given(o, "test-only"))
        return slurm_test_only(s, &spec);
    if (client_call(s->client, "POST", "/v1/jobs", &body, &reply) < 0) {
        const char *words = slurm_submit_error_text(s, &spec);
        slurm_error(s, "%s%s", slurm_submit_prefix(s), words);
        return SLURM_FAILED;
    }
    return report(s, o, &reply);
}

// The script and its arguments come last, and --wrap may be in any block: the first block is the job's.
static void gather(struct opts *lines, uint32_t blocks) {
    for (uint32_t i = 1; i < blocks; i++)
        for (uint32_t k = 0; k < lines[i].count; k++)
            if (streq(lines[i].table[k].name, "wrap") && lines[i].given[k]) {
                lines[0].given[k] = true;
                lines[0].value[k] = lines[i].value[k];
            }
    lines[0].arguments = lines[blocks - 1].arguments;
    lines[0].argument_count = lines[blocks - 1].argument_count;
}

int sbatch_run(struct slurm *s, int argc, char **argv) {
    struct opts *lines = slurm_het_opts(s, FOR_SBATCH), *all = slurm_het_opts(s, FOR_SBATCH), environment;
    struct script script = {0};
    uint32_t blocks, in_script = 1;
    if (!slurm_het_parse(s, argc, argv, lines, &blocks))
        return SLURM_USAGE;
    gather(lines, blocks);
    if (slurm_opt_given(&lines[0], "version"))
        return slurm_version();
    if (slurm_opt_given(&lines[0], "help") || slurm_opt_given(&lines[0], "usage")) {
        cleanup_buf struct buf out = {0};
        slurm_opts_help(&lines[0], "sbatch", "[OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]",
                        &out);
        return cli_print(&out);
    }
    int r = take_script(s, &lines[0], &script);
    if (r)
        return r;
    slurm_opts_init(&environment, slurm_job_opts, slurm_job_opt_count, FOR_SBATCH);
    slurm_opts_environment(&environment, "SBATCH");
    if (!slurm_opt_given(&lines[0], "wrap") &&
        (r = slurm_script_options(s, &script, all, JOB_COMPONENTS_MAX, &in_script)))
        return r;
    blocks = blocks > in_script ? blocks : in_script;
    for (uint32_t i = 0; i < blocks; i++) {
        slurm_opts_override(&all[i], &environment);
        slurm_opts_override(&all[i], &lines[i]);
        s->verbose = slurm_opt_given(&all[0], "verbose");
        s->quiet = slurm_opt_given(&all[0], "quiet");
        if (!slurm_opts_check(&all[i], s))
            return SLURM_USAGE;
    }
    s->clusters =
        slurm_opt_get(&all[0], "clusters") ? slurm_opt_get(&all[0], "clusters") : getenv("SLURM_CLUSTERS");
    return submit(s, all, blocks, &script);
}
