// Looks at a program's libraries. An MPI program that is started without what its library asks its neighbours by runs
// as many programs of one rank, each of which believes that it is alone, and ends with status 0: so srun looks first.
// Programs that name only libraries of the system are done after one read; for the others the loader is asked for the
// whole list, which runs nothing of the program.
#include "mpi_program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"

enum { PATH_LEN = 4096, NEEDED_BYTES = 8 << 10, LIST_BYTES = 64 << 10, LOADER_PATIENCE_MS = 2000 };

// Programs that run another one, which nobody can see from outside.
static bool is_wrapper(const char *path) {
    static const char *const names[] = {
        "sh",      "bash", "dash",   "zsh", "ksh",   "csh",     "tcsh",      "fish",        "env",   "nice",
        "time",    "perl", "ruby",   "R",   "julia", "numactl", "setsid",    "java",        "nohup", "stdbuf",
        "timeout", "perf", "strace", "gdb", "nsys",  "ncu",     "apptainer", "singularity", "podman"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (str_has_prefix(name, "python") || str_has_prefix(name, "lua") || str_has_prefix(name, "octave"))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (streq(name, names[i]))
            return true;
    return false;
}

// What mpirun and mpiexec start on each node by srun: they bring their own way for the ranks to find each other.
static bool is_launcher(const char *path) {
    static const char *const names[] = {"orted",  "prted",  "hydra_pmi_proxy", "hydra_bstrap_proxy",
                                        "mpirun", "mpiexec"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (streq(name, names[i]) || (i >= 4 && str_has_prefix(name, names[i])))
            return true;
    return false;
}

static bool find_command(const char *command, char out[PATH_LEN]) {
    const char *path = getenv("PATH");
    if (strchr(command, '/')) {
        snprintf(out, PATH_LEN, "%s", command);
        return access(out, X_OK) == 0;
    }
    for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; p;) {
        size_t len = strcspn(p, ":");
        int n = snprintf(out, PATH_LEN, "%.*s/%s", (int)len, p, command);
        if (n > 0 && n < PATH_LEN && access(out, X_OK) == 0)
            return true;
        p = p[len] ? p + len + 1 : NULL;
    }
    return false;
}

// --- the file ---

static const unsigned char *span(const unsigned char *file, size_t len, uint64_t at, uint64_t n) {
    return at <= len && n <= len - at ? file + at : NULL;
}

static bool segment(const unsigned char *file, size_t len, uint32_t type, uint64_t address, Elf64_Phdr *out) {
    Elf64_Ehdr h;
    memcpy(&h, file, sizeof h);
    for (uint32_t i = 0; i < h.e_phnum; i++) {
        const unsigned char *p = span(file, len, h.e_phoff + (uint64_t)i * sizeof *out, sizeof *out);
        if (!p || h.e_phentsize != sizeof *out)
            return false;
        memcpy(out, p, sizeof *out);
        if (out->p_type == type &&
            (type != PT_LOAD || (address >= out->p_vaddr && address - out->p_vaddr < out->p_filesz)))
            return true;
    }
    return false;
}

int slurm_elf_needed(const unsigned char *file, size_t len, char *out, size_t room) {
    Elf64_Ehdr h;
    Elf64_Phdr dynamic, load;
    Elf64_Dyn d;
    uint64_t table = 0, size = 0;
    size_t used = 0;
    if (len < sizeof h || !room)
        return -ENOEXEC;
    memcpy(&h, file, sizeof h);
    out[0] = 0;
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        !segment(file, len, PT_DYNAMIC, 0, &dynamic))
        return -ENOEXEC;
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t at = 0; at + sizeof d <= dynamic.p_filesz; at += sizeof d) {
            const unsigned char *p = span(file, len, dynamic.p_offset + at, sizeof d);
            if (!p)
                return -ENOEXEC;
            memcpy(&d, p, sizeof d);
            if (d.d_tag == DT_NULL)
                break;
            if (!pass && d.d_tag == DT_STRTAB && segment(file, len, PT_LOAD, d.d_un.d_ptr, &load))
                table = load.p_offset + (d.d_un.d_ptr - load.p_vaddr);
            if (!pass && d.d_tag == DT_STRSZ)
                size = d.d_un.d_val;
            if (!pass || d.d_tag != DT_NEEDED || d.d_un.d_val >= size)
                continue;
            const unsigned char *name = span(file, len, table + d.d_un.d_val, 1);
            const unsigned char *end = name ? memchr(name, 0, len - (size_t)(name - file)) : NULL;
            if (!end || used + (size_t)(end - name) + 2 > room)
                return -ENOEXEC;
            memcpy(out + used, name, (size_t)(end - name));
            used += (size_t)(end - name);
            out[used++] = '\n';
            out[used] = 0;
        }
        if (!table || !size)
            return -ENOEXEC;
    }
    return 0;
}

