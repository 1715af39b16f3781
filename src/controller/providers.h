// The programs of providers: one process for each, asked one question at a time in lines of JSON. A program that does
// not answer, says too much or ends is started again; no engine can make the controller wait.
#pragma once
#include "controller.h"

struct providers *providers_new(struct controller *c, const char *program);  // that speaks with Slurm; NULL: ours
struct providers *providers_free(struct providers *p);                       // NULL is fine
void providers_tick(struct providers *p);  // every second
const char *providers_problem(const struct providers *p, const char *name);  // what is wrong with it now; NULL: nothing
