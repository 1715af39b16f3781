// Folders and Python packages that go with a job (--upload, --requirements): the job's script becomes one that unpacks
// and installs them on its node (python/acequia/upload_program.txt), with the job's own script or command behind it.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/job/options.h"
#include "verbs.h"

enum {
    FOLDER_BYTES_MAX = 3 << 20,  // compressed; the cluster takes 4 MiB of text (max_script)
    REQUIREMENTS_BYTES_MAX = 256 << 10,
    LINE_BYTES = 57,  // of data, in a line of 76 characters
};

extern const char verb_upload_program[];

static void add_base64(struct buf *out, const uint8_t *data, size_t len) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        uint32_t left = len - i < 3 ? (uint32_t)(len - i) : 3;
        uint32_t three = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                         (left > 2 ? data[i + 2] : 0);
        for (uint32_t k = 0; k < 4; k++)
            buf_addc(out, k > left ? '=' : digits[three >> (18 - 6 * k) & 63]);
        if ((i + 3) % LINE_BYTES == 0)
            buf_addc(out, '\n');
    }
    buf_addc(out, '\n');
}

static void add_part(struct buf *out, const char *name, const void *data, size_t len) {
    buf_addf(out, "#ACEQUIA-%s\n", name);
    add_base64(out, data, len);
    buf_adds(out, "#ACEQUIA-END\n");
}

static int read_up_to(struct cli *c, int fd, size_t most, struct buf *out, const char *what) {
    for (;;) {
        ssize_t n = read(fd, buf_reserve(out, 64 << 10), (64 << 10) - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(&c->error, errno, "%s cannot be read: %s", what, strerror(errno));
        if (n == 0)
            return 0;
        out->len += (size_t)n;
        if (out->len > most)
            return error_set(&c->error, E2BIG,
                             "%s is too large to go with a job: at most %zu KiB (of a folder compressed). Name "
                             "what is not needed in .acequiaignore, and put data into a volume",
                             what, most >> 10);
    }
}

// The same bytes for the same files, as far as tar allows.
static void run_tar(const char *folder, int out) {
    static const char *const fixed[] = {"tar",
                                        "--create",
                                        "--use-compress-program=gzip -n",
                                        "--sort=name",
                                        "--mtime=@0",
                                        "--owner=0",
                                        "--group=0",
                                        "--numeric-owner",
                                        "--exclude-vcs",
                                        "--exclude-ignore-recursive=.acequiaignore",
                                        "--exclude=__pycache__",
                                        "--exclude=.venv",
                                        "--exclude=venv",
                                        "--exclude=node_modules",
                                        "--exclude=.mypy_cache",
                                        "--exclude=.pytest_cache",
                                        "--exclude=.ipynb_checkpoints",
                                        "--exclude=acequia-*.out",
                                        "--exclude-vcs-ignores",
                                        "--directory"};
    enum { FIXED = sizeof fixed / sizeof *fixed };
    const char *argv[FIXED + 3] = {0};
    memcpy(argv, fixed, sizeof fixed);
    argv[FIXED] = folder;
    argv[FIXED + 1] = ".";
    dup2(out, STDOUT_FILENO);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "acequia: tar cannot be run: %s\n", strerror(errno));
    _exit(127);
}

static int pack(struct cli *c, const char *folder, struct buf *out) {
    int ends[2], status = 0;
    struct stat st;
    if (stat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
        return error_set(&c->error, ENOTDIR, "--upload %s: it is not a folder", folder);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(&c->error, errno, "the folder cannot be packed: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        run_tar(folder, ends[1]);
    close(ends[1]);
    int r = child < 0 ? error_set(&c->error, errno, "the folder cannot be packed: %s", strerror(errno))
                      : read_up_to(c, ends[0], FOLDER_BYTES_MAX, out, folder);
    close(ends[0]);
    if (child > 0)
        waitpid(child, &status, 0);
    if (r == 0 && status != 0)
        r = error_set(&c->error, EIO, "--upload %s: tar has failed", folder);
    return r;
}

static void add_program(struct buf *out, bool script) {
    mode_t mask = umask(022);
    umask(mask);
    for (const char *at = verb_upload_program; *at;) {
        const char *mark = strchr(at, '@'), *end = mark ? strchr(mark + 1, '@') : NULL;
        if (!end) {
            buf_adds(out, at);
            break;
        }
        buf_add(out, at, (size_t)(mark - at));
        size_t n = (size_t)(end - mark) + 1;
        at = end + 1;
        if (n == 8 && memcmp(mark, "@PYTHON@", n) == 0)
            buf_adds(out, "python3");
        else if (n == 7 && memcmp(mark, "@UMASK@", n) == 0)
            buf_addf(out, "%03o", (unsigned)mask);
        else if (n == 6 && memcmp(mark, "@KIND@", n) == 0)
            buf_adds(out, script ? "script" : "command");
        else if (n != 6 || memcmp(mark, "@HASH@", n) != 0) {  // the folder's hash is found on the node
            buf_add(out, mark, n - 1);
            at = end;  // it may begin another
        }
    }
    buf_adds(out, "exit\n");
}

int verb_upload(struct cli *c, struct job_source *source) {
    const char *folder = option_get(&c->options, "upload"), *list = option_get(&c->options, "requirements");
    cleanup_buf struct buf packed = {0}, packages = {0}, script = {0}, text = {0};
    if (!folder && !list)
        return 0;
    if (!source->script && !source->argc)
        return error_set(&c->error, EINVAL, "--upload: give a command or a script");
    cleanup_close int fd = list ? open(list, O_RDONLY | O_CLOEXEC) : -1;
    if (list && fd < 0)
        return error_set(&c->error, errno, "--requirements %s: %s", list, strerror(errno));
    if ((list && read_up_to(c, fd, REQUIREMENTS_BYTES_MAX, &packages, list) < 0) ||
        (folder && pack(c, folder, &packed) < 0))
        return -1;
    add_program(&script, source->script);
    add_part(&script, "PROGRAM", source->script ? source->script : "", source->script ? source->script_len : 0);
    add_part(&text, "FOLDER", packed.data, packed.len);
    add_part(&text, "PACKAGES", packages.data, packages.len);
    source->script_len = script.len;
    source->script = arena_memdup(&c->arena, script.data, script.len);
    source->upload_len = text.len;
    source->upload = arena_memdup(&c->arena, text.data, text.len);
    return 0;
}
