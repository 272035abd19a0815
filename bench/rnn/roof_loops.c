/* roof_loops.c - the loops that reach the machine's limits: multiply-adds in registers, and reads
 * of a buffer; compiled for each instruction set. */
#include "allocator/base/compiler.h"
#include "arena/compute/element.h"
#include "bench/rnn/bench_rnn.h"

typedef float vector __attribute__((vector_size(ASHLAR_VECTOR_BYTES)));
typedef vector read_vector __attribute__((may_alias, aligned(64)));

enum {
    LANES = ASHLAR_VECTOR_BYTES / sizeof(float),
    SUMS = ASHLAR_VECTOR_COUNT * 3 / 4, /* as in panel.h; fewer would hide the latency, too */
    LINE_BYTES = 64
};

static float add_lanes(vector v) {
    float sum = 0;
    for (size_t i = 0; i < LANES; i++) {
        sum += v[i];
    }
    return sum;
}

static float multiply(size_t rounds, float factor) {
    const vector x = factor - (vector){0}, y = (1 - factor) - (vector){0}; /* sums tend to 1 */
    vector sums[SUMS];
    ASHLAR_UNROLL
    for (size_t i = 0; i < SUMS; i++) {
        sums[i] = (float)i - (vector){0};
    }
    for (size_t r = 0; r < rounds; r++) {
        ASHLAR_UNROLL
        for (size_t i = 0; i < SUMS; i++) {
            sums[i] = sums[i] * x + y;
        }
    }
    ASHLAR_UNROLL
    for (size_t i = 1; i < SUMS; i++) {
        sums[0] += sums[i];
    }
    return add_lanes(sums[0]);
}

static float read_all(const void *buffer, size_t bytes) {
    enum { AT_ONCE = 4 * LINE_BYTES / ASHLAR_VECTOR_BYTES };
    const read_vector *from = buffer;
    vector sums[AT_ONCE] = {{0}};
    for (size_t i = 0; i < bytes / ASHLAR_VECTOR_BYTES; i += AT_ONCE) {
        ASHLAR_UNROLL
        for (size_t k = 0; k < AT_ONCE; k++) {
            sums[k] += from[i + k];
        }
    }
    for (size_t k = 1; k < AT_ONCE; k++) {
        sums[0] += sums[k];
    }
    return add_lanes(sums[0]);
}

const ashlar_roof_loops ASHLAR_JOIN(ashlar__roof_loops_, ASHLAR_SET) = {
    .multiply = multiply, .read = read_all, .products = SUMS * LANES};
