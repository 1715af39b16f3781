// Owns what scontrol changes of nodes, partitions and reservations. What cannot be honoured is refused by
// name; nothing of a line is dropped in silence.
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/term/local_time.h"
#include "job_row.h"
#include "node_row.h"
#include "scontrol.h"
#include "model/node.h"
#include "model/nodelist.h"

const char *scontrol_value(int argc, char **argv, const char *name) {
    size_t n = strlen(name);
    for (int i = 0; i < argc; i++)
        if (!strncasecmp(argv[i], name, n) && argv[i][n] == '=')
            return argv[i] + n + 1;
    return NULL;
}

static const char *either(int argc, char **argv, const char *one, const char *other) {
    const char *v = scontrol_value(argc, argv, one);
    return v ? v : scontrol_value(argc, argv, other);
}

// "NAME=VALUE", "NAME+=VALUE": the name, and the sign before '='.
static const char *name_of(struct scontrol *c, const char *word, char *sign) {
    size_t n = strcspn(word, "=+-");
    *sign = word[n] == '+' || word[n] == '-' ? word[n] : 0;
    return arena_strndup(&c->s->cli.arena, word, n);
}

static bool denied(const struct scontrol *c) {
    return c->s->cli.error.code == EPERM || c->s->cli.error.code == EACCES;
}

// --- nodes ---

struct node_change {
    const char *state, *reason;
    uint32_t changes;
};

static int read_node_change(int argc, char **argv, struct node_change *n) {
    static const char *const without_effect[] = {"Comment", "Extra", "Weight", "CpuBind", "ResumeAfter"};
    for (int i = 0; i < argc; i++) {
        const char *v = strchr(argv[i], '=');
        size_t len = strcspn(argv[i], "=");
        if (!strncasecmp(argv[i], "NodeName", len) || !strncasecmp(argv[i], "Node", len))
            continue;
        bool known = v && !strncasecmp(argv[i], "State", len);
        n->state = known ? v + 1 : n->state;
        if (v && !strncasecmp(argv[i], "Reason", len)) {
            n->reason = v + 1;
            known = true;
        }
        for (size_t k = 0; v && k < sizeof without_effect / sizeof *without_effect; k++)
            known |= strlen(without_effect[k]) == len && !strncasecmp(argv[i], without_effect[k], len);
        if (!known) {
            fprintf(stderr, v ? "Update of this parameter is not supported: %s\nRequest aborted\n"
                              : "Invalid input: %s\nRequest aborted\n", argv[i]);
            return SLURM_FAILED;
        }
        n->changes++;
    }
    if (n->changes)
        return 0;
    fprintf(stderr, "No changes specified\n");
    return SLURM_FAILED;
}

static int all_nodes(struct scontrol *c, struct name_list *out) {
    struct cluster_view v;
    if (slurm_cluster_fetch(c->s, &v))
        return SLURM_FAILED;
    out->at = arena_alloc(&c->s->cli.arena, (v.nodes.len + 1) * sizeof *out->at);
    out->len = v.nodes.len;
    for (uint32_t i = 0; i < v.nodes.len; i++)
        out->at[i] = arena_strdup(&c->s->cli.arena, v.nodes.at[i].name);
    slurm_cluster_done(&v);
    return 0;
}

static int node_call(struct scontrol *c, const char *name, const char *verb, const struct buf *body) {
    struct reply r;
    if (!slurm_client(c->s))
        return SLURM_FAILED;
    const char *target = arena_printf(&c->s->cli.arena, "/v1/nodes/%s/%s", name, verb);
    if (client_call(c->s->client, "POST", target, body, &r) == 0)
        return 0;
    fprintf(stderr, "slurm_update error: %s\n",
            c->s->cli.error.code == ENOENT ? "Invalid node name specified"
            : denied(c)                    ? "Invalid user id"
                                           : c->s->cli.error.text);
    return SLURM_FAILED;
}

