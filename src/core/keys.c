// Idempotency keys. A key is kept as a keyed hash of user and text together with the job it was used for
// and a hash of the spec, for CORE_KEY_DAYS and at most max_keys_per_user at a time; at the limit a submit
// with a new key is refused, since forgetting an old one could run a job twice. Expired keys are dropped by
// an event, so that replay and snapshot agree on which are left. In a journal of the first feature level there
// is no secret: keys are hashed without one until the upgrade is finished.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"
#include "base/text.h"
#include "state.h"

enum {
    KEY_LIFE_S = CORE_KEY_DAYS * 86400,
    SWEEP_EVERY_MS = 3600000,
    SWEEP_AT_LIMIT_MS = 60000,  // a user at the limit makes us look no more often than this
};

static const uint8_t no_secret[SIPHASH_KEY_BYTES];  // of keys that were used before there was one

bool core_keys_ready(const struct core *c) {
    return c->keys.ready;
}

static uint64_t key_hash(const uint8_t *secret, const char *user, const char *key) {
    cleanup_buf struct buf b = {0};
    buf_add(&b, user, strlen(user) + 1);
    buf_adds(&b, key);
    return siphash(secret, b.data, b.len);
}

// The spec as the user sent it: defaults may change between a submit and its repeat. 0 means unknown.
static uint64_t spec_hash(const uint8_t *secret, const struct spec *spec) {
    cleanup_buf struct buf b = {0};
    struct spec sent = *spec;
    sent.user = NULL;
    sent.uid = sent.gid = 0;
    schema_encode(&spec_schema, &sent, &b);
    uint64_t hash = siphash(secret, b.data, b.len);
    return hash ? hash : 1;
}

// The hash is hashed again, with the secret of the process: without the journal's a user could choose it.
static uint64_t index_of(uint64_t hash) {
    return hash_keyed(&hash, sizeof hash);
}

static struct core_key *find(const struct core *c, uint64_t hash) {
    uintptr_t at = (uintptr_t)map_get(&c->keys.index, index_of(hash));
    return at ? &c->keys.list.at[at - 1] : NULL;
}

static const struct core_key *find_valid(const struct core *c, const char *user, const char *key, uint64_t hash,
                                         int64_t now_ms) {
    const struct core_key *k = find(c, hash);
    if (!k && c->keys.plain && c->keys.ready)
        k = find(c, key_hash(no_secret, user, key));
    return k && (int64_t)k->expires_s * 1000 > now_ms ? k : NULL;
}

int core_key_check(const char *key, struct error *e) {
    size_t len = strlen(key);
    if (len && len <= CORE_KEY_TEXT_MAX && !str_has_control_chars(key, len))
        return 0;
    return error_set(e, EINVAL, "key: expected 1 to %d characters without control characters", CORE_KEY_TEXT_MAX);
}

static void sweep(struct core *c, int64_t before_ms) {
    struct core_keys *keys = &c->keys;
    uint32_t kept = 0, latest_s = (uint32_t)(before_ms / 1000) + KEY_LIFE_S;
    map_done(&keys->index);
    for (uint32_t i = 0; i < keys->list.len; i++) {
        struct core_key k = keys->list.at[i];
        if ((int64_t)k.expires_s * 1000 <= before_ms) {
            core_user_count(c, c->users.at[k.user - 1])->keys--;
            keys->plain -= k.plain;
            continue;
        }
        if (k.expires_s > latest_s && core_feature(c, FEATURE_KEYS))
            k.expires_s = latest_s;  // made while the clock was ahead
        keys->list.at[kept++] = k;
        map_put(&keys->index, index_of(k.hash), (void *)(uintptr_t)kept);
    }
    keys->list.len = kept;
    if (!kept)
        vec_done(&keys->list);
    if (core_feature(c, FEATURE_KEYS))
        keys->swept_ms = before_ms;
    keys->looked_ms = before_ms;
}

static int check_limit(struct core *c, const char *user, int64_t now_ms, struct error *e) {
    const struct core_user *u = core_user_count(c, user);
    int64_t since = now_ms - (core_feature(c, FEATURE_KEYS) ? c->keys.swept_ms : c->keys.looked_ms);
    bool full = u->keys >= c->config.max_keys_per_user;
    // Either way: the clock may have been set back.
    if (llabs(since) >= (full ? SWEEP_AT_LIMIT_MS : SWEEP_EVERY_MS) && c->keys.list.len) {
        if (core_feature(c, FEATURE_KEYS))
            core_emit(c, now_ms, EVENT_KEYS_EXPIRED, &(struct event_keys_expired){.before_ms = now_ms});
        else
            sweep(c, now_ms);  // a replay keeps them longer, which is harmless: they have expired
    }
    if (u->keys < c->config.max_keys_per_user)
        return 0;
    return error_set(e, EAGAIN,
                     "key: you have used %u keys in the last %d days; at most %u are kept (max_keys_per_user). "
                     "Submit without a key, or wait until some have expired",
                     u->keys, CORE_KEY_DAYS, c->config.max_keys_per_user);
}

int core_key_find(struct core *c, const char *user, const char *key, const struct spec *spec, int64_t now_ms,
                  struct event_key *entry, struct command_result *out, struct error *e) {
    *entry = (struct event_key){.hash = key_hash(c->keys.secret, user, key),
                                .spec_hash = spec_hash(c->keys.secret, spec),
                                .expires_ms = now_ms + (int64_t)KEY_LIFE_S * 1000};
    const struct core_key *k = find_valid(c, user, key, entry->hash, now_ms);
    char shown[64];
    if (!k)
        return check_limit(c, user, now_ms, e);
    if (k->spec_hash && k->spec_hash != (k->plain ? spec_hash(no_secret, spec) : entry->spec_hash))
        return error_set(
            e, EEXIST,
            "key: \"%s\" was used for job %llu, which was submitted with another spec, script or "
            "environment; choose another key for a new job",
            str_printable(key, shown, sizeof shown), (unsigned long long)k->id);
    *out = (struct command_result){.id = k->id, .count = k->count, .repeated = true};
    return 0;
}

