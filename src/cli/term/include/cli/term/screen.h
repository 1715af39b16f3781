// A screen that is drawn again and again until somebody quits: top, list --watch.
#pragma once
#include "base/buf.h"
#include "base/error.h"

// Appends what is to be seen, any number of lines. 0, or negative with the reason in *e of screen_watch.
typedef int screen_draw_fn(void *arg, struct buf *out);

// Negative when the first drawing fails. A later failure is shown in the last line and drawing is tried again: the
// controller may be restarting. `e` is where `draw` leaves its error.
int screen_watch(struct error *e, unsigned every_ms, screen_draw_fn *draw, void *arg);

// Lines of `text` cut to the width, at most `rows` of them, each cleared to its end. Returns how many
// were left out. Colours take no room.
int screen_fit(const char *text, int rows, int columns, struct buf *out);
