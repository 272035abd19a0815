#include "block.h"

#include "check_level.h"

/* Odd, so that a product with it loses nothing; nearest 2^64 / golden ratio. */
#define HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

/* Twice, since after one product blocks at regular distances still make half a list of the tree. */
static uint64_t priority(const ashlar_block *block) {
    const uint64_t once = (uint64_t)block->offset * HASH_FACTOR;
    return (once ^ (once >> 32)) * HASH_FACTOR;
}

static bool is_before(const ashlar_block *a, const ashlar_block *b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->offset < b->offset;
}

/* Split `tree` into the blocks before `key` and the others. */
static void split(ashlar_block *tree, const ashlar_block *key, ashlar_block **before,
                  ashlar_block **after) {
    while (tree != NULL) {
        if (is_before(tree, key)) {
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

/* Join two trees, every block of `a` before every block of `b`. */
static ashlar_block *join(ashlar_block *a, ashlar_block *b) {
    ashlar_block *root;
    ashlar_block **link = &root;
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

void ashlar_free_tree_insert(ashlar_free_tree *tree, ashlar_block *block) {
    ashlar_block **link = &tree->root;
    while (*link != NULL && priority(*link) >= priority(block)) {
        link = is_before(block, *link) ? &(*link)->left : &(*link)->right;
    }
    split(*link, block, &block->left, &block->right);
    *link = block;
}

void ashlar_free_tree_remove(ashlar_free_tree *tree, ashlar_block *block) {
    ashlar_block **link = &tree->root;
    while (*link != block) {
        ASHLAR_ASSERT(*link != NULL);
        link = is_before(block, *link) ? &(*link)->left : &(*link)->right;
    }
    *link = join(block->left, block->right);
    block->left = NULL;
    block->right = NULL;
}

ashlar_block *ashlar_free_tree_best_fit(const ashlar_free_tree *tree, size_t bytes) {
    ashlar_block *best = NULL;
    for (ashlar_block *block = tree->root; block != NULL;) {
        if (block->bytes >= bytes) {
            best = block;
            block = block->left;
        } else {
            block = block->right;
        }
    }
    return best;
}

size_t ashlar_free_tree_largest(const ashlar_free_tree *tree) {
    size_t largest = 0;
    for (const ashlar_block *block = tree->root; block != NULL; block = block->right) {
        largest = block->bytes;
    }
    return largest;
}

bool ashlar_free_tree_has(const ashlar_free_tree *tree, const ashlar_block *block) {
    const ashlar_block *at = tree->root;
    while (at != NULL && at != block) {
        at = is_before(block, at) ? at->left : at->right;
    }
    return at == block;
}

static size_t count_below(const ashlar_block *root) {
    return root == NULL ? 0 : 1 + count_below(root->left) + count_below(root->right);
}

size_t ashlar_free_tree_count(const ashlar_free_tree *tree) {
    return count_below(tree->root);
}
