// Owns opening the positions of a step's streams.
#include "launch/relay.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "launch/spool.h"

struct relay_page *launch_relay_map(int spool_fd, uint64_t job, uint32_t attempt, uint32_t step) {
    struct stat st;
    cleanup_close int fd = spool_relay_file(spool_fd, job, attempt, step, SPOOL_RELAY_PAGE, O_RDWR);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(struct relay_page))
        return NULL;
    struct relay_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return NULL;
    return page->magic == RELAY_MAGIC ? page : launch_relay_unmap(page);
}

struct relay_page *launch_relay_unmap(struct relay_page *page) {
    if (page)
        munmap(page, sizeof *page);
    return NULL;
}