static int update_nodes(struct scontrol *c, const char *list, int argc, char **argv) {
    struct node_change n = {0};
    struct name_list names;
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    if (read_node_change(argc, argv, &n))
        return SLURM_FAILED;
    if (slurm_same_word(list, "ALL") ? all_nodes(c, &names) != 0
                               : nodelist_expand(list, &c->s->cli.arena, &names, NULL) < 0) {
        fprintf(stderr, "slurm_update error: Invalid node name specified\n");
        return SLURM_FAILED;
    }
    bool drain = n.state && (slurm_same_word(n.state, "DRAIN") || slurm_same_word(n.state, "DOWN") ||
                             slurm_same_word(n.state, "FAIL"));
    bool resume = n.state && (slurm_same_word(n.state, "RESUME") || slurm_same_word(n.state, "UNDRAIN") ||
                              slurm_same_word(n.state, "IDLE"));
    if (n.state && !drain && !resume) {
        fprintf(stderr, "Invalid input: state=%s\nRequest aborted\nValid states are: DRAIN DOWN FAIL RESUME UNDRAIN "
                        "IDLE\n", n.state);
        return SLURM_FAILED;
    }
    if (drain && str_empty(n.reason)) {
        fprintf(stderr, "You must specify a reason when DOWNING or DRAINING a node. Request denied\n");
        return SLURM_FAILED;
    }
    json_open(&w, '{');
    if (drain)
        json_kv_str(&w, "reason", n.reason);
    json_close(&w, '}');
    int status = SLURM_OK;
    for (uint32_t i = 0; n.state && !status && i < names.len; i++)
        status = node_call(c, names.at[i], drain ? "drain" : "resume", &body);
    return status;
}

// --- partitions ---

static int put_entity(struct scontrol *c, const char *kind, const char *name, const struct schema *schema,
                      const void *value, const char *what) {
    cleanup_buf struct buf body = {0};
    struct json_writer w = {.out = &body};
    struct reply r;
    schema_write_json(schema, value, &w);
    if (!slurm_client(c->s))
        return SLURM_FAILED;
    if (client_call(c->s->client, "PUT", arena_printf(&c->s->cli.arena, "/v1/%s/%s", kind, name), &body, &r) == 0)
        return SLURM_OK;
    const char *text = c->s->cli.error.text;
    fprintf(stderr, "%s: %s\n", what,
            denied(c)                            ? "Invalid user id"
            : str_has_prefix(text, "projects: ") ? "Invalid account or account/partition combination specified"
            : str_has_prefix(text, "nodes: ")    ? "Invalid node name specified"
                                                 : text);
    return SLURM_FAILED;
}

