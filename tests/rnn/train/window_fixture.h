/*
 * window_fixture.h - steps of a small model in double precision, in windows and chunks, for tests.
 *
 * A case begins with open_window(spec); close_window() runs at its end.
 */
#ifndef ASHLAR_WINDOW_FIXTURE_H
#define ASHLAR_WINDOW_FIXTURE_H

#include "tests/rnn/model/model_fixture.h"

#include "rnn/data/batcher.h"

enum { IMAGE_MAX = 4096, GRADIENTS_MAX = 1 << 14 };

/* What one step is to be; the rest is plain. */
typedef struct recipe {
    size_t chunk;
    double weight;
    size_t first_step, steps; /* of the batch; 0 steps: all */
    const void *first;
    void *last;
} recipe;

/* Loss and gradients of a step. */
typedef struct answer {
    double loss;
    double gradients[GRADIENTS_MAX];
} answer;

static int32_t *image; /* device */

static inline void close_window(void) {
    give(image);
    close_model();
    model_config.dtype = ASHLAR_F32;
}

static inline bool open_window(const char *spec) {
    model_config.dtype = ASHLAR_F64;
    const bool is_open = open_model(spec, ASHLAR_REGIONS_ALL);
    image = is_open ? (int32_t *)(void *)take(IMAGE_MAX * sizeof *image, streams[1]) : NULL;
    return is_open && check_at_end(close_window);
}

static inline double *doubles_of(ashlar_region region) {
    return ashlar_arena_region(model->arena, region);
}

static inline size_t doubles_count(void) {
    return ashlar_arena_region_bytes(model->arena, ASHLAR_REGION_PARAMETERS) / sizeof(double);
}

/* Steps first_step .. of a batch, as a batch whose pointers lead into itself. */
static inline void slice(const made_batch *made, size_t first_step, size_t steps, made_batch *out) {
    const size_t first = first_step * made->count, bytes = steps * made->count * sizeof(int32_t);
    *out = (made_batch){.count = made->count};
    out->batch = (ashlar_batch){
        .inputs = out->inputs, .targets = out->targets, .lengths = out->lengths, .steps = steps};
    memcpy(out->inputs, made->inputs + first, bytes);
    memcpy(out->targets, made->targets + first, bytes);
    for (size_t b = 0; b < made->count; b++) {
        const int32_t left = made->lengths[b] - (int32_t)first_step;
        out->lengths[b] = left < 0 ? 0 : left > (int32_t)steps ? (int32_t)steps : left;
    }
}

static inline ashlar_status queue_window(const made_batch *made, const recipe *r) {
    static int32_t host[IMAGE_MAX];
    const size_t rest = made->batch.steps - r->first_step;
    made_batch part;
    slice(made, r->first_step, r->steps == 0 ? rest : r->steps, &part);
    const ashlar_batch_split_config config = {.batch = made->count, .chunk = r->chunk};
    const ashlar_batch_split cut = ashlar__batch_split_make(&config, part.batch.steps);
    const ashlar_batch_window at = ashlar__batch_split_window(&cut, 0, 0);
    CHECK(cut.image + cut.extra <= IMAGE_MAX);
    ashlar__batch_split_fill(&cut, &part.batch, host);
    CHECK(ashlar_copy_to_device(device, image, host, cut.image * sizeof *host, streams[1]) ==
          ASHLAR_OK);
    const ashlar_model_window window = {.steps = at.steps,
                                        .count = made->count,
                                        .chunk = r->chunk,
                                        .inputs = image + at.inputs,
                                        .targets = image + at.targets,
                                        .lengths = image + at.lengths,
                                        .rnn_lengths = host + at.rnn_lengths,
                                        .weight = r->weight,
                                        .first = r->first,
                                        .last = r->last};
    ashlar_step_sizes sizes;
    CHECK(ashlar__model_chunk_sizes(model, window.steps, window.count, window.chunk, &sizes) ==
          ASHLAR_OK);
    return ashlar__model_step(model, &window, &sizes, &results->loss);
}

static inline void run_window(const made_batch *made, const recipe *r, answer *out) {
    CHECK(ashlar_fill(device, &results->loss, 0, sizeof results->loss, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_arena_zero(model->arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
    CHECK(queue_window(made, r) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK(doubles_count() <= GRADIENTS_MAX);
    out->loss = results->loss;
    memcpy(out->gradients, doubles_of(ASHLAR_REGION_GRADIENTS),
           doubles_count() * sizeof out->gradients[0]);
}

static inline void check_same(const answer *got, const answer *want, double relative) {
    CHECK_NEAR(got->loss, want->loss, 0, relative);
    size_t wrong = 0;
    for (size_t i = 0; i < doubles_count(); i++) {
        const double gap = fabs(got->gradients[i] - want->gradients[i]);
        wrong += gap <= 1e-13 + relative * fabs(want->gradients[i]) ? 0 : 1; /* NaN: wrong */
    }
    CHECK_ZU(wrong, 0);
}

/* Gradients are the slopes of the loss: in every tensor, at a few places. */
static inline void check_slopes(const made_batch *made, const recipe *r) {
    static answer here, above, below;
    run_window(made, r, &here);
    for (size_t tensor = 0; tensor < ashlar_arena_tensor_count(model->arena); tensor++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(model->arena, tensor, &info);
        for (size_t i = 0; i < info.elements; i += 1 + info.elements / 5) {
            const size_t at = info.offset[ASHLAR_LAYOUT_STORAGE] / sizeof(double) + i;
            double *weight = doubles_of(ASHLAR_REGION_PARAMETERS) + at;
            const double kept = *weight, h = 1e-5;
            *weight = kept + h;
            run_window(made, r, &above);
            *weight = kept - h;
            run_window(made, r, &below);
            *weight = kept;
            CHECK_NEAR(here.gradients[at], (above.loss - below.loss) / (2 * h), 1e-9, 1e-6);
        }
    }
}

#endif /* ASHLAR_WINDOW_FIXTURE_H */
