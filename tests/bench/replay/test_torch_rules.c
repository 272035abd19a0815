/* test_torch_rules.c - PyTorch's rules: sizes, splits, growth, and what is given back; and that a
 * record which differs is named. tests/torch_random.py compares them with PyTorch itself. */
#include "bench/replay/torch.h"

#include <inttypes.h>
#include <stdio.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "tests/bench/replay/events_fixture.h"

#define MIB (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7f0000000000)

static char text[1 << 14]; /* of the case's history */
static ashlar_torch_settings settings;
static ashlar_torch_result result;

static void begin(const char *conf) {
    (void)snprintf(text, sizeof text, HEAD "setting\tPYTORCH_CUDA_ALLOC_CONF\t%s\n", conf);
}

/* An event at BASE + `offset`, of a stack and of the pool 0:`pool`. */
static void add_of(unsigned stack, unsigned pool, const char *action, uint64_t offset,
                   uint64_t bytes) {
    const size_t used = strlen(text);
    (void)snprintf(text + used, sizeof text - used,
                   "event\t0\t%s\t0x%" PRIx64 "\t%" PRIu64 "\t0\t%u\t0:%u\n", action, BASE + offset,
                   bytes, stack, pool);
}

static void add(const char *action, uint64_t offset, uint64_t bytes) {
    add_of(0, 0, action, offset, bytes);
}

/* Events as words: an action, the offset from BASE, and the size, both in MiB. `free` is both
 * events of a free. */
static void add_all(const char *words) {
    char action[32];
    unsigned offset, mib;
    for (int used = 0; sscanf(words, "%31s %u %u %n", action, &offset, &mib, &used) == 3;
         words += used) {
        if (strcmp(action, "free") == 0) {
            add("free_requested", offset * MIB, mib * MIB);
            add("free_completed", offset * MIB, mib * MIB);
        } else {
            add(action, offset * MIB, mib * MIB);
        }
    }
}

/* A segment, or a mapped range of one, that is there, and free, when the history begins; what it is
 * of: stream, size, pool, whether it can grow. */
#define PLAIN "0\tlarge\t0:0\t0"
#define CAN_GROW "0\tlarge\t0:0\t1"
static void add_cached(uint64_t offset_mib, uint64_t mib, const char *of) {
    const size_t used = strlen(text);
    const uint64_t address = BASE + offset_mib * MIB, bytes = mib * MIB;
    (void)snprintf(text + used, sizeof text - used,
                   "segment\t0\t0x%" PRIx64 "\t%" PRIu64 "\t%s\n"
                   "block\t0\t0x%" PRIx64 "\t%" PRIu64 "\t0\tinactive\n",
                   address, bytes, of, address, bytes);
}

/* A segment of the pool 0:1, for an allocation that is freed. */
static void add_freed(uint64_t offset_mib, uint64_t segment_mib, uint64_t mib) {
    add_of(0, 1, "segment_alloc", offset_mib * MIB, segment_mib * MIB);
    add_of(0, 1, "alloc", offset_mib * MIB, mib * MIB);
    add_of(0, 1, "free_requested", offset_mib * MIB, mib * MIB);
    add_of(0, 1, "free_completed", offset_mib * MIB, mib * MIB);
}

static ashlar_status replay(bool is_recorded, uint64_t device_bytes) {
    const ashlar_torch_config config = {
        .settings = &settings, .device_bytes = device_bytes, .is_recorded = is_recorded};
    ASHLAR_TRY(parse_events(text));
    ASHLAR_TRY(ashlar__torch_settings_recorded(events_of, &settings));
    return ashlar__torch_replay(events_of, &config, &result);
}

/* Everything that the history records is what the rules say, on such a device, and on one whose
 * size is not known. */
static bool is_equal_on(uint64_t device_bytes) {
    bool is = true;
    for (uint64_t bytes = device_bytes;; bytes = 0) {
        is = is && replay(true, bytes) == ASHLAR_OK && result.left[0] == '\0' &&
             result.equal_events == result.segment_events && result.equal_places == result.places;
        if (bytes == 0 || !is) {
            break;
        }
    }
    if (!is) {
        printf("# %s\n", result.left[0] != '\0' ? result.left : ashlar_error_detail());
    }
    return is;
}

static bool is_equal(void) {
    return is_equal_on(0);
}

