/* optimizer_part.c - the bounds of one rank's part of an optimizer, and the memory for the moments
 * and masters in it. */
#include "arena/optimizer/optimizer_part.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "arena/layout/arena_impl.h"

static const struct {
    ashlar_region region;
    ashlar_tag tag;
} kinds[] = {{ASHLAR_REGION_MOMENT1, ASHLAR_TAG_MOMENTS},
             {ASHLAR_REGION_MOMENT2, ASHLAR_TAG_MOMENTS},
             {ASHLAR_REGION_MASTER, ASHLAR_TAG_WEIGHTS}};
_Static_assert(sizeof kinds / sizeof kinds[0] == ASHLAR_PART_STATES, "one for each");

unsigned ashlar__optimizer_part_regions(unsigned regions) {
    for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
        regions &= ~ASHLAR_REGION_BIT(kinds[i].region);
    }
    return regions;
}

void ashlar__optimizer_part_set(ashlar_optimizer_part *part, const ashlar_arena *arena,
                                size_t begin, size_t end) {
    ASHLAR_CHECK2(begin <= end);
    *part = (ashlar_optimizer_part){.begin = begin, .end = end};
    for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
        const ashlar_layout layout = ashlar__region_layout(kinds[i].region);
        part->states[i] =
            (ashlar_part_state){.region = kinds[i].region,
                                .begin = ashlar__arena_offset_in(arena, layout, begin),
                                .end = ashlar__arena_offset_in(arena, layout, end)};
        ASHLAR_CHECK2(part->states[i].begin <= part->states[i].end);
    }
}

/* Bytes that stay free at the start of the state's block, so that its elements are aligned as in a
 * region. */
static size_t room_before(const ashlar_part_state *state) {
    return state->begin % ASHLAR_ARENA_ALIGN;
}

static ashlar_status take(ashlar_part_state *state, ashlar_allocator *allocator, ashlar_tag tag,
                          ashlar_stream stream) {
    const size_t bytes = state->end - state->begin;
    void *block;
    ASHLAR_TRY(ashlar_alloc_tagged(allocator, room_before(state) + bytes, tag, stream, &block));
    state->data = (char *)block + room_before(state);
    return ashlar_fill(ashlar_allocator_device(allocator), state->data, 0, bytes, stream);
}

ashlar_status ashlar__optimizer_part_take(ashlar_optimizer_part *part, const ashlar_arena *arena,
                                          unsigned regions, ashlar_stream stream) {
    for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
        ashlar_part_state *state = &part->states[i];
        if ((regions & ASHLAR_REGION_BIT(state->region)) != 0 && state->begin < state->end) {
            ASHLAR_TRY(take(state, ashlar_arena_allocator(arena), kinds[i].tag, stream));
        }
    }
    return ASHLAR_OK;
}

void ashlar__optimizer_part_give(ashlar_optimizer_part *part, const ashlar_arena *arena) {
    for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
        ashlar_part_state *state = &part->states[i];
        if (state->data != NULL) {
            /* This fails only if somebody else has freed the block, so it is gone in any case. */
            ASHLAR_IGNORE(
                ashlar_free(ashlar_arena_allocator(arena), state->data - room_before(state)));
            state->data = NULL;
        }
    }
}
