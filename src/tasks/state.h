// What the files of the pool's state share.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "tasks/pool.h"
#include "tasks/space.h"

enum {
    WORKERS_MAX = 1024,
    SHAPES_MAX = 64,
    PREFETCH_US = 2000,  // of work that a worker is given ahead
    PREFETCH_MAX = 64,
    ACTOR_PREFETCH = 32,
    CPU_MILLI_MIN = 10,    // what a task for no CPUs counts as, so that their number has a bound
    OUT_ENOUGH = 4 << 20,  // bytes a connection has not read, after which values wait
    PIECE_BYTES = 256 << 10,
    FILL_BYTES = 16 << 20,  // made be there in one turn
    ALLOC_PATIENCE_US = 30 * 1000 * 1000,
    IDLE_DROP_US = 2 * 1000 * 1000,  // free memory goes back after such a time without use
    FINISHED_KEPT = 1000,
    LIST_MAX = 10000,
    LIST_BYTES = 900 << 10,  // of one list, so that it is one frame
    ERROR_TEXT_KEPT = 2048,
    KEPT_MAX = 100 * 1000,  // tasks that are kept to make lost values again
    KEPT_CHAIN_MAX = 64,    // of these, one after the other
    MOVES_MAX = 3,          // tries to bring a value to a node
    NOTICE = 1 << 30,
};

struct blob {
    uint32_t refs, len;
    char data[];
};

enum object_state {
    OBJECT_PENDING,
    OBJECT_UNSEALED,
    OBJECT_INLINE,
    OBJECT_SHARED,
    OBJECT_FAILED,
    OBJECT_STATES
};

struct pool_task;
struct pool_actor;

// Where a value is, or will be when it has come.
struct value_place {
    uint32_t node;
    bool there;
    uint8_t tries;  // to bring it
    uint64_t at;
};

struct object {
    uint64_t id;
    uint32_t refs;
    uint32_t kept;  // by tasks that are kept to make another value again: the object is known, its value may be freed
    uint8_t state, error;
    bool unused;  // on the list of those to be freed
    bool again;   // its value was lost, and is being made again
    uint8_t chain;
    uint32_t allocator;   // the connection that writes to it
    uint32_t average_us;  // of a function: how long its tasks take
    struct blob *bytes;
    uint64_t size;
    VEC(struct value_place) places;  // in shared memory; the first is where it was made
    uint64_t *nested;
    uint32_t nnested;
    VEC(uint32_t) holders;            // connections
    VEC(uint32_t) wanted;             // connections that are to be told; with NOTICE: nothing is brought for them
    VEC(struct pool_task *) waiting;  // tasks that need it
    struct pool_task *task;           // that makes it
    struct pool_task *made_by;        // kept, to make it again
    struct pool_actor *actor;         // whose handle it is
};

struct pool_task {
    struct object *result, *function;
    struct object **uses;  // dependencies, then references in the arguments; each is held
    uint32_t nuses, ndependencies, missing;
    uint32_t cpu_milli, gpu_milli, retries, tries, submitter;
    uint8_t flags, state;
    bool cancelled, inner;  // inner: submitted by a task
    bool cancel, force;     // to be done when it is known whether it was begun
    bool kept;              // its uses are objects that are kept, and not held
    struct pool_actor *actor;
    struct pool_worker *worker;
    struct shape *shape;
    struct blob *arguments;
    char *name;
    int64_t since_us;
    struct pool_task *prev, *next;          // in its queue
    struct pool_task *all_prev, *all_next;  // of all that have not ended
};

enum task_state { TASK_WAITING, TASK_READY, TASK_GIVEN, TASK_STATES };

struct task_queue {
    struct pool_task *first, *last;
    uint32_t len;
};

struct shape {
    uint32_t cpu_milli, gpu_milli;
    struct task_queue ready;
    struct task_queue inner;  // goes before: whoever submitted them waits, and keeps a worker process
};

// A node of the pool. Number 0 is ours.
struct pool_node {
    uint32_t number, cpus, gpus, nworkers, workers_max;
    char *name;
    char **gpu_names;
    int64_t cpu_free;  // milli; may be negative when blocked tasks go on
    uint32_t *gpu_free;
    struct tasks_space space;
    VEC(struct pool_worker *) idle;
    VEC(struct pool_worker *) plain;  // neither of an actor nor for one task
    uint32_t turn;                    // of `plain`
    VEC(struct allocation) allocations;
    bool dirty;  // memory was used since free memory was last given back
    int64_t used_us;
};

struct pool_worker {
    uint32_t number;
    struct pool_node *node;
    bool asked_back;  // what it has not begun: the answer is to come
    uint32_t conn;  // UINT32_MAX: none
    struct task_queue given;
    uint32_t cpu_milli, gpu_milli;  // held
    uint64_t gpus;                  // which, a bit each
    bool blocked, single, stopping;
    struct pool_actor *actor;
    int64_t since_us;  // when the first of `given` began, as far as is known
};

struct pool_actor {
    struct object *handle;
    struct pool_task *maker;  // kept, to make it again
    struct task_queue calls;
    struct pool_worker *worker;
    bool ready, stopped;
    uint32_t restarts;
    uint64_t calls_done;
    char *name;
};

struct transfer {
    struct object *object;
    uint64_t at;
};

