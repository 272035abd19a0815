/*
 * sampled_fixture.h - a small character model on a software device, for tests that let it write.
 *
 * A case begins with open_model(spec); close_model() runs at its end and checks that every block
 * went back.
 */
#ifndef ASHLAR_SAMPLED_FIXTURE_H
#define ASHLAR_SAMPLED_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <string.h>

#include <ashlar/arena.h>

#include "rnn/data/batcher.h"
#include "rnn/model/text_sampler.h"

/* A vector of each width is more than 64 bytes, and no multiple of them. */
enum { CLASSES = 19 };
#define USUAL_MODEL \
    { .classes = CLASSES, .embedding = 17, .hidden = 18, .layers = 2 }

/* A case of another kind of model changes it; in a program with check_each = usual_model, it is as
 * usual for the next one. */
static ashlar_text_model_config model_config = USUAL_MODEL;

static inline void usual_model(void) {
    model_config = (ashlar_text_model_config)USUAL_MODEL;
}

static ashlar_sampled_model sampled;

static inline void close_model(void) {
    ashlar_model_destroy(sampled.model);
    sampled.model = NULL;
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

static inline bool open_model(const char *spec) {
    if (!set_up(spec)) {
        return false;
    }
    sampled = (ashlar_sampled_model){
        .config = model_config, .allocator = allocator, .stream = streams[1]};
    return ashlar__text_model_create(allocator, streams[1], &model_config, ASHLAR_REGIONS_INFERENCE,
                                     &sampled.model) == ASHLAR_OK &&
           check_at_end(close_model);
}

/* A tensor's elements, of an fp32 model, when no work is queued. *count: how many. */
static inline float *weights_of(const char *name, size_t *count) {
    const ashlar_arena *arena = ashlar_model_arena(sampled.model);
    for (size_t i = 0; i < ashlar_arena_get_info(arena).tensor_count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        if (strcmp(info.name, name) == 0) {
            *count = info.elements;
            return ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, i);
        }
    }
    CHECK(false);
    return NULL;
}

#endif /* ASHLAR_SAMPLED_FIXTURE_H */