CASE(small_requests_share_segments_and_large_ones_have_their_own) {
    begin("");
    add_all("segment_alloc 0 2");
    add("alloc", 0, 1);
    add("alloc", 512, 513);
    add("alloc", 1536, MIB);
    add_all("segment_alloc 100 20");
    add("alloc", 100 * MIB, MIB + 1);
    add("alloc", 101 * MIB + 512, 9 * MIB);
    add_all("segment_alloc 200 12");
    add("alloc", 200 * MIB, 10 * MIB + 1);
    add_all("segment_alloc 300 10 alloc 300 10");
    CHECK(is_equal());
    CHECK(result.reserved_peak == 44 * MIB && result.driver_calls == 4);
    CHECK(result.live_peak == 1 + 513 + MIB + MIB + 1 + 9 * MIB + 20 * MIB + 1);
}

CASE(the_best_fit_is_taken_and_neighbours_are_merged) {
    begin("");
    add_all("segment_alloc 0 64 alloc 0 64 segment_alloc 100 32 "
            "alloc 100 32 free 0 64 free 100 32 "
            "alloc 100 20 alloc 120 11"); /* all of the rest: 1 MiB is no block of its own */
    add_all("alloc 0 12 free 120 11 free 100 20 "
            "alloc 100 32 free 0 12"); /* behind it the rest of its segment is cached */
    add_all("alloc 0 64");
    CHECK(is_equal());
}

/* As where the event is lost by which the first one was given back: two free blocks are one range.
 */
CASE(segments_that_overlap_are_kept_apart) {
    begin("");
    add_all("segment_alloc 100 22 alloc 100 22 free 100 22 alloc 100 5 alloc 105 17 "
            "segment_alloc 102 20 alloc 102 3 free 105 17 free 102 3");
    CHECK(is_equal());
    const ashlar_torch_config config = {.settings = &settings, .is_recorded = true};
    settings.is_by_number = false; /* so that nothing but their addresses tells blocks apart */
    REQUIRE(ashlar__torch_replay(events_of, &config, &result) == ASHLAR_OK);
    CHECK(result.equal_places == 4 && result.reserved_peak == 42 * MIB);
}

/* Two segments of one size; the one at the higher address is the older. */
static void add_two(uint64_t taken) {
    begin("");
    add_all("segment_alloc 100 30 alloc 100 30 segment_alloc 0 30 "
            "alloc 0 30 free 0 30 free 100 30");
    add("alloc", taken, 30 * MIB);
}

CASE(of_equal_blocks_the_older_segments_is_taken_or_the_lowest) {
    const ashlar_torch_config config = {.settings = &settings, .is_recorded = true};
    add_two(100 * MIB);
    CHECK(is_equal());
    add_two(0);
    REQUIRE(replay(true, 0) == ASHLAR_OK);
    CHECK(result.equal_places == 2 && result.left[0] != '\0');
    REQUIRE(ashlar__torch_compare(events_of, &config, &settings, &result) == ASHLAR_OK);
    CHECK(!settings.is_by_number && result.equal_places == 3 && result.left[0] == '\0');
    add_two(100 * MIB);
    add_all("alloc 200 1"); /* no version does so: the rule that holds longer counts */
    REQUIRE(replay(true, 0) == ASHLAR_OK);
    REQUIRE(ashlar__torch_compare(events_of, &config, &settings, &result) == ASHLAR_OK);
    CHECK(settings.is_by_number && result.equal_places == 3 && result.left[0] != '\0');
}

CASE(a_refusal_releases_what_is_cached) {
    begin("");
    add_all("segment_alloc 0 64 alloc 0 64 segment_alloc 100 20 "
            "alloc 100 2 free 0 64 segment_free 0 64 "
            "segment_alloc 200 70 alloc 200 70");
    add("oom", 512, 80 * MIB);
    CHECK(is_equal());
    CHECK_ZU(result.failures, 1);
    /* On its own, on a device that is as large as it has to be, and on a smaller one. */
    REQUIRE(replay(false, 90 * MIB) == ASHLAR_OK);
    CHECK(result.failures == 0 && result.reserved_peak == 90 * MIB && result.driver_calls == 4);
    REQUIRE(replay(false, 88 * MIB) == ASHLAR_OK);
    CHECK_ZU(result.failures, 1);
}

