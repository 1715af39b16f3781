// The part of the CUDA driver's binary interface the shim touches: handles, the structs whose
// fields it reads, and the prototypes of the functions it takes over or calls. Written from the
// interface as libcuda exports it, CUDA 11 to 13; 64-bit only.
#pragma once
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult; // an int in the interface; the values the shim uses follow
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
};

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef uint64_t CUmemGenericAllocationHandle;

struct CUuuid {
    unsigned char bytes[16];
};

enum { CU_LOCATION_DEVICE = 1 };
struct CUmemLocation {
    int type;
    int id;
};

struct CUmemAllocationProp {
    int type;
    int handle_types;
    struct CUmemLocation location;
    void *win32;
    unsigned char flags[8];
};
static_assert(sizeof(struct CUmemAllocationProp) == 32, "CUmemAllocationProp");

struct CUmemPoolProps {
    int alloc_type;
    int handle_types;
    struct CUmemLocation location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};
static_assert(sizeof(struct CUmemPoolProps) == 88, "CUmemPoolProps");

struct CUmemAllocNodeParams {
    struct CUmemPoolProps pool;
    const void *access;
    size_t naccess;
    size_t bytes;
    CUdeviceptr ptr;
};
static_assert(sizeof(struct CUmemAllocNodeParams) == 120, "CUDA_MEM_ALLOC_NODE_PARAMS");

struct CUarrayDesc_v1 {
    unsigned width, height;
    int format;
    unsigned channels;
};
struct CUarrayDesc {
    size_t width, height;
    int format;
    unsigned channels;
};
struct CUarray3DDesc_v1 {
    unsigned width, height, depth;
    int format;
    unsigned channels, flags;
};
struct CUarray3DDesc {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

struct CUlaunchConfig {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    CUstream stream;
    void *attrs;
    unsigned nattrs;
};
static_assert(offsetof(struct CUlaunchConfig, stream) == 32, "CUlaunchConfig");

struct CUlaunchParams { // cooperative launch on several devices
    CUfunction f;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    CUstream stream;
    void **params;
};

struct CUgraphInstantiateParams {
    uint64_t flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int result;
};

enum {
    CU_POOL_RESERVED_CURRENT = 5,
    CU_POOL_USED_CURRENT = 7,
    CU_GRAPH_MEM_RESERVED_CURRENT = 2,
    CU_NODE_GRAPH = 4,
    CU_NODE_MEM_ALLOC = 10,
    CU_CAPTURE_MODE_RELAXED = 2,
    CU_ARRAY_SPARSE = 0x40,
    CU_ARRAY_DEFERRED = 0x80,
    CU_ARRAY_CUBEMAP = 0x04,
    CU_PROC_PER_THREAD = 2,
};

#define CU_API __attribute__((visibility("default"))) CUresult

CU_API cuGetProcAddress(const char *, void **, int, uint64_t);
CU_API cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
CU_API cuMemAlloc(unsigned *, unsigned);
CU_API cuMemAlloc_v2(CUdeviceptr *, size_t);
CU_API cuMemAllocPitch(unsigned *, unsigned *, unsigned, unsigned, unsigned);
CU_API cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CU_API cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CU_API cuMemFree(unsigned);
CU_API cuMemFree_v2(CUdeviceptr);
CU_API cuMemGetInfo(unsigned *, unsigned *);
CU_API cuMemGetInfo_v2(size_t *, size_t *);
CU_API cuDeviceTotalMem(unsigned *, CUdevice);
CU_API cuDeviceTotalMem_v2(size_t *, CUdevice);
CU_API cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CU_API cuMemAllocAsync_ptsz(CUdeviceptr *, size_t, CUstream);
CU_API cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CU_API cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CU_API cuMemFreeAsync(CUdeviceptr, CUstream);
CU_API cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);
CU_API cuMemPoolCreate(CUmemoryPool *, const struct CUmemPoolProps *);
CU_API cuMemPoolDestroy(CUmemoryPool);
CU_API cuMemPoolTrimTo(CUmemoryPool, size_t);
CU_API cuMemPoolImportFromShareableHandle(CUmemoryPool *, void *, int, uint64_t);
CU_API cuMemCreate(CUmemGenericAllocationHandle *, size_t, const struct CUmemAllocationProp *,
                   uint64_t);
CU_API cuMemRelease(CUmemGenericAllocationHandle);
CU_API cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, uint64_t);
CU_API cuMemUnmap(CUdeviceptr, size_t);
CU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *, void *);
CU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *, void *, int);
CU_API cuArrayCreate(CUarray *, const struct CUarrayDesc_v1 *);
CU_API cuArrayCreate_v2(CUarray *, const struct CUarrayDesc *);
CU_API cuArray3DCreate(CUarray *, const struct CUarray3DDesc_v1 *);
CU_API cuArray3DCreate_v2(CUarray *, const struct CUarray3DDesc *);
CU_API cuArrayDestroy(CUarray);
CU_API cuMipmappedArrayCreate(CUmipmappedArray *, const struct CUarray3DDesc *, unsigned);
CU_API cuMipmappedArrayDestroy(CUmipmappedArray);
CU_API cuCtxCreate(CUcontext *, unsigned, CUdevice);
CU_API cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CU_API cuCtxCreate_v3(CUcontext *, void *, int, unsigned, CUdevice);
CU_API cuCtxCreate_v4(CUcontext *, void *, unsigned, CUdevice);
CU_API cuCtxDestroy(CUcontext);
CU_API cuCtxDestroy_v2(CUcontext);
CU_API cuCtxDetach(CUcontext);
CU_API cuCtxSetLimit(int, size_t);
CU_API cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CU_API cuDevicePrimaryCtxRelease(CUdevice);
CU_API cuDevicePrimaryCtxRelease_v2(CUdevice);
CU_API cuDevicePrimaryCtxReset(CUdevice);
CU_API cuDevicePrimaryCtxReset_v2(CUdevice);
CU_API cuModuleLoad(CUmodule *, const char *);
CU_API cuModuleLoadData(CUmodule *, const void *);
CU_API cuModuleLoadDataEx(CUmodule *, const void *, unsigned, int *, void **);
CU_API cuModuleLoadFatBinary(CUmodule *, const void *);
CU_API cuLibraryLoadData(CUlibrary *, const void *, int *, void **, unsigned, int *, void **,
                         unsigned);
