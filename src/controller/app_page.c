// Owns what browsers are shown in a program's place. The pages load nothing and run no script; whatever a user chose is
// escaped. Programs that are no browsers get a problem document.
#include "app.h"

#include <string.h>
#include <strings.h>

static void add_escaped(struct buf *out, const char *s) {
    for (; *s; s++)
        switch (*s) {
        case '&': buf_adds(out, "&amp;"); break;
        case '<': buf_adds(out, "&lt;"); break;
        case '>': buf_adds(out, "&gt;"); break;
        case '"': buf_adds(out, "&quot;"); break;
        case '\'': buf_adds(out, "&#39;"); break;
        default: buf_addc(out, *s);
        }
}

static void write_html(const struct app_page *p, struct buf *out) {
    buf_adds(out, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
                  "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    add_escaped(out, p->title);
    buf_adds(out, "</title>");
    if (p->reload_s)
        buf_addf(out, "<meta http-equiv=\"refresh\" content=\"%u\">", p->reload_s);
    buf_adds(out,
             "<style>:root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;"
             "margin:15vh auto;padding:0 1rem}h1{font-size:1.3rem}</style></head><body><main><h1>");
    add_escaped(out, p->title);
    buf_adds(out, "</h1><p>");
    add_escaped(out, p->text);
    buf_adds(out, "</p>");
    if (p->reload_s)
        buf_adds(out, "<p>This page reloads itself.</p>");
    if (p->link) {
        buf_adds(out, "<p><a href=\"");
        add_escaped(out, p->link);
        buf_adds(out, "\">");
        add_escaped(out, p->link_text);
        buf_adds(out, "</a></p>");
    }
    buf_adds(out, "</main></body></html>\n");
}

static void write_problem(const struct app_page *p, struct buf *out) {
    struct answer_problem problem = {
        .type = "about:blank",
        .title = http_status_text(p->status),
        .status = (uint32_t)p->status,
        .detail = p->text,
        .error = &(struct answer_error){p->status == 401 ? "EACCES" : "EIO", p->text}};
    schema_write_json(&answer_problem_schema, &problem, &(struct json_writer){.out = out});
    buf_addc(out, '\n');
}

void app_page_write(const struct app_page *p, const struct http_message *request, bool keep_alive,
                    struct buf *out) {
    const char *accept = request ? http_message_header(request, "Accept") : NULL;
    bool html = accept && strstr(accept, "text/html"),
         head = request && request->method && strcmp(request->method, "HEAD") == 0;
    cleanup_buf struct buf body = {0}, extra = {0};
    if (html)
        write_html(p, &body);
    else
        write_problem(p, &body);
    buf_adds(&extra,
             "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
             "X-Acequia: proxy\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
             "frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n");
    if (p->reload_s)
        buf_addf(&extra, "Retry-After: %u\r\n", p->reload_s);
    if (p->extra)
        buf_adds(&extra, p->extra);
    http_write_response_head(out, p->status, html ? "text/html; charset=utf-8" : "application/problem+json",
                             (int64_t)body.len, keep_alive, buf_str(&extra));
    if (!head)
        buf_add(out, body.data, body.len);
}
