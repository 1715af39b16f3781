// An MPI program for tests: check WHAT. hello: each rank prints itself, the size and an allreduce of all ranks.
// die RANK: that rank is killed in the middle; abort RANK: it calls MPI_Abort(7); leave RANK: it exits without
// MPI_Finalize. wait FILE: all meet, rank 0 makes FILE.ready, all wait for FILE, and meet again. rates: ping-pong and
// allreduce, microseconds.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static int sum(void) {
    int total = 0;
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

enum { ROUNDS = 200, BATCHES = 50, BYTES = 8 };

static double ping_pong(void) {
    char data[BYTES] = {0};
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < ROUNDS && size > 1 && rank < 2; i++)
        if (rank == 0) {
            MPI_Send(data, BYTES, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(data, BYTES, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(data, BYTES, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(data, BYTES, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
    return (MPI_Wtime() - start) / ROUNDS / 2 * 1e6;
}

// The best of many short batches: others take the CPU away from one of two ranks that wait for each other.
static void rates(void) {
    double ping = 1e9, all = 1e9;
    for (int b = 0; b < BATCHES; b++) {
        double once = ping_pong();
        ping = once < ping ? once : ping;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int i = 0; i < ROUNDS; i++)
            sum();
        once = (MPI_Wtime() - start) / ROUNDS * 1e6;
        all = once < all ? once : all;
    }
    if (rank == 0)
        printf("pingpong_us %.2f allreduce_us %.2f\n", ping, all);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "hello", *arg = argc > 2 ? argv[2] : "0";
    char path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int total = sum();
    if (!strcmp(what, "die") && rank == (int)strtol(arg, NULL, 10))
        raise(SIGKILL);
    if (!strcmp(what, "abort") && rank == (int)strtol(arg, NULL, 10))
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(what, "leave") && rank == (int)strtol(arg, NULL, 10))
        _exit(0);
    if (!strcmp(what, "wait")) {
        snprintf(path, sizeof path, "%s.ready", arg);
        FILE *f = rank == 0 ? fopen(path, "w") : NULL;
        if (f)
            fclose(f);
        while (access(arg, F_OK) < 0)
            usleep(20000);
    }
    if (!strcmp(what, "rates"))
        rates();
    else
        printf("rank %d of %d sum %d\n", rank, size, sum() == total ? total : -1);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
