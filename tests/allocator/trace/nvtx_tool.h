/*
 * nvtx_tool.h - a tool that listens to NVTX's memory extension, for tests (nvtx_tool.c): it keeps
 * what it is told, and counts what breaks the extension's rules.
 */
#ifndef ASHLAR_NVTX_TOOL_H
#define ASHLAR_NVTX_TOOL_H

#include <stddef.h>
#include <stdint.h>

typedef struct nvtx_tool_range {
    uint64_t address, bytes;
    const char *name; /* of a region; NULL: it has none */
    void *heap;       /* of a region: its heap's handle; of a heap: its own */
} nvtx_tool_range;

/* What is registered now, in address order, and how often a rule was broken so far. */
typedef struct nvtx_tool_state {
    const nvtx_tool_range *heaps, *regions;
    size_t heap_count, region_count;
    unsigned long broken_rules, heaps_seen, regions_seen;
} nvtx_tool_state;

typedef nvtx_tool_state (*nvtx_tool_state_fn)(void);
#define NVTX_TOOL_STATE "nvtx_tool_get_state"

#endif /* ASHLAR_NVTX_TOOL_H */
