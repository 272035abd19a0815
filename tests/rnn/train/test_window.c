/*
 * test_window.c - a window of a batch: it begins with the states of the one before it, and no
 * gradient leaves it.
 */
#include "tests/rnn/train/window_fixture.h"

static const int32_t LENGTHS[] = {5, 2, 13, 1};

/* Two windows of a batch, at a border where a sequence goes on, ends, and has ended. */
static void check_windows(size_t border, size_t chunk) {
    static answer whole, first, second;
    made_batch made;
    ashlar_step_sizes sizes;
    make_batch(&made, 13, 4, LENGTHS);
    const double weight = 1 / (double)made.batch.tokens;
    CHECK(ashlar__model_sizes(model, 13, 4, &sizes) == ASHLAR_OK);
    unsigned char *set = take(sizes.state, streams[1]);
    memset(set, 0xff, sizes.state); /* NaN: it must be written */
    run_window(&made, &(recipe){.weight = weight}, &whole);
    run_window(&made, &(recipe){.chunk = chunk, .weight = weight, .steps = border, .last = set},
               &first);
    const recipe rest = {.chunk = chunk, .weight = weight, .first_step = border, .first = set};
    run_window(&made, &rest, &second);
    CHECK_NEAR(first.loss + second.loss, whole.loss, 0, 1e-12);
    check_slopes(&made, &rest); /* of its own loss, with the states it began with */
    give(set);
}

CASE(states_go_on_and_gradients_do_not) {
    static const size_t borders[] = {1, 2, 5, 7, 12};
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        model_config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        model_config.projection = i == ASHLAR_RNN_CELL_COUNT ? 7 : 0;
        REQUIRE(open_window("memory=64MiB"));
        for (size_t b = 0; b < sizeof borders / sizeof borders[0]; b++) {
            check_windows(borders[b], 0);
            check_windows(borders[b], 3);
        }
        close_window();
    }
}

RUN_CASES_AFTER(check_each = usual_model)
