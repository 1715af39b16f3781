// What processes of jobs use on a node, and the daemons' logs: asked of the node's agent, see node_look.c.
#pragma once
#include "controller.h"

void controller_node_seen(struct controller *c, const char *node, const struct message_node_seen *m);
void controller_node_looks_tick(struct controller *c);  // once a second
void controller_node_looks_stop(struct controller *c);
