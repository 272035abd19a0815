/* size_class.c - the table of size classes, and the bytes of each class. */
#include "allocator/heap/size_class.h"

#include "allocator/base/checked.h"

_Static_assert(ASHLAR_SC_LINEAR_BYTES == ASHLAR_SC_LINEAR_COUNT * ASHLAR_BLOCK_ALIGN,
               "the linear classes are multiples of the alignment");
_Static_assert(ASHLAR_SC_LINEAR_COUNT == 2 * ASHLAR_SC_PER_GROUP,
               "the first group's steps are the linear part's");
_Static_assert(ASHLAR_SC_LINEAR_BYTES << 4 == ASHLAR_SC_MAX_BYTES, "four groups reach the maximum");
_Static_assert(ASHLAR_SC_COUNT <= UINT8_MAX + 1, "a class fits an entry of the table");

/* Entry n of the table. For n in [32, 64) * 2^g, a step is 2^g units; for n below 32, one unit. */
#define CLASS(n)                                                  \
    (uint8_t)((n) < 64     ? (n)                                  \
              : (n) < 128  ? 1 * ASHLAR_SC_PER_GROUP + ((n) >> 1) \
              : (n) < 256  ? 2 * ASHLAR_SC_PER_GROUP + ((n) >> 2) \
              : (n) < 512  ? 3 * ASHLAR_SC_PER_GROUP + ((n) >> 3) \
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
