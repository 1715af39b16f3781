// acequia secret
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/client/client.h"
#include "cli/term/local_time.h"
#include "cli/term/table.h"
#include "model/name.h"
#include "model/secret.h"
#include "model/units.h"
#include "verbs.h"

static const struct option_spec specs[] = {
    {"from-file", 'f', "FILE", "Set: the value is what this file holds, byte by byte.", 0, NULL, "@file"},
    {"project", 'P', "NAME", "A secret of this project, which its members' jobs can be given.", 0, NULL,
     "@project"},
    {"user", 'u', "NAME", "Delete: another user's secret, for administrators.", 0, NULL, NULL},
    {"lost", 0, NULL, "Delete: all that cannot be decrypted because the key file was lost.", 0, NULL, NULL},
};
static const struct option_table table_options = OPTION_TABLE("Options", specs);

static struct termios kept_terminal;

static void restore_terminal(int signal_number) {
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &kept_terminal);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int read_all(struct cli *c, int fd, const char *what, struct buf *out) {
    for (;;) {
        char *to = buf_reserve(out, 4096);
        ssize_t n = read(fd, to, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(&c->error, errno, "%s cannot be read: %s", what, strerror(errno));
        if (!n)
            return 0;
        out->len += (size_t)n;
        if (out->len > SECRET_VALUE_MAX + 1)
            return error_set(&c->error, E2BIG, "%s has more than %d bytes, the most a secret can have", what,
                             SECRET_VALUE_MAX);
    }
}

static void drop_newline(struct buf *value) {
    if (value->len && value->data[value->len - 1] == '\n')
        value->len--;
}

// One line, which is not shown while it is typed.
int verb_read_hidden(struct cli *c, const char *what, struct buf *out) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct termios quiet;
    if (tcgetattr(STDIN_FILENO, &kept_terminal) < 0)
        return error_set(&c->error, errno, "the terminal cannot be read: %s", strerror(errno));
    fprintf(stderr, "%s (not shown): ", what);
    quiet = kept_terminal;
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], restore_terminal);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    char ch;
    ssize_t n;
    while ((n = read(STDIN_FILENO, &ch, 1)) == 1 && ch != '\n' && out->len <= SECRET_VALUE_MAX)
        buf_addc(out, ch);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &kept_terminal);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    fputc('\n', stderr);
    return 0;
}

static int read_value(struct cli *c, const char *name, struct buf *out) {
    const char *file = option_get(&c->options, "from-file");
    if (file && !streq(file, "-")) {
        cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? error_set(&c->error, errno, "the file %s cannot be opened: %s", file, strerror(errno))
                      : read_all(c, fd, file, out);
    }
    if (isatty(STDIN_FILENO) && !file)
        return verb_read_hidden(c, arena_printf(&c->arena, "Value of %s", name), out);
    int r = read_all(c, STDIN_FILENO, "standard input", out);
    if (!file)
        drop_newline(out);  // as echo writes one
    return r;
}

static void write_body(struct cli *c, const struct buf *value, struct buf *body) {
    static const char digits[] = "0123456789abcdef";
    buf_adds(body, "{\"value\":\"");
    for (size_t i = 0; i < value->len; i++) {
        buf_addc(body, digits[(unsigned char)value->data[i] >> 4]);
        buf_addc(body, digits[value->data[i] & 15]);
    }
    buf_addc(body, '"');
    if (option_get(&c->options, "project")) {
        struct json_writer w = {.out = body, .need_comma = true};
        json_kv_str(&w, "project", option_get(&c->options, "project"));
    }
    buf_addc(body, '}');
}

static int set(struct cli *c) {
    cleanup_buf struct buf value = {0}, body = {0}, target = {0};
    struct reply reply;
    if (c->count > 2)
        return cli_usage(
            c, "a value is never given as an argument, where others can see it: type it, or use --from-file "
               "or standard input");
    if (c->count < 2)
        return cli_usage(c, "set needs the name of the secret");
    const char *name = c->arguments[1];
    if (name_check("secret", name, &c->error) < 0)
        return cli_usage(c, "%s", arena_strdup(&c->arena, c->error.text));
    if (read_value(c, name, &value) < 0)
        return cli_fail(c);
    if (!value.len)
        return cli_failf(c, "the value is empty; nothing was stored");
    write_body(c, &value, &body);
    buf_addf(&target, "/v1/secrets/%s", name);
    int status = client_request(c, "PUT", buf_str(&target), &body, &reply);
    explicit_bzero(value.data, value.len);
    explicit_bzero(body.data, body.len);
    if (status == CLI_OK && c->json)
        printf("%s\n", reply.text);
    else if (status == CLI_OK)
        printf("Secret %s stored; give it to a job with --secret %s or --secret %s:file\n", name, name, name);
    return status;
}

