// How many bytes of texts (scripts, environments) each user's live jobs keep on the controller's disk. A text
// counts once for a user however many of their jobs need it, as it is stored once; it no longer counts when the
// last of them has ended.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "state.h"

struct text_use {
    uint64_t bytes;
    uint32_t refs;    // submissions
    const char *user;  // interned
    char key[];        // id of the text and user
};

static const char *key_of(const char *id, const char *user, struct buf *out) {
    buf_adds(out, id);
    buf_addc(out, ' ');
    buf_adds(out, user);
    return buf_str(out);
}

struct text_use *core_text_take(struct core *c, const char *user, const char *id, uint64_t bytes) {
    cleanup_buf struct buf key = {0};
    if (str_empty(id))
        return NULL;
    struct text_use *t = strmap_get(&c->texts, key_of(id, user, &key));
    if (!t) {
        t = xcalloc(1, sizeof *t + key.len + 1);
        memcpy(t->key, key.data, key.len + 1);
        t->user = user;
        t->bytes = bytes;
        strmap_put(&c->texts, t->key, t);
        core_user_count(c, user)->text_bytes += bytes;
    }
    t->refs++;
    return t;
}

void core_text_drop(struct core *c, struct text_use *t) {
    if (!t || --t->refs)
        return;
    core_user_count(c, t->user)->text_bytes -= t->bytes;
    strmap_remove(&c->texts, t->key);
    free(t);
}

static uint64_t new_bytes(const struct core *c, const struct spec *s, const char *id, uint64_t bytes) {
    cleanup_buf struct buf key = {0};
    return str_empty(id) || strmap_get(&c->texts, key_of(id, s->user, &key)) ? 0 : bytes;
}

static const char *mebibytes(uint64_t bytes, char out[static 24]) {
    snprintf(out, 24, "%.1f MiB", (double)bytes / (1 << 20));
    return out;
}

int core_texts_check(struct core *c, const struct spec *s, struct error *e) {
    uint64_t used = core_user_count(c, s->user)->text_bytes, max = c->config.max_text_bytes_per_user;
    uint64_t more = new_bytes(c, s, s->script_id, s->script_bytes) +
                    new_bytes(c, s, s->environment_id, s->environment_bytes) +
                    new_bytes(c, s, s->upload_id, s->upload_bytes);
    char a[24], b[24], m[24];
    if (!more || used + more <= max)
        return 0;
    return error_set(e, EAGAIN,
                     "the scripts, folders and environments of %s's pending and running jobs take %s and this job's %s "
                     "more; at most %s are allowed (max_texts_per_user). Submit the same script for all of them or as "
                     "an array, put what is long into files, or wait until some have ended",
                     s->user, mebibytes(used, a), mebibytes(more, b), mebibytes(max, m));
}

static const struct text_use *of_user(const struct core *c, size_t *it, const char *user) {
    void *t;
    while (strmap_next(&c->texts, it, NULL, &t))
        if (((const struct text_use *)t)->user == user)
            return t;
    return NULL;
}

bool core_texts_add_up(const struct core *c) {
    size_t it = 0, texts = 0;
    const char *user;
    void *count;
    while (strmap_next(&c->user_jobs, &it, &user, &count)) {
        uint64_t bytes = 0;
        const struct text_use *t;
        for (size_t at = 0; (t = of_user(c, &at, user)) && t->refs; texts++)
            bytes += t->bytes;
        if (bytes != ((const struct core_user *)count)->text_bytes)
            return false;
    }
    return texts == c->texts.len;
}
