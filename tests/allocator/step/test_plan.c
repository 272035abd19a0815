/* test_plan.c - what a recording's slots are: sizes, ends, order of expiry, places in a plan's
 * memory. */
#include "tests/check.h"

#include <stdint.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/plan/plan.h"
#include "allocator/heap/size_class.h"
#include "allocator/base/random.h"

enum { COUNT = 200 };

static ashlar_stream_state states[2];
static ashlar_recorded allocs[COUNT];
static ashlar_recording recording;
static uint64_t random_state;

static uint32_t draw(uint32_t below) {
    return (uint32_t)ashlar__random_step_below(&random_state, below);
}

static void draw_recording(uint64_t seed) {
    random_state = seed;
    recording = (ashlar_recording){.allocs = allocs,
                                   .count = COUNT,
                                   .stream_states = {&states[0], &states[1]},
                                   .stream_count = 2};
    for (uint32_t i = 0; i < COUNT; i++) {
        allocs[i] =
            (ashlar_recorded){.bytes = 1 + draw(5) * 700,
                              .end = draw(8) == 0 ? ASHLAR_NOT_PLANNED : i + 1 + draw(COUNT - i),
                              .tag = (unsigned char)draw(2),
                              .stream_idx = (unsigned char)draw(2),
                              .is_landing = draw(20) == 0};
    }
}

static bool meet(const ashlar_plan *plan, uint32_t i, uint32_t k) {
    const ashlar_slot *a = &plan->slots[i], *b = &plan->slots[k];
    return a->stream_idx == b->stream_idx && a->bytes > 0 && b->bytes > 0 && i < b->end &&
           k < a->end && plan->offsets[i] < plan->offsets[k] + b->bytes &&
           plan->offsets[k] < plan->offsets[i] + a->bytes;
}

static void check_slots(const ashlar_plan *plan) {
    size_t planned = 0, wrong = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const ashlar_slot *slot = &plan->slots[i];
        const bool is_planned = allocs[i].end != ASHLAR_NOT_PLANNED;
        planned += is_planned;
        wrong += slot->tag != allocs[i].tag || slot->stream_idx != allocs[i].stream_idx;
        wrong += is_planned != (slot->bytes > 0) || ashlar__slot_room(slot) < allocs[i].bytes;
        wrong += slot->bytes % ASHLAR_BLOCK_ALIGN != 0;
        wrong += is_planned &&
                 (slot->end != allocs[i].end || plan->offsets[i] % ASHLAR_BLOCK_ALIGN != 0 ||
                  plan->offsets[i] + slot->bytes > plan->stream_plans[slot->stream_idx].plan_bytes);
        for (uint32_t k = 0; k < i; k++) {
            wrong += meet(plan, i, k);
        }
    }
    CHECK_ZU(wrong, 0);
    CHECK_ZU(plan->expiry_count, planned);
    CHECK_ZU(ashlar__slot_room(&plan->slots[plan->count]), 0);
}

/* Before slot i is served, exactly those that end by then have expired. */
static void check_expiry(const ashlar_plan *plan) {
    size_t wrong = 0;
    for (uint32_t i = 0; i <= plan->count; i++) {
        const size_t expired = plan->expired_to[i];
        size_t ended = 0;
        for (uint32_t k = 0; k < plan->count; k++) {
            ended += plan->slots[k].bytes > 0 && plan->slots[k].end <= i;
        }
        wrong += expired != ended;
        for (size_t k = 0; k < expired; k++) {
            wrong += plan->expiry[k]->end > i;
        }
    }
    CHECK_ZU(wrong, 0);
}

static bool is_alike(uint32_t i, const ashlar_plan *plan) {
    const ashlar_slot *a = &plan->slots[i], *b = &plan->slots[i + 1];
    return ashlar__slot_room(a) == ashlar__slot_room(b) && a->tag == b->tag &&
           a->stream_idx == b->stream_idx;
}

static void check_links(const ashlar_plan *plan) {
    size_t wrong = 0, landings = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        uint32_t next = i + 1;
        while (next < plan->count && is_alike(next - 1, plan)) {
            next++;
        }
        wrong += plan->next_kind[i] != next;
        wrong += allocs[i].is_landing && plan->landings[landings++] != i;
    }
    CHECK_ZU(wrong, 0);
    CHECK_ZU(plan->landing_count, landings);
}

CASE(slots_are_the_recordings) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        ashlar_plan *plan = NULL;
        draw_recording(seed);
        REQUIRE(ashlar__plan_make(&recording, 0, NULL, &plan) == ASHLAR_OK);
        CHECK(plan->stream_count == 2 && plan->stream_plans[1].stream_state == &states[1]);
        check_slots(plan);
        check_expiry(plan);
        check_links(plan);
        ashlar__plan_free(plan);
    }
}

CASE(a_plan_of_nothing_has_one_slot_that_nothing_fits) {
    ashlar_plan *plan = NULL;
    recording = (ashlar_recording){0};
    REQUIRE(ashlar__plan_make(&recording, 0, NULL, &plan) == ASHLAR_OK);
    CHECK_ZU(plan->count, 0);
    CHECK(plan->slots[0].bytes == 0 && plan->expired_to[0] == 0);
    ashlar__plan_free(plan);
    ashlar__plan_free(NULL);
}

CASE(a_size_that_overflows_is_refused) {
    ashlar_plan *plan = NULL;
    draw_recording(1);
    allocs[3].bytes = SIZE_MAX - 5;
    allocs[3].end = 4;
    CHECK(ashlar__plan_make(&recording, 0, NULL, &plan) == ASHLAR_EOVERFLOW);
    CHECK(plan == NULL);
    allocs[3].end = ASHLAR_NOT_PLANNED; /* not planned: of no matter */
    CHECK(ashlar__plan_make(&recording, 0, NULL, &plan) == ASHLAR_OK);
    ashlar__plan_free(plan);
}

CASE(without_host_memory_there_is_no_plan) {
    unsigned long n = 0;
    bool is_done = false;
    while (!is_done && check_failed == 0) {
        ashlar_plan *plan = NULL;
        draw_recording(1);
        ashlar__host_fail_at(++n);
        const ashlar_status status = ashlar__plan_make(&recording, 0, NULL, &plan);
        is_done = status == ASHLAR_OK;
        CHECK(is_done || (status == ASHLAR_EHOSTMEM && plan == NULL));
        ashlar__host_fail_at(0);
        ashlar__plan_free(plan);
    }
    CHECK(n > 10);
}

RUN_CASES()