CASE(what_waits_for_a_stream_is_used_again_when_that_is_done) {
    begin("");
    add_all("segment_alloc 0 30 alloc 0 30 segment_alloc 100 2");
    add("alloc", 100 * MIB, 1);
    add_all("free_requested 0 30");
    add("alloc", 100 * MIB + 512, 1);
    add_all("free_completed 0 30 alloc 0 30");
    CHECK(is_equal());
}

/* PyTorch can leave actions out of a history. */
CASE(either_event_of_a_free_will_do) {
    static const char *const actions[] = {"free_requested", "free_completed"};
    for (size_t i = 0; i < 2; i++) {
        begin("");
        add("segment_alloc", 0, 30 * MIB);
        add("alloc", 0, 30 * MIB);
        add(actions[i], 0, 30 * MIB);
        add("alloc", 0, 30 * MIB);
        CHECK(is_equal());
        CHECK_ZU(result.live_peak, 30 * MIB);
    }
}

/* PyTorch does not search again after it has waited. */
CASE(a_wait_after_a_refusal_comes_too_late_for_the_search) {
    begin("");
    add_all("segment_alloc 0 30 alloc 0 30 segment_alloc 100 20 "
            "alloc 100 2 alloc 102 8 free_requested 102 8 "
            "alloc 110 8 free_completed 102 8 oom 0 8 "
            "alloc 102 8");
    CHECK(is_equal());
    CHECK_ZU(result.failures, 1);
}

/* It comes before the request, which then releases the oversize block first, or after it has looked
 * for one: the cache is released as a whole, from the smallest segment on. */
CASE(a_wait_after_a_refusal_comes_too_late_for_an_oversize_release) {
    static const char *const releases[] = {"segment_free 0 64 segment_free 100 20 ",
                                           "segment_free 100 20 segment_free 0 64 "};
    for (size_t i = 0; i < 2; i++) {
        begin("max_split_size_mb:50");
        add_all("segment_alloc 0 64 alloc 0 64 segment_alloc 100 20 alloc 100 20 free 100 20 "
                "free_requested 0 64 segment_alloc 300 30 alloc 300 30 free_completed 0 64 ");
        add_all(releases[i]);
        add_all("segment_alloc 200 70 alloc 200 70");
        CHECK(is_equal());
    }
}

/* What it completes in a pool stays there, whether or not something like it is released. */
CASE(a_wait_after_a_refusal_comes_too_late_for_the_oversize_release_of_a_pool) {
    for (size_t i = 0; i < 2; i++) {
        begin("max_split_size_mb:50");
        add_all(i == 0 ? "" : "segment_alloc 200 64 alloc 200 64 free 200 64");
        add_of(0, 1, "segment_alloc", 0, 64 * MIB);
        add_of(0, 1, "alloc", 0, 64 * MIB);
        add_of(0, 1, "free_requested", 0, 64 * MIB);
        add_of(0, 1, "segment_alloc", 100 * MIB, 30 * MIB);
        add_of(0, 1, "alloc", 100 * MIB, 30 * MIB);
        add_of(0, 1, "free_completed", 0, 64 * MIB);
        add_all(i == 0 ? "" : "segment_free 200 64");
        add_of(0, 1, "oom", 0, 70 * MIB);
        CHECK(is_equal());
    }
}

CASE(the_cache_is_emptied_twice_before_an_allocation) {
    begin("");
    add_all("segment_alloc 0 30 alloc 0 30 segment_alloc 100 20 alloc 100 2 free 0 30");
    add_freed(200, 30, 30);
    add_of(1, 1, "segment_free", 200 * MIB, 30 * MIB); /* the program drops a pool, */
    add_of(2, 0, "segment_free", 0, 30 * MIB);         /* and empties the cache */
    add_all("alloc 102 8");
    CHECK(is_equal());
}

/* It has another stack. What is small in its pool stays cached. */
CASE(behind_an_emptied_cache_an_allocation_releases_by_itself) {
    begin("max_split_size_mb:50");
    add_all("segment_alloc 0 30 alloc 0 30 free 0 30");
    add_freed(100, 2, 1);
    add_freed(200, 64, 64);
    add_of(1, 0, "segment_free", 0, 30 * MIB);
    add_of(0, 1, "segment_free", 200 * MIB, 64 * MIB);
    add_of(0, 1, "segment_alloc", 300 * MIB, 70 * MIB);
    add_of(0, 1, "alloc", 300 * MIB, 70 * MIB);
    CHECK(is_equal());
}

