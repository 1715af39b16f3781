// Owns requests for further ranks. All of it is the user's: what is too large or cannot be passed on is refused.
#include "mpi/spawn.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mpi/pmi.h"

void spawn_group_done(struct spawn_group *g) {
    for (uint32_t i = 0; i < g->commands.len; i++)
        vec_done(&g->commands.at[i].argv);
    vec_done(&g->commands);
    buf_done(&g->values);
    arena_done(&g->arena);
    *g = (struct spawn_group){0};
}

static struct spawn_command *last(struct spawn_group *g) {
    return g->commands.len ? &g->commands.at[g->commands.len - 1] : NULL;
}

static const char *add_command(struct spawn_group *g) {
    if (g->commands.len >= SPAWN_COMMANDS_MAX)
        return "too_many_programs";
    vec_push(&g->commands, (struct spawn_command){0});
    return NULL;
}

static const char *add_argument(struct spawn_group *g, const char *value) {
    struct spawn_command *c = last(g);
    if (!c)
        return "an_argument_without_a_program";
    if (c->argv.len >= SPAWN_ARGUMENTS_MAX)
        return "too_many_arguments";
    vec_push(&c->argv, arena_strdup(&g->arena, value));
    return NULL;
}

static const char *set_ranks(struct spawn_group *g, const char *value) {
    uint32_t n;
    if (!last(g) || parse_u32(value, &n) < 0 || !n || n > SPAWN_RANKS_MAX)
        return "no_such_number_of_processes";
    last(g)->ranks = n;
    return NULL;
}

static const char *put_value(struct spawn_group *g, const char *key, const char *value) {
    size_t k = strlen(key), v = strlen(value);
    if (!k || k > PMI_KEY_MAX || v > PMI_VALUE_MAX || strpbrk(key, "=\n") || strchr(value, '\n'))
        return "a_value_cannot_be_passed_on";
    buf_addf(&g->values, "%s=%s\n", key, value);
    return NULL;
}

static const char *take_info(struct spawn_group *g, const char *key, const char *value) {
    if (last(g) && (streq(key, "wdir") || streq(key, "wd")))
        last(g)->folder = arena_strdup(&g->arena, value);
    return NULL;  // of the others a program may not depend
}

// Words that come for all commands go with the first only: what is put is for all.
static const char *pair(struct spawn_group *g, const char *word, const char *key_head, const char *value_head,
                        const char *value, bool info) {
    if (str_has_prefix(word, key_head)) {
        g->value_key = arena_strdup(&g->arena, value);
        return NULL;
    }
    if (!str_has_prefix(word, value_head) || !g->value_key)
        return "a_value_without_a_name";
    const char *key = g->value_key;
    g->value_key = NULL;
    if (info)
        return take_info(g, key, value);
    return g->commands.len > 1 ? NULL : put_value(g, key, value);
}

static const char *counted(struct spawn_group *g, const char *key, const char *value) {
    g->bytes += strlen(key) + strlen(value) + 2;
    return g->bytes > SPAWN_BYTES_MAX ? "the_request_is_too_long" : NULL;
}

const char *spawn_word1(struct spawn_group *g, const char *key, const char *value) {
    const char *wrong = counted(g, key, value);
    if (wrong)
        return wrong;
    if (streq(key, "mcmd"))
        return add_command(g);
    if (streq(key, "nprocs"))
        return set_ranks(g, value);
    if (streq(key, "execname"))
        return add_argument(g, value);
    if (streq(key, "totspawns"))
        return parse_u32(value, &g->announced) < 0 ? "no_such_number_of_programs" : NULL;
    if (str_has_prefix(key, "preput_key_") || str_has_prefix(key, "preput_val_"))
        return pair(g, key, "preput_key_", "preput_val_", value, false);
    if (str_has_prefix(key, "info_key_") || str_has_prefix(key, "info_val_"))
        return pair(g, key, "info_key_", "info_val_", value, true);
    if (str_has_prefix(key, "arg") && key[3] >= '0' && key[3] <= '9')
        return add_argument(g, value);
    return NULL;  // counts
}

