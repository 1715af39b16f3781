// Owns the process: its order, becoming the user, one operation, its answers.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "files.h"

enum { ORDER_MAX = FILE_PIECE_MAX + (1 << 20), SIGN_MS = 1000 };

static void write_all(const void *data, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t n = write(STDOUT_FILENO, (const char *)data + at, len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(1);  // nobody waits for it any more
        at += (size_t)n;
    }
}

void files_send(struct files *f, enum message_type type, const void *body) {
    cleanup_buf struct buf b = {0};
    struct message m = {.type = type};
    memcpy(&m.body, &body, sizeof body);
    buf_fill(&b, 0, sizeof(uint32_t));
    message_encode(&m, &b);
    uint32_t len = (uint32_t)(b.len - sizeof len);
    memcpy(b.data, &len, sizeof len);
    write_all(b.data, b.len);
    f->sign_ms = clock_mono_ms();
}

void files_data(struct files *f, const void *data, size_t len) {
    struct message_stream m = {.data = {.data = data, .len = len}};
    files_send(f, MESSAGE_STREAM_DATA, &m);
}

void files_working(struct files *f) {
    struct file_result r = {.working = true};
    if (clock_mono_ms() - f->sign_ms >= SIGN_MS)
        files_send(f, MESSAGE_FILE_RESULT, &r);
}

static int read_order(struct arena *a, struct file_order *out, struct error *e) {
    cleanup_buf struct buf b = {0};
    for (;;) {
        char *to = buf_reserve(&b, FILES_BLOCK);
        ssize_t n = read(STDIN_FILENO, to, FILES_BLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || b.len > ORDER_MAX)
            return error_set(e, EIO, "the order cannot be read");
        if (n == 0)
            break;
        b.len += (size_t)n;
    }
    void *kept = arena_memdup(a, buf_str(&b), b.len);
    if (schema_decode(&file_order_schema, kept, b.len, a, out) < 0 || !out->request || !out->home)
        return error_set(e, EBADMSG, "the order cannot be read");
    return 0;
}

static int perform(struct files *f, struct file_result *r, struct error *e) {
    static int (*const operations[])(struct files *, struct file_result *, struct error *) = {
        [FILE_LIST] = files_list,     [FILE_READ] = files_read,         [FILE_WRITE] = files_write,
        [FILE_REMOVE] = files_remove, [FILE_MKDIR] = files_make_folder, [FILE_MOVE] = files_move,
        [FILE_COPY] = files_copy,     [FILE_ZIP] = files_zip,           [FILE_SPACE] = files_space};
    unsigned operation = f->request->operation;
    if (operation >= sizeof operations / sizeof *operations)
        return error_set(e, ENOTSUP, "this node's agent does not know what is asked; upgrade it");
    return operations[operation](f, r, e);
}

int main(void) {
    struct files f = {0};
    struct file_order order = {0};
    struct error e = {0};
    struct file_result r = {0};
    int rc = read_order(&f.arena, &order, &e);
    f.order = &order;
    f.request = order.request;
    if (rc == 0)
        rc = files_become(&order, &e);
    if (rc == 0)
        rc = perform(&f, &r, &e);
    bool streams = f.request && (f.request->operation == FILE_READ || f.request->operation == FILE_ZIP);
    if (rc < 0)
        r = (struct file_result){.error = e.code ? e.code : -rc, .text = e.text, .offset = r.offset};
    if (rc < 0 || !streams)
        files_send(&f, MESSAGE_FILE_RESULT, &r);
    struct message_stream end = {.eof = true};
    files_send(&f, MESSAGE_STREAM_END, &end);
    return 0;
}