CASE(oversize_blocks_are_neither_split_nor_given_to_small_requests) {
    begin("max_split_size_mb:50");
    add_all(
        "segment_alloc 0 64 alloc 0 64 free 0 64 "
        "segment_alloc 100 20 alloc 100 20 alloc 0 60 "
        "free 0 60 segment_free 0 64"); /* the refusal of this one releases the oversize block */
    add_all("segment_alloc 200 90 alloc 200 90");
    CHECK(is_equal());
}

CASE(garbage_is_collected_from_the_oldest_segments_on) {
    begin("garbage_collection_threshold:0.5,per_process_memory_fraction:0.5");
    for (uint64_t at = 0; at < 300 * MIB; at += 100 * MIB) {
        add("segment_alloc", at, 30 * MIB);
        add("alloc", at, 30 * MIB);
    }
    add_all("free 0 30 free 100 30 alloc 0 30"); /* so that the other one is the older */
    add_all("free 0 30 segment_free 100 30 segment_alloc 300 40 "
            "alloc 300 40");
    CHECK(is_equal_on(320 * MIB));
    CHECK_ZU(result.equal_events, 5);
}

/* How long they are in the cache is not known: the record tells, and not in the order of address.
 */
CASE(garbage_of_the_beginning_is_what_the_record_releases) {
    begin("garbage_collection_threshold:0.5,per_process_memory_fraction:0.5");
    add_cached(0, 30, PLAIN);
    add_cached(100, 30, PLAIN);
    add_cached(200, 30, PLAIN);
    add_all("segment_free 100 30 segment_free 0 30 segment_alloc 300 40 alloc 300 40");
    CHECK(is_equal_on(320 * MIB));
}

CASE(expandable_segments_grow_by_chunks_and_fill_the_lowest_gap) {
    begin("expandable_segments:True");
    add_all("segment_map 0 40 alloc 0 30 segment_map 40 20 "
            "alloc 30 25 free 0 30 segment_unmap 0 20"); /* empty_cache(): the whole chunks that are
                                                            free */
    add_all("alloc 20 10 segment_map 0 20 alloc 0 19");
    CHECK(is_equal());
    CHECK(result.driver_calls == 4 && result.reserved_peak == 60 * MIB);
}

/* A refusal leaves a second segment, for lack of room in the first one; nothing is mapped in it. */
CASE(where_a_segment_lies_of_which_nothing_was_mapped_tells_the_record) {
    static const char *const taken[] = {
        "segment_map 240 60 alloc 240 45 " /* the first, above it, */
        "free 230 10 free 240 45 alloc 230 55",
        "segment_map 0 60 alloc 0 45", /* or the second */
    };
    for (size_t i = 0; i < 2; i++) {
        begin("expandable_segments:True");
        add_all("segment_map 200 40 alloc 200 30 oom 0 91 alloc 230 10");
        add_all(taken[i]);
        CHECK(is_equal_on(100 * MIB));
    }
}

/* 120 MiB of addresses; after the unmapping 20 behind the last block, 60 behind the other free one.
 * The size of the device says so, or the record. */
CASE(the_block_that_can_grow_least_is_taken) {
    static const char *const blocks[] = {
        "alloc 0 15 alloc 15 65 alloc 80 12 free 15 65 segment_unmap 20 60 alloc 92 3",
        "alloc 0 12 alloc 12 68 alloc 80 15 free 12 68 segment_unmap 20 60 alloc 95 3"};
    for (size_t i = 0; i < 2; i++) {
        begin("expandable_segments:True");
        add_all("segment_map 0 100 alloc 0 100 free 0 100");
        add_all(blocks[i]);
        CHECK(is_equal_on(100 * MIB));
    }
}

/* Nothing tells that its first 20 MiB are before the first range, so that it ends at 120. */
CASE(where_a_segment_of_the_beginning_ends_tells_the_record) {
    begin("expandable_segments:True");
    add_cached(20, 20, CAN_GROW);
    add_cached(80, 40, CAN_GROW);
    add_all("alloc 80 15");
    CHECK(is_equal_on(100 * MIB));
}

