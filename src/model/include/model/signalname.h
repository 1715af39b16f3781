// Signals by name or number, and the wish for one before the time limit.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { SIGNAL_NUMBER_MAX = 64, SIGNAL_BEFORE_DEFAULT_S = 60, SIGNAL_BEFORE_MAX_S = 65535, SIGNAL_TEXT_MAX = 16 };

struct signal_spec {
    uint32_t signal, before_s;
    bool batch_only;
    bool for_reservation;  // "R:": when a reservation ends; kept for the sake of scripts
};

int signal_parse(const char *text, uint32_t *number, struct error *e);  // "TERM", "SIGUSR1", "10"
const char *signal_name(uint32_t number, char out[static SIGNAL_TEXT_MAX]);  // "TERM", "RTMIN+3"
// "[R|B:]SIGNAL[@SECONDS]"
int signal_spec_parse(const char *text, struct signal_spec *out, struct error *e);
