// Owns the processes of small programs: starts them, writes the question, gathers the answer, ends the slow ones.
#include "helper_process.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller.h"
#include "model/paths.h"

struct helper {
    struct controller *controller;
    helper_done done;
    void *arg;
    struct buf input, output;
    char piece[16384];
    int status;
    bool exited, output_ended;
    uv_process_t process;
    uv_pipe_t in, out;
    uv_timer_t timer;
    uv_write_t write;
    unsigned handles;
};

static void wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

static void helper_free(struct helper *h) {
    struct controller *c = h->controller;
    for (uint32_t i = 0; i < c->helpers.len; i++)
        if (c->helpers.at[i] == h) {
            vec_remove_swap(&c->helpers, i);
            break;
        }
    wipe(&h->input);
    wipe(&h->output);
    explicit_bzero(h->piece, sizeof h->piece);
    free(h);
}

static void on_closed(uv_handle_t *handle) {
    struct helper *h = handle->data;
    if (--h->handles == 0)
        helper_free(h);
}

static void close_handles(struct helper *h) {
    uv_handle_t *const handles[] = {(uv_handle_t *)&h->process, (uv_handle_t *)&h->in, (uv_handle_t *)&h->out,
                                    (uv_handle_t *)&h->timer};
    for (int i = 0; i < 4; i++)
        if (!uv_is_closing(handles[i]))
            uv_close(handles[i], on_closed);
}

// Its end and the end of its output come in any order.
static void finish_if_over(struct helper *h) {
    if (!h->exited || !h->output_ended || uv_is_closing((uv_handle_t *)&h->process))
        return;
    h->done(h->arg, h->status, &h->output);
    close_handles(h);
}

static void on_exit_helper(uv_process_t *p, int64_t status, int signal) {
    struct helper *h = p->data;
    h->exited = true;
    if (h->status == 0)
        h->status = signal ? -1 : (int)status;
    finish_if_over(h);
}

// What it left running may hold its output open: nobody waits for that.
static void end_it(struct helper *h) {
    h->status = -1;
    h->output_ended = true;
    uv_read_stop((uv_stream_t *)&h->out);
    if (!h->exited)
        uv_process_kill(&h->process, SIGKILL);
    finish_if_over(h);
}

static void on_late(uv_timer_t *t) {
    end_it(t->data);
}

static void give_piece(uv_handle_t *handle, size_t size, uv_buf_t *out) {
    struct helper *h = handle->data;
    *out = uv_buf_init(h->piece, sizeof h->piece);
}

static void on_output(uv_stream_t *s, ssize_t n, const uv_buf_t *data) {
    struct helper *h = s->data;
    if (n > 0 && h->output.len + (size_t)n <= HELPER_OUTPUT_MAX)
        buf_add(&h->output, data->base, (size_t)n);
    else if (n > 0)
        end_it(h);
    if (n >= 0)
        return;
    uv_read_stop(s);
    h->output_ended = true;
    finish_if_over(h);
}

// It reads to the end of its input.
static void on_written(uv_write_t *w, int status) {
    struct helper *h = w->handle->data;
    wipe(&h->input);
    if (!uv_is_closing((uv_handle_t *)&h->in))
        uv_close((uv_handle_t *)&h->in, on_closed);
}

static int start(struct helper *h, const char *program, const char *role, struct error *e) {
    struct controller *c = h->controller;
    const char *const args[] = {program, role, NULL}, *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                                                                      NULL};
    uv_pipe_init(&c->loop, &h->in, 0);
    uv_pipe_init(&c->loop, &h->out, 0);
    uv_timer_init(&c->loop, &h->timer);
    h->in.data = h->out.data = h->timer.data = h->process.data = h;
    h->handles = 4;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&h->in},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&h->out},
        {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t o = {.file = program,
                              .args = (char **)(uintptr_t)args,
                              .env = (char **)(uintptr_t)env,
                              .exit_cb = on_exit_helper,
                              .stdio_count = 3,
                              .stdio = stdio};
    int r = uv_spawn(&c->loop, &h->process, &o);
    if (r == 0)
        return 0;
    close_handles(h);
    return error_set(e, EIO, "cannot start %s: %s", program, uv_strerror(r));
}

int helper_ask(struct controller *c, struct helper_question *q, struct error *e) {
    cleanup_arena struct arena a = {0};
    const char *program = paths_program(&a, NULL, q->module, q->program);
    int r = 0;
    if (c->helpers.len >= HELPERS_MAX)
        r = error_set(e, EAGAIN, "too many logins at once; try again in a moment");
    else if (!program)
        r = error_set(e, ENOTSUP, "the program %s is not installed beside acequiad", q->program);
    if (r < 0) {
        wipe(&q->input);
        return r;
    }
    struct helper *h = xcalloc(1, sizeof *h);
    *h = (struct helper){.controller = c, .done = q->done, .arg = q->arg, .input = q->input};
    q->input = (struct buf){0};
    vec_push(&c->helpers, h);
    if ((r = start(h, program, q->role, e)) < 0)
        return r;
    uv_timer_start(&h->timer, on_late, q->limit_ms, 0);
    uv_read_start((uv_stream_t *)&h->out, give_piece, on_output);
    uv_buf_t data = uv_buf_init(h->input.data, (unsigned)h->input.len);
    uv_write(&h->write, (uv_stream_t *)&h->in, &data, 1, on_written);
    return 0;
}

void helpers_free(struct controller *c) {
    while (c->helpers.len)
        helper_free(c->helpers.at[0]);
    vec_done(&c->helpers);
}
