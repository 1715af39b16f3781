// acequia data run: a batch pipeline as a job. Options become the document that acequia-data (src/data) reads.
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/client.h"
#include "cli/job/options.h"
#include "cli/job/resolve.h"
#include "verbs.h"

enum { COLOURS = 3, SIDE_MAX = 65536, WORDS_MAX = 256 };

static const struct option_spec specs[] = {
    {"input", 'i', "ADDRESS",
     "A file, folder, pattern or s3://BUCKET/PREFIX; @FILE lists one address per line.", OPTION_REPEAT, NULL,
     "@file"},
    {"kind", 0, "KIND", "What the inputs are; default: as their names end, else images.", 0, NULL,
     "images files text jsonl csv parquet tar"},
    {"output", 'o', "ADDRESS", "A folder or s3://BUCKET/PREFIX for parts, or one file (.jsonl, .csv).", 0,
     NULL, "@file"},
    {"format", 0, "FORMAT", "Of results; default: as the output's name ends, else jsonl.", 0, NULL,
     "jsonl csv parquet"},
    {"limit", 0, "N", "At most so many inputs.", 0, NULL, NULL},
    {"fresh", 0, NULL, "Remove results of an earlier run instead of going on after them.", 0, NULL, NULL},
    {"max-errors", 0, "N", "Rows that may fail and are left out; default: 100, or unlimited.", 0, NULL, NULL},
    {"any-name", 0, NULL, "Every file of folders, whatever its name ends with.", 0, NULL, NULL},
};
static const struct option_table data_options = OPTION_TABLE("Inputs and results", specs);

static const struct option_spec model_specs[] = {
    {"model", 0, "FILE.onnx", "Run this model on every row, by ONNX Runtime.", 0, NULL, "@file"},
    {"function", 0, "MODULE:NAME",
     "Call this Python function, or class that is made once per process, with batches.", OPTION_REPEAT, NULL,
     NULL},
    {"outputs", 0, "WHICH", "Of the model: top1 (columns prediction and score) or all.", 0, NULL, "top1 all"},
    {"size", 0, "N|WxH", "Resize images; with --model 224 unless given.", 0, NULL, NULL},
    {"shorter", 0, "N", "Resize so that the shorter side has this length, then cut the middle out.", 0, NULL,
     NULL},
    {"filter", 0, "FILTER", "For resizing.", 0, NULL, "bilinear bicubic lanczos box hamming"},
    {"grey", 0, NULL, "Images with one colour.", 0, NULL, NULL},
    {"normalize", 0, "HOW", "Values for a model: imagenet (default with --model), unit (0 to 1) or none.", 0,
     NULL, "imagenet unit none"},
    {"batch", 0, "ROWS", "Rows of a batch; else found while it runs.", 0, "batch-size", NULL},
    {"replicas", 0, "N", "Processes per node; else as CPUs and GPUs allow.", 0, "concurrency", NULL},
    {"threads", 0, "N", "Threads of one process.", 0, NULL, NULL},
    {"gpus-per-replica", 0, "N",
     "GPUs of one process, also a part of one; default: all that --gpus asks for, at most one.", 0, NULL,
     NULL},
    {"python", 0, "PROGRAM", "Interpreter of the processes; default: python3.", 0, NULL, "@file"},
    {"explain", 0, NULL, "Say at the end what was chosen and why.", 0, NULL, NULL},
    {"detach", 'd', NULL, "Submit only and print the job's number; its output shows the progress.", 0, NULL,
     NULL},
};
static const struct option_table model_options = OPTION_TABLE("What is done", model_specs);

