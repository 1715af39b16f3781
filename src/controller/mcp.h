// Tools for AI assistants, by the Model Context Protocol: each is a request of the API (mcp_tools.c), carried out with
// the rights of whoever calls (mcp.c).
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "json_schema.h"

struct mcp_tool {
    const char *name, *description;
    const char *method, *path;  // of the route; {job} in the path is the argument "job"
    const char *arguments;    // of the route: parameters of GET, fields of the body of POST; joined by commas
    const char *required;     // those that must be given
    const char *fixed_query;  // what is added to the query
    bool dry_run;             // added to the body
    bool changes;               // else it only reads
    bool destroys;
};
extern const struct mcp_tool mcp_tools[];
extern const size_t mcp_tool_count;

struct mcp_request {
    const char *method, *path, *query, *body;  // in the arena
};
const struct mcp_tool *mcp_tool_find(const char *name);  // NULL: there is none
// The request that a call of the tool is; `arguments` may be NULL.
int mcp_tool_request(const struct mcp_tool *t, const struct json *arguments, struct arena *a,
                     struct mcp_request *out, struct error *e);

// The tools as the protocol lists them; what an argument is comes from the tables of the route.
struct mcp_annotations {
    bool readOnlyHint, destructiveHint, openWorldHint;
    uint64_t given[1];
};
struct mcp_listed_tool {
    const char *name, *description;
    struct json_schema *inputSchema;
    struct mcp_annotations *annotations;
};
extern const struct schema mcp_listed_tool_schema;
struct mcp_listed_tool *mcp_tools_list(struct arena *a);  // mcp_tool_count of them
