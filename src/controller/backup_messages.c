// The tables of questions, results and answers about backups.
#include "backup_messages.h"

#define S struct answer_backup_contents
static const struct field contents_fields[] = {
    FIELD(1, S, file, "The file or folder."),
    FIELD(2, S, bytes, "Its size."),
    FIELD(3, S, first_record, "Number of the oldest record of the journal; 0: it is empty."),
    FIELD(4, S, newest_record, "Number of the newest record."),
    FIELD(5, S, newest_ms, "When that was written."),
    FIELD(6, S, live_jobs, "Jobs that had not ended then."),
    FIELD(7, S, finished_jobs, "Finished jobs in the history."),
};
const struct schema answer_backup_contents_schema = SCHEMA(S, "what a backup holds", contents_fields);
#undef S

#define S struct answer_backup
static const struct field backup_fields[] = {
    FIELD(1, S, file, "Name of the file in the folder of backups."),
    FIELD(2, S, bytes, "Its size."),
    FIELD(3, S, made_ms, "When it was made."),
};
static const struct schema answer_backup_schema = SCHEMA(S, "a backup", backup_fields);
#undef S

#define S struct answer_backups
static const struct field backups_fields[] = {
    FIELD(1, S, folder, "Folder on the controller's machine; null: `folder` of [backup] is not set."),
    FIELD(2, S, every_s, "One is made this often; 0: only when asked for."),
    FIELD(3, S, keep, "So many are kept; 0: all."),
    FIELD(4, S, running, "One is being made."),
    FIELD(5, S, problem, "Why the latest could not be made; null: it was."),
    FIELD_LIST_SUB(6, S, backups, &answer_backup_schema, "The newest first."),
};
const struct schema answer_backups_schema = SCHEMA(S, "backups", backups_fields);
#undef S

#define S struct backups_question
static const struct field question_fields[] = {
    FIELD(1, S, state, "The state folder."),
    FIELD(2, S, folder, "Where backups are."),
    FIELD(3, S, older_s, "Makes one when the newest is older than this."),
    FIELD(4, S, keep, "Then removes the oldest ones beyond this number; 0: none."),
    FIELD(5, S, make, "Makes one in any case."),
    FIELD(6, S, list, "Makes none."),
};
const struct schema backups_question_schema =
    SCHEMA(S, "a question to the program that makes backups", question_fields);
#undef S

#define S struct backups_result
static const struct field result_fields[] = {
    FIELD_LIST_SUB(1, S, backups, &answer_backup_schema, "The newest first."),
    FIELD(2, S, problem, "Why it could not be done."),
};
const struct schema backups_result_schema =
    SCHEMA(S, "what the program that makes backups says", result_fields);
#undef S
