// The insides of a throttle, shared by throttle.c (letting launches through), throttle_barrier.c (what may run now),
// throttle_thread.c (the thread that watches) and throttle_meter.c (measuring). Launches on a stream are grouped into
// segments of about a millisecond, with an event at the end of each. A segment that may not run yet
// has a barrier before it: the GPU waits there, while the program goes on filling the queue.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "throttle.h"
#include "shim.h"

enum {
    THROTTLE_KERNELS = 4096, // kinds of work whose duration is remembered
    THROTTLE_WAYS = 4,       // places for one kind, all in one cache line
    THROTTLE_LANES = 32,
    THROTTLE_SEGMENTS = 96,
    THROTTLE_SEGMENT_LAUNCHES = 256,
    THROTTLE_SEGMENT_NS = 1000 * 1000,
    THROTTLE_UNKNOWN_NS = 3 * 1000 * 1000, // assumed of work never measured
    THROTTLE_AHEAD_NS = 25 * 1000 * 1000,  // work a program may have launched and not seen finished
    THROTTLE_AHEAD_LAUNCHES = 512,         // launches behind barriers: the driver's queue holds a thousand
    THROTTLE_ROOM = 16,           // launches that go on without a look around
    THROTTLE_ROOM_NS = 100 * 1000, // up to so much work
    THROTTLE_TRUST = 64, // launches for which the thread's context is taken to be what it was
    THROTTLE_STALL_NS = 500 * 1000,
    THROTTLE_QUIET_NS = 300 * 1000, // no launch for so long: the segment's end is marked
    THROTTLE_KEPT_UP_NS = 30 * 1000, // done so soon after its last launch, the GPU waited for launches
    THROTTLE_STUCK_NS = 250 * 1000 * 1000, // work waits on something only this program can do
    BARRIER_LANES = 6, // streams with barriers: the GPU has few queues, and waiting ones block others
    BARRIER_HANDOVER_NS = 60 * 1000, // what it takes to wake the next job
    BARRIER_OVERDUE_NS = 40 * 1000 * 1000,
    BARRIER_SURE = 4, // estimates that held before one is relied on
    BARRIER_FLIGHT_NS = 2 * 1000 * 1000, // what may be on its way where others come and go
    BARRIER_COMPANY_NS = 10 * 1000 * 1000,
    BARRIER_NAP_NS = 20 * 1000,
    BARRIER_LOOK_NS = 1000 * 1000,
    BARRIER_TURN_NS = 200 * 1000,
};

// The GPU idles between the launches of a program that cannot keep up with it. That is not the
// job's use of the GPU: such a segment is charged as what its work takes at its best, but never
// less than this part of the time.
#define THROTTLE_STARVED_MIN 0.6

struct kernel {
    uint64_t key;
    float ns;
    unsigned seen;
};

struct launch {
    unsigned kernel;
    float ns; // as estimated when launched
};

struct segment {
    unsigned n;
    bool own_start; // else it starts where the lane's previous one ended
    bool rough;     // no event at the start: the launch's time is good enough
    bool shut;      // behind a barrier that is not open
    bool ending;    // its last launch is under way
    bool paused;    // the program was elsewhere in the middle of it
    bool fed;       // all of it was in the queue before it might run
    uint32_t seq;   // its barrier's number
    uint32_t batch;
    double est_ns;
    uint64_t first_ns, last_ns; // launches, on our clock
    struct lane *lane;
    CUevent start, end;
    struct launch launch[THROTTLE_SEGMENT_LAUNCHES];
};

struct lane { // a stream
    bool used, per_thread;
    CUstream stream;
    struct segment *open;
    unsigned pending; // ended segments not seen finished
    unsigned shut;    // segments behind barriers
    double ended_gpu_ns;
    uint64_t touched;
};

// What every launch touches comes first: one cache line.
struct throttle {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t room;      // launches that may join `open` without a look
    float room_ns;      // up to so much work
    uint32_t serial;    // of the latest launch
    CUstream room_stream;
    struct segment *open;
    double flight_ns;   // estimate of all that is launched and not seen finished
    bool room_per_thread;
    float granted_ns;   // room_ns as it was given

    _Alignas(64) CUcontext ctx; // NULL: free
    struct shim_device *device;
    struct ledger *ledger;
    struct arbiter *arbiter;
    int line; // in the arbiter; -1: none
    struct lane *last;
    // All launches of a batch come before those of the next, whatever stream they are on; so what
    // runs waits for nothing but its own batch and earlier ones.
    uint32_t batch;
    double batch_ns;
    uint32_t counted;    // serial of the last launch counted in the ledger
    uint64_t busy_until; // as we last wrote it into the arbiter
    uint64_t run_end_ns; // when what may run will be done, as estimated
    uint64_t moved_ns;   // when something last finished or was let run
    uint64_t left_ns;    // when our work was to end after we last gave the turn on
    unsigned sure;       // segments in a row that took about as long as thought
    uint64_t company_at_ns; // when we last looked for others
    bool company;
    bool flowing; // the bucket was not empty since it last filled
    uint64_t held_ns;    // since when work waits with none running; 0: none does
    _Atomic bool watched; // by the throttle thread

