// What the parts of a user's folder for images share: locks, marks of use, sizes, small files.
#pragma once
#include "base/buf.h"
#include "box/box.h"

struct box_cache {
    const char *folder, *image;  // image: as the user wrote it
    struct arena *a;
};

const char *box_cache_path(const struct box_cache *c, const char *folder, const char *name);
int box_cache_folders(const struct box_cache *c, struct error *e);
// A descriptor that holds the lock. Whoever waits long is told for `what` ("image", "container"); NULL: is not told.
int box_cache_lock(const struct box_cache *c, const char *name, const char *what, struct error *e);
const char *box_cache_hash(const char *text, struct arena *a);
bool box_cache_read(const char *path, struct buf *out, size_t max);                  // a small file
int box_cache_write(const struct box_cache *c, const char *path, const char *text);  // whole or not at all
uint64_t box_cache_size(const struct box_cache *c, const char *folder);
// Marks of processes below FOLDER/use. How many of them live; marks of those that have ended are cleared.
uint32_t box_cache_users(const struct box_cache *c, const char *folder);
bool box_cache_use(const struct box_cache *c, const char *folder);  // for as long as this process lives
// The digest that a name or file was last found to mean; NULL: none.
const char *box_cache_known(const struct box_cache *c, const struct box_source *s);
// Moves a folder aside, then removes it: nobody sees half of it.
int box_cache_discard(const struct box_cache *c, const char *folder, const char *name, struct error *e);
