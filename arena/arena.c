#include "arena_impl.h"

#include "error.h"
#include "host.h"

static const struct {
    const char *text;
    ashlar_tag tag;
} region_facts[ASHLAR_REGION_COUNT] = {
#define X(name, text, tag) [ASHLAR_REGION_##name] = {text, ASHLAR_TAG_##tag},
    ASHLAR_REGION_MAP(X)
#undef X
};

ashlar_status ashlar_arena_create(ashlar_arena **out) {
    ashlar_arena *arena = ashlar_host_calloc(1, sizeof *arena);
    if (arena == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for an arena");
    }
    *out = arena;
    return ASHLAR_OK;
}

/* Give the regions taken so far back. */
static void free_regions(ashlar_arena *arena, ashlar_allocator *allocator) {
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if (ashlar_free(allocator, arena->regions[i]) != ASHLAR_OK) {
            continue; /* somebody freed a region behind our back: it is gone either way */
        }
        arena->regions[i] = NULL;
    }
}

void ashlar_arena_destroy(ashlar_arena *arena) {
    if (arena == NULL) {
        return;
    }
    if (arena->allocator != NULL) {
        free_regions(arena, arena->allocator);
    }
    for (size_t i = 0; i < arena->tensor_count; i++) {
        ashlar_host_free(arena->tensors[i].name);
    }
    ashlar_host_free(arena->tensors);
    ashlar_host_free(arena->groups);
    ashlar_host_free(arena->bindings);
    ashlar_host_free(arena);
}

static ashlar_status take_regions(ashlar_arena *arena, ashlar_allocator *allocator,
                                  ashlar_stream stream, size_t count, size_t bytes) {
    ashlar_device *device = ashlar_allocator_device(allocator);
    for (size_t i = 0; i < count; i++) {
        ashlar_status status = ashlar_alloc_tagged(allocator, bytes, region_facts[i].tag, stream,
                                                   &arena->regions[i]);
        if (status == ASHLAR_OK) {
            status = ashlar_fill(device, arena->regions[i], 0, bytes, stream);
        }
        if (status != ASHLAR_OK) {
            free_regions(arena, allocator);
            return status;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_commit(ashlar_arena *arena, ashlar_allocator *allocator,
                                  ashlar_stream stream, size_t region_count) {
    if (arena->tensor_count == 0 || arena->region_count != 0) {
        return ashlar_fail(ASHLAR_EINVAL, arena->tensor_count == 0
                                              ? "commit of an arena without tensors"
                                              : "the arena is committed already");
    }
    if (region_count < 1 || region_count > ASHLAR_REGION_COUNT) {
        return ashlar_fail(ASHLAR_EINVAL, "region_count: %zu; an arena has 1 to %d regions",
                           region_count, ASHLAR_REGION_COUNT);
    }
    size_t bytes = 0;
    ashlar_status status = ashlar_arena_place(arena, &bytes);
    if (status == ASHLAR_OK) {
        status = take_regions(arena, allocator, stream, region_count, bytes);
    }
    if (status == ASHLAR_OK) {
        arena->allocator = allocator;
        arena->region_bytes = bytes;
        arena->region_count = region_count;
    }
    return status;
}

size_t ashlar_arena_tensor_count(const ashlar_arena *arena) {
    return arena->tensor_count;
}

size_t ashlar_arena_elements(const ashlar_arena *arena) {
    size_t sum = 0;
    for (size_t i = 0; i < arena->tensor_count; i++) {
        sum += arena->tensors[i].info.elements;
    }
    return sum;
}

size_t ashlar_arena_region_bytes(const ashlar_arena *arena) {
    return arena->region_bytes;
}

size_t ashlar_arena_region_count(const ashlar_arena *arena) {
    return arena->region_count;
}

ashlar_allocator *ashlar_arena_allocator(const ashlar_arena *arena) {
    return arena->allocator;
}

void ashlar_arena_tensor(const ashlar_arena *arena, size_t tensor, ashlar_tensor_info *info) {
    *info = arena->tensors[tensor].info;
    if (arena->region_count == 0) {
        info->offset = 0; /* a commit that failed may have placed it */
    }
}

void *ashlar_arena_region(const ashlar_arena *arena, ashlar_region region) {
    return (size_t)region < arena->region_count ? arena->regions[region] : NULL;
}

void *ashlar_arena_view(const ashlar_arena *arena, ashlar_region region, size_t tensor) {
    char *base = ashlar_arena_region(arena, region);
    return base != NULL && tensor < arena->tensor_count ? base + arena->tensors[tensor].info.offset
                                                        : NULL;
}

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
    for (size_t i = 0; i < arena->region_count; i++) {
        size_t bytes = 0;
        if (ashlar_usable_bytes(arena->allocator, arena->regions[i], &bytes) != ASHLAR_OK) {
            return ashlar_fail(ASHLAR_EMOVED, "the %s have lost their block: %s",
                               region_facts[i].text, ashlar_error_detail());
        }
        if (bytes < arena->region_bytes) {
            return ashlar_fail(ASHLAR_EMOVED, "the %s need %zu bytes, their block has %zu",
                               region_facts[i].text, arena->region_bytes, bytes);
        }
    }
    return ASHLAR_OK;
}

/* Tensors in declaration order lie in address order, apart, inside the region. */
static ashlar_status check_layout(const ashlar_arena *arena) {
    size_t end = 0;
    for (size_t i = 0; i < arena->group_count; i++) {
        const ashlar_arena_group *group = &arena->groups[i];
        if (group->offset < end || group->offset - end >= ASHLAR_ARENA_ALIGN ||
            group->offset % ASHLAR_ARENA_ALIGN != 0) {
            return ashlar_fail(ASHLAR_EMOVED,
                               "group %zu lies at offset %zu, the one before ends at "
                               "%zu",
                               i, group->offset, end);
        }
        end = group->offset + group->bytes;
    }
    for (size_t i = 0; i < arena->tensor_count; i++) {
        const ashlar_arena_entry *tensor = &arena->tensors[i];
        const ashlar_arena_group *group = &arena->groups[tensor->group];
        if (tensor->info.offset != group->offset + tensor->group_offset) {
            return ashlar_fail(ASHLAR_EMOVED, "tensor %s left its group", tensor->info.name);
        }
    }
    return end <= arena->region_bytes
               ? ASHLAR_OK
               : ashlar_fail(ASHLAR_EMOVED, "the last group ends at %zu, the region at %zu", end,
                             arena->region_bytes);
}

ashlar_status ashlar_arena_check(const ashlar_arena *arena) {
    if (arena->region_count == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "check: the arena is not committed");
    }
    for (size_t i = 0; i < arena->binding_count; i++) {
        const ashlar_arena_binding *binding = &arena->bindings[i];
        const void *want = ashlar_arena_view(arena, binding->region, binding->tensor);
        if (*binding->pointer != want) {
            return ashlar_fail(ASHLAR_EMOVED, "tensor %s (%s) was placed at %p, its view points to "
                               "%p; keep the arena's address and copy into it",
                               arena->tensors[binding->tensor].info.name,
                               region_facts[binding->region].text, want, *binding->pointer);
        }
    }
    const ashlar_status status = check_layout(arena);
    return status == ASHLAR_OK ? check_regions(arena) : status;
}
