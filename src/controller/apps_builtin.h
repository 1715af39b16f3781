// The apps that come with the program.
#pragma once
#include "model/app.h"

void apps_builtin(struct arena *a, struct app_list *out);
