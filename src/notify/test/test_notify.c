// Unit tests of acequia-notify: what is accepted, the form of mails, signatures, retries, and that a hanging server does
// not hold up the others. Servers are threads of this test on loopback.
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../sender.h"
#include "base/clock.h"

static int parse(const char *line, struct delivery *d) {
    static struct arena a;
    struct error e = {0};
    arena_done(&a);
    a = (struct arena){0};
    return notify_delivery_parse(line, strlen(line), &a, d, &e);
}

static void hostile_addresses_are_refused(void **state) {
    struct error e = {0};
    static const char *const bad[] = {"",      "-oQ/tmp", "a b@c", "a@b\r\nRCPT TO:<x>", "a@", "@b",
                                      "a@b@c", "a>b@c",   NULL};
    for (int i = 0; bad[i]; i++)
        assert_int_equal(notify_mail_address_check(bad[i], &e), -EINVAL);
    assert_int_equal(notify_mail_address_check("ana.lopez+x@uni-example.org", &e), 0);
    assert_int_equal(notify_mail_address_check("root", &e), 0);
    static const char *const urls[] = {
        "ftp://a/",    "file:///etc/passwd", "https://",   "https://user@host/",
        "http://a b/", "https://a\\@b/",     "gopher://x", NULL};
    for (int i = 0; urls[i]; i++)
        assert_int_equal(notify_webhook_url_check(urls[i], &e), -EINVAL);
    assert_int_equal(notify_webhook_url_check("https://hooks.example.org/services/T0/B0", &e), 0);
}

static void lines_are_checked(void **state) {
    struct delivery d;
    assert_int_equal(
        parse("{\"id\":1,\"kind\":\"mail\",\"to\":\"a@b\",\"subject\":\"s\",\"text\":\"t\"}", &d), 0);
    assert_int_equal(
        parse("{\"id\":1,\"kind\":\"mail\",\"to\":\"a@b\",\"subject\":\"s\\nBcc: x\",\"text\":\"t\"}", &d),
        -EINVAL);
    assert_int_equal(parse("{\"id\":1,\"kind\":\"mail\",\"to\":\"a@b\",\"text\":\"t\"}", &d), -EINVAL);
    assert_int_equal(parse("{\"id\":1,\"kind\":\"webhook\",\"to\":\"https://h/x\"}", &d), -EINVAL);
    assert_true(parse("nonsense", &d) < 0);
}

static void mails_are_well_formed(void **state) {
    struct delivery d = {.id = 5,
                         .to = "a@b",
                         .subject = "Job 5 ended: \xc3\xa9t\xc3\xa9 and a subject that is longer than a word",
                         .text = "first\n.\nlast line = 100 %  \n\xc3\xa9"};
    cleanup_buf struct buf b = {0};
    notify_mail_compose(&d, "acequia@host", "host", 0, &b);
    const char *m = buf_str(&b);
    assert_non_null(strstr(m, "Date: Thu, 01 Jan 1970 00:00:00 +0000\r\n"));
    assert_non_null(strstr(m, "Subject: =?utf-8?B?"));
    assert_non_null(strstr(m, "\r\n\r\nfirst\r\n=2E\r\nlast line =3D 100 % =20\r\n=C3=A9\r\n"));
    for (const char *line = m, *end; (end = strstr(line, "\r\n")); line = end + 2)
        assert_true(end - line <= 78);
}

static void signatures_can_be_checked(void **state) {
    cleanup_buf struct buf b = {0};
    notify_webhook_signature("secret", 6, "{\"text\":\"hi\"}", 1700000000, &b);
    // printf '1700000000.{"text":"hi"}' | openssl dgst -sha256 -hmac secret
    assert_string_equal(buf_str(&b),
                        "t=1700000000,v1=3ad1ab8e3e2036926574b48bb349a6926291abb28309d44d18066d4f51de2112");
}

// --- a server that answers with the statuses it is given, one per connection; 0: never ---

struct http_server {
    int fd, port;
    const int *statuses;
    int served;
    pthread_t thread;
};

