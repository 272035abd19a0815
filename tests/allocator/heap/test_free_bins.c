/*
 * test_free_bins.c - the bins of free blocks against a plain array.
 */
#include "tests/check.h"

#include "allocator/heap/free_bins.h"
#include "allocator/base/random.h"

enum { BLOCKS = 512, ALIGN = 512, LOOKED_AT = 8 };

static ashlar_block blocks[BLOCKS];
static size_t since[BLOCKS]; /* the oracle: when each was inserted, 0 where it is not in */
static size_t inserted;
static ashlar_free_bins bins;

static uint64_t random_state;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

/* Sizes of up to `units` units; offsets in the order of the array. */
static void begin(uint64_t seed, size_t units) {
    random_state = seed;
    bins = (ashlar_free_bins){0};
    inserted = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = (ashlar_block){.offset = i * ALIGN, .bytes = (1 + draw(units)) * ALIGN};
        since[i] = 0;
    }
}

/* The bin of `bytes` is [*low, *high), by the header's words. */
static void bounds_of(size_t bytes, size_t *low, size_t *high) {
    size_t width = ALIGN;
    while (bytes >= 64 * width) {
        width *= 2;
    }
    *low = bytes / width * width;
    *high = *low + width;
}

/* The best of the `count` newest blocks of [low, high) that have at least `bytes`. */
static const ashlar_block *oracle_newest(size_t low, size_t high, size_t bytes, size_t count) {
    const ashlar_block *best = NULL;
    for (size_t before = SIZE_MAX; count > 0; count--) {
        size_t newest = BLOCKS;
        for (size_t i = 0; i < BLOCKS; i++) {
            if (since[i] != 0 && since[i] < before && blocks[i].bytes >= low &&
                blocks[i].bytes < high && (newest == BLOCKS || since[i] > since[newest])) {
                newest = i;
            }
        }
        if (newest == BLOCKS) {
            return best;
        }
        const ashlar_block *block = &blocks[newest];
        before = since[newest];
        if (block->bytes >= bytes &&
            (best == NULL || block->bytes < best->bytes ||
             (block->bytes == best->bytes && block->offset < best->offset))) {
            best = block;
        }
    }
    return best;
}

static const ashlar_block *oracle_fit(size_t bytes) {
    size_t low, high, larger = SIZE_MAX;
    bounds_of(bytes, &low, &high);
    const ashlar_block *best = oracle_newest(low, high, bytes, LOOKED_AT);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (since[i] != 0 && blocks[i].bytes >= high && blocks[i].bytes < larger) {
            larger = blocks[i].bytes;
        }
    }
    if (best == NULL && larger != SIZE_MAX) {
        size_t larger_low, larger_high;
        bounds_of(larger, &larger_low, &larger_high);
        best = oracle_newest(larger_low, larger_high, bytes, LOOKED_AT);
    }
    return best != NULL ? best : oracle_newest(low, high, bytes, BLOCKS);
}

/* Everything else that can be asked of the bins, against the array. */
static size_t mismatches(void) {
    size_t wrong = 0, count = 0, largest = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        const bool is_in = since[i] != 0;
        wrong += ashlar__free_bins_has(&bins, &blocks[i]) != is_in;
        count += is_in;
        largest = is_in && blocks[i].bytes > largest ? blocks[i].bytes : largest;
    }
    wrong += ashlar__free_bins_count(&bins) != count;
    wrong += ashlar__free_bins_is_empty(&bins) != (count == 0);
    wrong += ashlar__free_bins_largest(&bins) != largest;
    return wrong;
}

static void toggle(size_t i) {
    if (since[i] != 0) {
        ashlar__free_bins_remove(&bins, &blocks[i]);
        since[i] = 0;
    } else {
        ashlar__free_bins_insert(&bins, &blocks[i]);
        since[i] = ++inserted;
    }
}

CASE(empty_bins_have_nothing) {
    begin(1, 4);
    CHECK(ashlar__free_bins_best_fit(&bins, 1) == NULL);
    CHECK(ashlar__free_bins_best_fit(&bins, SIZE_MAX) == NULL);
    CHECK_ZU(mismatches(), 0);
}