static bool of_the_system(const char *name, size_t len) {
    static const char *const names[] = {
        "libc.so",        "libm.so",        "libpthread.so", "libdl.so",   "librt.so",      "libgcc_s.so",
        "libstdc++.so",   "libselinux.so",  "libacl.so",     "libattr.so", "libcap.so",     "libtinfo.so",
        "libz.so",        "libcrypto.so",   "libssl.so",     "libpcre",    "ld-linux",      "libgomp.so",
        "libgfortran.so", "libquadmath.so", "linux-vdso.so", "libproc",    "libsystemd.so", "libutil.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (len >= strlen(names[i]) && strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

enum mpi_program slurm_mpi_libraries(const char *text) {
    static const struct {
        const char *name;
        enum mpi_program kind;
    } known[] = {{"libmpi.so.40", MPI_PROGRAM_PMIX},   {"libmpi_mpifh.so", MPI_PROGRAM_PMIX},
                 {"libmpi_usempi", MPI_PROGRAM_PMIX},  {"libpmix.so", MPI_PROGRAM_PMIX},
                 {"libopen-rte", MPI_PROGRAM_PMIX},    {"libopen-pal", MPI_PROGRAM_PMIX},
                 {"libmpi.so.", MPI_PROGRAM_PMI},      {"libmpich.so", MPI_PROGRAM_PMI},
                 {"libmpicxx.so", MPI_PROGRAM_PMI},    {"libmpifort.so", MPI_PROGRAM_PMI},
                 {"libmpichfort.so", MPI_PROGRAM_PMI}, {"libpmi.so", MPI_PROGRAM_PMI},
                 {"libpmi2.so", MPI_PROGRAM_PMI},      {"libmvapich", MPI_PROGRAM_PMI}};
    enum mpi_program found = MPI_PROGRAM_NONE;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, " \t\n");
        // MPICH may use PMIx too, but names it behind its own library: the first that is known decides.
        for (size_t i = 0; i < sizeof known / sizeof *known && found == MPI_PROGRAM_NONE; i++)
            if (len >= strlen(known[i].name) && strncmp(p, known[i].name, strlen(known[i].name)) == 0)
                found = known[i].kind;
        p += len;
        p += strspn(p, " \t\n");
    }
    return found;
}

static bool all_of_the_system(const char *needed) {
    for (const char *p = needed; *p; p += strcspn(p, "\n") + 1)
        if (!of_the_system(p, strcspn(p, "\n")))
            return false;
    return true;
}

// --- the loader ---

static void ask_loader(const char *loader, const char *path, char *out, size_t room) {
    int end[2], status;
    size_t used = 0;
    out[0] = 0;
    if (pipe2(end, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, 0);
        dup2(end[1], 1);
        dup2(null, 2);
        execl(loader, loader, "--list", path, (char *)NULL);
        _exit(127);
    }
    close(end[1]);
    int64_t until = clock_mono_ms() + LOADER_PATIENCE_MS;
    for (struct pollfd p = {.fd = end[0], .events = POLLIN}; pid > 0 && used + 1 < room;) {
        int64_t left = until - clock_mono_ms();
        if (left <= 0 || poll(&p, 1, (int)left) <= 0)
            break;
        ssize_t n = read(end[0], out + used, room - 1 - used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    out[used] = 0;
    close(end[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
}

static enum mpi_program look(const unsigned char *file, size_t len, const char *path) {
    static char text[LIST_BYTES];
    char needed[NEEDED_BYTES], loader[PATH_LEN] = "";
    Elf64_Phdr interp;
    if (len < 4 || memcmp(file, ELFMAG, SELFMAG) != 0)
        return MPI_PROGRAM_UNKNOWN;
    if (slurm_elf_needed(file, len, needed, sizeof needed) < 0)
        return MPI_PROGRAM_UNKNOWN;  // linked statically: MPI may be inside
    enum mpi_program direct = slurm_mpi_libraries(needed);
    if (direct != MPI_PROGRAM_NONE)
        return direct;
    if (all_of_the_system(needed))
        return MPI_PROGRAM_NONE;
    const unsigned char *name = segment(file, len, PT_INTERP, 0, &interp) && interp.p_filesz < sizeof loader
                                    ? span(file, len, interp.p_offset, interp.p_filesz)
                                    : NULL;
    if (!name)
        return MPI_PROGRAM_UNKNOWN;
    memcpy(loader, name, interp.p_filesz);
    if (!strstr(loader, "ld-linux"))  // others would run the program
        return MPI_PROGRAM_UNKNOWN;
    ask_loader(loader, path, text, sizeof text);
    return *text ? slurm_mpi_libraries(text) : MPI_PROGRAM_UNKNOWN;
}

enum mpi_program slurm_mpi_program(const char *command) {
    char path[PATH_LEN];
    struct stat st;
    if (is_launcher(command))
        return MPI_PROGRAM_NONE;
    if (!find_command(command, path) || is_wrapper(path))
        return MPI_PROGRAM_UNKNOWN;
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(Elf64_Ehdr))
        return MPI_PROGRAM_UNKNOWN;
    void *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED)
        return MPI_PROGRAM_UNKNOWN;
    enum mpi_program kind = look(file, (size_t)st.st_size, path);
    munmap(file, (size_t)st.st_size);
    return kind;
}
