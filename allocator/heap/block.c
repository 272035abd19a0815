/* block.c - the table of size classes; the search trees of free blocks, and the bins beside. */
#include "allocator/heap/block.h"

#include "allocator/base/checked.h"

/* ---- size classes ---- */

_Static_assert(ASHLAR_SC_LINEAR_BYTES == ASHLAR_SC_LINEAR_COUNT * ASHLAR_BLOCK_ALIGN,
               "the linear classes are multiples of the alignment");
_Static_assert(ASHLAR_SC_LINEAR_COUNT == 2 * ASHLAR_SC_PER_GROUP,
               "the first group's steps are the linear part's");
_Static_assert(ASHLAR_SC_LINEAR_BYTES << 4 == ASHLAR_SC_MAX_BYTES, "four groups reach the maximum");
_Static_assert(ASHLAR_SC_COUNT <= UINT8_MAX + 1, "a class fits an entry of the table");

/* Entry n of the table. For n in [32, 64) * 2^g, a step is 2^g units; for n below 32, one unit. */
#define CLASS(n)                                                 \
    (uint8_t)((n) < 64    ? (n)                                  \
              : (n) < 128 ? 1 * ASHLAR_SC_PER_GROUP + ((n) >> 1) \
              : (n) < 256 ? 2 * ASHLAR_SC_PER_GROUP + ((n) >> 2) \
              : (n) < 512 ? 3 * ASHLAR_SC_PER_GROUP + ((n) >> 3) \
                          : 4 * ASHLAR_SC_PER_GROUP + ((n) >> 4))
#define CLASSES_4(n) CLASS(n), CLASS((n) + 1), CLASS((n) + 2), CLASS((n) + 3)
#define CLASSES_16(n) CLASSES_4(n), CLASSES_4((n) + 4), CLASSES_4((n) + 8), CLASSES_4((n) + 12)
#define CLASSES_64(n) \
    CLASSES_16(n), CLASSES_16((n) + 16), CLASSES_16((n) + 32), CLASSES_16((n) + 48)
#define CLASSES_256(n) \
    CLASSES_64(n), CLASSES_64((n) + 64), CLASSES_64((n) + 128), CLASSES_64((n) + 192)
#define CLASSES_1024(n) \
    CLASSES_256(n), CLASSES_256((n) + 256), CLASSES_256((n) + 512), CLASSES_256((n) + 768)

const uint8_t ashlar__sc_table[] = {CLASSES_1024(0)};
_Static_assert(CLASS(1023) == ASHLAR_SC_COUNT - 1, "the largest class is the last one");

size_t ashlar__sc_bytes(ashlar_sc sc) {
    ASHLAR_ASSERT(sc.idx < ASHLAR_SC_COUNT);
    if (sc.idx < ASHLAR_SC_LINEAR_COUNT) {
        return (sc.idx + (size_t)1) * ASHLAR_BLOCK_ALIGN;
    }
    const unsigned group = sc.idx / ASHLAR_SC_PER_GROUP - 1u;
    const size_t steps = sc.idx % ASHLAR_SC_PER_GROUP + (size_t)ASHLAR_SC_PER_GROUP + 1;
    return (steps << group) * ASHLAR_BLOCK_ALIGN;
}

bool ashlar__block_bytes(size_t bytes, size_t *out) {
    ASHLAR_CHECK2(bytes > 0);
    if (bytes > ASHLAR_SC_MAX_BYTES) {
        return ashlar__align_up(bytes, ASHLAR_BLOCK_ALIGN, out);
    }
    *out = ashlar__small_block_bytes(bytes);
    ASHLAR_CHECK2(*out == ashlar__sc_bytes(ashlar__sc_of_bytes(bytes)));
    return true;
}

/* ---- one tree ---- */

/* A node's priority. No two nodes have the same, since the multiplier is odd. It spreads the
 * addresses of neighbouring nodes evenly, so a tree stays flat even if they are inserted in
 * order. */
static inline uint64_t priority_of(const ashlar_block *block) {
    return (uintptr_t)block * UINT64_C(0x9E3779B97F4A7C15);
}

/* Whether each child of a block lies on its proper side in the order, and has a lower priority. */
static bool is_above_children(const ashlar_block *block) {
    const ashlar_block *left = block->left, *right = block->right;
    const uint64_t priority = priority_of(block);
    return (left == NULL || (priority_of(left) < priority &&
                             ashlar__block_is_before(left, block->bytes, block->offset))) &&
           (right == NULL || (priority_of(right) < priority &&
                              ashlar__block_is_before(block, right->bytes, right->offset)));
}

