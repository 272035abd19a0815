/* test_flatten.c - scattered tensors gathered into a region: copies, ties, sources that are freed,
 * and what is refused. */
#include "tests/arena/layout/arena_fixture.h"

#include <ashlar/arena.h>

static void *pointers[TENSORS]; /* the program's, one per tensor */
static ashlar_flatten_item items[TENSORS];
static ashlar_flatten_stats gathered;

/* What each byte of a scattered tensor holds. */
static unsigned char value_of(size_t tensor) {
    return (unsigned char)(0x10 + tensor);
}

/* A block of its own for each tensor that the region has, from `stream`, which is to write it. */
static size_t scatter(ashlar_region region, ashlar_stream stream) {
    size_t count = 0;
    for (size_t i = TENSORS; i-- > 0;) {
        if (view_of(region, i) != NULL) {
            pointers[i] = take(bytes_in(region, i), stream);
            queue_write(stream, pointers[i], bytes_in(region, i), value_of(i));
            items[count++] = (ashlar_flatten_item){i, &pointers[i]};
        }
    }
    return count;
}

static ashlar_status flatten(ashlar_region region, size_t count, ashlar_allocator *owner,
                             ashlar_stream stream) {
    memset(&gathered, 0xee, sizeof gathered);
    return ashlar_arena_flatten(arena, region, items, count, owner, stream, &gathered);
}

/* What was scattered is in the region, and the pointers are bound to it. Waits for `stream`. */
static void check_gathered(ashlar_region region, ashlar_stream stream) {
    wait_for(stream);
    for (size_t i = 0; i < TENSORS; i++) {
        if (view_of(region, i) != NULL) {
            CHECK(pointers[i] == view_of(region, i));
            CHECK(holds(pointers[i], bytes_in(region, i), value_of(i)));
            const ashlar_arena_binding *binding = ashlar__arena_find_binding(arena, &pointers[i]);
            CHECK(binding != NULL && binding->region == region && binding->tensor == i);
        }
    }
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    CHECK(ashlar_arena_check_padding(arena, stream) == ASHLAR_OK);
}

static void free_all(void *const *blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        give(blocks[i]);
    }
}

/* ---- neighbours ---- */

enum { A, B, C, D, E, PARTS };
static const size_t PART_BYTES[PARTS] = {40, 24, 64, 256, 512};

/* a, b and c side by side in a group of 128 bytes, then d and e, which need no padding. */
static bool set_up_neighbours(void) {
    const ashlar_tensor_spec specs[] = {
        {.name = "a", .dtype = ASHLAR_F32, .rank = 1, .shape = {10}},
        {.name = "b", .dtype = ASHLAR_F32, .rank = 1, .shape = {6}, .group_offset = 40},
        {.name = "c", .dtype = ASHLAR_F32, .rank = 1, .shape = {16}, .group_offset = 64}};
    return set_up("memory=64MiB") && ashlar_arena_create(&arena) == ASHLAR_OK &&
           ashlar_arena_add_group(arena, 128, specs, 3, NULL) == ASHLAR_OK &&
           ashlar_arena_add(arena, "d", ASHLAR_F32, 1, &(size_t){64}, NULL) == ASHLAR_OK &&
           ashlar_arena_add(arena, "e", ASHLAR_F32, 1, &(size_t){128}, NULL) == ASHLAR_OK &&
           ashlar_arena_commit(arena, allocator, streams[0], 1) == ASHLAR_OK &&
           check_at_end(tear_down_arena);
}

/* Lay the parts into one block at these offsets, flatten, and find that many copies. */
static void check_copies(const size_t offsets[PARTS], size_t copies) {
    REQUIRE(set_up_neighbours());
    unsigned char *block = take(4096, streams[1]);
    for (size_t i = 0; i < PARTS; i++) {
        pointers[i] = block + offsets[i];
        queue_write(streams[1], pointers[i], PART_BYTES[i], value_of(i));
        items[(i + 2) % PARTS] = (ashlar_flatten_item){i, &pointers[i]};
    }
    const size_t before = CALLS(memcpy_dtod_async);
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, PARTS, NULL, streams[1]) == ASHLAR_OK);
    CHECK_ZU(gathered.copies, copies);
    CHECK_ZU(gathered.merged, PARTS - copies);
    CHECK_ZU(gathered.copied_bytes, 40 + 24 + 64 + 256 + 512);
    CHECK_ZU(CALLS(memcpy_dtod_async) - before, copies);
    wait_for(streams[1]);
    for (size_t i = 0; i < PARTS; i++) {
        CHECK(pointers[i] == view_of(ASHLAR_REGION_PARAMETERS, i));
        CHECK(holds(pointers[i], PART_BYTES[i], value_of(i)));
    }
    CHECK(ashlar_arena_check_padding(arena, streams[1]) == ASHLAR_OK);
    give(block);
    tear_down_arena();
}

