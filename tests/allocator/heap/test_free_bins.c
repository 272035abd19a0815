/*
 * test_free_bins.c - the bins of free blocks against a plain array.
 */
#include "tests/check.h"

#include <stdlib.h>

#include "allocator/heap/free_bins.h"
#include "allocator/base/random.h"

enum { BLOCKS = 10000, FEW = 512, ALIGN = 512 };

static ashlar_block blocks[BLOCKS];
static bool is_in[BLOCKS]; /* the oracle */
static size_t block_count; /* how many of them a case uses */
static ashlar_block *order[BLOCKS];
static ashlar_free_bins bins;

static uint64_t random_state;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

static void shuffle(size_t *list, size_t count) {
    for (size_t i = count; i > 1; i--) {
        const size_t j = draw(i), kept = list[i - 1];
        list[i - 1] = list[j];
        list[j] = kept;
    }
}

/* Sizes of `least` to `most` units; offsets that the order of the nodes says nothing about. */
static void begin(uint64_t seed, size_t count, size_t least, size_t most) {
    static size_t places[BLOCKS];
    random_state = seed;
    bins = (ashlar_free_bins){0};
    block_count = count;
    for (size_t i = 0; i < count; i++) {
        places[i] = i;
    }
    shuffle(places, count);
    for (size_t i = 0; i < count; i++) {
        const size_t units = least + draw(most - least + 1);
        blocks[i] = (ashlar_block){.offset = places[i] * ALIGN, .bytes = units * ALIGN};
        is_in[i] = false;
    }
}

/* Whether (bytes, offset) of a block comes before another pair. */
static bool comes_before(const ashlar_block *block, size_t bytes, size_t offset) {
    return block->bytes != bytes ? block->bytes < bytes : block->offset < offset;
}

static bool is_pair(const ashlar_block *block, size_t bytes, size_t offset) {
    return block->bytes == bytes && block->offset == offset;
}

/* The smallest of at least `bytes`, and of these the lowest: in two passes, as it is said. */
static const ashlar_block *oracle_fit(size_t bytes) {
    size_t smallest = SIZE_MAX;
    const ashlar_block *best = NULL;
    for (size_t i = 0; i < block_count; i++) {
        if (is_in[i] && blocks[i].bytes >= bytes && blocks[i].bytes < smallest) {
            smallest = blocks[i].bytes;
        }
    }
    for (size_t i = 0; i < block_count; i++) {
        if (is_in[i] && blocks[i].bytes == smallest &&
            (best == NULL || blocks[i].offset < best->offset)) {
            best = &blocks[i];
        }
    }
    return best;
}

static const ashlar_block *oracle_next(size_t bytes, size_t offset) {
    const ashlar_block *next = NULL;
    for (size_t i = 0; i < block_count; i++) {
        if (is_in[i] && !comes_before(&blocks[i], bytes, offset) &&
            !is_pair(&blocks[i], bytes, offset) &&
            (next == NULL || comes_before(&blocks[i], next->bytes, next->offset))) {
            next = &blocks[i];
        }
    }
    return next;
}

static const ashlar_block *oracle_prev(size_t bytes, size_t offset) {
    const ashlar_block *prev = NULL;
    for (size_t i = 0; i < block_count; i++) {
        if (is_in[i] && comes_before(&blocks[i], bytes, offset) &&
            (prev == NULL || comes_before(prev, blocks[i].bytes, blocks[i].offset))) {
            prev = &blocks[i];
        }
    }
    return prev;
}

static int compare_blocks(const void *a, const void *b) {
    const ashlar_block *left = *(ashlar_block *const *)a, *right = *(ashlar_block *const *)b;
    return comes_before(left, right->bytes, right->offset) ? -1 : left != right;
}

