// The tables of requests and answers about volumes.
#include "volume_messages.h"

#include "model/volume.h"

static const struct field query_fields[] = {
    FIELD(1, struct query_volume, project, "Of this project; else one's own."),
    FIELD(2, struct query_volume, user, "Of this user."),
};
const struct schema query_volume_schema = SCHEMA(struct query_volume, "the query", query_fields);

#define S struct request_volume
static const struct field request_fields[] = {
    FIELD(1, S, name, "Name of the volume.", .required = true),
    FIELD(2, S, project, "For this project; else for oneself."),
    FIELD(3, S, size_bytes, "How much it may hold; 0: no limit."),
    FIELD(4, S, mode, "Permissions of its folder, as a number: 448 is 0700. 0: 0700, of a project 02770.",
          .max = VOLUME_MODE_MAX),
    FIELD(5, S, at, "A folder that the nodes have, for administrators; else one below volume_folder."),
};
const struct schema request_volume_schema = SCHEMA(S, "a volume", request_fields);
#undef S
#define S struct request_volume_share
static const struct field share_fields[] = {
    FIELD(1, S, with, "The user.", .required = true),
    FIELD(2, S, read_only, "They may read it only."),
    FIELD(3, S, revoke, "End the share."),
    FIELD(4, S, project, "A volume of this project; else one's own."),
    FIELD(5, S, user, "A volume of this user, for administrators."),
};
const struct schema request_volume_share_schema = SCHEMA(S, "a share of a volume", share_fields);
#undef S
#define S struct answer_volume
static const struct field volume_fields[] = {
    FIELD(1, S, name, "Name of the volume."),
    FIELD(2, S, title, "As jobs name it: ~USER/NAME or PROJECT/NAME."),
    FIELD(3, S, user, "Its owner."),
    FIELD(4, S, project, "The project it is of."),
    FIELD(5, S, size_bytes, "How much it may hold; 0: no limit."),
    FIELD(6, S, mode, "Permissions of its folder."),
    FIELD(7, S, folder, "Its folder on the nodes."),
    FIELD_LIST(8, S, readers, "Users who may read it."),
    FIELD_LIST(9, S, writers, "Users who may write to it."),
    FIELD(10, S, made_ms, "When it was made (ms since 1970)."),
    FIELD(11, S, by, "Who made or changed it last."),
    FIELD(12, S, job, "A job that has it, in the answer about one volume; 0: none."),
    FIELD(13, S, other_jobs, "How many more have it; an array is one."),
    FIELD_LIST(14, S, jobs, "Jobs that have it, the first 50, in the answer about one volume; an array is one."),
};
const struct schema answer_volume_schema = SCHEMA(S, "a volume", volume_fields);
#undef S
static const struct field volumes_fields[] = {
    FIELD_LIST_SUB(1, struct answer_volumes, volumes, &answer_volume_schema, "Volumes.")};
const struct schema answer_volumes_schema = SCHEMA(struct answer_volumes, "volumes", volumes_fields);
