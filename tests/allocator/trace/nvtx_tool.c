/*
 * nvtx_tool.c - a tool that listens to NVTX's memory extension, for tests; NVTX loads it when
 * NVTX_INJECTION64_PATH names it.
 *
 * It is as strict as the documents: structures of the right version, a region inside its heap and
 * apart from all others, names and withdrawals of what is there, no heap withdrawn with regions.
 */
#include "tests/allocator/trace/nvtx_tool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <nvtx3/nvToolsExtMem.h>

#define EXPORTED __attribute__((visibility("default")))

typedef struct set {
    nvtx_tool_range *items; /* in address order */
    size_t count, capacity;
} set;

static set heaps, regions;
static unsigned long broken_rules, heaps_seen, regions_seen;

static void expect(bool is_so) {
    broken_rules += !is_so;
}

/* The index of the first one that ends above `address`. */
static size_t find(const set *in, uint64_t address) {
    size_t low = 0, high = in->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (in->items[middle].address + in->items[middle].bytes > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Find what begins at `address`. */
static nvtx_tool_range *find_exactly(const set *in, uint64_t address) {
    const size_t at = find(in, address);
    return at < in->count && in->items[at].address == address ? &in->items[at] : NULL;
}

static void insert(set *in, nvtx_tool_range range) {
    const size_t at = find(in, range.address);
    expect(range.bytes > 0);
    expect(at == in->count || in->items[at].address >= range.address + range.bytes);
    if (in->count == in->capacity) {
        in->capacity = in->capacity == 0 ? 64 : 2 * in->capacity;
        in->items = realloc(in->items, in->capacity * sizeof *in->items);
        if (in->items == NULL) {
            abort();
        }
    }
    memmove(&in->items[at + 1], &in->items[at], (in->count - at) * sizeof range);
    in->items[at] = range;
    in->count++;
}

static void erase(set *in, const nvtx_tool_range *range) {
    expect(range != NULL);
    if (range != NULL) {
        const size_t at = (size_t)(range - in->items);
        in->count--;
        memmove(&in->items[at], &in->items[at + 1], (in->count - at) * sizeof *range);
    }
}

static size_t regions_of(const void *heap) {
    size_t count = 0;
    for (size_t i = 0; i < regions.count; i++) {
        count += regions.items[i].heap == heap;
    }
    return count;
}

static const nvtx_tool_range *find_heap(const void *handle) {
    for (size_t i = 0; i < heaps.count; i++) {
        if (heaps.items[i].heap == handle) {
            return &heaps.items[i];
        }
    }
    return NULL;
}

/* ---- heaps ---- */

static nvtxMemHeapHandle_t register_heap(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t *what) {
    const nvtxMemVirtualRangeDesc_t *range = what->typeSpecificDesc;
    (void)domain;
    expect(what->extCompatID == NVTX_EXT_COMPATID_MEM && what->structSize == sizeof *what);
    expect(what->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR);
    expect(what->type == NVTX_MEM_TYPE_VIRTUAL_ADDRESS);
    expect(what->typeSpecificDescSize == sizeof *range);
    void *handle = (void *)(uintptr_t)(8 * ++heaps_seen);
    insert(&heaps, (nvtx_tool_range){(uintptr_t)range->ptr, range->size, NULL, handle});
    return handle;
}

static void unregister_heap(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
    (void)domain;
    expect(regions_of(heap) == 0);
    erase(&heaps, find_heap(heap));
}

static void reset_heap(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
    (void)domain;
    expect(find_heap(heap) != NULL);
    for (size_t i = regions.count; i-- > 0;) {
        if (regions.items[i].heap == heap) {
            erase(&regions, &regions.items[i]);
        }
    }
}

/* ---- regions ---- */

static void register_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t *what) {
    const nvtxMemVirtualRangeDesc_t *ranges = what->regionDescElements;
    const nvtx_tool_range *heap = find_heap(what->heap);
    (void)domain;
    expect(what->extCompatID == NVTX_EXT_COMPATID_MEM && what->structSize == sizeof *what);
    expect(what->regionType == NVTX_MEM_TYPE_VIRTUAL_ADDRESS && heap != NULL);
    expect(what->regionDescElementSize == sizeof *ranges);
    for (size_t i = 0; i < what->regionCount; i++) {
        const uint64_t address = (uintptr_t)ranges[i].ptr;
        expect(heap != NULL && address >= heap->address &&
               address + ranges[i].size <= heap->address + heap->bytes);
        insert(&regions, (nvtx_tool_range){address, ranges[i].size, NULL, what->heap});
        regions_seen++;
    }
}

static void unregister_regions(nvtxDomainHandle_t domain,
                               const nvtxMemRegionsUnregisterBatch_t *what) {
    (void)domain;
    expect(what->extCompatID == NVTX_EXT_COMPATID_MEM && what->structSize == sizeof *what);
    expect(what->refType == NVTX_MEM_REGION_REF_TYPE_POINTER);
    expect(what->refElementSize == sizeof *what->refElements);
    for (size_t i = 0; i < what->refCount; i++) {
        erase(&regions, find_exactly(&regions, (uintptr_t)what->refElements[i].pointer));
    }
}

static void name_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsNameBatch_t *what) {
    (void)domain;
    expect(what->extCompatID == NVTX_EXT_COMPATID_MEM && what->structSize == sizeof *what);
    expect(what->regionElementSize == sizeof *what->regionElements);
    for (size_t i = 0; i < what->regionCount; i++) {
        const nvtxMemRegionNameDesc_t *name = &what->regionElements[i];
        nvtx_tool_range *region = find_exactly(&regions, (uintptr_t)name->region.pointer);
        expect(name->regionRefType == NVTX_MEM_REGION_REF_TYPE_POINTER && region != NULL);
        expect(name->nameType == NVTX_MESSAGE_TYPE_ASCII);
        if (region != NULL) {
            region->name = name->name.ascii;
        }
    }
}

/* ---- what NVTX and the tests look up ---- */

EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
EXPORTED int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);
EXPORTED nvtx_tool_state nvtx_tool_get_state(void);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    (void)get_table;
    return 1;
}

int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module) {
    if (module->moduleId != NVTX_EXT_MODULEID_MEM || module->segmentsCount < 1) {
        return 0;
    }
    intptr_t *slots = module->segments[0].functionSlots;
    slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = (intptr_t)register_heap;
    slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = (intptr_t)unregister_heap;
    slots[NVTX3EXT_CBID_nvtxMemHeapReset] = (intptr_t)reset_heap;
    slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = (intptr_t)register_regions;
    slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = (intptr_t)unregister_regions;
    slots[NVTX3EXT_CBID_nvtxMemRegionsName] = (intptr_t)name_regions;
    return 1;
}

nvtx_tool_state nvtx_tool_get_state(void) {
    return (nvtx_tool_state){heaps.items,  regions.items, heaps.count, regions.count,
                             broken_rules, heaps_seen,    regions_seen};
}
