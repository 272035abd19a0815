/* bind.c - binds the program's pointers and views to tensors, and keeps the table of bindings, in
 * which ashlar_arena_check() looks for changed ones. */
#include "arena/layout/arena_impl.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

/* The entry that holds `pointer`, or else the free entry for it. The table must not be full. */
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
    ASHLAR_CHECK2(capacity / 2 - arena->binding_count >= extra);
    return true;
}

ashlar_arena_binding *ashlar__arena_find_binding(const ashlar_arena *arena, void *const *pointer) {
    const size_t found = arena->binding_capacity == 0 ? 0 : *binding_entry(arena, pointer);
    ASHLAR_CHECK2(found <= arena->binding_count);
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
    ASHLAR_CHECK2(*binding->pointer != NULL);
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
    ASHLAR_CHECK2(ashlar__arena_find_binding(arena, pointer) == NULL);
    return ASHLAR_OK;
}
