#!/bin/sh
# The GPU shim on a real GPU: builds it, measures memory limits, compute shares, borrowing and
# overhead against no shim in the same run, and prints a table (JSON beside it).
# usage: run.sh [OUTDIR] [options of bench.py]      needs gcc, python3 with PyTorch, one NVIDIA GPU
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$(mktemp -d)}
[ $# -gt 0 ] && shift
mkdir -p "$out"
"$here/build.sh" "$out/build"
PYTHONUNBUFFERED=1 exec python3 "$here/bench.py" "$out/build" --json "$out/gpu-sharing.json" "$@"
