// The table of verbs and the texts generated from it; waits of verbs.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "texts.h"
#include "verbs.h"

static void widest_line(const char *text, size_t most, const char *what) {
    for (const char *p = text; *p; p += *p == '\n') {
        size_t len = strcspn(p, "\n");
        if (len > most)
            print_error("%s: %.*s\n", what, (int)len, p);
        assert_true(len <= most);
        p += len;
    }
}

// Every verb says what it does within 80 columns, has a page and completes.
static void verbs_are_whole(void **state) {
    size_t count;
    const struct verb *const *verbs = verbs_all(&count);
    cleanup_buf struct buf overview = {0}, bash = {0}, zsh = {0}, docs = {0};
    verb_help_overview(&overview, false);
    verb_completion_bash(&bash);
    verb_completion_zsh(&zsh);
    verb_docs_markdown(&docs);
    widest_line(buf_str(&overview), 80, "overview");
    for (size_t i = 0; i < count; i++) {
        const struct verb *v = verbs[i];
        cleanup_buf struct buf help = {0}, man = {0};
        assert_non_null(v->summary);
        assert_non_null(v->run);
        verb_help_verb(v, &help);
        verb_man_verb(v, &man);
        widest_line(buf_str(&help), 80, v->name);
        assert_non_null(strstr(buf_str(&help), "--json"));
        assert_non_null(strstr(buf_str(&man), ".SH NAME"));
        if (!v->group)
            continue;
        assert_non_null(strstr(buf_str(&bash), v->name));
        assert_non_null(strstr(buf_str(&zsh), v->name));
        assert_non_null(strstr(buf_str(&docs), v->name));
    }
    // No letter twice in one verb.
    for (size_t i = 0; i < count; i++) {
        char seen[128] = {0};
        for (int t = 0; verbs[i]->options[t]; t++)
            for (size_t k = 0; k < verbs[i]->options[t]->count; k++) {
                char letter = verbs[i]->options[t]->at[k].letter;
                if (letter && seen[(unsigned char)letter])
                    print_error("%s: -%c twice\n", verbs[i]->name, letter);
                assert_true(!letter || !seen[(unsigned char)letter]);
                seen[(unsigned char)letter] = 1;
            }
    }
}

enum { LOOKS = 20, RECORD_BYTES = 64 << 10 };

// What a controller answers about a cluster that is ready when it was looked at often enough.
static void answer(int fd, const char *head, int *looks) {
    cleanup_buf struct buf body = {0}, all = {0};
    const char *ready = ",\"state\":\"running\",\"health\":\"ready\",\"attempt\":1}";
    if (str_has_prefix(head, "GET /v1/jobs?")) {
        buf_adds(&body, "{\"jobs\":[{\"id\":1,\"name\":\"d\"}]}");
    } else if (str_has_prefix(head, "GET /v1/jobs/1 ")) {
        buf_adds(&body, "{\"state\":\"RUNNING\",\"comment\":\"");
        for (int i = 0; i < RECORD_BYTES; i++)
            buf_addc(&body, 'x');
        buf_adds(&body, "\",\"members\":[");
        if (++*looks > LOOKS)
            buf_addf(&body, "{\"component\":\"head\"%s,{\"component\":\"worker\"%s", ready, ready);
        buf_adds(&body, "]}");
    } else {
        buf_adds(&body, "{}");
    }
    buf_addf(&all, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             body.len, buf_str(&body));
    for (size_t at = 0; at < all.len;) {
        ssize_t n = write(fd, all.data + at, all.len - at);
        if (n <= 0)
            _exit(1);
        at += (size_t)n;
    }
}

// Bodies of requests here are shorter than a packet, and come with their heads.
_Noreturn static void serve(int listener) {
    int looks = 0;
    for (;;) {
        cleanup_close int fd = accept(listener, NULL, NULL);
        char head[4096];
        for (ssize_t n; (n = read(fd, head, sizeof head - 1)) > 0;) {
            head[n] = 0;
            answer(fd, head, &looks);
        }
    }
}

// Whoever waits for hours looks thousands of times.
static void a_wait_keeps_nothing(void **state) {
    char folder[] = "/tmp/acequia-verbs-XXXXXX", *words[] = {"resize", "d", "1", "--wait", "--json"};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct cli c = {.verb = &verb_cluster};
    assert_non_null(mkdtemp(folder));
    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 8), 0);
    pid_t pid = fork();
    if (pid == 0)
        serve(listener);
    setenv("ACEQUIA_HOST", at.sun_path, 1);
    assert_int_equal(options_parse(verb_cluster.options, 5, words, false, &c.options, &c.error), 0);
    c.arguments = c.options.arguments.at;
    c.count = (int)c.options.arguments.len;
    c.json = true;
    int status = verb_cluster.run(&c);
    size_t kept = c.arena.total;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(listener);
    unlink(at.sun_path);
    rmdir(folder);
    options_done(&c.options);
    arena_done(&c.arena);
    assert_int_equal(status, CLI_OK);
    assert_true(kept < 2 * RECORD_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(verbs_are_whole),
                                       cmocka_unit_test(a_wait_keeps_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
