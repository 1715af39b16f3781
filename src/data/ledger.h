// What has been done, beside the results: one record per part, written after the part and before anybody counts on
// it. The same command goes on after the last record. In a folder it is one file of lines; in a bucket, where nothing
// can be appended, one object per record.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "flow.h"
#include "plan.h"
#include "remote.h"

struct data_ledger;

struct data_record {
    char *part;      // "" when no row was left
    uint64_t rows, bytes;
    VEC(uint64_t) items;
    VEC(struct data_failure) failures;  // both texts malloc'ed
};
void data_record_free(struct data_record *r);

// Reads what an earlier run has left in `folder` (it ends in '/'), removes parts that were not recorded, and with
// `fresh` everything. -EEXIST: results of another pipeline are there; -EBUSY: another run writes there.
int data_ledger_open(const char *folder, uint64_t identity, bool fresh, struct data_fetcher *f,
                     struct data_ledger **out, struct error *e);
void data_ledger_close(struct data_ledger *l);
bool data_ledger_has(const struct data_ledger *l, const struct data_item *item);
uint64_t data_ledger_rows(const struct data_ledger *l);
uint64_t data_ledger_failures(const struct data_ledger *l);
// Makes records durable. Takes them over, also when it fails.
int data_ledger_commit(struct data_ledger *l, struct data_record *records, uint32_t count,
                       struct data_fetcher *f, struct error *e);
// Writes the manifest and the list of rows that failed.
int data_ledger_finish(struct data_ledger *l, bool complete, struct data_fetcher *f, struct error *e);
// Puts all parts into one file, in order, and removes them.
int data_ledger_merge(struct data_ledger *l, uint32_t kind, const char *file, struct data_fetcher *f, struct error *e);

// One line as it is kept; for tests and the fuzzer as well.
int data_record_read(const char *line, size_t len, struct data_record *out);
void data_record_write(const struct data_record *r, struct buf *out);