CASE(neighbours_on_both_sides_are_one_copy) {
    check_copies((const size_t[]){0, 40, 64, 128, 384}, 2);   /* c and d are apart in the arena */
    check_copies((const size_t[]){0, 40, 64, 256, 512}, 2);   /* and with a gap here too */
    check_copies((const size_t[]){0, 44, 68, 256, 516}, 4);   /* b and c only */
    check_copies((const size_t[]){64, 104, 0, 1024, 512}, 4); /* a and b only: c is before them */
    check_copies((const size_t[]){128, 104, 0, 768, 256}, 5); /* neighbours in another order */
}

/* ---- ties ---- */

CASE_WITH(tied_tensors_are_copied_once_and_stay_tied, set_up_arena("memory=64MiB", 1)) {
    void *tied[3];
    unsigned char *block = take(280, streams[0]), *other = take(64, streams[0]);
    queue_write(streams[0], block, 280, 7);
    for (size_t i = 0; i < 3; i++) {
        tied[i] = block;
        items[2 * i] = (ashlar_flatten_item){FOUR, &tied[i]};
    }
    pointers[THREE] = other; /* between them, and tied by naming one pointer twice */
    items[1] = items[3] = (ashlar_flatten_item){THREE, &pointers[THREE]};
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 5, NULL, streams[0]) == ASHLAR_OK);
    CHECK(gathered.tied == 3 && gathered.copies == 2 && gathered.copied_bytes == 280 + 64 &&
          gathered.merged == 0);
    wait_for(streams[0]);
    for (size_t i = 0; i < 3; i++) {
        CHECK(tied[i] == view_of(ASHLAR_REGION_PARAMETERS, FOUR));
        CHECK(ashlar__arena_find_binding(arena, &tied[i]) != NULL);
    }
    CHECK(holds(tied[2], 280, 7));
    give(block);
    give(other);
}

/* ---- mending ---- */

CASE_WITH(what_lies_in_its_place_is_not_copied, set_up_arena("memory=64MiB", 1)) {
    void *blocks[TENSORS];
    const size_t count = scatter(ASHLAR_REGION_PARAMETERS, streams[0]);
    memcpy(blocks, pointers, sizeof blocks);
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, count, NULL, streams[0]) == ASHLAR_OK);
    const size_t work = CALLS(memcpy_dtod_async);
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, count, allocator, streams[0]) == ASHLAR_OK);
    CHECK(gathered.in_place == TENSORS && gathered.copies == 0 && gathered.copied_bytes == 0);
    CHECK(gathered.merged == 0 && gathered.freed_blocks == 0 && gathered.kept_blocks == 0);
    CHECK_ZU(CALLS(memcpy_dtod_async), work);
    check_gathered(ASHLAR_REGION_PARAMETERS, streams[0]);
    free_all(blocks, TENSORS);
}

