/* nvtx_memory.c - reporting an allocator's handles and blocks to NVTX, as its heaps and regions. */
#include "allocator/trace/trace.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

#ifdef ASHLAR_HAVE_NVTX

#include <stdlib.h>
#include <string.h>

/* NVTX loads the library that an environment variable names, by getenv(). A setuid program must not
 * do so, and there secure_getenv() finds no variable. */
#define getenv secure_getenv
#include <nvtx3/nvToolsExtMem.h>
#undef getenv

#include <ashlar/allocator.h>

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"

typedef struct nvtx_heap {
    uint64_t address, bytes;
    nvtxMemHeapHandle_t handle; /* NVTX's, for the heap; NULL if no tool listens */
} nvtx_heap;

struct ashlar_nvtx_memory {
    nvtxDomainHandle_t domain;
    size_t handle_bytes; /* 0: each MAP or UNMAP is of one segment */
    nvtx_heap *heaps;    /* [count], in address order; none overlaps another */
    size_t count, capacity;
};

ashlar_status ashlar__nvtx_memory_create(size_t handle_bytes, ashlar_nvtx_memory **out) {
    ashlar_nvtx_memory *memory;
    ASHLAR_HOST_NEW(memory, 1, "no host memory for what NVTX's tools are told");
    memory->domain = nvtxDomainCreateA("ashlar");
    memory->handle_bytes = handle_bytes;
    *out = memory;
    return ASHLAR_OK;
}

void ashlar__nvtx_memory_destroy(ashlar_nvtx_memory *memory) {
    if (memory == NULL) {
        return;
    }
    for (size_t i = 0; i < memory->count; i++) {
        /* Drop the regions of blocks that are still live. */
        nvtxMemHeapReset(memory->domain, memory->heaps[i].handle);
        nvtxMemHeapUnregister(memory->domain, memory->heaps[i].handle);
    }
    nvtxDomainDestroy(memory->domain);
    ashlar__host_free(memory->heaps);
    ashlar__host_free(memory);
}

/* The index of the first heap that ends above `address`. */
static size_t find_heap(const ashlar_nvtx_memory *memory, uint64_t address) {
    size_t low = 0, high = memory->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (memory->heaps[middle].address + memory->heaps[middle].bytes > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* ---- handles ---- */

static void add_heap(ashlar_nvtx_memory *memory, uint64_t address, uint64_t bytes) {
    const nvtxMemVirtualRangeDesc_t range = {.size = bytes, .ptr = ashlar__ptr_out(address)};
    const nvtxMemHeapDesc_t what = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof what,
        .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
        .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .typeSpecificDescSize = sizeof range,
        .typeSpecificDesc = &range,
    };
    void *heaps = memory->heaps;
    if (!ashlar__host_grow(&heaps, &memory->capacity, memory->count, sizeof *memory->heaps)) {
        return;
    }
    memory->heaps = heaps;
    const size_t at = find_heap(memory, address);
    ASHLAR_CHECK2(at == memory->count || memory->heaps[at].address >= address + bytes);
    memmove(&memory->heaps[at + 1], &memory->heaps[at],
            (memory->count - at) * sizeof *memory->heaps);
    memory->heaps[at] = (nvtx_heap){address, bytes, nvtxMemHeapRegister(memory->domain, &what)};
    memory->count++;
}

static void drop_heap(ashlar_nvtx_memory *memory, uint64_t address) {
    const size_t at = find_heap(memory, address);
    if (at == memory->count || memory->heaps[at].address != address) {
        return;
    }
    nvtxMemHeapUnregister(memory->domain, memory->heaps[at].handle);
    memory->count--;
    memmove(&memory->heaps[at], &memory->heaps[at + 1],
            (memory->count - at) * sizeof *memory->heaps);
}

static void tell_handles(ashlar_nvtx_memory *memory, const ashlar_trace_event *event) {
    const uint64_t step = memory->handle_bytes == 0 ? event->bytes : memory->handle_bytes;
    ASHLAR_CHECK2(event->bytes > 0 && event->bytes % step == 0);
    for (uint64_t done = 0; done < event->bytes; done += step) {
        if (event->action == ASHLAR_TRACE_MAP) {
            add_heap(memory, event->address + done, step);
        } else {
            drop_heap(memory, event->address + done);
        }
    }
}

/* ---- blocks ---- */

static void add_region(const ashlar_nvtx_memory *memory, const nvtx_heap *heap, const void *ptr,
                       uint64_t bytes, const char *name) {
    const nvtxMemVirtualRangeDesc_t range = {.size = bytes, .ptr = ptr};
    const nvtxMemRegionsRegisterBatch_t what = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof what,
        .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .heap = heap->handle,
        .regionCount = 1,
        .regionDescElementSize = sizeof range,
        .regionDescElements = &range,
    };
    nvtxMemRegionsRegister(memory->domain, &what);
    const nvtxMemRegionNameDesc_t called = {
        .regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .nameType = NVTX_MESSAGE_TYPE_ASCII,
        .region = {.pointer = ptr},
        .name = {.ascii = name},
    };
    const nvtxMemRegionsNameBatch_t names = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof names,
        .regionCount = 1,
        .regionElementSize = sizeof called,
        .regionElements = &called,
    };
    nvtxMemRegionsName(memory->domain, &names);
}

