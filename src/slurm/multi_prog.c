// srun --multi-prog: a file that says which tasks run which program becomes a shell's case.
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "submit_options.h"
#include "multi_prog.h"

enum { CONFIG_MAX = 1 << 20, RANKS_MAX = 65536 };

struct ranks {
    struct slurm *s;
    bool *has;        // RANKS_MAX of them
    bool all;         // a line for "*"
    uint32_t count;   // highest rank that is named, and one
};

// The words of one line as an exec; %t is the rank, %o its place among those of the line.
static void put_command(struct buf *out, char *line, const char *offset) {
    char *word;
    buf_adds(out, ") exec");
    while ((word = slurm_script_word(&line))) {
        buf_adds(out, " '");
        for (; *word; word++) {
            if (*word == '%' && (word[1] == 't' || word[1] == 'o')) {
                buf_addf(out, "'\"%s\"'", word[1] == 't' ? "${SLURM_PROCID}" : offset);
                word++;
            } else if (*word == '\'') {
                buf_adds(out, "'\\''");
            } else {
                buf_addc(out, *word);
            }
        }
        buf_addc(out, '\'');
    }
    buf_adds(out, ";;\n");
}

static bool put_range(struct ranks *r, struct buf *out, unsigned long first, unsigned long last,
                      unsigned long base, const char *command) {
    cleanup_free char *copy = xstrdup(command);
    if (last < first || last >= RANKS_MAX)
        return false;
    for (unsigned long n = first; n <= last; n++) {
        buf_addf(out, "%s%lu", n == first ? "" : "|", n);
        r->has[n] = true;
    }
    r->count = last + 1 > r->count ? (uint32_t)last + 1 : r->count;
    put_command(out, copy, arena_printf(&r->s->cli.arena, "$((SLURM_PROCID-%lu))", first - base));
    return true;
}

// False: the ranks are not understood.
static bool put_line(struct ranks *r, char *line, struct buf *out, const char **ranks) {
    char *p = slurm_script_word(&line);
    unsigned long base = 0;
    *ranks = p;
    if (!p)
        return true;
    if (streq(p, "*")) {
        cleanup_free char *copy = xstrdup(line);
        buf_addc(out, '*');
        put_command(out, copy, "${SLURM_PROCID}");
        r->all = true;
        return true;
    }
    while (*p) {
        char *end;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (!isdigit((unsigned char)*p) || (*end == '-' && !isdigit((unsigned char)end[1])))
            return false;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if ((*end && *end != ',') || !put_range(r, out, first, last, base, line))
            return false;
        base += last - first + 1;
        p = end + (*end == ',');
    }
    return true;
}

static int make_script(struct ranks *r, const char *path, char *text, struct buf *script) {
    int number = 1;
    buf_adds(script, "case $SLURM_PROCID in\n");
    for (char *p = text; p && *p; number++) {
        const char *ranks;
        char *end = strchr(p, '\n');
        while (end && end > p && end[-1] == '\\') {  // the line goes on
            end[-1] = *end = ' ';
            end = strchr(end, '\n');
        }
        if (end)
            *end = 0;
        if (!put_line(r, p, script, &ranks)) {
            slurm_error(r->s, "Invalid task range specification (%s)", ranks);
            slurm_error(r->s, "Line %d of configuration file %s invalid", number, path);
            return SLURM_FAILED;
        }
        p = end ? end + 1 : NULL;
    }
    buf_adds(script, "esac\n");
    return 0;
}

int slurm_multi_prog(struct slurm *s, const char *path, uint32_t *tasks, const char **script) {
    cleanup_buf struct buf out = {0}, text = {0};
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    cleanup_free bool *has = xcalloc(RANKS_MAX, sizeof *has);
    struct ranks r = {.s = s, .has = has};
    ssize_t n = fd < 0 ? -1 : read(fd, buf_reserve(&text, CONFIG_MAX), CONFIG_MAX);
    if (n < 0) {
        slurm_error(s, "Could not open multi_prog config file %s", path);
        return SLURM_FAILED;
    }
    text.len = (size_t)n;
    text.data[n] = 0;
    int status = make_script(&r, path, text.data, &out);
    if (status)
        return status;
    if (!*tasks)
        *tasks = r.count;
    for (uint32_t i = 0; !r.all && i < *tasks; i++)
        if (i >= RANKS_MAX || !r.has[i]) {
            slurm_error(s, "Configuration file %s invalid, no record for task id %u", path, i);
            return SLURM_FAILED;
        }
    *script = arena_strdup(&s->cli.arena, buf_str(&out));
    return 0;
}
