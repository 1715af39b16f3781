// Owns the reading of the configuration file: lines into blocks, blocks into structs.
#include "model/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "base/vec.h"
#include "model/config_table.h"
#include "model/name.h"
#include "model/nodelist.h"

struct config_reader {
    const struct config_source *source;
    struct config *c;
    uint32_t line;
    VEC(struct config_block) blocks;
    VEC(struct config_entry) entries;  // of the last block
    bool skips;                        // lines of a section that is a mistake itself
    bool failed;
};

static int at_line(const struct config_reader *r, struct error *e) {
    return error_prefix(e, "%s:%u", r->source->file, r->line);
}

// A mistake: the one who wants to hear of all of them is told, and reading goes on.
static int mistake(struct config_reader *r, struct error *e) {
    if (!r->source->on_mistake)
        return -e->code;
    at_line(r, e);
    r->source->on_mistake(r->source->ctx, r->line, e->text);
    r->failed = true;
    *e = (struct error){0};
    return 0;
}

// The best-matching word of a list for "did you mean", or NULL.
static const char *nearest(const char *word, const char *best, const char *candidate, unsigned *distance) {
    unsigned d = str_edit_distance(word, candidate);
    if (d < *distance) {
        *distance = d;
        return candidate;
    }
    return best;
}

static int unknown_section(const char *word, struct error *e) {
    char shown[64];
    size_t count;
    unsigned distance = 4;
    const struct config_section *s = config_sections(&count);
    const char *best = NULL;
    for (size_t i = 0; i < count; i++)
        best = nearest(word, best, s[i].word, &distance);
    if (best)
        return error_set(e, EINVAL, "there is no section [%s]; did you mean [%s]?",
                         str_printable(word, shown, sizeof shown), best);
    return error_set(
        e, EINVAL,
        "there is no section [%s]; there are cluster, policy, notify, portal, login, oidc, node, "
        "project, partition, qos and reservation",
        str_printable(word, shown, sizeof shown));
}

static int unknown_key(const struct config_section *s, const char *key, struct error *e) {
    char shown[64];
    unsigned distance = 5;
    const char *best = NULL;
    for (size_t i = 0; i < s->count; i++)
        best = nearest(key, best, s->keys[i].name, &distance);
    if (best)
        return error_set(e, EINVAL, "section [%s] has no key \"%s\"; did you mean \"%s\"?", s->word,
                         str_printable(key, shown, sizeof shown), best);
    return error_set(e, EINVAL, "section [%s] has no key \"%s\"; see acequia.conf(5)", s->word,
                     str_printable(key, shown, sizeof shown));
}

static void end_block(struct config_reader *r) {
    if (r->blocks.len) {
        struct config_block *b = &r->blocks.at[r->blocks.len - 1];
        b->entries.at = arena_memdup(&r->c->arena, r->entries.at, r->entries.len * sizeof *r->entries.at);
        b->entries.len = r->entries.len;
    }
    vec_clear(&r->entries);
}

static int check_block_name(struct config_reader *r, const struct config_section *s, const char *name,
                            struct error *e) {
    struct name_list names;
    if (!s->name_help && name)
        return error_set(e, EINVAL, "section [%s] takes no name; write [%s]", s->word, s->word);
    if (s->name_help && !name)
        return error_set(e, EINVAL, "section [%s] needs a name: [%s NAME], %s", s->word, s->word, s->name_help);
    for (uint32_t i = 0; i < r->blocks.len; i++)
        if (r->blocks.at[i].section == s && streq(r->blocks.at[i].name, name))
            return error_set(e, EINVAL, "section [%s%s%s] appears twice, first in line %u; merge the two",
                             s->word, name ? " " : "", name ? name : "", r->blocks.at[i].line);
    if (!name || (streq(s->word, "node") && streq(name, "*")))
        return 0;
    if (streq(s->word, "node"))
        return nodelist_expand(name, &r->c->arena, &names, e);
    return name_check(s->word, name, e);
}

static int open_block(struct config_reader *r, char *text, struct error *e) {
    size_t len = strlen(text);
    if (text[len - 1] != ']' || r->blocks.len >= CONFIG_SECTIONS_MAX)
        return error_set(e, EINVAL, "a section is written [word] or [word name] alone on its line");
    text[len - 1] = 0;
    char *word = text + 1 + strspn(text + 1, " \t"), *name = word + strcspn(word, " \t");
    if (*name)
        *name++ = 0;
    name += strspn(name, " \t");
    size_t n = strlen(name);
    while (n && (name[n - 1] == ' ' || name[n - 1] == '\t'))
        name[--n] = 0;
    const struct config_section *s = config_section_find(word);
    if (!s)
        return unknown_section(word, e);
    int c = check_block_name(r, s, *name ? name : NULL, e);
    if (c < 0)
        return c;
    end_block(r);
    struct config_block b = {.section = s, .name = *name ? arena_strdup(&r->c->arena, name) : NULL, .line = r->line};
    vec_push(&r->blocks, b);
    return 0;
}

