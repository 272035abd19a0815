/* dropout.c - dropout masks on the CPU, the same for any number of threads. */
#include "rnn/layer/dropout.h"

#include "allocator/base/check_level.h"

enum { LANES = ASHLAR_DROPOUT_LANES, ROUNDS = 10 };

/* One round of Philox on all lanes, one block each. */
static void round_lanes(uint32_t c[4][LANES], uint32_t key0, uint32_t key1) {
    for (int k = 0; k < LANES; k++) {
        const uint64_t a = (uint64_t)c[0][k] * UINT32_C(0xd2511f53);
        const uint64_t b = (uint64_t)c[2][k] * UINT32_C(0xcd9e8d57);
        const uint32_t c1 = c[1][k], c3 = c[3][k];
        c[0][k] = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c[1][k] = (uint32_t)b;
        c[2][k] = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c[3][k] = (uint32_t)a;
    }
}

void ashlar__dropout_draw(const ashlar_dropout_row *row, size_t group,
                          uint32_t draws[ASHLAR_DROPOUT_DRAWS]) {
    uint32_t c[4][LANES];
    for (int k = 0; k < LANES; k++) {
        c[0][k] = (uint32_t)(group * LANES) + (uint32_t)k;
        c[1][k] = (uint32_t)row->sequence;
        c[2][k] = (uint32_t)row->step;
        c[3][k] = (uint32_t)row->layer;
    }
    uint32_t key0 = (uint32_t)row->seed, key1 = (uint32_t)(row->seed >> 32);
    for (int i = 0; i < ROUNDS; i++) {
        round_lanes(c, key0, key1);
        key0 += UINT32_C(0x9e3779b9);
        key1 += UINT32_C(0xbb67ae85);
    }
    for (int i = 0; i < ASHLAR_DROPOUT_DRAWS; i++) {
        draws[i] = c[i / LANES][i % LANES];
    }
}

uint32_t ashlar__dropout_threshold(double rate) {
    ASHLAR_ASSERT(rate >= 0 && rate < 1);
    return (uint32_t)(rate * 0x1p32);
}
