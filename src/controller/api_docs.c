// Owns the reference of the API, written from the tables: routes, and the structs they carry.
#include <stdio.h>

#include "api.h"
#include "controller/daemon.h"

static const char *type_word(const struct field *f) {
    switch ((enum field_type)f->type) {
    case FIELD_BOOL: return "true or false";
    case FIELD_U32:
    case FIELD_U64: return "number";
    case FIELD_I32:
    case FIELD_I64: return "number, may be negative";
    case FIELD_DOUBLE: return "number, may be fractional";
    case FIELD_STRING: return "text";
    case FIELD_BYTES: return "bytes, hexadecimal";
    case FIELD_ENUM: return "word";
    case FIELD_STRUCT: return f->sub->name;
    }
    return "?";
}

static void put_struct(const char *title, const struct schema *s) {
    printf("\n### %s\n\n| field | type | meaning |\n| --- | --- | --- |\n", title);
    for (size_t i = 0; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        printf("| `%s` | %s%s | %s", f->name, f->list ? "list: " : "", type_word(f), f->help);
        for (int k = 0; f->words && f->words[k]; k++)
            printf("%s`%s`", k ? ", " : " One of ", f->words[k]);
        printf(" |\n");
    }
}

static const char *permission_word(enum permission p) {
    static const char *const words[] = {[ALLOW_ANYBODY] = "anybody",
                                        [ALLOW_USER] = "any user",
                                        [ALLOW_JOB] = "the job's user, sharing projects, administrators",
                                        [ALLOW_OWNER] = "the job's user, administrators",
                                        [ALLOW_ADMIN] = "administrators",
                                        [ALLOW_AGENT] = "agents"};
    return words[p];
}

int api_reference(void) {
    printf("# The HTTP API\n\n"
           "Written from the program's tables by `make docs`; do not edit.\n\n"
           "HTTP and JSON over the unix socket `run/api.sock` (who you are comes from the socket) or over "
           "TLS (a user's token as\n"
           "`Authorization: Bearer …`, an agent's certificate). Times are milliseconds since 1970, GPUs "
           "thousandths, sizes bytes.\n"
           "An answer with status 400 or above is `{\"error\":{\"code\":\"EINVAL\",\"message\":\"one "
           "sentence\"}}`; 503 means try again later.\n"
           "What changes something is answered when it is committed to disk.\n\n"
           "## Routes\n\n| method | path | for | |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < api_route_count; i++)
        printf("| %s | `%s` | %s | %s |\n", api_routes[i].method, api_routes[i].path,
               permission_word(api_routes[i].permission), api_routes[i].help);
    printf(
        "\nSubmit: `{\"spec\":{…},\"script\":\"text\",\"environment\":[\"A=b\"],\"key\":\"idempotency "
        "key\",\"dry_run\":true}`, or a list of these.\n"
        "WebSocket sessions (`/v1/run`, `exec`, `attach`, `step`): text messages are JSON, binary ones begin "
        "with a channel byte\n"
        "(0 input, 1 output, 2 error); the last message carries `exit_code` and `exit_signal`. `/v1/run` and "
        "`attach` show all nodes of\n"
        "a job: `{\"nodes\":N}` comes first when there are several, and channels 3 and 4 are output and "
        "error of the node whose place in\n"
        "the job follows in four bytes, lowest first. Input goes to all nodes; `{\"input\":N}` says that N "
        "more bytes of it have left.\n"
        "Who was cut off attaches with `resume=1`, is told "
        "`{\"input_at\":A,\"input_left\":L,\"input_closed\":false}`, and sends its input from\n"
        "byte A on; bytes before L will not be asked for again. Output always begins at its beginning.\n\n");
    printf("Lists: `GET /v1/jobs` with `fields=id,label,…`, `user=` or `mine=1`, `project=`, `partition=`, "
           "`qos=` (several joined by `,`), `name=`,\n"
           "`state=`, `node=`, `ids=`, `elements=1`, `limit=`; `finished=1` shows history, newest first, "
           "page by page (`after=` the `next`\n"
           "of the page before, `since_ms=`, `until_ms=` of the end). With `stream=1` the answer is lines of "
           "JSON, written while others\n"
           "are served and as fast as they are read: one with the names of the `fields`, one list of values "
           "per job, in any order, and a\n"
           "last one with the number of `rows`, or an `error`; without it the list is not complete. `all=1` "
           "adds history to what waits and\n"
           "runs, `from_ms=` and `to_ms=` leave jobs that were there between these times. A job that ends "
           "meanwhile comes once.\n"
           "Without `stream=1` the answer is one document, written in the same way; a connection that ends before its "
           "end means that\n"
           "something went wrong.\n\n");
    printf("A pending job has an `order` (also a field of lists, with `fields=…,order`): what orders "
           "it in its project.\n\n"
           "| field | meaning |\n| --- | --- |\n"
           "| `priority` | One positive number, higher first. Jobs of one project and partition sort by it, "
           "to the second. Between projects shares come first, which a number of one job cannot express: `why` "
           "tells the position. One point is one second of queue time; 1,000,000,000 is a queue time of now. A step "
           "of priority is 2,000,000,000 points; jobs below priority 0 have numbers below "
           "100,000,000, to 1,000 s. 0: held, or its begin time has not come. |\n"
           "| `queue_time_ms` | submitted + short + use + size + qos + nice; the earliest goes first. |\n"
           "| `age_s` | since it was submitted, also if it was requeued. |\n"
           "| `short_s` | what its time limit adds to the queue time. |\n"
           "| `use_s` | what its user's recent use adds. |\n"
           "| `size_s` | what its GPUs add (may be negative). |\n"
           "| `qos_s`, `nice_s` | what priority and nice add, where the policy makes them count as time. |\n"
           "| `overdue` | it waited longer than the policy's longest wait: first of its priority. |\n"
           "| `tier` | of its partition; sorts before everything else. |\n"
           "| `qos`, `own`, `nice` | QoS's priority, its own and nice: their sum, nice negative, sorts "
           "before the queue time, unless the policy makes them count as time. |\n\n");
    printf("## Objects\n");
    put_struct("A job's spec", &spec_schema);
    put_struct("A job", &job_record_schema);
    put_struct("Usage", &usage_schema);
    put_struct("A part of an allocation", &part_schema);
    put_struct("A node, as its agent describes it", &node_schema);
    put_struct("A GPU", &gpu_schema);
    put_struct("A project", &project_schema);
    put_struct("A partition", &partition_schema);
    put_struct("A QoS", &qos_schema);
    put_struct("A reservation", &reservation_schema);
    put_struct("The policy", &policy_schema);
    printf("\n## Events\n\nWhat `/v1/events` and `/v1/jobs/{job}/events` tell, each with `seq`, `at_ms` and `type`.\n");
    for (unsigned t = 1; t < EVENT_TYPE_MAX; t++) {
        const struct event_info *info = event_info((enum event_type)t);
        if (!info)
            continue;
        printf("\n- `%s`:", info->name);
        for (size_t i = 0; i < info->schema->count; i++)
            printf("%s `%s`", i ? "," : "", info->schema->fields[i].name);
    }
    printf("\n");
    return 0;
}
