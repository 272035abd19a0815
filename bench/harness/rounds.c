/* rounds.c - runs subjects in turn, round after round, and takes medians. */
#include "bench/harness/harness.h"

#include <stdint.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/random.h"

double ashlar__clock_cost_ns(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const uint64_t before = ashlar__clock_ns(), after = ashlar__clock_ns();
        least = after - before < least ? after - before : least;
    }
    return (double)least;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ashlar__median(double *numbers, size_t count) {
    ASHLAR_ASSERT(count > 0);
    qsort(numbers, count, sizeof numbers[0], by_value);
    return count % 2 == 1 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

double ashlar__turns_median(ashlar_turns *turns, size_t figure) {
    return ashlar__median(turns->figures[figure], turns->rounds);
}

void ashlar__turns_spread(ashlar_turns *turns, size_t figure, double *low, double *high) {
    const size_t skipped = turns->rounds / 4;
    (void)ashlar__turns_median(turns, figure);
    *low = turns->figures[figure][skipped];
    *high = turns->figures[figure][turns->rounds - 1 - skipped];
}

/* A subject is very slow if its operation takes longer than this many turns. The driver's plain
 * calls are a thousand times slower than a cache, and would take up most of the measurement. */
enum { SLOW_TURNS = 20 };

/* How often an operation of this length fits into a turn. */
static size_t count_repeats(const ashlar_rounds *r, double seconds) {
    return r->is_smoke || seconds >= r->round_s ? 1 : (size_t)(r->round_s / (seconds + 1e-9));
}

/* First operations are slow: so take the length from the second, and then from a whole turn. */
static ashlar_status warm_up(const ashlar_rounds *r, size_t subject, ashlar_turns *turns) {
    double figures[ASHLAR_ROUNDS_FIGURES] = {0};
    for (int i = 0; i < 2 && !r->is_smoke; i++) {
        ASHLAR_TRY(r->run(r->context, subject, 1, figures));
    }
    const bool is_slow = figures[0] > SLOW_TURNS * r->round_s && r->slow_rounds != 0;
    if (count_repeats(r, figures[0]) > 1) {
        ASHLAR_TRY(r->run(r->context, subject, count_repeats(r, figures[0]), figures));
    }
    turns->repeats = count_repeats(r, figures[0]);
    turns->rounds = is_slow ? r->slow_rounds : SIZE_MAX; /* corrected once the rounds are known */
    return ASHLAR_OK;
}

static ashlar_status take_turn(const ashlar_rounds *r, size_t subject, size_t round,
                               ashlar_turns *turns) {
    double figures[ASHLAR_ROUNDS_FIGURES] = {0};
    if (round >= turns->rounds) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(r->run(r->context, subject, turns->repeats, figures));
    for (size_t i = 0; i < ASHLAR_ROUNDS_FIGURES; i++) {
        turns->figures[i][round] = figures[i];
    }
    return ASHLAR_OK;
}

static void shuffle(size_t *order, size_t count, uint64_t *random) {
    for (size_t left = count; left > 1; left--) {
        const size_t drawn = ashlar__random_step_below(random, left), last = order[left - 1];
        order[left - 1] = order[drawn];
        order[drawn] = last;
    }
}

ashlar_status ashlar__rounds_run(const ashlar_rounds *r, size_t count, ashlar_turns *turns) {
    const double start = ashlar__clock_s();
    const size_t most = r->is_smoke ? 1 : r->most;
    size_t round = 0, order[ASHLAR_ROUNDS_SUBJECTS];
    uint64_t random = 0; /* the same orders in each run */
    ASHLAR_ASSERT(most <= ASHLAR_ROUNDS_MAX && count <= ASHLAR_ROUNDS_SUBJECTS);
    for (size_t i = 0; i < count; i++) {
        order[i] = i;
        ASHLAR_TRY(warm_up(r, i, &turns[i]));
    }
    for (; round < most && (round < r->least || ashlar__clock_s() - start < r->while_s); round++) {
        shuffle(order, count, &random);
        for (size_t i = 0; i < count; i++) {
            ASHLAR_TRY(take_turn(r, order[i], round, &turns[order[i]]));
        }
    }
    for (size_t i = 0; i < count; i++) {
        turns[i].rounds = turns[i].rounds < round ? turns[i].rounds : round;
    }
    return ASHLAR_OK;
}
