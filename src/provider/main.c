// acequia-provider: speaks with one engine for the controller, which starts it and asks it by lines of JSON. Ends when
// its input does.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "engine.h"

enum { SECRETS_FD = 3, SECRETS_MAX = 1 << 20, LINE_BYTES_MAX = 4 << 20 };

#define S struct asked_node
static const struct field asked_fields[] = {
    FIELD(1, S, key, "Key of the node.", .required = true),
    FIELD(2, S, node, "Name that its agent joins by."),
    FIELD(3, S, handle, "The engine's name of it."),
    FIELD(4, S, token, "Token that its agent joins with."),
};
static const struct schema asked_schema = SCHEMA(S, "a node of a question", asked_fields);
#undef S
#define S struct engine_question
static const struct field question_fields[] = {
    FIELD(1, S, id, "Number of the question."),
    FIELD_WORDS(2, S, verb, provider_verb_words, "What is asked."),
    FIELD(3, S, shape, "Shape of the nodes."),
    FIELD_LIST_SUB(4, S, nodes, &asked_schema, "Nodes."),
};
const struct schema engine_question_schema = SCHEMA(S, "a question to a provider", question_fields);
#undef S

void engine_add(struct provider_report *r, struct engine_node n, uint32_t *room, struct arena *a) {
    if (r->nodes.len == *room) {
        uint32_t more = *room ? *room * 2 : 16;
        struct engine_node *at = arena_alloc(a, more * sizeof *at);
        if (r->nodes.len)
            memcpy(at, r->nodes.at, r->nodes.len * sizeof *at);
        r->nodes.at = at;
        *room = more;
    }
    r->nodes.at[r->nodes.len++] = n;
}

static void answer(const struct engine *engine, const char *line, size_t len) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct engine_question q = {0};
    struct provider_report r = {0};
    struct json *j;
    struct error e = {0};
    int rc = json_parse(line, len, &a, &j, &e);
    if (rc == 0)
        rc = schema_read_json(&engine_question_schema, j, &a, &q, &e);
    if (rc == 0)
        switch (q.verb) {
        case VERB_OFFERS: rc = engine->offers(engine->ctx, &a, &r, &e); break;
        case VERB_START: rc = engine->start(engine->ctx, &q, &a, &r, &e); break;
        case VERB_STOP: rc = engine->stop(engine->ctx, &q, &a, &r, &e); break;
        default: rc = engine->list(engine->ctx, &a, &r, &e); break;
        }
    if (rc < 0)
        r = (struct provider_report){.error = e.text};
    r.id = q.id;
    r.verb = q.verb;
    schema_write_json(&provider_report_schema, &r, &(struct json_writer){.out = &out});
    buf_addc(&out, '\n');
    fwrite(out.data, 1, out.len, stdout);
    fflush(stdout);
}

static const struct json *read_secrets(struct arena *a) {
    cleanup_free char *text = xmalloc(SECRETS_MAX);
    struct json *j;
    ssize_t n = fcntl(SECRETS_FD, F_GETFD) < 0 ? -1 : read(SECRETS_FD, text, SECRETS_MAX);
    close(SECRETS_FD);
    return n > 0 && json_parse(text, (size_t)n, a, &j, NULL) == 0 ? j : NULL;
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

int main(int argc, char **argv) {
    cleanup_arena struct arena a = {0};
    struct engine engine;
    struct error e = {0};
    cleanup_free char *line = NULL;
    size_t room = 0;
    signal(SIGPIPE, SIG_IGN);
    struct engine_place place = {.provider = variable("ACEQUIA_PROVIDER"),
                                 .tag = variable("ACEQUIA_PROVIDER_TAG"),
                                 .cluster = variable("ACEQUIA_CLUSTER"),
                                 .controller = variable("ACEQUIA_CONTROLLER"),
                                 .secrets = read_secrets(&a)};
    if (argc < 2 || !streq(argv[1], "slurm")) {
        fprintf(stderr, "usage: acequia-provider slurm [options]; the controller starts it\n");
        return 2;
    }
    int r = slurm_engine(&place, argc - 1, argv + 1, &a, &engine, &e);
    while (getline(&line, &room, stdin) > 0 && room < LINE_BYTES_MAX) {
        size_t len = strcspn(line, "\n");
        if (r == 0) {
            answer(&engine, line, len);
            continue;
        }
        // What is wrong with the settings is the answer to every question.
        cleanup_arena struct arena mine = {0};
        struct json *j;
        int64_t id = json_parse(line, len, &mine, &j, NULL) == 0 ? json_i64(j, "id", 0) : 0;
        cleanup_buf struct buf out = {0};
        struct provider_report report = {.id = (uint64_t)id, .error = e.text};
        schema_write_json(&provider_report_schema, &report, &(struct json_writer){.out = &out});
        buf_addc(&out, '\n');
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
    }
    return 0;
}