// What is as it is here, or has no meaning: taken with the value that says so, or any when NULL.
static bool partition_is_so(const char *key, const char *v) {
    static const struct {
        const char *key, *value;
    } known[] = {{"AllowAccounts", "ALL"}, {"AllowGroups", "ALL"},       {"AllowQos", "ALL"},
                 {"MaxNodes", "UNLIMITED"}, {"MaxNodes", "INFINITE"},    {"MinNodes", "0"},
                 {"MinNodes", "1"},         {"Hidden", "NO"},            {"RootOnly", "NO"},
                 {"OverSubscribe", "NO"},   {"Shared", "NO"},            {"DisableRootJobs", "NO"},
                 {"ReqResv", "NO"},         {"LLN", "NO"},               {"ExclusiveUser", "NO"},
                 {"PriorityJobFactor", NULL}, {"GraceTime", "0"},        {"OverTimeLimit", "0"},
                 {"PreemptMode", "OFF"},    {"MaxMemPerNode", "UNLIMITED"}, {"AllocNodes", "ALL"},
                 {"MaxCPUsPerNode", "UNLIMITED"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (slurm_same_word(key, known[i].key) && (!known[i].value || slurm_same_word(v, known[i].value)))
            return true;
    return false;
}

static bool is_unlimited(const char *v) {
    return slurm_same_word(v, "UNLIMITED") || slurm_same_word(v, "INFINITE");
}

static int bad_partition(const char *word, const char *hint) {
    fprintf(stderr, "scontrol: error: Invalid input%s%s\n", *hint ? ": " : " ", word);
    if (*hint)
        fprintf(stderr, "scontrol: error: %s\n", hint);
    fprintf(stderr, "slurm_update error: No error\n");
    return SLURM_FAILED;
}

static int set_time(const char *word, const char *v, struct partition *p, uint32_t *out) {
    schema_unmark(&entity_partition_schema, p, out);
    if (is_unlimited(v) || slurm_same_word(v, "NONE"))
        *out = 0;
    else if (duration_parse(v, 60, out, NULL) < 0 || *out == DURATION_UNLIMITED)
        return bad_partition(word, "");
    else
        schema_give(&entity_partition_schema, p, out);
    return 0;
}

static int set_state(const char *word, const char *v, struct partition *p) {
    bool up = slurm_same_word(v, "UP"), down = slurm_same_word(v, "DOWN"), drain = slurm_same_word(v, "DRAIN"),
         inactive = slurm_same_word(v, "INACTIVE");
    if (!up && !down && !drain && !inactive)
        return bad_partition(word, "Acceptable State values are UP, DOWN, DRAIN and INACTIVE");
    p->down = down || inactive;
    p->closed = drain || inactive;
    return 0;
}

static int partition_change(struct scontrol *c, const char *word, struct partition *p) {
    const char *v = strchr(word, '=');
    char sign;
    const char *key = name_of(c, word, &sign);
    uint64_t bytes;
    if (!v++ || sign) {
        fprintf(stderr, "Invalid input: %s\nRequest aborted\n", word);
        return SLURM_FAILED;
    }
    if (slurm_same_word(key, "State"))
        return set_state(word, v, p);
    if (slurm_same_word(key, "Default") && (slurm_same_word(v, "YES") || slurm_same_word(v, "NO"))) {
        p->is_default = slurm_same_word(v, "YES");
        return 0;
    }
    if (slurm_same_word(key, "Nodes")) {
        p->nodes = slurm_same_word(v, "ALL") ? NULL : v;
        return 0;
    }
    if (slurm_same_word(key, "MaxTime"))
        return set_time(word, v, p, &p->max_time_s);
    if (slurm_same_word(key, "DefaultTime"))
        return set_time(word, v, p, &p->default_time_s);
    if (slurm_same_word(key, "PriorityTier") && parse_u32(v, &p->tier) == 0)
        return 0;
    if (slurm_same_word(key, "DefMemPerCPU") && size_parse(v, SIZE_M, &bytes, NULL) == 0) {
        p->default_memory_per_cpu_bytes = bytes;  // 0: none, as in Slurm
        schema_unmark(&entity_partition_schema, p, &p->default_memory_per_cpu_bytes);
        return 0;
    }
    if (partition_is_so(key, v))
        return 0;
    fprintf(stderr, "scontrol: error: Update of this parameter is not supported: %s\n\n"
                    "scontrol: error: Request aborted\nslurm_update error: No error\n", word);
    return SLURM_FAILED;
}

static bool get_partition(struct scontrol *c, const char *name, struct partition *out) {
    struct reply r;
    return slurm_client(c->s) &&
           client_call(c->s->client, "GET", arena_printf(&c->s->cli.arena, "/v1/partitions/%s", name), NULL,
                       &r) == 0 &&
           schema_read_json(&entity_partition_schema, r.json, &c->s->cli.arena, out, NULL) == 0;
}

static int set_partition(struct scontrol *c, const char *name, bool create, int argc, char **argv) {
    struct partition p = {.name = name};
    bool there = get_partition(c, name, &p);
    uint32_t changes = 0;
    if (there == create) {
        fprintf(stderr, "%s: Invalid partition name specified\n",
                create ? "Error creating the partition" : "slurm_update error");
        return SLURM_FAILED;
    }
    for (int i = 0; i < argc; i++) {
        char sign;
        const char *key = name_of(c, argv[i], &sign);
        if (slurm_same_word(key, "PartitionName") || slurm_same_word(key, "Partition"))
            continue;
        if (partition_change(c, argv[i], &p))
            return SLURM_FAILED;
        changes++;
    }
    if (!changes && !create) {
        fprintf(stderr, "scontrol: error: No changes specified\n");
        return SLURM_FAILED;
    }
    return put_entity(c, "partitions", name, &entity_partition_schema, &p,
                      create ? "Error creating the partition" : "slurm_update error");
}

// --- reservations ---

enum { RESERVATION_LIST_MAX = 256, YEAR_S = 365 * 86400 };

// "a,b" put in place of the list, or with += and -= added to it and taken from it.
static void change_list(struct arena *a, const char *text, char sign, const char **at, uint32_t len,
                        struct any_list *out) {
    VEC(const char *) v = {0};
    for (uint32_t i = 0; sign && i < len; i++)
        if (sign == '+' || !slurm_list_has(text, at[i]))
            vec_push(&v, at[i]);
    for (const char *p = text; sign != '-' && *p && v.len < RESERVATION_LIST_MAX;) {
        size_t n = strcspn(p, ",");
        vec_push(&v, arena_strndup(a, p, n));
        p += n + (p[n] == ',');
    }
    *out = (struct any_list){arena_memdup(a, v.at, (v.len + 1) * sizeof *v.at), v.len};
    vec_done(&v);
}

static int refused(bool create, const char *fmt, const char *word) {
    fprintf(stderr, "scontrol: error: ");
    fprintf(stderr, streq(fmt, "Unknown") ? "Unknown parameter %s." : "Invalid start time %s.", word);
    fprintf(stderr, "  No reservation %s.\n", create ? "created" : "updated");
    return SLURM_FAILED;
}

static int set_moment(bool create, const char *word, const char *v, int64_t *out) {
    if (local_time_parse(v, clock_wall_ms(), TIME_NEXT, out, NULL) == 0)
        return 0;
    fprintf(stderr, "Invalid time specification (pos=0): %s\n", v);
    return refused(create, "time", word);
}

static int set_users(struct scontrol *c, const char *v, char sign, bool create, struct reservation *r) {
    struct any_list list;
    change_list(&c->s->cli.arena, v, sign, r->users.at, r->users.len, &list);
    for (uint32_t i = 0; i < list.len; i++)
        if (!getpwnam(((const char **)list.at)[i])) {
            fprintf(stderr, "Error %s the reservation: Invalid user id\n", create ? "creating" : "updating");
            return SLURM_FAILED;
        }
    r->users.at = list.at;
    r->users.len = list.len;
    return 0;
}

// Flags that say what holds here anyway, and those with a meaning.
static int set_flags(struct scontrol *c, const char *word, const char *v, bool create, struct reservation *r) {
    static const char *const harmless[] = {"IGNORE_JOBS", "SPEC_NODES", "OVERLAP", "PART_NODES",
                                           "NO_HOLD_JOBS_AFTER_END"};
    for (const char *p = v; *p;) {
        const char *one = arena_strndup(&c->s->cli.arena, p, strcspn(p, ","));
        bool known = slurm_same_word(one, "MAINT");
        r->maintenance |= known;
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            known |= slurm_same_word(one, harmless[i]);
        if (!known) {
            fprintf(stderr, "scontrol: error: Error parsing flags %s.  No reservation %s.\n", one,
                    create ? "created" : "updated");
            return SLURM_FAILED;
        }
        p += strlen(one) + (p[strlen(one)] == ',');
    }
    return 0;
}

struct reservation_times {
    int64_t seconds;  // -1: not given
    uint32_t count;   // of nodes to be chosen
};

static int reservation_change(struct scontrol *c, const char *word, bool create, struct reservation *r,
                              struct reservation_times *t) {
    const char *v = strchr(word, '=');
    char sign;
    const char *key = name_of(c, word, &sign);
    struct any_list list;
    uint32_t seconds;
    if (!v++)
        return slurm_same_word(word, "reservation") ? 0 : refused(create, "Unknown", word);
    if (slurm_same_word(key, "StartTime"))
        return set_moment(create, word, v, &r->start_ms);
    if (slurm_same_word(key, "EndTime"))
        return set_moment(create, word, v, &r->end_ms);
    if (slurm_same_word(key, "Duration") && (is_unlimited(v) || duration_parse(v, 60, &seconds, NULL) == 0)) {
        t->seconds = is_unlimited(v) || seconds == DURATION_UNLIMITED ? YEAR_S : seconds;
        return 0;
    }
    if (slurm_same_word(key, "NodeCnt") || slurm_same_word(key, "NodeCount"))
        return parse_u32(v, &t->count) == 0 ? 0 : refused(create, "Unknown", word);
    if (slurm_same_word(key, "Nodes")) {
        r->nodes = slurm_same_word(v, "ALL") ? NULL : v;
        return 0;
    }
    if (slurm_same_word(key, "Users") || slurm_same_word(key, "User"))
        return set_users(c, v, sign, create, r);
    if (slurm_same_word(key, "Accounts") || slurm_same_word(key, "Account")) {
        change_list(&c->s->cli.arena, v, sign, r->projects.at, r->projects.len, &list);
        r->projects.at = list.at;
        r->projects.len = list.len;
        return 0;
    }
    if (slurm_same_word(key, "Flags"))
        return set_flags(c, word, v, create, r);
    if (slurm_same_word(key, "ReservationName") || slurm_same_word(key, "Reservation") ||
        slurm_same_word(key, "PartitionName") || slurm_same_word(key, "Partition"))
        return 0;
    return refused(create, "Unknown", word);
}

// Names that are there; else the first `count` of all.
static int choose_nodes(struct scontrol *c, uint32_t count, struct reservation *r) {
    struct name_list all = {0}, wanted = {0};
    cleanup_buf struct buf folded = {0};
    if (all_nodes(c, &all))
        return SLURM_FAILED;
    if (count && !r->nodes) {
        if (count > all.len) {
            fprintf(stderr, "Error creating the reservation: Node count specification invalid\n");
            return SLURM_FAILED;
        }
        nodelist_fold(all.at, count, &folded);
        r->nodes = arena_strdup(&c->s->cli.arena, buf_str(&folded));
    }
    bool good = !r->nodes || nodelist_expand(r->nodes, &c->s->cli.arena, &wanted, NULL) == 0;
    for (uint32_t i = 0; good && i < wanted.len; i++) {
        bool there = false;
        for (uint32_t k = 0; k < all.len; k++)
            there |= streq(all.at[k], wanted.at[i]);
        good = there;
    }
    if (!good)
        fprintf(stderr, "Error creating the reservation: Invalid node name specified\n");
    return good ? 0 : SLURM_FAILED;
}

static int set_reservation(struct scontrol *c, const char *name, struct reservation *r, bool create, int argc,
                           char **argv) {
    struct reservation_times t = {.seconds = -1};
    bool nodes = false;
    r->name = name;
    for (int i = 0; i < argc; i++) {
        nodes |= !strncasecmp(argv[i], "node", 4);
        if (reservation_change(c, argv[i], create, r, &t))
            return SLURM_FAILED;
    }
    if (create && !r->start_ms) {
        fprintf(stderr, "scontrol: error: A start time must be given.  No reservation created.\n");
        return SLURM_FAILED;
    }
    if (create && t.seconds < 0 && !r->end_ms) {
        fprintf(stderr, "scontrol: error: An end time or duration must be given.  No reservation created.\n");
        return SLURM_FAILED;
    }
    if (create && !nodes) {
        fprintf(stderr, "scontrol: error: Core, Node, Licenses, BurstBuffer or Watts must be specified.  "
                        "No reservation created.\n");
        return SLURM_FAILED;
    }
    if (create && !r->users.len && !r->projects.len) {
        fprintf(stderr, "scontrol: error: Either Users/Groups and/or Accounts must be specified.  "
                        "No reservation created.\n");
        return SLURM_FAILED;
    }
    if (t.seconds >= 0)
        r->end_ms = r->start_ms + t.seconds * 1000;
    if (nodes && choose_nodes(c, t.count, r))
        return SLURM_FAILED;
    return put_entity(c, "reservations", name, &entity_reservation_schema, r,
                      create ? "Error creating the reservation" : "slurm_update error");
}

static bool get_reservation(struct scontrol *c, const char *name, struct reservation *out) {
    struct reply r;
    const char *target = arena_printf(&c->s->cli.arena, "/v1/reservations/%s", name);
    return slurm_client(c->s) && client_call(c->s->client, "GET", target, NULL, &r) == 0 &&
           schema_read_json(&entity_reservation_schema, r.json, &c->s->cli.arena, out, NULL) == 0;
}

// Named as Slurm does: after the first user or account, with a number.
static const char *free_name(struct scontrol *c, int argc, char **argv) {
    const char *who = either(argc, argv, "Users", "User");
    struct reservation other;
    if (!who)
        who = either(argc, argv, "Accounts", "Account");
    who = who ? arena_strndup(&c->s->cli.arena, who, strcspn(who, ",")) : "resv";
    for (uint32_t i = 1; i < RESERVATION_LIST_MAX; i++) {
        const char *name = arena_printf(&c->s->cli.arena, "%s_%u", who, i);
        if (!get_reservation(c, name, &other))
            return name;
    }
    return arena_printf(&c->s->cli.arena, "%s_%lld", who, (long long)(clock_wall_ms() / 1000));
}

int scontrol_create(struct scontrol *c, int argc, char **argv) {
    const char *partition = either(argc, argv, "PartitionName", "Partition"),
               *name = either(argc, argv, "ReservationName", "Reservation");
    struct reservation v = {0};
    if (!name && !slurm_same_word(argv[0], "reservation") && partition)
        return set_partition(c, partition, true, argc, argv);
    if (!name && !slurm_same_word(argv[0], "reservation")) {
        fprintf(stderr, "scontrol: error: Invalid creation entity: %s\n", argv[0]);
        return SLURM_FAILED;
    }
    if (name && get_reservation(c, name, &v)) {
        fprintf(stderr, "Error creating the reservation: Duplicate reservation name\n");
        return SLURM_FAILED;
    }
    v = (struct reservation){0};
    if (!name)
        name = free_name(c, argc, argv);
    int r = set_reservation(c, name, &v, true, argc, argv);
    if (!r)
        printf("Reservation created: %s\n", name);
    return r;
}

int scontrol_delete(struct scontrol *c, int argc, char **argv) {
    const char *name = either(argc, argv, "ReservationName", "Reservation"), *kind = "reservation";
    struct reply r;
    if (!name && argc > 1 && !strncasecmp(argv[0], "reservation", 3))
        name = argv[1];
    if (!name && ((name = either(argc, argv, "PartitionName", "Partition")) ||
                  (argc > 1 && !strncasecmp(argv[0], "partition", 4) && (name = argv[1]))))
        kind = "partition";
    if (!name) {
        fprintf(stderr, strchr(argv[0], '=') || argc > 1
                            ? "Invalid deletion entity: %s\n"
                            : "scontrol: error: Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'\n",
                argv[0]);
        return SLURM_FAILED;
    }
    if (!slurm_client(c->s))
        return SLURM_FAILED;
    if (client_call(c->s->client, "DELETE", arena_printf(&c->s->cli.arena, "/v1/%ss/%s", kind, name), NULL, &r) == 0)
        return SLURM_OK;
    bool gone = c->s->cli.error.code == ENOENT;
    fprintf(stderr, "delete_%s %s: %s\n", kind, argv[0],
            denied(c)                        ? "Invalid user id"
            : gone && streq(kind, "partition") ? "Invalid partition name specified"
            : gone                             ? "Requested reservation is invalid"
                                               : c->s->cli.error.text);
    return SLURM_FAILED;
}

int scontrol_update_entity(struct scontrol *c, int argc, char **argv) {
    const char *node = either(argc, argv, "NodeName", "Node"),
               *partition = either(argc, argv, "PartitionName", "Partition"),
               *reservation = either(argc, argv, "ReservationName", "Reservation");
    struct reservation v;
    if (node)
        return update_nodes(c, node, argc, argv);
    if (reservation && !get_reservation(c, reservation, &v)) {
        fprintf(stderr, "Error updating the reservation: Requested reservation is invalid\n"
                        "slurm_update error: Requested reservation is invalid\n");
        return SLURM_FAILED;
    }
    if (reservation) {
        int r = set_reservation(c, reservation, &v, false, argc, argv);
        if (!r)
            printf("Reservation updated.\n");
        return r;
    }
    return partition ? set_partition(c, partition, false, argc, argv) : -1;
}
