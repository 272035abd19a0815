/* optimizer_update_narrow.c - updates 16-bit parameters by running f32's loops on their masters,
 * for the element type and the instruction set that meson.build compiles this file for. */
#include "arena/compute/element.h"
#include "arena/optimizer/optimizer_kernels.h"

static void widen(float *restrict to, const uint16_t *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = ASHLAR_WIDEN(from[i]);
    }
}

static void narrow(uint16_t *restrict to, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = (uint16_t)ASHLAR_NARROW(from[i]);
    }
}

/* Update a part of a run, in blocks that stay in the level-1 cache. */
static void update_through_master(ashlar_algorithm algorithm,
                                  const ashlar_optimizer_factors *factors,
                                  const ashlar_optimizer_run *part) {
    enum { BLOCK = 512 };
    ashlar_optimizer_update_fn *const update =
        ASHLAR_JOIN(ashlar__optimizer_updates_f32_, ASHLAR_SET)[algorithm];
    float gradients[BLOCK];
    ashlar_optimizer_run block = *part;
    uint16_t *parameters = part->parameters;
    const uint16_t *from = part->gradients;
    ASHLAR_CHECK2(part->master != NULL);
    for (size_t left = part->elements; left > 0; left -= block.elements) {
        block.elements = left < BLOCK ? left : BLOCK;
        if (factors->is_first) {
            widen(block.master, parameters, block.elements);
        }
        widen(gradients, from, block.elements);
        block.parameters = block.master;
        block.gradients = gradients;
        update(factors, &block);
        narrow(parameters, block.master, block.elements);
        parameters += block.elements;
        from += block.elements;
        block.master += block.elements;
        block.moment1 = block.moment1 == NULL ? NULL : (float *)block.moment1 + block.elements;
        block.moment2 = block.moment2 == NULL ? NULL : (float *)block.moment2 + block.elements;
    }
}

#define UPDATE(name, function, moment1, moment2)                           \
    static void update_##function(const ashlar_optimizer_factors *factors, \
                                  const ashlar_optimizer_run *part) {      \
        update_through_master(ASHLAR_ALGORITHM_##name, factors, part);     \
    }
ASHLAR_ALGORITHM_MAP(UPDATE)

#define ROW(name, function, moment1, moment2) [ASHLAR_ALGORITHM_##name] = update_##function,
const ashlar_optimizer_updates ASHLAR_VARIANT(ashlar__optimizer_updates) = {
    ASHLAR_ALGORITHM_MAP(ROW)};
