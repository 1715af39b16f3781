// The small executable of the command line: no event loop, no TLS, no database.
#include "cli/verb/verb.h"

int main(int argc, char **argv) {
    return verbs_main(argc, argv, NULL);
}
