#include "size_class.h"

#include "check_level.h"
#include "checked.h"

_Static_assert(ASHLAR_SC_LINEAR_BYTES == ASHLAR_SC_LINEAR_COUNT * ASHLAR_BLOCK_ALIGN,
               "the linear classes are multiples of the alignment");
_Static_assert(ASHLAR_SC_LINEAR_BYTES / ASHLAR_SC_PER_GROUP == ASHLAR_BLOCK_ALIGN,
               "steps of the first group stay aligned");
_Static_assert(ASHLAR_SC_LINEAR_BYTES << 8 == ASHLAR_SC_MAX_BYTES,
               "eight groups reach the maximum");

static unsigned floor_log2(size_t n) {
    return 63u - (unsigned)__builtin_clzll((unsigned long long)n);
}

ashlar_sc ashlar_sc_of_bytes(size_t bytes) {
    ASHLAR_ASSERT(bytes > 0 && bytes <= ASHLAR_SC_MAX_BYTES);
    if (bytes <= ASHLAR_SC_LINEAR_BYTES) {
        return (ashlar_sc){.idx = (uint16_t)((bytes - 1) / ASHLAR_BLOCK_ALIGN)};
    }
    /* bytes - 1, because groups are half open: (base, 2 * base]. */
    const unsigned log2_base = floor_log2(bytes - 1);
    const unsigned group = log2_base - floor_log2(ASHLAR_SC_LINEAR_BYTES);
    const size_t base = (size_t)1 << log2_base;
    const size_t step = base / ASHLAR_SC_PER_GROUP;
    const size_t nth = (bytes - base - 1) / step; /* 0..7 */
    return (ashlar_sc){
        .idx = (uint16_t)(ASHLAR_SC_LINEAR_COUNT + group * ASHLAR_SC_PER_GROUP + nth)};
}

size_t ashlar_sc_bytes(ashlar_sc sc) {
    ASHLAR_ASSERT(sc.idx < ASHLAR_SC_COUNT);
    if (sc.idx < ASHLAR_SC_LINEAR_COUNT) {
        return (sc.idx + (size_t)1) * ASHLAR_BLOCK_ALIGN;
    }
    const unsigned group = (sc.idx - (unsigned)ASHLAR_SC_LINEAR_COUNT) / ASHLAR_SC_PER_GROUP;
    const unsigned nth = (sc.idx - (unsigned)ASHLAR_SC_LINEAR_COUNT) % ASHLAR_SC_PER_GROUP;
    const size_t base = ASHLAR_SC_LINEAR_BYTES << group;
    return base + (nth + 1) * (base / ASHLAR_SC_PER_GROUP);
}

bool ashlar_block_bytes(size_t bytes, size_t *out) {
    if (bytes <= ASHLAR_SC_MAX_BYTES) {
        *out = ashlar_sc_bytes(ashlar_sc_of_bytes(bytes));
        return true;
    }
    return ashlar_align_up(bytes, ASHLAR_BLOCK_ALIGN, out);
}
