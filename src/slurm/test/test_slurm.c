// Slurm's command line without a cluster: options and their precedence, #SBATCH lines, lists of ids,
// states, formats of columns.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "columns.h"
#include "submit_options.h"
#include "job_row.h"
#include "sacct_columns.h"
#include "squeue_columns.h"
#include "step_hooks.h"

static int parse(struct slurm *s, struct spec *out, const char *script, char **argv) {
    struct opts line, all;
    int argc = 0;
    while (argv[argc])
        argc++;
    s->program = "sbatch";
    slurm_opts_init(&line, slurm_job_opts, slurm_job_opt_count, FOR_SBATCH);
    slurm_opts_init(&all, slurm_job_opts, slurm_job_opt_count, FOR_SBATCH);
    assert_true(slurm_opts_parse(&line, s, argc, argv, true));
    struct script text = {.text = script, .len = strlen(script)};
    int r = slurm_script_options(s, &text, &all, 1, &(uint32_t){0});
    struct opts environment;
    slurm_opts_init(&environment, slurm_job_opts, slurm_job_opt_count, FOR_SBATCH);
    slurm_opts_environment(&environment, "SBATCH");
    slurm_opts_override(&all, &environment);
    slurm_opts_override(&all, &line);
    return r ? r : slurm_job_spec_from(s, &all, out);
}
#define PARSE(script, ...) parse(&s, &p, script, (char *[]){"sbatch", __VA_ARGS__ __VA_OPT__(, ) NULL})

static void precedence(void **state) {
    struct slurm s = {0};
    struct spec p;
    const char *script = "#!/bin/sh\n#SBATCH -J script -n 2 --time=7\n\n# comment\n#SBATCH --comment=\"two "
                         "words\"\ntrue\n#SBATCH -J late\n";
    assert_int_equal(PARSE(script), 0);
    assert_string_equal(p.name, "script");
    assert_string_equal(p.comment, "two words");
    assert_int_equal(p.tasks, 2);
    assert_int_equal(p.time_limit_s, 420);
    setenv("SBATCH_JOB_NAME", "env", 1);
    setenv("SBATCH_TIMELIMIT", "9", 1);
    assert_int_equal(PARSE(script, "--job-name=line"), 0);
    assert_string_equal(p.name, "line");
    assert_int_equal(p.time_limit_s, 540);
    unsetenv("SBATCH_JOB_NAME");
    unsetenv("SBATCH_TIMELIMIT");
    arena_done(&s.cli.arena);
}

static void specs(void **state) {
    struct slurm s = {0};
    struct spec p;
    assert_int_equal(PARSE("", "-N", "2-4", "--ntasks-per-node=3", "-c2", "--mem=4G", "--gres=gpu:a100:2",
                           "-a", "1-9:2%3", "--signal=B:USR1@90", "--exclusive", "-o", "x-%j-%q.out"),
                     0);
    assert_int_equal(p.nodes_min, 2);
    assert_int_equal(p.nodes_max, 4);
    assert_int_equal(p.tasks, 6);
    assert_int_equal(p.cpus_per_task, 2);
    assert_int_equal(p.memory_per_node_bytes, 4ull << 30);
    assert_int_equal(p.gpus_per_node_milli, 2000);
    assert_string_equal(p.gpu_model, "a100");
    assert_int_equal(spec_array_count(&p), 5);
    assert_int_equal(p.array_limit, 3);
    assert_true(p.signal == 10 && p.signal_before_s == 90 && p.signal_batch_only && p.exclusive);
    assert_string_equal(p.output, "x-%j-%%q.out");
    assert_int_equal(PARSE("", "-n", "4", "--ntasks-per-node=2"), 0);
    assert_int_equal(p.nodes_min, 2);
    assert_int_equal(PARSE("", "-t", "1:30"), 0);
    assert_int_equal(p.time_limit_s, 120);
    arena_done(&s.cli.arena);
}

static void refusals(void **state) {
    struct slurm s = {0};
    struct spec p;
    assert_int_equal(PARSE("", "-n", "0"), SLURM_FAILED);
    assert_int_equal(PARSE("", "-t", "x"), SLURM_USAGE);
    assert_int_equal(PARSE("", "--mem=1Q"), SLURM_USAGE);
    assert_int_equal(PARSE("", "--gres=foo:1"), SLURM_FAILED);
    assert_int_equal(PARSE("", "-N", "3-2"), SLURM_USAGE);
    assert_int_equal(PARSE("", "--mem=1", "--mem-per-cpu=1"), SLURM_FAILED);
    assert_int_equal(PARSE("#!/bin/sh\n#SBATCH --nosuch\n"), SLURM_USAGE);
    struct opts o;
    slurm_opts_init(&o, slurm_job_opts, slurm_job_opt_count, FOR_SBATCH);
    assert_true(
        slurm_opts_parse(&o, &s, 3, (char *[]){"sbatch", "--bb=a", "--mail-type=END", NULL}, true));
    assert_false(slurm_opts_check(&o, &s));
    arena_done(&s.cli.arena);
}

static void words_of_lines(void **state) {
    char text[] = " -J 'a b'  --x=\"c d\"e \\ f # rest", *p = text;
    assert_string_equal(slurm_script_word(&p), "-J");
    assert_string_equal(slurm_script_word(&p), "a b");
    assert_string_equal(slurm_script_word(&p), "--x=c de");
    assert_string_equal(slurm_script_word(&p), " f");
    assert_null(slurm_script_word(&p));
}

