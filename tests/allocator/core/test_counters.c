/*
 * test_counters.c - counters that threads raise apart and publish in any order.
 */
#include "tests/check.h"

#include "allocator/core/counters.h"
#include "allocator/base/random.h"

static const unsigned tag_x = ASHLAR_TAG_WEIGHTS, tag_y = ASHLAR_TAG_BATCH;

/* What holds whenever nothing is left to publish. */
static void check_published(const ashlar_stats *s, uint64_t live) {
    uint64_t tags = 0, at_peak = 0;
    CHECK_ZU(s->live_bytes, live);
    CHECK(s->live_peak_bytes >= s->live_bytes);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const ashlar_tag_stats *t = &s->tags[tag];
        CHECK(t->peak_bytes >= t->live_bytes && t->peak_bytes >= t->at_peak_bytes);
        tags += t->live_bytes;
        at_peak += t->at_peak_bytes;
    }
    CHECK_ZU(tags, live);
    CHECK_ZU(at_peak, s->live_peak_bytes);
}

CASE(a_publication_adds_the_changes_and_begins_again) {
    ashlar_stats s = {0};
    ashlar_counters c = {0};
    c.hit_count = 2;
    ashlar__count_alloc(&c, 100, tag_x);
    ashlar__count_alloc(&c, 30, tag_y);
    c.free_count = 1;
    ashlar__count_free(&c, 30, tag_y);
    ashlar__counters_publish(&c, &s);
    check_published(&s, 100);
    CHECK_ZU(s.alloc_count, 2);
    CHECK_ZU(s.served_cached, 2);
    CHECK_ZU(s.free_count, 1);
    CHECK_ZU(s.live_peak_bytes, 130);
    CHECK_ZU(s.tags[tag_x].live_bytes, 100);
    CHECK_ZU(s.tags[tag_y].peak_bytes, 30);
    CHECK_ZU(s.tags[tag_y].at_peak_bytes, 30);
    ashlar__counters_publish(&c, &s); /* nothing is left: nothing is counted twice */
    check_published(&s, 100);
    CHECK_ZU(s.alloc_count, 2);
    CHECK_ZU(s.free_count, 1);
    CHECK_ZU(s.live_peak_bytes, 130);
}

/* After a publication only what exceeds the published peak is a peak. */
CASE(a_peak_below_an_earlier_one_is_none) {
    ashlar_stats s = {0};
    ashlar_counters c = {0};
    ashlar__count_alloc(&c, 100, tag_x);
    ashlar__count_free(&c, 100, tag_x);
    ashlar__counters_publish(&c, &s);
    CHECK_ZU((size_t)c.all.peak, 100);
    ashlar__count_alloc(&c, 100, tag_y);
    CHECK(!c.has_peak && !c.is_at_peak); /* equal is not above */
    ashlar__counters_publish(&c, &s);
    CHECK_ZU(s.tags[tag_x].at_peak_bytes, 100);
    CHECK_ZU(s.tags[tag_y].at_peak_bytes, 0);
    ashlar__count_alloc(&c, 1, tag_y);
    CHECK(c.has_peak && c.is_at_peak);
    ashlar__counters_publish(&c, &s);
    check_published(&s, 101);
    CHECK_ZU(s.live_peak_bytes, 101);
    CHECK_ZU(s.tags[tag_x].at_peak_bytes, 0);
    CHECK_ZU(s.tags[tag_y].at_peak_bytes, 101);
}

/* Of several peaks since the last publication, the largest one's tags are kept. */
CASE(the_tags_are_those_of_the_highest_peak) {
    ashlar_stats s = {0};
    ashlar_counters c = {0};
    ashlar__count_alloc(&c, 50, tag_x);
    ashlar__count_free(&c, 20, tag_x); /* 30 x left; a peak of 50 */
    ashlar__count_alloc(&c, 70, tag_y);
    ashlar__count_free(&c, 70, tag_y); /* a peak of 30 x and 70 y */
    ashlar__count_alloc(&c, 60, tag_y);
    ashlar__count_free(&c, 30, tag_x); /* 90 is none */
    ashlar__counters_publish(&c, &s);
    check_published(&s, 60);
    CHECK_ZU(s.live_peak_bytes, 100);
    CHECK_ZU(s.tags[tag_x].at_peak_bytes, 30);
    CHECK_ZU(s.tags[tag_y].at_peak_bytes, 70);
    CHECK_ZU(s.tags[tag_x].peak_bytes, 50);
    CHECK_ZU(s.tags[tag_y].peak_bytes, 70);
}