CU_API cuLibraryLoadFromFile(CUlibrary *, const char *, int *, void **, unsigned, int *, void **,
                             unsigned);
CU_API cuGraphInstantiate(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CU_API cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CU_API cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, uint64_t);
CU_API cuGraphInstantiateWithParams(CUgraphExec *, CUgraph, struct CUgraphInstantiateParams *);
CU_API cuGraphInstantiateWithParams_ptsz(CUgraphExec *, CUgraph, struct CUgraphInstantiateParams *);
CU_API cuGraphExecDestroy(CUgraphExec);
CU_API cuGraphUpload(CUgraphExec, CUstream);
CU_API cuGraphUpload_ptsz(CUgraphExec, CUstream);
CU_API cuDeviceGraphMemTrim(CUdevice);
CU_API cuGraphLaunch(CUgraphExec, CUstream);
CU_API cuGraphLaunch_ptsz(CUgraphExec, CUstream);
CU_API cuLaunch(CUfunction);
CU_API cuLaunchGrid(CUfunction, int, int);
CU_API cuLaunchGridAsync(CUfunction, int, int, CUstream);
CU_API cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned,
                      CUstream, void **, void **);
CU_API cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream, void **, void **);
CU_API cuLaunchKernelEx(const struct CUlaunchConfig *, CUfunction, void **, void **);
CU_API cuLaunchKernelEx_ptsz(const struct CUlaunchConfig *, CUfunction, void **, void **);
CU_API cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned,
                                 unsigned, CUstream, void **);
CU_API cuLaunchCooperativeKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, CUstream, void **);
CU_API cuLaunchCooperativeKernelMultiDevice(struct CUlaunchParams *, unsigned, unsigned);
CU_API cuStreamBeginCapture(CUstream);
CU_API cuStreamBeginCapture_ptsz(CUstream);
CU_API cuStreamBeginCapture_v2(CUstream, int);
CU_API cuStreamBeginCapture_v2_ptsz(CUstream, int);
CU_API cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const void *, size_t,
                                   int);
CU_API cuStreamBeginCaptureToGraph_ptsz(CUstream, CUgraph, const CUgraphNode *, const void *,
                                        size_t, int);
CU_API cuStreamEndCapture(CUstream, CUgraph *);
CU_API cuStreamEndCapture_ptsz(CUstream, CUgraph *);
CU_API cuStreamDestroy(CUstream);
CU_API cuStreamDestroy_v2(CUstream);
CU_API cuStreamSynchronize(CUstream);
CU_API cuStreamSynchronize_ptsz(CUstream);
CU_API cuEventSynchronize(CUevent);
CU_API cuCtxSynchronize(void);
CU_API cuCtxSynchronize_v2(CUcontext);

CU_API cuCtxSetCurrent(CUcontext);
CU_API cuCtxPushCurrent(CUcontext);
CU_API cuCtxPopCurrent(CUcontext *);
CU_API cuCtxGetCurrent(CUcontext *);
CU_API cuCtxGetDevice(CUdevice *);
CU_API cuCtxPushCurrent_v2(CUcontext);
CU_API cuCtxPopCurrent_v2(CUcontext *);
CU_API cuDeviceGetUuid(struct CUuuid *, CUdevice);
CU_API cuDeviceGetUuid_v2(struct CUuuid *, CUdevice);
CU_API cuDeviceGetCount(int *);
CU_API cuDeviceGetMemPool(CUmemoryPool *, CUdevice);
CU_API cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CU_API cuDeviceGetGraphMemAttribute(CUdevice, int, void *);
CU_API cuDevicePrimaryCtxGetState(CUdevice, unsigned *, int *);
CU_API cuMemPoolGetAttribute(CUmemoryPool, int, void *);
CU_API cuMemHostAlloc(void **, size_t, unsigned);
CU_API cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned);
CU_API cuMemFreeHost(void *);
CU_API cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CU_API cuStreamWaitValue32_v2_ptsz(CUstream, CUdeviceptr, uint32_t, unsigned);
CU_API cuEventCreate(CUevent *, unsigned);
CU_API cuEventDestroy_v2(CUevent);
CU_API cuEventRecord(CUevent, CUstream);
CU_API cuEventRecord_ptsz(CUevent, CUstream);
CU_API cuEventQuery(CUevent);
CU_API cuEventElapsedTime(float *, CUevent, CUevent);
CU_API cuStreamIsCapturing(CUstream, int *);
CU_API cuStreamIsCapturing_ptsz(CUstream, int *);
CU_API cuThreadExchangeStreamCaptureMode(int *);
CU_API cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CU_API cuGraphNodeGetType(CUgraphNode, int *);
CU_API cuGraphMemAllocNodeGetParams(CUgraphNode, struct CUmemAllocNodeParams *);
CU_API cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph *);
