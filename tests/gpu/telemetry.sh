#!/bin/sh
# Discovery and telemetry on a real GPU against nvidia-smi: builds gpu_show with the compiler alone,
# compares figures idle and under load, and measures what a reading costs.
# usage: telemetry.sh [OUTDIR]      needs gcc, python3 with PyTorch, one NVIDIA GPU, nvidia-smi
set -eu
here=$(cd "$(dirname "$0")" && pwd)
src=$here/../../src
out=${1:-$(mktemp -d)}
mkdir -p "$out"
flags="-std=gnu17 -O2 -g -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -fno-strict-aliasing"
# What the model and the ledger of the shim need is all there is besides src/device.
gcc $flags -I"$src" "$src"/device/*.c "$src"/device/test/show.c \
    "$src"/base/alloc.c "$src"/base/arena.c "$src"/base/buf.c "$src"/base/clock.c "$src"/base/error.c "$src"/base/json.c "$src"/base/json_write.c \
    "$src"/base/map.c "$src"/base/rand.c "$src"/base/schema.c "$src"/base/schema_json.c "$src"/base/text.c \
    "$src"/model/event.c "$src"/model/job.c "$src"/model/message.c "$src"/model/node.c \
    "$src"/shim/ledger.c "$src"/shim/ledger_file.c "$src"/shim/arbiter.c -lm -ldl -pthread -o "$out/gpu_show"
PYTHONUNBUFFERED=1 exec python3 "$here/telemetry.py" "$out/gpu_show" "$out/telemetry.json"