// Options of jobs that matter here; -o, -i and -d mean the pipeline's.
static const struct option_spec job_specs[] = {
    {"cpus", 'c', "N", "CPUs.", 0, NULL, NULL},
    {"memory", 'm', "SIZE", "Memory; half of it holds rows.", 0, "mem", NULL},
    {"gpus", 'g', "N", "GPUs, or a part of one.", 0, NULL, NULL},
    {"gpu-memory", 0, "SIZE", "Memory on the GPU.", 0, NULL, NULL},
    {"time", 't', "DURATION", "Time limit.", 0, NULL, NULL},
    {"project", 'P', "NAME", "Project that is charged.", 0, NULL, "@project"},
    {"partition", 'p', "NAME", "Partition.", 0, NULL, "@partition"},
    {"qos", 'q', "NAME", "Quality of service.", 0, NULL, NULL},
    {"nodelist", 'w', "NODE", "On this node.", 0, NULL, "@node"},
    {"constraint", 'C', "FEATURES", "On a node with these features.", 0, NULL, NULL},
    {"name", 'J', "NAME", "Name of the job.", 0, NULL, NULL},
    {"container", 0, "IMAGE", "In this image, which has Python and what the functions need.", 0, NULL, NULL},
    {"env", 'E', "NAME=VALUE", "A variable.", OPTION_REPEAT, NULL, NULL},
    {"secret", 0, "NAME[:…]", "A secret, as keys of S3; see acequia secret.", OPTION_REPEAT, NULL, NULL},
    {"volume", 'v', "NAME:PATH", "A volume.", OPTION_REPEAT, NULL, NULL},
    {"retries", 0, "N", "Run again after a failure, so often; it goes on where it was.", 0, NULL, NULL},
    {"tag", 0, "NAME=VALUE", "A tag.", OPTION_REPEAT, NULL, NULL},
};
static const struct option_table job_options = OPTION_TABLE("The job that does it", job_specs);

static const char *const kinds[][2] = {{".jsonl", "jsonl"},     {".ndjson", "jsonl"}, {".csv", "csv"},
                                       {".parquet", "parquet"}, {".tar", "tar"},      {".txt", "text"},
                                       {".log", "text"}};

static bool ends_with(const char *s, const char *ending) {
    size_t n = strlen(s), m = strlen(ending);
    return n >= m && !strcasecmp(s + n - m, ending);
}

static const char *kind_of(const char *input) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends_with(input, kinds[i][0]))
            return kinds[i][1];
    return "images";
}

// Paths are those of this folder, also where the job begins in another one.
static const char *absolute(struct cli *c, const char *path) {
    char here[PATH_MAX];
    bool list = *path == '@';
    if (path[list] == '/' || strstr(path, "://") || !getcwd(here, sizeof here))
        return path;
    return arena_printf(&c->arena, "%s%s/%s", list ? "@" : "", here, path + list);
}

static int parse_size(struct cli *c, const char *text, uint32_t *width, uint32_t *height) {
    const char *x = strchr(text, 'x');
    char *first = arena_strndup(&c->arena, text, x ? (size_t)(x - text) : strlen(text));
    if (parse_u32(first, width) || parse_u32(x ? x + 1 : first, height) || !*width || !*height ||
        *width > SIDE_MAX || *height > SIDE_MAX)
        return error_set(&c->error, EINVAL, "--size %s: give pixels, as 224 or 320x240", text);
    return 0;
}

static void put_numbers(struct json_writer *w, const char *key, const double *v, uint32_t n) {
    json_open_key(w, key, '[');
    for (uint32_t i = 0; i < n; i++)
        json_put_double(w, v[i]);
    json_close(w, ']');
}

