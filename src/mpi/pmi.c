// Owns what the tasks of a step on one node have put, and where each of them is in the protocol. Everything that comes
// from a task is the user's: sizes are bounded, and what cannot be read ends the conversation with that task alone.
#include "mpi/pmi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"

enum { WORDS_MAX = 64, LENGTH_DIGITS = 6, PAIR_HEAD = 6 };

struct word {
    const char *key, *value;
};

struct node_wait {  // a task that waits for a value of its node
    uint32_t task;
    char *key, *thread;
};

struct pmi_task {
    struct buf in;
    struct buf put;    // since the last fence, encoded
    uint32_t version;  // of PMI; 0: it has not begun
    bool joined, finished, fenced, broken;
    char *fence_thread;
    struct spawn_group spawn;
    bool spawning;            // lines of a spawn come, until endcmd
    const char *spawn_wrong;  // with the spawn that comes; NULL: nothing
    char *spawn_thread;
};

struct pmi_world {
    struct pmi_options o;
    struct pmi_host host;
    void *ctx;
    struct pmi_task *tasks;
    uint32_t fenced;
    struct strmap values;       // of all tasks, known by all
    struct strmap node_values;  // of this node
    struct arena arena;
    struct buf mapping;
    VEC(struct node_wait) waits;
    size_t kept_bytes;
    uint32_t *programs;  // of ranks that were spawned: which of the programs, by rank; NULL: nobody has asked for them
};

static bool keep(struct pmi_world *w, struct strmap *to, const char *key, size_t key_len, const char *value,
                 size_t value_len);

static bool keep_value(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len) {
    struct pmi_world *w = ctx;
    return keep(w, &w->values, key, key_len, value, value_len);
}

struct pmi_world *pmi_world_new(const struct pmi_options *o, const struct pmi_host *host, void *ctx) {
    struct pmi_world *w = xcalloc(1, sizeof *w);
    w->o = *o;
    w->host = *host;
    w->ctx = ctx;
    w->o.places = arena_memdup(&w->arena, o->places, o->size * sizeof *o->places);
    w->o.ranks = arena_memdup(&w->arena, o->ranks, o->tasks * sizeof *o->ranks);
    w->o.name = arena_strdup(&w->arena, o->name);
    w->tasks = arena_alloc(&w->arena, (o->tasks + 1) * sizeof *w->tasks);
    pmi_mapping(o, &w->mapping);
    if (o->spawned) {
        w->programs = arena_alloc(&w->arena, o->size * sizeof *w->programs);
        if (!spawn_read(o->spawned, o->size, w->programs, keep_value, w))
            w->programs = NULL;
    }
    return w;
}

static void free_wait(struct node_wait *n) {
    free(n->key);
    free(n->thread);
}

struct pmi_world *pmi_world_free(struct pmi_world *w) {
    if (!w)
        return NULL;
    for (uint32_t i = 0; i < w->o.tasks; i++) {
        buf_done(&w->tasks[i].in);
        buf_done(&w->tasks[i].put);
        free(w->tasks[i].fence_thread);
        free(w->tasks[i].spawn_thread);
        spawn_group_done(&w->tasks[i].spawn);
    }
    for (uint32_t i = 0; i < w->waits.len; i++)
        free_wait(&w->waits.at[i]);
    vec_done(&w->waits);
    strmap_done(&w->values);
    strmap_done(&w->node_values);
    buf_done(&w->mapping);
    arena_done(&w->arena);
    free(w);
    return NULL;
}

// Runs of ranks on one node that are equally long and go up by one node each are one entry: blocks over four nodes are
// (0,4,8), one rank after the other over two nodes (0,2,1),(0,2,1),…
void pmi_mapping(const struct pmi_options *o, struct buf *out) {
    buf_adds(out, "(vector");
    for (uint32_t at = 0; at < o->size;) {
        uint32_t first = o->places[at], each = 1, nodes = 1;
        while (at + each < o->size && o->places[at + each] == first)
            each++;
        for (uint32_t next = at + each; next < o->size; next += each, nodes++) {
            uint32_t run = 0;
            while (next + run < o->size && o->places[next + run] == first + nodes && run < each)
                run++;
            bool longer = next + run < o->size && o->places[next + run] == first + nodes;
            if (run < each || longer)
                break;
        }
        buf_addf(out, ",(%u,%u,%u)", first, nodes, each);
        at += each * nodes;
    }
    buf_addc(out, ')');
}

