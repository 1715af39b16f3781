// What a program needs to be started as one MPI program: found out by looking at it, before it is started.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum mpi_program {
    MPI_PROGRAM_UNKNOWN,  // a script, an interpreter, not to be found here
    MPI_PROGRAM_NONE,     // it uses no MPI library
    MPI_PROGRAM_PMI,      // MPICH and those made from it: PMI-1 or PMI-2
    MPI_PROGRAM_PMIX,     // Open MPI
};

enum mpi_program slurm_mpi_program(const char *command);
// For tests: what a list of libraries, divided by blanks or newlines, says.
enum mpi_program slurm_mpi_libraries(const char *text);
// The names of libraries that an executable file names itself, each followed by a newline. -ENOEXEC: it is no
// dynamically linked program of this machine's kind; the bytes are the file's.
int slurm_elf_needed(const unsigned char *file, size_t len, char *out, size_t room);