CASE_WITH(a_tensor_that_was_replaced_is_mended, set_up_arena("memory=64MiB", 3)) {
    ashlar_tensor_view view;
    void *other = NULL;
    CHECK(ashlar_arena_bind_view(arena, ASHLAR_REGION_PARAMETERS, HALF, &view) == ASHLAR_OK);
    CHECK(ashlar_arena_bind(arena, ASHLAR_REGION_GRADIENTS, FOUR, &other) == ASHLAR_OK);
    unsigned char *block = take(70, streams[0]);
    queue_write(streams[0], block, 70, 0x3f);
    view.data = block;
    CHECK(ashlar_arena_check(arena) == ASHLAR_EMOVED);
    items[0] = (ashlar_flatten_item){HALF, &view.data};
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 1, allocator, streams[0]) == ASHLAR_OK);
    CHECK(gathered.freed_blocks == 1);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(view.data == view_of(ASHLAR_REGION_PARAMETERS, HALF) && holds(view.data, 70, 0x3f));
    view.rank = 1; /* it is a view still */
    CHECK(ashlar_arena_check(arena) == ASHLAR_EMOVED);
    /* A pointer that was bound to something else is the new tensor's alone. */
    unsigned char *fresh = take(280, streams[0]);
    other = fresh;
    items[0] = (ashlar_flatten_item){FOUR, &other};
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 1, NULL, streams[0]) == ASHLAR_OK);
    view.rank = 2;
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK && arena->binding_count == 2);
    CHECK(other == view_of(ASHLAR_REGION_PARAMETERS, FOUR));
    /* Of a view that is bound to another tensor, the pointer is. */
    unsigned char *third = take(280, streams[0]);
    view.data = third;
    items[0] = (ashlar_flatten_item){FOUR, &view.data};
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 1, NULL, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    give(fresh);
    give(third);
}

/* ---- what is refused ---- */

static unsigned char *room; /* 8 KiB */

static bool set_up_room(void) {
    if (!set_up_arena("memory=64MiB", 3)) {
        return false;
    }
    room = take(8192, streams[0]);
    CHECK(ashlar_fill(device, room, 0xab, 8192, streams[0]) == ASHLAR_OK);
    return true;
}

/* Two items are refused, and nothing of them changes. */
static void check_refused(size_t tensor, void *at, size_t other_tensor, void *other_at,
                          const char *part, const char *other_part) {
    void *first = at, *second = other_at;
    items[0] = (ashlar_flatten_item){tensor, &first};
    items[1] = (ashlar_flatten_item){other_tensor, &second};
    const size_t work = CALLS(memcpy_dtod_async);
    CHECK_FAILS(flatten(ASHLAR_REGION_PARAMETERS, 2, allocator, streams[0]), ASHLAR_EINVAL, part);
    CHECK_HAS(ashlar_error_detail(), other_part);
    CHECK(first == at && second == other_at);
    CHECK_ZU(arena->binding_count, 0);
    CHECK_ZU(CALLS(memcpy_dtod_async), work);
    CHECK_ZU(gathered.copies, (size_t)0xeeeeeeeeeeeeeeee); /* not written */
}

CASE_WITH(memories_that_do_not_belong_together_are_refused, set_up_room()) {
    check_refused(TWO, room, THREE, room, "tensors two and three have one memory",
                  "declare one tensor and name it in both items");
    check_refused(TWO, room, TWO, room + 512, "tensor two is named with two memories",
                  "let all its pointers point to the one that counts");
    check_refused(TWO, room, THREE, room + 39, "tensors two (40 bytes at", "and three (");
    check_refused(FOUR, room + 279, TWO, room + 240, "tensors two (40 bytes at", "overlap");
    check_refused(FOUR, room, TWO, room + 100, "tensors four (280 bytes at", "and two (");
    give(room);
}

CASE_WITH(memory_of_the_arena_is_no_source, set_up_room()) {
    unsigned char *gradients = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    check_refused(ONE, room, TWO, view_of(ASHLAR_REGION_PARAMETERS, THREE), "tensor two",
                  "that is 0 bytes into tensor three (parameters)");
    check_refused(TWO, view_of(ASHLAR_REGION_PARAMETERS, TWO), ONE,
                  view_of(ASHLAR_REGION_PARAMETERS, TWO), "tensor one",
                  "0 bytes into tensor two (parameters)");
    check_refused(ONE, room, TWO, view_of(ASHLAR_REGION_GRADIENTS, TWO), "tensor two",
                  "0 bytes into tensor two (gradients)");
    check_refused(ONE, gradients + 1500, TWO, room, "tensor one", "padding of the gradients");
    give(room);
}

