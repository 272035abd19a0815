/* check.c - binds the program's pointers and views to tensors, checks that these and the arena's
 * regions have not changed since, and describes what of an arena lies at an address. */
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/layout/arena_impl.h"

/* The region that has some of the `bytes` bytes at `begin`; ASHLAR_REGION_COUNT: none has. */
static unsigned find_region(const ashlar_arena *arena, uintptr_t begin, size_t bytes) {
    const uintptr_t end = begin + bytes; /* if this overflows, no region is found */
    unsigned i = 0;
    for (; i < ASHLAR_REGION_COUNT; i++) {
        const uintptr_t base = (uintptr_t)arena->regions[i];
        if (base != 0 && base < end &&
            begin < base + ashlar__arena_region_bytes(arena, (ashlar_region)i)) {
            break;
        }
    }
    return i;
}

bool ashlar__arena_has(const ashlar_arena *arena, const void *ptr, size_t bytes) {
    return find_region(arena, (uintptr_t)ptr, bytes) < ASHLAR_REGION_COUNT;
}

void ashlar__arena_describe(const ashlar_arena *arena, const void *ptr, size_t bytes,
                            char text[static ASHLAR_WHERE_BYTES]) {
    const uintptr_t begin = (uintptr_t)ptr;
    const ashlar_region region = (ashlar_region)find_region(arena, begin, bytes);
    if (region == ASHLAR_REGION_COUNT) {
        (void)snprintf(text, ASHLAR_WHERE_BYTES, "none of the arena's memory");
        return;
    }
    const ashlar_layout layout = ashlar__region_layout(region);
    (void)snprintf(text, ASHLAR_WHERE_BYTES, "padding of the %s, or memory before them",
                   ashlar__region_text(region));
    for (size_t i = 0; i < arena->tensor_count; i++) {
        const char *at = ashlar_arena_view(arena, region, i);
        if (at != NULL && begin - (uintptr_t)at < ashlar__arena_tensor_bytes(arena, layout, i)) {
            (void)snprintf(text, ASHLAR_WHERE_BYTES, "%zu bytes into tensor %s (%s)",
                           (size_t)(begin - (uintptr_t)at), arena->tensors[i].name,
                           ashlar__region_text(region));
        }
    }
}

/* Check that the allocator still has every region of its own as a live, large enough block. */
static ashlar_status check_regions(const ashlar_arena *arena) {
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const char *text = ashlar__region_text((ashlar_region)i);
        const size_t wanted = ashlar__arena_region_bytes(arena, (ashlar_region)i);
        size_t bytes = 0;
        if (!ashlar__arena_owns(arena, (ashlar_region)i)) {
            continue;
        }
        ASHLAR_FAIL_IF(
            ashlar_usable_bytes(arena->allocator, arena->regions[i], &bytes) != ASHLAR_OK,
            ASHLAR_EMOVED, "the %s have lost their block: %s", text, ashlar_error_detail());
        ASHLAR_FAIL_IF(bytes < wanted, ASHLAR_EMOVED, "the %s need %zu bytes, their block has %zu",
                       text, wanted, bytes);
    }
    return ASHLAR_OK;
}

static ashlar_status report_pointer(const ashlar_arena *arena, const ashlar_arena_binding *binding,
                                    const void *want) {
    const ashlar_layout layout = ashlar__region_layout(binding->region);
    char place[ASHLAR_WHERE_BYTES] = "NULL";
    if (*binding->pointer != NULL) {
        ashlar__arena_describe(arena, *binding->pointer,
                               ashlar__arena_tensor_bytes(arena, layout, binding->tensor), place);
    }
    return ashlar__fail(
        ASHLAR_EMOVED,
        "tensor %s (%s) was placed at %p, its view points to %p; that is %s; keep "
        "the arena's address and copy into it, or mend it by ashlar_arena_flatten()",
        arena->tensors[binding->tensor].name, ashlar__region_text(binding->region), want,
        *binding->pointer, place);
}

static ashlar_status check_view(const ashlar_arena *arena, const ashlar_arena_binding *binding) {
    const ashlar_tensor_info *info = &arena->tensors[binding->tensor].info;
    const ashlar_tensor_view *view = binding->view;
    ASHLAR_CHECK2(binding->pointer == &view->data);
    const char *text = ashlar__region_text(binding->region);
    const ashlar_dtype dtype =
        ashlar__layout_dtype(info->dtype, ashlar__region_layout(binding->region));
    const char *got = ashlar_dtype_name(view->dtype);
    ASHLAR_FAIL_IF(view->dtype != dtype, ASHLAR_EMOVED,
                   "tensor %s (%s) has type %s, its view type %s (%d)", info->name, text,
                   ashlar_dtype_name(dtype), got != NULL ? got : "unknown", (int)view->dtype);
    ASHLAR_FAIL_IF(view->rank != info->rank, ASHLAR_EMOVED,
                   "tensor %s (%s) has rank %zu, its view rank %zu", info->name, text, info->rank,
                   view->rank);
    for (size_t d = 0; d < ASHLAR_RANK_MAX; d++) {
        ASHLAR_FAIL_IF(view->shape[d] != info->shape[d], ASHLAR_EMOVED,
                       "tensor %s (%s) has %zu in dimension %zu, its view %zu; a view of another "
                       "shape must not be the bound one",
                       info->name, text, info->shape[d], d, view->shape[d]);
    }
    return ASHLAR_OK;
}

