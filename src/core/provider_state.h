// What the files about providers share: provider.c, provider_report.c, provider_scale.c.
#pragma once
#include "state.h"

uint32_t core_provider_list(const struct core *c, struct provider_entry *out[static PROVIDERS_MAX]);  // by name
struct wanted_entry *core_wanted_entry(const struct core *c, uint64_t id);
// Moves it on and notes the time; problem NULL: as it was.
void core_wanted_to(struct core *c, const struct wanted_entry *w, enum wanted_state state, const char *problem,
                    int64_t now_ms);
// The shape is left alone for a while, the longer the more often it failed.
void core_provider_pause(struct core *c, const struct provider_entry *p, const char *shape, const char *reason,
                         uint32_t retry_s, int64_t now_ms);
// A provider that is being removed: its nodes are drained, those that never were are forgotten, and with the last it
// goes itself. now: jobs are not waited for.
void core_provider_leave(struct core *c, struct provider_entry *p, bool now, int64_t now_ms);
// The node gets no more jobs.
void core_wanted_drain(struct core *c, struct wanted_entry *w, const char *reason, int64_t now_ms);
// Nothing of it is there any more; failed: nobody had asked for that.
void core_wanted_over(struct core *c, struct wanted_entry *w, const char *why, int64_t now_ms);
bool core_wanted_live(const struct wanted_node *n);  // the engine may have it
