// Owns the connection: waiting, positions of input and output, signs of life, and connecting again.
#include "cli/client/live.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

enum {
    INPUT_HEAD = 9,             // channel and position
    OUTPUT_HEAD = 17,           // channel, rank, number of the stream, position
    PLAIN_HEAD = 5,             // channel and rank: output without positions
    INPUT_WINDOW = 256 * 1024,  // input that was sent and may have to be sent again
    ACK_BYTES = 512 * 1024,     // output is acknowledged this often
    STREAMS_MAX = 1 << 20,
    SILENT_MS = 40 * 1000,  // then the connection counts as dead
    RECONNECT_MS = 200,
    RECONNECT_NOTE_MS = 5000,
};

int client_live_send(struct client_live *l, const char *text) {
    return http_client_ws_send(l->http, WS_TEXT, text, strlen(text));
}

int client_live_send_size(struct client_live *l) {
    char text[64];
    int rows, columns;
    terminal_size(&rows, &columns);
    snprintf(text, sizeof text, "{\"resize\":[%d,%d]}", rows, columns);
    return client_live_send(l, text);
}

// A connection may be half open: the other side is gone and could not say so.
static int keep_alive(struct client_live *l, int64_t now_ms) {
    if (!l->placed || !l->http)
        return 0;
    if (now_ms - l->heard_ms > SILENT_MS)
        return -EPIPE;
    if (now_ms - l->heard_ms < LIVE_PING_MS || now_ms - l->pinged_ms < LIVE_PING_MS)
        return 0;
    l->pinged_ms = now_ms;
    return client_live_send(l, "{\"ping\":true}");
}

