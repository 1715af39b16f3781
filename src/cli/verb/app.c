// acequia app
#include <string.h>

#include "app_start.h"
#include "base/text.h"
#include "cli/job/options.h"
#include "cli/term/table.h"
#include "cli/term/terminal.h"

static int list(struct cli *c, const struct app_list *apps) {
    static const struct table_column columns[] = {
        {"APP", false, 0, 0}, {"FROM", false, 0, 0}, {"TITLE", false, 0, 0}, {"WHAT IT IS", false, 6, 12}};
    cleanup_buf struct buf out = {0};
    struct text_table t;
    if (c->json) {
        struct json_writer w = {.out = &out};
        json_open(&w, '[');
        for (uint32_t i = 0; i < apps->len; i++)
            schema_write_json(&app_schema, &apps->at[i], &w);
        json_close(&w, ']');
        buf_addc(&out, '\n');
        return cli_print(&out);
    }
    table_init(&t, &c->arena, columns, sizeof columns / sizeof *columns);
    for (uint32_t i = 0; i < apps->len; i++) {
        const struct app *a = &apps->at[i];
        table_add(&t, a->name, COLOUR_NONE);
        table_add(&t, a->origin, COLOUR_NONE);
        table_add(&t, a->title, COLOUR_NONE);
        table_add(&t, a->summary ? a->summary : "", COLOUR_NONE);
    }
    table_print(&t, terminal_table_width(), true, terminal_colour(), &out);
    table_done(&t);
    return cli_print(&out);
}

static int show(struct cli *c, const struct app *a) {
    cleanup_buf struct buf out = {0};
    if (c->json) {
        schema_write_json(&app_schema, a, &(struct json_writer){.out = &out});
        buf_addc(&out, '\n');
        return cli_print(&out);
    }
    buf_addf(&out, "%s (%s): %s\n\nFields, given as FIELD=VALUE:\n", a->title, a->origin,
             a->summary ? a->summary : "");
    for (uint32_t i = 0; i < a->fields.len; i++) {
        const struct app_field *f = &a->fields.at[i];
        buf_addf(&out, "  %-12s %s%s%s%s%s%s\n", f->name, f->title ? f->title : "", f->help ? ". " : "",
                 f->help ? f->help : "", f->value ? " Default: " : "", f->value ? f->value : "",
                 f->required ? " Required." : "");
    }
    return cli_print(&out);
}

static int look(struct cli *c, const char *name) {
    struct client *k;
    struct app_list apps;
    if (client_open(c, &k) < 0)
        return cli_fail(c);
    int r = verb_app_list(c, k, &apps);
    client_free(k);
    if (r < 0)
        return cli_fail(c);
    const struct app *a = name ? app_find(&apps, name) : NULL;
    if (name && !a)
        return cli_usage(c, "there is no app \"%.60s\"; see 'acequia app list'", name);
    return a ? show(c, a) : list(c, &apps);
}

static int run_app(struct cli *c) {
    const char *what = c->arguments[0];
    if (streq(what, "list") && c->count == 1)
        return look(c, NULL);
    if (streq(what, "show") && c->count == 2)
        return look(c, c->arguments[1]);
    if (streq(what, "start") && c->count >= 2)
        return verb_app_start(c, c->arguments[1], (const char *const *)c->arguments + 2, (uint32_t)c->count - 2);
    return cli_usage(c, "write: app list, app show NAME, or app start NAME [FIELD=VALUE...]");
}

const struct verb verb_app = {
    .name = "app",
    .group = "Programs",
    .arguments = "list\nshow NAME\n[options] start NAME [FIELD=VALUE...]",
    .summary = "start programs that are used in the browser",
    .text = "An app is a small description: the fields of a form, a script, a port and how it is asked "
            "whether it is "
            "ready. There are built-in ones (JupyterLab, VS Code, TensorBoard, Gradio, Streamlit, any "
            "program), the "
            "site's, and your own: files NAME.json and NAME.sh in ~/.config/acequia/apps. It is started as a "
            "job, with "
            "any options of submit; when it is ready its address is printed, with a link that opens it once, "
            "logged in "
            "as you. Started again it opens the one that runs, or one with the settings of the last time.",
    .examples = "acequia app list\nacequia app show tensorboard\n"
                "acequia app start tensorboard logdir=runs\n"
                "acequia app start streamlit file=demo.py gpus=0.5",
    .options = {&verb_app_options, &job_resource_options, &job_control_options, &cli_common_options},
    .run = run_app,
    .complete = "list show start",
    .least = 1,
    .most = -1,
};
