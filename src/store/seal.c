// The checksum at the end of a backup: a mark and the SHA-256 of all pages before it. It is shorter than a page, which
// SQLite takes for no page at all, so that releases that do not know it read such a file as they read any. The
// database's own checks and the checksums of records find damage in what a controller loads; this one finds it
// everywhere, in rows of history and in keys too.
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "sqlite_store.h"

enum { MARK_BYTES = 16, SUM_BYTES = 32, SEAL_BYTES = MARK_BYTES + SUM_BYTES, PIECE_BYTES = 1 << 20 };
enum { HEADER_BYTES = 18, PAGE_SIZE_AT = 16 };

static const char mark[MARK_BYTES + 1] = "ACEQUIA-BACKUP-1";
static const char sqlite_mark[] = "SQLite format 3";

static int failed(const char *file, struct error *e) {
    return error_set(e, errno ? errno : EIO, "%s: %s", file, strerror(errno ? errno : EIO));
}

// How long its pages are, all together.
static int pages_of(int fd, const char *file, off_t *pages, off_t *size, struct error *e) {
    unsigned char head[HEADER_BYTES];
    struct stat st;
    if (fstat(fd, &st) < 0)
        return failed(file, e);
    ssize_t n = S_ISREG(st.st_mode) ? pread(fd, head, sizeof head, 0) : 0;
    if (n < 0)
        return failed(file, e);
    if (n < HEADER_BYTES || memcmp(head, sqlite_mark, sizeof sqlite_mark) != 0)
        return error_set(e, EBADMSG, "%s is neither a backup nor a state database of Acequia", file);
    off_t page = head[PAGE_SIZE_AT] << 8 | head[PAGE_SIZE_AT + 1];
    page = page == 1 ? 65536 : page;
    if (page < 512)
        return error_set(e, EBADMSG, "%s is damaged; use another backup", file);
    *size = st.st_size;
    *pages = st.st_size - st.st_size % page;
    return 0;
}

static int sum_of(int fd, const char *file, off_t len, unsigned char out[static SUM_BYTES], struct error *e) {
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    cleanup_free char *piece = xmalloc(PIECE_BYTES);
    bool good = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;
    int r = good ? 0 : error_set(e, EIO, "no checksum can be made");
    for (off_t at = 0; r == 0 && at < len;) {
        size_t wanted = len - at < PIECE_BYTES ? (size_t)(len - at) : PIECE_BYTES;
        ssize_t n = pread(fd, piece, wanted, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            r = failed(file, e);
        else if (EVP_DigestUpdate(hash, piece, (size_t)n) != 1)
            r = error_set(e, EIO, "no checksum can be made");
        at += n > 0 ? n : 0;
    }
    if (r == 0 && EVP_DigestFinal_ex(hash, out, NULL) != 1)
        r = error_set(e, EIO, "no checksum can be made");
    EVP_MD_CTX_free(hash);
    return r;
}

int store_seal(const char *file, struct error *e) {
    unsigned char seal[SEAL_BYTES];
    off_t pages, size;
    cleanup_close int fd = open(file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return failed(file, e);
    int r = pages_of(fd, file, &pages, &size, e);
    memcpy(seal, mark, MARK_BYTES);
    if (r == 0)
        r = sum_of(fd, file, pages, seal + MARK_BYTES, e);
    if (r < 0)
        return r;
    errno = 0;
    if (ftruncate(fd, pages) < 0 || pwrite(fd, seal, sizeof seal, pages) != SEAL_BYTES || fsync(fd) < 0)
        return failed(file, e);
    return 0;
}

int store_seal_check(const char *file, struct error *e) {
    unsigned char found[SEAL_BYTES], sum[SUM_BYTES];
    off_t pages, size;
    cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return failed(file, e);
    int r = pages_of(fd, file, &pages, &size, e);
    if (r < 0 || size == pages)
        return r;  // of a release that made none, or the database of a state folder
    if (size - pages != SEAL_BYTES || pread(fd, found, sizeof found, pages) != SEAL_BYTES ||
        memcmp(found, mark, MARK_BYTES) != 0)
        return error_set(e, EBADMSG, "%s is incomplete or damaged; use another backup", file);
    r = sum_of(fd, file, pages, sum, e);
    if (r == 0 && memcmp(sum, found + MARK_BYTES, SUM_BYTES) != 0)
        r = error_set(e, EBADMSG, "%s is damaged: its checksum does not match; use another backup", file);
    return r;
}

int store_seal_remove(const char *file, struct error *e) {
    off_t pages, size;
    cleanup_close int fd = open(file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return failed(file, e);
    int r = pages_of(fd, file, &pages, &size, e);
    return r == 0 && size > pages && ftruncate(fd, pages) < 0 ? failed(file, e) : r;
}
