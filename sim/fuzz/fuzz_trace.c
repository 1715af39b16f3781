// Fuzz target: traces in every format that the simulator reads (SWF, openb, its own CSV), plain or gzipped.
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "driver.h"
#include "sim/trace.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("; MaxNodes: 4\n; MaxProcs: 64\n1 0 10 100 4 -1 -1 4 200 -1 1 1 1 1 1 -1 -1 -1\n"
              "2 5 0 60 1 -1 -1 1 60 -1 1 2 1 1 1 -1 -1 -1\n"),
    FUZZ_SEED(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\nopenb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
        "openb-pod-0001,6000,12288,1,460,V100M16|V100M32,LS,Succeeded,0,9437,10\n"),
    FUZZ_SEED("submit_s,run_s,limit_s,tasks,cpus_per_task,memory_bytes,gpus,user,project\n0,60,120,1,2,"
              "1073741824,1,a,p\n"),
    FUZZ_SEED("sn,cpu_milli,memory_mib,gpu,model\nnode-0,96000,786432,8,V100M32\n"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_close int fd = memfd_create("trace", MFD_CLOEXEC);
    char path[40];
    struct error e = {0};
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int nodes = 0; nodes < 2; nodes++) {
        struct trace t = {0};
        int r = nodes ? trace_read_nodes(&t, path, &e) : trace_read(&t, path, &e);
        FUZZ_CHECK(r >= 0 || e.text[0]);
        trace_done(&t);
    }
    return 0;
}
