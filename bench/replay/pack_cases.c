/* pack_cases.c - packing problems made from a seed. */
#include "bench/replay/pack_cases.h"

#include <stdbool.h>

#include "allocator/base/random.h"

/* ---- training steps ---- */

enum { LAYERS_MAX = 128, SAVED_MAX = 6, STEP_SAVED = LAYERS_MAX * SAVED_MAX };

/* What is being made: a clock that every beginning and every end moves on. */
typedef struct recording {
    ashlar_random random;
    ashlar_pack_buffer *buffers;
    size_t count, capacity;
    uint64_t now;
    size_t width; /* bytes of one activation of this step */
} recording;

static size_t draw(recording *r, size_t first, size_t last) {
    return first + (size_t)ashlar__random_below(&r->random, last - first + 1);
}

static size_t in_units(size_t bytes) {
    return (bytes + 511) & ~(size_t)511;
}

/* Live until `give`; the number of the buffer, or one that `give` ignores where all are made. */
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

/* A few short-lived buffers, two or three live at a time. */
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
            give(r, saved[l * SAVED_MAX + k]); /* what backward has forgotten */
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

/* ---- a rectangle cut into pieces ---- */

/* Pieces are buffers, whose bytes and offsets are in units until all are cut. */
typedef struct cutting {
    ashlar_random random;
    ashlar_pack_buffer *buffers;
    size_t *offsets; /* by buffer */
    size_t count;
} cutting;

/* Strictly between the two, and not close to them where there is a choice. */
static uint64_t between(cutting *c, uint64_t low, uint64_t high) {
    const uint64_t length = high - low, margin = length / 8;
    return low + 1 + margin + ashlar__random_below(&c->random, length - 1 - 2 * margin);
}

static void put_piece(cutting *c, size_t idx, uint64_t begin, uint64_t end, uint64_t bottom,
                      uint64_t top) {
    c->buffers[idx] = (ashlar_pack_buffer){(size_t)(top - bottom), begin, end};
    c->offsets[idx] = (size_t)bottom;
    c->count = idx == c->count ? c->count + 1 : c->count;
}

/* Cut piece `idx` in two, by time or by address. */
static void cut_straight(cutting *c, size_t idx, bool by_time) {
    const ashlar_pack_buffer b = c->buffers[idx];
    const uint64_t bottom = c->offsets[idx], top = bottom + b.bytes;
    if (by_time) {
        const uint64_t middle = between(c, b.begin, b.end);
        put_piece(c, idx, b.begin, middle, bottom, top);
        put_piece(c, c->count, middle, b.end, bottom, top);
    } else {
        const uint64_t middle = between(c, bottom, top);
        put_piece(c, idx, b.begin, b.end, bottom, middle);
        put_piece(c, c->count, b.begin, b.end, middle, top);
    }
}

/* Cut piece `idx` in five: four around one in the middle. */
static void cut_pinwheel(cutting *c, size_t idx) {
    const ashlar_pack_buffer b = c->buffers[idx];
    const uint64_t bottom = c->offsets[idx], top = bottom + b.bytes;
    const uint64_t time_2 = between(c, b.begin + 1, b.end), time_1 = between(c, b.begin, time_2);
    const uint64_t at_2 = between(c, bottom + 1, top), at_1 = between(c, bottom, at_2);
    put_piece(c, idx, b.begin, time_2, bottom, at_1);
    put_piece(c, c->count, time_2, b.end, bottom, at_2);
    put_piece(c, c->count, time_1, b.end, at_2, top);
    put_piece(c, c->count, b.begin, time_1, at_1, top);
    put_piece(c, c->count, time_1, time_2, at_1, at_2);
}

/* The largest of a few, so that pieces differ in size, but not beyond measure. */
static size_t choose(cutting *c) {
    enum { FEW = 3 };
    size_t best = 0;
    double best_area = 0;
    for (int i = 0; i < FEW; i++) {
        const size_t idx = (size_t)ashlar__random_below(&c->random, c->count);
        const ashlar_pack_buffer *b = &c->buffers[idx];
        const double area = (double)b->bytes * (double)(b->end - b->begin);
        if (area > best_area) {
            best = idx;
            best_area = area;
        }
    }
    return best;
}

static void cut_one(cutting *c, size_t count) {
    enum { SIDE_MIN = 4, PIECES = 5 };
    const size_t idx = choose(c);
    const bool has_time = c->buffers[idx].end - c->buffers[idx].begin >= SIDE_MIN;
    const bool has_bytes = c->buffers[idx].bytes >= SIDE_MIN;
    const uint64_t way = ashlar__random_below(&c->random, 3);
    if (way == 0 && has_time && has_bytes && count - c->count >= PIECES - 1) {
        cut_pinwheel(c, idx);
    } else if (has_time && (way == 1 || !has_bytes)) {
        cut_straight(c, idx, true);
    } else if (has_bytes) {
        cut_straight(c, idx, false);
    }
}

static void shuffle(cutting *c) {
    for (size_t i = c->count; i > 1; i--) {
        const size_t j = (size_t)ashlar__random_below(&c->random, i);
        const ashlar_pack_buffer b = c->buffers[i - 1];
        const size_t offset = c->offsets[i - 1];
        c->buffers[i - 1] = c->buffers[j];
        c->offsets[i - 1] = c->offsets[j];
        c->buffers[j] = b;
        c->offsets[j] = offset;
    }
}

void ashlar__pack_case_perfect(uint64_t seed, size_t capacity, size_t unit, uint64_t time,
                               ashlar_pack_buffer *buffers, size_t *offsets, size_t count) {
    cutting c = {.buffers = buffers, .offsets = offsets};
    ashlar__random_init(&c.random, seed);
    put_piece(&c, 0, 0, time, 0, capacity / unit);
    while (c.count < count) {
        cut_one(&c, count);
    }
    shuffle(&c);
    for (size_t i = 0; i < count; i++) {
        buffers[i].bytes *= unit;
        offsets[i] *= unit;
    }
}
