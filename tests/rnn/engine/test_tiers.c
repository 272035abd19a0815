/* test_tiers.c - the choice of tiers: what it says is so by the rules of tiers.h, nothing that a
 * search of all choices finds is better, and the least budget is the least. */
#include <stdlib.h>

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "rnn/engine/tiers.h"
#include "tests/check.h"

enum { MOMENTS = 72, ITEMS = 12 };

static uint64_t seed = 1;
static ashlar_tiers_moment moments[MOMENTS];
static ashlar_tiers_item items[ITEMS];
static ashlar_tiers_table table;
static ashlar_tiers_place places[ITEMS];
static ashlar_tiers_choice choice;

static size_t between(size_t low, size_t high) {
    return low + ashlar__random_step_below(&seed, high - low + 1);
}

/* ---- tables ---- */

/* `chunks` chunks of `phases` phases, `per_chunk` items in each; in each phase of the forward an
 * item may be written, and its backward is the mirror of it. */
static void draw_chunks(size_t chunks, size_t phases, size_t per_chunk) {
    const size_t m = 2 * chunks * phases;
    table =
        (ashlar_tiers_table){moments, m, items, chunks * per_chunk, .copy_ns = between(0, 3) * 100};
    table.out_bytes_per_us = between(1, 40);
    table.back_bytes_per_us = between(1, 40);
    for (size_t p = 0; p < phases; p++) {
        const ashlar_tiers_moment forward = {between(0, 9) * 1000, between(0, 5)};
        const ashlar_tiers_moment backward = {between(0, 19) * 1000, between(0, 5)};
        for (size_t c = 0; c < chunks; c++) {
            moments[c * phases + p] = forward;
            moments[m - 1 - c * phases - p] = backward;
        }
    }
    for (size_t i = 0; i < per_chunk; i++) {
        const size_t bytes = between(0, 30), first = between(0, phases - 1);
        const size_t last = between(first, phases - 1);
        const uint64_t again_ns = between(0, 9) * 1000 * phases;
        const bool may_recompute = between(0, 3) > 0;
        for (size_t c = 0; c < chunks; c++) {
            const size_t begin = c * phases;
            items[c * per_chunk + i] = (ashlar_tiers_item){
                bytes,    begin + first, begin + last, m - 1 - begin - last, m - 1 - begin - first,
                again_ns, may_recompute};
        }
    }
}

/* Anything that is allowed. */
static void draw_any(size_t m, size_t n) {
    table = (ashlar_tiers_table){moments, m, items, n, .copy_ns = between(0, 3) * 100};
    table.out_bytes_per_us = between(1, 40);
    table.back_bytes_per_us = between(1, 40);
    for (size_t k = 0; k < m; k++) {
        moments[k] = (ashlar_tiers_moment){between(0, 9) * 1000, between(0, 20)};
    }
    for (size_t i = 0; i < n; i++) {
        const size_t middle = m / 2, last = between(0, middle - 1), back = between(middle, m - 1);
        items[i] = (ashlar_tiers_item){
            between(0, 30),        between(0, last), last, back, between(back, m - 1),
            between(0, 29) * 1000, between(0, 2) > 0};
    }
}

static void draw_table(size_t item_max) {
    if (between(0, 1) == 0) {
        const size_t per_chunk = between(1, 3), chunks = between(1, item_max / per_chunk);
        draw_chunks(chunks, between(1, 3), per_chunk);
    } else {
        draw_any(2 * between(1, 6), between(1, item_max));
    }
    table.host_bytes = between(0, 3) == 0 ? between(1, 60) : 0;
    for (size_t i = 0; i < table.item_count && table.host_bytes > 0; i++) {
        items[i].may_recompute = true;
    }
}

/* ---- the rules, as tiers.h has them ---- */

static size_t bytes_in(const ashlar_tiers_place *p, size_t k) {
    size_t sum = moments[k].bytes;
    for (size_t i = 0; i < table.item_count; i++) {
        const ashlar_tiers_item *item = &items[i];
        const bool is_live = p[i].tier == ASHLAR_TIER_RESIDENT
                                 ? item->first_forward <= k && k <= item->last_backward
                                 : p[i].tier == ASHLAR_TIER_HOST &&
                                       ((item->first_forward <= k && k <= p[i].out_end) ||
                                        (p[i].back_begin <= k && k <= item->last_backward));
        sum += is_live ? item->bytes : 0;
    }
    return sum;
}

