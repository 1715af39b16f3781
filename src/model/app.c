// Owns the form of apps, and what their fields make of a job.
#include "model/app.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "cluster_text.h"
#include "model/gpuspec.h"
#include "model/health.h"
#include "model/name.h"
#include "model/port.h"
#include "model/units.h"

enum { APPS_PER_FOLDER = 256, APP_LINE_MAX = 1000, FILE_SUFFIX = sizeof ".json" - 1 };

const char *const app_kind_words[] = {"text",      "folder", "gpus",      "cpus",    "memory",
                                      "time",      "idle",   "container", "workdir", "project",
                                      "partition", "name",   "workers",   NULL};
static_assert(sizeof app_kind_words / sizeof *app_kind_words == APP_KIND_COUNT + 1, "a word per kind");

#define S struct app_field
static const struct field field_fields[] = {
    FIELD(1, S, name, "Name: small letters, digits and _."),
    FIELD(2, S, title, "Label of the form."),
    FIELD(3, S, help, "A sentence about it."),
    FIELD_WORDS(4, S, kind, app_kind_words,
                "What it is: text and folder are given to the script as the variable APP_NAME; gpus, cpus, "
                "memory, time, "
                "idle, container, workdir, project, partition and name change the job, workers does both."),
    FIELD(5, S, value, "Value unless another is given."),
    FIELD(6, S, required, "It must not be empty."),
    FIELD_LIST(7, S, choices, "The values to choose from; none: any."),
};
static const struct schema field_schema = SCHEMA(S, "a field of an app", field_fields);
#undef S
#define S struct app
static const struct field app_fields[] = {
    FIELD(1, S, name, "Name of the app."),
    FIELD(2, S, title, "Title."),
    FIELD(3, S, summary, "A sentence about it."),
    FIELD(4, S, icon, "A picture: one or two characters, such as an emoji."),
    FIELD(5, S, origin, "Where it comes from: built-in, site or own."),
    FIELD_SUB(6, S, spec, &spec_schema, "The job, as for a submit: ports, health, resources."),
    FIELD(7, S, script, "What the job runs; begins with #!."),
    FIELD_LIST_SUB(8, S, fields, &field_schema, "What whoever starts it fills in."),
};
const struct schema app_schema = SCHEMA(S, "an app", app_fields);
#undef S

static bool name_ok(const char *name) {
    size_t len = name ? strlen(name) : 0;
    return len && len <= APP_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static int check_field(const struct app_field *f, struct error *e) {
    char shown[64];
    if (!name_ok(f->name) || strchr(f->name, '-'))
        return error_set(e, EINVAL, "fields: \"%s\" is no name of a field; use small letters, digits and _",
                         str_printable(f->name ? f->name : "", shown, sizeof shown));
    for (uint32_t i = 0; i < f->choices.len && f->value; i++)
        if (streq(f->choices.at[i], f->value))
            return 0;
    return f->choices.len && f->value
               ? error_set(e, EINVAL, "fields: the value of %s is none of its choices", f->name)
               : 0;
}

// They are shown at terminals and in lists.
static int check_texts(const struct app *a, struct error *e) {
    const char *const texts[][2] = {{"title", a->title}, {"summary", a->summary}, {"icon", a->icon}};
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof texts / sizeof *texts; i++)
        r = texts[i][1] ? name_line_check(texts[i][0], texts[i][1], APP_LINE_MAX, e) : 0;
    for (uint32_t i = 0; r == 0 && i < a->fields.len; i++) {
        const struct app_field *f = &a->fields.at[i];
        const char *const words[] = {f->title, f->help, f->value};
        for (size_t k = 0; r == 0 && k < sizeof words / sizeof *words; k++)
            r = words[k] ? name_line_check("fields", words[k], APP_LINE_MAX, e) : 0;
        for (uint32_t k = 0; r == 0 && k < f->choices.len; k++)
            r = name_line_check("choices", f->choices.at[k], APP_LINE_MAX, e);
    }
    return r;
}

static bool has_kind(const struct app *a, enum app_kind kind) {
    for (uint32_t i = 0; i < a->fields.len; i++)
        if (a->fields.at[i].kind == kind)
            return true;
    return false;
}

bool app_is_cluster(const struct app *app) {
    const struct spec *s = app->spec;
    return s && s->components.len == 2 && spec_component_may_be_empty(s, 1) &&
           !spec_component_may_be_empty(s, 0);
}

