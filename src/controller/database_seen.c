// Read by people too: plain text.
#include "database_seen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "net/pki.h"

enum { SEEN_MAX = 8192 };

static const char *seen_file(const char *state, struct arena *a) {
    return arena_printf(a, "%s/database", state);
}

// Two lines: the address, and the number of the record.
int controller_database_seen(const char *state, struct arena *a, struct database_seen *out) {
    char *text = arena_alloc(a, SEEN_MAX);
    cleanup_close int fd = open(seen_file(state, a), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, SEEN_MAX - 1);
    if (n < 0)
        return -errno;
    text[n] = 0;
    char *second = strchr(text, '\n');
    if (!second)
        return -EBADMSG;
    *second++ = 0;
    second[strcspn(second, "\n")] = 0;
    out->place = text;
    return parse_u64(second, &out->seq);
}

int controller_database_note(const char *state, const struct database_seen *seen, struct error *e) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf text = {0};
    buf_addf(&text, "%s\n%llu\n", seen->place, (unsigned long long)seen->seq);
    return pki_write_file(seen_file(state, &a), text.data, text.len, 0600, e);
}

int controller_database_check(const char *state, uint64_t seq, struct error *e) {
    cleanup_arena struct arena a = {0};
    struct database_seen seen;
    if (controller_database_seen(state, &a, &seen) < 0 || seen.seq <= seq)
        return 0;
    if (!seq)
        return error_set(
            e, ENODATA,
            "the database is empty, and this controller has seen %llu records in it: put a backup in its "
            "place, or correct the address; to begin a new cluster, remove %s",
            (unsigned long long)seen.seq, seen_file(state, &a));
    log_warn("the database ends at record %llu, and this controller has seen record %llu: it is an older "
             "copy; what nodes "
             "run that it does not know is adopted",
             (unsigned long long)seq, (unsigned long long)seen.seq);
    return 0;
}