static int write_source(struct cli *c, struct json_writer *w) {
    static const double mean[COLOURS] = {0.485, 0.456, 0.406}, std[COLOURS] = {0.229, 0.224, 0.225};
    const char *kind = option_get(&c->options, "kind"), *size = option_get(&c->options, "size"),
               *how = option_get(&c->options, "normalize");
    uint32_t width = 0, height = 0, shorter = 0, limit = 0, it = 0;
    const char *first = option_get(&c->options, "input");
    kind = kind ? kind : kind_of(first);
    bool images = streq(kind, "images") || streq(kind, "tar"), model = option_given(&c->options, "model"),
         grey = option_given(&c->options, "grey");
    if (!images && size)
        return error_set(&c->error, EINVAL, "--size is for images; the inputs are %s (see --kind)", kind);
    size = size ? size : model && images ? "224" : NULL;
    int r = size ? parse_size(c, size, &width, &height) : 0;
    r = r ? r : option_u32(&c->options, "shorter", 1, SIDE_MAX, &shorter, &c->error);
    r = r ? r : option_u32(&c->options, "limit", 1, UINT32_MAX, &limit, &c->error);
    if (r)
        return r;
    how = how ? how : model && images ? "imagenet" : "none";
    if (!streq(how, "imagenet") && !streq(how, "unit") && !streq(how, "none"))
        return error_set(&c->error, EINVAL, "--normalize %s: imagenet, unit or none", how);
    if (streq(how, "imagenet") && grey)
        return error_set(&c->error, EINVAL, "--normalize imagenet is for three colours: with --grey give unit or none");
    json_open_key(w, "source", '{');
    json_kv_str(w, "kind", kind);
    json_open_key(w, "inputs", '[');
    for (const char *v; (v = option_next(&c->options, "input", &it));)
        json_put_str(w, absolute(c, v));
    json_close(w, ']');
    json_kv_i64(w, "width", width);
    json_kv_i64(w, "height", height);
    json_kv_i64(w, "shorter", shorter);
    json_kv_i64(w, "limit", limit);
    json_kv_str(w, "mode", grey ? "grey" : "rgb");
    json_kv_bool(w, "any_name", option_given(&c->options, "any-name"));
    if (option_given(&c->options, "filter"))
        json_kv_str(w, "filter", option_get(&c->options, "filter"));
    if (!streq(how, "none")) {
        json_kv_bool(w, "planes", true);
        if (streq(how, "imagenet")) {
            put_numbers(w, "mean", mean, COLOURS);
            put_numbers(w, "std", std, COLOURS);
        }
    }
    json_close(w, '}');
    return 0;
}

// How many GPUs one process has: all of the job's, at most one, unless something else was said.
static int replica_gpus(struct cli *c, const struct spec *s, double *out) {
    const char *text = option_get(&c->options, "gpus-per-replica");
    char *end = NULL;
    uint32_t milli = s->gpus_milli ? s->gpus_milli : s->gpus_per_node_milli;
    *out = milli >= 1000 ? 1 : (double)milli / 1000;
    if (!text)
        return 0;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= 0) || *out > 1024)
        return error_set(&c->error, EINVAL, "--gpus-per-replica %s: a number of GPUs, as 1, 2 or 0.5", text);
    return 0;
}

static int write_stage(struct cli *c, struct json_writer *w, const char *kind, const char *name,
                       const char *settings, double gpus) {
    uint32_t batch = 0, replicas = 0, threads = 0;
    int r = option_u32(&c->options, "batch", 1, 65536, &batch, &c->error);
    r = r ? r : option_u32(&c->options, "replicas", 1, 1024, &replicas, &c->error);
    r = r ? r : option_u32(&c->options, "threads", 1, 1024, &threads, &c->error);
    if (r)
        return r;
    json_open(w, '{');
    json_kv_str(w, "kind", kind);
    json_kv_str(w, "name", name);
    json_kv_str(w, "settings", settings);
    json_kv_i64(w, "batch", batch);
    json_kv_i64(w, "replicas", replicas);
    json_kv_i64(w, "threads", threads);
    json_key(w, "cpus");
    json_put_double(w, threads);
    json_key(w, "gpus");
    json_put_double(w, gpus);
    json_close(w, '}');
    return 0;
}

static int write_model(struct cli *c, struct json_writer *w, double gpus) {
    const char *file = option_get(&c->options, "model"), *outputs = option_get(&c->options, "outputs");
    cleanup_buf struct buf b = {0};
    struct json_writer s = {.out = &b};
    const char *slash = strrchr(file, '/');
    if (outputs && !streq(outputs, "top1") && !streq(outputs, "all"))
        return error_set(&c->error, EINVAL, "--outputs %s: top1 or all", outputs);
    json_open(&s, '{');
    json_kv_str(&s, "model", absolute(c, file));
    json_kv_str(&s, "outputs", outputs ? outputs : "top1");
    json_kv_bool(&s, "gpu", gpus > 0);
    json_close(&s, '}');
    return write_stage(c, w, "onnx", slash ? slash + 1 : file, buf_str(&b), gpus);
}

