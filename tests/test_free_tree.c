/*
 * test_free_tree.c - the tree of free blocks against a plain array.
 */
#include "check.h"

#include "block.h"

enum { BLOCKS = 512, ALIGN = 512 };

static ashlar_block blocks[BLOCKS];
static bool is_in[BLOCKS]; /* the oracle: which of them are in the tree */
static ashlar_free_tree tree;

static uint64_t random_state;

static size_t draw(size_t below) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(random_state >> 33) % below;
}

/* `sizes` different sizes; offsets in the order of the array. */
static void begin(uint64_t seed, size_t sizes) {
    random_state = seed;
    tree = (ashlar_free_tree){0};
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = (ashlar_block){.offset = i * ALIGN, .bytes = (1 + draw(sizes)) * ALIGN};
        is_in[i] = false;
    }
}

static const ashlar_block *oracle_best(size_t bytes) {
    const ashlar_block *best = NULL;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (is_in[i] && blocks[i].bytes >= bytes &&
            (best == NULL || blocks[i].bytes < best->bytes)) {
            best = &blocks[i]; /* of equals the first, which has the lowest offset */
        }
    }
    return best;
}

static size_t oracle_largest(void) {
    size_t largest = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        largest = is_in[i] && blocks[i].bytes > largest ? blocks[i].bytes : largest;
    }
    return largest;
}

/* Nodes of a subtree in order; the number of pairs out of order is added to *wrong. */
static size_t walk(const ashlar_block *block, const ashlar_block **before, size_t *wrong) {
    if (block == NULL) {
        return 0;
    }
    size_t count = walk(block->left, before, wrong);
    const ashlar_block *last = *before;
    *wrong += last != NULL && (last->bytes > block->bytes ||
                               (last->bytes == block->bytes && last->offset >= block->offset));
    *before = block;
    count++;
    return count + walk(block->right, before, wrong);
}

static size_t depth_of(const ashlar_block *block) {
    if (block == NULL) {
        return 0;
    }
    const size_t left = depth_of(block->left), right = depth_of(block->right);
    return 1 + (left > right ? left : right);
}

/* Everything that can be asked of the tree, against the array. */
static size_t mismatches(void) {
    size_t wrong = 0, want = 0;
    const ashlar_block *before = NULL;
    for (size_t i = 0; i < BLOCKS; i++) {
        wrong += ashlar_free_tree_has(&tree, &blocks[i]) != is_in[i];
        want += is_in[i];
    }
    wrong += walk(tree.root, &before, &wrong) != want;
    wrong += ashlar_free_tree_largest(&tree) != oracle_largest();
    return wrong;
}

static void toggle(size_t i) {
    if (is_in[i]) {
        ashlar_free_tree_remove(&tree, &blocks[i]);
        CHECK(blocks[i].left == NULL && blocks[i].right == NULL);
    } else {
        ashlar_free_tree_insert(&tree, &blocks[i]);
    }
    is_in[i] = !is_in[i];
}

static void an_empty_tree_has_nothing(void) {
    begin(1, 4);
    CHECK(ashlar_free_tree_best_fit(&tree, 1) == NULL);
    CHECK_ZU(ashlar_free_tree_largest(&tree), 0);
    CHECK(!ashlar_free_tree_has(&tree, &blocks[0]));
}

static void random_changes_keep_the_tree_equal_to_the_array(void) {
    static const size_t sizes[] = {1, 3, 40, 100000};
    for (uint64_t seed = 1; seed <= 8; seed++) {
        const size_t kinds = sizes[seed % 4];
        printf("# seed %llu, %zu sizes\n", (unsigned long long)seed, kinds);
        begin(seed, kinds);
        size_t wrong = 0;
        for (int round = 0; round < 4000; round++) {
            toggle(draw(BLOCKS));
            const size_t bytes = draw((kinds + 2) * ALIGN);
            wrong += ashlar_free_tree_best_fit(&tree, bytes) != oracle_best(bytes);
            wrong += round % 64 == 0 ? mismatches() : 0;
        }
        CHECK_ZU(wrong, 0);
        for (size_t i = 0; i < BLOCKS; i++) {
            if (is_in[i]) {
                toggle(i);
            }
        }
        CHECK(tree.root == NULL);
    }
}

static void of_equal_blocks_the_lowest_is_found(void) {
    begin(1, 1);
    for (size_t i = BLOCKS; i-- > 0;) {
        toggle(i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(ashlar_free_tree_best_fit(&tree, 1) == &blocks[i]);
        toggle(i);
    }
}

static void a_block_with_the_same_key_is_not_taken_for_another(void) {
    begin(1, 1);
    toggle(5);
    const ashlar_block twin = blocks[5];
    CHECK(!ashlar_free_tree_has(&tree, &twin));
}

/* Regular offsets, in order: what would make a list of a search tree without balance. */
static void regular_offsets_keep_the_tree_shallow(void) {
    static const size_t strides[] = {512, 1024, 1536, 4096, 5120, 18432, (size_t)2 << 20,
                                     (size_t)1 << 30};
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
        for (int falling = 0; falling < 2; falling++) {
            begin(1, 1);
            for (size_t i = 0; i < BLOCKS; i++) {
                blocks[i].offset = (falling ? BLOCKS - 1 - i : i) * strides[s];
                toggle(i);
            }
            CHECK(depth_of(tree.root) <= 32);
            CHECK_ZU(mismatches(), 0);
            for (size_t i = 0; i < BLOCKS; i += 2) {
                toggle(i);
            }
            CHECK(depth_of(tree.root) <= 32);
            CHECK_ZU(mismatches(), 0);
        }
    }
}

int main(void) {
    RUN(an_empty_tree_has_nothing);
    RUN(random_changes_keep_the_tree_equal_to_the_array);
    RUN(of_equal_blocks_the_lowest_is_found);
    RUN(a_block_with_the_same_key_is_not_taken_for_another);
    RUN(regular_offsets_keep_the_tree_shallow);
    return check_report();
}
