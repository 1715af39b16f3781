// Requests about users' files, which an agent carries out as the user who asks.
#pragma once
#include "controller.h"

void controller_files_tick(struct controller *c, int64_t now_ms);  // nodes that do not answer
