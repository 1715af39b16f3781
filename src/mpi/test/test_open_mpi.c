// Open MPI's settings files, and what its ranks are told.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "open_mpi.h"

static void test_settings(void **state) {
    char v[16] = "";
    assert_true(open_mpi_setting("# x\n mtl = ^ofi \r\nbtl=^uct\n", "mtl", v, sizeof v));
    assert_string_equal(v, "^ofi");
    assert_true(open_mpi_setting("mtl=^ofi\nmtl =psm2", "mtl", v, sizeof v));
    assert_string_equal(v, "psm2");
    assert_false(open_mpi_setting("mtl_base_verbose = 1\n#mtl = x\n\n", "mtl", v, sizeof v));
    assert_false(open_mpi_setting("", "mtl", v, sizeof v));
    assert_false(open_mpi_setting("mtl", "mtl", v, sizeof v));
    assert_false(open_mpi_setting("mtl = 0123456789abcdef\n", "mtl", v, sizeof v));
}

static void test_the_folder_is_named(void **state) {
    struct buf b = {0};
    open_mpi_environment("/dev/shm/x", &b);
    assert_non_null(memmem(b.data, b.len, "?OMPI_MCA_btl_sm_backing_directory=/dev/shm/x", 46));
    assert_int_equal(b.data[b.len - 1], 0);
    buf_done(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settings), cmocka_unit_test(test_the_folder_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
