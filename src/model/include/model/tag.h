// Tags of jobs: a word ("exp1") or a key with a value ("team=vision"). A job has one tag of each key.
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/schema.h"

enum { TAGS_MAX = 32, TAG_KEY_MAX = 63, TAG_VALUE_MAX = 127 };

struct tag_list {
    const char **at;
    uint32_t len;
};

int tag_check(const char *tag, struct error *e);
// Tags with changes made to them, in order: "exp1" and "team=vision" add a tag or replace the one of the same key,
// "-exp1" removes it, "-" removes all. Texts are shared, the list is in the arena.
int tags_change(const struct tag_list *tags, const struct tag_list *changes, struct arena *a,
                struct tag_list *out, struct error *e);
