// The tables of the state database and how an older one becomes the present one. Internal.
#pragma once
#include <sqlite3.h>

#include <stdint.h>

#include "base/error.h"

enum { STORE_APPLICATION_ID = 0x61636571 };  // "aceq" in the file header: this file is ours

// Step n brings a database of version n to n + 1; an empty file has version 0.
struct schema_step {
    const char *sql;
    int readable_by;  // oldest program version that may go on using the result
};

extern const struct schema_step store_schema_steps[];
extern const int store_schema_step_count;

// Creates or upgrades; refuses files of other programs and of versions it does not know.
int store_schema_prepare(sqlite3 *db, const char *path, const struct schema_step *steps, int count,
                         struct error *e);

// The blob that names the first release which can read the journal.
#define SCHEMA_LEVEL_RELEASE "level.release"
#define SCHEMA_READ_LEVEL "SELECT value FROM meta WHERE name = 'level'"  // no row: level 1
// Refuses a journal whose feature level is above `known` (0: any is read), naming the release it needs.
int store_schema_check_level(sqlite3 *db, const char *path, uint32_t known, struct error *e);

// How long a finished job took, as an expression of its row; what is indexed and what is asked must
// be the same text.
#define SCHEMA_BEGAN "CASE start_ms WHEN 0 THEN submit_ms ELSE start_ms END"
#define SCHEMA_SPAN "length(end_ms - " SCHEMA_BEGAN ")"
