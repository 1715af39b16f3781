// The simulated PostgreSQL server: the product's store (src/store/pg_*.c) runs above it, from pg.h on. It has one
// row of the lease, which transactions lock, and keeps everything else on a simulated disk. Faults: it is away (and
// comes back with whatever was committed), slow, full, cut off from one controller; answers to commits get lost; its
// clock jumps; an older copy is put in its place.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct sim;

void database_begin(struct sim *s);
void database_end(void);
void database_event(struct sim *s, uint32_t number, uint64_t id);  // HAPPEN_DATABASE
void database_away(struct sim *s, bool away);                      // killed, or started again
void database_slow(struct sim *s, int64_t by_ms);                  // every answer; 0: as usual
void database_full(struct sim *s, bool full);
void database_cut(struct sim *s, uint32_t head, int64_t until_ms);
void database_lose_answer(struct sim *s, uint32_t count);  // to the next transactions
void database_clock(struct sim *s, int64_t by_ms);
void database_restore(struct sim *s, uint64_t seq);  // an older copy, up to this record
bool database_leader(const struct sim *s, uint64_t *term, uint32_t *head);  // somebody has the lease
// Whether this controller must not say anything any more: another has led for a while. Not after a jump of the
// database's clock, where the terms of messages are what helps.
bool database_led_by_another(const struct sim *s, uint64_t term);
