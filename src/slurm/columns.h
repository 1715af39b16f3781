// Printing in columns as Slurm's commands do: "%.18i %9P" with letters (squeue, sinfo -o), and
// "name:20,state" with names (-O). A command has one table of its fields.
#pragma once
#include "base/vec.h"
#include "context.h"

struct column {
    int letter;           // 0: only by name
    const char *name;     // of -O, lower case; NULL: only by letter
    const char *heading;
    const char *fields;   // of the API, joined by ','
    void (*put)(const void *row, struct buf *out);
};

struct column_use {
    const struct column *column;
    int width;            // 0: as long as it is
    bool right;
    const char *suffix;   // text up to the next column
};

struct columns {
    const char *prefix;
    VEC(struct column_use) at;
};

// Unknown letters are told and printed as they stand, as Slurm does. `what`: whose columns these are.
void slurm_columns_by_letters(struct slurm *s, const struct column *table, size_t count, const char *format,
                              const char *what, struct columns *out);
// Names not known are told and left out, as Slurm does.
void slurm_columns_by_names(struct slurm *s, const struct column *table, size_t count, const char *format,
                            const char *what, struct columns *out);
void slurm_columns_fields(struct arena *a, const struct columns *c, const char *more, const char **out);
void slurm_columns_heading(const struct columns *c, struct buf *out);
// Before the heading: the cluster, when one was named, and the time, in long lists.
void slurm_columns_head(const struct slurm *s, bool with_time, const struct columns *c, struct buf *out);
void slurm_columns_row(const struct columns *c, const void *row, struct buf *out);
void slurm_columns_done(struct columns *c);