// --- values ---

static const char *find_value(const struct pmi_world *w, const char *key) {
    return streq(key, "PMI_process_mapping") ? buf_str(&w->mapping) : strmap_get(&w->values, key);
}

static bool keep(struct pmi_world *w, struct strmap *to, const char *key, size_t key_len, const char *value,
                 size_t value_len) {
    if (w->kept_bytes + key_len + value_len > PMI_WORLD_BYTES_MAX)
        return false;
    w->kept_bytes += key_len + value_len;
    strmap_put(to, arena_strndup(&w->arena, key, key_len), arena_strndup(&w->arena, value, value_len));
    return true;
}

static const char *put(struct pmi_world *w, struct pmi_task *t, const char *key, const char *value) {
    size_t k = key ? strlen(key) : 0, v = value ? strlen(value) : 0;
    if (!k || !value)
        return "key_or_value_is_missing";
    if (k > PMI_KEY_MAX || v > PMI_VALUE_MAX)
        return "key_or_value_is_too_long";
    if (t->put.len + k + v + PAIR_HEAD > PMI_TASK_BYTES_MAX)
        return "too_much_was_put_since_the_last_fence";
    uint16_t key_len = (uint16_t)k;
    uint32_t value_len = (uint32_t)v;
    buf_add(&t->put, &key_len, sizeof key_len);
    buf_add(&t->put, &value_len, sizeof value_len);
    buf_add(&t->put, key, k);
    buf_add(&t->put, value, v);
    return NULL;
}

static bool take_pairs(struct pmi_world *w, const char *p, size_t len) {
    while (len) {
        uint16_t key_len;
        uint32_t value_len;
        if (len < PAIR_HEAD)
            return false;
        memcpy(&key_len, p, sizeof key_len);
        memcpy(&value_len, p + sizeof key_len, sizeof value_len);
        p += PAIR_HEAD;
        len -= PAIR_HEAD;
        if (!key_len || key_len > PMI_KEY_MAX || value_len > PMI_VALUE_MAX ||
            len < (size_t)key_len + value_len)
            return false;
        if (!keep(w, &w->values, p, key_len, p + key_len, value_len))
            return false;
        p += key_len + value_len;
        len -= key_len + value_len;
    }
    return true;
}

// --- answers ---

static void send_text(struct pmi_world *w, uint32_t task, const struct buf *b) {
    w->host.reply(w->ctx, task, b->data, b->len);
}

static void answer1(struct pmi_world *w, uint32_t task, const char *line) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, line);
    buf_addc(&b, '\n');
    send_text(w, task, &b);
}

// In PMI-2 a semicolon in a value is written twice.
static void add_value(struct buf *b, const char *key, const char *value) {
    buf_addf(b, "%s=", key);
    for (; *value; value++) {
        buf_addc(b, *value);
        if (*value == ';')
            buf_addc(b, ';');
    }
    buf_addc(b, ';');
}

// `rest` ends with a semicolon, or is empty.
static void answer2(struct pmi_world *w, uint32_t task, const char *command, const char *thread,
                    const char *rest) {
    cleanup_buf struct buf body = {0}, b = {0};
    add_value(&body, "cmd", command);
    if (thread)
        add_value(&body, "thrid", thread);
    buf_adds(&body, rest);
    buf_addf(&b, "%6zu", body.len);
    buf_add(&b, body.data, body.len);
    send_text(w, task, &b);
}

static const char *word_of(const struct word *words, uint32_t n, const char *key) {
    for (uint32_t i = 0; i < n; i++)
        if (streq(words[i].key, key))
            return words[i].value;
    return NULL;
}

// --- fences ---

static void enter_fence(struct pmi_world *w, uint32_t task, const char *thread) {
    struct pmi_task *t = &w->tasks[task];
    if (t->fenced)
        return;
    t->fenced = true;
    free(t->fence_thread);
    t->fence_thread = thread ? xstrdup(thread) : NULL;
    if (++w->fenced < w->o.tasks)
        return;
    cleanup_buf struct buf all = {0};
    for (uint32_t i = 0; i < w->o.tasks; i++) {
        buf_add(&all, w->tasks[i].put.data, w->tasks[i].put.len);
        buf_clear(&w->tasks[i].put);
    }
    w->host.fence(w->ctx, all.data, all.len);
}

