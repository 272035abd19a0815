/*
 * rnn_fixture.h - a small stack on a software device, for tests.
 */
#ifndef ASHLAR_RNN_FIXTURE_H
#define ASHLAR_RNN_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/rnn.h>

static ashlar_rnn *rnn;

enum { INPUT = 3, HIDDEN = 5, LAYERS = 2, STEPS = 4, BATCH = 3 };

static inline ashlar_rnn_config config_of(ashlar_dtype dtype) {
    return (ashlar_rnn_config){.input = INPUT, .hidden = HIDDEN, .layers = LAYERS, .dtype = dtype};
}

static inline void finish(void) {
    ashlar_rnn_destroy(rnn);
    rnn = NULL;
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

static inline bool set_up_rnn_of(const char *spec, const ashlar_rnn_config *config) {
    return set_up(spec) && ashlar_rnn_create(device, config, &rnn) == ASHLAR_OK &&
           check_at_end(finish);
}

static inline bool set_up_rnn(const char *spec, ashlar_dtype dtype) {
    const ashlar_rnn_config config = config_of(dtype);
    return set_up_rnn_of(spec, &config);
}

#endif /* ASHLAR_RNN_FIXTURE_H */
