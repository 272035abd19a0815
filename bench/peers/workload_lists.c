/* workload_lists.c - what is measured, but for the RNN's steps. */
#include "bench/peers/workload.h"

#include <math.h>

#include "allocator/base/random.h"

#define KIB ((uint32_t)1 << 10)
#define MIB ((uint32_t)1 << 20)

enum {
    PAIRS = 256,        /* of one_size: 4 KiB of operations, read again and again */
    HOLES = 2000,       /* of the fragmented heap */
    TENSORS = 400,      /* of a mix */
    SHUFFLES = 8,       /* orders of freeing in one body */
    RANDOM_LIVE = 1000, /* at most at a time */
    RANDOM_OPS = 20000, /* before the last blocks are given back */
    TAKES_PER_FIVE = 3, /* of five random operations: most of the time nearly all are live */
    SEED = 20261121,
};

static void record_pairs(ashlar_workload *w, uint32_t bytes) {
    ashlar__workload_begin_step(w);
    for (int i = 0; i < PAIRS; i++) {
        ashlar__workload_give(w, ashlar__workload_take(w, bytes));
    }
}

/* Blocks of 512 B to 64 KiB whose every second neighbour is free, none of the measured size. */
static void record_fragmented(ashlar_workload *w, uint32_t bytes) {
    uint32_t variables[2 * HOLES] = {0};
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    for (int i = 0; i < 2 * HOLES; i++) {
        uint32_t other = bytes;
        while (other > bytes - 512 && other <= bytes) {
            other = (uint32_t)(1 + ashlar__random_below(&random, 64 * KIB));
        }
        variables[i] = ashlar__workload_take(w, other);
    }
    for (int i = 0; i < 2 * HOLES; i += 2) {
        ashlar__workload_give(w, variables[i]);
    }
    ashlar__workload_begin_body(w);
    record_pairs(w, bytes);
    ashlar__workload_end_body(w);
    for (int i = 1; i < 2 * HOLES; i += 2) {
        ashlar__workload_give(w, variables[i]);
    }
}

/* 512 B to 64 MiB, every doubling as likely as the next. */
static uint32_t draw_tensor(ashlar_random *random) {
    return (uint32_t)(512 * exp2(17 * ashlar__random_uniform(random)));
}

/* Take all, then give all: in the opposite order, or shuffled anew each time. */
static void record_mix(ashlar_workload *w, uint32_t is_shuffled) {
    uint32_t bytes[TENSORS] = {0}, variables[TENSORS] = {0};
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    for (int i = 0; i < TENSORS; i++) {
        bytes[i] = draw_tensor(&random);
    }
    for (int turn = 0; turn < SHUFFLES; turn++) {
        for (int i = 0; i < TENSORS; i++) {
            variables[i] = ashlar__workload_take(w, bytes[i]);
        }
        for (uint32_t left = TENSORS; left > 0; left--) {
            const uint32_t pick =
                is_shuffled != 0 ? (uint32_t)ashlar__random_below(&random, left) : left - 1;
            ashlar__workload_give(w, variables[pick]);
            variables[pick] = variables[left - 1];
        }
    }
}

static void record_random(ashlar_workload *w, uint32_t bytes_max) {
    uint32_t variables[RANDOM_LIVE] = {0}, live = 0;
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    for (int i = 0; i < RANDOM_OPS; i++) {
        const bool wants_take = ashlar__random_below(&random, 5) < TAKES_PER_FIVE;
        if (live == 0 || (wants_take && live < RANDOM_LIVE)) {
            const uint32_t bytes = (uint32_t)(1 + ashlar__random_below(&random, bytes_max));
            variables[live++] = ashlar__workload_take(w, bytes);
        } else {
            const uint32_t pick = (uint32_t)ashlar__random_below(&random, live);
            ashlar__workload_give(w, variables[pick]);
            variables[pick] = variables[--live];
        }
    }
    while (live > 0) {
        ashlar__workload_give(w, variables[--live]);
    }
}

static const ashlar_workload_spec specs[] = {
    {"one_size", "512", true, record_pairs, 512},
    {"one_size", "4096", true, record_pairs, 4 * KIB},
    {"one_size", "65536", true, record_pairs, 64 * KIB},
    {"one_size", "1048576", true, record_pairs, MIB},
    {"one_size", "67108864", true, record_pairs, 64 * MIB},
    {"one_size", "4096-fragmented", true, record_fragmented, 4 * KIB},
    {"mix", "reverse", false, record_mix, 0},
    {"mix", "shuffled", false, record_mix, 1},
    {"random", "", false, record_random, MIB},
    {"rnn_warm", "", false, ashlar__workload_record_rnn, 1},
    {"rnn_cold", "", false, ashlar__workload_record_rnn, 0},
};

static const ashlar_workload_spec plan_specs[] = {
    {"one_size", "4096", false, record_pairs, 4 * KIB},
    {"rnn_step", "1", false, ashlar__workload_record_rnn_step, 1},
    {"rnn_step", "64", false, ashlar__workload_record_rnn_step, 64},
    {"rnn_warm", "", false, ashlar__workload_record_rnn, 1},
};

const ashlar_workload_spec *ashlar__workload_plan_specs(size_t *count) {
    *count = sizeof plan_specs / sizeof plan_specs[0];
    return plan_specs;
}

const ashlar_workload_spec *ashlar__workload_specs(size_t *count) {
    *count = sizeof specs / sizeof specs[0];
    return specs;
}
