// acequiad: the daemons, and what else is too heavy for the small `acequia` executable: the command
// line for clusters reached over TLS, and the simulator. People type `acequia`, which starts this.
#include <stdio.h>
#include <string.h>

#include "agent/daemon/program.h"
#include "controller/daemon.h"
#include "cli/client/tls_transport.h"
#include "sim/sim.h"
#include "cli/verb/verb.h"

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "";
    if (strcmp(role, "controller") == 0)
        return controller_main(argc - 1, argv + 1);
    if (strcmp(role, "make-snapshot") == 0)
        return controller_snapshot_main(argc - 1, argv + 1);
    if (strcmp(role, "show-past") == 0)
        return controller_past_main(argc - 1, argv + 1);
    if (strcmp(role, "backups") == 0)
        return controller_backups_main();
    if (strcmp(role, "backup") == 0)
        return controller_backup_main(argc - 1, argv + 1);
    if (strcmp(role, "restore") == 0)
        return controller_restore_main(argc - 1, argv + 1);
    if (strcmp(role, "check") == 0)
        return controller_check_main(argc - 1, argv + 1);
    if (strcmp(role, "try-policy") == 0)
        return controller_trial_main(argc - 1, argv + 1);
    if (strcmp(role, "agent") == 0)
        return agent_main(argc - 1, argv + 1);
    if (strcmp(role, "client") == 0)
        return verbs_main(argc - 1, argv + 1, &client_tls_transport);
    if (strcmp(role, "sim") == 0)
        return sim_main(argc - 1, argv + 1);
    if (strcmp(role, "api-reference") == 0)
        return api_reference();
    if (strcmp(role, "openapi") == 0)
        return api_openapi_print();
    fprintf(stderr, "acequiad: expected controller, agent, client or sim; people use the acequia command\n");
    return 2;
}
