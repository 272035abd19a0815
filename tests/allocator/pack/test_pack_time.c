/*
 * test_pack_time.c - a time budget, and a caller who has enough, on a clock of the test's own: it
 * goes on by so much each time it is read, so that time is up wherever that is looked at.
 */
#include "tests/check.h"
#include "tests/allocator/pack/pack_fixture.h"

#include <time.h>

enum { MANY = 1500, SOME = 300, FEW = 8 };

static uint64_t now_ns, tick_ns;

/* In place of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *out) {
    (void)clock;
    now_ns += tick_ns;
    out->tv_sec = (time_t)(now_ns / 1000000000);
    out->tv_nsec = (long)(now_ns % 1000000000);
    return 0;
}

static ashlar_pack_buffer buffers[MANY];
static size_t offsets[MANY];

static void draw(uint64_t seed, size_t count) {
    pack_seed = seed;
    draw_buffers(buffers, count, 5000, count / 2);
    for (size_t i = 0; i < count; i++) { /* short lives: else all are live at the peak */
        const uint64_t latest = buffers[i].begin + pack_draw(1, count / 10 + 3);
        buffers[i].end = buffers[i].end < latest ? buffers[i].end : latest;
    }
}

static ashlar_pack_result pack(size_t count, const ashlar_pack_options *options, uint64_t tick_ms) {
    ashlar_pack_result result = {.plan_bytes = 0};
    tick_ns = tick_ms * 1000000;
    CHECK(ashlar_pack(buffers, count, options, offsets, &result) == ASHLAR_OK);
    CHECK(is_plan(buffers, count, 1, offsets));
    CHECK(result.plan_bytes >= result.bound_bytes && result.bound_bytes >= peak_of(buffers, count));
    CHECK(result.is_optimal == (result.plan_bytes == result.bound_bytes));
    return result;
}

/* ---- time that is up ---- */

/* From a plan that is as good as those without a search, to the best there is time for. */
CASE(more_time_never_gives_a_larger_plan) {
    size_t gains = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        size_t least = SIZE_MAX;
        draw(seed, SOME);
        const size_t at_once = pack(SOME, NULL, 1).plan_bytes;
        for (uint64_t budget_ms = 1; budget_ms < 400; budget_ms += 1 + budget_ms / 3) {
            const ashlar_pack_options options = {.time_budget_ms = budget_ms};
            const ashlar_pack_result result = pack(SOME, &options, 1);
            CHECK(result.was_stopped ||
                  result.plan_bytes - result.bound_bytes <= result.bound_bytes / 200);
            CHECK(result.plan_bytes <= least && result.plan_bytes <= at_once);
            gains += result.plan_bytes < least;
            least = result.plan_bytes;
        }
    }
    CHECK(gains > 6); /* a first plan of each, and better ones */
}

/* So many that no order is tried, and so few sections that valleys and the search are. */
CASE(there_is_a_plan_however_short_the_time) {
    enum { MOST = 40000 };
    static ashlar_pack_buffer many[MOST];
    static size_t places[MOST];
    const ashlar_pack_options options = {.time_budget_ms = 1};
    ashlar_pack_result result = {.plan_bytes = 0};
    draw_buffers(many, MOST, 5000, 20);
    tick_ns = 1000000000;
    CHECK(ashlar_pack(many, MOST, &options, places, &result) == ASHLAR_OK);
    CHECK(result.was_stopped && result.plan_bytes >= result.bound_bytes);
    CHECK(result.plan_bytes < 2 * result.bound_bytes);
}

/* The search for the smallest plan of all ends with the time, too, and proves nothing wrong. */
CASE(a_proof_that_is_cut_short_is_none) {
    size_t proven = 0, stopped = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        draw(seed, FEW);
        const size_t smallest = smallest_plan(buffers, FEW);
        for (uint64_t budget_ms = 1; budget_ms <= 256; budget_ms *= 4) {
            const ashlar_pack_options options = {.time_budget_ms = budget_ms,
                                                 .capacity_bytes = peak_of(buffers, FEW)};
            const ashlar_pack_result result = pack(FEW, &options, 1);
            CHECK(result.plan_bytes >= smallest && result.bound_bytes <= smallest);
            CHECK(!result.is_optimal || result.plan_bytes == smallest);
            proven += result.is_optimal;
            stopped += result.was_stopped;
        }
    }
    CHECK(proven > 0 && stopped > 0);
}

/* ---- a caller who has enough ---- */

typedef struct listener {
    size_t calls, enough; /* the call at which it has enough; 0: none */
    ashlar_pack_progress last;
} listener;

static bool listen(void *user, const ashlar_pack_progress *now) {
    listener *l = user;
    l->calls++;
    CHECK(now->strategy != NULL &&
          now->elapsed_ms >= l->last.elapsed_ms + (l->calls > 1 ? 100 : 0));
    CHECK(now->plan_bytes == 0 || now->plan_bytes >= now->bound_bytes);
    CHECK(l->last.plan_bytes == 0 ||
          (now->plan_bytes > 0 && now->plan_bytes <= l->last.plan_bytes));
    CHECK(now->bound_bytes >= l->last.bound_bytes);
    l->last = *now;
    return l->calls != l->enough;
}

CASE(it_stops_where_the_caller_has_enough) {
    listener all = {0};
    ashlar_pack_options options = {
        .progress = listen, .user = &all, .time_budget_ms = 3000, .capacity_bytes = 1};
    draw(1, MANY);
    const ashlar_pack_result longest = pack(MANY, &options, 20);
    CHECK(all.calls > 3 && all.calls <= 30);
    for (size_t enough = 1; enough <= all.calls; enough += 1 + enough / 2) {
        listener one = {.enough = enough};
        options.user = &one;
        const ashlar_pack_result result = pack(MANY, &options, 20);
        CHECK(result.was_stopped && one.calls == enough);
        CHECK(result.plan_bytes >= longest.plan_bytes);
        CHECK(one.last.plan_bytes == 0 || result.plan_bytes <= one.last.plan_bytes);
    }
}

/* Without a search, too: of the orders, those that are done. */
CASE(it_stops_between_orders) {
    listener all = {0};
    ashlar_pack_options options = {.progress = listen, .user = &all};
    draw(2, MANY);
    const ashlar_pack_result whole = pack(MANY, &options, 100);
    CHECK(!whole.was_stopped && all.calls >= 2); /* within the first order, and later */
    for (size_t enough = 1; enough <= all.calls; enough++) {
        listener one = {.enough = enough};
        options.user = &one;
        const ashlar_pack_result result = pack(MANY, &options, 100);
        CHECK(result.was_stopped && one.calls == enough);
        CHECK(result.plan_bytes >= whole.plan_bytes);
    }
}

RUN_CASES()