CASE_WITH(items_that_are_none_are_refused, set_up_room()) {
    check_refused(ONE, room, TWO, NULL, "the pointer to tensor two is NULL", "");
    check_refused(ONE, room, TENSORS, room, "no tensor 6", "");
    check_refused(ONE, (void *)(UINTPTR_MAX - 11), TWO, room, "tensor one is", "no address");
    void *pointer = room;
    items[0] = (ashlar_flatten_item){ONE, NULL};
    CHECK_FAILS(flatten(ASHLAR_REGION_PARAMETERS, 1, NULL, streams[0]), ASHLAR_EINVAL,
                "the pointer to tensor one is NULL");
    items[0] = (ashlar_flatten_item){ONE, &pointer};
    CHECK_FAILS(flatten(ASHLAR_REGION_PARAMETERS, 0, NULL, streams[0]), ASHLAR_EINVAL,
                "0 items into region 0");
    CHECK_FAILS(flatten(ASHLAR_REGION_MOMENT1, 1, NULL, streams[0]), ASHLAR_EINVAL,
                "1 items into region 2");
    CHECK(flatten(ASHLAR_REGION_COUNT, 1, NULL, streams[0]) == ASHLAR_EINVAL);
    CHECK(pointer == room);
    CHECK(ashlar_arena_extend(arena, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    CHECK(flatten(ASHLAR_REGION_MASTER, 1, NULL, streams[0]) == ASHLAR_EINVAL); /* it has none */
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 1, NULL, streams[0]) == ASHLAR_OK);
    give(room);
}

/* ---- sources that are freed: which, when, and how much memory that saves ---- */

CASE_WITH(sources_are_freed_each_once, set_up_arena("memory=64MiB", ASHLAR_REGIONS_ALL)) {
    for (int r = 0; r < ASHLAR_REGION_COUNT; r++) {
        const size_t count = scatter((ashlar_region)r, streams[r % STREAMS]);
        CHECK_ZU(stats_now().live_blocks, ASHLAR_REGION_COUNT + count);
        CHECK(flatten((ashlar_region)r, count, allocator, streams[r % STREAMS]) == ASHLAR_OK);
        CHECK(gathered.freed_blocks == count && gathered.kept_blocks == 0);
        CHECK_ZU(stats_now().live_blocks, ASHLAR_REGION_COUNT);
        check_gathered((ashlar_region)r, streams[r % STREAMS]);
        for (size_t i = 0; i < TENSORS; i++) {
            const bool is_bound = ashlar__arena_find_binding(arena, &pointers[i]) != NULL;
            const ashlar_status status = ashlar_arena_unbind(arena, &pointers[i]);
            CHECK(status == (is_bound ? ASHLAR_OK : ASHLAR_EINVAL));
        }
    }
}

/* Items 0 and 1 at the begin and behind it, from a block of that many bytes. */
static unsigned char *cut_block(size_t bytes, size_t first, size_t second, size_t offset) {
    unsigned char *block = take(bytes, streams[0]);
    pointers[first] = block;
    pointers[second] = block + offset;
    items[0] = (ashlar_flatten_item){first, &pointers[first]};
    items[1] = (ashlar_flatten_item){second, &pointers[second]};
    return block;
}

static void check_block(size_t count, size_t freed, size_t kept) {
    const size_t live = stats_now().live_blocks;
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, count, allocator, streams[0]) == ASHLAR_OK);
    CHECK_ZU(gathered.freed_blocks, freed);
    CHECK_ZU(gathered.kept_blocks, kept);
    CHECK_ZU(stats_now().live_blocks, live - freed);
}

/* Four has 280 bytes, two 40, three 64. */
CASE_WITH(a_block_is_freed_if_every_byte_of_it_is_gathered, set_up_arena("memory=64MiB", 1)) {
    cut_block(320, FOUR, TWO, 280);
    check_block(2, 1, 0);
    give(cut_block(320, FOUR, TWO, 280)); /* only its beginning */
    unsigned char *block = cut_block(320, FOUR, TWO, 280);
    check_block(1, 0, 1);
    give(block);
    block = cut_block(320, THREE, FOUR, 40); /* only its end, with another tensor's block */
    pointers[THREE] = take(64, streams[0]);
    check_block(2, 1, 1);
    give(block);
    block = cut_block(321, FOUR, TWO, 280); /* a byte more at the end */
    check_block(2, 0, 1);
    give(block);
    block = cut_block(324, FOUR, TWO, 284); /* a gap between */
    check_block(2, 0, 1);
    give(block);
    block = cut_block(324, FOUR, TWO, 284); /* a gap before */
    pointers[FOUR] = block + 4;
    check_block(2, 0, 1);
    give(block);
    block = cut_block(280, FOUR, TWO, 0); /* tied, by two pointers */
    items[1].tensor = FOUR;
    check_block(2, 1, 0);
}

