/* test_flatten_owner.c - sources that are freed: which, when, and how much memory that saves. */
#include "tests/arena/layout/flatten_fixture.h"

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

/* A use on the source's own stream that comes after the gathering was queued. */
CASE(a_source_in_use_on_its_own_stream_is_not_reused_before) {
    REQUIRE(set_up_arena("memory=64MiB,mode=adversarial,seed=3", 1));
    pointers[FOUR] = take(280, streams[1]);
    unsigned char *const block = pointers[FOUR];
    items[0] = (ashlar_flatten_item){FOUR, &pointers[FOUR]};
    atomic_store(&payload_bad_count, 0);
    queue_write(streams[1], block, 280, 0x11);
    queue_verify(streams[1], block, 280, 0x11);
    CHECK(flatten(ASHLAR_REGION_PARAMETERS, 1, allocator, streams[2]) == ASHLAR_OK);
    unsigned char *others[8];
    for (size_t i = 0; i < 8; i++) {
        others[i] = take(280, streams[2]);
        queue_write(streams[2], others[i], 280, 0x22);
    }
    wait_for(streams[2]);
    wait_for(streams[1]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    for (size_t i = 0; i < 8; i++) {
        give(others[i]);
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
