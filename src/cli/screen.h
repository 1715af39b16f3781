// A screen that is drawn again and again until somebody quits: top, list --watch.
#pragma once
#include "base/buf.h"
#include "cli/cli.h"

// Appends what is to be seen, any number of lines. 0, or negative with the reason in cli->error.
typedef int screen_draw_fn(void *arg, struct buf *out);

// Returns a CLI status. A failure of the first drawing ends it; after that it is shown in the last
// line and tried again, as controllers are restarted while people watch.
int screen_watch(struct cli *c, unsigned every_ms, screen_draw_fn *draw, void *arg);

// Lines of `text` cut to the width, at most `rows` of them, each cleared to its end. Returns how many
// were left out. Colours take no room.
int screen_fit(const char *text, int rows, int columns, struct buf *out);
