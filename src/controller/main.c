// acequiad: the daemons, and the command line for clusters reached over TLS. People type `acequia`,
// which starts this program when it needs it.
#include <stdio.h>
#include <string.h>

#include "agent/program.h"
#include "controller/daemon.h"

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "";
    if (strcmp(role, "controller") == 0)
        return controller_main(argc - 1, argv + 1);
    if (strcmp(role, "agent") == 0)
        return agent_main(argc - 1, argv + 1);
    fprintf(stderr, "acequiad: expected controller or agent; people use the acequia command\n");
    return 2;
}
