// The controller as a program: `acequiad controller`.
#pragma once

int controller_main(int argc, char **argv);
int controller_past_main(int argc, char **argv);      // likewise
int controller_snapshot_main(int argc, char **argv);  // a process that the controller starts
int api_reference(void);      // prints docs/api.md
int api_openapi_print(void);  // prints the OpenAPI document
