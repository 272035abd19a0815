/* test_recording.c - what is kept of a step's allocations, and how two recordings become one. */
#include "tests/check.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/plan/recording.h"

static ashlar_stream_state states[ASHLAR_PLAN_STREAMS_MAX + 2];
static ashlar_block blocks[256];
static ashlar_recording r, into, from; /* of the case */

static void finish_all(void) {
    ashlar__recording_finish(&r);
    ashlar__recording_finish(&into);
    ashlar__recording_finish(&from);
}

/* Merge `from` into `into`. */
static ashlar_status merge(void) {
    ashlar_recording merged;
    const ashlar_status status = ashlar__recording_merge(&into, &from, &merged);
    if (status == ASHLAR_OK) {
        ashlar__recording_finish(&into);
        into = merged;
    }
    return status;
}

static void add(ashlar_recording *to, size_t bytes, unsigned tag, int state, int block) {
    ashlar__recording_add(to, bytes, tag, &states[state], &blocks[block]);
}

static void free_block(ashlar_recording *of, int block) {
    CHECK(ashlar__recording_end(of, &blocks[block]));
}

/* Allocations of so many bytes each, freed at once. tags: one letter each, 'a' is tag 0. */
static void chain(ashlar_recording *to, const char *tags, size_t bytes) {
    ashlar__recording_finish(to);
    for (size_t i = 0; tags[i] != '\0'; i++) {
        add(to, bytes, (unsigned)(tags[i] - 'a'), 0, 0);
        free_block(to, 0);
    }
    ashlar__recording_close(to);
}

CASE(lifetimes_are_counted_in_allocations) {
    add(&r, 100, 1, 0, 0);
    add(&r, 200, 2, 1, 1);
    free_block(&r, 0);
    add(&r, 300, 3, 0, 2);
    free_block(&r, 2);
    free_block(&r, 1);
    ashlar__recording_close(&r);
    CHECK_ZU(r.count, 3);
    CHECK_ZU(r.allocs[0].end, 2);
    CHECK_ZU(r.allocs[1].end, 3);
    CHECK_ZU(r.allocs[2].end, 3);
    CHECK(r.allocs[1].bytes == 200 && r.allocs[1].tag == 2 && r.allocs[1].stream_idx == 1);
    CHECK(r.stream_count == 2 && r.stream_states[0] == &states[0] &&
          r.stream_states[1] == &states[1]);
    ashlar__recording_finish(&r);
    CHECK(r.allocs == NULL && r.count == 0);
}

