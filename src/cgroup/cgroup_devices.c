// Owns the program that refuses devices: for every denied one, four instructions that compare kind,
// major and minor number; everything else is allowed.
#include "cgroup_devices.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { PER_DEVICE = 5, AROUND = 7 };

static int bpf(int command, union bpf_attr *attr) {
    return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

static struct bpf_insn op(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm) {
    return (struct bpf_insn){.code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm};
}

static struct bpf_insn load(uint8_t dst, size_t offset) {
    return op(BPF_LDX | BPF_MEM | BPF_W, dst, BPF_REG_1, (int16_t)offset, 0);
}

// Skips `skip` instructions unless the register holds the value.
static struct bpf_insn unless(uint8_t reg, uint32_t value, int16_t skip) {
    return op(BPF_JMP | BPF_JNE | BPF_K, reg, 0, skip, (int32_t)value);
}

static struct bpf_insn answer(int32_t value) {
    return op(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, value);
}

// A descriptor of the loaded program.
static int load_program(const struct launch_device *denied, uint32_t count) {
    cleanup_free struct bpf_insn *code = xcalloc(count * PER_DEVICE + AROUND, sizeof *code);
    uint32_t n = 0;
    code[n++] = load(BPF_REG_2, offsetof(struct bpf_cgroup_dev_ctx, access_type));
    code[n++] = op(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_2, 0, 0, 0xffff);
    code[n++] = load(BPF_REG_3, offsetof(struct bpf_cgroup_dev_ctx, major));
    code[n++] = load(BPF_REG_4, offsetof(struct bpf_cgroup_dev_ctx, minor));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t kind = denied[i].block ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR;
        code[n++] = unless(BPF_REG_2, kind, 4);
        code[n++] = unless(BPF_REG_3, denied[i].major, 3);
        code[n++] = unless(BPF_REG_4, denied[i].minor, 2);
        code[n++] = answer(0);
        code[n++] = op(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }
    code[n++] = answer(1);
    code[n++] = op(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    static const char licence[] = "Apache-2.0";
    union bpf_attr attr = {
        .prog_type = BPF_PROG_TYPE_CGROUP_DEVICE, .insns = (uint64_t)(uintptr_t)code,
        .insn_cnt = n, .license = (uint64_t)(uintptr_t)licence,
    };
    int fd = bpf(BPF_PROG_LOAD, &attr);
    return fd < 0 ? -errno : fd;
}

bool cgroup_devices_possible(void) {
    cleanup_close int fd = load_program(NULL, 0);
    return fd >= 0;
}

int cgroup_devices_deny(const char *folder, const struct launch_device *denied, uint32_t count) {
    cleanup_close int group = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (group < 0)
        return -errno;
    cleanup_close int program = load_program(denied, count);
    if (program < 0)
        return program;
    union bpf_attr attr = {.target_fd = (uint32_t)group, .attach_bpf_fd = (uint32_t)program,
                           .attach_type = BPF_CGROUP_DEVICE, .attach_flags = BPF_F_ALLOW_MULTI};
    return bpf(BPF_PROG_ATTACH, &attr) < 0 ? -errno : 0;
}
