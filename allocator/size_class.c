#include "size_class.h"

#include "check_level.h"
#include "checked.h"

_Static_assert(ASHLAR_SC_LINEAR_BYTES == ASHLAR_SC_LINEAR_COUNT * ASHLAR_BLOCK_ALIGN,
               "the linear classes are multiples of the alignment");
_Static_assert(ASHLAR_SC_LINEAR_COUNT == 2 * ASHLAR_SC_PER_GROUP,
               "the first group's steps are the linear part's");
_Static_assert(ASHLAR_SC_LINEAR_BYTES << 5 == ASHLAR_SC_MAX_BYTES, "five groups reach the maximum");
_Static_assert(sizeof(unsigned) == 4, "ashlar_sc_group() counts the zeros of 32 bits");

size_t ashlar_sc_bytes(ashlar_sc sc) {
    ASHLAR_ASSERT(sc.idx < ASHLAR_SC_COUNT);
    if (sc.idx < ASHLAR_SC_LINEAR_COUNT) {
        return (sc.idx + (size_t)1) * ASHLAR_BLOCK_ALIGN;
    }
    const unsigned group = sc.idx / ASHLAR_SC_PER_GROUP - 1u;
    const size_t steps = sc.idx % ASHLAR_SC_PER_GROUP + (size_t)ASHLAR_SC_PER_GROUP + 1;
    return (steps << group) * ASHLAR_BLOCK_ALIGN;
}

bool ashlar_block_bytes(size_t bytes, size_t *out) {
    if (bytes <= ASHLAR_SC_MAX_BYTES) {
        *out = ashlar_sc_bytes(ashlar_sc_of_bytes(bytes));
        return true;
    }
    return ashlar_align_up(bytes, ASHLAR_BLOCK_ALIGN, out);
}
