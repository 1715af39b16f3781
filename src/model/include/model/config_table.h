// The declaration of the configuration's sections and keys, for the files that work on it.
#pragma once
#include <stddef.h>

#include "model/config.h"

enum config_type {
    CONFIG_TEXT,        // const char *
    CONFIG_IDENTIFIER,  // const char *
    CONFIG_ADDRESS,     // const char *, "ADDRESS:PORT" or empty
    CONFIG_ADDRESSES,   // const char *, such ones divided by commas
    CONFIG_NODES,       // const char *, a node list
    CONFIG_BOOL,
    CONFIG_U32,
    CONFIG_I32,
    CONFIG_DOUBLE,
    CONFIG_SIZE,      // uint64_t bytes
    CONFIG_SHARE,     // uint64_t bytes; "share": UINT64_MAX, "none": 0
    CONFIG_SECONDS,   // uint32_t; a bare number is seconds
    CONFIG_SPAN,      // uint32_t seconds; 0 is nothing, not endless
    CONFIG_WORD,      // an enum: one of the key's words
    CONFIG_TIME,      // int64_t ms
    CONFIG_MILLIGPU,  // uint32_t
    CONFIG_QUOTA,     // uint32_t milli-GPU; "rest": PROJECT_QUOTA_ALL
    CONFIG_LEVEL,     // enum log_level
    CONFIG_AUDIT,     // enum gpu_audit
    CONFIG_NAMES,     // LIST(const char *) of identifiers
    CONFIG_QUOTAS,    // LIST(const char *) of MODEL=GPUS
    CONFIG_GPUS,      // LIST(struct config_gpus)
    CONFIG_TYPE_COUNT
};

struct config_key {
    const char *name;
    enum config_type type;
    uint16_t offset;
    uint16_t given_offset;  // of a bool that tells the key was given; 0: none
    const struct schema
        *limit_of;          // a limit: of the struct it is in, which keeps presence (entity_has); NULL: none
    const char *fallback;   // as it would be written; NULL: zero
    double low, high;       // of numbers; both 0: unchecked
    const char *const *words;  // of CONFIG_WORD, ends in NULL
    const char *help;
};

struct config_section {
    const char *word;
    const char *name_help;  // what its name stands for; NULL: the section has no name
    const struct config_key *keys;
    size_t count;
    size_t size;          // of the struct it fills
    size_t list_offset;   // of the list of it in struct config; 0: not a list
    uint16_t name_offset; // of the name in that struct
    const char *help;
    const char *example;
    size_t value_offset;  // of a section that there is only one of: its struct in struct config; 0: another kind
};

const struct config_section *config_sections(size_t *count);
const struct config_section *config_section_find(const char *word);
const char *config_type_text(enum config_type type);  // "a size such as 64G"

// Parses `text` into the key's place in `target`; parts land in the arena.
int config_value_parse(const struct config_key *k, const char *text, const struct config_source *source,
                       struct arena *a, void *target, struct error *e);
bool config_value_given(const struct config_key *k, const void *target);  // false: a limit that is not set
void config_value_format(const struct config_key *k, const void *target, struct buf *out);
void config_defaults(const struct config_section *s, struct arena *a, void *target);
