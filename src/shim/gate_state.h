// The insides of a gate, shared by gate.c (letting through and holding back) and meter.c
// (measuring). Launches on a stream are grouped into segments of about a millisecond; an
// event at the end of each (and one at its start, if the stream was idle) tells how long it took.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gate.h"
#include "shim.h"

enum {
    GATE_KERNELS = 4096, // kinds of work whose duration is remembered
    GATE_PROBES = 4,
    GATE_LANES = 32,
    GATE_SEGMENTS = 96,
    GATE_SEGMENT_LAUNCHES = 256,
    GATE_SEGMENT_NS = 1000 * 1000,
    GATE_UNKNOWN_NS = 3 * 1000 * 1000,     // assumed of work never measured
    GATE_FLIGHT_NS = 3 * 1000 * 1000,      // work that may always be ahead of the GPU
    GATE_FLIGHT_MAX_NS = 20 * 1000 * 1000, // and at most, where turn and bucket allow it
    GATE_CLEAR_NS = 50 * 1000, // having looked at turn and bucket, launches go on unlooked for this
    GATE_STALL_NS = 500 * 1000,
    GATE_STRETCH_MAX = 8,
    GATE_SHRINK_AFTER = 32, // windows in which the GPU hardly waited
    GATE_STARVED_LAUNCHES = 8, // in a segment: fewer are large, and launching them is no effort
    GATE_KEPT_UP_NS = 30 * 1000, // done so soon after its last launch, the GPU waited for launches
    GATE_STUCK_NS = 250 * 1000 * 1000, // work waits on something only this program can do
    GATE_SPIN_NS = 120 * 1000, // waits shorter than this are not slept: a timer is no finer
};

// A program just woken launches slower than it did before it slept, and the GPU idles between its
// launches. That is not the job's use of the GPU: such a segment is charged as what its work takes
// at its best, but never less than this part of the time.
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
    CUevent start, end;
    struct lane *lane;
    unsigned n;
    bool own_start; // else it starts where the lane's previous one ended
    bool rough;     // no event at the start: the launch's time is good enough
    double est_ns;
    uint64_t first_ns, last_ns; // launches, on our clock
    struct launch launch[GATE_SEGMENT_LAUNCHES];
};

struct lane { // a stream
    bool used, per_thread;
    CUstream stream;
    struct segment *open;
    unsigned pending; // closed segments not seen finished
    double ended_gpu_ns;
    uint64_t touched;
};

// What every launch touches comes first.
struct gate {
    pthread_mutex_t lock;
    CUcontext ctx; // NULL: free
    struct ledger *ledger;
    struct arbiter *arbiter;
    int line; // in the arbiter; -1: none
    unsigned stretch;     // how many times the usual a window or turn lasts
    struct lane *last;
    double flight_ns;     // estimate of all that is launched and not seen finished
    uint64_t clear_ns;    // until then, and
    double clear_flight_ns; // up to so much in flight, launches need not look around
    uint64_t launches;    // not yet counted in the ledger
    uint64_t busy_until;  // as we last wrote it into the arbiter
    uint64_t tick, tick_ns; // the processor's counter and our clock, read together
    double tick_scale;    // nanoseconds a tick; 0: not known yet
    uint64_t tick_fresh;  // so many ticks it may be relied on

    struct device *device;
    unsigned ended, starved; // segments in this window, and those the GPU waited in
    unsigned calm;           // windows since it last waited much
    struct lane lane[GATE_LANES];
    struct segment *unused[GATE_SEGMENTS];
    unsigned nunused;
    struct segment *ring[GATE_SEGMENTS]; // closed, oldest first
    unsigned head, count;
    CUevent base; // times are read off against this one
    bool based;
    double base_gpu_ns;
    double gpu_to_cpu_ns; // smallest seen difference of the clocks
    double synced_gpu_ns; // when that was
    struct kernel kernel[GATE_KERNELS];
    struct segment segment[GATE_SEGMENTS];
};

unsigned meter_kernel(struct gate *g, uint64_t key);
struct lane *meter_lane(struct gate *g, CUstream stream, bool per_thread, uint64_t now);
// All with the lock held. Open starts a segment; close ends it with a mark; poll charges what has
// finished and returns whether anything is left.
bool meter_open(struct gate *g, struct lane *l, uint64_t now, bool rough);
void meter_close(struct gate *g, struct lane *l);
void meter_close_all(struct gate *g);
void meter_stalled(struct gate *g, struct lane *l, uint64_t now);
bool meter_poll(struct gate *g);
void meter_reset(struct gate *g);  // forgets all marks; the context may be gone
bool meter_events(struct gate *g); // makes them
