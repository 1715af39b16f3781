// Requests and answers about what people keep: drafts of jobs, templates, views of the table of jobs.
#pragma once
#include "base/schema.h"
#include "model/job.h"

struct query_saved {
    const char *project;
};
struct request_draft {
    const char *title;
    struct spec *spec;
    const char *script;
};
struct request_template {
    const char *title, *project;
    struct spec *spec;
    const char *script;
};
struct request_view {
    const char *title, *query;
};
extern const struct schema query_saved_schema, request_draft_schema, request_template_schema,
    request_view_schema;

struct answer_draft {
    const char *name, *title, *project;
    const char *spec;  // JSON
    const char *script;
    int64_t set_ms;
};
struct answer_drafts {
    LIST(struct answer_draft) drafts;
};
extern const char *const answer_template_words[];
enum answer_template_of { TEMPLATE_OWN, TEMPLATE_OF_PROJECT, TEMPLATE_BUILT_IN };
struct answer_template {
    unsigned of;  // answer_template_words
    const char *name, *title, *project, *by;
    const char *spec;
    const char *script;
    int64_t set_ms;
};
struct answer_templates {
    LIST(struct answer_template) templates;
};
struct answer_view {
    const char *name, *title, *query;
    int64_t set_ms;
};
struct answer_views {
    LIST(struct answer_view) views;
};
extern const struct schema answer_draft_schema, answer_drafts_schema, answer_template_schema,
    answer_templates_schema, answer_views_schema;