static int check(const struct app *a, struct error *e) {
    if (!name_ok(a->name))
        return error_set(e, EINVAL, "an app is named by small letters, digits, _ and -, as its file is");
    if (str_empty(a->script) || strncmp(a->script, "#!", 2) != 0 || strlen(a->script) > APP_TEXT_MAX)
        return error_set(e, EINVAL, "script: it must begin with #! and have at most %d bytes", APP_TEXT_MAX);
    if (a->fields.len > APP_FIELDS_MAX)
        return error_set(e, E2BIG, "fields: at most %d", APP_FIELDS_MAX);
    for (uint32_t i = 0; i < a->fields.len; i++) {
        int r = check_field(&a->fields.at[i], e);
        if (r < 0)
            return r;
    }
    int r = check_texts(a, e);
    if (r == 0 && has_kind(a, APP_WORKERS) && !app_is_cluster(a))
        r = error_set(e, EINVAL,
                      "fields: one of the kind workers needs components in spec: \"head\" and another one");
    r = r < 0 ? r : ports_check(a->spec->ports.at, a->spec->ports.len, e);
    return r < 0 ? r : health_check_spec(a->spec, e);
}

int app_read(const char *name, const char *json, size_t len, const char *script, struct arena *a,
             struct app *out, struct error *e) {
    struct json *root;
    struct app app = {0};
    int r = json_parse(json, len, a, &root, e);
    if (r < 0 || (r = schema_read_json(&app_schema, root, a, &app, e)) < 0)
        return r;
    if (str_empty(app.script))
        app.script = script;
    return app_complete(name, &app, a, out, e);
}

int app_complete(const char *name, const struct app *document, struct arena *a, struct app *out,
                 struct error *e) {
    struct app app = *document;
    app.name = arena_strdup(a, name);
    if (!app.spec)
        app.spec = arena_alloc(a, sizeof *app.spec);
    if (str_empty(app.title))
        app.title = app.name;
    int r = check(&app, e);
    if (r == 0)
        *out = app;
    return r;
}

// --- folders ---

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct app *)a)->name, ((const struct app *)b)->name);
}

