/*
 * task_fixture.h - the text task by itself, without the loop around it, for tests.
 *
 * A case begins with open_text(spec) and opens tasks, one at a time; the last is closed at its end.
 */
#ifndef ASHLAR_TASK_FIXTURE_H
#define ASHLAR_TASK_FIXTURE_H

#include "tests/rnn/train/train_fixture.h"

#include <ashlar/arena.h>

static ashlar_task *task;
static double *losses; /* device */

static inline void close_task(void) {
    check_forget(close_task);
    give(losses);
    ashlar__task_close(task);
    CHECK_ZU(stats_now().live_blocks, 0);
    task->table->destroy(task);
    ashlar_allocator_destroy(allocator);
    task = NULL;
}

static inline bool open_task(const ashlar_train_config *config) {
    if (ashlar__task_text_create(corpus, config, &task) != ASHLAR_OK ||
        ashlar_allocator_create(device, &allocator) != ASHLAR_OK ||
        ashlar__task_open(task, allocator, streams[1], ASHLAR_REGIONS_ALL) != ASHLAR_OK) {
        return false;
    }
    losses = (double *)(void *)take(task->max_parts * sizeof *losses, streams[1]);
    return check_at_end(close_task);
}

/* Of the small training, without options. */
static inline bool open_small_task(void) {
    const ashlar_train_config config = small_config(1);
    return open_text("memory=256MiB") && open_task(&config);
}

/* Forward and backward of the buffer's batch, in one part, to its end. */
static inline double run_buffer(size_t buffer, uint64_t seed) {
    *losses = 0;
    CHECK(ashlar_arena_zero(task->arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
    CHECK(task->table->upload(task, buffer, streams[1]) == ASHLAR_OK);
    CHECK(task->table->step(task, buffer, 0, seed, losses) == ASHLAR_OK);
    wait_for(streams[1]);
    return *losses;
}

static inline float *gradients_of_task(void) {
    return ashlar_arena_region(task->arena, ASHLAR_REGION_GRADIENTS);
}

static inline size_t gradients_count(void) {
    return ashlar_arena_region_bytes(task->arena, ASHLAR_REGION_GRADIENTS) / sizeof(float);
}

#endif /* ASHLAR_TASK_FIXTURE_H */
