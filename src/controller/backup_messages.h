// What is asked of the program that makes and lists backups, what it answers, and what the API says of them.
#pragma once
#include "base/schema.h"

struct answer_backup_contents {
    const char *file;
    uint64_t bytes, first_record, newest_record, live_jobs, finished_jobs;
    int64_t newest_ms;
};
struct answer_backup {
    const char *file;
    uint64_t bytes;
    int64_t made_ms;
};
struct answer_backups {
    const char *folder;
    uint32_t every_s, keep;
    bool running;
    const char *problem;
    LIST(struct answer_backup) backups;
};
extern const struct schema answer_backup_contents_schema, answer_backups_schema;

// To `acequiad backups`.
struct backups_question {
    const char *state, *folder;
    uint32_t older_s;  // makes one when the newest is older than this
    uint32_t keep;     // then removes the oldest ones beyond this number; 0: none
    bool make;         // makes one in any case
    bool list;         // makes none
};
extern const struct schema backups_question_schema;

struct backups_result {
    LIST(struct answer_backup) backups;  // newest first
    const char *problem;                 // NULL: what was asked is done
};
extern const struct schema backups_result_schema;
