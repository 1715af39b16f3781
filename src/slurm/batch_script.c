// Owns batch scripts: where they come from, what is wrong with them, and their #SBATCH lines.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "submit_options.h"

enum { SCRIPT_MAX_BYTES = 4 << 20, LINE_WORDS_MAX = 128 };

static int read_all(struct slurm *s, int fd, const char *shown, struct script *out) {
    cleanup_buf struct buf b = {0};
    for (;;) {
        ssize_t n = read(fd, buf_reserve(&b, 65536), 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            slurm_error(s, "Unable to read %s: %s", shown, strerror(errno));
            return SLURM_FAILED;
        }
        if (!n)
            break;
        b.len += (size_t)n;
        b.data[b.len] = 0;
        if (b.len > SCRIPT_MAX_BYTES) {
            slurm_error(
                s, "Batch job submission failed: Job script size (%zu bytes) exceeds the limit of %d bytes",
                b.len, SCRIPT_MAX_BYTES);
            return SLURM_FAILED;
        }
    }
    out->len = b.len;
    out->text = arena_strndup(&s->cli.arena, buf_str(&b), b.len);
    return 0;
}

// In the working directory, then, like a command, along PATH.
static int open_script(struct slurm *s, const char *path, const char **found) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    *found = path;
    if (fd < 0 && !strchr(path, '/')) {
        const char *p = getenv("PATH");
        while (fd < 0 && p && *p) {
            size_t n = strcspn(p, ":");
            *found = arena_printf(&s->cli.arena, "%.*s/%s", (int)n, p, path);
            fd = open(*found, O_RDONLY | O_CLOEXEC);
            p += n + (p[n] == ':');
        }
    }
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {  // read as if nothing were in it
        close(fd);
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        slurm_error(s, "Unable to open file %s", path);
    return fd;
}

int slurm_script_read(struct slurm *s, const char *path, struct script *out) {
    *out = (struct script){0};
    if (!path)
        return read_all(s, STDIN_FILENO, "standard input", out);
    cleanup_close int fd = open_script(s, path, &out->path);
    return fd < 0 ? SLURM_FAILED : read_all(s, fd, path, out);
}

int slurm_script_wrap(struct slurm *s, const char *command, struct script *out) {
    out->text = arena_printf(&s->cli.arena, "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n%s\n", command);
    out->len = strlen(out->text);
    out->path = NULL;
    return 0;
}

int slurm_script_check(struct slurm *s, const struct script *script) {
    const char *wrong = NULL;
    if (!script->len)
        wrong = "Batch script is empty!";
    else if (strspn(script->text, " \t\r\n\v\f") == script->len)
        wrong = "Batch script contains only whitespace!";
    else if (strlen(script->text) != script->len)
        wrong = "The Slurm controller does not allow scripts that\nsbatch: error: contain the NULL character '\\0'.";
    else if (!str_has_prefix(script->text, "#!"))
        wrong = "This does not look like a batch script.  The first\nsbatch: error: line must start with #! "
                "followed by the path to an interpreter.\n"
                "sbatch: error: For instance: #!/bin/sh";
    else if (strstr(script->text, "\r\n"))
        wrong = "Batch script contains DOS line breaks (\\r\\n)\nsbatch: error: instead of expected UNIX "
                "line breaks (\\n).";
    if (!wrong)
        return 0;
    slurm_error(s, "%s", wrong);
    return SLURM_FAILED;
}

char *slurm_script_word(char **p) {
    char *s = *p + strspn(*p, " \t"), *out = s, *start = s;
    char quote = 0;
    if (!*s || *s == '#')
        return NULL;
    for (; *s && (quote || (*s != ' ' && *s != '\t')); s++) {
        if (*s == '\\' && s[1] && quote != '\'')
            *out++ = *++s;
        else if (!quote && (*s == '\'' || *s == '"'))
            quote = *s;
        else if (quote && *s == quote)
            quote = 0;
        else
            *out++ = *s;
    }
    *p = *s ? s + 1 : s;
    *out = 0;
    return start;
}

static int read_line(struct slurm *s, char *line, struct opts *out) {
    char *words[LINE_WORDS_MAX + 2], *word;
    int n = 1;
    words[0] = arena_strdup(&s->cli.arena, s->program);
    while ((word = slurm_script_word(&line)))
        if (n <= LINE_WORDS_MAX)
            words[n++] = word;
    words[n] = NULL;
    struct opts one;
    slurm_opts_init(&one, out->table, out->count, out->program);
    if (!slurm_opts_parse(&one, s, n, words, false))
        return SLURM_USAGE;
    slurm_opts_override(out, &one);
    return 0;
}

// "hetjob", or its old name: what follows is of another component of the job.
static bool is_separator(struct slurm *s, const char *line) {
    size_t blank = strspn(line, " \t"), len = strcspn(line + blank, " \t");
    bool old = len == 7 && !strncmp(line + blank, "packjob", len);
    if (old)
        fprintf(
            stderr,
            "%s: Warning: the \"packjob\" component separator is being deprecated. Please, use \"hetjob\" "
            "instead.\n",
            s->program);
    return old || (len == 6 && !strncmp(line + blank, "hetjob", len));
}

int slurm_script_options(struct slurm *s, const struct script *script, struct opts *out, uint32_t most,
                         uint32_t *count) {
    *count = 1;
    for (const char *p = script->text; *p;) {
        size_t len = strcspn(p, "\n"), blank = strspn(p, " \t\r");
        if (blank < len && p[blank] != '#')
            return 0;  // the first command: what comes later is no option
        if (str_has_prefix(p, "#SBATCH")) {
            char *line = arena_strndup(&s->cli.arena, p + 7, len - 7);
            line[strcspn(line, "\r")] = 0;
            bool next = is_separator(s, line);
            if (next && *count == most) {
                slurm_error(s, "too many components: a job has at most %u", most);
                return SLURM_FAILED;
            }
            int r = next ? 0 : read_line(s, line, &out[*count - 1]);
            if (r)
                return r;
            *count += next;
        }
        p += len + (p[len] == '\n');
    }
    return 0;
}