static uint64_t ns_of(const ashlar_tiers_place *p, size_t k) {
    uint64_t ns = moments[k].ns;
    for (size_t i = 0; i < table.item_count; i++) {
        const bool is_again = p[i].tier == ASHLAR_TIER_RECOMPUTED && items[i].first_backward == k;
        ns += is_again ? items[i].again_ns : 0;
    }
    return ns;
}

static bool host_fits(const ashlar_tiers_place *p) {
    size_t bytes = 0;
    for (size_t i = 0; i < table.item_count; i++) {
        bytes += p[i].tier == ASHLAR_TIER_HOST ? items[i].bytes : 0;
    }
    return table.host_bytes == 0 || bytes <= table.host_bytes;
}

static uint64_t copy_of(size_t i, uint64_t rate) {
    return table.copy_ns + (items[i].bytes * 1000 + rate - 1) / rate;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Numbers of the items by one of their moments; equal ones as they are. */
static void sort(size_t order[ITEMS], size_t field) {
    size_t count = 0;
    for (size_t k = 0; k < table.moment_count; k++) {
        for (size_t i = 0; i < table.item_count; i++) {
            if (*(const size_t *)((const char *)&items[i] + field) == k) {
                order[count++] = i;
            }
        }
    }
}

static bool is_allowed(const ashlar_tiers_place *p, size_t i) {
    const ashlar_tiers_item *item = &items[i];
    return p[i].tier == ASHLAR_TIER_RECOMPUTED ? item->may_recompute
           : p[i].tier == ASHLAR_TIER_HOST
               ? item->last_forward <= p[i].out_end && p[i].out_end < p[i].back_begin &&
                     p[i].back_begin <= item->first_backward
               : true;
}

/* The time of these places by the rules; UINT64_MAX: they are not allowed. */
static uint64_t time_of(const ashlar_tiers_place *p, size_t budget) {
    uint64_t end = 0, out_free = 0, back_free = 0, out_ns[ITEMS] = {0}, back_ns[ITEMS] = {0};
    size_t by_out[ITEMS], by_back[ITEMS], out = 0, back = 0;
    sort(by_out, offsetof(ashlar_tiers_item, last_forward));
    sort(by_back, offsetof(ashlar_tiers_item, first_backward));
    for (size_t i = 0; i < table.item_count; i++) {
        if (!is_allowed(p, i) || !host_fits(p)) {
            return UINT64_MAX;
        }
    }
    for (size_t k = 0; k < table.moment_count; k++) {
        uint64_t place = end, begin;
        for (size_t i = 0; i < table.item_count; i++) {
            place =
                p[i].tier == ASHLAR_TIER_HOST && p[i].out_end < k ? later(place, out_ns[i]) : place;
        }
        for (; back < table.item_count; back++) {
            const size_t i = by_back[back];
            if (p[i].tier == ASHLAR_TIER_HOST) {
                if (p[i].back_begin > k) {
                    break;
                }
                back_free =
                    later(later(back_free, place), out_ns[i]) + copy_of(i, table.back_bytes_per_us);
                back_ns[i] = back_free;
            }
        }
        begin = place;
        for (size_t i = 0; i < table.item_count; i++) {
            if (p[i].tier == ASHLAR_TIER_HOST && items[i].first_backward <= k) {
                begin = back_ns[i] == 0 && copy_of(i, table.back_bytes_per_us) > 0
                            ? UINT64_MAX / 2
                            : later(begin, back_ns[i]);
            }
        }
        end = begin + ns_of(p, k);
        for (; out < table.item_count && items[by_out[out]].last_forward == k; out++) {
            const size_t i = by_out[out];
            if (p[i].tier == ASHLAR_TIER_HOST) {
                out_free = later(out_free, end) + copy_of(i, table.out_bytes_per_us);
                out_ns[i] = out_free;
            }
        }
        if (bytes_in(p, k) > budget) {
            return UINT64_MAX;
        }
    }
    return end;
}

/* ---- all choices ---- */

/* A search of all tiers and of all moments for their copies: is there a choice that takes less than
 * `limit`? */
typedef struct search {
    size_t budget;
    uint64_t limit, visits_left;
    ashlar_tiers_place places[ITEMS];
    size_t by_out[ITEMS], by_back[ITEMS];
    uint64_t rest_ns[MOMENTS + 1], ns[MOMENTS]; /* of the work from a moment on, in it */
    size_t load[MOMENTS];                       /* with copies as short as can be */
    uint64_t out_ns[ITEMS], back_ns[ITEMS];
} search;

typedef struct position {
    size_t k, gone, sent, back;
    uint64_t end, out_free, back_free;
} position;

static bool goes_on(search *s, position p);

/* From `gone` and `back` of position p on in moment p.k: begin copies back, or go on. */
static bool begins(search *s, position p, uint64_t place) {
    size_t pending = 0;
    for (size_t j = p.gone; j < p.sent; j++) {
        const size_t i = s->by_out[j];
        pending += s->places[i].tier == ASHLAR_TIER_HOST ? items[i].bytes : 0;
    }
    while (p.back < table.item_count && s->places[s->by_back[p.back]].tier != ASHLAR_TIER_HOST) {
        p.back++;
    }
    if (p.back < table.item_count) {
        const size_t i = s->by_back[p.back], end = items[i].first_backward;
        bool may_begin = false;
        for (size_t j = 0; j < p.gone; j++) {
            may_begin |= s->by_out[j] == i;
        }
        for (size_t k = p.k; k < end; k++) {
            s->load[k] += items[i].bytes;
            may_begin &= s->load[k] + (k == p.k ? pending : 0) <= s->budget;
        }
        position next = p;
        next.back++;
        s->places[i].back_begin = p.k;
        next.back_free = later(p.back_free, place) + copy_of(i, table.back_bytes_per_us);
        s->back_ns[i] = next.back_free;
        const bool found = may_begin && begins(s, next, place);
        for (size_t k = p.k; k < end; k++) {
            s->load[k] -= items[i].bytes;
        }
        if (found || end == p.k) {
            return found;
        }
    }
    if (s->load[p.k] + pending > s->budget) {
        return false;
    }
    uint64_t begin = place;
    for (size_t j = 0; j < p.back; j++) {
        const size_t i = s->by_back[j];
        if (s->places[i].tier == ASHLAR_TIER_HOST && items[i].first_backward == p.k) {
            begin = later(begin, s->back_ns[i]);
        }
    }
    p.end = begin + s->ns[p.k];
    for (; p.sent < table.item_count && items[s->by_out[p.sent]].last_forward == p.k; p.sent++) {
        const size_t i = s->by_out[p.sent];
        if (s->places[i].tier == ASHLAR_TIER_HOST) {
            p.out_free = later(p.out_free, p.end) + copy_of(i, table.out_bytes_per_us);
            s->out_ns[i] = p.out_free;
        }
    }
    p.k++;
    return goes_on(s, p);
}

static bool goes_on(search *s, position p) {
    if (p.end + s->rest_ns[p.k] >= s->limit || s->visits_left == 0) {
        return false;
    }
    s->visits_left--;
    if (p.k == table.moment_count) {
        return true;
    }
    const size_t first = p.gone;
    uint64_t place = p.end;
    for (;; p.gone++) { /* the place waits for so many copies out */
        if (p.gone > 0 && s->places[s->by_out[p.gone - 1]].tier == ASHLAR_TIER_HOST) {
            place = later(place, s->out_ns[s->by_out[p.gone - 1]]);
            if (p.gone > first) {
                s->places[s->by_out[p.gone - 1]].out_end = p.k - 1;
            }
        }
        if (begins(s, p, place)) {
            return true;
        }
        if (p.gone == p.sent) {
            return false;
        }
    }
}

static bool starts(search *s) {
    const uint64_t cost = 5; /* of what follows, in visits */
    s->visits_left -= cost < s->visits_left ? cost : s->visits_left;
    if (s->visits_left == 0) {
        return false;
    }
    if (!host_fits(s->places)) {
        return false;
    }
    s->rest_ns[table.moment_count] = 0;
    for (size_t k = table.moment_count; k-- > 0;) {
        s->ns[k] = ns_of(s->places, k);
        s->rest_ns[k] = s->rest_ns[k + 1] + s->ns[k];
        s->load[k] = bytes_in(s->places, k);
        if (s->load[k] > s->budget) {
            return false;
        }
    }
    return goes_on(s, (position){0});
}

/* All tiers of the items from number i on. */
static bool finds(search *s, size_t i) {
    if (i == table.item_count) {
        return starts(s);
    }
    for (size_t n = 0; n < ASHLAR_TIER_COUNT; n++) {
        ashlar_tiers_place *p = &s->places[i];
        *p = (ashlar_tiers_place){(ashlar_tier)n, items[i].last_forward, items[i].first_backward};
        const bool can_be = p->tier == ASHLAR_TIER_RECOMPUTED
                                ? items[i].may_recompute
                                : p->tier == ASHLAR_TIER_RESIDENT || p->out_end + 1 < p->back_begin;
        if (can_be && finds(s, i + 1)) {
            return true;
        }
    }
    return false;
}

/* Whether some choice takes less than `limit`; *is_known: all have been looked at. */
static bool is_beaten(size_t budget, uint64_t limit, bool *is_known) {
    static search s;
    s = (search){.budget = budget, .limit = limit, .visits_left = 300000};
    sort(s.by_out, offsetof(ashlar_tiers_item, last_forward));
    sort(s.by_back, offsetof(ashlar_tiers_item, first_backward));
    const bool found = finds(&s, 0);
    *is_known = found || s.visits_left > 0;
    CHECK(!found || time_of(s.places, budget) < limit); /* the search is by the rules, too */
    return found;
}

static size_t peak_of(const ashlar_tiers_place *p) {
    size_t most = 0;
    for (size_t k = 0; k < table.moment_count; k++) {
        const size_t bytes = bytes_in(p, k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static size_t resident_bytes(void) {
    static const ashlar_tiers_place resident[ITEMS];
    return peak_of(resident);
}

static size_t least_bytes(void) {
    size_t least = SIZE_MAX;
    CHECK(ashlar__tiers_least(&table, &least) == ASHLAR_OK);
    return least;
}

static bool chooses(size_t budget) {
    return ashlar__tiers_choose(&table, budget, places, &choice) == ASHLAR_OK;
}

/* A choice, and that all it says is so. */
static void check_choice(size_t budget) {
    size_t bytes[ASHLAR_TIER_COUNT] = {0};
    REQUIRE(chooses(budget));
    for (size_t i = 0; i < table.item_count; i++) {
        bytes[places[i].tier] += items[i].bytes;
    }
    CHECK_ZU(time_of(places, budget), choice.ns);
    CHECK_ZU(peak_of(places), choice.peak_bytes);
    CHECK(choice.compute_ns <= choice.bound_ns && choice.bound_ns <= choice.ns);
    CHECK(memcmp(bytes, choice.bytes, sizeof bytes) == 0);
}

/* ---- cases ---- */

CASE(no_choice_is_better_than_the_best) {
    size_t known_count = 0, best_count = 0, stall_count = 0;
    const size_t rounds = CHECK_SANITIZED(2000, 200);
    for (size_t round = 0; round < rounds; round++) {
        bool is_known = false;
        draw_table(round % 20 == 0 ? ITEMS : 6);
        const size_t least = least_bytes(), all = resident_bytes();
        const size_t budget = all > least ? between(least, all) : least;
        check_choice(budget);
        CHECK(!is_beaten(budget, choice.is_best ? choice.ns : choice.ns - choice.ns / 100,
                         &is_known));
        best_count += choice.is_best;
        known_count += is_known;
        stall_count += choice.ns > choice.compute_ns;
    }
    CHECK(known_count > rounds / 10 * 9 && best_count > rounds / 100 * 99);
    CHECK(stall_count > rounds / 5);
}

CASE(the_least_budget_is_the_least) {
    for (int round = 0; round < 1000; round++) {
        bool is_known = false;
        draw_table(5);
        const size_t least = least_bytes();
        check_choice(least);
        if (least > 0) {
            CHECK_FAILS(ashlar__tiers_choose(&table, least - 1, places, &choice), ASHLAR_ENOMEM,
                        "the step needs at least");
            CHECK(!is_beaten(least - 1, UINT64_MAX, &is_known) && is_known);
        }
    }
}

CASE(more_memory_takes_no_more_time) {
    for (int round = 0; round < 300; round++) {
        draw_table(6);
        const size_t least = least_bytes(), all = resident_bytes();
        uint64_t before = UINT64_MAX;
        for (size_t budget = least; budget <= all; budget += 1 + (all - least) / 8) {
            REQUIRE(chooses(budget));
            CHECK(choice.ns <= before);
            before = choice.ns;
        }
        REQUIRE(chooses(all > least ? all : least) && choice.ns == choice.compute_ns);
    }
}

/* A table that is too large to try all: many chunks of one layer. */
enum { CHUNKS = 300 };
static ashlar_tiers_moment many_moments[2 * CHUNKS];
static ashlar_tiers_item many_items[CHUNKS];
static ashlar_tiers_place many_places[CHUNKS];

static ashlar_tiers_table many(uint64_t bytes_per_us) {
    for (size_t c = 0; c < CHUNKS; c++) {
        const size_t back = 2 * CHUNKS - 1 - c;
        many_moments[c] = (ashlar_tiers_moment){100000, 10000};
        many_moments[back] = (ashlar_tiers_moment){200000, 10000};
        many_items[c] = (ashlar_tiers_item){1000000, c, c, back, back, 90000, true};
    }
    return (ashlar_tiers_table){many_moments, 2 * CHUNKS,   many_items, CHUNKS,
                                bytes_per_us, bytes_per_us, 1000,       0};
}

/* A fifth of the memory: copies of 40 us pass beside the work of 100 us; of 500 us they do not. */
CASE(large_tables_are_near_their_bound_and_no_slower_than_computing_again) {
    static const uint64_t rates[] = {25000, 9000, 2000, 1};
    uint64_t again_ns = 0;
    for (size_t r = sizeof rates / sizeof rates[0]; r-- > 0;) {
        const ashlar_tiers_table t = many(rates[r]);
        REQUIRE(ashlar__tiers_choose(&t, CHUNKS * 200000, many_places, &choice) == ASHLAR_OK);
        CHECK(choice.ns <= choice.bound_ns + choice.bound_ns / 100);
        CHECK(choice.peak_bytes <= CHUNKS * 200000);
        again_ns = r == 3 ? choice.ns : again_ns;
        CHECK(choice.ns <= again_ns);
        CHECK(r != 0 || choice.ns <= choice.compute_ns + choice.compute_ns / 100);
        CHECK(r != 3 || choice.bytes[ASHLAR_TIER_HOST] == 0);
        CHECK(r != 2 ||
              (choice.bytes[ASHLAR_TIER_HOST] > 0 && choice.bytes[ASHLAR_TIER_RECOMPUTED] > 0));
    }
}

/* So many moments that looking at each once is all the work that a choice may be. */
CASE(tables_of_many_moments_have_a_choice) {
    enum { MANY = 20000 };
    ashlar_tiers_moment *long_row = calloc(MANY, sizeof *long_row);
    REQUIRE(long_row != NULL);
    for (size_t k = 0; k < MANY; k++) {
        long_row[k] = (ashlar_tiers_moment){10, k == MANY / 2 ? 10 : 5};
    }
    table = (ashlar_tiers_table){long_row, MANY, items, 2, 1, 1, 0, 0};
    items[0] = (ashlar_tiers_item){6, 0, 1, MANY - 2, MANY - 1, 0, false};
    items[1] = (ashlar_tiers_item){6, 1, 2, MANY - 3, MANY - 1, 0, false};
    CHECK(chooses(17) && choice.bytes[ASHLAR_TIER_HOST] > 0);
    CHECK(choice.ns >= choice.compute_ns && choice.peak_bytes <= 17);
    free(long_row);
}

CASE(the_same_table_has_the_same_choice) {
    static ashlar_tiers_place again[CHUNKS];
    const ashlar_tiers_table t = many(2000);
    ashlar_tiers_choice other;
    REQUIRE(ashlar__tiers_choose(&t, CHUNKS * 100000, many_places, &choice) == ASHLAR_OK);
    REQUIRE(ashlar__tiers_choose(&t, CHUNKS * 100000, again, &other) == ASHLAR_OK);
    CHECK(memcmp(again, many_places, sizeof again) == 0 && other.ns == choice.ns);
}

CASE(tables_without_items_or_with_one) {
    table = (ashlar_tiers_table){.out_bytes_per_us = 1, .back_bytes_per_us = 1};
    CHECK_ZU(least_bytes(), 0);
    REQUIRE(chooses(0));
    CHECK(choice.ns == 0 && choice.is_best);
    table = (ashlar_tiers_table){moments, 2, items, 0, 1, 1, 0, 0};
    moments[0] = (ashlar_tiers_moment){5, 7};
    moments[1] = (ashlar_tiers_moment){6, 3};
    CHECK_ZU(least_bytes(), 7);
    check_choice(SIZE_MAX);
    CHECK_ZU(choice.ns, 11);
    /* one that is away in moment 1: 2 bytes at 1 byte a us, behind and before what it is used in */
    table = (ashlar_tiers_table){moments, 3, items, 1, 1, 1, 10, 0};
    moments[2] = moments[0];
    items[0] = (ashlar_tiers_item){2, 0, 0, 2, 2, 100, false};
    CHECK_ZU(least_bytes(), 9);
    moments[1].bytes = 9;
    CHECK_ZU(least_bytes(), 9);
    check_choice(10);
    CHECK(places[0].tier == ASHLAR_TIER_HOST && places[0].out_end == 0 &&
          places[0].back_begin == 2);
    CHECK_ZU(choice.ns, 5 + 2010 + 6 + 2010 + 5);
    check_choice(11);
    CHECK(places[0].tier == ASHLAR_TIER_RESIDENT && choice.ns == 16);
    items[0].may_recompute = true;
    moments[1].bytes = 3;
    check_choice(8);
    CHECK(places[0].tier == ASHLAR_TIER_RECOMPUTED);
    CHECK_ZU(choice.ns, 116);
    CHECK_ZU(least_bytes(), 7); /* the moments' own */
}

CASE(tables_that_are_none_are_refused) {
    draw_any(8, 3);
    table.back_bytes_per_us = 0;
    CHECK_FAILS(ashlar__tiers_choose(&table, SIZE_MAX, places, &choice), ASHLAR_EINVAL, "rate");
    table.back_bytes_per_us = 1;
    items[1].last_backward = 8;
    CHECK_FAILS(ashlar__tiers_choose(&table, SIZE_MAX, places, &choice), ASHLAR_EINVAL, "item 1");
    items[1] = items[0];
    items[1].last_forward = items[1].first_backward;
    CHECK_FAILS(ashlar__tiers_choose(&table, SIZE_MAX, places, &choice), ASHLAR_EINVAL, "item 1");
    items[0] = (ashlar_tiers_item){1, 0, 0, 2, 2, 0, false};
    items[1] = items[0];
    items[0].bytes = items[1].bytes = SIZE_MAX / 2;
    CHECK_FAILS(ashlar__tiers_choose(&table, SIZE_MAX, places, &choice), ASHLAR_EOVERFLOW, "sum");
    items[0].bytes = items[1].bytes = 1;
    moments[0].ns = moments[1].ns = UINT64_MAX / 2 + 1;
    CHECK_FAILS(ashlar__tiers_choose(&table, SIZE_MAX, places, &choice), ASHLAR_EOVERFLOW, "sum");
    moments[0].ns = moments[1].ns = 1;
    moments[0].bytes = SIZE_MAX;
    CHECK_FAILS(ashlar__tiers_choose(&table, SIZE_MAX, places, &choice), ASHLAR_EOVERFLOW, "sum");
}

CASE(without_host_memory_there_is_no_choice) {
    draw_chunks(3, 2, 2);
    FOR_HOST_FAILURES(n, status, ashlar__tiers_choose(&table, resident_bytes(), places, &choice)) {
        CHECK(status == ASHLAR_EHOSTMEM || n > 1);
    }
}

RUN_CASES()