/* Both walks, against the sorted array. */
static size_t wrong_walks(void) {
    size_t count = 0, wrong = 0;
    for (size_t i = 0; i < block_count; i++) {
        if (is_in[i]) {
            order[count++] = &blocks[i];
        }
    }
    qsort(order, count, sizeof order[0], compare_blocks);
    size_t bytes = 0, offset = 0;
    for (size_t i = 0; i <= count; i++) {
        const ashlar_block *next = ashlar__free_bins_next(&bins, bytes, offset);
        if (next != (i < count ? order[i] : NULL)) {
            return wrong + 1;
        }
        bytes = next != NULL ? next->bytes : bytes;
        offset = next != NULL ? next->offset : offset;
    }
    bytes = offset = SIZE_MAX;
    for (size_t i = count + 1; i-- > 0;) {
        const ashlar_block *prev = ashlar__free_bins_prev(&bins, bytes, offset);
        if (prev != (i > 0 ? order[i - 1] : NULL)) {
            return wrong + 1;
        }
        bytes = prev != NULL ? prev->bytes : bytes;
        offset = prev != NULL ? prev->offset : offset;
    }
    return wrong;
}

/* Everything that can be asked of the bins as a whole, against the array. */
static size_t mismatches(void) {
    size_t wrong = 0, count = 0, largest = 0;
    for (size_t i = 0; i < block_count; i++) {
        wrong += ashlar__free_bins_has(&bins, &blocks[i]) != is_in[i];
        count += is_in[i];
        largest = is_in[i] && blocks[i].bytes > largest ? blocks[i].bytes : largest;
    }
    for (size_t i = 0; i < ASHLAR_BIN_COUNT; i++) {
        wrong += !ashlar__free_bins_bits_agree(&bins, i);
    }
    wrong += ashlar__free_bins_count(&bins) != count;
    wrong += ashlar__free_bins_is_empty(&bins) != (count == 0);
    wrong += ashlar__free_bins_largest(&bins) != largest;
    return wrong + wrong_walks();
}

/* All three searches from one pair, against the array. */
static size_t wrong_searches(size_t bytes, size_t offset) {
    size_t wrong = ashlar__free_bins_next(&bins, bytes, offset) != oracle_next(bytes, offset);
    wrong += ashlar__free_bins_prev(&bins, bytes, offset) != oracle_prev(bytes, offset);
    return wrong + (bytes > 0 && ashlar__free_bins_best_fit(&bins, bytes) != oracle_fit(bytes));
}

static void toggle(size_t i) {
    if (is_in[i]) {
        ashlar__free_bins_remove(&bins, &blocks[i]);
    } else {
        ashlar__free_bins_insert(&bins, &blocks[i]);
    }
    is_in[i] = !is_in[i];
}

static void remove_all(void) {
    for (size_t i = 0; i < block_count; i++) {
        if (is_in[i]) {
            toggle(i);
        }
    }
}

CASE(empty_bins_have_nothing) {
    begin(1, FEW, 1, 4);
    CHECK(ashlar__free_bins_best_fit(&bins, 1) == NULL);
    CHECK(ashlar__free_bins_best_fit(&bins, SIZE_MAX) == NULL);
    CHECK(ashlar__free_bins_next(&bins, SIZE_MAX, SIZE_MAX) == NULL);
    CHECK_ZU(mismatches(), 0);
}

CASE(random_changes_keep_the_bins_equal_to_the_array) {
    static const size_t units[] = {1, 3, 40, 100, 300, 5000, 100000, (size_t)1 << 37};
    for (uint64_t seed = 1; seed <= 8; seed++) {
        const size_t most = units[seed - 1];
        printf("# seed %llu, up to %zu units\n", (unsigned long long)seed, most);
        begin(seed, FEW, 1, most);
        size_t wrong = 0;
        for (int round = 0; round < 4000; round++) {
            toggle(draw(FEW));
            const size_t i = draw(FEW); /* a pair near one there is, or any */
            const size_t bytes = round % 2 == 0 ? blocks[i].bytes : draw((most + 2) * ALIGN);
            wrong += wrong_searches(bytes, blocks[i].offset);
            wrong += wrong_searches(bytes + 1, draw((FEW + 1) * ALIGN));
            wrong += wrong_searches(bytes, SIZE_MAX);
            wrong += round % 64 == 0 ? mismatches() : 0;
        }
        CHECK_ZU(wrong, 0);
        remove_all();
        CHECK_ZU(mismatches(), 0);
    }
}