bool core_key_job(const struct core *c, const char *user, const char *key, int64_t now_ms, uint64_t *id) {
    const struct core_key *k = find_valid(c, user, key, key_hash(c->keys.secret, user, key), now_ms);
    if (k)
        *id = k->id;
    return k != NULL;
}

void core_key_to_text(const struct event_key *key, char out[static CORE_KEY_HASH_TEXT]) {
    snprintf(out, CORE_KEY_HASH_TEXT, "%016llx", (unsigned long long)key->hash);
}

// The spec it was used with is not known: a repeat finds the job whatever it says.
bool core_key_adopt(const struct core *c, const char *text, int64_t now_ms, struct event_key *out) {
    char *end;
    if (!text || strlen(text) != CORE_KEY_HASH_TEXT - 1 || !core_feature(c, FEATURE_KEYS))
        return false;
    *out = (struct event_key){.hash = strtoull(text, &end, 16),
                              .expires_ms = now_ms + (int64_t)KEY_LIFE_S * 1000};
    return !*end && !find(c, out->hash);
}

int core_command_keys_init(struct core *c, const struct actor *actor, const void *body, int64_t now_ms,
                           struct error *e) {
    const struct command_keys_init *m = body;
    int r = core_need_admin(actor, "set up idempotency keys", e);
    if (r < 0)
        return r;
    if (m->secret.len != SIPHASH_KEY_BYTES)
        return error_set(e, EINVAL, "secret: expected %d bytes", SIPHASH_KEY_BYTES);
    if (c->keys.ready)
        return error_set(e, EALREADY, "secret: it is set already; with another one all keys would be forgotten");
    struct event_keys_init b = {m->secret};
    core_emit(c, now_ms, EVENT_KEYS_INIT, &b);
    return 0;
}

int core_command_key_import(struct core *c, const struct actor *actor, const void *body, int64_t now_ms,
                            struct error *e) {
    const struct command_key_import *m = body;
    int r = core_need_admin(actor, "import idempotency keys", e);
    if (r < 0)
        return r;
    if (str_empty(m->user) || str_empty(m->key) || !m->id)
        return error_set(e, EINVAL, "expected user, key and job");
    if (m->expires_ms <= now_ms)
        return 0;
    struct event_key key = {.hash = key_hash(c->keys.secret, m->user, m->key), .expires_ms = m->expires_ms};
    struct event_key_imported b = {.key = &key, .user = m->user, .id = m->id, .count = m->count ? m->count : 1};
    if (core_feature(c, FEATURE_KEYS))
        core_emit(c, now_ms, EVENT_KEY_IMPORTED, &b);
    else
        core_key_add(c, b.key, b.user, b.id, b.count);  // it stays in the store, and is read again at the next start
    return 0;
}

// --- changes of the state ---

void core_key_put(struct core *c, const struct core_key *key) {
    struct core_key *k = find(c, key->hash);
    if (k) {  // it had expired, or is imported again
        core_user_count(c, c->users.at[k->user - 1])->keys--;
        c->keys.plain -= k->plain;
        *k = *key;
    } else {
        vec_push(&c->keys.list, *key);
        map_put(&c->keys.index, index_of(key->hash), (void *)(uintptr_t)c->keys.list.len);
    }
    c->keys.plain += key->plain;
    core_user_count(c, c->users.at[key->user - 1])->keys++;
}

void core_key_add(struct core *c, const struct event_key *key, const char *user, uint64_t id, uint64_t count) {
    struct core_key k = {.hash = key->hash,
                         .spec_hash = key->spec_hash,
                         .id = id,
                         .count = (uint32_t)count,
                         .user = core_user_handle(c, user),
                         .expires_s = (uint32_t)(key->expires_ms / 1000),
                         .plain = !c->keys.ready};
    core_key_put(c, &k);
}

void core_keys_set_secret(struct core *c, const struct bytes *secret) {
    if (secret->len != SIPHASH_KEY_BYTES)
        return;
    memcpy(c->keys.secret, secret->data, SIPHASH_KEY_BYTES);
    c->keys.ready = true;
}

void core_apply_keys(struct core *c, const struct event *e) {
    if (e->type == EVENT_KEYS_INIT)
        core_keys_set_secret(c, &((const struct event_keys_init *)e->body)->secret);
    if (e->type == EVENT_KEYS_EXPIRED)
        sweep(c, ((const struct event_keys_expired *)e->body)->before_ms);
    const struct event_key_imported *b = e->body;
    if (e->type == EVENT_KEY_IMPORTED && b->key && !str_empty(b->user))
        core_key_add(c, b->key, b->user, b->id, b->count);
}

bool core_keys_add_up(const struct core *c) {
    size_t it = 0;
    uint64_t counted = 0;
    void *v;
    while (strmap_next(&c->user_jobs, &it, NULL, &v))
        counted += ((const struct core_user *)v)->keys;
    for (uint32_t i = 0; i < c->keys.list.len; i++)
        if (find(c, c->keys.list.at[i].hash) != &c->keys.list.at[i])
            return false;
    return counted == c->keys.list.len && c->keys.index.len == counted;
}