struct connection {
    uint32_t number, node;
    enum tasks_kind kind;
    bool shares, inside;
    bool draining;  // somebody goes through the two lists
    struct pool_worker *worker;
    VEC(uint64_t) later;  // values that wait until it has read
    VEC(struct transfer) transfers;
};

struct allocation {
    uint32_t conn;  // UINT32_MAX: a value that is to come from another node
    uint64_t id, size;
    int64_t until_us;
};

struct memory_fill {
    uint32_t conn;
    uint64_t id, offset, at, end;
};

struct finished {
    uint64_t id;
    char *name, *error, *output;
    uint32_t worker, micros, tries;
    bool failed;
};

struct tasks_pool {
    struct tasks_options o;
    const struct tasks_host *host;
    void *ctx;
    struct map objects, workers, connections, actors;
    VEC(struct shape *) shapes;
    struct pool_task *tasks;  // all that have not ended
    size_t ntasks;
    VEC(struct pool_node *) nodes;  // by number
    uint32_t next_worker, next_node;
    uint32_t nkept;
    uint64_t held_bytes;
    VEC(struct object *) settled;  // whose users are to be told
    VEC(struct object *) unused;   // to be freed
    bool working;                  // somebody goes through these two lists
    VEC(struct memory_fill) fills;
    struct finished finished[FINISHED_KEPT];
    uint64_t nfinished, nfailed, nretried, nagain, nmoved, moved_bytes;
    struct buf scratch;
    bool ending;
    int64_t now_us;
};

// object.c
struct blob *tasks_blob_new(struct tasks_pool *p, const void *data, size_t len);
void tasks_blob_unref(struct tasks_pool *p, struct blob *b);
struct object *tasks_object_new(struct tasks_pool *p, uint64_t id);
struct object *tasks_object_find(struct tasks_pool *p, uint64_t id);
void tasks_object_ref(struct object *o);
void tasks_object_unref(struct tasks_pool *p, struct object *o);
void tasks_object_hold(struct object *o, uint32_t conn);
void tasks_object_release(struct tasks_pool *p, struct object *o, uint32_t conn);
bool tasks_object_held(const struct object *o, uint32_t conn);
void tasks_object_nest(struct tasks_pool *p, struct object *o, const uint8_t *ids, uint32_t n);
void tasks_object_value(struct tasks_pool *p, struct object *o, const void *data, size_t len);
void tasks_object_shared(struct tasks_pool *p, struct object *o);
void tasks_object_fail(struct tasks_pool *p, struct object *o, enum tasks_error code, struct blob *bytes);
void tasks_object_failf(struct tasks_pool *p, struct object *o, enum tasks_error code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void tasks_object_unallocate(struct tasks_pool *p, struct object *o);
void tasks_object_send(struct tasks_pool *p, struct object *o, struct connection *c);
void tasks_object_work(struct tasks_pool *p);  // tells users of settled objects, frees unused ones
void tasks_objects_forget(struct tasks_pool *p, uint32_t conn);
void tasks_alloc(struct tasks_pool *p, struct connection *c, uint64_t id, uint64_t size);
void tasks_alloc_again(struct tasks_pool *p, struct pool_node *n);
void tasks_object_tell(struct tasks_pool *p, struct object *o);  // connections that want it
void tasks_object_undelivered(struct tasks_pool *p, struct object *o, uint32_t node, enum tasks_error code,
                              const char *text);
void tasks_object_want(struct object *o, uint32_t conn);
void tasks_object_unkeep(struct tasks_pool *p, struct object *o);
struct connection *tasks_connection(const struct tasks_pool *p, uint32_t conn);

// node.c
struct pool_node *tasks_node(const struct tasks_pool *p, uint32_t number);
void tasks_nodes_free(struct tasks_pool *p);
struct value_place *tasks_place(const struct object *o, uint32_t node);
bool tasks_place_add(struct tasks_pool *p, struct object *o, struct pool_node *n);  // false: no room now
bool tasks_object_there(const struct object *o);  // false: of a value in shared memory that was lost, or freed
void tasks_bring(struct tasks_pool *p, struct object *o, uint32_t node);
void tasks_keep(struct tasks_pool *p, struct pool_task *t);  // it has ended
void tasks_kept_forget(struct tasks_pool *p, struct object *o);
void tasks_again(struct tasks_pool *p, struct object *o);  // its value is made again, or it fails

// schedule.c
void tasks_start_again(struct tasks_pool *p, struct pool_task *t);
int tasks_submit(struct tasks_pool *p, struct connection *c, const struct tasks_submit *s);
int tasks_done(struct tasks_pool *p, struct connection *c, const struct tasks_done *d);
void tasks_settled(struct tasks_pool *p, struct pool_task *t, struct object *o);  // one of those it waits for
void tasks_cancel(struct tasks_pool *p, struct object *o, bool force);
void tasks_blocked(struct tasks_pool *p, struct pool_worker *w, bool yes);
void tasks_dispatch(struct tasks_pool *p);
void tasks_take_back(struct tasks_pool *p, struct pool_worker *w);
void tasks_actor_kill(struct tasks_pool *p, struct pool_actor *a);  // at once, and for good
void tasks_actor_unused(struct tasks_pool *p, struct pool_actor *a);
void tasks_task_free(struct tasks_pool *p, struct pool_task *t);
void tasks_actor_free(struct tasks_pool *p, struct pool_actor *a);

// list.c
void tasks_list(struct tasks_pool *p, struct connection *c, uint8_t what, uint64_t id, uint32_t limit);
