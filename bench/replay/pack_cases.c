/* pack_cases.c - makes packing problems from a seed: one like training steps, one like a compiled
 * network. */
#include "bench/replay/bench_pack.h"

#include <stdbool.h>

#include "allocator/base/random.h"

enum { LAYERS_MAX = 128, SAVED_MAX = 6, STEP_SAVED = LAYERS_MAX * SAVED_MAX };

/* The problem as it is built. Each beginning or end of a buffer takes the time `now` and adds 1. */
typedef struct recording {
    ashlar_random random;
    ashlar_pack_buffer *buffers;
    size_t count, capacity;
    uint64_t now;
    size_t width; /* bytes; most activations of this step are 1 to 4 times this size */
} recording;

static size_t draw(recording *r, size_t first, size_t last) {
    return first + (size_t)ashlar__random_below(&r->random, last - first + 1);
}

static size_t in_units(size_t bytes) {
    return (bytes + 511) & ~(size_t)511;
}

/* Add a buffer that lives until give(), and return its index. If there are `capacity` buffers
 * already, add none and return `capacity`, which give() ignores. */
static size_t take(recording *r, size_t bytes) {
    if (r->count < r->capacity) {
        r->buffers[r->count] = (ashlar_pack_buffer){in_units(bytes), r->now++, UINT64_MAX};
        return r->count++;
    }
    return r->capacity;
}

static void give(recording *r, size_t idx) {
    if (idx < r->capacity) {
        r->buffers[idx].end = r->now++;
    }
}

/* Add up to 2 * ops short-lived buffers, of which two or three live at a time. */
static void work(recording *r, size_t ops) {
    size_t before = r->capacity;
    for (size_t i = 0; i < ops; i++) {
        const size_t workspace =
            draw(r, 0, 3) == 0 ? take(r, draw(r, 1, 8 * r->width)) : r->capacity;
        const size_t result = take(r, r->width * draw(r, 1, 4));
        give(r, workspace);
        give(r, before);
        before = result;
    }
    give(r, before);
}

static void run_step(recording *r, const size_t *parameters, size_t layers) {
    size_t saved[STEP_SAVED], gradients[LAYERS_MAX], saved_count[LAYERS_MAX];
    for (size_t l = 0; l < layers; l++) {
        saved_count[l] = draw(r, 3, SAVED_MAX);
        for (size_t k = 0; k < saved_count[l]; k++) {
            saved[l * SAVED_MAX + k] =
                take(r, k == 0 ? 512 * draw(r, 1, 8) : r->width * (1 + k % 4));
            work(r, draw(r, 0, 2));
        }
    }
    for (size_t l = layers; l-- > 0;) {
        for (size_t k = saved_count[l]; k-- > 0;) {
            work(r, draw(r, 0, 2));
            if (draw(r, 0, 15) != 0) {
                give(r, saved[l * SAVED_MAX + k]);
                saved[l * SAVED_MAX + k] = r->capacity;
            }
        }
        gradients[l] = take(r, parameters[l]);
    }
    for (size_t l = 0; l < layers; l++) {
        work(r, 1);
        give(r, gradients[l]);
        for (size_t k = 0; k < saved_count[l]; k++) {
            give(r, saved[l * SAVED_MAX + k]); /* those that are still live */
        }
    }
}

void ashlar__pack_case_training(uint64_t seed, ashlar_pack_buffer *buffers, size_t count) {
    enum { STATES = 3, BUFFERS_OF_LAYER = 20, STEPS = 8 };
    recording r = {.buffers = buffers, .capacity = count};
    size_t parameters[LAYERS_MAX];
    size_t layers = count / (BUFFERS_OF_LAYER * STEPS);
    ashlar__random_init(&r.random, seed);
    layers = layers < 1 ? 1 : layers > LAYERS_MAX ? LAYERS_MAX : layers;
    for (size_t l = 0; l < layers; l++) {
        parameters[l] = draw(&r, 1, 4096) << 10;
        for (size_t k = 0; k < STATES; k++) {
            (void)take(&r, parameters[l]);
        }
    }
    while (r.count < r.capacity) {
        r.width = draw(&r, 256, 2048) << 9;
        run_step(&r, parameters, layers);
    }
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].end == UINT64_MAX) {
            buffers[i].end = r.now;
        }
    }
}

/* ---- a compiled network ---- */

/* A size between 2^first and 2^(last + 1): small ones are as frequent as large ones. */
static size_t draw_bytes(ashlar_random *random, unsigned first, unsigned last) {
    const unsigned power = first + (unsigned)ashlar__random_below(random, last - first + 1);
    return in_units((size_t)((double)((size_t)1 << power) * (1 + ashlar__random_uniform(random))));
}

/* A kind of buffer: its share of all buffers, its sizes as powers of 2, and for how many operations
 * a buffer lives: from its operation on or, if is_ahead, up to its operation. is_saved: a buffer of
 * the first half lives until the mirrored operation in the second half. */
typedef struct kind {
    unsigned percent, first_power, last_power, life_least, life_most;
    bool is_ahead, is_saved;
} kind;

static const kind kinds[] = {
    {30, 12, 22, 1, 1, false, false},  /* workspaces */
    {32, 10, 21, 2, 4, false, false},  /* inputs of the next operations */
    {12, 10, 20, 5, 60, false, false}, /* inputs of later operations: skip connections */
    {10, 12, 21, 2, 41, true, false},  /* weights, fetched before they are used */
    {16, 9, 17, 1, 300, false, true},  /* activations for the backward pass, gradients after it */
};

static const kind *draw_kind(ashlar_random *random) {
    size_t k = 0;
    for (uint64_t at = ashlar__random_below(random, 100); at >= kinds[k].percent; k++) {
        at -= kinds[k].percent;
    }
    return &kinds[k];
}

void ashlar__pack_case_network(uint64_t seed, ashlar_pack_buffer *buffers, size_t count) {
    enum { BUFFERS_OF_OPERATION = 5, LATE = 20 };
    const size_t operations = count / BUFFERS_OF_OPERATION + 2;
    ashlar_random random;
    ashlar__random_init(&random, seed);
    for (size_t i = 0; i < count; i++) {
        const kind *k = draw_kind(&random);
        const size_t at = i * operations / count;
        const size_t bytes = draw_bytes(&random, k->first_power, k->last_power);
        size_t life =
            k->life_least + (size_t)ashlar__random_below(&random, k->life_most - k->life_least + 1);
        if (k->is_saved && at < operations / 2) {
            life = operations - 2 * at + (size_t)ashlar__random_below(&random, LATE);
        }
        const size_t begin = k->is_ahead ? (at + 1 > life ? at + 1 - life : 0) : at;
        const size_t end = k->is_ahead ? at + 1 : at + life;
        buffers[i] = (ashlar_pack_buffer){bytes, begin, end < operations ? end : operations};
    }
}
