// acequia-notify: sends mails and webhooks for the controller, which starts it and writes one JSON object a line to its
// standard input (delivery.h). A process of its own, so that name look-ups, TLS and slow servers hold up nobody.
// Settings come as environment variables, secrets as paths of files.
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "sender.h"

enum { SECRET_BYTES_MAX = 4096, LOOP_MS = 1000 };

// The first line of a file; NULL when no file is named. Ends the program when it cannot be read.
static char *read_secret(const char *variable) {
    const char *path = getenv(variable);
    if (str_empty(path))
        return NULL;
    char *text = xcalloc(1, SECRET_BYTES_MAX + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, SECRET_BYTES_MAX);
    if (n < 0) {
        fprintf(stderr, "acequia-notify: cannot read %s: %s\n", path, strerror(errno));
        exit(1);
    }
    close(fd);
    text[strcspn(text, "\r\n")] = 0;
    return text;
}

static void answer(void *ctx, uint64_t id, const struct error *e) {
    cleanup_buf struct buf b = {0};
    struct json_writer w = {.out = &b};
    json_open(&w, '{');
    json_key(&w, "id");
    json_put_u64(&w, id);
    json_key(&w, "delivered");
    json_put_bool(&w, !e);
    if (e) {
        json_key(&w, "error");
        json_put_str(&w, e->text);
    }
    json_close(&w, '}');
    buf_addc(&b, '\n');
    for (size_t at = 0; at < b.len;) {
        ssize_t n = write(STDOUT_FILENO, b.data + at, b.len - at);
        if (n < 0 && errno != EINTR)
            exit(0);  // the controller is gone; the next one sends again
        at += n > 0 ? (size_t)n : 0;
    }
}

static void take_line(struct sender *s, const char *line, size_t len) {
    cleanup_arena struct arena a = {0};
    struct delivery d = {0};
    struct error e = {0};
    if (notify_delivery_parse(line, len, &a, &d, &e) < 0)
        answer(NULL, d.id, &e);
    else
        notify_sender_add(s, &d);
}

// False: the input has ended.
static bool read_lines(struct sender *s, struct buf *in) {
    char chunk[16384];
    ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (!n || in->len > DELIVERY_LINE_MAX)
        return false;
    buf_add(in, chunk, (size_t)n);
    size_t at = 0;
    for (char *end; (end = memchr(in->data + at, '\n', in->len - at)); at = (size_t)(end - in->data) + 1)
        take_line(s, in->data + at, (size_t)(end - in->data) - at);
    memmove(in->data, in->data + at, in->len - at);
    in->len -= at;
    return true;
}

int main(void) {
    struct sender_config config = {.from = getenv("ACEQUIA_NOTIFY_FROM"),
                                   .smtp = getenv("ACEQUIA_NOTIFY_SMTP"),
                                   .smtp_user = getenv("ACEQUIA_NOTIFY_SMTP_USER"),
                                   .sendmail = getenv("ACEQUIA_NOTIFY_SENDMAIL"),
                                   .ca_file = getenv("ACEQUIA_NOTIFY_CA_FILE"),
                                   .retry_ms = {0, 10000, 60000, 300000}};
    config.smtp_password = read_secret("ACEQUIA_NOTIFY_SMTP_PASSWORD_FILE");
    config.secret = read_secret("ACEQUIA_NOTIFY_SECRET_FILE");
    if (!config.from)
        config.from = "acequia@localhost";
    if (!config.sendmail)
        config.sendmail = "/usr/sbin/sendmail";
    struct buf in = {0};
    pid_t controller = getppid();
    bool open = true;
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct sender *s = notify_sender_new(&config, answer, NULL);
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    while (open || notify_sender_waiting(s)) {
        bool room = open && notify_sender_waiting(s) < SENDER_QUEUE_MAX;
        notify_sender_work(s, room ? STDIN_FILENO : -1, LOOP_MS);
        if (room)
            open = read_lines(s, &in);
        if (!open && getppid() != controller)
            break;  // it was killed, and the next one sends again what was not acknowledged
    }
    notify_sender_free(s);
    buf_done(&in);
    curl_global_cleanup();
    return 0;
}
