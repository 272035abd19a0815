/*
 * rnn_cudnn_fixture.h - the fake cuDNN, and stacks for it, for tests.
 */
#ifndef ASHLAR_RNN_CUDNN_FIXTURE_H
#define ASHLAR_RNN_CUDNN_FIXTURE_H

#include "tests/rnn/cuda/gpu_rnn_fixture.h"

#include <cudnn.h>

#include "rnn/layer/backend.h"
#include "tests/cuda/fake_cudnn.h"
#include "allocator/base/host.h"

static fake_cudnn_control *fake;

static const shape SHAPE = {2, 5, 3, 3, 4, {2, 5, 1}, true};
static const kind GRU = {.cell = ASHLAR_RNN_GRU, .directions = 2};

static inline ashlar_rnn_config small_config(void) {
    return config_of(&SHAPE, &PLAIN_LSTM, ASHLAR_F32);
}

static inline ashlar_rnn_config dropping_config(void) {
    ashlar_rnn_config config = small_config();
    config.dropout = 0.5;
    return config;
}

/* What the fake has recorded, from the beginning of the case or the last time. */
static inline const char *take_log(void) {
    static char taken[FAKE_CUDNN_LOG_BYTES];
    memcpy(taken, fake->log, sizeof taken);
    fake->log[0] = '\0';
    return taken;
}

/* At the end of a case: all is as before it. */
static inline void check_clean(void) {
    gpu_wait();
    CHECK_ZU((size_t)fake->live, 0);
    CHECK(strcmp(fake->misuse, "") == 0);
    if (fake->misuse[0] != '\0') {
        printf("# misuse: %s\n", fake->misuse);
    }
    CHECK(gpu->driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
    fake->misuse[0] = fake->log[0] = '\0';
    fake->change = FAKE_CUDNN_SAME;
    fake->fail_at = 0;
}

static inline size_t free_memory(void) {
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(ashlar__device_enter(gpu) == ASHLAR_OK);
    CHECK(gpu->driver->table.mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    ashlar__device_leave(gpu);
    return free_bytes;
}

/* Whether the driver and cuDNN are the fakes. */
static inline bool find_fake(void) {
    const char *path = getenv("ASHLAR_CUDNN");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fake = library == NULL ? NULL : dlsym(library, "fake_cudnn");
    return fake != NULL;
}

#define RUN_CASES_ON_FAKES()                                                   \
    int main(void) {                                                           \
        if (gpu_begin() != 0 || !find_fake()) {                                \
            printf("Bail out! it wants the fake driver and the fake cuDNN\n"); \
            return 1;                                                          \
        }                                                                      \
        check_each = check_clean;                                              \
        check_run_cases();                                                     \
        gpu_end();                                                             \
        return check_report();                                                 \
    }

#endif /* ASHLAR_RNN_CUDNN_FIXTURE_H */