/* On its own stream, which runs beside, and on the one that gathers, whoever has the block next. */
CASE(sources_are_reused_only_when_they_were_read) {
    for (int seed = 1; seed <= 12; seed++) {
        REQUIRE(set_up_arena(drawn_order("memory=64MiB", seed), 1));
        wait_for(streams[0]);
        const size_t count = scatter(ASHLAR_REGION_PARAMETERS, streams[1]);
        wait_for(streams[1]);
        CHECK(flatten(ASHLAR_REGION_PARAMETERS, count, allocator, streams[2]) == ASHLAR_OK);
        CHECK_ZU(gathered.freed_blocks, TENSORS);
        unsigned char *next[STREAMS][TENSORS];
        for (size_t s = 0; s < STREAMS; s++) {
            for (size_t i = 0; i < TENSORS; i++) {
                next[s][i] = take(bytes_in(ASHLAR_REGION_PARAMETERS, i), streams[s]);
                queue_write(streams[s], next[s][i], bytes_in(ASHLAR_REGION_PARAMETERS, i), 0xdd);
            }
        }
        wait_for(streams[1]);
        wait_for(streams[3]);
        check_gathered(ASHLAR_REGION_PARAMETERS, streams[2]);
        for (size_t i = 0; i < STREAMS * TENSORS; i++) {
            give(next[i / TENSORS][i % TENSORS]);
        }
        tear_down_arena();
    }
}

/* ---- memory ---- */

enum { BIG_TENSORS = 8, BIG_BYTES = 2 << 20, SETS = 4 };

/*
 * Parameters, gradients and two moments lie scattered, 16 MiB each. Gathering all of them needs
 * room for one more of the four, and not for four.
 */
CASE(beside_the_model_there_is_never_more_than_one_region) {
    static void *scattered[SETS][BIG_TENSORS];
    const size_t set_bytes = BIG_TENSORS * BIG_BYTES;
    REQUIRE(set_up("memory=90MiB") && ashlar_arena_create(&arena) == ASHLAR_OK);
    for (size_t i = 0; i < BIG_TENSORS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "t%zu", i);
        CHECK(ashlar_arena_add(arena, name, ASHLAR_F32, 1, &(size_t){BIG_BYTES / 4}, NULL) ==
              ASHLAR_OK);
    }
    for (size_t k = 0; k < SETS * BIG_TENSORS; k++) {
        scattered[k / BIG_TENSORS][k % BIG_TENSORS] = take(BIG_BYTES, streams[0]);
        queue_write(streams[0], scattered[k / BIG_TENSORS][k % BIG_TENSORS], BIG_BYTES,
                    (unsigned char)(k + 1));
    }
    CHECK_ZU(stats_now().live_bytes, SETS * set_bytes);
    for (unsigned r = 0; r < SETS; r++) {
        ashlar_flatten_item list[BIG_TENSORS];
        for (size_t i = 0; i < BIG_TENSORS; i++) {
            list[i] = (ashlar_flatten_item){i, &scattered[r][i]};
        }
        CHECK((r == 0 ? ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_INFERENCE)
                      : ashlar_arena_extend(arena, streams[0], ASHLAR_REGION_BIT(r))) == ASHLAR_OK);
        CHECK(ashlar_arena_flatten(arena, (ashlar_region)r, list, BIG_TENSORS, allocator,
                                   streams[0], &gathered) == ASHLAR_OK);
        CHECK_ZU(gathered.freed_blocks, BIG_TENSORS);
        CHECK_ZU(stats_now().live_bytes, SETS * set_bytes);
    }
    CHECK_ZU(stats_now().live_peak_bytes, (SETS + 1) * set_bytes);
    CHECK(stats_now().reserved_peak_bytes <= (SETS + 1) * set_bytes + 4 * MIB);
    wait_for(streams[0]);
    for (size_t k = 0; k < SETS * BIG_TENSORS; k++) {
        CHECK(
            holds(scattered[k / BIG_TENSORS][k % BIG_TENSORS], BIG_BYTES, (unsigned char)(k + 1)));
    }
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    tear_down_arena();
}