static void drop_region(const ashlar_nvtx_memory *memory, const void *ptr) {
    const nvtxMemRegionRef_t region = {.pointer = ptr};
    const nvtxMemRegionsUnregisterBatch_t what = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof what,
        .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .refCount = 1,
        .refElementSize = sizeof region,
        .refElements = &region,
    };
    nvtxMemRegionsUnregister(memory->domain, &what);
}

static void tell_block(const ashlar_nvtx_memory *memory, const ashlar_trace_event *event) {
    const uint64_t end = event->address + event->requested;
    for (size_t i = find_heap(memory, event->address); i < memory->count; i++) {
        const nvtx_heap *heap = &memory->heaps[i];
        const uint64_t from = heap->address > event->address ? heap->address : event->address;
        const uint64_t heap_end = heap->address + heap->bytes;
        if (from >= end) {
            break;
        }
        if (event->action == ASHLAR_TRACE_ALLOC) {
            add_region(memory, heap, ashlar__ptr_out(from),
                       (heap_end < end ? heap_end : end) - from,
                       ashlar_tag_name((ashlar_tag)event->tag));
        } else {
            drop_region(memory, ashlar__ptr_out(from));
        }
    }
}

void ashlar__nvtx_memory_tell(void *listener, const ashlar_trace_event *event) {
    switch ((ashlar_trace_action)event->action) {
    case ASHLAR_TRACE_MAP:
    case ASHLAR_TRACE_UNMAP:
        tell_handles(listener, event);
        return;
    case ASHLAR_TRACE_ALLOC:
    case ASHLAR_TRACE_FREE:
        tell_block(listener, event);
        return;
    case ASHLAR_TRACE_OOM:
    case ASHLAR_TRACE_ACTION_COUNT:
        return;
    }
}

#else

ashlar_status ashlar__nvtx_memory_create(size_t handle_bytes, ashlar_nvtx_memory **out) {
    (void)handle_bytes, (void)out;
    return ashlar__fail(ASHLAR_ENOTSUP, "nvtx: this build had no NVTX headers; build with those of "
                                        "the CUDA toolkit, or leave nvtx off");
}

void ashlar__nvtx_memory_destroy(ashlar_nvtx_memory *memory) {
    ASHLAR_CHECK2(memory == NULL);
    (void)memory;
}

void ashlar__nvtx_memory_tell(void *listener, const ashlar_trace_event *event) {
    (void)listener, (void)event;
}

#endif
