// After the clock was set back: pauses that were counted by the old one are over (schedule.c).
#pragma once
#include <stdint.h>

struct core;

void core_node_pauses_end(struct core *c, int64_t now_ms);
void core_group_pauses_end(struct core *c);
void core_group_send_now(struct core *c);  // memberships of elastic jobs
void core_service_pauses_end(struct core *c);
