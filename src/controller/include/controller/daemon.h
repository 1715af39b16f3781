// The controller as a program: `acequiad controller`.
#pragma once

int controller_main(int argc, char **argv);
int api_reference(void);  // prints docs/api.md