static int read_text(int folder, const char *file, struct arena *a, char **out, size_t *len,
                     struct error *e) {
    struct stat st;
    cleanup_close int fd = openat(folder, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(e, errno, "it cannot be read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > APP_FILE_MAX)
        return error_set(e, EINVAL, "it is no plain file of at most %d bytes", APP_FILE_MAX);
    *out = arena_alloc(a, (size_t)st.st_size + 1);  // ends with a zero
    ssize_t n = read(fd, *out, (size_t)st.st_size);
    *len = n < 0 ? 0 : (size_t)n;
    return n < 0 ? error_set(e, errno, "it cannot be read: %s", strerror(errno)) : 0;
}

static int read_app(int folder, const char *file, const char *origin, struct arena *a, struct app *out,
                    struct error *e) {
    char *json, *script = NULL;
    size_t len, script_len;
    const char *name = arena_strndup(a, file, strlen(file) - FILE_SUFFIX);
    int r = read_text(folder, file, a, &json, &len, e);
    if (r < 0)
        return r;
    if (read_text(folder, arena_printf(a, "%s.sh", name), a, &script, &script_len, NULL) < 0)
        script = NULL;
    r = app_read(name, json, len, script, a, out, e);
    out->origin = origin;
    return r;
}

int app_folder(const char *path, const char *origin, struct arena *a, struct app_list *out,
               void (*bad)(void *ctx, const char *file, const char *why), void *ctx, struct error *e) {
    DIR *d = opendir(path);
    *out = (struct app_list){.at = arena_alloc(a, APPS_PER_FOLDER * sizeof *out->at)};
    if (!d)
        return errno == ENOENT ? 0
                               : error_set(e, errno, "apps: %s cannot be read: %s", path, strerror(errno));
    for (struct dirent *x; (x = readdir(d)) && out->len < APPS_PER_FOLDER;) {
        size_t len = strlen(x->d_name);
        struct error why = {0};
        if (len <= FILE_SUFFIX || !streq(x->d_name + len - FILE_SUFFIX, ".json"))
            continue;
        if (read_app(dirfd(d), x->d_name, origin, a, &out->at[out->len], &why) == 0)
            out->len++;
        else if (bad)
            bad(ctx, x->d_name, why.text);
    }
    closedir(d);
    qsort(out->at, out->len, sizeof *out->at, by_name);
    return 0;
}

const struct app *app_find(const struct app_list *list, const char *name) {
    for (uint32_t i = 0; i < list->len; i++)
        if (streq(list->at[i].name, name))
            return &list->at[i];
    return NULL;
}

// --- from fields to a job ---

static int set_gpus(const char *value, struct arena *a, struct spec *s, struct error *e) {
    struct gpu_spec g;
    int r = gpu_spec_parse(value, &g, e);
    if (r < 0)
        return r;
    s->gpus_milli = g.milli;
    if (*g.model)
        s->gpu_model = arena_strdup(a, g.model);
    return 0;
}

static int set_seconds(const char *value, uint32_t bare_s, uint32_t *out, struct error *e) {
    int r = streq(value, "none") ? 0 : duration_parse(value, bare_s, out, e);
    if (streq(value, "none"))
        *out = 0;
    else if (r == 0 && *out == DURATION_UNLIMITED)
        *out = DURATION_LIMIT_S;
    return r;
}

static void set_variable(const char *field, const char *value, struct arena *a, struct app_job *out) {
    char *variable = arena_printf(a, "APP_%s=%s", field, value);
    for (char *p = variable; *p != '='; p++)
        *p = (char)toupper((unsigned char)*p);
    out->environment.at[out->environment.len++] = variable;
}

static int set_workers(const struct app_field *f, const char *value, struct arena *a, struct app_job *out,
                       struct error *e) {
    struct job_component *k = &out->spec.components.at[1];
    if (spec_workers_parse(value, &k->workers_min, &k->workers_max) < 0)
        return error_set(e, EINVAL, "write a number such as 4 or a range such as 2-8, at most %d",
                         JOB_WORKERS_MAX);
    k->workers_given = true;
    set_variable(f->name, value, a, out);
    return 0;
}

static int set_value(const struct app_field *f, const char *value, struct arena *a, struct app_job *out,
                     struct error *e) {
    struct spec *s = &out->spec;
    if (!*value && f->kind != APP_TEXT && f->kind != APP_FOLDER)
        return 0;
    switch (f->kind) {
    case APP_GPUS: return set_gpus(value, a, s, e);
    case APP_CPUS:
        return parse_u32(value, &s->cpus_per_task) < 0 ? error_set(e, EINVAL, "write a number") : 0;
    case APP_MEMORY: return size_parse(value, 1 << 20, &s->memory_per_node_bytes, e);
    case APP_TIME: return set_seconds(value, 60, &s->time_limit_s, e);
    case APP_IDLE:
        if (streq(value, "none"))
            schema_give(&spec_schema, s, &s->idle_s);
        return set_seconds(value, 60, &s->idle_s, e);
    case APP_CONTAINER: s->container = arena_strdup(a, value); return 0;
    case APP_WORKDIR: s->workdir = arena_strdup(a, value); return 0;
    case APP_PROJECT: s->project = arena_strdup(a, value); return 0;
    case APP_PARTITION: s->partition = arena_strdup(a, value); return 0;
    case APP_JOB_NAME: s->name = arena_strdup(a, value); return 0;
    case APP_WORKERS: return set_workers(f, value, a, out, e);
    default: set_variable(f->name, value, a, out); return 0;
    }
}

static const char *given(const char *const *values, uint32_t count, const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = count; i-- > 0;)
        if (strncmp(values[i], name, len) == 0 && values[i][len] == '=')
            return values[i] + len + 1;
    return NULL;
}

static int check_given(const struct app *app, const char *value, struct error *e) {
    char shown[64];
    for (uint32_t i = 0; i < app->fields.len; i++)
        if (given(&value, 1, app->fields.at[i].name))
            return 0;
    return error_set(e, EINVAL, "\"%s\" is no field of %s; write FIELD=VALUE, and see: acequia app show %s",
                     str_printable(value, shown, sizeof shown), app->name, app->name);
}

static int check_choice(const struct app_field *f, const char *value, struct error *e) {
    cleanup_buf struct buf all = {0};
    bool found = !f->choices.len || !*value;
    for (uint32_t i = 0; i < f->choices.len; i++) {
        found |= streq(f->choices.at[i], value);
        buf_addf(&all, "%s%s", i ? ", " : "", f->choices.at[i]);
    }
    if (f->required && !*value)
        return error_set(e, EINVAL, "%s: it must be given", f->name);
    return found ? 0 : error_set(e, EINVAL, "%s: choose one of %s", f->name, buf_str(&all));
}

static void name_sockets(struct spec *s, uint64_t random, struct arena *a) {
    const char **ports = arena_alloc(a, (s->ports.len + 1) * sizeof *ports);
    for (uint32_t i = 0; i < s->ports.len; i++) {
        const char *at = strstr(s->ports.at[i], "RANDOM");
        ports[i] = !at ? s->ports.at[i]
                       : arena_printf(a, "%.*s%016llx%s", (int)(at - s->ports.at[i]), s->ports.at[i],
                                      (unsigned long long)random, at + strlen("RANDOM"));
    }
    s->ports.at = ports;
}

void app_shape_to_workers(struct spec *s, struct arena *a) {
    if (!s->components.len)
        return;
    s->components.at = arena_memdup(a, s->components.at, s->components.len * sizeof *s->components.at);
    bool memory = s->memory_per_node_bytes || s->memory_per_cpu_bytes || s->memory_per_gpu_bytes;
    bool gpus = s->gpus_milli || s->gpus_per_node_milli || s->gpus_per_task_milli || s->gpu_memory_bytes;
    for (uint32_t i = 0; i < s->components.len; i++) {
        struct job_component *k = &s->components.at[i];
        if (s->container) {
            k->container = s->container;
            k->container_mounts = s->container_mounts;
            k->container_workdir = s->container_workdir;
        }
        if (s->exclude)
            k->exclude = s->exclude;
        if (streq(k->name, COMPONENT_HEAD))
            continue;
        if (memory)  // of amounts that replace each other a worker has one
            k->memory_per_node_bytes = k->memory_per_cpu_bytes = k->memory_per_gpu_bytes = k->memory_default =
                0;
        if (gpus)
            k->gpus_milli = k->gpus_per_node_milli = k->gpus_per_task_milli = k->gpu_memory_bytes = 0;
#define GIVE(member)                                                                                         \
    if (s->member)                                                                                           \
        k->member = s->member;
        COMPONENT_SHAPE(GIVE)
#undef GIVE
    }
#define CLEAR(member) s->member = 0;
    COMPONENT_SHAPE(CLEAR)
#undef CLEAR
}

int app_job(const struct app *app, const char *const *values, uint32_t count, uint64_t random,
            struct arena *a, struct app_job *out, struct error *e) {
    *out = (struct app_job){.spec = *app->spec, .script = app->script};
    out->environment.at = arena_alloc(a, (app->fields.len + 1) * sizeof *out->environment.at);
    if (app_is_cluster(app)) {
        out->script = arena_printf(a, "%s%s", app_cluster_text,
                                   strchr(app->script, '\n') ? strchr(app->script, '\n') : "");
        out->spec.components.at =
            arena_memdup(a, app->spec->components.at, 2 * sizeof *out->spec.components.at);
    }
    for (uint32_t i = 0; i < count; i++) {
        int r = check_given(app, values[i], e);
        if (r < 0)
            return r;
    }
    name_sockets(&out->spec, random, a);
    const char **tags = arena_alloc(a, (out->spec.tags.len + 1) * sizeof *tags);
    if (out->spec.tags.len)
        memcpy(tags, out->spec.tags.at, out->spec.tags.len * sizeof *tags);
    tags[out->spec.tags.len++] = arena_printf(a, "app=%s", app->name);
    out->spec.tags.at = tags;
    if (!out->spec.name)
        out->spec.name = app->name;
    if (!out->spec.output)
        out->spec.output = "acequia-%x-%j.log";
    for (uint32_t i = 0; i < app->fields.len; i++) {
        const struct app_field *f = &app->fields.at[i];
        const char *value = given(values, count, f->name);
        value = value ? value : f->value ? f->value : "";
        int r = check_choice(f, value, e);
        if (r == 0 && (r = set_value(f, value, a, out, e)) < 0)
            error_prefix(e, "%s", f->name);
        if (r < 0)
            return r;
    }
    app_shape_to_workers(&out->spec, a);
    return 0;
}
