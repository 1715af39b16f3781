// A forked process that works apart from the one it came from: for what may hang for hours, where a
// thread could not be left behind.
#pragma once

enum { APART_FD = 3 };

// Right after the fork: keeps standard input to error and `fd`, which becomes APART_FD, lets go of
// every other descriptor, handler and blocked signal, and takes the name. Ends the process on failure.
void forked_child_begin(const char *name, int fd);
