// Fit classes: requests that place alike share one, see struct fit.
#pragma once
#include "internal.h"

struct fit *fit_class(struct world *w, struct request *r);  // perhaps not current
struct fit *fit_of(struct world *w, struct request *r);  // current for the node log
bool fit_enough(const struct fit *f);                    // counted, without planned or reserved nodes
bool fit_ever(const struct world *w, struct fit *f);     // were the nodes that are up idle
void fit_unrank(struct fit *f);
void fits_free(struct world *w);
void fit_forget(struct world *w, struct request *r);     // the request goes away
