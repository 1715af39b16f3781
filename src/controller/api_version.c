// Versions: whoever changes something may say which version of it they have read, with If-Match or the field `version`;
// when it has changed since, the change is refused with 412 or 409 and a sentence that says what has changed.
#include <errno.h>
#include <string.h>

#include "api.h"
#include "base/text.h"

enum { CHANGES_NAMED_MAX = 5 };

struct changes {
    struct buf text;
    uint32_t count;
};

static int add_change(void *ctx, const struct store_event *record) {
    struct changes *c = ctx;
    const struct event_info *info = event_info((enum event_type)record->type);
    if (c->count++ < CHANGES_NAMED_MAX)
        buf_addf(&c->text, "%s%s", c->text.len ? ", " : "", info ? info->name : "unknown");
    return 0;
}

// The version that the request names; false: it names none, or (e is set) not in the proper way.
static bool named_version(struct api_call *call, uint64_t in_body, uint64_t *out, struct error *e) {
    const char *match = http_message_header(call->req->http, "If-Match");
    *out = in_body;
    if (str_empty(match) || streq(match, "*"))
        return in_body != 0;
    size_t len = strlen(match);
    if (len > 2 && match[0] == '"' && match[len - 1] == '"' &&
        parse_u64(arena_strndup(&call->arena, match + 1, len - 2), out) == 0)
        return true;
    error_set(e, EINVAL, "If-Match: expected the ETag of an earlier answer, as \"42\"");
    return false;
}

static void refuse(struct api_call *call, const char *text) {
    bool by_header = !str_empty(http_message_header(call->req->http, "If-Match"));
    api_error(call->req, by_header ? 412 : 409, "ESTALE", text);
}

void api_version_tag(struct net_request *req, uint64_t version) {
    char tag[32];
    if (!version)
        return;
    snprintf(tag, sizeof tag, "\"%llu\"", (unsigned long long)version);
    net_reply_header(req, "ETag", tag);
}

bool api_job_version_holds(struct api_call *call, const struct request_action *q) {
    struct controller *c = call->controller;
    struct error e = {0};
    uint64_t wanted, id = 0;
    if (!named_version(call, q->version, &wanted, &e) && !e.code)
        return true;
    if (!e.code && q->ids.len != 1)
        error_set(&e, EINVAL, "version: it is of one job; name exactly one in ids");
    if (!e.code)
        id = api_parse_job(c, &call->actor, q->ids.at[0], &e);
    if (e.code) {
        api_fail(call->req, &e);
        return false;
    }
    uint64_t now = core_job_version(c->core, id);
    // 0: it has ended, or is none: the action says so, as it does of jobs of others.
    if (!now || now == wanted || job_sight_of(c, &call->actor, id) < SIGHT_PUBLIC)
        return true;
    struct changes changes = {0};
    cleanup_buf struct buf text = {0};
    store_events(c->store, id, wanted, 0, add_change, &changes, NULL);
    buf_addf(&text, "version: job %s has changed since version %llu, it is now at %llu", q->ids.at[0],
             (unsigned long long)wanted, (unsigned long long)now);
    if (changes.count)
        buf_addf(&text, " (%s%s)", buf_str(&changes.text),
                 changes.count > CHANGES_NAMED_MAX ? ", and more" : "");
    buf_adds(&text, "; read it again");
    buf_done(&changes.text);
    refuse(call, buf_str(&text));
    return false;
}

bool api_saved_version_holds(struct api_call *call, const char *word, const struct event_saved *now) {
    struct error e = {0};
    uint64_t wanted;
    if (!named_version(call, 0, &wanted, &e)) {
        if (e.code)
            api_fail(call->req, &e);
        return !e.code;
    }
    if (now && (uint64_t)now->set_ms == wanted)
        return true;
    cleanup_buf struct buf text = {0};
    char shown[64];
    str_printable(call->name, shown, sizeof shown);
    if (now)
        buf_addf(
            &text,
            "%s \"%s\" has changed since version %llu, it is now at %lld; read it again, or send it without "
            "If-Match to replace it",
            word, shown, (unsigned long long)wanted, (long long)now->set_ms);
    else
        buf_addf(&text, "%s \"%s\" does not exist any more; send it without If-Match to keep it again", word,
                 shown);
    refuse(call, buf_str(&text));
    return false;
}

struct entity_then {
    struct arena *arena;
    enum entity_kind kind;
    const void *value;
};

static int take_entity(void *ctx, const struct store_event *record) {
    static const enum event_type set[] = {EVENT_PROJECT_SET, EVENT_PARTITION_SET, EVENT_QOS_SET,
                                          EVENT_RESERVATION_SET, EVENT_LICENSE_SET};
    struct entity_then *then = ctx;
    struct event e;
    if (record->type == (uint32_t)set[then->kind] &&
        event_decode((enum event_type)record->type, record->data, record->len, then->arena, &e) == 0)
        then->value = ((struct event_project_set *)e.body)->project;  // all five begin with the pointer
    return 1;
}

bool api_entity_version_holds(struct api_call *call, enum entity_kind kind, const void *value) {
    struct controller *c = call->controller;
    struct error e = {0};
    uint64_t wanted, now = core_entity_version(c->core, kind, call->name);
    if (!named_version(call, 0, &wanted, &e)) {
        if (e.code)
            api_fail(call->req, &e);
        return !e.code;
    }
    if (wanted == now)
        return true;
    cleanup_buf struct buf text = {0}, changed = {0};
    struct entity_then then = {.arena = &call->arena, .kind = kind};
    if (!now) {
        buf_addf(&text, "%s %s does not exist any more", entity_word(kind), call->name);
        refuse(call, buf_str(&text));
        return false;
    }
    store_events(c->store, 0, wanted ? wanted - 1 : 0, 1, take_entity, &then, NULL);
    if (then.value && value && streq(*(const char *const *)then.value, call->name)) {
        entity_normalize(kind, (void *)(uintptr_t)then.value);
        api_entity_changes(entity_command(kind), then.value, value, &call->arena, &changed);
    }
    buf_addf(&text, "%s %s has changed since version %llu, it is now at %llu", entity_word(kind), call->name,
             (unsigned long long)wanted, (unsigned long long)now);
    if (changed.len)
        buf_addf(&text, " (%s)", buf_str(&changed));
    buf_adds(&text, "; read it again");
    refuse(call, buf_str(&text));
    return false;
}
