/* live_set.c - a treap of live blocks, which finds overlaps as they are inserted. */
#include "bench/harness/live_set.h"

#include "allocator/base/check_level.h"

/* A hash of the address: multiplied twice by the odd number nearest 2^64 / golden ratio, since one
 * multiplication would leave regularly spaced addresses regularly spaced. */
static uint64_t priority(const ashlar_live_block *block) {
    const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t once = (uint64_t)block->address * factor;
    return (once ^ (once >> 32)) * factor;
}

/* The last byte rather than the end, which is 0 for the last block of the address space. */
static uintptr_t last_byte(const ashlar_live_block *block) {
    return block->address + (block->bytes - 1);
}

/* A block of the tree that shares a byte with `block`; NULL: none. */
static const ashlar_live_block *find_overlap(const ashlar_live_block *tree,
                                             const ashlar_live_block *block) {
    while (tree != NULL) {
        if (last_byte(block) < tree->address) {
            tree = tree->left;
        } else if (last_byte(tree) < block->address) {
            tree = tree->right;
        } else {
            return tree;
        }
    }
    return NULL;
}

/* Split `tree` into the blocks that begin before `address` and the others. */
static void split(ashlar_live_block *tree, uintptr_t address, ashlar_live_block **before,
                  ashlar_live_block **after) {
    while (tree != NULL) {
        if (tree->address < address) {
            *before = tree;
            before = &tree->right;
            tree = tree->right;
        } else {
            *after = tree;
            after = &tree->left;
            tree = tree->left;
        }
    }
    *before = NULL;
    *after = NULL;
}

/* Join two trees. Every block of `a` must be before every block of `b`. */
static ashlar_live_block *join(ashlar_live_block *a, ashlar_live_block *b) {
    ashlar_live_block *root = NULL;
    ashlar_live_block **link = &root;
    while (a != NULL && b != NULL) {
        if (priority(a) > priority(b)) {
            *link = a;
            link = &a->right;
            a = a->right;
        } else {
            *link = b;
            link = &b->left;
            b = b->left;
        }
    }
    *link = a != NULL ? a : b;
    return root;
}

const ashlar_live_block *ashlar__live_set_insert(ashlar_live_set *set, ashlar_live_block *block) {
    if (last_byte(block) < block->address) {
        return block;
    }
    const ashlar_live_block *overlap = find_overlap(set->root, block);
    if (overlap != NULL) {
        return overlap;
    }
    ashlar_live_block **link = &set->root;
    while (*link != NULL && priority(*link) >= priority(block)) {
        link = block->address < (*link)->address ? &(*link)->left : &(*link)->right;
    }
    split(*link, block->address, &block->left, &block->right);
    *link = block;
    return NULL;
}

void ashlar__live_set_remove(ashlar_live_set *set, ashlar_live_block *block) {
    ashlar_live_block **link = &set->root;
    while (*link != block) {
        ASHLAR_CHECK2(*link != NULL); /* otherwise the block is not in the set */
        link = block->address < (*link)->address ? &(*link)->left : &(*link)->right;
    }
    *link = join(block->left, block->right);
}
