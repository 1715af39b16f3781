// Lists of jobs: which ones, which fields of them, and their rows as JSON. Elements of an array that wait
// are folded into one row. Rows are made straight from the core's views and history's records, so that a
// long list costs no copies. The code that walks core or store hands each job to a listing.
#pragma once
#include "answers.h"
#include "api.h"
#include "list_filter.h"
#include "model/name.h"

// The reason of a job whose container image is being fetched.
#define LISTING_FETCHING "FetchingImage"

enum {
    LISTING_FIELDS_MAX = 24,
    LISTING_GAPS_MAX = 10000,       // in the indices of one row
    LISTING_STEPS_BYTES = 4 << 20,  // of the steps in one row; the events of the job have all
    LISTING_STEPS_AT_ONCE =
        1024,  // events that are looked at for the steps of a row that is not read in slices
};

// The events of a job's steps. There can be very many: they are read in slices before the row is written.
struct listing_steps {
    uint64_t job, after;
    uint32_t looked;     // events
    bool complete, cut;  // cut: the slice was over before it was complete
    struct buf text;
    struct json_writer w;
};

// One row, from a live job's view or a finished one's record.
struct row {
    struct job_view v;
    struct spec *spec;         // decoded only when a field needs it
    int64_t end_ms;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *reason, *nodes;
    const struct usage *usage;
    uint64_t memory_now_bytes;
    bool progress_known;
    uint32_t progress_milli;
    const char *label, *elements, *by;
    enum job_sight sight;  // what the viewer may see of it
    uint64_t count;
    uint32_t steps;            // how many
};

struct listing {
    struct controller *controller;
    enum net_peer_kind way;  // how the viewer reaches us, and programs of jobs
    struct actor viewer;
    struct json_writer w;
    struct buf out;
    column_set columns;
    // Which ones: names, of which there may be several joined by ',' (not for name and node); NULL: all.
    const char *user, *project, *partition, *name, *node, *qos;
    uint32_t states;         // bit per state; 0: all
    struct list_filter filter;
    // The latest waiting element of an array that was looked at: others of the same submission pass alike.
    struct {
        const void *spec;
        enum job_reason reason;
        bool held, passes;
    } filtered;
    int64_t began_before_ms; // started, or submitted when it has not; 0: any time
    bool named;              // jobs are named by their ids: workers are shown as well
    bool components;         // a job with several is there by its workers
    bool elements, compact;  // compact: rows are lists in the order of "fields"
    bool lines;              // each row is a line of its own
    enum job_sight fixed;    // every row is shown like this; SIGHT_NONE: as the viewer may see it
    enum job_sight sight;    // of the job that is looked at
    struct {
        char user[USER_NAME_MAX], project[IDENTIFIER_MAX + 1];
        enum job_sight sight;
    } judged;  // the latest: jobs next to each other are often one user's
    struct sliced_read *read;  // in whose slices it is made; NULL: each row at once
    struct listing_steps steps;
    bool
        unfinished;  // the job that was looked at last was not written: it must be looked at again in the next slice
    int64_t now;
    uint64_t rows, limit;
    uint64_t last_id;        // the live job that was written, or folded, last
    struct arena keep;       // what was asked for
    struct arena scratch;    // of one row
    struct arena filter_scratch;  // of a row that the filter looks at
    // Of history's records only what the columns need is decoded.
    struct field record_fields[LISTING_FIELDS_MAX], spec_fields[LISTING_FIELDS_MAX];
    struct schema record_schema, spec_schema;
    // Array elements being folded.
    struct row fold;
    VEC(uint32_t) fold_indices;
    uint32_t fold_step, fold_gaps;  // between the last two indices; how often that changed
    struct arena fold_keep;  // what the row points to, once a slice ended within it
    char key[64];            // of the last row from history
};

// What the viewer may see of a job of that user in that project.
enum job_sight listing_sight(struct listing *l, const char *user, const char *project);
// Reads what was asked for from the request. 0, or a negative errno with the sentence in `e`.
int listing_init(struct listing *l, struct api_call *call, struct error *e);
void listing_done(struct listing *l);
// Which jobs: names of users, projects and so on, each NULL: all.
struct listing_filter {
    const char *user, *project, *partition, *qos, *name, *node, *state, *where;
};
int listing_init_filter(struct listing *l, const struct listing_filter *f,
                        struct error *e);         // part of listing_init
bool listing_several(const char *names);          // "a,b"
bool listing_names(const char *names, const char *name);  // it is one of them; NULL: all are
// One job as an answer; texts live in l->scratch, or in what the row points to.
void listing_all_columns(struct listing *l);
void listing_row_of(struct listing *l, const struct job_record *j, const struct job_view *live, struct row *out);
void listing_answer(struct listing *l, const struct row *r, struct answer_job *out);
void listing_fields(struct listing *l);           // the list of their names, in the order of compact rows
bool listing_live(void *ctx, const struct job_view *v);              // for core_each_job
int listing_finished(void *ctx, const struct store_history *row);    // for store_history
void listing_fold_end(struct listing *l);         // after the last live job
void listing_pause(struct listing *l);            // before the state can change: nothing of it is pointed to any more

// Single jobs, for the live feed and the job table. plain: the columns of both, no filter.
void listing_init_plain(struct listing *l, struct controller *c, const struct actor *viewer);
int listing_init_columns(struct listing *l, const char *fields,
                         struct error *e);  // these instead; NULL: as they are
typedef void (*listing_row_fn)(struct listing *l, struct row *r, void *ctx);
// A live or ended job; the row lives until fn returns. False: there is no such job.
bool listing_find(struct listing *l, uint64_t id, listing_row_fn fn, void *ctx);
// An ended job's record as an answer, which lives until the next row. worker: of an elastic job.
bool listing_record(struct listing *l, const struct store_history *record, struct answer_job *out,
                    bool *worker);
bool listing_passes(struct listing *l, const struct row *r);  // the filter "where"
void listing_put(struct listing *l, const struct row *r);     // writes it
