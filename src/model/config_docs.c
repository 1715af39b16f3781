// Owns what is printed from the configuration's table: the file itself, its reference, its man page.
#include <string.h>

#include "base/text.h"
#include "model/config_table.h"

static void show_block(const struct config_section *s, const char *name, const void *value,
                       const struct config_block *given, bool defaults_too, struct buf *out) {
    buf_addf(out, "%s[%s%s%s]\n", out->len ? "\n" : "", s->word, name ? " " : "", name ? name : "");
    for (size_t i = 0; i < s->count; i++) {
        const struct config_key *k = &s->keys[i];
        bool written = false;
        for (uint32_t n = 0; given && n < given->entries.len; n++)
            written = written || given->entries.at[n].key == k;
        if (!written && (!defaults_too || !k->fallback))
            continue;
        buf_addf(out, "%s%s = ", written ? "" : "# ", k->name);
        config_value_format(k, value, out);
        buf_addc(out, '\n');
    }
}

// The parsed value of a block: the list entry of its name, or the one there is.
static const void *block_value(const struct config *c, const struct config_block *b) {
    const struct config_section *s = b->section;
    if (s->value_offset)
        return (const char *)c + s->value_offset;
    const struct any_list *list = (const void *)((const char *)c + s->list_offset);
    for (uint32_t i = 0; s->list_offset && i < list->len; i++) {
        const char *at = (const char *)list->at + i * s->size, *name;
        memcpy(&name, at + s->name_offset, sizeof name);
        if (streq(name, b->name))
            return at;
    }
    return NULL;
}

static void show_node(const struct config_block *b, bool defaults_too, struct buf *out) {
    cleanup_arena struct arena a = {0};
    struct config_node n;
    config_defaults(b->section, &a, &n);
    for (uint32_t i = 0; i < b->entries.len; i++)
        config_value_parse(b->entries.at[i].key, b->entries.at[i].text, NULL, &a, &n, NULL);
    show_block(b->section, b->name, &n, b, defaults_too, out);
}

void config_show(const struct config *c, bool defaults_too, struct buf *out) {
    const struct config_section *cluster = config_section_find("cluster");
    const struct config_block *given = NULL;
    for (uint32_t i = 0; i < c->blocks.len; i++)
        if (c->blocks.at[i].section == cluster)
            given = &c->blocks.at[i];
    if (given || defaults_too)
        show_block(cluster, NULL, &c->cluster, given, defaults_too, out);
    for (uint32_t i = 0; i < c->blocks.len; i++) {
        const struct config_block *b = &c->blocks.at[i];
        const void *value = block_value(c, b);
        if (b == given)
            continue;
        if (value)
            show_block(b->section, b->name, value, b, defaults_too, out);
        else
            show_node(b, defaults_too, out);
    }
}

static void json_block(const struct config_section *s, const void *value, struct json_writer *w) {
    json_open(w, '{');
    for (size_t i = 0; i < s->count; i++) {
        cleanup_buf struct buf text = {0};
        config_value_format(&s->keys[i], value, &text);
        json_kv_str(w, s->keys[i].name, buf_str(&text));
    }
    json_close(w, '}');
}

void config_show_json(const struct config *c, struct json_writer *w) {
    size_t count;
    const struct config_section *s = config_sections(&count);
    json_open(w, '{');
    json_key(w, "cluster");
    json_block(&s[0], &c->cluster, w);
    for (size_t i = 1; i < count; i++) {
        json_key(w, s[i].word);
        if (!s[i].name_help) {
            json_block(&s[i], (const char *)c + s[i].value_offset, w);
            continue;
        }
        json_open(w, '{');
        for (uint32_t b = 0; b < c->blocks.len; b++) {
            if (c->blocks.at[b].section != &s[i])
                continue;
            cleanup_arena struct arena a = {0};
            struct config_node node;
            const void *value = block_value(c, &c->blocks.at[b]);
            if (!value) {
                config_node(c, c->blocks.at[b].name, &a, &node);
                value = &node;
            }
            json_key(w, c->blocks.at[b].name);
            json_block(&s[i], value, w);
        }
        json_close(w, '}');
    }
    json_close(w, '}');
}

