// What pip inside a build knows of the site.
#pragma once
#include "cache.h"

const char *box_pip_value(const char *text, const char *key, struct arena *a);  // in a file of its settings
// Writes its settings into `work` and adds the options of buildah that show them to the build.
int box_pip_settings(const struct box_cache *c, const char *node_file, const char *work, struct box_list *options);
