// A rank that speaks PMI-1 by itself, for images without an MPI library: puts its number, meets the others, and prints
// the sum of all as the check program does. spawn N [PROGRAM]: rank 0 starts N more ranks of it, which print what it
// has put for them, and waits until FILE.0 … FILE.N-1 are there, where FILE is the variable FILE.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *pmi;

static char *ask(const char *line) {
    static char answer[2048];
    fprintf(pmi, "%s\n", line);
    fflush(pmi);
    if (!fgets(answer, sizeof answer, pmi))
        exit(3);
    answer[strcspn(answer, "\n")] = 0;
    return answer;
}

static void spawn(const char *count, const char *program) {
    fprintf(pmi, "mcmd=spawn\nnprocs=%s\nexecname=%s\ntotspawns=1\nspawnssofar=1\narg1=it's a child\nargcnt=1\n", count,
            program);
    printf("spawn: %s\n", ask("preput_num=1\npreput_key_0=PORT\npreput_val_0=a b=c\ninfo_num=0\nendcmd"));
    fflush(stdout);
    for (long i = 0; i < strtol(count, NULL, 10); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%ld", getenv("FILE"), i);
        while (access(path, F_OK) < 0)
            usleep(10000);
    }
}

static void greet(const char *rank, const char *size, const char *word) {
    char path[4096];
    printf("child %s of %s: %s, %s\n", rank, size, word, strstr(ask("cmd=get kvsname=w key=PORT"), "value="));
    fflush(stdout);
    snprintf(path, sizeof path, "%s.%s", getenv("FILE"), rank);
    FILE *f = fopen(path, "w");
    if (f)
        fclose(f);
}

int main(int argc, char **argv) {
    char line[128];
    const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE");
    int sum = 0;
    if (!fd || !rank || !size || !(pmi = fdopen((int)strtol(fd, NULL, 10), "r+")))
        return 2;
    ask("cmd=init pmi_version=1 pmi_subversion=1");
    snprintf(line, sizeof line, "cmd=put kvsname=w key=r%s value=%s", rank, rank);
    ask(line);
    ask("cmd=barrier_in");
    for (long i = 0; i < strtol(size, NULL, 10); i++) {
        snprintf(line, sizeof line, "cmd=get kvsname=w key=r%ld", i);
        char *value = strstr(ask(line), "value=");
        sum += value ? (int)strtol(value + 6, NULL, 10) : -1000;
    }
    if (strcmp(getenv("PMI_SPAWNED"), "0") != 0)
        greet(rank, size, argv[1]);
    else
        printf("rank %s of %s sum %d\n", rank, size, sum);
    if (argc > 2 && strcmp(argv[1], "spawn") == 0 && strcmp(rank, "0") == 0)
        spawn(argv[2], argc > 3 ? argv[3] : argv[0]);
    fflush(stdout);
    ask("cmd=finalize");
    return 0;
}
