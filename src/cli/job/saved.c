// Reads drafts and templates from the controller.
#include "cli/job/saved.h"

#include <errno.h>

#include "base/text.h"
#include "cli/job/defaults.h"
#include "cli/job/options.h"

int job_saved_get(struct cli *c, struct client *k, const char *path, struct job_saved *out) {
    struct reply reply;
    int r = client_call(k, "GET", path, NULL, &reply);
    if (r < 0)
        return r;
    *out = (struct job_saved){.found = true, .script = json_str(reply.json, "script")};
    const struct json *spec = json_get(reply.json, "spec");
    return spec ? schema_read_json(&spec_schema, spec, &c->arena, &out->spec, &c->error) : 0;
}

int job_saved_template(struct cli *c, struct client *k, const char *name, struct job_saved *out) {
    struct reply reply;
    cleanup_buf struct buf path = {0};
    cleanup_query struct query q = {0};
    int r = client_call(k, "GET", "/v1/templates", NULL, &reply);
    const struct json *list = r < 0 ? NULL : json_get(reply.json, "templates"), *found = NULL;
    for (uint32_t i = 0; !found && list && i < list->len; i++)  // in this order
        if (streq(json_str(&list->items[i], "name"), name))
            found = &list->items[i];
    if (r < 0)
        return r;
    if (!found)
        return error_set(&c->error, ENOENT,
                         "there is no template \"%.60s\"; see 'acequia template list', or create one with "
                         "'acequia template save'",
                         name);
    buf_adds(&path, "/v1/templates/");
    http_percent_encode(&path, name);
    client_query_begin(&q, buf_str(&path));
    client_query_add(&q, "project", json_str(found, "project"));
    return job_saved_get(c, k, buf_str(&q.text), out);
}

int job_saved_wanted(struct cli *c, const struct cli_options *o, struct job_saved *out) {
    const char *name = option_get(o, "template");
    struct client *k;
    *out = (struct job_saved){0};
    if (!name || job_defaults_have(c, name))
        return 0;
    int r = client_open(c, &k);
    if (r < 0)
        return r;
    r = job_saved_template(c, k, name, out);
    client_free(k);
    return r;
}

int job_saved_spec(struct cli *c, struct cli_options *o, const struct job_saved *template, struct spec *out) {
    struct spec given = {0};
    int r = template->found ? job_spec(c, o, &given) : 0;
    r = r < 0 ? r : job_defaults_apply(c, o);
    r = r < 0 ? r : job_spec(c, o, out);
    if (r < 0 || !template->found)
        return r;
    if (!option_given(o, "chdir"))
        given.workdir = NULL;
    spec_merge(out, &template->spec);
    spec_merge(out, &given);
    return 0;
}
