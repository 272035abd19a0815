/* test_flatten.c - scattered tensors gathered into a region: copies, ties, and what is refused. */
#include "tests/arena/layout/flatten_fixture.h"

static void free_all(void *const *blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        give(blocks[i]);
    }
}

CASE(scattered_tensors_of_every_region_are_gathered) {
    for (int r = 0; r < ASHLAR_REGION_COUNT; r++) {
        const ashlar_region region = (ashlar_region)r;
        REQUIRE(set_up_arena("memory=64MiB,mode=adversarial,seed=9", ASHLAR_REGIONS_ALL));
        const size_t count = scatter(region, streams[0]);
        void *blocks[TENSORS];
        size_t bytes = 0;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = *items[i].pointer;
            bytes += bytes_in(region, items[i].tensor);
        }
        CHECK_ZU(count, region == ASHLAR_REGION_MASTER ? 1 : TENSORS);
        CHECK(flatten(region, count, NULL, streams[0]) == ASHLAR_OK);
        CHECK(gathered.copies == count && gathered.copied_bytes == bytes && gathered.merged == 0);
        CHECK(gathered.in_place == 0 && gathered.tied == 0);
        CHECK(gathered.freed_blocks == 0 && gathered.kept_blocks == 0);
        check_gathered(region, streams[0]);
        pointers[items[0].tensor] = blocks[0];
        CHECK(ashlar_arena_check(arena) == ASHLAR_EMOVED);
        free_all(blocks, count);
        tear_down_arena();
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
    const size_t batches = CALLS(memcpy_batch_async), single = CALLS(memcpy_dtod_async);
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, PARTS, NULL, streams[1]) == ASHLAR_OK);
    CHECK_ZU(gathered.copies, copies);
    CHECK_ZU(gathered.merged, PARTS - copies);
    CHECK_ZU(gathered.copied_bytes, 40 + 24 + 64 + 256 + 512);
    CHECK_ZU(CALLS(memcpy_batch_async) - batches, copies > 1);
    CHECK_ZU(CALLS(memcpy_dtod_async) - single, copies == 1);
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
    const size_t work = CALLS(memcpy_batch_async) + CALLS(memcpy_dtod_async);
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, count, allocator, streams[0]) == ASHLAR_OK);
    CHECK(gathered.in_place == TENSORS && gathered.copies == 0 && gathered.copied_bytes == 0);
    CHECK(gathered.merged == 0 && gathered.freed_blocks == 0 && gathered.kept_blocks == 0);
    CHECK_ZU(CALLS(memcpy_batch_async) + CALLS(memcpy_dtod_async), work);
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
    const size_t work = CALLS(memcpy_batch_async) + CALLS(memcpy_dtod_async);
    CHECK_FAILS(flatten(ASHLAR_REGION_PARAMETERS, 2, allocator, streams[0]), ASHLAR_EINVAL, part);
    CHECK_HAS(ashlar_error_detail(), other_part);
    CHECK(first == at && second == other_at);
    CHECK_ZU(arena->binding_count, 0);
    CHECK_ZU(CALLS(memcpy_batch_async) + CALLS(memcpy_dtod_async), work);
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
    check_refused(ONE, gradients + 1500, TWO, room, "tensor one",
                  "padding behind tensor five (gradients)");
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

RUN_CASES()
