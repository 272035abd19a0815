/* Views that the program keeps of an arena, and whether all still lies where it was placed. */
#include "arena_impl.h"

#include "error.h"
#include "host.h"

ashlar_status ashlar_arena_bind(ashlar_arena *arena, ashlar_region region, size_t tensor,
                                void **pointer) {
    void *view = ashlar_arena_view(arena, region, tensor);
    if (view == NULL) {
        return ashlar_fail(ASHLAR_EINVAL, "bind: no region %d or no tensor %zu in this arena",
                           (int)region, tensor);
    }
    ashlar_arena_binding *grown =
        ashlar_host_realloc(arena->bindings, arena->binding_count + 1, sizeof *grown);
    if (grown == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory to bind tensor %s",
                           arena->tensors[tensor].info.name);
    }
    arena->bindings = grown;
    grown[arena->binding_count++] =
        (ashlar_arena_binding){.pointer = pointer, .region = region, .tensor = tensor};
    *pointer = view;
    return ASHLAR_OK;
}

/* Each region is one live block that is large enough, as the allocator knows it. */
static ashlar_status check_regions(const ashlar_arena *arena) {
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const char *text = ashlar_region_text((ashlar_region)i);
        const size_t wanted = ashlar_arena_region_bytes(arena, (ashlar_region)i);
        size_t bytes = 0;
        if (arena->regions[i] == NULL) {
            continue;
        }
        if (ashlar_usable_bytes(arena->allocator, arena->regions[i], &bytes) != ASHLAR_OK) {
            return ashlar_fail(ASHLAR_EMOVED, "the %s have lost their block: %s",
                               text, ashlar_error_detail());
        }
        if (bytes < wanted) {
            return ashlar_fail(ASHLAR_EMOVED, "the %s need %zu bytes, their block has %zu",
                               text, wanted, bytes);
        }
    }
    return ASHLAR_OK;
}

/* Groups in declaration order fill every layout without gaps, and tensors stand in them. */
static ashlar_status check_layout(const ashlar_arena *arena) {
    size_t end[ASHLAR_LAYOUT_COUNT] = {0};
    for (size_t i = 0; i < arena->group_count; i++) {
        const ashlar_arena_group *group = &arena->groups[i];
        for (int layout = 0; layout < ASHLAR_LAYOUT_COUNT; layout++) {
            if (group->offset[layout] != end[layout]) {
                return ashlar_fail(ASHLAR_EMOVED,
                                   "group %zu lies at offset %zu, the one before ends at %zu", i,
                                   group->offset[layout], end[layout]);
            }
            end[layout] +=
                ashlar_layout_bytes(group->dtype, group->padded, (ashlar_layout)layout);
        }
    }
    for (size_t i = 0; i < arena->tensor_count; i++) {
        const ashlar_arena_entry *tensor = &arena->tensors[i];
        const ashlar_arena_group *group = &arena->groups[tensor->group];
        if (tensor->info.offset[ASHLAR_LAYOUT_STORAGE] !=
            group->offset[ASHLAR_LAYOUT_STORAGE] + tensor->group_offset) {
            return ashlar_fail(ASHLAR_EMOVED, "tensor %s left its group", tensor->info.name);
        }
    }
    for (int layout = 0; layout < ASHLAR_LAYOUT_COUNT; layout++) {
        if (end[layout] != arena->bytes[layout]) {
            return ashlar_fail(ASHLAR_EMOVED, "the last group ends at %zu, the region at %zu",
                               end[layout], arena->bytes[layout]);
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_check(const ashlar_arena *arena) {
    if (arena->allocator == NULL) {
        return ashlar_fail(ASHLAR_EINVAL, "check: the arena is not committed");
    }
    for (size_t i = 0; i < arena->binding_count; i++) {
        const ashlar_arena_binding *binding = &arena->bindings[i];
        const void *want = ashlar_arena_view(arena, binding->region, binding->tensor);
        if (*binding->pointer != want) {
            return ashlar_fail(ASHLAR_EMOVED, "tensor %s (%s) was placed at %p, its view points to "
                               "%p; keep the arena's address and copy into it",
                               arena->tensors[binding->tensor].info.name,
                               ashlar_region_text(binding->region), want, *binding->pointer);
        }
    }
    const ashlar_status status = check_layout(arena);
    return status == ASHLAR_OK ? check_regions(arena) : status;
}
