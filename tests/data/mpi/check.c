// An MPI program for tests: check WHAT. hello: each rank prints itself, the size and an allreduce of all ranks.
// die RANK: that rank is killed in the middle; abort RANK: it calls MPI_Abort(7); leave RANK: it exits without
// MPI_Finalize. wait FILE: all meet, rank 0 makes FILE.ready, all wait for FILE, and meet again. rates: ping-pong and
// allreduce, microseconds. spawn N [HOW]: N more ranks are started; all say the sum over both groups. HOW: fail (they
// end before MPI_Init), missing (there is no such program), die (one of them is killed), two (a second program).
// session: as hello, by an MPI session.
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

// The sum of the ranks' numbers and of 100 for each of the others.
static void sum_with(MPI_Comm others, const char *who) {
    MPI_Comm all;
    int n, number = !strcmp(who, "child") ? 100 : rank, total = 0;
    MPI_Comm_remote_size(others, &n);
    MPI_Intercomm_merge(others, !strcmp(who, "child"), &all);
    MPI_Allreduce(&number, &total, 1, MPI_INT, MPI_SUM, all);
    printf("%s %d of %d with %d sum %d\n", who, rank, size, n, total);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&others);
}

static void spawn(const char *self, int count, char *how) {
    char *arguments[] = {"child", how, NULL}, *const missing = "/nonexistent/program", *commands[2], **all[2];
    int counts[] = {count, 1};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm children;
    commands[0] = commands[1] = !strcmp(how, "missing") ? missing : (char *)self;
    all[0] = all[1] = arguments;
    if (!strcmp(how, "two"))
        MPI_Comm_spawn_multiple(2, commands, all, counts, infos, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    else
        MPI_Comm_spawn(commands[0], arguments, count, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                       MPI_ERRCODES_IGNORE);
    sum_with(children, "parent");
}

// Without MPI_Init and MPI_COMM_WORLD.
static int session(void) {
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
    MPI_Session s;
    MPI_Group world;
    MPI_Comm c;
    int total = 0;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &s);
    MPI_Group_from_session_pset(s, "mpi://WORLD", &world);
    MPI_Comm_create_from_group(world, "check", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &c);
    MPI_Comm_rank(c, &rank);
    MPI_Comm_size(c, &size);
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, c);
    printf("rank %d of %d sum %d\n", rank, size, total);
    MPI_Group_free(&world);
    MPI_Comm_free(&c);
    MPI_Session_finalize(&s);
    return 0;
#else
    return 77;
#endif
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "hello", *arg = argc > 2 ? argv[2] : "0";
    char path[4096];
    MPI_Comm parent;
    if (!strcmp(what, "child") && !strcmp(arg, "fail"))
        return 3;
    if (!strcmp(what, "session"))
        return session();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int total = sum();
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL && !strcmp(arg, "die") && rank == 0)
        raise(SIGKILL);
    if (parent != MPI_COMM_NULL)
        sum_with(parent, "child");
    if (!strcmp(what, "spawn"))
        spawn(argv[0], (int)strtol(arg, NULL, 10), argc > 3 ? argv[3] : "plain");
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
    else if (strcmp(what, "spawn") && strcmp(what, "child"))
        printf("rank %d of %d sum %d\n", rank, size, sum() == total ? total : -1);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