/* What one thread takes and another one frees may be published in either order. */
CASE(a_free_may_be_published_before_its_allocation) {
    ashlar_stats s = {0};
    ashlar_counters taker = {0}, freer = {0};
    ashlar__count_alloc(&taker, 100, tag_x);
    ashlar__count_free(&freer, 100, tag_x);
    ashlar__counters_publish(&freer, &s);
    ashlar__counters_publish(&freer, &s); /* again, while the published sum is below zero */
    ashlar__counters_publish(&taker, &s);
    check_published(&s, 0);
    CHECK(s.live_peak_bytes <= 100 && s.tags[tag_x].peak_bytes <= 100);
}

/* A peak whose thread has freed what another one's unpublished allocation took. */
CASE(a_peak_may_be_published_before_what_it_stands_on) {
    ashlar_stats s = {0};
    ashlar_counters taker = {0}, freer = {0};
    ashlar__count_alloc(&taker, 100, tag_x);
    ashlar__count_free(&freer, 100, tag_x);
    ashlar__count_alloc(&freer, 500, tag_y);
    ashlar__count_free(&freer, 200, tag_y);
    ashlar__counters_publish(&freer, &s);
    ashlar__counters_publish(&taker, &s);
    check_published(&s, 300);
    CHECK(s.live_peak_bytes >= 400 && s.live_peak_bytes <= 600);
    CHECK_ZU(s.tags[tag_x].at_peak_bytes, 0);
    CHECK_ZU(s.tags[tag_y].at_peak_bytes, 500);
}

/* A sum that is a peak, though no thread alone saw one. */
CASE(changes_of_two_threads_make_a_peak_together) {
    ashlar_stats s = {0};
    ashlar_counters a = {0}, b = {0};
    ashlar__count_alloc(&a, 100, tag_x);
    ashlar__count_free(&a, 100, tag_x);
    ashlar__counters_publish(&a, &s);
    ashlar__counters_publish(&b, &s); /* both know that 100 has been */
    ashlar__count_alloc(&a, 60, tag_x);
    ashlar__count_alloc(&b, 60, tag_y);
    ashlar__counters_publish(&a, &s);
    CHECK_ZU(s.live_peak_bytes, 100);
    ashlar__counters_publish(&b, &s);
    check_published(&s, 120);
    CHECK_ZU(s.live_peak_bytes, 120);
    CHECK_ZU(s.tags[tag_x].at_peak_bytes, 60);
    CHECK_ZU(s.tags[tag_y].at_peak_bytes, 60);
}

/* Three threads that publish in any order: a peak is off by what they held back, and no more. */
CASE(random_orders_keep_the_equations) {
    enum { OPERATIONS = 20000, THREADS = 3, BLOCKS = 6 };
    uint64_t state = 88172645463325252u, live = 0, peak = 0, held_back_max = 0;
    uint64_t held_back[THREADS] = {0}; /* bytes taken and given back since the publication */
    uint64_t blocks[BLOCKS] = {0};
    unsigned tags[BLOCKS] = {0};
    ashlar_stats s = {0};
    ashlar_counters c[THREADS] = {0};
    for (int i = 0; i < OPERATIONS && check_failed == 0; i++) {
        const uint64_t drawn = ashlar__random_step(&state);
        const size_t idx = (size_t)(drawn >> 8) % BLOCKS, who = (size_t)(drawn >> 20) % THREADS;
        if (blocks[idx] == 0) {
            blocks[idx] = 1 + (drawn >> 24) % 1000;
            tags[idx] = (unsigned)(drawn >> 40) % ASHLAR_TAG_COUNT;
            ashlar__count_alloc(&c[who], blocks[idx], tags[idx]);
            held_back[who] += blocks[idx];
            live += blocks[idx];
        } else {
            ashlar__count_free(&c[who], blocks[idx], tags[idx]);
            held_back[who] += blocks[idx];
            live -= blocks[idx];
            blocks[idx] = 0;
        }
        const uint64_t sum = held_back[0] + held_back[1] + held_back[2];
        held_back_max = sum > held_back_max ? sum : held_back_max;
        peak = live > peak ? live : peak;
        const bool is_read = (drawn >> 54) % 32 == 0;
        for (size_t k = 0; k < THREADS; k++) {
            if (is_read || (k == who && (drawn >> 50) % 4 == 0)) {
                ashlar__counters_publish(&c[k], &s);
                held_back[k] = 0;
            }
        }
        if (is_read) {
            check_published(&s, live);
            CHECK(s.live_peak_bytes <= peak + held_back_max);
            CHECK(s.live_peak_bytes + held_back_max >= peak);
        }
    }
}

RUN_CASES()
