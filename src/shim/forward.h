// The real library behind a shadow one: finding it, and the slots of the generated jumps.
#pragma once

extern const unsigned shim_forward_count;
extern void *shim_forward_slot[];
extern const char *const shim_forward_name[];

struct shim_hook {
    const char *name;
    void *hook;
    void **real; // where the real function's address is kept
};

// Opens the real library: the path in `env_name` if set, else `soname` and `stem`.NUMBERS in
// LD_LIBRARY_PATH and the usual places, never the file this code is in nor another copy of it.
void *shim_real_open(const char *env_name, const char *soname);
// Fills slots and hooks. What the real library lacks answers with `missing`, all of it when
// `real` is NULL.
void shim_real_bind(void *real, struct shim_hook *hook, unsigned nhooks, void *missing);
