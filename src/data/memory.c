// See the header.
#include "memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int data_memory_init(struct data_memory *m, int fd, uint64_t size, struct error *e) {
    *m = (struct data_memory){.fd = fd < 0 ? memfd_create("acequia-data", MFD_CLOEXEC) : fd};
    if (m->fd < 0 || ftruncate(m->fd, (off_t)size) < 0)
        return error_set(e, errno, "no shared memory of %llu bytes: %s", (unsigned long long)size, strerror(errno));
    m->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->at == MAP_FAILED)
        return error_set(e, errno, "shared memory of %llu bytes cannot be mapped: %s",
                         (unsigned long long)size, strerror(errno));
    m->size = size;
    m->inputs_max = size / 2;
    tasks_space_init(&m->space, size);
    return 0;
}

void data_memory_done(struct data_memory *m) {
    if (m->at)
        munmap(m->at, m->size);
    if (m->fd >= 0)
        close(m->fd);
    tasks_space_done(&m->space);
}

bool data_memory_take(struct data_memory *m, uint64_t size, bool input, uint64_t *at) {
    uint64_t rounded = tasks_space_rounded(size);
    // One input is always let in: else a large one would wait for ever.
    if (input && m->inputs && m->inputs + rounded > m->inputs_max)
        return false;
    if (!tasks_space_take(&m->space, size, at))
        return false;
    if (input)
        m->inputs += rounded;
    if (m->space.used > m->peak)
        m->peak = m->space.used;
    return true;
}

void data_memory_give(struct data_memory *m, uint64_t at, uint64_t size, bool input) {
    tasks_space_give(&m->space, at, size);
    if (input)
        m->inputs -= tasks_space_rounded(size);
}

uint64_t data_texts_size(const char *const *texts, const size_t *lens, uint64_t count) {
    uint64_t n = (count + 1) * sizeof(uint64_t);
    for (uint64_t i = 0; i < count; i++)
        n += lens ? lens[i] : strlen(texts[i]);
    return (n + 7) / 8 * 8;
}

void data_texts_write(struct data_memory *m, uint64_t at, const char *const *texts, const size_t *lens, uint64_t count,
                      struct data_column *c) {
    c->offsets = at;
    c->values = at + (count + 1) * sizeof(uint64_t);
    uint64_t end = 0;
    for (uint64_t i = 0; i <= count; i++) {
        memcpy(m->at + c->offsets + i * sizeof end, &end, sizeof end);
        if (i == count)
            break;
        size_t n = lens ? lens[i] : strlen(texts[i]);
        memcpy(m->at + c->values + end, texts[i], n);
        end += n;
    }
    c->size = end;
}
