// What agents measure: the latest figures of each node, for lists, charts and /metrics.
#pragma once
#include "controller/controller.h"

void telemetry_add(struct controller *c, const char *node, const struct message_telemetry *m);
const struct message_telemetry *telemetry_latest(const struct controller *c, const char *node);  // NULL: none
void telemetry_done(struct controller *c);