bool pmi_fence_done(struct pmi_world *w, const void *data, size_t len) {
    if (w->fenced < w->o.tasks || !take_pairs(w, data, len))
        return false;
    w->fenced = 0;
    for (uint32_t i = 0; i < w->o.tasks; i++)
        w->tasks[i].fenced = false;
    for (uint32_t i = 0; i < w->o.tasks; i++) {
        struct pmi_task *t = &w->tasks[i];
        char *thread = t->fence_thread;
        t->fence_thread = NULL;
        if (t->version == 2)
            answer2(w, i, "kvs-fence-response", thread, "rc=0;");
        else
            answer1(w, i, "cmd=barrier_out rc=0");
        free(thread);
    }
    return true;
}

static void do_abort(struct pmi_world *w, uint32_t task, const char *code, const char *text) {
    char shown[PMI_TEXT_MAX];
    uint32_t n = 1;
    if (!code || parse_u32(code, &n) < 0 || n > INT32_MAX)
        n = 1;
    w->host.abort(w->ctx, w->o.ranks[task], (int)n, str_printable(text ? text : "", shown, sizeof shown));
}

// --- further ranks ---

void pmi_spawn_done(struct pmi_world *w, uint32_t task, const char *wrong) {
    struct pmi_task *t = &w->tasks[task];
    cleanup_buf struct buf b = {0};
    if (t->version == 2) {
        add_value(&b, "rc", wrong ? "-1" : "0");
        add_value(&b, wrong ? "errmsg" : "jobid", wrong ? wrong : w->o.name);
        buf_adds(&b, "nerrs=0;");
        answer2(w, task, "spawn-response", t->spawn_thread, buf_str(&b));
    } else if (wrong) {
        buf_addf(&b, "cmd=spawn_result rc=-1 msg=%s", wrong);
        answer1(w, task, buf_str(&b));
    } else {
        answer1(w, task, "cmd=spawn_result rc=0");
    }
    free(t->spawn_thread);
    t->spawn_thread = NULL;
    t->spawn_wrong = NULL;
    spawn_group_done(&t->spawn);
}

static void ask_spawn(struct pmi_world *w, uint32_t task) {
    struct pmi_task *t = &w->tasks[task];
    const char *wrong = t->spawn_wrong ? t->spawn_wrong : spawn_check(&t->spawn);
    if (wrong)
        pmi_spawn_done(w, task, wrong);
    else
        w->host.spawn(w->ctx, task, &t->spawn);
}

static void spawn_line1(struct pmi_world *w, uint32_t task, char *line) {
    struct pmi_task *t = &w->tasks[task];
    char *equals = strchr(line, '=');
    if (streq(line, "endcmd")) {
        t->spawning = false;
        if (t->spawn_wrong || spawn_is_complete(&t->spawn))
            ask_spawn(w, task);
    } else if (equals && !t->spawn_wrong) {
        *equals = 0;
        t->spawn_wrong = spawn_word1(&t->spawn, line, equals + 1);
    }
}

static void spawn2(struct pmi_world *w, uint32_t task, const struct word *words, uint32_t n, const char *thread) {
    struct pmi_task *t = &w->tasks[task];
    if (t->spawn_thread || t->spawn.commands.len)
        return;  // it waits for an answer already
    t->spawn_thread = thread ? xstrdup(thread) : NULL;
    for (uint32_t i = 0; i < n && !t->spawn_wrong; i++)
        t->spawn_wrong = spawn_word2(&t->spawn, words[i].key, words[i].value);
    if (n == WORDS_MAX)
        t->spawn_wrong = "too_many_words";
    ask_spawn(w, task);
}

// --- PMI-1 ---

static void get1(struct pmi_world *w, uint32_t task, const char *key) {
    cleanup_buf struct buf b = {0};
    const char *v = key ? find_value(w, key) : NULL;
    if (v)
        buf_addf(&b, "cmd=get_result rc=0 msg=success value=%s", v);
    else
        buf_adds(&b, "cmd=get_result rc=-1 msg=key_not_found value=unknown");
    answer1(w, task, buf_str(&b));
}

