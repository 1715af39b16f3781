// Faults of simulated GPUs: by call, or from a file that people and tests edit.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "sim.h"

enum { FAULTS_FILE_MAX = 4096 };

void gpu_sim_fault(struct gpu_source *base, uint32_t index, enum gpu_fault fault, uint32_t value) {
    struct sim_source *s = (struct sim_source *)base;
    assert(index < s->count);
    struct sim_gpu *g = &s->gpus[index];
    switch (fault) {
    case GPU_FAULT_NONE:
        if (!g->faulty)
            break;
        g->ecc = 0;
        g->remap = g->lost = g->faulty = false;
        g->xid_count = 0;
        g->energy_mj = 0;  // as after a reset
        g->at_ms = s->now_ms;
        return;
    case GPU_FAULT_XID:
        if (g->xid_count < GPU_XIDS_MAX)
            g->xids[g->xid_count++] = value;
        break;
    case GPU_FAULT_ECC:
        g->ecc += value;
        break;
    case GPU_FAULT_REMAP:
        g->remap = true;
        break;
    case GPU_FAULT_LOST:
        g->lost = true;
        break;
    }
    g->faulty |= fault != GPU_FAULT_NONE;
}

// One line; what it does not understand is passed over, for the file is for tests and demos.
static void take_line(struct sim_source *s, char *line) {
    static const struct {
        const char *word;
        enum gpu_fault fault;
        bool value;
    } words[] = {{"xid", GPU_FAULT_XID, true},
                 {"ecc", GPU_FAULT_ECC, true},
                 {"remap", GPU_FAULT_REMAP, false},
                 {"lost", GPU_FAULT_LOST, false}};
    char *rest = line, *index_text = strsep(&rest, " "), *word = strsep(&rest, " "), *value_text = rest;
    uint32_t index, value = 0;
    if (!word || parse_u32(index_text, &index) < 0 || index >= s->count)
        return;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (streq(words[i].word, word) && (!words[i].value || (value_text && parse_u32(value_text, &value) == 0)))
            gpu_sim_fault(&s->source, index, words[i].fault, value);
}

void gpu_sim_faults_read(struct sim_source *s) {
    char text[FAULTS_FILE_MAX + 1];
    cleanup_close int fd = open(s->faults_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? 0 : read(fd, text, FAULTS_FILE_MAX);
    text[n > 0 ? n : 0] = 0;
    uint64_t hash = n > 0 ? hash_bytes(text, (size_t)n) : 0;
    if (hash == s->faults_hash)
        return;
    s->faults_hash = hash;
    for (uint32_t i = 0; i < s->count; i++)
        gpu_sim_fault(&s->source, i, GPU_FAULT_NONE, 0);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        take_line(s, line);
}
