/* Declaring tensors and placing them: all of the arena that is arithmetic. */
#include "arena_impl.h"

#include <string.h>

#include "checked.h"
#include "error.h"
#include "host.h"

/* One more than `count` items of `array`. */
static bool grow(void **array, size_t count, size_t extra, size_t item_bytes) {
    void *grown = ashlar_host_realloc(*array, count + extra, item_bytes);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    return true;
}

static ashlar_status no_host_memory(const char *name) {
    return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory to declare tensor %s", name);
}

static bool name_is_taken(const ashlar_arena *arena, const ashlar_tensor_spec *specs, size_t count,
                          const char *name) {
    for (size_t i = 0; i < arena->tensor_count; i++) {
        if (strcmp(arena->tensors[i].info.name, name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Check one spec and compute its size. */
static ashlar_status measure(const ashlar_tensor_spec *spec, size_t *elements, size_t *bytes) {
    const size_t element_bytes = ashlar_dtype_bytes(spec->dtype);
    if (spec->rank < 1 || spec->rank > ASHLAR_RANK_MAX || element_bytes == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "tensor %s: rank %zu, type %d; a tensor has 1 to %d "
                           "dimensions of a known type", spec->name, spec->rank, (int)spec->dtype,
                           ASHLAR_RANK_MAX);
    }
    *elements = 1;
    for (size_t d = 0; d < spec->rank; d++) {
        if (spec->shape[d] == 0) {
            return ashlar_fail(ASHLAR_EINVAL, "tensor %s: dimension %zu is 0", spec->name, d);
        }
        if (!ashlar_mul(*elements, spec->shape[d], elements)) {
            return ashlar_fail(ASHLAR_EOVERFLOW, "tensor %s: too many elements", spec->name);
        }
    }
    return ashlar_mul(*elements, element_bytes, bytes)
               ? ASHLAR_OK
               : ashlar_fail(ASHLAR_EOVERFLOW, "tensor %s: too many bytes", spec->name);
}

/* That spec number `at` lies inside its group, aligned, and apart from the ones before it. */
static ashlar_status check_place(const ashlar_tensor_spec *specs, size_t at, size_t group_bytes) {
    size_t elements, bytes, end;
    ashlar_status status = measure(&specs[at], &elements, &bytes);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t begin = specs[at].group_offset;
    if (!ashlar_add(begin, bytes, &end) || end > group_bytes ||
        begin % ashlar_dtype_bytes(specs[at].dtype) != 0) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "tensor %s: %zu bytes at offset %zu do not fit a group of "
                           "%zu bytes",
                           specs[at].name, bytes, begin, group_bytes);
    }
    for (size_t i = 0; i < at; i++) {
        size_t other_elements, other_bytes;
        status = measure(&specs[i], &other_elements, &other_bytes);
        if (status != ASHLAR_OK) {
            return status;
        }
        if (begin < specs[i].group_offset + other_bytes && specs[i].group_offset < end) {
            return ashlar_fail(ASHLAR_EINVAL, "tensor %s overlaps tensor %s in its group",
                               specs[at].name, specs[i].name);
        }
    }
    return ASHLAR_OK;
}

static ashlar_status check_specs(const ashlar_arena *arena, size_t bytes,
                                 const ashlar_tensor_spec *specs, size_t count) {
    if (arena->region_count != 0) {
        return ashlar_fail(ASHLAR_EINVAL, "the arena is committed; declare every tensor before");
    }
    if (count == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "count: a group without tensors");
    }
    for (size_t i = 0; i < count; i++) {
        if (name_is_taken(arena, specs, i, specs[i].name)) {
            return ashlar_fail(ASHLAR_EINVAL, "tensor %s is declared twice", specs[i].name);
        }
        const ashlar_status status = check_place(specs, i, bytes);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    return ASHLAR_OK;
}

/* Append one checked tensor; there is room. Errors: ASHLAR_EHOSTMEM (its name). */
static ashlar_status append(ashlar_arena *arena, const ashlar_tensor_spec *spec) {
    ashlar_tensor_info info = {.dtype = spec->dtype, .rank = spec->rank};
    const ashlar_status status = measure(spec, &info.elements, &info.bytes);
    if (status != ASHLAR_OK) {
        return status;
    }
    memcpy(info.shape, spec->shape, spec->rank * sizeof info.shape[0]);
    const size_t length = strlen(spec->name);
    char *name = ashlar_host_calloc(length + 1, 1);
    if (name == NULL) {
        return no_host_memory(spec->name);
    }
    memcpy(name, spec->name, length);
    info.name = name;
    arena->tensors[arena->tensor_count++] =
        (ashlar_arena_entry){.name = name,
                             .info = info,
                             .group = arena->group_count,
                             .group_offset = spec->group_offset};
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_add_group(ashlar_arena *arena, size_t bytes,
                                     const ashlar_tensor_spec *specs, size_t count, size_t *first) {
    ashlar_status status = check_specs(arena, bytes, specs, count);
    if (status != ASHLAR_OK) {
        return status;
    }
    void *tensors = arena->tensors, *groups = arena->groups;
    const bool has_room =
        grow(&tensors, arena->tensor_count, count, sizeof *arena->tensors) &&
        grow(&groups, arena->group_count, 1, sizeof *arena->groups);
    arena->tensors = tensors; /* the larger array holds the old contents either way */
    arena->groups = groups;
    if (!has_room) {
        return no_host_memory(specs[0].name);
    }
    const size_t before = arena->tensor_count;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = append(arena, &specs[i]);
    }
    if (status != ASHLAR_OK) {
        while (arena->tensor_count > before) {
            ashlar_host_free(arena->tensors[--arena->tensor_count].name);
        }
        return status;
    }
    arena->groups[arena->group_count++] = (ashlar_arena_group){.bytes = bytes};
    if (first != NULL) {
        *first = before;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_arena_add(ashlar_arena *arena, const char *name, ashlar_dtype dtype,
                               size_t rank, const size_t *shape, size_t *tensor) {
    ashlar_tensor_spec spec = {.name = name, .dtype = dtype, .rank = rank};
    if (rank >= 1 && rank <= ASHLAR_RANK_MAX) {
        memcpy(spec.shape, shape, rank * sizeof spec.shape[0]);
    }
    size_t elements = 0, bytes = 0;
    const ashlar_status status = measure(&spec, &elements, &bytes);
    if (status != ASHLAR_OK) {
        return status;
    }
    return ashlar_arena_add_group(arena, bytes, &spec, 1, tensor);
}

ashlar_status ashlar_arena_place(ashlar_arena *arena, size_t *total) {
    size_t end = 0;
    for (size_t i = 0; i < arena->group_count; i++) { /* pass 1: can it fit at all? */
        if (!ashlar_add(end, arena->groups[i].bytes, &end) ||
            !ashlar_align_up(end, ASHLAR_ARENA_ALIGN, &end)) {
            return ashlar_fail(ASHLAR_EOVERFLOW, "the arena's tensors are too large together");
        }
    }
    *total = end;
    size_t offset = 0;
    for (size_t i = 0; i < arena->group_count; i++) { /* pass 2: nothing can fail now */
        arena->groups[i].offset = offset;
        const size_t align_mask = ASHLAR_ARENA_ALIGN - 1;
        offset = (offset + arena->groups[i].bytes + align_mask) & ~align_mask;
    }
    for (size_t i = 0; i < arena->tensor_count; i++) {
        ashlar_arena_entry *tensor = &arena->tensors[i];
        tensor->info.offset = arena->groups[tensor->group].offset + tensor->group_offset;
    }
    return ASHLAR_OK;
}
