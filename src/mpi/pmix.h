// A PMIx server inside the helper, by libpmix, which is loaded when a step asks for it. The library has threads of its
// own: what it asks for comes through a queue and is carried out by the helper's loop.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "mpi/pmi.h"

struct pmix_server;

struct pmix_host {
    // Data of the tasks here that take part, for those on the other nodes; answer pmix_server_collected.
    void (*collect)(void *ctx, const char *signature, const uint32_t *nodes, uint32_t count, const void *data,
                    size_t len, void *token);
    // What a rank on another node has put; answer pmix_server_told.
    void (*ask)(void *ctx, uint32_t rank, void *token);
    void (*answer)(void *ctx, uint64_t question, int32_t status, const void *data, size_t len);
    void (*joined)(void *ctx, uint32_t rank);
    void (*finished)(void *ctx, uint32_t rank);
    void (*abort)(void *ctx, uint32_t rank, int code, const char *text);
};

struct pmix_options {
    struct pmi_options step;
    uint32_t node;          // of this one among the step's
    const char *node_list;  // comma-separated names
    const char *folder;     // for its files, the user's own
    uint32_t job;
};

int pmix_server_open(const struct pmix_options *o, const struct pmix_host *host, void *ctx,
                     struct pmix_server **out, struct error *e);
struct pmix_server *pmix_server_close(struct pmix_server *s);
int pmix_server_fd(const struct pmix_server *s);  // readable: pmix_server_serve has something to do
void pmix_server_serve(struct pmix_server *s);
void pmix_server_environment(struct pmix_server *s, uint32_t rank, struct buf *out);
void pmix_server_collected(struct pmix_server *s, void *token, const void *data, size_t len);
void pmix_server_told(struct pmix_server *s, void *token, int32_t status, const void *data, size_t len);
void pmix_server_question(struct pmix_server *s, uint32_t rank, uint64_t question);  // of another node