CASE(random_changes_keep_the_bins_equal_to_the_array) {
    static const size_t units[] = {1, 3, 40, 100, 300, 5000, 100000, (size_t)1 << 37};
    for (uint64_t seed = 1; seed <= 8; seed++) {
        const size_t most = units[seed - 1];
        printf("# seed %llu, up to %zu units\n", (unsigned long long)seed, most);
        begin(seed, most);
        size_t wrong = 0;
        for (int round = 0; round < 2000; round++) {
            toggle(draw(BLOCKS));
            const size_t i = draw(BLOCKS); /* a size near one there is, or any */
            const size_t bytes = round % 2 == 0 ? blocks[i].bytes : draw((most + 2) * ALIGN);
            wrong += ashlar__free_bins_best_fit(&bins, bytes) != oracle_fit(bytes);
            wrong += ashlar__free_bins_best_fit(&bins, bytes + 1) != oracle_fit(bytes + 1);
            wrong += round % 64 == 0 ? mismatches() : 0;
        }
        CHECK_ZU(wrong, 0);
        for (size_t i = 0; i < BLOCKS; i++) {
            if (since[i] != 0) {
                toggle(i);
            }
        }
        CHECK_ZU(mismatches(), 0);
    }
}

/* One block at a time, of every size about the bounds of a bin. */
CASE(a_block_is_found_by_every_size_up_to_its_own) {
    for (size_t width = 1; width <= (size_t)1 << 33; width *= 2) {
        for (size_t units = 31 * width; units <= 64 * width; units += 11 * width) {
            for (size_t k = 0; k < 3; k++) {
                begin(1, 1);
                blocks[0].bytes = (units - 1 + k) * ALIGN;
                toggle(0);
                CHECK(ashlar__free_bins_best_fit(&bins, blocks[0].bytes) == &blocks[0]);
                CHECK(ashlar__free_bins_best_fit(&bins, ALIGN) == &blocks[0]);
                CHECK(ashlar__free_bins_best_fit(&bins, blocks[0].bytes + 1) == NULL);
                CHECK_ZU(ashlar__free_bins_largest(&bins), blocks[0].bytes);
            }
        }
    }
}

CASE(of_a_few_equal_blocks_the_lowest_is_found) {
    begin(1, 1);
    for (size_t i = 0; i < LOOKED_AT; i++) {
        toggle(i * 5 % LOOKED_AT);
    }
    for (size_t i = 0; i < LOOKED_AT; i++) {
        CHECK(ashlar__free_bins_best_fit(&bins, 1) == &blocks[i]);
        toggle(i);
    }
}

/* 70 units: a bin of 64 units' group that is two units wide. */
CASE(the_only_block_that_fits_is_found_behind_many_that_do_not) {
    begin(1, 1);
    blocks[0].bytes = 71 * ALIGN;
    toggle(0);
    for (size_t i = 1; i < BLOCKS; i++) {
        blocks[i].bytes = 70 * ALIGN;
        toggle(i);
    }
    CHECK(ashlar__free_bins_best_fit(&bins, 71 * ALIGN) == &blocks[0]);
    CHECK(ashlar__free_bins_best_fit(&bins, 71 * ALIGN + 1) == NULL);
    toggle(0);
    CHECK(ashlar__free_bins_best_fit(&bins, 71 * ALIGN) == NULL);
}

CASE(a_block_of_the_same_size_and_offset_is_not_taken_for_another) {
    begin(1, 1);
    toggle(5);
    const ashlar_block twin = blocks[5];
    CHECK(!ashlar__free_bins_has(&bins, &twin));
}

CASE(a_block_that_does_not_know_its_place_is_not_in_its_bin) {
    begin(1, 1);
    for (size_t i = 0; i < 3; i++) {
        toggle(i);
    }
    blocks[1].list++;
    CHECK(!ashlar__free_bins_has(&bins, &blocks[1]));
    blocks[1].list--;
    ashlar_block **link = blocks[1].link;
    blocks[1].link = blocks[0].link; /* what points to another one of them */
    CHECK(!ashlar__free_bins_has(&bins, &blocks[1]));
    blocks[1].link = link;
    CHECK(ashlar__free_bins_has(&bins, &blocks[1]));
    static const size_t order[] = {1, 2, 0}; /* the middle one, the newest, the last there is */
    for (size_t k = 0; k < 3; k++) {
        toggle(order[k]);
        CHECK_ZU(mismatches(), 0);
    }
    CHECK(bins.groups == 0 && bins.bins[0] == 0);
}

RUN_CASES()
