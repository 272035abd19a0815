/*
 * test_step_model.c - random programs, recorded and replayed: what plan.h guarantees. That no
 * divergence makes two live blocks overlap is the world's affair.
 *
 * ASHLAR_SEED=N runs the one episode of that seed.
 */
#include "tests/allocator/step/step_fixture.h"

#include <stdlib.h>

#include "tests/allocator/core/helper_fixture.h"

enum { EPISODES = CHECK_SHARE(40, 10) }; /* of each kind */

static uint64_t only_seed(void) {
    const char *text = getenv("ASHLAR_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* ---- the guarantee ---- */

static shadow *given;

static void give_it(void) {
    shadow_give(given);
}

/* By the thread itself, or by another. */
static void give_by_any(shadow *s) {
    given = s;
    if (draw(4) != 0) {
        give_it();
    } else {
        CHECK(helper_do(give_it));
    }
}

/* Smaller, freed earlier, and not to the end. */
static program dominated_by(const program *p) {
    program q = *p;
    q.count = draw(3) == 0 ? (uint32_t)draw(p->count + 1) : p->count;
    for (uint32_t i = 0; i < q.count; i++) {
        item *it = &q.items[i];
        it->bytes = draw(3) == 0 ? 1 + draw(it->bytes) : it->bytes;
        if (it->end != OUTLIVES && draw(3) == 0) {
            it->end = i + 1 + (uint32_t)draw(it->end - i);
        }
        if (it->end != OUTLIVES && it->end > q.count) {
            it->end = q.count;
        }
    }
    return q;
}

static bool is_kind_kept(const program *p, const bool *is_kept, uint32_t i) {
    bool is_any = false;
    for (uint32_t k = i + 1; k < p->count; k++) {
        is_any |= is_kept[k] && p->items[k].tag == p->items[i].tag &&
                  p->items[k].stream == p->items[i].stream;
    }
    return is_any;
}

/* Without some of the allocations whose tag and stream no later one has. */
static program thinned(const program *p) {
    bool is_kept[ITEMS];
    uint32_t kept_before[ITEMS + 1] = {0};
    program q = {.count = 0};
    for (uint32_t i = p->count; i-- > 0;) {
        is_kept[i] = draw(2) == 0 || is_kind_kept(p, is_kept, i);
    }
    for (uint32_t i = 0; i < p->count; i++) {
        kept_before[i + 1] = kept_before[i] + is_kept[i];
    }
    for (uint32_t i = 0; i < p->count; i++) {
        if (is_kept[i]) {
            const uint32_t last = p->items[i].end;
            q.items[q.count] = p->items[i];
            q.items[q.count++].end = last == OUTLIVES ? last : kept_before[last];
        }
    }
    return q;
}

static size_t planned_count(const program *p) {
    size_t count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        count += p->items[i].end != OUTLIVES;
    }
    return count;
}

static void record(const program *p, uint64_t key) {
    begin(key);
    run_program(p, give_by_any, NULL);
    end();
}

/* A program of a key that has a plan for it. hits: how many requests have slots. */
static void check_replay(const program *p, uint64_t key, size_t hits) {
    const ashlar_plan_stats before = plans();
    const uint64_t calls = driver_calls(), reserved = reserved_bytes();
    begin(key);
    run_program(p, give_by_any, NULL);
    end();
    const ashlar_plan_stats after = plans();
    CHECK_ZU(after.steps_replayed - before.steps_replayed, 1);
    CHECK_ZU(after.miss_count, before.miss_count);
    CHECK_ZU(after.hits - before.hits, hits);
    CHECK_ZU(after.unplanned - before.unplanned, p->count - hits);
    /* What outlives the step is not the plan's, and may need more. */
    CHECK(hits < p->count || (driver_calls() == calls && reserved_bytes() == reserved));
}

static bool set_up_episode(uint64_t seed, const char *memory) {
    ashlar_config config = steps_config();
    config.without_virtual_memory = seed % 4 == 0;
    config.trace_events = seed % 5 == 0 ? 64 : 0;
    return set_up_steps(memory, &config, seed) && helper_start();
}

static void dominated_episode(uint64_t seed) {
    program p;
    REQUIRE(set_up_episode(seed, "64MiB"));
    draw_program(&p, 1 + (uint32_t)draw(ITEMS), 1 + (int)draw(STREAMS), seed % 3 == 0 ? 12 : 0);
    record(&p, seed);
    for (int round = 0; round < 6; round++) {
        const program thin = round % 2 == 0 ? p : thinned(&p), q = dominated_by(&thin);
        check_replay(&q, seed, planned_count(&q));
    }
    helper_end();
    tear_down_steps();
}

typedef void (*episode_fn)(uint64_t seed);

static void run_episodes(episode_fn episode, uint64_t count) {
    const uint64_t only = only_seed();
    for (uint64_t i = 1; i <= (only != 0 ? 1 : count) && check_failed == 0; i++) {
        const uint64_t seed = only != 0 ? only : i;
        episode(seed);
        if (check_failed > 0) {
            printf("# ASHLAR_SEED=%llu fails\n", (unsigned long long)seed);
        }
    }
}

CASE(a_dominated_step_never_misses) {
    run_episodes(dominated_episode, EPISODES);
}

/* A sequence of `length`: each time step keeps something, and needs a workspace. */
static program sequence_of(uint32_t length, int stream_count, bool has_tags) {
    program p = {.count = 4 * length};
    for (uint32_t t = 0; t < length; t++) {
        const int stream = (int)t % stream_count;
        const ashlar_tag back = has_tags ? ASHLAR_TAG_GRADIENTS : ASHLAR_TAG_ACTIVATIONS;
        const ashlar_tag work = has_tags ? ASHLAR_TAG_WORKSPACE : ASHLAR_TAG_ACTIVATIONS;
        const uint32_t f = 2 * t, b = 4 * length - 2 * t - 2;
        p.items[f] = (item){3000, ASHLAR_TAG_ACTIVATIONS, stream, b + 2};
        p.items[f + 1] = (item){2000 + 100 * length, work, stream, f + 2};
        p.items[b] = (item){5000, back, stream, b + 2};
        p.items[b + 1] = (item){700 * length, work, stream, b + 2};
    }
    return p;
}

/* Steps of several kinds under one key; or sequences of several lengths. */
static void merged_episode(uint64_t seed) {
    enum { MERGED = 4 };
    program steps[MERGED];
    const ashlar_plan_options options = {.build_after = MERGED};
    REQUIRE(set_up_episode(seed, "64MiB"));
    CHECK(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
    const int stream_count = 1 + (int)draw(STREAMS);
    const bool has_tags = draw(2) == 0;
    for (int i = 0; i < MERGED; i++) {
        if (seed % 2 == 0) {
            steps[i] = sequence_of(1 + (uint32_t)draw(ITEMS / 4), stream_count, has_tags);
        } else {
            draw_program(&steps[i], 1 + (uint32_t)draw(ITEMS), stream_count, 0);
        }
        record(&steps[i], seed);
    }
    CHECK_ZU(plans().plan_count, 1);
    for (int round = 0; round < 2 * MERGED; round++) {
        const program *p = &steps[draw(MERGED)], q = round < MERGED ? *p : dominated_by(p);
        check_replay(&q, seed, q.count);
    }
    helper_end();
    tear_down_steps();
}

CASE(every_step_of_those_merged_is_dominated) {
    run_episodes(merged_episode, EPISODES);
}

RUN_CASES()
