// The tables of requests and answers about drafts, templates and views.
#include "saved_messages.h"

#define S struct query_saved
static const struct field query_fields[] = {FIELD(1, S, project, "Of this project; else one's own.")};
const struct schema query_saved_schema = SCHEMA(S, "the query", query_fields);
#undef S

#define SPEC_HELP "What is asked for, as far as it is filled in; it is checked when it is submitted."
#define S struct request_draft
static const struct field draft_fields[] = {
    FIELD(1, S, title, "As people call it."),
    FIELD_SUB(2, S, spec, &spec_schema, SPEC_HELP, .required = true),
    FIELD(3, S, script, "The script, with its directives."),
};
const struct schema request_draft_schema = SCHEMA(S, "a draft", draft_fields);
#undef S

#define S struct request_template
static const struct field template_fields[] = {
    FIELD(1, S, title, "As people call it."),
    FIELD(2, S, project, "For the members of this project; else for oneself."),
    FIELD_SUB(3, S, spec, &spec_schema, SPEC_HELP, .required = true),
    FIELD(4, S, script, "The script, with its directives."),
};
const struct schema request_template_schema = SCHEMA(S, "a template", template_fields);
#undef S

#define S struct request_view
static const struct field view_fields[] = {
    FIELD(1, S, title, "As people call it."),
    FIELD(2, S, query, "Filters, order and columns, as the query of the page's address has them.",
          .required = true),
};
const struct schema request_view_schema = SCHEMA(S, "a view", view_fields);
#undef S

#define S struct answer_draft
static const struct field answer_draft_fields[] = {
    FIELD(1, S, name, "Its name."),
    FIELD(2, S, title, "As people call it."),
    FIELD(3, S, project, "Project that would be charged; null: the default."),
    FIELD_RAW(4, S, spec, NULL, "What is asked for: the fields that are filled in."),
    FIELD(5, S, script, "The script; null in lists, or where there is none."),
    FIELD(6, S, set_ms, "When it was changed last."),
};
const struct schema answer_draft_schema = SCHEMA(S, "a draft", answer_draft_fields);
#undef S
static const struct field drafts_fields[] = {
    FIELD_LIST_SUB(1, struct answer_drafts, drafts, &answer_draft_schema, "Drafts."),
};
const struct schema answer_drafts_schema = SCHEMA(struct answer_drafts, "drafts", drafts_fields);

const char *const answer_template_words[] = {"own", "project", "built_in", NULL};
#define S struct answer_template
static const struct field answer_template_fields[] = {
    FIELD_WORDS(1, S, of, answer_template_words, "One's own, a project's, or part of Acequia."),
    FIELD(2, S, name, "Its name."),
    FIELD(3, S, title, "As people call it."),
    FIELD(4, S, project, "Project whose it is."),
    FIELD(5, S, by, "Who changed it last."),
    FIELD_RAW(6, S, spec, NULL, "What is asked for: the fields that are filled in."),
    FIELD(7, S, script, "The script; null in lists, or where there is none."),
    FIELD(8, S, set_ms, "When it was changed last; 0: built in."),
};
const struct schema answer_template_schema = SCHEMA(S, "a template", answer_template_fields);
#undef S
static const struct field templates_fields[] = {
    FIELD_LIST_SUB(1, struct answer_templates, templates, &answer_template_schema, "Templates."),
};
const struct schema answer_templates_schema = SCHEMA(struct answer_templates, "templates", templates_fields);

#define S struct answer_view
static const struct field answer_view_fields[] = {
    FIELD(1, S, name, "Its name."),
    FIELD(2, S, title, "As people call it."),
    FIELD(3, S, query, "Filters, order and columns."),
    FIELD(4, S, set_ms, "When it was changed last."),
};
static const struct schema answer_view_schema = SCHEMA(S, "a view", answer_view_fields);
#undef S
static const struct field views_fields[] = {
    FIELD_LIST_SUB(1, struct answer_views, views, &answer_view_schema, "Views."),
};
const struct schema answer_views_schema = SCHEMA(struct answer_views, "views", views_fields);