CASE(a_recording_that_contradicts_itself_is_found) {
    chain(&r, "abc", 100);
    CHECK(ashlar__recording_is_sound(&r));
    ashlar_recorded *const second = &r.allocs[1];
    const ashlar_recorded right = *second;
    const ashlar_recorded wrong[] = {
        {.bytes = 0, .end = right.end, .tag = right.tag},
        {.bytes = 100, .end = 1, .tag = right.tag}, /* freed before it was allocated */
        {.bytes = 100, .end = 4, .tag = right.tag}, /* after the end of the step */
        {.bytes = 100, .end = right.end, .tag = ASHLAR_TAG_COUNT},
        {.bytes = 100, .end = right.end, .tag = right.tag, .stream_idx = 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        *second = wrong[i];
        CHECK(!ashlar__recording_is_sound(&r));
    }
    *second = right;
    second->end = ASHLAR_NOT_PLANNED;
    CHECK(ashlar__recording_is_sound(&r));
    r.stream_count = ASHLAR_PLAN_STREAMS_MAX + 1;
    CHECK(!ashlar__recording_is_sound(&r));
    finish_all();
}

CASE(what_is_still_live_is_not_planned) {
    add(&r, 100, 0, 0, 0);
    add(&r, 100, 0, 0, 1);
    free_block(&r, 1);
    CHECK(!ashlar__recording_end(&r, &blocks[1]));
    CHECK(!ashlar__recording_end(&r, &blocks[7])); /* of no recording */
    ashlar__recording_close(&r);
    CHECK(r.allocs[0].end == ASHLAR_NOT_PLANNED && r.allocs[1].end == 2);
}

CASE(a_shared_block_holds_its_slot_to_the_end_of_the_step) {
    add(&r, 100, 0, 0, 0);
    add(&r, 100, 0, 0, 1);
    CHECK(ashlar__recording_share(&r, &blocks[1]));
    CHECK(!ashlar__recording_share(&r, &blocks[7])); /* of no recording */
    free_block(&r, 1);
    CHECK(!ashlar__recording_share(&r, &blocks[1]));
    add(&r, 100, 0, 0, 2);
    CHECK(ashlar__recording_share(&r, &blocks[2]));
    free_block(&r, 0);
    ashlar__recording_close(&r);
    CHECK(!r.allocs[0].is_shared && r.allocs[1].is_shared && r.allocs[2].is_shared);
    CHECK_ZU(r.allocs[1].end, 2);
    CHECK_ZU(ashlar__recording_held_to(&r, 1), 3);
    CHECK_ZU(ashlar__recording_held_to(&r, 0), 3);
    CHECK(ashlar__recording_held_to(&r, 2) == ASHLAR_NOT_PLANNED); /* it outlives the step */
}

CASE(what_is_shared_in_one_of_two_steps_is_so_in_both) {
    chain(&into, "aab", 100);
    chain(&from, "ab", 100);
    from.allocs[1].is_shared = true;
    CHECK(merge() == ASHLAR_OK);
    CHECK_ZU(into.count, 3);
    CHECK(!into.allocs[0].is_shared && !into.allocs[1].is_shared && into.allocs[2].is_shared);
}

CASE(a_stream_too_many_is_left_out) {
    for (int i = 0; i <= ASHLAR_PLAN_STREAMS_MAX; i++) {
        add(&r, 100, 0, i, i);
    }
    CHECK_ZU(r.count, ASHLAR_PLAN_STREAMS_MAX);
    CHECK_ZU(r.stream_count, ASHLAR_PLAN_STREAMS_MAX);
    add(&r, 100, 0, 3, 20);
    CHECK_ZU(r.count, ASHLAR_PLAN_STREAMS_MAX + 1);
}

CASE(without_host_memory_a_recording_is_incomplete) {
    for (unsigned long n = 1; n <= 4; n++) {
        ashlar__host_fail_at(n);
        for (int i = 0; i < 100; i++) {
            add(&r, 100, 0, 0, i);
        }
        ashlar__host_fail_at(0);
        CHECK(r.is_incomplete);
        CHECK_ZU(r.count, n <= 2 ? 0 : 64);
        ashlar__recording_finish(&r);
    }
}

/* Tags as in chain(), a capital one where a step lands. */
static void check_merged(const char *want) {
    CHECK_ZU(into.count, strlen(want));
    for (uint32_t i = 0; i < into.count && want[i] != '\0'; i++) {
        const char tag = (char)((into.allocs[i].is_landing ? 'A' : 'a') + (char)into.allocs[i].tag);
        CHECK(tag == want[i]);
        CHECK(into.allocs[i].end > i && into.allocs[i].end <= into.count);
    }
}

CASE(allocations_are_paired_with_the_next_alike) {
    static const struct {
        const char *into, *from, *want;
    } cases[] = {
        {"abc", "abc", "abc"},  {"abc", "ac", "abC"},
        {"ac", "abc", "abC"},   {"aabb", "ab", "aaBb"},
        {"ab", "ba", "aBa"},    {"", "ab", "ab"},
        {"ab", "", "ab"},       {"abc", "def", "defAbc"},
        {"aab", "cab", "cAaB"}, {"aaaabbbb", "aab", "aaaaBbbb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        chain(&into, cases[i].into, 100);
        chain(&from, cases[i].from, 200);
        CHECK(merge() == ASHLAR_OK);
        check_merged(cases[i].want);
    }
}

CASE(a_pair_has_the_larger_size_and_the_longer_life) {
    add(&into, 100, 0, 0, 0);
    add(&into, 400, 0, 0, 1);
    free_block(&into, 0);
    free_block(&into, 1);
    add(&from, 300, 0, 0, 2);
    free_block(&from, 2);
    add(&from, 200, 0, 0, 3);
    add(&from, 200, 0, 1, 4);
    free_block(&from, 3);
    ashlar__recording_close(&into);
    ashlar__recording_close(&from);
    CHECK(merge() == ASHLAR_OK);
    CHECK_ZU(into.count, 3);
    CHECK(into.allocs[0].bytes == 300 && into.allocs[0].end == 2);
    CHECK(into.allocs[1].bytes == 400 && into.allocs[1].end == 3);
    CHECK(into.allocs[2].bytes == 200 && into.allocs[2].end == ASHLAR_NOT_PLANNED);
    CHECK(into.stream_count == 2 && into.stream_states[1] == &states[1]);
}

CASE(refusals_are_paired_with_refusals) {
    for (int i = 0; i < 2; i++) {
        ashlar_recording *to = i == 0 ? &into : &from;
        ashlar__recording_add(to, i == 0 ? 900 : 800, 0, &states[0], NULL);
        for (int k = 0; k < 1 + i; k++) {
            add(to, 100, 0, 0, k);
            free_block(to, k);
        }
        ashlar__recording_close(to);
    }
    CHECK(from.allocs[0].is_refused && from.allocs[0].end == ASHLAR_NOT_PLANNED);
    CHECK(merge() == ASHLAR_OK);
    CHECK_ZU(into.count, 3);
    CHECK(into.allocs[0].is_refused && into.allocs[0].bytes == 800);
    CHECK(into.allocs[0].end == ASHLAR_NOT_PLANNED);
    CHECK(!into.allocs[1].is_refused && into.allocs[1].bytes == 100 && into.allocs[1].end == 2);
    chain(&from, "aa", 1000); /* the steps that are not refused */
    CHECK(merge() == ASHLAR_OK);
    CHECK_ZU(into.count, 3);
    CHECK(into.allocs[0].is_refused && into.allocs[0].bytes == 800);
    CHECK(into.allocs[1].bytes == 1000 && into.allocs[1].is_landing);
}

CASE(a_merge_fails_whole) {
    for (unsigned long n = 1; n <= 5; n++) {
        chain(&into, "ab", 100);
        chain(&from, "abc", 200);
        ashlar_status status;
        HOST_FAILS_AT(n, status = merge());
        CHECK(status == (n <= 4 ? ASHLAR_EHOSTMEM : ASHLAR_OK));
        CHECK_ZU(into.count, n <= 4 ? 2 : 3);
        CHECK_ZU(into.allocs[0].bytes, n <= 4 ? 100 : 200);
    }
}

CASE(streams_of_a_merge_may_be_too_many) {
    for (int i = 0; i < ASHLAR_PLAN_STREAMS_MAX; i++) {
        add(&into, 100, 0, i, i);
    }
    add(&from, 100, 0, ASHLAR_PLAN_STREAMS_MAX, 0);
    ashlar__recording_close(&into);
    ashlar__recording_close(&from);
    CHECK_FAILS(merge(), ASHLAR_EOVERFLOW, "more than 128 streams");
    CHECK_ZU(into.count, ASHLAR_PLAN_STREAMS_MAX);
}

CASE(a_peak_is_what_was_live_at_once_by_stream) {
    size_t peaks[ASHLAR_PLAN_STREAMS_MAX];
    add(&r, 1000, 0, 0, 0);
    add(&r, 600, 0, 1, 1);
    add(&r, 1000, 0, 0, 2);
    free_block(&r, 0);
    free_block(&r, 2);
    add(&r, 1025, 0, 0, 3); /* a slot is of whole 512 bytes */
    add(&r, 9999, 0, 1, 4); /* outlives the step, so it is not planned */
    free_block(&r, 1);
    free_block(&r, 3);
    ashlar__recording_close(&r);
    CHECK(ashlar__recording_find_peaks(&r, false, peaks) == ASHLAR_OK);
    CHECK_ZU(peaks[0], 2048);
    CHECK_ZU(peaks[1], 1024);
    r.allocs[0].is_shared = true;
    CHECK(ashlar__recording_find_peaks(&r, true, peaks) == ASHLAR_OK);
    CHECK_ZU(peaks[0], 1024 + 1536); /* the first one's slot and the last one */
    ashlar_status status;
    HOST_FAILS_AT(1, status = ashlar__recording_find_peaks(&r, false, peaks));
    CHECK(status == ASHLAR_EHOSTMEM);
}

CASE(a_merge_keeps_the_highest_peak_of_its_steps) {
    add(&into, 512, 0, 0, 0);
    add(&into, 512, 0, 0, 1);
    add(&from, 1536, 0, 0, 2);
    free_block(&into, 0);
    free_block(&into, 1);
    free_block(&from, 2);
    ashlar__recording_close(&into);
    ashlar__recording_close(&from);
    CHECK(ashlar__recording_find_peaks(&into, false, into.peaks) == ASHLAR_OK);
    CHECK(ashlar__recording_find_peaks(&from, false, from.peaks) == ASHLAR_OK);
    CHECK(merge() == ASHLAR_OK);
    CHECK_ZU(into.peaks[0], 1536);
    size_t peaks[ASHLAR_PLAN_STREAMS_MAX];
    CHECK(ashlar__recording_find_peaks(&into, false, peaks) == ASHLAR_OK);
    CHECK_ZU(peaks[0], 2048); /* what a plan for both needs */
}

/* ---- steps of merged recordings ---- */

enum { STEPS = 6, ALLOCS = 12, DRAWN_TAGS = 3 };

static ashlar_random random_state;

static size_t below(size_t bound) {
    return (size_t)ashlar__random_below(&random_state, bound);
}

/* A step of drawn tags, sizes and lifetimes, some of whose blocks are shared. */
static void draw_step(ashlar_recording *to) {
    const int count = 1 + (int)below(ALLOCS);
    bool is_live[ALLOCS] = {false};
    for (int i = 0; i < count; i++) {
        add(to, 1 + below(1000), (unsigned)below(DRAWN_TAGS), 0, i);
        is_live[i] = true;
        for (int k = 0; k <= i; k++) {
            if (is_live[k] && below(3) == 0) {
                CHECK(below(4) != 0 || ashlar__recording_share(to, &blocks[k]));
                free_block(to, k);
                is_live[k] = false;
            }
        }
    }
    for (int k = 0; k < count; k++) {
        if (is_live[k]) {
            free_block(to, k);
        }
    }
    ashlar__recording_close(to);
}

/* Whether each allocation of the step, which goes to the next one alike, finds room for its size,
 * life and uses there. */
static bool finds_its_own(const ashlar_recording *merged, const ashlar_recording *step) {
    uint32_t to[ALLOCS], at = 0;
    for (uint32_t i = 0; i < step->count; i++, at++) {
        while (at < merged->count && merged->allocs[at].tag != step->allocs[i].tag) {
            at++;
        }
        if (at == merged->count) {
            return false;
        }
        to[i] = at;
    }
    bool fits = true;
    for (uint32_t i = 0; i < step->count; i++) {
        const ashlar_recorded *own = &step->allocs[i], *found = &merged->allocs[to[i]];
        fits = fits && found->bytes >= own->bytes && found->end > to[own->end - 1] &&
               found->is_shared >= own->is_shared;
    }
    return fits;
}

static ashlar_status merge_into(ashlar_recording *base, ashlar_recording *more) {
    ashlar_recording merged;
    const ashlar_status status = ashlar__recording_merge(base, more, &merged);
    if (status == ASHLAR_OK) {
        ashlar__recording_finish(base);
        *base = merged;
    }
    ashlar__recording_finish(more);
    return status;
}

/* A copy of a closed recording. */
static ashlar_recording copy_of(const ashlar_recording *recording) {
    ashlar_recording copy = *recording;
    copy.allocs = ashlar__host_calloc(recording->count, sizeof *copy.allocs);
    memcpy(copy.allocs, recording->allocs, recording->count * sizeof *copy.allocs);
    return copy;
}

/* Merge steps in pairs, pairs of pairs and so on, as neighbours are joined. Those that cannot be
 * merged stay alone. Returns how many merges of recordings that were merged themselves succeeded.
 */
static int check_tree(void) {
    ashlar_recording steps[STEPS] = {{0}}, merged[STEPS];
    bool is_in[STEPS][STEPS] = {{false}}; /* whether merged[i] has steps[k] */
    int deep = 0;
    for (int i = 0; i < STEPS; i++) {
        draw_step(&steps[i]);
        merged[i] = copy_of(&steps[i]);
        is_in[i][i] = true;
    }
    for (int left = STEPS; left > 1; left--) {
        const size_t i = below((size_t)left - 1);
        const bool is_deep = merged[i + 1].peaks[0] > 0; /* serves as a mark here */
        if (merge_into(&merged[i], &merged[i + 1]) == ASHLAR_OK) {
            deep += is_deep;
            merged[i].peaks[0] = 1;
            for (int k = 0; k < STEPS; k++) {
                is_in[i][k] |= is_in[i + 1][k];
            }
        }
        memmove(&merged[i + 1], &merged[i + 2], ((size_t)left - 2 - i) * sizeof merged[0]);
        memmove(&is_in[i + 1], &is_in[i + 2], ((size_t)left - 2 - i) * sizeof is_in[0]);
    }
    for (int k = 0; k < STEPS; k++) {
        CHECK(!is_in[0][k] || finds_its_own(&merged[0], &steps[k]));
        ashlar__recording_finish(&steps[k]);
    }
    ashlar__recording_finish(&merged[0]);
    return deep;
}

CASE(every_merged_step_finds_its_own) {
    int deep = 0;
    for (uint64_t seed = 1; seed <= 3000 && check_failed == 0; seed++) {
        ashlar__random_init(&random_state, seed);
        deep += check_tree();
    }
    CHECK(deep > 1000);
}

RUN_CASES_AFTER(check_each = finish_all)