void ashlar__free_bins_insert_among(ashlar_block **root, ashlar_block *block) {
    const size_t bytes = block->bytes, offset = block->offset;
    const uint64_t priority = priority_of(block);
    ashlar_block **at = root, *under = *at;
    while (under != NULL && priority_of(under) > priority) {
        at = ashlar__block_is_before(under, bytes, offset) ? &under->right : &under->left;
        under = *at;
    }
    *at = block;
    /* The subtree is split at the block's place in the order: its halves are the children. */
    ashlar_block **before = &block->left, **behind = &block->right;
    while (under != NULL) {
        ASHLAR_CHECK2(under != block && (under->bytes != bytes || under->offset != offset));
        if (ashlar__block_is_before(under, bytes, offset)) {
            *before = under;
            before = &under->right;
            under = under->right;
        } else {
            *behind = under;
            behind = &under->left;
            under = under->left;
        }
    }
    *before = NULL;
    *behind = NULL;
    ASHLAR_CHECK2(is_above_children(block));
}

void ashlar__free_bins_remove_among(ashlar_block **root, ashlar_block *block) {
    const size_t bytes = block->bytes, offset = block->offset;
    ashlar_block **at = root;
    ASHLAR_CHECK2(is_above_children(block));
    while (*at != block) {
        ASHLAR_ASSERT(*at != NULL);
        at = ashlar__block_is_before(*at, bytes, offset) ? &(*at)->right : &(*at)->left;
    }
    /* The block's subtrees, joined, take its place. Of two roots the one of higher priority
     * leads. */
    ashlar_block *before = block->left, *behind = block->right;
    while (before != NULL && behind != NULL) {
        if (priority_of(before) > priority_of(behind)) {
            *at = before;
            at = &before->right;
            before = before->right;
        } else {
            *at = behind;
            at = &behind->left;
            behind = behind->left;
        }
    }
    *at = before != NULL ? before : behind;
    ASHLAR_CHECK2(*root != NULL); /* an empty tree would need a change of the bitmaps */
}

/* The last block of a tree that comes before (bytes, offset); NULL: no block does. */
static ashlar_block *last_before(ashlar_block *tree, size_t bytes, size_t offset) {
    ashlar_block *last = NULL;
    while (tree != NULL) {
        if (ashlar__block_is_before(tree, bytes, offset)) {
            last = tree;
            tree = tree->right;
        } else {
            tree = tree->left;
        }
    }
    return last;
}

/* ---- from bin to bin ---- */

/* The last bin before `at` that is not empty; ASHLAR_BIN_COUNT if there is none. */
static size_t prev_bin(const ashlar_free_bins *bins, size_t at) {
    ASHLAR_CHECK2(at < ASHLAR_BIN_COUNT && ashlar__free_bins_bits_agree(bins, at));
    size_t group = at >> ASHLAR_LOG2_BINS;
    uint32_t in_group = bins->bins[group] & ((UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP) - 1);
    if (in_group == 0) {
        const uint64_t smaller = bins->groups & ((UINT64_C(1) << group) - 1);
        if (smaller == 0) {
            return ASHLAR_BIN_COUNT;
        }
        group = 63 - (size_t)__builtin_clzll(smaller);
        in_group = bins->bins[group];
    }
    return (group << ASHLAR_LOG2_BINS) + 31 - (size_t)__builtin_clz(in_group);
}

ashlar_block *ashlar__free_bins_next(const ashlar_free_bins *bins, size_t bytes, size_t offset) {
    if (offset < SIZE_MAX) {
        return ashlar__free_bins_find_from(bins, bytes, offset + 1);
    }
    return bytes < SIZE_MAX ? ashlar__free_bins_find_from(bins, bytes + 1, 0) : NULL;
}

ashlar_block *ashlar__free_bins_prev(const ashlar_free_bins *bins, size_t bytes, size_t offset) {
    const size_t bin = ashlar__bin_of(bytes);
    const size_t own = bin < ASHLAR_BIN_COUNT ? bin : ASHLAR_BIN_COUNT - 1;
    ashlar_block *found = last_before(bins->roots[own], bytes, offset);
    if (found != NULL) {
        return found;
    }
    const size_t prev = prev_bin(bins, own);
    if (prev == ASHLAR_BIN_COUNT) {
        return NULL;
    }
    ASHLAR_CHECK2(prev < own && bins->roots[prev] != NULL);
    found = bins->roots[prev];
    while (found->right != NULL) {
        found = found->right;
    }
    ASHLAR_CHECK2(found->bytes < bytes);
    return found;
}

/* ---- for reports and checks ---- */

size_t ashlar__free_bins_count(const ashlar_free_bins *bins) {
    size_t count = 0;
    const ashlar_block *at = ashlar__free_bins_next(bins, 0, 0);
    for (; at != NULL; at = ashlar__free_bins_next(bins, at->bytes, at->offset)) {
        count++;
    }
    return count;
}

bool ashlar__free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block) {
    const size_t own = ashlar__bin_of(block->bytes);
    const ashlar_block *at = own < ASHLAR_BIN_COUNT ? bins->roots[own] : NULL;
    /* This loop ends even in a tree with a cycle, because it stops where priorities do not fall. */
    while (at != NULL && at != block && is_above_children(at)) {
        at = ashlar__block_is_before(at, block->bytes, block->offset) ? at->right : at->left;
    }
    return at == block && block->list == own && is_above_children(block) &&
           ashlar__free_bins_bits_agree(bins, own);
}
