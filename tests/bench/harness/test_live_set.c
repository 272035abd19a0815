/*
 * test_live_set.c - that any two blocks with a common byte are found, and no others.
 */
#include "bench/harness/live_set.h"

#include "tests/check.h"

static ashlar_live_block block_at(uintptr_t address, size_t bytes) {
    return (ashlar_live_block){.address = address, .bytes = bytes};
}

CASE(blocks_side_by_side_do_not_overlap) {
    ashlar_live_set set = {0};
    ashlar_live_block middle = block_at(1000, 100), before = block_at(999, 1),
                      after = block_at(1100, 1);
    CHECK(ashlar__live_set_insert(&set, &middle) == NULL);
    CHECK(ashlar__live_set_insert(&set, &before) == NULL);
    CHECK(ashlar__live_set_insert(&set, &after) == NULL);
}

CASE(a_common_byte_is_found_wherever_it_is) {
    static const struct {
        uintptr_t address;
        size_t bytes;
    } bad[] = {{1000, 100}, {1000, 1}, {1099, 1}, {1050, 10}, {900, 101}, {1099, 500}, {1, 5000}};
    ashlar_live_set set = {0};
    ashlar_live_block middle = block_at(1000, 100);
    CHECK(ashlar__live_set_insert(&set, &middle) == NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ashlar_live_block other = block_at(bad[i].address, bad[i].bytes);
        CHECK(ashlar__live_set_insert(&set, &other) == &middle);
    }
    ashlar__live_set_remove(&set, &middle);
    ashlar_live_block again = block_at(1050, 10);
    CHECK(ashlar__live_set_insert(&set, &again) == NULL);
}

CASE(the_end_of_the_address_space_is_no_gap) {
    ashlar_live_set set = {0};
    ashlar_live_block last = block_at(UINTPTR_MAX - 9, 10), wraps = block_at(UINTPTR_MAX - 99, 101),
                      low = block_at(0, 10);
    CHECK(ashlar__live_set_insert(&set, &wraps) == &wraps);
    CHECK(ashlar__live_set_insert(&set, &last) == NULL);
    CHECK(ashlar__live_set_insert(&set, &low) == NULL);
}

enum { COUNT = 4096, ROUNDS = 20000 };

static ashlar_live_block blocks[COUNT];

static size_t depth(const ashlar_live_block *tree) {
    if (tree == NULL) {
        return 0;
    }
    const size_t left = depth(tree->left), right = depth(tree->right);
    return 1 + (left > right ? left : right);
}

CASE(the_tree_stays_flat_in_any_order) {
    for (int is_falling = 0; is_falling < 2; is_falling++) {
        ashlar_live_set set = {0};
        for (size_t i = 0; i < COUNT; i++) {
            const size_t place = is_falling ? COUNT - i : i + 1;
            blocks[i] = block_at(place << 21, 1 << 21);
            CHECK(ashlar__live_set_insert(&set, &blocks[i]) == NULL);
        }
        CHECK(depth(set.root) < 60); /* 12 at best */
        for (size_t i = 0; i < COUNT; i += 2) {
            ashlar__live_set_remove(&set, &blocks[i]);
        }
        CHECK(depth(set.root) < 60);
    }
}

/* Random blocks, in and out, against a look at every byte. */
CASE(agrees_with_a_map_of_bytes) {
    enum { BYTES = 2000 };
    static unsigned char used[BYTES];
    ashlar_live_set set = {0};
    size_t count = 0;
    int wrong = 0, inserted = 0, refused = 0;
    srand(7);
    for (int round = 0; round < ROUNDS; round++) {
        if (count > 0 && rand() % 3 == 0) {
            ashlar_live_block *out = &blocks[(size_t)rand() % count];
            ashlar__live_set_remove(&set, out);
            memset(used + out->address, 0, out->bytes);
            ashlar_live_block *last = &blocks[--count];
            if (last != out) { /* keep the array dense: the last one moves, so in and out again */
                ashlar__live_set_remove(&set, last);
                *out = block_at(last->address, last->bytes);
                wrong += ashlar__live_set_insert(&set, out) != NULL;
            }
            continue;
        }
        const size_t bytes = (size_t)rand() % 60 + 1;
        blocks[count] = block_at((size_t)rand() % (BYTES - bytes), bytes);
        const bool is_free = memchr(used + blocks[count].address, 1, bytes) == NULL;
        const ashlar_live_block *overlap = ashlar__live_set_insert(&set, &blocks[count]);
        wrong += is_free != (overlap == NULL);
        refused += overlap != NULL;
        if (overlap == NULL) {
            memset(used + blocks[count].address, 1, bytes);
            inserted++;
            count++;
        }
    }
    CHECK(wrong == 0);
    CHECK(inserted > 1000 && refused > 1000);
}

RUN_CASES()