/* 1100 to 1103 units: the bins there are 32 units wide. */
CASE(ten_thousand_blocks_in_one_bin_are_searched_exactly) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
        begin(seed, BLOCKS, 1100, seed == 1 ? 1100 : seed == 2 ? 1103 : 1110);
        size_t wrong = 0;
        for (size_t i = 0; i < BLOCKS; i++) {
            wrong += ashlar__bin_of(blocks[i].bytes) != ashlar__bin_of(1100 * (size_t)ALIGN);
            toggle(i);
        }
        wrong += mismatches();
        for (int round = 0; round < 6000; round++) {
            toggle(draw(BLOCKS)); /* about half of them are in, later on */
            if (round % 32 == 0) {
                const size_t bytes = (1099 + draw(14)) * ALIGN;
                wrong += wrong_searches(bytes + draw(2), draw((BLOCKS + 1) * ALIGN));
            }
            wrong += round % 1000 == 0 ? mismatches() : 0;
        }
        wrong += mismatches();
        CHECK_ZU(wrong, 0);
        remove_all();
        CHECK_ZU(mismatches(), 0);
    }
}

/* As a heap does it: the best fit is taken, and what was taken longest ago comes back. */
CASE(blocks_that_are_taken_and_given_back_for_long_are_found_by_best_fit) {
    static size_t taken[FEW];
    begin(9, FEW, 1000, 1200);
    size_t wrong = 0, count = 0;
    for (size_t i = 0; i < FEW; i++) {
        toggle(i);
    }
    for (size_t round = 0; round < 20000; round++) {
        const size_t bytes = (1000 + draw(200)) * ALIGN;
        const ashlar_block *fit = ashlar__free_bins_best_fit(&bins, bytes);
        wrong += fit != oracle_fit(bytes);
        if (fit != NULL && count < FEW / 2) {
            taken[count] = (size_t)(fit - blocks);
            toggle(taken[count++]);
        } else {
            shuffle(taken, count);
            toggle(taken[--count]);
        }
    }
    CHECK_ZU(wrong, 0);
    CHECK_ZU(mismatches(), 0);
}

/* The longest way down, with no recursion: a stack of what is still to be seen. */
static size_t depth_of(const ashlar_block *root) {
    static struct {
        const ashlar_block *block;
        size_t depth;
    } stack[BLOCKS];
    size_t deepest = 0, count = 0;
    stack[count].block = root;
    stack[count++].depth = 1;
    while (count > 0) {
        const ashlar_block *block = stack[--count].block;
        const size_t depth = stack[count].depth;
        deepest = depth > deepest ? depth : deepest;
        const ashlar_block *const children[] = {block->left, block->right};
        for (size_t k = 0; k < 2; k++) {
            if (children[k] != NULL) {
                stack[count].block = children[k];
                stack[count++].depth = depth + 1;
            }
        }
    }
    return deepest;
}

/* A random tree of 10,000 is about 31 deep; that one is deeper than 64 does not happen. */
CASE(a_bin_is_shallow_in_whatever_order_its_blocks_come) {
    for (size_t way = 0; way < 3; way++) { /* ascending, descending, by chance */
        begin(1, BLOCKS, 1100, 1100);
        for (size_t i = 0; i < BLOCKS; i++) {
            blocks[i].offset = way == 0   ? i * ALIGN
                               : way == 1 ? (BLOCKS - 1 - i) * ALIGN
                                          : blocks[i].offset;
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            toggle(i);
        }
        const size_t full = depth_of(bins.roots[ashlar__bin_of(blocks[0].bytes)]);
        for (size_t i = 0; i < BLOCKS; i += i % 8 == 6 ? 2 : 1) {
            toggle(i); /* an eighth stays */
        }
        const size_t rest = depth_of(bins.roots[ashlar__bin_of(blocks[0].bytes)]);
        printf("# way %zu: %zu deep, then %zu\n", way, full, rest);
        CHECK(full >= 14 && full <= 64);
        CHECK(rest >= 11 && rest <= 52);
        CHECK_ZU(mismatches(), 0);
    }
}