static void init1(struct pmi_world *w, uint32_t task, const struct word *words, uint32_t n) {
    struct pmi_task *t = &w->tasks[task];
    const char *version = word_of(words, n, "pmi_version");
    t->version = version && streq(version, "2") ? 2 : 1;
    t->joined = true;
    t->finished = false;  // a script may run one MPI program after the other
    answer1(w, task,
            t->version == 2 ? "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0"
                            : "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
}

static bool command1(struct pmi_world *w, uint32_t task, const struct word *words, uint32_t n) {
    struct pmi_task *t = &w->tasks[task];
    cleanup_buf struct buf b = {0};
    const char *cmd = word_of(words, n, "cmd");
    if (!cmd)
        return false;
    if (streq(cmd, "init")) {
        init1(w, task, words, n);
    } else if (!t->joined) {
        return false;
    } else if (streq(cmd, "get_maxes")) {
        buf_addf(&b, "cmd=maxes kvsname_max=256 keylen_max=%d vallen_max=%d rc=0", PMI_KEY_MAX,
                 PMI_VALUE_MAX);
    } else if (streq(cmd, "get_appnum")) {
        buf_addf(&b, "cmd=appnum appnum=%u rc=0", w->programs ? w->programs[w->o.ranks[task]] : 0);
    } else if (streq(cmd, "get_my_kvsname")) {
        buf_addf(&b, "cmd=my_kvsname kvsname=%s rc=0", w->o.name);
    } else if (streq(cmd, "get_universe_size")) {
        buf_addf(&b, "cmd=universe_size size=%u rc=0", w->o.size);
    } else if (streq(cmd, "get_ranks2hosts")) {
        buf_adds(&b, "cmd=put_ranks2hosts 0 0 ");
    } else if (streq(cmd, "put")) {
        const char *wrong = put(w, t, word_of(words, n, "key"), word_of(words, n, "value"));
        buf_addf(&b, "cmd=put_result rc=%d msg=%s", wrong ? -1 : 0, wrong ? wrong : "success");
    } else if (streq(cmd, "get")) {
        get1(w, task, word_of(words, n, "key"));
    } else if (streq(cmd, "barrier_in")) {
        enter_fence(w, task, NULL);
    } else if (streq(cmd, "finalize")) {
        t->finished = true;
        buf_adds(&b, "cmd=finalize_ack rc=0");
    } else if (streq(cmd, "abort")) {
        do_abort(w, task, word_of(words, n, "exitcode"), word_of(words, n, "message"));
    } else if (streq(cmd, "publish_name") || streq(cmd, "unpublish_name") || streq(cmd, "lookup_name")) {
        size_t verb = strcspn(cmd, "_");
        buf_addf(&b, "cmd=%.*s_result rc=-1 msg=names_are_not_supported_here", (int)verb, cmd);
    } else if (streq(cmd, "getbyidx")) {
        buf_adds(&b, "cmd=getbyidx_results rc=-1 reason=no_more_keyvals");
    } else {
        return false;
    }
    if (b.len)
        answer1(w, task, buf_str(&b));
    return true;
}

// Words are divided by blanks; a value is all up to the next one, the last of a put all up to the line's end.
static uint32_t split1(char *line, struct word *words) {
    uint32_t n = 0;
    for (char *p = line; *p && n < WORDS_MAX;) {
        p += strspn(p, " ");
        char *equals = strchr(p, '=');
        if (!*p || !equals)
            break;
        *equals = 0;
        words[n] = (struct word){p, equals + 1};
        bool rest = streq(p, "value") || streq(p, "message") || streq(p, "error_msg");
        size_t len = rest ? strlen(equals + 1) : strcspn(equals + 1, " ");
        p = equals + 1 + len;
        n++;
        if (*p)
            *p++ = 0;
    }
    return n;
}

// A spawn comes as several lines.
static bool line1(struct pmi_world *w, uint32_t task, char *line) {
    struct word words[WORDS_MAX];
    struct pmi_task *t = &w->tasks[task];
    if (!t->spawning && t->joined && str_has_prefix(line, "mcmd=spawn"))
        t->spawning = true;
    if (t->spawning) {
        spawn_line1(w, task, line);
        return true;
    }
    if (streq(line, "endcmd"))
        return true;
    return command1(w, task, words, split1(line, words));
}

// --- PMI-2 ---

static void node_value(struct pmi_world *w, uint32_t task, const char *thread, const char *value) {
    cleanup_buf struct buf b = {0};
    buf_addf(&b, "found=%s;", value ? "TRUE" : "FALSE");
    if (value)
        add_value(&b, "value", value);
    buf_adds(&b, "rc=0;");
    answer2(w, task, "info-getnodeattr-response", thread, buf_str(&b));
}

static void put_node(struct pmi_world *w, uint32_t task, const char *thread, const char *key,
                     const char *value) {
    bool fine = key && value && *key && strlen(key) <= PMI_KEY_MAX && strlen(value) <= PMI_VALUE_MAX &&
                keep(w, &w->node_values, key, strlen(key), value, strlen(value));
    answer2(w, task, "info-putnodeattr-response", thread, fine ? "rc=0;" : "rc=-1;errmsg=too long;");
    for (uint32_t i = 0; fine && i < w->waits.len;) {
        struct node_wait n = w->waits.at[i];
        if (!streq(n.key, key)) {
            i++;
            continue;
        }
        vec_remove(&w->waits, i);
        node_value(w, n.task, n.thread, value);
        free_wait(&n);
    }
}

static void get_node(struct pmi_world *w, uint32_t task, const char *thread, const char *key, bool wait) {
    const char *v = key ? strmap_get(&w->node_values, key) : NULL;
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < w->waits.len; i++)
        waiting += w->waits.at[i].task == task;
    if (!v && key && wait && waiting < WORDS_MAX)
        vec_push(&w->waits, ((struct node_wait){task, xstrdup(key), thread ? xstrdup(thread) : NULL}));
    else
        node_value(w, task, thread, v);
}

