#!/usr/bin/env python3
"""Writes the pass-through half of a shadow library.

usage: forward.py NAMES HOOKS OUT.S OUT.c

Every name of NAMES that HOOKS does not take becomes a function of one jump through a slot, which
needs no signature: arguments, stack and return address stay as the caller left them.
"""
import platform
import re
import sys

X86 = "    endbr64\n    jmp *shim_forward_slot+{off}(%rip)\n"
ARM = ("    hint #34\n    adrp x16, shim_forward_slot+{off}\n"
       "    ldr x16, [x16, #:lo12:shim_forward_slot+{off}]\n    br x16\n")


def main():
    names_file, hooks_file, asm_file, c_file = sys.argv[1:]
    with open(hooks_file) as f:
        hooks = set(re.findall(r"^X\((\w+)\)", f.read(), re.M))
    with open(names_file) as f:
        names = [s.strip() for s in f if s.strip() and not s.startswith("#")]
    unknown = hooks - set(names)
    if unknown:
        sys.exit(f"{names_file} lacks hooked names: {' '.join(sorted(unknown))}")
    names = [n for n in names if n not in hooks]
    body = {"x86_64": X86, "aarch64": ARM}.get(platform.machine())
    if body is None:
        sys.exit(f"no pass-through code for {platform.machine()}: x86_64 or aarch64 needed")
    with open(asm_file, "w") as f:
        f.write("    .text\n    .hidden shim_forward_slot\n")
        for i, n in enumerate(names):
            f.write(f"    .globl {n}\n    .type {n}, %function\n    .p2align 4\n{n}:\n")
            f.write(body.format(off=8 * i) + f"    .size {n}, .-{n}\n")
        f.write('    .section .note.GNU-stack,"",%progbits\n')
    with open(c_file, "w") as f:
        f.write('#include "forward.h"\n')
        f.write(f"const unsigned shim_forward_count = {len(names)};\n")
        f.write(f"void *shim_forward_slot[{len(names)}];\n")
        f.write(f"const char *const shim_forward_name[{len(names)}] = {{\n")
        f.writelines(f'    "{n}",\n' for n in names)
        f.write("};\n")


main()