static void *serve(void *arg) {
    struct http_server *s = arg;
    int hung[8], count = 0;
    for (int i = 0; s->statuses[i] >= 0; i++) {
        char in[4096];
        int c = accept(s->fd, NULL, NULL);
        if (c < 0)
            break;
        if (s->statuses[i] == 0) {
            hung[count++] = c;
        } else {
            ssize_t n = read(c, in, sizeof in);
            if (n > 0)
                dprintf(c, "HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", s->statuses[i]);
            close(c);
        }
        __atomic_add_fetch(&s->served, 1, __ATOMIC_SEQ_CST);
    }
    while (count)
        close(hung[--count]);
    return NULL;
}

static void start_server(struct http_server *s, const int *statuses) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    *s = (struct http_server){.fd = socket(AF_INET, SOCK_STREAM, 0), .statuses = statuses};
    assert_int_equal(bind(s->fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->fd, 16), 0);
    getsockname(s->fd, (struct sockaddr *)&at, &len);
    s->port = ntohs(at.sin_port);
    pthread_create(&s->thread, NULL, serve, s);
}

static void stop_server(struct http_server *s) {
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
}

struct outcome_log {
    uint64_t delivered, failed;
    char text[512];
};

static void note(void *ctx, uint64_t id, const struct error *e) {
    struct outcome_log *o = ctx;
    if (!e)
        o->delivered |= 1u << id;
    else
        o->failed |= 1u << id;
    if (e)
        snprintf(o->text, sizeof o->text, "%s", e->text);
}

static void add_webhook_to(struct sender *s, uint64_t id, const char *host, int port) {
    char url[64];
    snprintf(url, sizeof url, "http://%s:%d/hook", host, port);
    notify_sender_add(s, &(struct delivery){.id = id, .kind = DELIVERY_WEBHOOK, .to = url, .body = "{}"});
}

static void add_webhook(struct sender *s, uint64_t id, int port) {
    add_webhook_to(s, id, "127.0.0.1", port);
}

static void passing_failures_are_tried_again(void **state) {
    static const int statuses[] = {503, 500, 200, 404, -1};
    struct http_server server;
    struct outcome_log log = {0};
    struct sender_config config = {.from = "a@b", .retry_ms = {0, 10, 10, 10}};
    struct sender *s = notify_sender_new(&config, note, &log);
    start_server(&server, statuses);
    add_webhook(s, 1, server.port);
    while (notify_sender_waiting(s))
        notify_sender_work(s, -1, 50);
    assert_int_equal(log.delivered, 1u << 1);
    add_webhook(s, 2, server.port);  // 404 is final
    while (notify_sender_waiting(s))
        notify_sender_work(s, -1, 50);
    assert_int_equal(log.failed, 1u << 2);
    assert_non_null(strstr(log.text, "status 404"));
    stop_server(&server);  // it counts after it has answered
    assert_int_equal(server.served, 4);
    notify_sender_free(s);
}

static void a_hanging_server_holds_up_nobody_else(void **state) {
    static const int never[] = {0, 0, 0, 0, -1}, fine[] = {200, 200, -1};
    struct http_server hung, good;
    struct outcome_log log = {0};
    struct sender_config config = {.from = "a@b", .retry_ms = {0, 10, 10, 10}};
    struct sender *s = notify_sender_new(&config, note, &log);
    start_server(&hung, never);
    start_server(&good, fine);
    for (uint64_t id = 1; id <= 10; id++)
        add_webhook(s, id, hung.port);
    add_webhook_to(s, 11, "localhost", good.port);
    add_webhook_to(s, 12, "localhost", good.port);
    while (log.delivered != (1u << 11 | 1u << 12))
        notify_sender_work(s, -1, 50);
    assert_int_equal(log.failed, 0);
    assert_int_equal(notify_sender_waiting(s), 10);
    notify_sender_free(s);
    stop_server(&hung);
    stop_server(&good);
}

