// The table of a pipeline's document, and the checks of what a table cannot say.
#include "plan.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "image.h"
#include "remote.h"

const char *const data_source_words[] = {"images", "files", "text", "jsonl", "csv", "parquet", "tar", "range", NULL};
const char *const data_stage_words[] = {"python", "onnx", "program", NULL};
const char *const data_output_words[] = {"none", "jsonl", "csv", "parquet", "stream", NULL};
const char *const data_mode_words[] = {"rgb", "grey", NULL};

static const struct field source_fields[] = {
    FIELD_WORDS(1, struct data_source, kind, data_source_words, "what the inputs are", .required = true),
    FIELD_LIST(2, struct data_source, inputs,
               "files, folders, patterns, s3://bucket/prefix, or lists of http addresses"),
    FIELD(3, struct data_source, width, "of images, in pixels", .max = DATA_IMAGE_SIDE_MAX),
    FIELD(4, struct data_source, height, "of images, in pixels", .max = DATA_IMAGE_SIDE_MAX),
    FIELD(5, struct data_source, shorter,
          "resize so that the shorter side has this length, then cut the middle out",
          .max = DATA_IMAGE_SIDE_MAX),
    FIELD_WORDS(6, struct data_source, filter, data_filter_words, "for resizing"),
    FIELD_WORDS(7, struct data_source, mode, data_mode_words, "colours"),
    FIELD(8, struct data_source, planes,
          "values for a model, (value / 255 - mean) / std, one plane per colour"),
    FIELD_LIST(9, struct data_source, mean, "per colour"),
    FIELD_LIST(10, struct data_source, std, "per colour"),
    FIELD_LIST(11, struct data_source, columns, "of Parquet: only these"),
    FIELD(12, struct data_source, rows, "of a range"),
    FIELD(13, struct data_source, limit, "stop after so many rows; 0: all"),
    FIELD(14, struct data_source, any_name, "of folders: every file, whatever its name ends with"),
};
static const struct schema source_schema = SCHEMA(struct data_source, "data_source", source_fields);

static const struct field stage_fields[] = {
    FIELD_WORDS(1, struct data_stage, kind, data_stage_words, "what runs it", .required = true),
    FIELD(2, struct data_stage, name, "shown"),
    FIELD(3, struct data_stage, settings, "JSON for the worker", .required = true),
    FIELD(4, struct data_stage, identity, "equal for functions whose results are equal"),
    FIELD(5, struct data_stage, batch, "rows; 0: found while it runs", .max = DATA_BATCH_MAX),
    FIELD(6, struct data_stage, replicas, "processes; 0: as the node allows", .max = DATA_REPLICAS_MAX),
    FIELD(7, struct data_stage, threads, "of one process; 0: chosen", .max = 1024),
    FIELD(8, struct data_stage, cpus, "of one process"),
    FIELD(9, struct data_stage, gpus, "of one process; fractions share a GPU"),
};
static const struct schema stage_schema = SCHEMA(struct data_stage, "data_stage", stage_fields);

static const struct field output_fields[] = {
    FIELD_WORDS(1, struct data_output, kind, data_output_words, "format", .required = true),
    FIELD(2, struct data_output, path, "folder, file or s3://bucket/prefix"),
    FIELD(3, struct data_output, single, "one file instead of a folder of parts"),
};
static const struct schema output_schema = SCHEMA(struct data_output, "data_output", output_fields);

static const struct field plan_fields[] = {
    FIELD_SUB(1, struct data_plan, source, &source_schema, "rows", .required = true),
    FIELD_LIST_SUB(2, struct data_plan, stages, &stage_schema, "what is done, in order"),
    FIELD_SUB(3, struct data_plan, output, &output_schema, "results", .required = true),
    FIELD(4, struct data_plan, memory_bytes, "shared memory for rows on a node; 0: half of what the job has"),
    FIELD(5, struct data_plan, errors_max, "rows that may fail; more end the run"),
    FIELD(6, struct data_plan, errors_unlimited, "any number of rows may fail"),
    FIELD(7, struct data_plan, fresh, "remove results of an earlier run instead of going on after them"),
    FIELD(8, struct data_plan, python, "interpreter of workers"),
};
const struct schema data_plan_schema = SCHEMA_GIVEN(struct data_plan, "data_plan", plan_fields);

