// The apps that come with the program: the files of apps/, put into it when it is built.
#include "apps_builtin.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

static const struct {
    const char *file, *text;
} files[] = {
#include "app_texts.h"
};
enum { FILES = sizeof files / sizeof *files };

// Each app is two files, NAME.json and NAME.sh after it.
void apps_builtin(struct arena *a, struct app_list *out) {
    *out = (struct app_list){.at = arena_alloc(a, FILES / 2 * sizeof *out->at)};
    for (size_t i = 0; i + 1 < FILES; i += 2) {
        struct error e = {0};
        const char *name = arena_strndup(a, files[i].file, strcspn(files[i].file, "."));
        int r = app_read(name, files[i].text, strlen(files[i].text), files[i + 1].text, a, &out->at[out->len],
                         &e);
        assert(r == 0);
        out->at[out->len++].origin = "built-in";
    }
}
