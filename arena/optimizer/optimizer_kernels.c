/* optimizer_kernels.c - the tables of the optimizer's loops, one for each instruction set, and the
 * choice between them. */
#include "arena/optimizer/optimizer_kernels.h"

#include "arena/compute/instruction_set.h"

#define SUM(type, set) ashlar__optimizer_sum_##type##_##set
#define UPDATE(type, set) &ashlar__optimizer_updates_##type##_##set
#define DEFINE_SET(set)                                                \
    const ashlar_optimizer_kernels ashlar__optimizer_kernels_##set = { \
        .sum = {[ASHLAR_F32] = SUM(f32, set),                          \
                [ASHLAR_F64] = SUM(f64, set),                          \
                [ASHLAR_F16] = SUM(f16, set),                          \
                [ASHLAR_BF16] = SUM(bf16, set)},                       \
        .update = {[ASHLAR_F32] = UPDATE(f32, set),                    \
                   [ASHLAR_F64] = UPDATE(f64, set),                    \
                   [ASHLAR_F16] = UPDATE(f16, set),                    \
                   [ASHLAR_BF16] = UPDATE(bf16, set)},                 \
    };
ASHLAR_SETS(DEFINE_SET)
_Static_assert(ASHLAR_DTYPE_COUNT == 4, "a table has a row for each element type");

const ashlar_optimizer_kernels *ashlar__optimizer_kernels_best(void) {
#define ROW(set) &ashlar__optimizer_kernels_##set,
    static const ashlar_optimizer_kernels *const sets[] = {ASHLAR_SETS(ROW)};
    return sets[ashlar__best_set()];
}
