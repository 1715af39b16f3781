// The throttle every launch passes: lets work run while the job's share and turn allow it, has the GPU
// wait before it otherwise, and charges the GPU time that was really used. One throttle per context.
#pragma once
#include <stdbool.h>

#include "cuda_abi.h"

struct throttle;

// The throttle of the current context; NULL when nothing is limited there.
struct throttle *throttle_current(void);
void throttle_moved(void); // this thread may have another context now
// Before a launch of the work named by `key`; waits only if the program is far ahead of the GPU.
// What it returns goes to throttle_after.
unsigned throttle_before(struct throttle *g, CUstream stream, bool per_thread, uint64_t key);
void throttle_after(struct throttle *g, CUstream stream, bool per_thread, unsigned mark);

// Around calls that wait for the GPU: what was launched gets its end measured.
struct throttle *throttle_sync_begin(void);
void throttle_sync_end(struct throttle *g);

void throttle_stream_gone(CUstream stream);
void throttle_forget(CUcontext ctx); // before it is destroyed
void throttle_after_fork(void);