static void job_value(struct pmi_world *w, uint32_t task, const char *thread, const char *key) {
    cleanup_buf struct buf b = {0};
    const char *v = !key ? NULL : find_value(w, key);
    char size[16];
    if (key && streq(key, "universeSize")) {
        snprintf(size, sizeof size, "%u", w->o.size);
        v = size;
    }
    buf_addf(&b, "found=%s;", v ? "TRUE" : "FALSE");
    if (v)
        add_value(&b, "value", v);
    buf_adds(&b, "rc=0;");
    answer2(w, task, "info-getjobattr-response", thread, buf_str(&b));
}

static void get2(struct pmi_world *w, uint32_t task, const char *thread, const char *key) {
    cleanup_buf struct buf b = {0};
    const char *v = key ? find_value(w, key) : NULL;
    buf_addf(&b, "found=%s;", v ? "TRUE" : "FALSE");
    if (v)
        add_value(&b, "value", v);
    buf_adds(&b, "rc=0;");
    answer2(w, task, "kvs-get-response", thread, buf_str(&b));
}

static bool command2(struct pmi_world *w, uint32_t task, const struct word *words, uint32_t n) {
    struct pmi_task *t = &w->tasks[task];
    const char *cmd = word_of(words, n, "cmd"), *thread = word_of(words, n, "thrid"),
               *key = word_of(words, n, "key"), *value = word_of(words, n, "value");
    cleanup_buf struct buf b = {0};
    if (!cmd)
        return false;
    if (streq(cmd, "fullinit")) {
        buf_addf(
            &b,
            "pmi-version=2;pmi-subversion=0;rank=%u;size=%u;appnum=%u;debugged=FALSE;pmiverbose=FALSE;rc=0;",
            w->o.ranks[task], w->o.size, w->programs ? w->programs[w->o.ranks[task]] : 0);
        if (w->programs)
            add_value(&b, "spawner-jobid", w->o.name);
        answer2(w, task, "fullinit-response", thread, buf_str(&b));
    } else if (streq(cmd, "finalize")) {
        t->finished = true;
        answer2(w, task, "finalize-response", thread, "rc=0;");
    } else if (streq(cmd, "abort")) {
        do_abort(w, task, word_of(words, n, "exitcode"), word_of(words, n, "msg"));
    } else if (streq(cmd, "job-getid")) {
        add_value(&b, "jobid", w->o.name);
        buf_adds(&b, "rc=0;");
        answer2(w, task, "job-getid-response", thread, buf_str(&b));
    } else if (streq(cmd, "info-getjobattr")) {
        job_value(w, task, thread, key);
    } else if (streq(cmd, "info-putnodeattr")) {
        put_node(w, task, thread, key, value);
    } else if (streq(cmd, "info-getnodeattr")) {
        get_node(w, task, thread, key, streq(word_of(words, n, "wait"), "TRUE"));
    } else if (streq(cmd, "kvs-put")) {
        const char *wrong = put(w, t, key, value);
        answer2(w, task, "kvs-put-response", thread, wrong ? "rc=-1;errmsg=too long;" : "rc=0;");
    } else if (streq(cmd, "kvs-get")) {
        get2(w, task, thread, key);
    } else if (streq(cmd, "kvs-fence")) {
        enter_fence(w, task, thread);
    } else if (streq(cmd, "spawn")) {
        spawn2(w, task, words, n, thread);
    } else {  // names, connections between jobs
        buf_addf(&b, "%s-response", cmd);
        answer2(w, task, buf_str(&b), thread, "rc=-1;errmsg=not supported;");
    }
    return true;
}

