/*
 * test_ops_rows.c - how kernels share out rows: each unit of each row is one thread's, in shapes
 * small enough to look at all, and around 2^31 and 2^32 rows and units.
 */
#include "tests/check.h"

#include "rnn/cuda/ops_cuda.h"

enum { THREADS = ASHLAR_OPS_THREADS, SEEN_MAX = 1 << 16 };

/* Units in the order of the rows: the least and the greatest that a block's threads have, and how
 * many they have. */
typedef struct span {
    size_t low, high, count;
} span;

static span span_of(const ashlar_rows *rows, unsigned each, size_t block, unsigned char *seen) {
    span s = {SIZE_MAX, 0, 0};
    for (unsigned thread = 0; thread < THREADS; thread++) {
        const ashlar_row_part p = ashlar__rows_part(rows, each, (unsigned)block, thread);
        for (unsigned k = 0; k < each && k * p.team < p.reach; k++) {
            const size_t unit = p.first + k * p.team, at = p.row * rows->units + unit;
            CHECK(p.row < rows->count && unit < rows->units);
            s.low = at < s.low ? at : s.low;
            s.high = at > s.high ? at : s.high;
            s.count++;
            if (seen != NULL && at < SEEN_MAX) {
                seen[at]++;
            }
        }
    }
    return s;
}

/* Blocks first .. end - 1 follow each other; no unit of them is missing. */
static void check_blocks(const ashlar_rows *rows, unsigned each, size_t first, size_t end,
                         size_t blocks) {
    span before = {0};
    for (size_t block = first; block < end; block++) {
        const span s = span_of(rows, each, block, NULL);
        REQUIRE(s.count > 0 && s.count == s.high - s.low + 1);
        CHECK(block > 0 || s.low == 0);
        CHECK(block == first || s.low == before.high + 1);
        CHECK(block + 1 < blocks || s.high == rows->count * rows->units - 1);
        before = s;
    }
}

static ashlar_rows shared(size_t count, size_t units, unsigned each, size_t *blocks) {
    ashlar_rows rows = {.count = count, .units = units};
    *blocks = ashlar__rows_share(&rows, each);
    return rows;
}

CASE(each_unit_is_one_threads) {
    static const size_t counts[] = {1, 2, 3, 5, 16, 17, 127, 128, 129};
    for (unsigned each = 1; each <= ASHLAR_OPS_EACH; each += ASHLAR_OPS_EACH - 1) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            for (size_t units = 1; units < 1100;
                 units += units < 140 || units % 128 == 1 ? 1 : 63) {
                static unsigned char seen[SEEN_MAX];
                size_t blocks, wrong = 0;
                const ashlar_rows rows = shared(counts[i], units, each, &blocks);
                const size_t all = counts[i] * units < SEEN_MAX ? counts[i] * units : SEEN_MAX;
                memset(seen, 0, sizeof seen);
                for (size_t block = 0; block < blocks; block++) {
                    REQUIRE(span_of(&rows, each, block, seen).count > 0);
                }
                for (size_t at = 0; at < all; at++) {
                    wrong += seen[at] == 1 ? 0 : 1;
                }
                CHECK_ZU(wrong, 0);
            }
        }
    }
}

CASE(so_are_those_of_huge_matrices) {
    static const size_t huge[] = {(size_t)1 << 31, (size_t)1 << 32, (size_t)3 << 32};
    static const size_t few[] = {1, 2, 7, 8, 9, 33, 128, 513};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        for (size_t k = 0; k < 2 * sizeof few / sizeof *few; k++) {
            for (size_t off = 0; off < 4; off++) {
                const size_t large = huge[i] - 2 + off, small = few[k / 2];
                size_t blocks;
                const ashlar_rows rows = k % 2 == 0
                                             ? shared(small, large, ASHLAR_OPS_EACH, &blocks)
                                             : shared(large, small, ASHLAR_OPS_EACH, &blocks);
                const size_t middle = blocks / 2 < UINT32_MAX ? blocks / 2 : UINT32_MAX / 2;
                if (blocks > INT32_MAX) {
                    continue; /* CUDA has no such grid */
                }
                check_blocks(&rows, ASHLAR_OPS_EACH, 0, 3, blocks);
                check_blocks(&rows, ASHLAR_OPS_EACH, middle - 2, middle + 2, blocks);
                check_blocks(&rows, ASHLAR_OPS_EACH, blocks - 3, blocks, blocks);
            }
        }
    }
}

RUN_CASES()