// A pipe that can be written to takes PIPE_BUF bytes without blocking. A cut that is noticed here is dealt with when
// all is written: its position counts as shown.
int client_live_write(struct client_live *l, int fd, const char *p, size_t n) {
    while (fd >= 0 && n) {
        struct pollfd w = {.fd = fd, .events = POLLOUT};
        if (poll(&w, 1, LIVE_PING_MS) == 0) {
            l->heard_ms = clock_mono_ms() - LIVE_PING_MS;  // nothing was read meanwhile
            keep_alive(l, clock_mono_ms());
            continue;
        }
        ssize_t put = write(fd, p, n < PIPE_BUF ? n : PIPE_BUF);
        if (put < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (put > 0) {
            p += put;
            n -= (size_t)put;
        }
    }
    return 0;
}

// --- output ---

static uint64_t number_at(const char *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static void put_list(const struct client_live *l, struct buf *out) {
    for (uint32_t i = 0; i < l->streams.len; i++)
        buf_addf(out, "%s%llu", i ? "," : "", (unsigned long long)l->streams.at[i].at);
}

static int send_acks(struct client_live *l) {
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "{\"ack\":[");
    put_list(l, &b);
    buf_adds(&b, "]}");
    l->unacked = 0;
    return client_live_send(l, buf_str(&b));
}

void client_live_positions(const struct client_live *l, struct buf *out) {
    buf_adds(out, "\"resume\":true,\"from\":[");
    put_list(l, out);
    buf_adds(out, "]");
    if (l->epoch)
        buf_addf(out, ",\"epoch\":%llu", (unsigned long long)l->epoch);
    if (l->attempt)
        buf_addf(out, ",\"attempt\":%u", l->attempt);
}

static int bad_message(struct client_live *l) {
    return error_set(&l->cli->error, EPROTO,
                     "the controller sent a message that this version does not understand");
}

static int take_output(struct client_live *l, const char *data, size_t len) {
    if (len >= PLAIN_HEAD && (data[0] == 1 || data[0] == 2))
        return l->ops->output(l, data[0], (uint32_t)number_at(data + 1, 4), 0, 0, data + PLAIN_HEAD,
                              len - PLAIN_HEAD);
    if (len < OUTPUT_HEAD || (data[0] != 5 && data[0] != 6))
        return 0;
    uint32_t rank = (uint32_t)number_at(data + 1, 4), number = (uint32_t)number_at(data + 5, 4);
    uint64_t at = number_at(data + 9, 8);
    if (number >= STREAMS_MAX)
        return bad_message(l);
    while (l->streams.len <= number)
        vec_push(&l->streams, (struct client_live_stream){0});
    if (at <= l->streams.at[number].at)
        return 0;
    int r = l->ops->output(l, data[0] - 4, rank, number, at, data + OUTPUT_HEAD, len - OUTPUT_HEAD);
    if (r < 0)
        return r;
    l->streams.at[number].at = at;
    l->streams.at[number].bytes += len - OUTPUT_HEAD;
    l->unacked += len;
    return l->unacked >= ACK_BYTES && !l->done ? send_acks(l) : 0;
}

// --- input ---

static int send_input(struct client_live *l, uint64_t offset, const char *data, size_t len) {
    static char piece[LIVE_CHUNK + INPUT_HEAD];
    if (!l->placed) {
        piece[0] = 0;
        memcpy(piece + 1, data, len);
        return http_client_ws_send(l->http, WS_BINARY, piece, len + 1);
    }
    piece[0] = 7;
    for (int i = 0; i < 8; i++)
        piece[1 + i] = (char)(offset >> (8 * i));
    memcpy(piece + INPUT_HEAD, data, len);
    return http_client_ws_send(l->http, WS_BINARY, piece, len + INPUT_HEAD);
}

// What has arrived is forgotten; after a new connection, here or of a node, the rest is sent again.
static int take_position(struct client_live *l, const struct json *j) {
    bool again = json_get(j, "input_from") != NULL;
    uint64_t at = (uint64_t)json_i64(j, again ? "input_from" : "input_at", 0);
    int r = 0;
    if (json_true(j, "input_closed")) {
        l->input_open = l->locating = false;
        return 0;
    }
    if (at > l->kept_at && at <= l->kept_at + l->kept.len) {
        buf_drop(&l->kept, (size_t)(at - l->kept_at));
        l->kept_at = at;
    }
    if (!again)
        return 0;
    l->locating = false;
    for (size_t from = at > l->kept_at ? (size_t)(at - l->kept_at) : 0; r == 0 && from < l->kept.len;
         from += LIVE_CHUNK) {
        size_t n = l->kept.len - from < LIVE_CHUNK ? l->kept.len - from : LIVE_CHUNK;
        r = send_input(l, l->kept_at + from, l->kept.data + from, n);
    }
    return r == 0 && l->input_ended ? send_input(l, l->kept_at + l->kept.len, "", 0) : r;
}

static int forward_input(struct client_live *l) {
    static char piece[LIVE_CHUNK];
    ssize_t n = read(STDIN_FILENO, piece, LIVE_CHUNK);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0) {
        l->input_open = false;
        l->input_ended = true;
        n = 0;
    }
    uint64_t at = l->kept_at + l->kept.len;
    if (l->placed)
        buf_add(&l->kept, piece, (size_t)n);
    return send_input(l, at, piece, (size_t)n);
}

// --- the loop ---

static int take_text(struct client_live *l, const char *data, size_t len) {
    cleanup_arena struct arena a = {0};
    struct json *j;
    if (json_parse(data, len, &a, &j, NULL) < 0 || j->type != JSON_OBJECT)
        return bad_message(l);
    bool position = json_get(j, "input_at") || json_get(j, "input_from");
    return position ? take_position(l, j) : l->ops->text(l, j);
}

static int take_messages(struct client_live *l) {
    do {
        struct ws_event event;
        int r = http_client_ws_recv(l->http, &event, 0);
        if (r <= 0)
            return r;
        l->heard_ms = clock_mono_ms();
        if (event.type == WS_CLOSE)
            return l->ops->closed(l);
        r = event.type == WS_BINARY ? take_output(l, event.data, event.len)
                                    : take_text(l, event.data, event.len);
        if (r < 0)
            return r;
    } while (!l->done && http_client_ws_buffered(l->http));
    return 0;
}

static int take_signal(struct client_live *l) {
    struct signalfd_siginfo info;
    return read(l->signals, &info, sizeof info) == (ssize_t)sizeof info ? l->ops->signal(l, &info) : 0;
}