    _Atomic uint32_t *barrier; // what the GPU compares with a barrier's number; NULL: no barriers
    _Atomic uint32_t barrier_lock; // of that pointer; held for two instructions
    _Atomic uint32_t seq;       // the latest barrier's
    CUdeviceptr barrier_at;
    struct segment *shut[THROTTLE_SEGMENTS]; // behind barriers, in order
    unsigned nshut;

    struct lane lane[THROTTLE_LANES];
    struct segment *unused[THROTTLE_SEGMENTS];
    unsigned nunused;
    struct segment *ended[THROTTLE_SEGMENTS]; // their end is marked; oldest first
    unsigned nended;
    CUevent base; // times are read off against this one
    bool based;
    double base_gpu_ns;
    double gpu_to_cpu_ns; // smallest seen difference of the clocks
    double synced_gpu_ns; // when that was
    _Alignas(64) struct kernel kernel[THROTTLE_KERNELS];
    struct segment segment[THROTTLE_SEGMENTS];
};

// What a thread knows about its context; trusted for so many launches, since asking takes time.
struct throttle_mine {
    unsigned trust;
    unsigned epoch;
    struct throttle *throttle;
    _Atomic uint32_t *milli; // NULL: no ledger here
    CUcontext ctx;
    struct shim_device *device;
    bool told; // the program changed its context by a call we saw
};
extern __thread struct throttle_mine throttle_mine
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Held for a microsecond or so; whoever finds it taken spins, then naps. Taking it costs a launch
// one locked instruction, a mutex two and two calls.
static inline bool throttle_try(struct throttle *g) {
    return atomic_exchange_explicit(&g->lock, 1, memory_order_acquire) == 0;
}

static inline void throttle_unlock(struct throttle *g) {
    atomic_store_explicit(&g->lock, 0, memory_order_release);
}

void throttle_lock(struct throttle *g);

static inline unsigned throttle_set(uint64_t key) {
    return (unsigned)((key * 0x9e3779b97f4a7c15ULL) >> 52) & ~(unsigned)(THROTTLE_WAYS - 1);
}

struct throttle_view {
    uint64_t now;
    uint32_t milli;
    bool borrow;
};
struct throttle_view throttle_look(struct throttle *g);

// All below with the lock held.
unsigned meter_kernel(struct throttle *g, uint64_t key);
struct lane *meter_lane(struct throttle *g, CUstream stream, bool per_thread, uint64_t now);
// Open starts a segment, behind a barrier if so asked; close marks its end; poll charges what has
// finished.
bool meter_open(struct throttle *g, struct lane *l, uint64_t now, bool rough, bool shut);
void meter_close(struct throttle *g, struct lane *l, uint64_t now);
void meter_close_all(struct throttle *g, uint64_t now);
void meter_stalled(struct throttle *g, struct lane *l, uint64_t now);
void meter_poll(struct throttle *g);
void meter_reset(struct throttle *g);  // forgets all marks; the context may be gone
bool meter_events(struct throttle *g); // makes them
int meter_relax(void);
void meter_unrelax(int mode);

bool barrier_own_stream(const struct lane *l);
bool barrier_make(struct throttle *g);
bool barrier_possible(const struct throttle *g, const struct lane *l);
bool barrier_shut(struct throttle *g, struct lane *l, struct segment *s);
void barrier_open_first(struct throttle *g, uint64_t now);
void barrier_open_all(struct throttle *g);
void barrier_drop(struct throttle *g);
void barrier_force(struct throttle *g); // the only one without the lock
double barrier_running(const struct throttle *g);             // estimate of what may run and has not finished
void barrier_added(struct throttle *g, uint64_t now, double ns); // work that may run at once
void barrier_settle(struct throttle *g, uint64_t now); // takes in what joined the open segment unlooked
bool barrier_free(struct throttle *g, const struct throttle_view *v);  // may a launch run now
// Opens the barriers that may be opened and takes or gives on the turn. Returns in how many
// nanoseconds to come again; 0: there is nothing to watch.
uint64_t barrier_step(struct throttle *g);

void throttle_thread_watch(struct throttle *g);
void throttle_thread_after_fork(void);
void throttle_each(void (*visit)(struct throttle *g, void *arg), void *arg);
