// Words of notifications. Addresses end up in mail headers and SMTP commands, so the grammar is strict.
#include "model/notify.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

static const char *const delivery_kind_words[] = {"mail", "webhook", NULL};

#define S struct delivery
static const struct field delivery_fields[] = {
    FIELD(1, S, id, "Number that the answer repeats."),
    FIELD_WORDS(2, S, kind, delivery_kind_words, "mail or webhook."),
    FIELD(3, S, to, "Mail address, or URL."),
    FIELD(4, S, subject, "Subject of a mail."),
    FIELD(5, S, text, "Text of a mail."),
    FIELD(6, S, body, "JSON that a webhook receives."),
};
const struct schema message_delivery_schema = SCHEMA(S, "delivery", delivery_fields);
#undef S

static const struct {
    const char *word;
    uint32_t mask;
} words_of_masks[] = {
    {"none", 0},
    {"begin", NOTIFY_BEGIN},
    {"end", NOTIFY_END},
    {"fail", NOTIFY_FAIL},
    {"requeue", NOTIFY_REQUEUE},
    {"time_limit", NOTIFY_TIME_LIMIT},
    {"time_limit_90", NOTIFY_TIME_LIMIT_90},
    {"time_limit_80", NOTIFY_TIME_LIMIT_80},
    {"time_limit_50", NOTIFY_TIME_LIMIT_50},
    {"invalid_depend", NOTIFY_INVALID_DEPEND},
    {"array_tasks", NOTIFY_ARRAY_TASKS},
    {"all", NOTIFY_ALL},
    {"stage_out", 0},  // Slurm's burst buffers, which do not exist here
};

static bool find_word(const char *at, size_t len, uint32_t *mask) {
    for (size_t i = 0; i < sizeof words_of_masks / sizeof *words_of_masks; i++)
        if (strlen(words_of_masks[i].word) == len && strncasecmp(words_of_masks[i].word, at, len) == 0) {
            *mask |= words_of_masks[i].mask;
            return true;
        }
    return false;
}

int spec_notify_parse(const char *words, uint32_t *mask, struct error *e) {
    uint32_t found = 0;
    char shown[64];
    for (const char *at = words; at && *at;) {
        size_t len = strcspn(at, ",");
        if (!find_word(at, len, &found))
            return error_set(
                e, EINVAL,
                "notify: \"%s\" is not understood; expected a list of begin, end, fail, requeue, "
                "time_limit, time_limit_90, time_limit_80, time_limit_50, array_tasks, all or none",
                str_printable(words, shown, sizeof shown));
        at += len + (at[len] == ',');
    }
    *mask = found;
    return 0;
}

uint32_t spec_notify_target_next(const char **at, const char **target) {
    *target = *at;
    size_t len = strcspn(*at, ",");
    *at += len + ((*at)[len] == ',');
    return (uint32_t)len;
}

bool spec_notify_target_is_url(const char *at, size_t len) {
    size_t scheme = str_has_prefix(at, "https://") ? 8 : str_has_prefix(at, "http://") ? 7 : 0;
    if (!scheme || len <= scheme || strchr("/?#", at[scheme]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (at[i] <= ' ' || at[i] >= 0x7f || strchr("\\\"<>", at[i]))
            return false;
    return !memchr(at + scheme, '@', strcspn(at + scheme, "/?#,"));
}

bool spec_notify_target_is_mail(const char *at, size_t len) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+-=@";
    const char *sign = memchr(at, '@', len);
    return len && strspn(at, letters) >= len && *at != '-' && sign != at &&
           (!sign || (sign + 1 < at + len && !memchr(sign + 1, '@', len - (size_t)(sign + 1 - at))));
}

int spec_notify_targets_check(const char *targets, struct error *e) {
    uint32_t count = 0, len;
    const char *target;
    char shown[64];
    if (strlen(targets) > NOTIFY_TEXT_MAX)
        return error_set(e, E2BIG, "notify_to: at most %d characters are allowed", NOTIFY_TEXT_MAX);
    for (const char *at = targets; *at;) {
        len = spec_notify_target_next(&at, &target);
        if (!spec_notify_target_is_url(target, len) && !spec_notify_target_is_mail(target, len))
            return error_set(
                e, EINVAL,
                "notify_to: \"%s\" is not understood; expected mail addresses (user@host), local users or "
                "webhooks (https://HOST/PATH), separated by commas",
                str_printable(targets, shown, sizeof shown));
        if (++count > NOTIFY_TARGETS_MAX)
            return error_set(e, E2BIG, "notify_to: at most %d addresses are allowed", NOTIFY_TARGETS_MAX);
    }
    return count ? 0 : error_set(e, EINVAL, "notify_to: it is empty");
}

uint32_t spec_notify_time_percent(uint32_t mask, uint32_t after_percent) {
    if (mask & NOTIFY_TIME_LIMIT_50 && after_percent < 50)
        return 50;
    if (mask & NOTIFY_TIME_LIMIT_80 && after_percent < 80)
        return 80;
    if (mask & NOTIFY_TIME_LIMIT_90 && after_percent < 90)
        return 90;
    return 0;
}
