/*
 * test_allocator_model.c - random operations on the allocators of two devices against the model.
 *
 * ASHLAR_SEED=N runs the episode of that seed alone, as a failing run prints it.
 * ASHLAR_MODEL_OPERATIONS=N runs N operations of each scene instead of a few thousand.
 */
#include "tests/allocator/core/model_run.h"

#define ADVERSARIAL "mode=adversarial,clocks=on"
#define EAGER "clocks=on"

enum { EPISODE = 3000, EPISODES = CHECK_SHARE(5, 1) };

/* Of all scenes: what is rare in each. */
static struct {
    uint64_t drained, gathered, reclaimed;
    size_t refused, warned;
} rare;

static uint64_t number_from_env(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

/* All episodes of a scene; returns what they did together. */
static ashlar_stats play_scene(const scene *s) {
    const uint64_t only = number_from_env("ASHLAR_SEED", 0);
    const uint64_t operations =
        number_from_env("ASHLAR_MODEL_OPERATIONS", (uint64_t)EPISODE * EPISODES);
    const uint64_t episodes = only != 0 ? 1 : (operations + EPISODE - 1) / EPISODE;
    verdict all = {.at = 0};
    for (uint64_t i = 1; i <= episodes && check_failed == 0; i++) {
        const verdict v = play(s, only != 0 ? only : i, EPISODE);
        CHECK(v.failure[0] == '\0');
        add_served(&all.sums, &v.sums);
        all.refused += v.refused;
        all.warned += v.warned;
        all.peak_lag = v.peak_lag > all.peak_lag ? v.peak_lag : all.peak_lag;
    }
    rare.drained += all.sums.served_drained;
    rare.gathered += all.sums.served_gathered;
    rare.reclaimed += all.sums.served_reclaimed;
    rare.refused += all.refused;
    rare.warned += all.warned;
    printf("# %s: %llu blocks, %zu refused, %zu warnings, peaks off by %llu at most\n", s->name,
           (unsigned long long)all.sums.alloc_count, all.refused, all.warned,
           (unsigned long long)all.peak_lag);
    return all.sums;
}

/* Each step of the ladder was taken, but for those that a scene rules out. */
static void check_ladder(const ashlar_stats *s, bool is_cached, bool is_adversarial) {
    if (number_from_env("ASHLAR_SEED", 0) != 0) {
        return; /* one episode need not have everything */
    }
    CHECK((s->served_cached > 0) == is_cached && (is_cached || s->served_drained == 0));
    CHECK(s->served_same_stream > 0 && s->served_idle > 0 && s->served_mapped > 0);
    CHECK(s->served_completed > 0);
    CHECK(!is_adversarial || (s->served_waited > 0 && s->served_after_sync > 0));
}

CASE(without_caches_in_adversarial_mode) {
    const scene s = {.name = "no caches",
                     .device = ADVERSARIAL,
                     .virtual_memory = true,
                     .threads = 3,
                     .read_every = 1};
    const ashlar_stats sums = play_scene(&s);
    check_ladder(&sums, false, true);
}

CASE(with_small_caches_of_three_threads) {
    const scene s = {.name = "small caches",
                     .device = ADVERSARIAL,
                     .cache_bytes = 256 * KIB,
                     .virtual_memory = true,
                     .threads = 3,
                     .read_every = 1};
    const ashlar_stats sums = play_scene(&s);
    check_ladder(&sums, true, true);
}

CASE(with_caches_chosen_and_statistics_read_seldom) {
    const scene s = {.name = "auto caches",
                     .device = ADVERSARIAL,
                     .cache_bytes = CACHE_AUTO,
                     .virtual_memory = true,
                     .threads = 3,
                     .read_every = 61};
    const ashlar_stats sums = play_scene(&s);
    check_ladder(&sums, true, true);
}

CASE(with_one_thread_whose_peaks_are_exact) {
    const scene s = {.name = "one thread",
                     .device = EAGER,
                     .cache_bytes = 4 * MIB,
                     .virtual_memory = true,
                     .threads = 1,
                     .read_every = 97};
    const ashlar_stats sums = play_scene(&s);
    check_ladder(&sums, true, false);
}

CASE(with_segments_and_caches) {
    const scene s = {.name = "segments",
                     .device = ADVERSARIAL,
                     .cache_bytes = CACHE_AUTO,
                     .threads = 3,
                     .read_every = 7};
    const ashlar_stats sums = play_scene(&s);
    check_ladder(&sums, true, true);
}

CASE(with_segments_in_eager_mode) {
    const scene s = {.name = "segments, eager", .device = EAGER, .threads = 2, .read_every = 1};
    const ashlar_stats sums = play_scene(&s);
    check_ladder(&sums, false, false);
}

CASE(with_a_callback_that_frees_blocks) {
    const scene s = {.name = "reclaim",
                     .device = ADVERSARIAL,
                     .cache_bytes = 1 * MIB,
                     .virtual_memory = true,
                     .threads = 3,
                     .read_every = 3,
                     .reclaims = true};
    const ashlar_stats sums = play_scene(&s);
    check_ladder(&sums, true, true);
}

CASE(rare_things_happened_somewhere) {
    const bool is_one_episode = number_from_env("ASHLAR_SEED", 0) != 0;
    CHECK(is_one_episode || (rare.drained > 0 && rare.gathered > 0 && rare.reclaimed > 0));
    CHECK(is_one_episode || (rare.refused > 0 && rare.warned > 0));
}

RUN_CASES()
