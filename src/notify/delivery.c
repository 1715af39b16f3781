// Reads deliveries and checks what a user chose in them: addresses and URLs end up in SMTP commands, headers and
// requests, so nothing that could start a new line or a new host passes.
#include "delivery.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/notify.h"

int notify_mail_address_check(const char *address, struct error *e) {
    char shown[64];
    if (strlen(address) > DELIVERY_ADDRESS_MAX || !spec_notify_target_is_mail(address, strlen(address)))
        return error_set(e, EINVAL,
                         "\"%s\" is not a mail address; expected user@host, or a local user's name",
                         str_printable(address, shown, sizeof shown));
    return 0;
}

int notify_webhook_url_check(const char *url, struct error *e) {
    char shown[64];
    if (strlen(url) > DELIVERY_ADDRESS_MAX || !spec_notify_target_is_url(url, strlen(url)))
        return error_set(e, EINVAL, "\"%s\" is not a URL for a webhook; expected https://HOST/PATH",
                         str_printable(url, shown, sizeof shown));
    return 0;
}

int notify_delivery_parse(const char *line, size_t len, struct arena *a, struct delivery *out,
                          struct error *e) {
    struct json *j;
    int r = json_parse(line, len, a, &j, e);
    if (r < 0 || (r = schema_read_json(&message_delivery_schema, j, a, out, e)) < 0)
        return r;
    if (!out->to)
        return error_set(e, EINVAL, "to: missing");
    if (out->kind == DELIVERY_WEBHOOK)
        return out->body ? notify_webhook_url_check(out->to, e) : error_set(e, EINVAL, "body: missing");
    if (!out->subject || strlen(out->subject) > DELIVERY_SUBJECT_MAX ||
        str_has_control_chars(out->subject, strlen(out->subject)))
        return error_set(e, EINVAL, "subject: expected 1 to %d characters without control characters",
                         DELIVERY_SUBJECT_MAX);
    return notify_mail_address_check(out->to, e);
}