/* 20 MiB are unmapped at 20, at 60, and at the end, which only the size of the device tells. */
CASE(a_segment_without_room_is_followed_by_another) {
    static const char *const holes[] = {
        "free 20 20 free 60 20 segment_unmap 20 20 segment_unmap 60 20",
        "free 20 20 free 40 20 segment_unmap 20 40"};
    for (size_t i = 0; i < 2; i++) {
        begin("expandable_segments:True");
        add_all("segment_map 0 20 alloc 0 20 segment_map 20 20 alloc 20 20 segment_map 40 20 "
                "alloc 40 20 segment_map 60 20 alloc 60 20 segment_map 80 20 alloc 80 20");
        add_all(holes[i]);
        add_all("segment_map 200 40 alloc 200 30");
        CHECK(i == 0 ? is_equal_on(100 * MIB) : replay(true, 0) == ASHLAR_OK);
        CHECK_ZU(result.equal_events, i == 0 ? 8 : 6); /* the second one has room */
    }
}

/* A refusal leaves a second segment, as above, but only the size of the device tells. */
CASE(a_segment_that_was_never_mapped_may_come_late) {
    for (size_t i = 0; i < 2; i++) {
        begin("expandable_segments:True");
        add_all("segment_map 200 100 alloc 200 100");
        add_all(i == 0 ? "oom 0 30" : "");
        add_all("free 200 100 alloc 200 15 alloc 215 65 alloc 280 12 free 215 65 "
                "segment_unmap 220 60 segment_map 0 40 alloc 0 30");
        CHECK(i == 0 ? is_equal_on(100 * MIB) : replay(true, 100 * MIB) == ASHLAR_OK);
        CHECK_ZU(result.equal_events, i == 0 ? 3 : 2);
    }
}

CASE(mapped_ranges_of_the_beginning_are_of_one_segment) {
    begin("expandable_segments:True");
    add_cached(20, 20, CAN_GROW);
    add_cached(60, 20, CAN_GROW);
    add_all("segment_map 0 20 segment_map 40 20 segment_map 80 20 alloc 0 100");
    CHECK(is_equal_on(100 * MIB));
}

/* Those of another stream or pool, or that are no whole chunks apart, or with others between. */
CASE(mapped_ranges_of_the_beginning_are_of_two_segments) {
    static const char *const others[] = {PLAIN, "1\tlarge\t0:0\t1", "0\tlarge\t0:1\t1"};
    for (size_t i = 0; i < 3; i++) {
        begin("expandable_segments:True");
        add_cached(100, 20, others[i]);
        add_cached(200, 20, CAN_GROW);
        add_all("segment_map 220 20 alloc 200 30 segment_map 0 60 alloc 0 50");
        CHECK(is_equal());
    }
    begin("expandable_segments:True");
    add_cached(210, 20, CAN_GROW);
    add_all("segment_map 230 20 alloc 210 30 segment_map 0 60 alloc 0 50");
    CHECK(is_equal());
}

CASE(a_request_beyond_all_addresses_is_followed_as_far_as_the_record_goes) {
    const uint64_t bytes = UINT64_C(1) << 45, chunks = (bytes / (20 * MIB) + 1) * 20 * MIB;
    begin("expandable_segments:True");
    add("segment_map", 0, chunks / 2);
    add("alloc", 0, bytes);
    REQUIRE(replay(true, 0) == ASHLAR_OK);
    CHECK(result.equal_events == 0 && result.left[0] != '\0');
}

CASE(without_a_record_what_is_mapped_grows_first) {
    begin("expandable_segments:True");
    add_all("alloc 200 30 alloc 0 110 free 0 110 free 200 30 alloc 200 45");
    REQUIRE(replay(false, 100 * MIB) == ASHLAR_OK);
    CHECK(result.failures == 1 && result.reserved_peak == 60 * MIB);
    REQUIRE(replay(false, 0) == ASHLAR_OK);
    CHECK(result.failures == 0 && result.reserved_peak == 140 * MIB);
}

CASE(a_record_that_differs_is_named_once) {
    begin("");
    add_all("segment_alloc 0 2");
    add("alloc", 0, 100);
    add_all("segment_alloc 100 22 alloc 100 2 segment_alloc 200 24 "
            "alloc 200 24");
    REQUIRE(replay(true, 0) == ASHLAR_OK);
    CHECK(result.segment_events == 3 && result.equal_events == 1 && result.equal_places == 1);
    CHECK_HAS(result.left, "stone.events:5: PyTorch recorded segment_alloc of 23068672 bytes");
    CHECK_HAS(result.left, "segment_alloc of 20971520 bytes");
}