/* ---- what is refused ---- */

CASE_WITH(memory_of_somebody_else_is_refused, set_up_arena("memory=66MiB", 1)) {
    ashlar_allocator *other = NULL;
    REQUIRE(ashlar_allocator_create(device, &other) == ASHLAR_OK);
    unsigned char *mine = take(280, streams[0]), *freed = take(280, streams[0]);
    const size_t last_bytes = 32 * MIB; /* nothing lies behind */
    unsigned char *last = take(last_bytes, streams[0]);
    void *foreign = NULL, *const before = mine;
    REQUIRE(ashlar_alloc(other, 280, streams[0], &foreign) == ASHLAR_OK);
    give(freed);
    void *const wrong[] = {foreign, freed, (void *)8, &arena, last + last_bytes};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pointers[FOUR] = wrong[i];
        pointers[TWO] = mine;
        items[0] = (ashlar_flatten_item){FOUR, &pointers[FOUR]};
        items[1] = (ashlar_flatten_item){TWO, &pointers[TWO]};
        CHECK_FAILS(flatten(ASHLAR_REGION_PARAMETERS, 2, allocator, streams[0]), ASHLAR_EPOINTER,
                    "the memory of tensor four");
        CHECK(pointers[FOUR] == wrong[i] && pointers[TWO] == before && arena->binding_count == 0);
        CHECK_ZU(stats_now().live_blocks, 3);
    }
    /* An allocator that has nothing at all. */
    CHECK(ashlar_free(other, foreign) == ASHLAR_OK);
    CHECK(ashlar_allocator_trim(other, 0) == ASHLAR_OK);
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 2, other, streams[0]) == ASHLAR_EPOINTER);
    ashlar_allocator_destroy(other);
    give(last);
    give(mine);
}

CASE_WITH(a_tensor_that_reaches_over_its_block_is_refused, set_up_arena("memory=64MiB", 1)) {
    unsigned char *block = take(1024, streams[0]);
    pointers[FOUR] = block + 1024 - 276;
    items[0] = (ashlar_flatten_item){FOUR, &pointers[FOUR]};
    CHECK_FAILS(flatten(ASHLAR_REGION_PARAMETERS, 1, allocator, streams[0]), ASHLAR_EINVAL,
                "tensor four has 280 bytes, its block at");
    CHECK_HAS(ashlar_error_detail(), "ends 276 bytes behind its beginning");
    CHECK(arena->binding_count == 0);
    pointers[FOUR] = block + 1024 - 280;
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 1, allocator, streams[0]) == ASHLAR_OK);
    CHECK_ZU(gathered.kept_blocks, 1);
    give(block);
}

/* ---- failures ---- */

static void *scattered_at[TENSORS];

static bool prepare(void) {
    if (!set_up_arena("memory=64MiB", 1)) {
        return false;
    }
    CHECK_ZU(scatter(ASHLAR_REGION_PARAMETERS, streams[1]), TENSORS);
    wait_for(streams[1]);
    memcpy(scattered_at, pointers, sizeof scattered_at);
    return true;
}

static ashlar_status gather(void) {
    return flatten(ASHLAR_REGION_PARAMETERS, TENSORS, allocator, streams[2]);
}

static void check_all_or_nothing(ashlar_status status) {
    if (status != ASHLAR_OK) {
        CHECK(memcmp(pointers, scattered_at, sizeof pointers) == 0);
        CHECK_ZU(arena->binding_count, 0);
        CHECK_ZU(stats_now().live_blocks, 1 + TENSORS);
        for (size_t i = 0; i < TENSORS; i++) {
            CHECK(holds(pointers[i], bytes_in(ASHLAR_REGION_PARAMETERS, i), value_of(i)));
        }
        CHECK(gather() == ASHLAR_OK);
    }
    CHECK_ZU(stats_now().live_blocks, 1);
    check_gathered(ASHLAR_REGION_PARAMETERS, streams[2]);
    tear_down_arena();
}

CASE(whatever_fails_all_is_done_or_nothing) {
    const fault_case all = {prepare, gather, check_all_or_nothing};
    CHECK(run_with_all_faults(&all) > 12);
}

RUN_CASES()
