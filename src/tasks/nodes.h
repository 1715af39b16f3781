// The other nodes of a pool, as the head's process sees them: it hands the pool's orders to their processes, and what
// these report to the pool.
#pragma once
#include "peers.h"
#include "tasks/pool.h"
#include "workers.h"

// Of events, in the upper half of their data.
enum source { FROM_CONTROL, FROM_LISTENER, FROM_CONNECTION, FROM_OUTPUT, FROM_NODES, FROM_PEER };

struct nodes;

struct nodes *nodes_new(int epoll, const struct workers *own, struct tasks_pool *pool);  // NULL: said why
struct nodes *nodes_free(struct nodes *ns);
void nodes_accept(struct nodes *ns);
void nodes_event(struct nodes *ns, uint32_t number, uint32_t events);
int nodes_turn(struct nodes *ns, int64_t now_us);
bool nodes_key(uint8_t key[static LINK_KEY_BYTES]);                    // of the environment
uint32_t nodes_split_gpus(char *list, const char *names[static WORKERS_GPUS_MAX]);

bool nodes_has(const struct nodes *ns, uint32_t worker);
void nodes_start(struct nodes *ns, uint32_t node, uint32_t worker, uint32_t conn, const char *gpus);
int nodes_give(struct nodes *ns, uint32_t worker, const struct buf *packet);
void nodes_ask_back(struct nodes *ns, uint32_t worker);
void nodes_stop(struct nodes *ns, uint32_t worker, bool kill);
void nodes_output(struct nodes *ns, uint32_t worker, struct buf *out);
void nodes_send(struct nodes *ns, uint32_t conn, const struct buf *frames);
size_t nodes_unsent(const struct nodes *ns, uint32_t conn);
void nodes_drop(struct nodes *ns, uint32_t node, uint64_t at, uint64_t size);
void nodes_fetch(struct nodes *ns, uint32_t to, const struct peer_fetch *f, uint32_t from, uint64_t from_at);
