// Tools for AI assistants, by the Model Context Protocol: each is a request of the API (mcp_tools.c), carried out with
// the rights of whoever calls (mcp.c).
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"

struct mcp_tool {
    const char *name, *description;
    const char *method, *path;  // {job} in the path is the argument "job"
    const char *query;          // arguments that go into the query, joined by commas; NULL: none
    const char *fixed_query;    // what is added to it
    const char *body;           // arguments that go into the body; NULL: it has none
    const char *fixed_body;     // members that are added to it, as "dry_run":true
    bool changes;               // else it only reads
    bool destroys;
    const char *schema;  // of the arguments
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
void mcp_tools_list(struct json_writer *w);