static int list(struct cli *c) {
    static const struct table_column columns[] = {{"NAME", false, 4, 8},    {"USER", false, 3, 5},
                                                  {"PROJECT", false, 3, 7}, {"VERSION", true, 0, 0},
                                                  {"STORED", false, 0, 0},  {"BY", false, 3, 5}};
    struct reply reply;
    struct text_table t;
    cleanup_buf struct buf out = {0};
    int status = client_get(c, "/v1/secrets", &reply);
    if (status != CLI_OK)
        return status;
    if (c->json) {
        buf_addf(&out, "%s\n", reply.text);
        return cli_print(&out);
    }
    const struct json *secrets = json_get(reply.json, "secrets");
    const char *project = option_get(&c->options, "project"), *user = option_get(&c->options, "user");
    table_init(&t, &c->arena, columns, 6);
    for (uint32_t i = 0; secrets && secrets->type == JSON_ARRAY && i < secrets->len; i++) {
        const struct json *j = &secrets->items[i];
        char when[UNIT_TEXT_MAX];
        if ((project && !streq(json_str(j, "project"), project)) ||
            (user && !streq(json_str(j, "user"), user)))
            continue;
        table_add(&t, json_str(j, "name"), COLOUR_NONE);
        table_add(&t, json_str(j, "user"), COLOUR_NONE);
        table_add(&t, json_str(j, "project"), COLOUR_NONE);
        table_add(&t, arena_printf(&c->arena, "%lld", (long long)json_i64(j, "version", 0)), COLOUR_NONE);
        table_add(&t,
                  arena_strdup(&c->arena, local_time_short(json_i64(j, "set_ms", 0), clock_wall_ms(), when)),
                  COLOUR_NONE);
        table_add(&t, json_str(j, "by"), COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    int printed = cli_print(&out);
    if (json_str(reply.json, "key_lost"))
        cli_note("%s", json_str(reply.json, "key_lost"));
    return printed;
}

static int delete_one(struct cli *c, const char *name, const char *user, const char *project) {
    struct reply reply;
    cleanup_query struct query q = {0};
    cleanup_buf struct buf target = {0};
    buf_adds(&target, "/v1/secrets/");
    http_percent_encode(&target, name);
    client_query_begin(&q, buf_str(&target));
    client_query_add(&q, "project", project);
    client_query_add(&q, "user", user);
    int status = client_request(c, "DELETE", buf_str(&q.text), NULL, &reply);
    if (status != CLI_OK)
        return status;
    if (c->json)
        printf("%s\n", reply.text);
    else
        printf("Secret %s deleted\n", name);
    return CLI_OK;
}

static int delete_lost(struct cli *c) {
    struct reply reply;
    if (c->count > 1)
        return cli_usage(c, "--lost deletes all that cannot be decrypted; it takes no names");
    int status = client_get(c, "/v1/secrets", &reply);
    if (status != CLI_OK)
        return status;
    if (!json_str(reply.json, "key_lost"))
        return cli_failf(c, "the key of secrets is where it was; nothing was deleted");
    const struct json *secrets = json_get(reply.json, "secrets");
    for (uint32_t i = 0; secrets && status == CLI_OK && i < secrets->len; i++) {
        const struct json *j = &secrets->items[i];
        status = delete_one(c, json_str(j, "name"), json_str(j, "user"), json_str(j, "project"));
    }
    return status;
}

static int delete_secrets(struct cli *c) {
    int status = CLI_OK;
    if (option_given(&c->options, "lost"))
        return delete_lost(c);
    if (c->count < 2)
        return cli_usage(c, "delete needs the name of a secret; see acequia secret list");
    for (int i = 1; i < c->count && status == CLI_OK; i++)
        status = delete_one(c, c->arguments[i], option_get(&c->options, "user"),
                            option_get(&c->options, "project"));
    return status;
}

static int run(struct cli *c) {
    const char *what = c->count ? c->arguments[0] : "list";
    if (streq(what, "set"))
        return set(c);
    if (streq(what, "list") && c->count <= 1)
        return list(c);
    if (streq(what, "delete"))
        return delete_secrets(c);
    return streq(what, "list") ? cli_usage(c, "unexpected argument \"%.40s\"", c->arguments[1])
                               : cli_usage(c, "unknown action \"%.40s\"; use set, list or delete", what);
}

const struct verb verb_secret = {
    .name = "secret",
    .group = "Work",
    .arguments = "set NAME [options]\n[list]\ndelete NAME...\ndelete --lost",
    .summary = "store passwords and keys for jobs",
    .text = "The value is typed without being shown, or read from standard input (a newline at its end is "
            "dropped) or "
            "from a file; never from the command line, which others can see. It is stored encrypted and "
            "nothing ever "
            "shows it again. A job gets it with --secret NAME in the variable NAME, or with --secret "
            "NAME:file as a file "
            "whose path is in the variable NAME_FILE; =VARIABLE names another variable. A secret of a "
            "project can be "
            "given to the jobs of its members.",
    .examples = "acequia secret set HF_TOKEN\nacequia secret set ssh-key --from-file "
                "~/.ssh/id_ed25519\nacequia submit "
                "--secret HF_TOKEN --secret ssh-key:file=KEY train.sh",
    .options = {&table_options, &cli_common_options},
    .run = run,
    .complete = "set list delete",
    .most = -1,
};
