// What a program's libraries say of the MPI it uses. The test program itself uses none.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mpi_program.h"

static void test_libraries(void **state) {
    assert_int_equal(slurm_mpi_libraries("libc.so.6\nlibm.so.6\n"), MPI_PROGRAM_NONE);
    assert_int_equal(slurm_mpi_libraries("\tlibmpi.so.40 => /usr/lib/libmpi.so.40 (0x1)\n\tlibc.so.6"), MPI_PROGRAM_PMIX);
    assert_int_equal(slurm_mpi_libraries("libmpi.so.12\nlibc.so.6\n"), MPI_PROGRAM_PMI);  // Intel MPI
    assert_int_equal(slurm_mpi_libraries("libmpich.so.12\nlibpmix.so.2\n"), MPI_PROGRAM_PMI);
    assert_int_equal(slurm_mpi_libraries("libmpi_mpifh.so.40\n"), MPI_PROGRAM_PMIX);
    assert_int_equal(slurm_mpi_libraries("libmpir.so.1\n"), MPI_PROGRAM_NONE);
    assert_int_equal(slurm_mpi_libraries(""), MPI_PROGRAM_NONE);
}

static void test_programs(void **state) {
    assert_int_equal(slurm_mpi_program("/proc/self/exe"), MPI_PROGRAM_NONE);
    assert_int_equal(slurm_mpi_program("/bin/sh"), MPI_PROGRAM_UNKNOWN);
    assert_int_equal(slurm_mpi_program("/usr/bin/orted"), MPI_PROGRAM_NONE);
    assert_int_equal(slurm_mpi_program("mpirun.openmpi"), MPI_PROGRAM_NONE);
    assert_int_equal(slurm_mpi_program("/nosuch/program"), MPI_PROGRAM_UNKNOWN);
}

static void test_damaged_files(void **state) {
    unsigned char file[256] = {0x7f, 'E', 'L', 'F', 2};
    char out[64];
    assert_int_equal(slurm_elf_needed(file, 16, out, sizeof out), -ENOEXEC);
    for (int i = 5; i < 64; i++) {  // counts and offsets that point outside
        memset(file + 5, 0, sizeof file - 5);
        memset(file + i, 0xff, 8);
        assert_int_equal(slurm_elf_needed(file, sizeof file, out, sizeof out), -ENOEXEC);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
