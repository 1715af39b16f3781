// Which submissions have which volumes (inside core/ only).
#pragma once
#include "state.h"

// A submission names volumes; it is gone.
void core_volumes_used(struct core *c, const struct submission *sub, const struct spec *s);
void core_volumes_unused(struct core *c, const struct submission *sub);
void core_volume_uses_done(struct core *c);

int core_volume_check_unused(const struct core *c, const struct event_volume *v, struct error *e);
bool core_volumes_add_up(const struct core *c);  // no job has one that is gone
