// acequia mcp
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/client/client.h"
#include "verbs.h"

enum { MESSAGE_BYTES_MAX = 4 << 20, PARSE_ERROR = -32700, INVALID_REQUEST = -32600, SERVER_ERROR = -32000 };

// What the assistant is told when the controller has not answered, or refused the message as a request.
static void put_failure(const struct json *message, int code, const char *text, struct buf *out) {
    struct json_writer w = {.out = out};
    const struct json *id = message && message->type == JSON_OBJECT ? json_get(message, "id") : NULL;
    if (!id && message && code == SERVER_ERROR)
        return;  // nobody waits for an answer
    json_open(&w, '{');
    json_kv_str(&w, "jsonrpc", "2.0");
    json_key(&w, "id");
    if (id)
        json_write(&w, id);
    else
        json_put_null(&w);
    json_open_key(&w, "error", '{');
    json_kv_i64(&w, "code", code);
    json_kv_str(&w, "message", text);
    json_close(&w, '}');
    json_close(&w, '}');
}

static void pass_on(struct cli *c, const char *line, size_t len, struct buf *out) {
    struct client *k = NULL;
    struct reply reply = {0};
    struct json *message = NULL;
    cleanup_buf struct buf body = {0};
    buf_add(&body, line, len);
    int r = client_open(c, &k);
    if (r == 0)
        r = client_call(k, "POST", "/v1/mcp", &body, &reply);
    if (r == 0) {
        buf_add(out, reply.text, reply.len);
    } else if (json_parse(line, len, &c->arena, &message, NULL) == 0) {
        put_failure(message, c->error.code == EINVAL ? INVALID_REQUEST : SERVER_ERROR, c->error.text, out);
    } else {
        put_failure(NULL, PARSE_ERROR, c->error.text, out);
    }
    client_free(k);
}

static int run(struct cli *c) {
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int status = CLI_OK;
    while (status == CLI_OK && (len = getline(&line, &room, stdin)) > 0) {
        cleanup_buf struct buf out = {0};
        struct arena kept = c->arena;  // what one message needs is freed with it
        c->arena = (struct arena){0};
        if (line[len - 1] == '\n')
            len--;
        if (len > MESSAGE_BYTES_MAX)
            put_failure(NULL, INVALID_REQUEST, "the message is longer than 4 MiB", &out);
        else if (len)
            pass_on(c, line, (size_t)len, &out);
        arena_done(&c->arena);
        c->arena = kept;
        if (out.len) {
            buf_addc(&out, '\n');
            status = cli_print(&out);
            fflush(stdout);
        }
    }
    free(line);
    return status;
}

const struct verb verb_mcp = {
    .name = "mcp",
    .group = "Sharing",
    .arguments = "",
    .summary = "offer this cluster to an AI assistant (Model Context Protocol)",
    .text = "Speaks the protocol on standard input and output, one JSON-RPC message a line; an assistant "
            "starts it. The "
            "tools list and show jobs, logs, nodes and shares, explain why a job waits and when it would "
            "start, check a "
            "job, submit and cancel. Everything happens with the rights of whoever starts it: name a "
            "token with fewer scopes in $ACEQUIA_TOKEN_FILE to allow less. The same over HTTP: POST /v1/mcp.",
    .examples = "acequia mcp",
    .options = {&cli_common_options},
    .run = run,
};
