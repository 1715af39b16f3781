// Nodes at a glance, as the overview, the live feed and the view of the past show them.
#pragma once
#include "answers_portal.h"
#include "controller.h"

void overview_nodes(struct controller *c, struct arena *a, struct answer_view_node **at, uint32_t *len);
