#!/bin/sh
# Builds the shim and the probes with the compiler alone, for a GPU machine without the rest of
# Acequia's build dependencies. usage: build.sh OUTDIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
src=$here/../../src/shim
out=$1
mkdir -p "$out/shim"
flags="-std=gnu17 -O2 -g -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -fPIC -fno-strict-aliasing -fvisibility=hidden"
link="-shared -Wl,-z,nodelete -Wl,-Bsymbolic -Wl,-z,now -pthread -ldl"
python3 "$src/forward.py" "$src/libcuda.symbols" "$src/cuda_hooks.def" "$out/cuda.S" "$out/cuda.c"
python3 "$src/forward.py" "$src/libnvml.symbols" "$src/nvml_hooks.def" "$out/nvml.S" "$out/nvml.c"
shared="$src/forward.c $src/ledger.c $src/ledger_file.c"
gcc $flags -I"$src" -I"$src/include" $shared "$src/arbiter.c" "$src/shim.c" "$src/account.c" "$src/table.c" \
    "$src/context.c" "$src/throttle.c" "$src/throttle_barrier.c" "$src/throttle_thread.c" "$src/throttle_meter.c" "$src"/hook_*.c "$out/cuda.S" "$out/cuda.c" \
    $link -Wl,-soname,libcuda.so.1 -o "$out/shim/libcuda.so.1"
gcc $flags -I"$src" -I"$src/include" $shared "$src/nvml.c" "$out/nvml.S" "$out/nvml.c" \
    $link -Wl,-soname,libnvidia-ml.so.1 -o "$out/shim/libnvidia-ml.so.1"
gcc $flags -I"$src" -I"$src/include" "$here/ledger_cli.c" "$src/ledger.c" "$src/ledger_file.c" "$src/arbiter.c" \
    -pthread -o "$out/ledger"
gcc $flags -I"$src" -I"$src/include" "$here/probe.c" -pthread -ldl -o "$out/probe"
