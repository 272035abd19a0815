/* rounds.c - runs subjects in turn, round after round, and takes medians. */
#include "bench/harness/rounds.h"

#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ashlar__median(double *numbers, size_t count) {
    ASHLAR_ASSERT(count > 0);
    qsort(numbers, count, sizeof numbers[0], by_value);
    return count % 2 == 1 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

/* Run a subject twice. The time of the second, warm run says how many repeats fill a round. */
static ashlar_status warm_up(const ashlar_rounds *r, size_t subject, size_t *repeats) {
    double seconds = 0;
    for (int i = 0; i < 2; i++) {
        ASHLAR_TRY(r->run(r->context, subject, 1, 0, &seconds));
    }
    *repeats = r->is_smoke || seconds >= r->round_s ? 1 : (size_t)(r->round_s / (seconds + 1e-9));
    return ASHLAR_OK;
}

ashlar_status ashlar__rounds_run(const ashlar_rounds *r, size_t count, size_t *repeats,
                                 size_t *done) {
    const double start = ashlar__clock_s();
    const size_t most = r->is_smoke ? 1 : r->most;
    size_t round = 0;
    for (size_t i = 0; i < count; i++) {
        ASHLAR_TRY(warm_up(r, i, &repeats[i]));
    }
    for (; round < most && (round < r->least || ashlar__clock_s() - start < r->while_s); round++) {
        for (size_t i = 0; i < count; i++) {
            const size_t subject = (round + i) % count;
            double seconds;
            ASHLAR_TRY(r->run(r->context, subject, repeats[subject], round, &seconds));
        }
    }
    *done = round;
    return ASHLAR_OK;
}
