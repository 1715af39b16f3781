// Apps: small descriptions of programs that are started as jobs and used in the browser. An app is a JSON document with
// the spec of its job, a shell script, and fields that whoever starts it fills in: some change the spec, the others are
// variables of the script, APP_NAME. There are built-in ones, the site's and each user's own; of one name the latter.
#pragma once
#include "base/arena.h"
#include "base/error.h"
#include "model/job.h"

enum { APP_NAME_MAX = 64, APP_FILE_MAX = 256 << 10, APP_FIELDS_MAX = 32, APP_TEXT_MAX = 64 << 10 };

enum app_kind {
    APP_TEXT,    // a variable of the script, as APP_FOLDER
    APP_FOLDER,  // on the cluster's nodes
    APP_GPUS,
    APP_CPUS,
    APP_MEMORY,
    APP_TIME,
    APP_IDLE,
    APP_CONTAINER,
    APP_WORKDIR,
    APP_PROJECT,
    APP_PARTITION,
    APP_JOB_NAME,
    APP_WORKERS,  // how many workers, "4" or "2-8": changes the job, and is a variable of the script
    APP_KIND_COUNT
};
extern const char *const app_kind_words[];

struct app_field {
    const char *name, *title, *help;
    enum app_kind kind;
    const char *value;  // unless another is given; NULL: empty
    bool required;
    LIST(const char *) choices;
};
struct app {
    const char *name, *title, *summary, *icon;
    const char *origin;  // "built-in", "site" or "own": set by whoever read it
    struct spec *spec;
    const char *script;
    LIST(struct app_field) fields;
};
extern const struct schema app_schema;

// A checked app; texts are of the arena. `name`: that of the file, without its ending. `script`: used unless the
// document has one; may be NULL.
int app_read(const char *name, const char *json, size_t len, const char *script, struct arena *a,
             struct app *out, struct error *e);
// The same of a document that is read already.
int app_complete(const char *name, const struct app *document, struct arena *a, struct app *out,
                 struct error *e);
struct app_list {
    struct app *at;
    uint32_t len;
};
// Every file NAME.json of the folder, with its script from NAME.sh if it has none itself, by name. Those that are
// wrong are left out, and `bad` is told of each. A folder that is not there has none.
int app_folder(const char *path, const char *origin, struct arena *a, struct app_list *out,
               void (*bad)(void *ctx, const char *file, const char *why), void *ctx, struct error *e);
const struct app *app_find(const struct app_list *list, const char *name);  // NULL: none

// A virtual cluster: an app whose job has a head and other workers. Its script begins with what all kinds have in
// common (cluster.sh), then comes its own.
bool app_is_cluster(const struct app *app);
// Resources and image of the job become those of its workers, the image also that of its head; without components
// nothing changes.
void app_shape_to_workers(struct spec *s, struct arena *a);

// The job of the app with the values given, "field=value" each: its spec, and variables for its environment.
struct app_job {
    struct spec spec;
    const char *script;
    LIST(const char *) environment;  // NAME=VALUE
};
// `random` takes the place of RANDOM in the names of its sockets: jobs of several clusters on one machine have the same
// numbers.
int app_job(const struct app *app, const char *const *values, uint32_t count, uint64_t random,
            struct arena *a, struct app_job *out, struct error *e);
