"""A program on the driver's own interface, without any framework: says what it sees, takes memory,
keeps the GPU busy, prints one JSON line. It finds the driver as any program does, by its SONAME.

usage: load.py [--fill] [--mib N] [--seconds S] [--load MILLI] [--rounds N] [--wait S] [--ready FILE]
--fill takes memory until it is refused; --mib takes so much and keeps it; --seconds launches kernels of
2 ms (or of so many rounds) for so long; --load leaves the GPU idle for part of the time; --wait sleeps."""
import argparse
import ctypes
import json
import os
import sys
import time

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 rounds) {
    .reg .pred %p;
    .reg .u64 %rd<4>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [rounds];
    mov.u64 %rd2, 0;
    mov.f32 %f1, 0f3F800000;
again:
    fma.rn.f32 %f1, %f1, %f1, 0f3F800000;
    fma.rn.f32 %f1, %f1, %f1, 0f3F800000;
    add.u64 %rd2, %rd2, 1;
    setp.lt.u64 %p, %rd2, %rd1;
    @%p bra again;
    setp.eq.f32 %p, %f1, 0f00000000;
    @%p trap;
    ret;
}
\0"""
BLOCKS, THREADS, KERNEL_MS = 1056, 256, 2.0


class Cuda:
    """A context on the first GPU."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)

    def result(self, name, *arguments):
        return getattr(self.lib, name)(*arguments)

    def call(self, name, *arguments):
        r = self.result(name, *arguments)
        if r:
            print(json.dumps({"error": f"{name}: {r}"}), flush=True)
            sys.exit(3)

    def total(self):
        v = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(v), 0)
        return v.value

    def info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def take(self, size):
        """0 when the memory was given."""
        p = ctypes.c_uint64()
        return self.result("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(size))

    def kernel(self):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
        return function

    def spin(self, function, rounds, count):
        length = ctypes.c_uint64(rounds)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(length), ctypes.c_void_p))
        for _ in range(count):
            self.call("cuLaunchKernel", function, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
        self.call("cuCtxSynchronize")


def library():
    """Which driver was loaded first: the shim comes before what it opens."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        found = [line.split()[-1] for line in f if "libcuda.so" in line]
    shim = [path for path in found if "shim" in path]
    return (shim or found or ["-"])[0]


def fill(cuda):
    """MiB that could be had, and how the refusal looked."""
    taken, size = 0, 1 << 30
    while True:
        r = cuda.take(size)
        if r == 0:
            taken += size
        elif size > 2 << 20:
            size //= 2
        else:
            return taken >> 20, r


def work(cuda, seconds, milli, rounds):
    """Kernels launched, the seconds they took, and how long each was. A fixed amount of work each: what
    one gets done is what it was given. Without `rounds` a kernel is made as long as KERNEL_MS."""
    function = cuda.kernel()
    cuda.spin(function, 1, 1)
    if not rounds:
        begin = time.time()
        cuda.spin(function, 20000, 10)
        rounds = max(1, int(20000 * KERNEL_MS / 1000 / ((time.time() - begin) / 10)))
    begin, count = time.time(), 0
    while time.time() - begin < seconds:
        before = time.time()
        cuda.spin(function, rounds, 4)
        count += 4
        if milli < 1000:
            time.sleep((time.time() - before) * (1000 - milli) / max(milli, 1))
    return count, time.time() - begin, rounds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--mib", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--wait", type=float, default=0)
    parser.add_argument("--load", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--ready")
    o = parser.parse_args()
    cuda = Cuda()
    free, total = cuda.info()
    out = {"pid": os.getpid(), "device_total_mib": cuda.total() >> 20, "total_mib": total >> 20, "free_mib": free >> 20,
           "library": library()}
    if o.fill:
        out["filled_mib"], out["refusal"] = fill(cuda)
    if o.mib:
        out["taken"] = cuda.take(o.mib << 20) == 0
    if o.ready:
        with open(o.ready, "w", encoding="utf-8") as f:
            f.write(str(os.getpid()))
    if o.seconds:
        out["kernels"], out["seconds"], out["rounds"] = work(cuda, o.seconds, o.load, o.rounds)
    time.sleep(o.wait)
    print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