static int add_entry(struct config_reader *r, char *text, struct error *e) {
    char *equals = strchr(text, '=');
    if (r->skips)
        return 0;
    if (!r->blocks.len)
        return error_set(e, EINVAL, "\"%.40s\" comes before any section; begin with [cluster]", text);
    const struct config_section *s = r->blocks.at[r->blocks.len - 1].section;
    if (!equals)
        return error_set(e, EINVAL, "\"%.40s\" is not understood; write key = value", text);
    size_t n = (size_t)(equals - text);
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    text[n] = 0;
    const struct config_key *key = NULL;
    for (size_t i = 0; i < s->count; i++)
        if (streq(s->keys[i].name, text))
            key = &s->keys[i];
    if (!key)
        return unknown_key(s, text, e);
    for (uint32_t i = 0; i < r->entries.len; i++)
        if (r->entries.at[i].key == key)
            return error_set(e, EINVAL, "\"%s\" is set twice, first in line %u; keep one", key->name,
                             r->entries.at[i].line);
    char *value = equals + 1 + strspn(equals + 1, " \t");
    struct config_entry entry = {key, arena_strdup(&r->c->arena, value), r->line};
    vec_push(&r->entries, entry);
    return 0;
}

// Cuts the comment and the blanks around a line.
static char *trim(char *line) {
    line += strspn(line, " \t");
    if (*line == ';')
        *line = 0;
    for (char *p = line; (p = strchr(p, '#')); p++)
        if (p == line || p[-1] == ' ' || p[-1] == '\t') {
            *p = 0;
            break;
        }
    size_t n = strlen(line);
    while (n && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r'))
        line[--n] = 0;
    return line;
}

static int read_lines(struct config_reader *r, const char *text, size_t len, struct error *e) {
    cleanup_free char *line = xmalloc(CONFIG_LINE_MAX + 1);
    for (const char *p = text, *end = text + len; p < end; r->line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((stop ? stop : end) - p);
        bool fits = n <= CONFIG_LINE_MAX;
        memcpy(line, p, fits ? n : 0);
        line[fits ? n : 0] = 0;
        char *s = trim(line);
        int c = !fits       ? error_set(e, EINVAL, "the line is longer than %d bytes", CONFIG_LINE_MAX)
                : *s == '[' ? open_block(r, s, e)
                : *s        ? add_entry(r, s, e)
                            : 0;
        if (*s == '[')
            r->skips = c < 0;
        if (c < 0 && (c = mistake(r, e)) < 0)
            return c;
        p += n + 1;
    }
    end_block(r);
    return 0;
}

static int apply_block(struct config_reader *r, const struct config_block *b, void *target, struct error *e) {
    for (uint32_t i = 0; i < b->entries.len; i++) {
        const struct config_entry *entry = &b->entries.at[i];
        int c = config_value_parse(entry->key, entry->text, r->source, &r->c->arena, target, e);
        if (c < 0) {
            r->line = entry->line;
            error_prefix(e, "%s", entry->key->name);
            if ((c = mistake(r, e)) < 0)
                return c;
        }
    }
    return 0;
}

// Fills the list of one kind of section (projects, partitions, …).
static int fill_list(struct config_reader *r, const struct config_section *s, struct error *e) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->blocks.len; i++)
        count += r->blocks.at[i].section == s;
    struct any_list *list = (void *)((char *)r->c + s->list_offset);
    list->at = arena_alloc(&r->c->arena, (count ? count : 1) * s->size);
    for (uint32_t i = 0; i < r->blocks.len; i++) {
        const struct config_block *b = &r->blocks.at[i];
        if (b->section != s)
            continue;
        char *at = (char *)list->at + list->len++ * s->size;
        config_defaults(s, &r->c->arena, at);
        memcpy(at + s->name_offset, &b->name, sizeof b->name);
        int c = apply_block(r, b, at, e);
        if (c < 0)
            return c;
    }
    return 0;
}

static int check_whole(const struct config *c, struct config_reader *r, struct error *e) {
    r->line = 1;
    if (c->cluster.heartbeat_s * 2 > c->cluster.node_timeout_s)
        return error_set(e, EINVAL, "heartbeat (%us) must be at most half of node_timeout (%us)",
                         c->cluster.heartbeat_s, c->cluster.node_timeout_s);
    for (uint32_t i = 0; i < c->oidc.len; i++)
        if (str_empty(c->oidc.at[i].issuer) || str_empty(c->oidc.at[i].client_id))
            return error_set(e, EINVAL, "section [oidc %s] needs issuer and client_id", c->oidc.at[i].name);
    for (uint32_t i = 0; i < c->reservations.len; i++)
        if (c->reservations.at[i].end_ms <= c->reservations.at[i].start_ms)
            return error_set(e, EINVAL, "reservation \"%s\" must end after it starts; set start and end",
                             c->reservations.at[i].name);
    return 0;
}

