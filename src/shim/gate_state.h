// The insides of a gate, shared by gate.c (letting launches through), door.c (what may run now),
// keeper.c (the thread that watches) and meter.c (measuring). Launches on a stream are grouped into
// segments of about a millisecond, with an event at the end of each. A segment that may not run yet
// has a door before it: the GPU waits there, while the program goes on filling the queue.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gate.h"
#include "shim.h"

enum {
    GATE_KERNELS = 4096, // kinds of work whose duration is remembered
    GATE_WAYS = 4,       // places for one kind, all in one cache line
    GATE_LANES = 32,
    GATE_SEGMENTS = 96,
    GATE_SEGMENT_LAUNCHES = 256,
    GATE_SEGMENT_NS = 1000 * 1000,
    GATE_UNKNOWN_NS = 3 * 1000 * 1000, // assumed of work never measured
    GATE_AHEAD_NS = 25 * 1000 * 1000,  // work a program may have launched and not seen finished
    GATE_AHEAD_LAUNCHES = 512,         // launches behind doors: the driver's queue holds a thousand
    GATE_ROOM = 16,           // launches that go on without a look around
    GATE_ROOM_NS = 100 * 1000, // up to so much work
    GATE_TRUST = 64, // launches for which the thread's context is taken to be what it was
    GATE_STALL_NS = 500 * 1000,
    GATE_QUIET_NS = 300 * 1000, // no launch for so long: the segment's end is marked
    GATE_KEPT_UP_NS = 30 * 1000, // done so soon after its last launch, the GPU waited for launches
    GATE_STUCK_NS = 250 * 1000 * 1000, // work waits on something only this program can do
    DOOR_LANES = 6, // streams with doors: the GPU has few queues, and waiting ones block others
    DOOR_HANDOVER_NS = 60 * 1000, // what it takes to wake the next job
    DOOR_OVERDUE_NS = 40 * 1000 * 1000,
    DOOR_SURE = 4, // estimates that held before one is relied on
    DOOR_FLIGHT_NS = 2 * 1000 * 1000, // what may be on its way where others come and go
    DOOR_COMPANY_NS = 10 * 1000 * 1000,
    DOOR_NAP_NS = 20 * 1000,
    DOOR_LOOK_NS = 1000 * 1000,
    DOOR_TURN_NS = 200 * 1000,
};

// The GPU idles between the launches of a program that cannot keep up with it. That is not the
// job's use of the GPU: such a segment is charged as what its work takes at its best, but never
// less than this part of the time.
#define GATE_STARVED_MIN 0.6

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
    bool shut;      // behind a door that is not open
    bool ending;    // its last launch is under way
    bool paused;    // the program was elsewhere in the middle of it
    bool fed;       // all of it was in the queue before it might run
    uint32_t seq;   // its door's number
    uint32_t batch;
    double est_ns;
    uint64_t first_ns, last_ns; // launches, on our clock
    struct lane *lane;
    CUevent start, end;
    struct launch launch[GATE_SEGMENT_LAUNCHES];
};

struct lane { // a stream
    bool used, per_thread;
    CUstream stream;
    struct segment *open;
    unsigned pending; // ended segments not seen finished
    unsigned shut;    // segments behind doors
    double ended_gpu_ns;
    uint64_t touched;
};

// What every launch touches comes first: one cache line.
struct gate {
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
    struct device *device;
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
    _Atomic bool watched; // by the keeper

    _Atomic uint32_t *door; // what the GPU compares with a door's number; NULL: no doors
    _Atomic uint32_t door_lock; // of that pointer; held for two instructions
    _Atomic uint32_t seq;       // the latest door's
    CUdeviceptr door_at;
    struct segment *shut[GATE_SEGMENTS]; // behind doors, in order
    unsigned nshut;

    struct lane lane[GATE_LANES];
    struct segment *unused[GATE_SEGMENTS];
    unsigned nunused;
    struct segment *ended[GATE_SEGMENTS]; // their end is marked; oldest first
    unsigned nended;
    CUevent base; // times are read off against this one
    bool based;
    double base_gpu_ns;
    double gpu_to_cpu_ns; // smallest seen difference of the clocks
    double synced_gpu_ns; // when that was
    _Alignas(64) struct kernel kernel[GATE_KERNELS];
    struct segment segment[GATE_SEGMENTS];
};

// What a thread knows about its context; trusted for so many launches, since asking takes time.
struct gate_mine {
    unsigned trust;
    unsigned epoch;
    struct gate *gate;
    _Atomic uint32_t *milli; // NULL: no ledger here
    CUcontext ctx;
    struct device *device;
    bool told; // the program changed its context by a call we saw
};
extern __thread struct gate_mine gate_mine
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Held for a microsecond or so; whoever finds it taken spins, then naps. Taking it costs a launch
// one locked instruction, a mutex two and two calls.
static inline bool gate_try(struct gate *g) {
    return atomic_exchange_explicit(&g->lock, 1, memory_order_acquire) == 0;
}

static inline void gate_unlock(struct gate *g) {
    atomic_store_explicit(&g->lock, 0, memory_order_release);
}

void gate_lock(struct gate *g);

static inline unsigned gate_set(uint64_t key) {
    return (unsigned)((key * 0x9e3779b97f4a7c15ULL) >> 52) & ~(unsigned)(GATE_WAYS - 1);
}

struct view {
    uint64_t now;
    uint32_t milli;
    bool borrow;
};
struct view gate_look(struct gate *g);

// All below with the lock held.
unsigned meter_kernel(struct gate *g, uint64_t key);
struct lane *meter_lane(struct gate *g, CUstream stream, bool per_thread, uint64_t now);
// Open starts a segment, behind a door if so asked; close marks its end; poll charges what has
// finished.
bool meter_open(struct gate *g, struct lane *l, uint64_t now, bool rough, bool shut);
void meter_close(struct gate *g, struct lane *l, uint64_t now);
void meter_close_all(struct gate *g, uint64_t now);
void meter_stalled(struct gate *g, struct lane *l, uint64_t now);
void meter_poll(struct gate *g);
void meter_reset(struct gate *g);  // forgets all marks; the context may be gone
bool meter_events(struct gate *g); // makes them
int meter_relax(void);
void meter_unrelax(int mode);

bool door_own_stream(const struct lane *l);
bool door_make(struct gate *g);
bool door_possible(const struct gate *g, const struct lane *l);
bool door_shut(struct gate *g, struct lane *l, struct segment *s);
void door_open_first(struct gate *g, uint64_t now);
void door_open_all(struct gate *g);
void door_drop(struct gate *g);
void door_force(struct gate *g); // the only one without the lock
double door_running(const struct gate *g);             // estimate of what may run and has not finished
void door_added(struct gate *g, uint64_t now, double ns); // work that may run at once
void door_settle(struct gate *g, uint64_t now); // takes in what joined the open segment unlooked
bool door_free(struct gate *g, const struct view *v);  // may a launch run now
// Opens the doors that may be opened and takes or gives on the turn. Returns in how many
// nanoseconds to come again; 0: there is nothing to watch.
uint64_t door_step(struct gate *g);

void keeper_watch(struct gate *g);
void keeper_after_fork(void);
void gate_each(void (*visit)(struct gate *g, void *arg), void *arg);
