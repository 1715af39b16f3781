// GET /metrics of the agent itself, for clusters too large to be scraped through the controller: TLS
// with a certificate of its own, and a token that lies in the agent's folder. Off unless configured.
#pragma once
#include "base/error.h"

struct agent;
struct agent_metrics;

// Listens on "ADDRESS:PORT". Leaves metrics-ca.crt and metrics.token in the folder for the scraper.
int agent_metrics_open(struct agent *a, const char *listen, struct agent_metrics **out, struct error *e);
void agent_metrics_stop(struct agent_metrics *m);  // NULL is fine; the loop runs on until it is done
struct agent_metrics *agent_metrics_free(struct agent_metrics *m);