static int interpret(struct config_reader *r, struct error *e) {
    size_t count;
    const struct config_section *s = config_sections(&count);
    struct config_node scratch;
    int c = 0;
    r->c->blocks.at = arena_memdup(&r->c->arena, r->blocks.at, r->blocks.len * sizeof *r->blocks.at);
    r->c->blocks.len = r->blocks.len;
    for (size_t i = 0; i < count; i++)
        if (s[i].value_offset)
            config_defaults(&s[i], &r->c->arena, (char *)r->c + s[i].value_offset);
    for (uint32_t i = 0; c == 0 && i < r->blocks.len; i++) {
        const struct config_section *section = r->blocks.at[i].section;
        if (section->value_offset)
            c = apply_block(r, &r->blocks.at[i], (char *)r->c + section->value_offset, e);
        else if (!r->blocks.at[i].section->list_offset) {
            config_defaults(r->blocks.at[i].section, &r->c->arena, &scratch);
            c = apply_block(r, &r->blocks.at[i], &scratch, e);
        }
    }
    for (size_t i = 0; c == 0 && i < count; i++)
        if (s[i].list_offset)
            c = fill_list(r, &s[i], e);
    return c < 0 ? c : check_whole(r->c, r, e);
}

int config_parse(const char *text, size_t len, const struct config_source *source, struct config *out,
                 struct error *e) {
    struct config c = {0};
    struct config_reader r = {.source = source, .c = &c, .line = 1};
    int result = 0;
    if (len > CONFIG_BYTES_MAX)
        result = error_set(e, EFBIG, "the file has %zu bytes; at most %d are read", len, CONFIG_BYTES_MAX);
    else if (!str_utf8_valid(text, len) || memchr(text, 0, len))
        result = error_set(e, EINVAL, "the file is not UTF-8 text");
    if (result == 0)
        result = read_lines(&r, text, len, e);
    if (result == 0)
        result = interpret(&r, e);
    if (result < 0 && (result = mistake(&r, e)) < 0)
        at_line(&r, e);
    if (result == 0 && r.failed)
        result = error_set(e, EINVAL, "%s is not valid", source->file);
    vec_done(&r.blocks);
    vec_done(&r.entries);
    if (result < 0)
        config_done(&c);
    else
        *out = c;
    return result;
}

int config_load(const char *path, int64_t now_ms, int32_t zone_offset_s, struct config *out, struct error *e) {
    return config_load_from(&(struct config_source){path, now_ms, zone_offset_s, NULL, NULL}, out, e);
}

int config_load_from(const struct config_source *source, struct config *out, struct error *e) {
    const char *path = source->file;
    cleanup_buf struct buf text = {0};
    if (!path)
        return error_set(e, EINVAL, "there is no configuration file to read");
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return error_set(e, errno, "cannot read %s: %s", path, strerror(errno));
    while (fd >= 0 && text.len <= CONFIG_BYTES_MAX) {
        ssize_t n = read(fd, buf_reserve(&text, 65536), 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, errno, "cannot read %s: %s", path, strerror(errno));
        if (n == 0)
            break;
        text.len += (size_t)n;
        text.data[text.len] = 0;
    }
    return config_parse(buf_str(&text), text.len, source, out, e);
}

void config_done(struct config *c) {
    arena_done(&c->arena);
    memset(c, 0, sizeof *c);
}

static bool block_names(const struct config_block *b, const char *node) {
    cleanup_arena struct arena a = {0};
    struct name_list names;
    if (nodelist_expand(b->name, &a, &names, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < names.len; i++)
        if (streq(names.at[i], node))
            return true;
    return false;
}

void config_node(const struct config *c, const char *node, struct arena *a, struct config_node *out) {
    const struct config_section *s = config_section_find("node");
    config_defaults(s, a, out);
    for (int named = 0; named < 2; named++)
        for (uint32_t i = 0; i < c->blocks.len; i++) {
            const struct config_block *b = &c->blocks.at[i];
            if (b->section != s || streq(b->name, "*") == named || (named && !block_names(b, node)))
                continue;
            for (uint32_t k = 0; k < b->entries.len; k++) {
                int r = config_value_parse(b->entries.at[k].key, b->entries.at[k].text, NULL, a, out, NULL);
                assert(r == 0);  // it was parsed once already
            }
        }
}