// A port that accepts connections and never answers, on all addresses of loopback.
static int silent_port(int *listener) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof at;
    *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(*listener, 64), 0);
    assert_int_equal(getsockname(*listener, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

static void many_silent_ports_hold_up_nobody_else(void **state) {
    enum { PORTS = 6 };
    static const int fine[] = {200, -1};
    struct http_server good;
    struct outcome_log log = {0};
    struct sender_config config = {.from = "a@b", .retry_ms = {0, 10, 10, 10}};
    struct sender *s = notify_sender_new(&config, note, &log);
    int listeners[PORTS];
    start_server(&good, fine);
    for (int i = 0; i < PORTS; i++) {
        int port = silent_port(&listeners[i]);
        for (int k = 0; k < SENDER_PER_HOST; k++)
            add_webhook(s, 1, port);
    }
    add_webhook_to(s, 2, "localhost", good.port);
    while (log.delivered != 1u << 2)
        notify_sender_work(s, -1, 50);
    assert_int_equal(log.failed, 0);
    notify_sender_free(s);
    stop_server(&good);
    for (int i = 0; i < PORTS; i++)
        close(listeners[i]);
}

static void silent_hosts_leave_room_for_mails(void **state) {
    struct outcome_log log = {0};
    struct sender_config config = {.from = "a@b", .sendmail = "/bin/true", .retry_ms = {0, 10, 10, 10}};
    struct sender *s = notify_sender_new(&config, note, &log);
    int listener, port = silent_port(&listener);
    for (int i = 0; i < 2 * SENDER_PLACES; i++) {
        char host[16];
        snprintf(host, sizeof host, "127.0.0.%d", 2 + i);
        add_webhook_to(s, 1, host, port);
    }
    notify_sender_add(
        s, &(struct delivery){.id = 2, .kind = DELIVERY_MAIL, .to = "a@b", .subject = "s", .text = "t"});
    while (log.delivered != 1u << 2)
        notify_sender_work(s, -1, 50);
    assert_int_equal(log.failed, 0);
    notify_sender_free(s);
    close(listener);
}

static void sendmail_gets_the_message(void **state) {
    struct outcome_log log = {0};
    char script[] = "/tmp/acequia-sendmail-XXXXXX", copy[80];
    int fd = mkstemp(script);
    snprintf(copy, sizeof copy, "%s.out", script);
    dprintf(fd, "#!/bin/sh\necho \"$@\" >%s\ncat >>%s\n", copy, copy);
    fchmod(fd, 0700);
    close(fd);
    struct sender_config config = {.from = "a@b", .sendmail = script, .retry_ms = {0, 10, 10, 10}};
    struct sender *s = notify_sender_new(&config, note, &log);
    notify_sender_add(s, &(struct delivery){.id = 3, .to = "ana@x", .subject = "hello", .text = "text"});
    while (notify_sender_waiting(s))
        notify_sender_work(s, -1, 50);
    assert_int_equal(log.delivered, 1u << 3);
    char got[2048] = {0};
    FILE *f = fopen(copy, "r");
    assert_non_null(f);
    assert_true(fread(got, 1, sizeof got - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(got, "-i -f a@b -- ana@x\n"));
    assert_non_null(strstr(got, "Subject: hello\r\n"));
    unlink(script);
    unlink(copy);
    config.sendmail = "/does/not/exist";
    struct sender *missing = notify_sender_new(&config, note, &log);
    notify_sender_add(missing,
                      &(struct delivery){.id = 4, .to = "ana@x", .subject = "hello", .text = "text"});
    while (notify_sender_waiting(missing))
        notify_sender_work(missing, -1, 50);
    assert_int_equal(log.failed, 1u << 4);
    assert_non_null(strstr(log.text, "smtp_server"));
    notify_sender_free(missing);
    notify_sender_free(s);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);  // as the program does
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_addresses_are_refused),
        cmocka_unit_test(lines_are_checked),
        cmocka_unit_test(mails_are_well_formed),
        cmocka_unit_test(signatures_can_be_checked),
        cmocka_unit_test(passing_failures_are_tried_again),
        cmocka_unit_test(a_hanging_server_holds_up_nobody_else),
        cmocka_unit_test(many_silent_ports_hold_up_nobody_else),
        cmocka_unit_test(silent_hosts_leave_room_for_mails),
        cmocka_unit_test(sendmail_gets_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
