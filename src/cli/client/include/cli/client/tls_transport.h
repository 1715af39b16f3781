// The command line's way to a controller on another machine: TLS, with the CA's certificate or the
// fingerprint inside the user's token as the thing to trust.
#pragma once
#include "cli/command/command.h"

extern const struct cli_transport client_tls_transport;