const char *spawn_word2(struct spawn_group *g, const char *key, const char *value) {
    const char *wrong = counted(g, key, value);
    if (wrong)
        return wrong;
    if (streq(key, "ncmds"))
        return parse_u32(value, &g->announced) < 0 ? "no_such_number_of_programs" : NULL;
    if (streq(key, "subcmd"))
        return (wrong = add_command(g)) ? wrong : add_argument(g, value);
    if (streq(key, "maxprocs"))
        return set_ranks(g, value);
    if (str_has_prefix(key, "ppkey") || str_has_prefix(key, "ppval"))
        return pair(g, key, "ppkey", "ppval", value, false);
    if (streq(key, "infokeycount"))
        return NULL;
    if (str_has_prefix(key, "infokey") || str_has_prefix(key, "infoval"))
        return pair(g, key, "infokey", "infoval", value, true);
    if (str_has_prefix(key, "argv"))
        return add_argument(g, value);
    return NULL;
}

bool spawn_is_complete(const struct spawn_group *g) {
    return g->commands.len >= g->announced;
}

uint32_t spawn_ranks(const struct spawn_group *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->commands.len; i++)
        n += g->commands.at[i].ranks;
    return n;
}

const char *spawn_check(const struct spawn_group *g) {
    for (uint32_t i = 0; i < g->commands.len; i++)
        if (!g->commands.at[i].ranks || !g->commands.at[i].argv.len || !*g->commands.at[i].argv.at[0])
            return "a_program_or_its_number_of_processes_is_missing";
    return !g->commands.len                    ? "there_is_no_program_in_it"
           : spawn_ranks(g) > SPAWN_RANKS_MAX ? "too_many_processes"
                                              : NULL;
}

void spawn_variable(const struct spawn_group *g, struct buf *out) {
    for (uint32_t i = 0; i < g->commands.len; i++)
        buf_addf(out, "%s%u", i ? "," : "", g->commands.at[i].ranks);
    buf_addc(out, '\n');
    buf_add(out, g->values.data, g->values.len);
}

static void quote(struct buf *out, const char *text) {
    buf_addc(out, '\'');
    for (; *text; text++)
        if (*text == '\'')
            buf_adds(out, "'\\''");
        else
            buf_addc(out, *text);
    buf_addc(out, '\'');
}

void spawn_script(const struct spawn_group *g, struct buf *out) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < g->commands.len; i++) {
        const struct spawn_command *c = &g->commands.at[i];
        end += c->ranks;
        buf_addf(out, "if [ $SLURM_PROCID -lt %u ]; then ", end);
        if (c->folder) {
            buf_adds(out, "cd ");
            quote(out, c->folder);
            buf_adds(out, " || exit 1; ");
        }
        buf_adds(out, "exec");
        for (uint32_t k = 0; k < c->argv.len; k++) {
            buf_addc(out, ' ');
            quote(out, c->argv.at[k]);
        }
        buf_adds(out, "; fi\n");
    }
}

bool spawn_read(const char *text, uint32_t size, uint32_t *program_of_rank, spawn_value_fn *each, void *ctx) {
    const char *line = strchr(text, '\n'), *p = text;
    uint32_t rank = 0;
    if (!line)
        return false;
    for (uint32_t program = 0; p < line; program++) {
        char *end;
        unsigned long n = strtoul(p, &end, 10);
        if (end == p || (*end != ',' && *end != '\n') || !n || n > size - rank)
            return false;
        for (; n; n--)
            program_of_rank[rank++] = program;
        p = end + (*end == ',');
    }
    if (rank != size)
        return false;
    for (line++; *line;) {
        size_t len = strcspn(line, "\n"), key = strcspn(line, "=\n");
        if (line[len] != '\n' || line[key] != '=' || !key || key > PMI_KEY_MAX || len - key - 1 > PMI_VALUE_MAX ||
            !each(ctx, line, key, line + key + 1, len - key - 1))
            return false;
        line += len + 1;
    }
    return true;
}
