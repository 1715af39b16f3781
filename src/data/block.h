// Rows in the shared memory of a node: columns of values one after the other, as numpy and Arrow have them. A block is
// written once and then only read; pieces of it are given to workers without copying.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"

enum { DATA_COLUMNS_MAX = 256, DATA_NAME_MAX = 128, DATA_DIMENSIONS_MAX = 8 };

enum data_type {
    DATA_BOOL,
    DATA_U8,
    DATA_I8,
    DATA_U16,
    DATA_I16,
    DATA_U32,
    DATA_I32,
    DATA_U64,
    DATA_I64,
    DATA_F16,
    DATA_F32,
    DATA_F64,
    DATA_UTF8,  // from here on of different lengths: offsets (u64, one more than rows) into the values
    DATA_BYTES,
    DATA_JSON,   // a value of any kind per row
    DATA_ROW,    // all of a row as one JSON object: then it is the only column
    DATA_ARRAY,  // 8-bit values of different shapes: three more numbers (u32) per row in `shapes`
    DATA_TYPES
};
extern const char *const data_type_words[];
size_t data_type_size(enum data_type t);  // of one value; 0: of different lengths

struct data_column {
    char name[DATA_NAME_MAX];
    uint32_t type, dimensions, shape[DATA_DIMENSIONS_MAX];  // shape of one row; none: a number
    uint64_t values, size;                                  // where in the memory, and bytes
    uint64_t offsets, shapes;
};

struct data_block {
    uint64_t at, size;  // in the memory; size 0: owns nothing
    uint32_t refs, columns_count;
    bool input;         // counted among loaded rows
    uint64_t rows;
    struct data_column *columns;
};

struct data_block *data_block_new(uint32_t columns, uint64_t rows);
void data_block_free(struct data_block *b);
uint64_t data_column_row_bytes(const struct data_column *c);  // of values of one length

// The columns of rows [from, from + count) as a message has them.
void data_block_describe(const struct data_block *b, uint64_t from, uint64_t count, struct json_writer *w);
// The reverse: checks everything against the memory's size, so that no offset of a worker leads out of it.
int data_block_read(const struct json *columns, uint64_t rows, const uint8_t *memory, uint64_t memory_size,
                    struct data_block **out, struct error *e);

// Rows as text. CSV: `header` names the columns first.
int data_block_jsonl(const struct data_block *b, const uint8_t *memory, uint64_t from, uint64_t count, struct buf *out);
int data_block_csv(const struct data_block *b, const uint8_t *memory, uint64_t from, uint64_t count,
                   bool header, struct buf *out, struct error *e);
// One line of a CSV file as a JSON object; `names` are the header's fields. 0, or -EBADMSG.
int data_csv_row(char *line, size_t len, const char *const *names, uint32_t names_count, struct buf *out,
                 struct error *e);
// Splits a line in place; quotation marks are removed. The number of fields, or -EBADMSG, or -E2BIG.
int data_csv_fields(char *line, size_t len, char **fields, size_t *lens, uint32_t max, bool *quoted);
