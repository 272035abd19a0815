/* optimizer_part.c - bounds and moments of a rank's part of an optimizer. */
#include "arena/optimizer/optimizer_part.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "arena/layout/arena_impl.h"

void ashlar__optimizer_part_bounds(const ashlar_arena *arena, size_t rank, size_t ranks,
                                   size_t *begin, size_t *end) {
    const size_t units =
        ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS) / ASHLAR_ARENA_ALIGN;
    const size_t each = units / ranks, more = units % ranks; /* the first `more` have one more */
    const size_t first = rank * each + (rank < more ? rank : more);
    ASHLAR_CHECK2(rank < ranks);
    *begin = first * ASHLAR_ARENA_ALIGN;
    *end = (first + each + (rank < more)) * ASHLAR_ARENA_ALIGN;
}

/* Moments are as wide as what they belong to unless that is narrow. */
static ashlar_status check_types(const ashlar_arena *arena) {
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        ASHLAR_FAIL_IF(
            ashlar_dtype_is_narrow(info.dtype), ASHLAR_ENOTSUP,
            "optimizer: %.80s is of type %s; only F32 and F64 can be divided among ranks",
            info.name, ashlar_dtype_name(info.dtype));
        ASHLAR_CHECK2(info.offset[ASHLAR_LAYOUT_STORAGE] ==
                      info.offset[ashlar__region_layout(ASHLAR_REGION_MOMENT1)]);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__optimizer_part_take(ashlar_optimizer_part *part, const ashlar_arena *arena,
                                          unsigned regions, ashlar_stream stream) {
    static const ashlar_region of[] = {ASHLAR_REGION_MOMENT1, ASHLAR_REGION_MOMENT2};
    ashlar_allocator *allocator = ashlar_arena_allocator(arena);
    const size_t bytes = part->end - part->begin;
    ASHLAR_TRY(check_types(arena));
    for (size_t i = 0; i < sizeof of / sizeof of[0] && bytes > 0; i++) {
        if ((regions & ASHLAR_REGION_BIT(of[i])) != 0) {
            ASHLAR_TRY(ashlar_alloc_tagged(allocator, bytes, ASHLAR_TAG_MOMENTS, stream,
                                           &part->moments[i]));
            ASHLAR_TRY(ashlar_fill(ashlar_allocator_device(allocator), part->moments[i], 0, bytes,
                                   stream));
        }
    }
    return ASHLAR_OK;
}

void ashlar__optimizer_part_give(ashlar_optimizer_part *part, const ashlar_arena *arena) {
    for (size_t i = 0; i < sizeof part->moments / sizeof part->moments[0]; i++) {
        /* This fails only if somebody else has freed the block, so it is gone in any case. */
        ASHLAR_IGNORE(ashlar_free(ashlar_arena_allocator(arena), part->moments[i]));
        part->moments[i] = NULL;
    }
}
