// Graphs that allocate: their memory belongs to a store of the device, which grows when a graph is
// first uploaded or launched and only shrinks when trimmed. A graph's own allocations, summed, are
// the most it can add; what the store then holds is what is charged.
#include <stdlib.h>

#include "shim.h"

enum { NODES_MAX = 1 << 20, GRAPH_DEPTH_MAX = 8 };

static uint64_t graph_store_bytes(int ordinal) {
    uint64_t bytes = 0;
    CUresult r = REAL(cuDeviceGetGraphMemAttribute)(ordinal, CU_GRAPH_MEM_RESERVED_CURRENT, &bytes);
    return r == CUDA_SUCCESS ? bytes : 0;
}

static uint64_t node_bytes(CUgraphNode node, int *ordinal, int depth);

static uint64_t graph_bytes(CUgraph graph, int *ordinal, int depth) {
    size_t n = 0;
    uint64_t sum = 0;
    if (depth > GRAPH_DEPTH_MAX || REAL(cuGraphGetNodes)(graph, NULL, &n) != CUDA_SUCCESS || !n ||
        n > NODES_MAX)
        return 0;
    CUgraphNode *node = calloc(n, sizeof *node);
    if (!node)
        abort();
    if (REAL(cuGraphGetNodes)(graph, node, &n) == CUDA_SUCCESS)
        for (size_t i = 0; i < n; i++)
            sum += node_bytes(node[i], ordinal, depth);
    free(node);
    return sum;
}

static uint64_t node_bytes(CUgraphNode node, int *ordinal, int depth) {
    int type = -1;
    CUgraph child;
    struct CUmemAllocNodeParams alloc = {0};
    if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
        return 0;
    if (type == CU_NODE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
        return graph_bytes(child, ordinal, depth + 1);
    if (type != CU_NODE_MEM_ALLOC ||
        REAL(cuGraphMemAllocNodeGetParams)(node, &alloc) != CUDA_SUCCESS ||
        alloc.pool.location.type != CU_LOCATION_DEVICE)
        return 0;
    *ordinal = alloc.pool.location.id;
    uint64_t step = SHIM_POOL_STEP_BYTES;
    return (alloc.bytes + step - 1) / step * step;
}

static CUresult instantiated(CUresult r, CUgraphExec exec, CUgraph graph) {
    int ordinal = -1;
    if (r != CUDA_SUCCESS || !shim.enabled)
        return r;
    uint64_t bytes = graph_bytes(graph, &ordinal, 0);
    if (bytes && shim_device(ordinal)) {
        struct shim_table_entry item = {.key = (uintptr_t)exec, .bytes = bytes, .device = ordinal};
        pthread_mutex_lock(&shim.lock);
        shim_table_put(&shim.graphs, &item);
        atomic_store(&shim.graphs_used, true);
        pthread_mutex_unlock(&shim.lock);
    }
    return r;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                            size_t size) {
    CUresult r = REAL(cuGraphInstantiate)(exec, graph, node, log, size);
    return instantiated(r, r == CUDA_SUCCESS ? *exec : NULL, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                               size_t size) {
    CUresult r = REAL(cuGraphInstantiate_v2)(exec, graph, node, log, size);
    return instantiated(r, r == CUDA_SUCCESS ? *exec : NULL, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, uint64_t flags) {
    CUresult r = REAL(cuGraphInstantiateWithFlags)(exec, graph, flags);
    return instantiated(r, r == CUDA_SUCCESS ? *exec : NULL, graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      struct CUgraphInstantiateParams *p) {
    CUresult r = REAL(cuGraphInstantiateWithParams)(exec, graph, p);
    return instantiated(r, r == CUDA_SUCCESS ? *exec : NULL, graph);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           struct CUgraphInstantiateParams *p) {
    CUresult r = REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, p);
    return instantiated(r, r == CUDA_SUCCESS ? *exec : NULL, graph);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    struct shim_table_entry gone;
    CUresult r = REAL(cuGraphExecDestroy)(exec);
    if (r == CUDA_SUCCESS && shim.enabled) {
        pthread_mutex_lock(&shim.lock);
        shim_table_take(&shim.graphs, (uintptr_t)exec, &gone);
        pthread_mutex_unlock(&shim.lock);
    }
    return r;
}

// Sets the charge to what the store holds, `held` of it reserved already.
static void store_settle(struct shim_device *d, uint64_t held) {
    uint64_t holds = graph_store_bytes(d->ordinal);
    pthread_mutex_lock(&shim.lock);
    uint64_t have = d->graph_bytes + held;
    if (holds > have)
        ledger_charge(d->ledger, LEDGER_GRAPH, holds - have);
    else
        ledger_refund(d->ledger, LEDGER_GRAPH, have - holds);
    d->graph_bytes = holds;
    pthread_mutex_unlock(&shim.lock);
}

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
    CUresult r = REAL(cuDeviceGraphMemTrim)(ordinal);
    struct shim_device *d = r == CUDA_SUCCESS ? shim_device(ordinal) : NULL;
    if (d) {
        pthread_mutex_lock(&shim.lock);
        d->graph_generation++;
        pthread_mutex_unlock(&shim.lock);
        store_settle(d, 0);
    }
    return r;
}

// A graph launched before and not trimmed since has its memory; only then is nothing reserved.
struct hold graph_begin(CUgraphExec exec, CUresult *r) {
    struct hold h = {0};
    *r = CUDA_SUCCESS;
    if (!atomic_load_explicit(&shim.graphs_used, memory_order_relaxed))
        return h;
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *it = shim_table_find(&shim.graphs, (uintptr_t)exec), copy = {0};
    if (it)
        copy = *it;
    pthread_mutex_unlock(&shim.lock);
    if (!copy.key || copy.refs == shim.device[copy.device].graph_generation + 1)
        return h;
    struct shim_device *d = &shim.device[copy.device];
    *r = hold_take(&h, d, LEDGER_GRAPH, copy.bytes);
    if (*r != CUDA_SUCCESS && REAL(cuDeviceGraphMemTrim)(d->ordinal) == CUDA_SUCCESS) {
        store_settle(d, 0);
        *r = hold_take(&h, d, LEDGER_GRAPH, copy.bytes);
    }
    return h;
}

void graph_end(struct hold *h, CUgraphExec exec, CUresult r) {
    struct shim_device *d = h->device;
    if (!d)
        return;
    uint64_t held = (h->bytes + SHIM_BLOCK_BYTES - 1) / SHIM_BLOCK_BYTES * SHIM_BLOCK_BYTES;
    store_settle(d, held);
    pthread_mutex_lock(&shim.lock);
    struct shim_table_entry *it = shim_table_find(&shim.graphs, (uintptr_t)exec);
    if (it && r == CUDA_SUCCESS)
        it->refs = d->graph_generation + 1;
    pthread_mutex_unlock(&shim.lock);
    atomic_fetch_add(&d->changes, 1);
    atomic_fetch_sub(&d->busy, 1);
    h->device = NULL;
}

#define GRAPH_UPLOAD(name)                                \
    CUresult name(CUgraphExec exec, CUstream stream) {    \
        CUresult r;                                       \
        struct hold h = graph_begin(exec, &r);            \
        if (r != CUDA_SUCCESS)                            \
            return r;                                     \
        r = REAL(name)(exec, stream);                     \
        graph_end(&h, exec, r);                           \
        return r;                                         \
    }
GRAPH_UPLOAD(cuGraphUpload)
GRAPH_UPLOAD(cuGraphUpload_ptsz)
