// The agent as a program: `acequiad agent`.
#pragma once

int agent_main(int argc, char **argv);
