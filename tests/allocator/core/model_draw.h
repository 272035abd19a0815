/*
 * model_draw.h - the operations of the model, drawn from a seed, each by itself, so that any of
 * them can be left out.
 */
#ifndef ASHLAR_MODEL_DRAW_H
#define ASHLAR_MODEL_DRAW_H

#include "tests/allocator/core/model_world.h"
#include "allocator/base/random.h"

/* name, share of all operations; together 1000 */
#define MODEL_OPERATION_MAP(X) \
    X(ALLOC, 418)              \
    X(FREE, 274)               \
    X(FREE_MANY, 14)           \
    X(USE, 90)                 \
    X(SHARE, 40)               \
    X(READ, 40)                \
    X(WAIT, 24)                \
    X(QUERY, 24)               \
    X(TRIM, 14)                \
    X(LIMIT, 12)               \
    X(UNLIMIT, 14)             \
    X(RESERVE, 8)              \
    X(SEAL, 12)                \
    X(END_STREAM, 10)          \
    X(END_THREAD, 6)

#define MODEL_OPERATION_ENUM(name, share) OP_##name,
typedef enum operation_kind { MODEL_OPERATION_MAP(MODEL_OPERATION_ENUM) OP_COUNT } operation_kind;

#define MODEL_OPERATION_SHARE(name, share) +share
_Static_assert(MODEL_OPERATION_MAP(MODEL_OPERATION_SHARE) == 1000, "shares are thousandths");

static const struct {
    const char *name;
    unsigned share;
} operation_kinds[OP_COUNT] = {
#define X(name, share) {#name, share},
    MODEL_OPERATION_MAP(X)
#undef X
};

typedef struct operation {
    operation_kind kind;
    int world, thread;
    bool is_abroad; /* the other device's context is current */
    size_t slot;
    int lane;
    int tag;
    size_t bytes;
    unsigned choice;
} operation;

/* ---- drawing ---- */

static inline size_t draw(uint64_t *state, size_t below) {
    return (size_t)(ashlar__random_step(state) >> 16) % below;
}

/* A third of the sizes are few, so that blocks come back as what they were. */
static inline size_t draw_bytes(uint64_t *state) {
    static const size_t usual[] = {512, 4 * KIB, 64 * KIB, 2 * MIB + 512};
    if (draw(state, 3) == 0) {
        return usual[draw(state, 4)];
    }
    const size_t kind = draw(state, 200);
    const size_t most = kind < 110   ? 4 * KIB
                        : kind < 150 ? 256 * KIB
                        : kind < 178 ? 2 * MIB
                        : kind < 192 ? 10 * MIB
                                     : DEVICE_MIB * MIB;
    return 1 + draw(state, most);
}

/* Operation `idx` of a seed. Neighbours share thread and device, and often the lane. */
static inline operation operation_of(uint64_t seed, uint32_t idx, int threads) {
    enum { STRETCH = 12 };
    uint64_t of_stretch = ashlar__random_mix(seed) ^ ashlar__random_mix(idx / STRETCH + 1);
    uint64_t state = ashlar__random_mix(seed + 1) ^ ashlar__random_mix(~(uint64_t)idx);
    operation op = {.thread = (int)draw(&of_stretch, (size_t)threads),
                    .world = draw(&of_stretch, 4) == 0,
                    .is_abroad = draw(&of_stretch, 3) == 0};
    size_t at = draw(&state, 1000);
    while (at >= operation_kinds[op.kind].share) {
        at -= operation_kinds[op.kind].share;
        op.kind++;
    }
    op.slot = draw(&state, SLOTS);
    const size_t lane = draw(&of_stretch, LANES);
    op.lane = (int)(draw(&state, 3) > 0 ? lane : draw(&state, LANES));
    if (op.lane >= LANE_OF_THREAD && op.lane < LANE_MADE) {
        op.lane = LANE_OF_THREAD + op.thread;
    }
    op.tag = (int)draw(&state, ASHLAR_TAG_COUNT);
    op.bytes = draw_bytes(&state);
    op.choice = (unsigned)draw(&state, 1 << 16);
    return op;
}

static inline void print_operation(uint32_t idx, const operation *op) {
    printf("#   %6u: device %d thread %d%s: %s slot %zu lane %d bytes %zu tag %s choice %u\n", idx,
           op->world, op->thread, op->is_abroad ? " abroad" : "", operation_kinds[op->kind].name,
           op->slot, op->lane, op->bytes, ashlar_tag_name((ashlar_tag)op->tag), op->choice);
}

#endif /* ASHLAR_MODEL_DRAW_H */