static ashlar_status check_bindings(const ashlar_arena *arena) {
    for (size_t i = 0; i < arena->binding_count; i++) {
        const ashlar_arena_binding *binding = &arena->bindings[i];
        const void *want = ashlar_arena_view(arena, binding->region, binding->tensor);
        ASHLAR_CHECK2(want != NULL); /* regions live as long as the arena */
        if (*binding->pointer != want) {
            return report_pointer(arena, binding, want);
        }
        if (binding->view != NULL) {
            ASHLAR_TRY(check_view(arena, binding));
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_check(const ashlar_arena *arena) {
    ASHLAR_FAIL_IF(arena->allocator == NULL, ASHLAR_EINVAL, "check: the arena is not committed");
    ASHLAR_FAIL_IF(ashlar__arena_hash(arena) != arena->layout_hash, ASHLAR_EMOVED,
                   "the arena's own description has changed since commit: something wrote over it");
    ASHLAR_TRY(check_regions(arena));
    return check_bindings(arena);
}

/* ---- bind ---- */

/* The table's entry for `pointer`, or the free one to put it into. The table must not be full. */
static size_t *binding_entry(const ashlar_arena *arena, void *const *pointer) {
    const size_t mask = arena->binding_capacity - 1;
    ASHLAR_CHECK2(arena->binding_capacity != 0 && (arena->binding_capacity & mask) == 0);
    ASHLAR_CHECK2(arena->binding_count <= arena->binding_capacity / 2); /* so the search ends */
    /* Fibonacci hashing: the product's upper half depends on all bits of the address. */
    size_t i = ((uint64_t)(uintptr_t)pointer * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (arena->binding_table[i] != 0 &&
           arena->bindings[arena->binding_table[i] - 1].pointer != pointer) {
        i = (i + 1) & mask;
    }
    return &arena->binding_table[i];
}

static void fill_table(ashlar_arena *arena) {
    memset(arena->binding_table, 0, arena->binding_capacity * sizeof *arena->binding_table);
    for (size_t i = 0; i < arena->binding_count; i++) {
        *binding_entry(arena, arena->bindings[i].pointer) = i + 1;
    }
}

bool ashlar__arena_reserve_bindings(ashlar_arena *arena, size_t extra) {
    size_t capacity = arena->binding_capacity == 0 ? 16 : arena->binding_capacity;
    while (capacity / 2 < arena->binding_count + extra) {
        capacity *= 2;
    }
    if (capacity == arena->binding_capacity) {
        return true;
    }
    size_t *table = ashlar__host_calloc(capacity, sizeof *table);
    ashlar_arena_binding *grown =
        table != NULL ? ashlar__host_realloc(arena->bindings, capacity / 2, sizeof *grown) : NULL;
    if (grown == NULL) {
        ashlar__host_free(table);
        return false;
    }
    ashlar__host_free(arena->binding_table);
    arena->bindings = grown;
    arena->binding_table = table;
    arena->binding_capacity = capacity;
    fill_table(arena);
    return true;
}

ashlar_arena_binding *ashlar__arena_find_binding(const ashlar_arena *arena, void *const *pointer) {
    const size_t found = arena->binding_capacity == 0 ? 0 : *binding_entry(arena, pointer);
    return found == 0 ? NULL : &arena->bindings[found - 1];
}

void ashlar__arena_put_binding(ashlar_arena *arena, const ashlar_arena_binding *binding) {
    size_t *entry = binding_entry(arena, binding->pointer);
    ASHLAR_CHECK2(binding->view == NULL || binding->pointer == &binding->view->data);
    if (*entry == 0) {
        ASHLAR_CHECK2(arena->binding_count < arena->binding_capacity / 2);
        *entry = ++arena->binding_count;
    }
    arena->bindings[*entry - 1] = *binding;
    *binding->pointer = ashlar_arena_view(arena, binding->region, binding->tensor);
}

static ashlar_status bind_to(ashlar_arena *arena, const ashlar_arena_binding *binding) {
    ASHLAR_FAIL_IF(ashlar_arena_view(arena, binding->region, binding->tensor) == NULL,
                   ASHLAR_EINVAL, "bind: no region %d or no tensor %zu in this arena",
                   (int)binding->region, binding->tensor);
    ASHLAR_FAIL_IF(!ashlar__arena_reserve_bindings(arena, 1), ASHLAR_EHOSTMEM,
                   "no host memory to bind tensor %s", arena->tensors[binding->tensor].name);
    ashlar__arena_put_binding(arena, binding);
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_bind(ashlar_arena *arena, ashlar_region region, size_t tensor,
                                void **pointer) {
    return bind_to(arena,
                   &(ashlar_arena_binding){.pointer = pointer, .region = region, .tensor = tensor});
}

ashlar_status ashlar_arena_bind_view(ashlar_arena *arena, ashlar_region region, size_t tensor,
                                     ashlar_tensor_view *view) {
    ASHLAR_TRY(bind_to(
        arena, &(ashlar_arena_binding){
                   .pointer = &view->data, .view = view, .region = region, .tensor = tensor}));
    const ashlar_tensor_info *info = &arena->tensors[tensor].info;
    view->dtype = ashlar__layout_dtype(info->dtype, ashlar__region_layout(region));
    view->rank = info->rank;
    memcpy(view->shape, info->shape, sizeof view->shape);
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_unbind(ashlar_arena *arena, void *const *pointer) {
    ashlar_arena_binding *binding = ashlar__arena_find_binding(arena, pointer);
    ASHLAR_FAIL_IF(binding == NULL, ASHLAR_EINVAL,
                   "unbind: the pointer at %p is not bound to this arena", (const void *)pointer);
    const ashlar_arena_binding *end = arena->bindings + arena->binding_count--;
    memmove(binding, binding + 1, (size_t)(end - binding - 1) * sizeof *binding);
    fill_table(arena); /* just emptying an entry would hide entries that were probed past it */
    return ASHLAR_OK;
}