// key=value; with semicolons inside values written twice. In place.
static uint32_t split2(char *p, struct word *words) {
    uint32_t n = 0;
    while (*p && n < WORDS_MAX) {
        char *equals = strchr(p, '=');
        if (!equals)
            break;
        *equals = 0;
        words[n] = (struct word){p, equals + 1};
        char *to = equals + 1, *from = to;
        while (*from && !(from[0] == ';' && from[1] != ';')) {
            from += *from == ';';
            *to++ = *from++;
        }
        p = *from ? from + 1 : from;
        *to = 0;
        n++;
    }
    return n;
}

// --- bytes ---

// One command from the front of the buffer. 0: it is not all there; negative: it cannot be one.
static ssize_t take_command(struct pmi_world *w, uint32_t task) {
    struct pmi_task *t = &w->tasks[task];
    struct buf *in = &t->in;
    if (t->version == 2) {
        char digits[LENGTH_DIGITS + 1] = "";
        uint32_t len;
        if (in->len < LENGTH_DIGITS)
            return 0;
        memcpy(digits, in->data, LENGTH_DIGITS);
        const char *number = digits + strspn(digits, " ");
        if (parse_u32(number, &len) < 0 || len > PMI_LINE_MAX)
            return -EBADMSG;
        if (in->len < LENGTH_DIGITS + len)
            return 0;
        struct word words[WORDS_MAX];
        cleanup_free char *body = xstrndup(in->data + LENGTH_DIGITS, len);
        return command2(w, task, words, split2(body, words)) ? (ssize_t)(LENGTH_DIGITS + len) : -EBADMSG;
    }
    char *end = memchr(in->data, '\n', in->len);
    if (!end)
        return in->len > PMI_LINE_MAX ? -EBADMSG : 0;
    size_t len = (size_t)(end - in->data);
    cleanup_free char *line = xstrndup(in->data, len);
    return line1(w, task, line) ? (ssize_t)len + 1 : -EBADMSG;
}

bool pmi_task_data(struct pmi_world *w, uint32_t task, const void *data, size_t len) {
    struct pmi_task *t = &w->tasks[task];
    if (task >= w->o.tasks || t->broken)
        return false;
    buf_add(&t->in, data, len);
    ssize_t used = 1;
    while (t->in.len && (used = take_command(w, task)) > 0)
        buf_drop(&t->in, (size_t)used);
    t->broken = used < 0;
    return !t->broken;
}

bool pmi_task_gone(struct pmi_world *w, uint32_t task) {
    struct pmi_task *t = &w->tasks[task];
    bool early = t->joined && !t->finished;
    for (uint32_t i = w->waits.len; i-- > 0;)
        if (w->waits.at[i].task == task) {
            free_wait(&w->waits.at[i]);
            vec_remove(&w->waits, i);
        }
    t->broken = true;
    t->finished = true;
    return early;
}

bool pmi_task_runs(const struct pmi_world *w, uint32_t task) {
    return w->tasks[task].joined && !w->tasks[task].finished;
}
