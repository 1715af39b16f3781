// A rank that speaks PMI-1 by itself, for images without an MPI library: puts its number, meets the others, and prints
// the sum of all as the check program does.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(void) {
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
    printf("rank %s of %s sum %d\n", rank, size, sum);
    fflush(stdout);
    ask("cmd=finalize");
    return 0;
}
