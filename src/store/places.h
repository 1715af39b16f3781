// Where a state is kept is one text: a folder (SQLite) or an address that begins with postgresql://. The functions of
// store.h that take one choose between these. Internal.
#pragma once
#include "store/store.h"

int sqlite_store_open(const struct store_config *config, struct store **out, struct error *e);
int sqlite_load_copy(const char *path, const struct store_loader *loader, uint64_t *last_seq,
                     struct error *e);
int sqlite_journal_copy(const char *path, uint64_t after, store_event_fn fn, void *ctx, struct error *e);

int pg_store_open(const struct store_config *config, struct store **out, struct error *e);
int pg_load_copy(const char *place, const struct store_loader *loader, uint64_t *last_seq, struct error *e);
int pg_journal_copy(const char *place, uint64_t after, store_event_fn fn, void *ctx, struct error *e);