static void ids(void **state) {
    struct slurm s = {.program = "squeue"};
    const char *bad = NULL;
    struct sjob plain = {.id = 12}, element = {.id = 17, .array_id = 12, .array_index = 5};
    assert_string_equal(slurm_ids_plain(&s.cli.arena, "12,13_4,14_[1-5,7],15.0", &bad), "12,13_4,14,15");
    assert_null(slurm_ids_plain(&s.cli.arena, "12,x", &bad));
    assert_string_equal(bad, "x");
    assert_true(slurm_ids_have("3,12", &plain) && slurm_ids_have("12", &element) && slurm_ids_have("12_5", &element) &&
                slurm_ids_have("12_[1-3,5]", &element));
    assert_true(slurm_ids_have("17", &element) && !slurm_ids_have("12_[1-4]", &element) && !slurm_ids_have("12_5", &plain) &&
                slurm_ids_have(NULL, &plain));
    assert_int_equal(slurm_states_parse(&s, "PD,running"),
                     1u << 31 | 1u << JOB_PENDING | 1u << JOB_RUNNING | 1u << JOB_STARTING);
    assert_int_equal(slurm_states_parse(&s, "nope"), 0);
    arena_done(&s.cli.arena);
}

static void formats(void **state) {
    struct slurm s = {.program = "squeue"};
    struct columns c = {0};
    cleanup_buf struct buf out = {0};
    struct sjob j = {.id = 12,
                     .label = "12_[1-3]",
                     .name = "a-long-name",
                     .state = JOB_STARTING,
                     .time_limit_s = 90061,
                     .nodes = "n[1-2]"};
    slurm_columns_by_letters(&s, squeue_columns, squeue_column_count, "%.6i|%4j|%t %T|%.12l<%R", "job", &c);
    slurm_columns_row(&c, &j, &out);
    assert_string_equal(buf_str(&out), "12_[1-|a-lo|R RUNNING|  1-01:01:01<n[1-2]\n");
    slurm_columns_done(&c);
    buf_clear(&out);
    c = (struct columns){0};
    slurm_columns_by_names(&s, squeue_columns, squeue_column_count, "jobid:.5,name:;,State", "job", &c);
    slurm_columns_heading(&c, &out);
    slurm_columns_row(&c, &j, &out);
    assert_string_equal(buf_str(&out), "JOBIDNAME;STATE               \n   12a-long-name;RUNNING             \n");
    slurm_columns_done(&c);
    struct acct_format f = {.parsable = 2, .delimiter = "|"};
    buf_clear(&out);
    assert_int_equal(sacct_columns(&s, "jobid,stat,exitcode%5", &f), 0);
    j.state = JOB_FAILED;
    j.exit_code = 3;
    sacct_heading(&f, &out);
    sacct_put(&f, &(struct acct_row){.job = &j}, &out);
    assert_string_equal(buf_str(&out), "JobID|State|ExitCode\n12_[1-3]|FAILED|3:0\n");
    sacct_columns_done(&f);
    assert_int_not_equal(sacct_columns(&s, "nosuch", &f), 0);
    sacct_columns_done(&f);
    arena_done(&s.cli.arena);
}

static bool local_names(const char *text) {
    char copy[256];
    int n = snprintf(copy, sizeof copy, "%s", text);
    FILE *f = fmemopen(copy, (size_t)n, "r");
    bool local = slurm_names_local(f);
    fclose(f);
    return local;
}

static void names_of_users(void **state) {
    assert_true(slurm_names_local(NULL));
    assert_true(local_names("passwd:         files systemd\ngroup: compat # as ever\nhosts: dns\n"));
    assert_false(local_names("passwd: files sss\ngroup: files\n"));
    assert_false(local_names("passwd: files\ngroup:\tfiles [SUCCESS=merge] ldap\n"));
}

// Runs the script that takes a copy to $1, after `before`, a script that can guess the name of the unfinished file.
static int take_copy(const char *before, const char *to) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("BEFORE", before, 1);
        setenv("RECEIVE", slurm_bcast_receive, 1);
        execl("/bin/sh", "sh", "-c",
              "eval \"$BEFORE\"\nexec 2>/dev/null\nexec sh -c \"$RECEIVE\" sh \"$1\" name 4 755 '' '' "
              "<<END\nabc\nEND\n",
              "sh", to, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A file that another user has put where the unfinished copy would be is not written to.
static void copies_are_made_anew(void **state) {
    char folder[] = "/tmp/acequia-bcast-XXXXXX", to[64], other[64], all[128];
    struct stat st;
    assert_non_null(mkdtemp(folder));
    snprintf(to, sizeof to, "%s/program", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    setenv("OTHER", other, 1);
    assert_int_equal(take_copy("ln -s \"$OTHER\" \"$1.$$.part\"", to), 1);
    assert_int_equal(access(other, F_OK), -1);
    assert_int_equal(take_copy(": >\"$1.$$.part\"", to), 1);
    assert_int_equal(access(to, F_OK), -1);
    assert_int_equal(take_copy("", to), 0);
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(st.st_mode & 0777, 0755);
    snprintf(all, sizeof all, "rm -r %s; exit", folder);
    take_copy(all, to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precedence),
        cmocka_unit_test(specs),
        cmocka_unit_test(refusals),
        cmocka_unit_test(words_of_lines),
        cmocka_unit_test(ids),
        cmocka_unit_test(formats),
        cmocka_unit_test(names_of_users),
        cmocka_unit_test(copies_are_made_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