void config_reference_markdown(struct buf *out) {
    size_t count;
    const struct config_section *s = config_sections(&count);
    buf_adds(out,
             "# Configuration\n\n"
             "One file, `acequia.conf`: `/etc/acequia/acequia.conf` for a cluster run by root,\n"
             "`~/.config/acequia/acequia.conf` otherwise, `$ACEQUIA_HOME/acequia.conf` where that is set.\n"
             "Lines are `key = value` under `[section]` or `[section name]`; `#` begins a comment.\n"
             "`acequia config check` tells what is wrong with a file, `acequia config show` prints what holds.\n"
             "A file that is missing is an empty one: everything has a default.\n\n"
             "Sizes are written `512M` or `1.5T` (powers of 1024), durations `90s`, `8h` or `2-12:00:00` (a bare\n"
             "number is seconds), lists with commas. Unknown sections and keys are errors.\n");
    for (size_t i = 0; i < count; i++) {
        buf_addf(out, "\n## [%s%s]\n\n%s\n", s[i].word, s[i].name_help ? " NAME" : "", s[i].help);
        if (s[i].name_help)
            buf_addf(out, "NAME is %s.\n", s[i].name_help);
        buf_addf(out, "\n```ini\n%s```\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n",
                 s[i].example);
        for (size_t k = 0; k < s[i].count; k++) {
            const struct config_key *key = &s[i].keys[k];
            buf_addf(out, "| `%s` | %s | %s%s%s | %s |\n", key->name, config_type_text(key->type),
                     str_empty(key->fallback) ? "" : "`", str_empty(key->fallback) ? "–" : key->fallback,
                     str_empty(key->fallback) ? "" : "`", key->help);
        }
    }
}

// Text for roff: a leading dot, quotes and backslashes are made harmless.
static void add_roff(struct buf *out, const char *s) {
    if (*s == '.' || *s == '\'')
        buf_adds(out, "\\&");
    for (; *s; s++)
        buf_adds(out, *s == '\\' ? "\\\\" : *s == '-' ? "\\-" : (char[]){*s, 0});
}

void config_reference_man(struct buf *out) {
    size_t count;
    const struct config_section *s = config_sections(&count);
    buf_adds(out, ".SH DESCRIPTION\n"
                  "Lines are \\fIkey\\fR = \\fIvalue\\fR under [\\fIsection\\fR] or [\\fIsection name\\fR]; "
                  "# begins a comment. "
                  "A missing file is an empty one. Unknown sections and keys are errors; see \\fBacequia "
                  "config check\\fR.\n");
    for (size_t i = 0; i < count; i++) {
        buf_addf(out, ".SH [%s%s]\n", s[i].word, s[i].name_help ? " NAME" : "");
        add_roff(out, s[i].help);
        buf_addc(out, '\n');
        for (size_t k = 0; k < s[i].count; k++) {
            const struct config_key *key = &s[i].keys[k];
            buf_addf(out, ".TP\n\\fB%s\\fR (%s%s%s)\n", key->name, config_type_text(key->type),
                     str_empty(key->fallback) ? "" : ", default ", str_empty(key->fallback) ? "" : key->fallback);
            add_roff(out, key->help);
            buf_addc(out, '\n');
        }
        buf_adds(out, ".PP\nExample:\n.PP\n.nf\n");
        add_roff(out, s[i].example);
        buf_adds(out, ".fi\n");
    }
}

void config_default_file(struct buf *out) {
    buf_adds(out,
             "# Configuration of this Acequia cluster; see acequia.conf(5) or docs/configuration.md.\n"
             "# `acequia config check` tells whether it is right. Lines that begin with # show the defaults.\n\n"
             "[cluster]\n");
    const struct config_section *s = config_section_find("cluster");
    for (size_t i = 0; i < s->count; i++)
        if (s->keys[i].fallback)
            buf_addf(out, "# %s = %s\n", s->keys[i].name, s->keys[i].fallback);
    buf_adds(out,
             "\n# Pretended GPUs, to try sharing without having any:\n"
             "# [node *]\n# gpus = v100:8:32G\n# gpus_simulated = true\n");
}