static int write_functions(struct cli *c, struct json_writer *w, double gpus) {
    cleanup_buf struct buf b = {0}, names = {0};
    struct json_writer s = {.out = &b};
    uint32_t it = 0;
    char here[PATH_MAX];
    json_open(&s, '{');
    json_open_key(&s, "path", '[');
    json_put_str(&s, getcwd(here, sizeof here) ? here : ".");
    json_close(&s, ']');
    json_open_key(&s, "operations", '[');
    for (const char *v; (v = option_next(&c->options, "function", &it));) {
        if (!strchr(v, ':'))
            return error_set(&c->error, EINVAL, "--function %s: write MODULE:NAME or FILE.py:NAME", v);
        json_open(&s, '{');
        json_kv_str(&s, "op", "map_batches");
        json_open_key(&s, "function", '{');
        json_kv_str(&s, "name", v);
        json_close(&s, '}');
        json_close(&s, '}');
        buf_addf(&names, "%s%s", names.len ? ", " : "", strrchr(v, ':') + 1);
    }
    json_close(&s, ']');
    json_close(&s, '}');
    return write_stage(c, w, "python", buf_str(&names), buf_str(&b), gpus);
}

static int write_program(struct cli *c, struct json_writer *w) {
    cleanup_buf struct buf b = {0};
    struct json_writer s = {.out = &b};
    json_open(&s, '{');
    json_open_key(&s, "command", '[');
    for (int i = 1; i < c->count; i++)
        json_put_str(&s, c->arguments[i]);
    json_close(&s, ']');
    json_close(&s, '}');
    return write_stage(c, w, "program", c->arguments[1], buf_str(&b), 0);
}

static int write_stages(struct cli *c, struct json_writer *w, double gpus) {
    int r = 0;
    const char *kind = option_get(&c->options, "kind"), *input = option_get(&c->options, "input");
    json_open_key(w, "stages", '[');
    if (streq(kind ? kind : kind_of(input), "parquet")) {
        json_open(w, '{');
        json_kv_str(w, "kind", "python");
        json_kv_str(w, "name", "read_parquet");
        json_kv_str(w, "settings", "{\"operations\":[{\"op\":\"read_parquet\"}]}");
        json_close(w, '}');
    }
    if (option_given(&c->options, "function"))
        r = write_functions(c, w, option_given(&c->options, "model") ? 0 : gpus);
    if (!r && option_given(&c->options, "model"))
        r = write_model(c, w, gpus);
    if (!r && c->count > 1)
        r = write_program(c, w);
    json_close(w, ']');
    return r;
}

static int write_output(struct cli *c, struct json_writer *w) {
    const char *path = option_get(&c->options, "output"), *format = option_get(&c->options, "format");
    bool file = ends_with(path, ".jsonl") || ends_with(path, ".csv");
    if (!format)
        format = ends_with(path, ".csv") ? "csv" : strstr(path, ".parquet") ? "parquet" : "jsonl";
    if (file && strstr(path, "://"))
        return error_set(&c->error, EINVAL,
                         "--output %s: in a bucket results are parts; name a prefix that ends in /", path);
    json_open_key(w, "output", '{');
    json_kv_str(w, "kind", format);
    json_kv_str(w, "path", absolute(c, path));
    json_kv_bool(w, "single", file);
    json_close(w, '}');
    return 0;
}

static int write_errors(struct cli *c, struct json_writer *w) {
    const char *text = option_get(&c->options, "max-errors");
    uint64_t n = 0;
    if (!text)
        return 0;
    if (streq(text, "unlimited")) {
        json_kv_bool(w, "errors_unlimited", true);
        return 0;
    }
    if (parse_u64(text, &n) || n > INT64_MAX)
        return error_set(&c->error, EINVAL, "--max-errors %s: a number from 0 on, or unlimited", text);
    json_kv_i64(w, "errors_max", (int64_t)n);
    return 0;
}

static int write_plan(struct cli *c, const struct spec *s, struct buf *out) {
    struct json_writer w = {.out = out};
    double gpus = 0;
    int r = replica_gpus(c, s, &gpus);
    json_open(&w, '{');
    r = r ? r : write_source(c, &w);
    r = r ? r : write_stages(c, &w, gpus);
    r = r ? r : write_output(c, &w);
    r = r ? r : write_errors(c, &w);
    json_kv_bool(&w, "fresh", option_given(&c->options, "fresh"));
    if (option_given(&c->options, "python"))
        json_kv_str(&w, "python", option_get(&c->options, "python"));
    json_close(&w, '}');
    return r;
}

