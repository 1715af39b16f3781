// Ports of a job that others can reach through the controller: "8888", "http:8888" or "tcp:5432". Port 0 is one that
// the program is told: $ACEQUIA_PORT.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    PORTS_PER_JOB = 16,
    PORT_CHOSEN_FIRST = 20000,  // ports given out for 0: below those that the kernel gives to clients
    PORT_CHOSEN_COUNT = 10000,
    PORT_SOCKET_MAX = 1024,  // bytes of the path of a unix socket
};

enum port_protocol { PORT_HTTP, PORT_TCP };

struct job_port {
    enum port_protocol protocol;
    uint32_t number;   // 0: chosen by port_number
    const char *path;  // of a unix socket that stands for the port, in the text; NULL: none
};

int port_parse(const char *text, struct job_port *out, struct error *e);
int ports_check(const char *const *at, uint32_t len, struct error *e);  // each, how many, and none twice
// The number that the port at `index` of a job has: as given, or one that follows from the job's id.
uint32_t port_number(const struct job_port *p, uint64_t job, uint32_t index);
// Whether the job has the port; its protocol.
bool port_find(const char *const *at, uint32_t len, uint64_t job, uint32_t number,
               enum port_protocol *protocol);
