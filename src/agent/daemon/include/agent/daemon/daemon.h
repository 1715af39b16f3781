// The agent daemon: one per node. Dials the controller, runs what it is told, reports, reconnects.
// Returns only when it is told to stop; running jobs go on without it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/config.h"

enum { AGENT_CONTROLLERS_MAX = 8 };
struct agent_controller {
    const char *host;
    uint16_t port;
};

struct agent_options {
    const char *name;        // of the node
    const char *folder;      // the agent's own: identity, kept output; made if missing
    const char *images;      // folder of users' images; NULL: below the agent's own
    const char *spool;       // NULL: chosen, on a memory file system where there is one
    const char *shepherd;    // program; NULL: found next to ours
    const char *cgroup;      // NULL or "auto", "v1", "v2", "none"
    const struct config *config;  // for [node …]
    int64_t until_ms;             // it is there until then (ms since 1970); 0: for good
    uint32_t cpus;                // it offers so many; 0: as [node …] or the machine says
    uint64_t memory_bytes;        // likewise
    const char *features;         // further ones, joined by commas; NULL: none

    const char *socket;      // the controller's unix socket, or
    struct agent_controller
        controllers[AGENT_CONTROLLERS_MAX];  // where it is, or those that take its place, with
    uint32_t controller_count;
    const char *ca_file, *cert_file, *key_file;

    void (*on_ready)(void *ctx);  // once, after the first welcome; may be NULL
    void *ctx;
};

int agent_run(const struct agent_options *o, struct error *e);

// Joins a cluster: makes a key, has it signed with the one-time token, and leaves ca.pem, cert.pem
// and key.pem in `folder`. The name may be changed by the controller: *name_out is to be freed.
int agent_join(const char *folder, const char *host, uint16_t port, const char *token_text,
               const char *name, char **name_out, struct error *e);