static int read_job(struct cli *c, struct spec *s, struct job_environment *environment) {
    char *argv[WORDS_MAX];
    int n = 0;
    for (uint32_t i = 0; i < c->options.values.len && n + 1 < WORDS_MAX; i++) {
        const struct option_value *v = &c->options.values.at[i];
        if (v->option < job_specs || v->option >= job_specs + sizeof job_specs / sizeof *job_specs)
            continue;
        argv[n++] = arena_printf(&c->arena, "--%s", v->option->name);
        argv[n++] = arena_strdup(&c->arena, v->value);
    }
    return verb_job_of_words(c, n, argv, s, environment);
}

static int submit_only(struct cli *c, struct spec *s, const struct job_environment *environment) {
    cleanup_buf struct buf body = {0}, out = {0};
    struct reply reply;
    verb_complete_job(s);
    job_request_write(&(struct job_request){.spec = s, .environment = environment}, &body);
    int status = client_post(c, "/v1/jobs", &body, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        buf_addf(&out, "%s\n", reply.text);
    else
        buf_addf(&out, "Submitted job %lld\n", (long long)json_i64(reply.json, "id", 0));
    return cli_print(&out);
}

static int run(struct cli *c) {
    struct spec s;
    struct job_environment environment;
    cleanup_buf struct buf plan = {0};
    if (!streq(c->arguments[0], "run"))
        return cli_usage(c, "acequia data %s is not known; there is: acequia data run", c->arguments[0]);
    if (!option_given(&c->options, "input") || !option_given(&c->options, "output"))
        return cli_usage(c, "--input and --output are needed; example: acequia data run --model m.onnx "
                            "--input photos/ --output out.jsonl");
    if (str_empty(option_get(&c->options, "input")) || str_empty(option_get(&c->options, "output")))
        return cli_usage(c, "%s is empty; name a file, a folder or s3://BUCKET/PREFIX",
                         str_empty(option_get(&c->options, "input")) ? "--input" : "--output");
    if (read_job(c, &s, &environment) < 0 || write_plan(c, &s, &plan) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    bool detach = option_given(&c->options, "detach") || c->json;
    const char *argv[] = {"/bin/sh", "-c",
                          arena_printf(&c->arena,
                                       "exec \"${ACEQUIA_DATA:?has no value: the release of Acequia on this "
                                       "node has no data engine}\" run%s --plan \"$1\"",
                                       option_given(&c->options, "explain") ? " --explain" : ""),
                          "data", buf_str(&plan)};
    s.argv.at = arena_memdup(&c->arena, argv, sizeof argv);
    s.argv.len = sizeof argv / sizeof *argv;
    s.name = s.name ? s.name : "data";
    s.command_text = arena_printf(&c->arena, "acequia data run --output %s", option_get(&c->options, "output"));
    s.launch = LAUNCH_BATCH;
    // On a terminal the line of progress is rewritten in place.
    s.pty = !detach && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    return detach ? submit_only(c, &s, &environment) : verb_run_attached(c, &s, &environment);
}

const struct verb verb_data = {
    .name = "data",
    .group = "Work",
    .arguments = "run -i ADDRESS -o ADDRESS [options] [-- PROGRAM...]",
    .summary = "run a model or function over a data set, as a job",
    .text = "Images, files, lines, CSV, Parquet and archives, from folders or S3, go in batches through an "
            "ONNX model, Python "
            "functions, or a program that reads rows as JSON, one per line, and answers each with a line. "
            "Results are parts in a "
            "folder. Sizes of batches are found while it runs, memory is bounded, and rows that fail are "
            "listed and left out. What is "
            "done is recorded: after whatever ended it, the same command goes on.",
    .examples = "acequia data run --model resnet50.onnx -i s3://bucket/val/ -o out/ -g 1\n"
                "acequia data run --function clean.py:clean -i rows.csv -o clean.jsonl\n"
                "acequia data run -i photos/ --size 256 --function embed:Embed -o out/ -c 4",
    .options = {&data_options, &model_options, &job_options, &cli_common_options},
    .run = run,
    .complete = "run",
    .least = 1,
    .most = -1,
};
