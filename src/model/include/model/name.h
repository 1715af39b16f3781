// The one grammar of names. Job names are free text without control characters; identifiers
// (projects, partitions, nodes, QoS, users) are [A-Za-z0-9][A-Za-z0-9._-]*.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { JOB_NAME_MAX = 255, IDENTIFIER_MAX = 63, COMMENT_MAX = 1023 };

int job_name_check(const char *name, struct error *e);
// `what` names the thing in the message: "project".
int name_check(const char *what, const char *name, struct error *e);
bool name_valid(const char *name, size_t len);
// Lists of identifiers as people write them, "a,b". The next name from *list on (not terminated), which
// moves past it; NULL at the end. Empty ones are passed over.
const char *name_list_next(const char **list, size_t *len);
bool name_list_several(const char *list);
bool name_list_have(const char *list, const char *name);
bool name_list_meet(const char *a, const char *b);  // some name is in both
// Free text of one line, possibly empty: comments, reasons.
int name_line_check(const char *what, const char *text, size_t max, struct error *e);
