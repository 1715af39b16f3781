// Owns the memory layout of allocations: the node parts, then all their GPUs, in one block.
#include <string.h>

#include "internal.h"

struct alloc *alloc_new(uint32_t nodes, uint32_t gpus) {
    size_t head = sizeof(struct alloc) + nodes * sizeof(struct alloc_node);
    struct alloc *a = xcalloc(1, head + gpus * sizeof(struct alloc_gpu));
    a->node_count = nodes;
    return a;
}

struct alloc_gpu *alloc_gpus(struct alloc *a) {
    return (struct alloc_gpu *)(void *)&a->nodes[a->node_count];
}

struct alloc *alloc_copy(const struct alloc *a) {
    if (!a)
        return NULL;
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < a->node_count; i++)
        gpus += a->nodes[i].gpu_count;
    struct alloc *c = alloc_new(a->node_count, gpus);
    struct alloc_gpu *next = alloc_gpus(c);
    for (uint32_t i = 0; i < a->node_count; i++) {
        c->nodes[i] = a->nodes[i];
        c->nodes[i].gpus = next;
        if (a->nodes[i].gpu_count)
            memcpy(next, a->nodes[i].gpus, a->nodes[i].gpu_count * sizeof *next);
        next += a->nodes[i].gpu_count;
    }
    return c;
}

void alloc_free(struct alloc *a) {
    free(a);
}

uint64_t alloc_gpu_milli(const struct alloc *a) {
    uint64_t sum = 0;
    for (uint32_t i = 0; a && i < a->node_count; i++)
        for (uint32_t g = 0; g < a->nodes[i].gpu_count; g++)
            sum += a->nodes[i].gpus[g].milli;
    return sum;
}
