// Prints errors and notes on standard error, and results on standard output.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/command/command.h"

static const struct option_spec common_specs[] = {
    {"json", 0, NULL, "Print JSON.", 0, NULL, NULL},
    {"help", 'h', NULL, "Show this help.", 0, NULL, NULL},
};
const struct option_table cli_common_options = OPTION_TABLE("Common options", common_specs);

// Messages repeat what was typed, read and answered: nothing of it may speak to the terminal.
void cli_note(const char *fmt, ...) {
    cleanup_buf struct buf said = {0}, out = {0};
    va_list args;
    uint32_t code;
    va_start(args, fmt);
    buf_vaddf(&said, fmt, args);
    va_end(args);
    buf_adds(&out, "acequia: ");
    for (size_t i = 0, n; i < said.len; i += n) {
        const char *at = said.data + i;
        n = *at == '\n' || *at == '\t' ? 0 : str_control_char(at, said.len - i, &code);
        if (n)
            buf_addc(&out, '?');
        else
            buf_addc(&out, *at);
        n = n ? n : 1;
    }
    buf_addc(&out, '\n');
    fputs(buf_str(&out), stderr);
}

static void print_error_json(int code, const char *text) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    const char *word = error_name(code);
    json_open(&w, '{');
    json_open_key(&w, "error", '{');
    json_kv_str(&w, "code", word ? word : "EIO");
    json_kv_str(&w, "message", text);
    json_close(&w, '}');
    json_close(&w, '}');
    fprintf(stderr, "%s\n", buf_str(&b));
}

int cli_fail(struct cli *c) {
    if (c->json)
        print_error_json(c->error.code, c->error.text);
    else
        cli_note("%s", cli_field_options(c, c->error.text));
    return CLI_FAILED;
}

int cli_failf(struct cli *c, const char *fmt, ...) {
    va_list args;
    c->error.code = EINVAL;
    va_start(args, fmt);
    vsnprintf(c->error.text, sizeof c->error.text, fmt, args);
    va_end(args);
    return cli_fail(c);
}

int cli_usage(struct cli *c, const char *fmt, ...) {
    va_list args;
    c->error.code = EINVAL;
    va_start(args, fmt);
    vsnprintf(c->error.text, sizeof c->error.text, fmt, args);
    va_end(args);
    cli_fail(c);
    if (!c->json)
        fprintf(stderr, "Try: acequia %s --help\n", c->verb ? c->verb->name : "");
    return CLI_USAGE;
}

int cli_print(const struct buf *b) {
    const char *p = buf_str(b);
    size_t left = b->len;
    fflush(stdout);
    while (left) {
        ssize_t n = write(STDOUT_FILENO, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EPIPE)
            return CLI_OK;
        if (n < 0) {
            cli_note("cannot write to standard output: %s", strerror(errno));
            return CLI_FAILED;
        }
        p += n;
        left -= (size_t)n;
    }
    return CLI_OK;
}
