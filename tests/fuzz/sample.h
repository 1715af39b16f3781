// Random but well-formed values of a table-described struct, as inputs for fuzz targets: mutations of them reach deep.
#pragma once
#include "base/rand.h"
#include "base/schema.h"

void fuzz_sample_binary(const struct schema *s, struct rand *r, int depth, struct buf *out);
void fuzz_sample_json(const struct schema *s, struct rand *r, int depth, struct json_writer *w);
