// The controller as a program: `acequiad controller`.
#pragma once

int controller_main(int argc, char **argv);
int controller_past_main(int argc, char **argv);      // likewise
int controller_trial_main(int argc, char **argv);     // likewise
int controller_snapshot_main(int argc, char **argv);  // a process that the controller starts
int controller_backups_main(void);                    // likewise
// acequia backup, restore and check; arguments of the form NAME=VALUE, from the command line client.
int controller_backup_main(int argc, char **argv);
int controller_restore_main(int argc, char **argv);
int controller_check_main(int argc, char **argv);
int api_reference(void);      // prints docs/api.md
int api_openapi_print(void);  // prints the OpenAPI document
