// The part of NVML's binary interface the shim touches.
#pragma once
#include <stdint.h>

typedef int nvmlReturn; // an int in the interface
typedef struct nvmlDevice_st *nvmlDevice;
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
};

struct nvmlMemory {
    uint64_t total, free, used;
};
struct nvmlMemory_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
struct nvmlProcess_v1 {
    unsigned pid;
    uint64_t used_bytes;
};
struct nvmlProcess_v2 {
    unsigned pid;
    uint64_t used_bytes;
    unsigned gpu_instance, compute_instance;
};
struct nvmlProcessDetail {
    unsigned pid;
    uint64_t used_bytes;
    unsigned gpu_instance, compute_instance;
    uint64_t protected_bytes;
};
struct nvmlProcessDetailList {
    unsigned version, mode, count;
    struct nvmlProcessDetail *entry;
};