CASE(settings_are_read_as_pytorch_reads_them) {
    ashlar_torch_settings s;
    REQUIRE(ashlar__torch_settings_parse(
                "--torch",
                "max_split_size_mb:128, roundup_power2_divisions:[4:1,16:8,>:2],"
                "expandable_segments:True,garbage_collection_threshold:0.5,backend:native",
                &s) == ASHLAR_OK);
    CHECK(s.max_split_bytes == 128 * MIB && s.is_expandable && s.gc_threshold > 0.4);
    CHECK(s.roundups[0] == 1 && s.roundups[2] == 1 && s.roundups[3] == 0 && s.roundups[4] == 8);
    CHECK(s.roundups[5] == 2 && s.roundups[ASHLAR_TORCH_ROUNDUPS - 1] == 2);
    CHECK_FAILS(ashlar__torch_settings_parse("--torch", "max_split_size:128", &s), ASHLAR_EINVAL,
                "--torch: PyTorch's allocator has no setting \"max_split_size\"");
    CHECK_FAILS(ashlar__torch_settings_parse(
                    "stone", "release_lock_on_hipmalloc:True,new_key:1,max_split_size_mb:20", &s),
                ASHLAR_EINVAL, "stone: PyTorch's allocator has no setting \"new_key\"");
    CHECK(s.max_split_bytes == 20 * MIB && s.max_non_split_rounding_bytes == 20 * MIB);
    REQUIRE(ashlar__torch_settings_parse("", "large_segment_size_mb:16,max_split_size_mb:16", &s) ==
            ASHLAR_OK);
    CHECK(s.max_non_split_rounding_bytes == 16 * MIB);
    CHECK_FAILS(ashlar__torch_settings_parse("--torch", "max_split_size_mb:19", &s), ASHLAR_EINVAL,
                "--torch: max_split_size_mb and max_non_split_rounding_mb have to be at least 20");
    CHECK_FAILS(ashlar__torch_settings_parse(
                    "--torch", "max_non_split_rounding_mb:25,large_segment_size_mb:30", &s),
                ASHLAR_EINVAL, "have to be at least 30");
    CHECK_FAILS(ashlar__torch_settings_parse("--torch", "roundup_power2_divisions:[3:2]", &s),
                ASHLAR_EINVAL, "is no value of roundup_power2_divisions");
}

CASE(requests_are_rounded_up_between_powers_of_two) {
    begin("roundup_power2_divisions:[1:4,8:1,16:4]");
    add_all("segment_alloc 0 24 alloc 0 21 segment_alloc 100 2");
    add("alloc", 100 * MIB, 5000); /* as below 1 MiB: 5 KiB of 4 to 8 */
    add("alloc", 100 * MIB + 5120, 1);
    add_all("segment_alloc 200 16 alloc 200 15"); /* not 16: this interval is not divided */
    CHECK(is_equal());
}

/* PyTorch 2.4 and 2.9 read > from the interval before on: the record has what it read. */
CASE(the_divisions_that_a_record_has_are_those_that_were_used) {
    begin("roundup_power2_divisions:[16:8,>:2]\nsetting\troundup.16\t2");
    add_all("segment_alloc 0 24 alloc 0 17");
    CHECK(is_equal());
    begin("\nsetting\troundup.16\t3");
    CHECK_FAILS(replay(true, 0), ASHLAR_EINVAL, "recorded settings: roundup.16 is no power of two");
}

CASE(without_host_memory_a_replay_leaves_nothing_behind) {
    REQUIRE(parse_events(SMALL_HISTORY) == ASHLAR_OK);
    REQUIRE(ashlar__torch_settings_parse("", NULL, &settings) == ASHLAR_OK);
    const ashlar_torch_config config = {.settings = &settings, .is_recorded = true};
    FOR_HOST_FAILURES(n, status, ashlar__torch_replay(events_of, &config, &result)) {
        CHECK(status != ASHLAR_OK || result.equal_events == 1);
    }
    CHECK(n > 5);
}

RUN_CASES()
