// Connections to the ports of jobs, for the parts of the controller that ask by the number of a job.
#pragma once
#include "api.h"
#include "port_conn.h"

// As port_conn_begin; of a job that has ended it is said how.
struct port_conn *port_conn_open(struct controller *c, const struct actor *actor, uint64_t job, uint32_t port,
                                 const struct port_conn_client *client, void *ctx, struct error *e);