static int check_source(const struct data_source *s, struct error *e) {
    if (s->kind != DATA_RANGE && !s->inputs.len)
        return error_set(e, EINVAL, "no inputs: name files, folders, patterns or s3://bucket/prefix");
    if (s->inputs.len > DATA_INPUTS_MAX)
        return error_set(e, EINVAL, "%u inputs are named, at most %d can be: name their folder, or a pattern",
                         s->inputs.len, DATA_INPUTS_MAX);
    if (!s->width != !s->height)
        return error_set(e, EINVAL, "a size has a width and a height");
    if (s->shorter && !s->width)
        return error_set(e, EINVAL, "the length of the shorter side needs the size that is cut out as well");
    if (s->shorter && (s->shorter < s->width || s->shorter < s->height))
        return error_set(e, EINVAL, "the size %u × %u cannot be cut out of images whose shorter side is %u",
                         s->width, s->height, s->shorter);
    uint32_t colours = s->mode == DATA_MODE_GREY ? 1 : 3;
    if (s->planes && !s->width)
        return error_set(e, EINVAL, "values for a model need images of one size");
    if ((s->mean.len && s->mean.len != colours) || (s->std.len && s->std.len != colours))
        return error_set(e, EINVAL, "mean and std have one number per colour: %u", colours);
    for (uint32_t i = 0; i < s->std.len; i++)
        if (!(s->std.at[i] > 0) || !isfinite(s->std.at[i]))
            return error_set(e, EINVAL, "std must be above zero");
    return 0;
}

static int check_stage(const struct data_stage *s, struct error *e) {
    if (!(s->cpus >= 0) || !(s->gpus >= 0) || s->cpus > 4096 || s->gpus > 1024)
        return error_set(e, EINVAL, "stage %s: cpus and gpus are numbers from 0 on", s->name ? s->name : "");
    return 0;
}

int data_plan_read(const char *text, size_t len, struct arena *a, struct data_plan *out, struct error *e) {
    struct json *j = NULL;
    if (len > DATA_PLAN_MAX)
        return error_set(e, E2BIG, "the pipeline has %zu bytes, at most %d: put large constants into a file",
                         len, DATA_PLAN_MAX);
    int r = json_parse(text, len, a, &j, e);
    if (!r)
        r = schema_read_json(&data_plan_schema, j, a, out, e);
    if (!r)
        r = check_source(out->source, e);
    if (!r && out->stages.len > DATA_STAGES_MAX)
        r = error_set(e, EINVAL, "%u stages, at most %d", out->stages.len, DATA_STAGES_MAX);
    for (uint32_t i = 0; !r && i < out->stages.len; i++)
        r = check_stage(&out->stages.at[i], e);
    if (r)
        return r;
    bool writes = out->output->kind != DATA_OUT_NONE && out->output->kind != DATA_OUT_STREAM;
    if (writes && str_empty(out->output->path))
        return error_set(e, EINVAL, "no output: name a folder or s3://bucket/prefix");
    if (writes && data_is_remote(out->output->path) && !data_is_s3(out->output->path))
        return error_set(e, EINVAL, "results are written to folders and to s3://, not to %s", out->output->path);
    if (!schema_given(&data_plan_schema, out, &out->errors_max))
        out->errors_max = DATA_ERRORS_DEFAULT;
    return 0;
}

uint64_t data_plan_identity(const struct data_plan *p) {
    struct buf cleanup_buf b = {0};
    struct data_source source = *p->source;
    source.limit = 0;  // more rows of the same are the same results
    schema_encode(&source_schema, &source, &b);
    for (uint32_t i = 0; i < p->stages.len; i++) {
        const struct data_stage *s = &p->stages.at[i];
        buf_addf(&b, "|%u %s %s", s->kind, s->name ? s->name : "", s->identity ? s->identity : s->settings);
    }
    buf_addf(&b, "|%u", p->output->kind);
    return hash_bytes(b.data, b.len);
}
