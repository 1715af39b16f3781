// Small reads and writes of kernel files, shared by the two halves of the cgroup module.
#pragma once
#include <stdint.h>
#include <sys/types.h>

int kernel_write(const char *path, const char *text);            // 0 or a negative errno
ssize_t kernel_read(const char *path, char *out, size_t size);   // length, NUL-terminated
uint64_t kernel_field(const char *text, const char *key);        // "key N" lines; 0 if absent
void kernel_path(char *out, size_t size, const char *dir, const char *file);  // "dir/file"