static int loop(struct client_live *l) {
    while (!l->done) {
        // Input is read only as far as it can be kept for a repeat: after a cut the other side says where it stands.
        bool reads = l->input_open && !l->locating && l->kept.len < INPUT_WINDOW;
        struct pollfd fds[] = {
            {.fd = http_client_fd(l->http), .events = POLLIN},
            {.fd = l->signals, .events = POLLIN},
            {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN},
        };
        // What was read from the socket already is not seen by poll.
        bool buffered = http_client_ws_buffered(l->http);
        int n = poll(fds, 3, buffered ? 0 : l->ops->wait_ms(l));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (buffered || (n > 0 && fds[0].revents))
            l->heard_ms = clock_mono_ms();
        int r = keep_alive(l, clock_mono_ms());
        // Signals before messages: Ctrl-C works while output floods in.
        if (r == 0 && n > 0 && fds[1].revents)
            r = take_signal(l);
        if (r == 0 && !l->done && (buffered || (n > 0 && fds[0].revents)))
            r = take_messages(l);
        if (r == 0 && !l->done && n > 0 && fds[2].revents)
            r = forward_input(l);
        if (r == 0 && !l->done)
            r = l->ops->turn(l, n == 0 && !buffered);
        if (r < 0)
            return r;
    }
    return 0;
}

// --- connections ---

static bool is_cut(int r) {
    return r == -EPIPE || r == -ECONNRESET || r == -ECONNREFUSED || r == -ETIMEDOUT || r == -EAGAIN ||
           r == -ENOTCONN || r == -ECONNABORTED || r == -EHOSTUNREACH || r == -ENETUNREACH;
}

static int connect_once(struct client_live *l, bool again) {
    cleanup_buf struct buf target = {0}, first = {0};
    int r = l->client ? 0 : client_open(l->cli, &l->client);
    l->ops->request(l, again, &target, &first);
    if (r == 0)
        r = client_socket(l->client, buf_str(&target), &l->http);
    if (r == 0 && first.len)
        r = http_client_ws_send(l->http, WS_TEXT, first.data, first.len);
    l->heard_ms = clock_mono_ms();
    l->locating = l->placed;
    return r == 0 ? l->ops->connected(l, again) : r;
}

static bool is_interrupted(struct client_live *l, int timeout_ms) {
    bool heeds = l->ops->heeds_signals(l);
    struct pollfd p = {.fd = heeds ? l->signals : -1, .events = POLLIN};
    struct signalfd_siginfo info;
    return poll(&p, 1, timeout_ms) > 0 && read(l->signals, &info, sizeof info) == (ssize_t)sizeof info &&
           (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP ||
            info.ssi_signo == SIGQUIT);
}

// The controller is away, or the connection was cut: what runs goes on meanwhile.
static int reconnect(struct client_live *l) {
    int64_t lost_ms = clock_mono_ms();
    bool told = false;
    for (int pause_ms = 0;; pause_ms = RECONNECT_MS) {
        if (is_interrupted(l, pause_ms))
            return error_set(&l->cli->error, EINTR, "interrupted while the controller was away");
        l->client = client_free(l->client);
        l->http = NULL;
        l->cli->error.code = 0;
        int r = connect_once(l, true);
        if (r == 0)
            break;
        if (!is_cut(r))
            return r;
        if (!told && clock_mono_ms() - lost_ms > RECONNECT_NOTE_MS) {
            told = true;
            l->ops->waits(l);
        }
    }
    l->cli->error.code = 0;  // of attempts that failed meanwhile
    return 0;
}

int client_live_run(struct client_live *l) {
    int r = connect_once(l, false);
    if (r == 0 && l->pty && isatty(STDIN_FILENO))
        terminal_raw_begin(&l->raw, STDIN_FILENO);
    while (r == 0 && !l->done) {
        l->cli->error.code = 0;
        r = loop(l);
        if (r < 0 && !l->done && l->placed && is_cut(r) && (!l->cli->error.code || r == -EAGAIN))
            r = reconnect(l);
    }
    terminal_raw_end(&l->raw);
    return r;
}

void client_live_done(struct client_live *l) {
    buf_done(&l->kept);
    vec_done(&l->streams);
    if (l->signals >= 0)
        close(l->signals);
}