/* One block at a time, of every size about the bounds of a bin. */
CASE(a_block_is_found_by_every_size_up_to_its_own) {
    for (size_t width = 1; width <= (size_t)1 << 33; width *= 2) {
        for (size_t units = 31 * width; units <= 64 * width; units += 11 * width) {
            for (size_t k = 0; k < 3; k++) {
                begin(1, 1, 1, 1);
                const size_t bytes = blocks[0].bytes = (units - 1 + k) * ALIGN;
                toggle(0);
                CHECK(ashlar__free_bins_best_fit(&bins, bytes) == &blocks[0]);
                CHECK(ashlar__free_bins_best_fit(&bins, ALIGN) == &blocks[0]);
                CHECK(ashlar__free_bins_best_fit(&bins, bytes + 1) == NULL);
                CHECK(ashlar__free_bins_prev(&bins, bytes + 1, 0) == &blocks[0]);
                CHECK(ashlar__free_bins_prev(&bins, bytes, 0) == NULL);
                CHECK_ZU(ashlar__free_bins_largest(&bins), bytes);
            }
        }
    }
}

CASE(a_walk_goes_on_though_the_block_it_stands_on_is_taken) {
    begin(3, FEW, 1, 3000);
    for (size_t i = 0; i < FEW; i++) {
        toggle(i);
    }
    size_t count = 0, bytes = SIZE_MAX, offset = SIZE_MAX;
    const ashlar_block *at;
    while ((at = ashlar__free_bins_prev(&bins, bytes, offset)) != NULL) {
        CHECK(comes_before(at, bytes, offset));
        bytes = at->bytes;
        offset = at->offset;
        toggle((size_t)(at - blocks));
        count++;
    }
    CHECK_ZU(count, FEW);
    CHECK(ashlar__free_bins_is_empty(&bins));
}

CASE(a_block_of_the_same_size_and_offset_is_not_taken_for_another) {
    begin(1, FEW, 1, 1);
    toggle(5);
    const ashlar_block twin = blocks[5];
    CHECK(!ashlar__free_bins_has(&bins, &twin));
}

CASE(a_block_that_does_not_know_its_bin_is_not_in_it) {
    begin(1, 3, 1, 1);
    for (size_t i = 0; i < 3; i++) {
        toggle(i);
    }
    blocks[1].list++;
    CHECK(!ashlar__free_bins_has(&bins, &blocks[1]));
    blocks[1].list--;
    bins.bins[0] = 0; /* a bin that no search from a smaller size would look at */
    CHECK(!ashlar__free_bins_has(&bins, &blocks[1]));
    bins.bins[0] = 2;
    CHECK_ZU(mismatches(), 0);
    remove_all();
    CHECK(bins.groups == 0 && bins.bins[0] == 0);
}

CASE(a_tree_with_blocks_in_wrong_places_is_noticed) {
    begin(1, 3, 1, 1);
    for (size_t i = 0; i < 3; i++) {
        toggle(i);
    }
    ashlar_block *root = bins.roots[1], *left = root->left, *right = root->right;
    root->left = right;
    root->right = left;
    CHECK(!ashlar__free_bins_has(&bins, root));
    CHECK(left == NULL || !ashlar__free_bins_has(&bins, left));
    CHECK(right == NULL || !ashlar__free_bins_has(&bins, right));
    root->left = left;
    root->right = right;
    CHECK_ZU(mismatches(), 0);
    ashlar_block *leaf = root;
    while (leaf->left != NULL || leaf->right != NULL) {
        leaf = leaf->left != NULL ? leaf->left : leaf->right;
    }
    leaf->left = root; /* a circle, in which no search may stay */
    leaf->right = root;
    CHECK(!ashlar__free_bins_has(&bins, leaf));
    for (size_t i = 0; i <= 3; i++) {
        const ashlar_block stranger = {.offset = i * ALIGN, .bytes = ALIGN};
        CHECK(!ashlar__free_bins_has(&bins, &stranger));
    }
    leaf->left = leaf->right = NULL;
    CHECK_ZU(mismatches(), 0);
}

RUN_CASES()
