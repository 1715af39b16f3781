// Conversations over a WebSocket with a job as a whole: run, attach, and logs that are followed.
#pragma once
#include "api.h"

void controller_session_follow_log(struct api_call *call);
