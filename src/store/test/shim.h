// A SQLite VFS around the usual one that misbehaves on command: the Nth write or sync fails, once
// or from then on; or the power goes at the Nth, which takes back a random part of what was written
// since each file's last sync and ends the process.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define SHIM_VFS "acequia-shim"

enum shim_fault { SHIM_NONE, SHIM_WRITE_FAILS, SHIM_SYNC_FAILS, SHIM_FULL, SHIM_POWER_CUT };

void shim_register(void);
// From now on operation `nth` (1: the next) of the kind the fault concerns goes wrong, and `count`
// of them in all.
void shim_arm(enum shim_fault fault, unsigned nth, unsigned count, uint64_t seed);
void shim_disarm(void);
unsigned shim_hits(void);
// Writes to the database itself, not to its log, wait until they are let go. How many wait.
void shim_hold_database(bool hold);
unsigned shim_held(void);
