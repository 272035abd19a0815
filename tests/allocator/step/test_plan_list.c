/*
 * test_plan_list.c - that a list of events is as good as the step that it lists, that a plan of
 * lifetimes keeps apart what is live at one time, and that it is written as other packers read it.
 */
#include "tests/allocator/step/plan_file_fixture.h"

#include <ashlar/plan_list.h>
#include <ashlar/graph_pool.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static ashlar_status record(const ashlar_plan_event *events, size_t count) {
    return ashlar_plan_record_events(allocator, streams[0], 7, events, count);
}

/* ---- events ---- */

static size_t events_of(const script *s, ashlar_plan_event events[SCRIPT_OPS]) {
    for (size_t i = 0; i < s->count; i++) {
        events[i] = (ashlar_plan_event){.block = s->ops[i].block,
                                        .bytes = s->ops[i].bytes,
                                        .tag = s->ops[i].tag,
                                        .is_free = s->ops[i].is_free};
    }
    return s->count;
}

/* A block that is freed elsewhere is not planned: as if it were not freed in the step. */
CASE(events_give_the_plan_that_the_step_gives) {
    ashlar_plan_event events[SCRIPT_OPS];
    script first, second;
    for (draw_state = 1; draw_state <= 20; draw_state++) {
        const uint64_t seed = draw_state;
        draw_script(&first, 1);
        draw_script(&second, 1);
        REQUIRE(set_up_plans());
        play(&first, 7, streams[0]);
        ashlar_plan_record_next(allocator, 7);
        play(&second, 7, streams[0]); /* merged */
        CHECK(ashlar_plan_save(allocator, path, NULL) == ASHLAR_OK);
        const size_t bytes = read_text(text);
        play(&first, 7, streams[0]);
        play(&second, 7, streams[0]);
        const ashlar_plan_stats want = plans();
        REQUIRE(renew_allocator());
        CHECK(record(events, events_of(&first, events)) == ASHLAR_OK);
        CHECK(record(events, events_of(&second, events)) == ASHLAR_OK);
        CHECK(ashlar_plan_save(allocator, path, NULL) == ASHLAR_OK);
        CHECK(read_text(again) == bytes && memcmp(text, again, bytes) == 0);
        play(&first, 7, streams[0]);
        play(&second, 7, streams[0]);
        const ashlar_plan_stats now = plans();
        CHECK(now.steps_recorded == 2 && now.steps_replayed == 2 && now.hits > 0);
        CHECK(now.hits == want.hits && now.unplanned == want.unplanned);
        CHECK(ashlar_plan_miss_total(&now) == ashlar_plan_miss_total(&want));
        tear_down();
        draw_state = seed;
    }
}

CASE(a_block_number_is_used_again_after_its_free) {
    const ashlar_plan_event events[] = {{.block = 3, .bytes = 1000},
                                        {.block = 3, .is_free = true},
                                        {.block = 3, .bytes = 2000},
                                        {.block = 3, .is_free = true}};
    REQUIRE(set_up_plans());
    REQUIRE(record(events, COUNT(events)) == ASHLAR_OK);
    CHECK_ZU(plans().slot_count, 2);
    CHECK_ZU(plans().plan_bytes, 2048);
}

CASE_WITH(a_list_is_planned_when_it_is_asked_for, set_up_plans()) {
    const ashlar_plan_event events[] = {{.block = 0, .bytes = 1000}, {.block = 0, .is_free = true}};
    const ashlar_plan_options later = {.build_after = ASHLAR_PLAN_BUILD_NEVER};
    CHECK(ashlar_plan_set_options(allocator, &later) == ASHLAR_OK);
    REQUIRE(record(events, COUNT(events)) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 0);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 1);
    /* No events are a step, too. */
    CHECK(ashlar_plan_record_events(allocator, streams[1], 1, NULL, 0) == ASHLAR_OK);
    CHECK(ashlar_plan_record_buffers(allocator, streams[2], 1, NULL, 0, ASHLAR_TAG_USER) ==
          ASHLAR_OK);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 3);
}

CASE(a_wrong_event_is_named_and_nothing_is_recorded) {
    static const struct {
        ashlar_plan_event events[3];
        const char *stream_idx;
    } cases[] = {
        {{{0}}, "events[0]: 0 bytes"},
        {{{.bytes = 1}, {.block = 1, .is_free = true}}, "events[1]: block 1 is not live"},
        {{{.bytes = 1}, {.is_free = true}, {.is_free = true}}, "events[2]: block 0 is not live"},
        {{{.bytes = 1}, {.bytes = 1}}, "events[1]: block 0 is live already"},
        {{{.bytes = 1}, {.block = 3, .bytes = 1}}, "events[1]: block 3 is out of range"},
        {{{.block = 3, .is_free = true}}, "events[0]: block 3 is out of range"},
        {{{.bytes = 1, .tag = ASHLAR_TAG_COUNT}}, "events[0]: 8 is no ashlar_tag"},
    };
    REQUIRE(set_up_plans());
    for (size_t i = 0; i < COUNT(cases); i++) {
        CHECK_FAILS(record(cases[i].events, 3), ASHLAR_EINVAL, cases[i].stream_idx);
        CHECK(allocator->planner.keys == NULL);
    }
    CHECK(record(cases[0].events, (size_t)1 << 31) == ASHLAR_EOVERFLOW);
}

CASE_WITH(a_key_that_is_being_recorded_is_refused, set_up_plans()) {
    const ashlar_plan_event events[] = {{.bytes = 1}};
    CHECK(ashlar_step_begin(allocator, streams[0], 7) == ASHLAR_OK);
    CHECK_FAILS(record(events, 1), ASHLAR_EINVAL, "a step of key 7 is recorded");
    CHECK(ashlar_plan_record_events(allocator, streams[0], 8, events, 1) == ASHLAR_OK);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK_ZU(plans().steps_recorded, 2);
}

CASE_WITH(a_stream_that_is_captured_is_refused, set_up_plans()) {
    const ashlar_plan_event events[] = {{.bytes = 1}};
    ashlar_graph_pool *pool = NULL;
    write_sealed(SMALL_BODY);
    REQUIRE(ashlar_graph_pool_begin(allocator, streams[0], &pool) == ASHLAR_OK);
    CHECK_FAILS(record(events, 1), ASHLAR_EINVAL, "captured");
    check_refused(ASHLAR_EINVAL, "number 0 is being captured");
    ashlar_graph_pool_end(pool);
    CHECK(ashlar_graph_pool_release(pool, streams[0]) == ASHLAR_OK);
    CHECK(load() == ASHLAR_OK);
}

CASE_WITH(nothing_is_recorded_without_caches, set_up("memory=1GiB")) {
    const ashlar_plan_event events[] = {{.bytes = 1}, {.bytes = 0}};
    const ashlar_pack_buffer buffers[] = {{1, 0, 1}};
    CHECK(record(events, 1) == ASHLAR_OK);
    CHECK(record(events, 2) == ASHLAR_EINVAL);
    CHECK(ashlar_plan_record_buffers(allocator, streams[0], 7, buffers, 1, ASHLAR_TAG_USER) ==
          ASHLAR_OK);
    CHECK(allocator->planner.keys == NULL);
}

/* ---- lifetimes ---- */

enum { BUFFERS = 60 };

static size_t rounded(size_t bytes) {
    return (bytes + 511) / 512 * 512;
}

static size_t draw_buffers(ashlar_pack_buffer *buffers, size_t *rounded_bytes) {
    const size_t count = 1 + draw(BUFFERS);
    for (size_t i = 0; i < count; i++) {
        const uint64_t begin = draw(40); /* many at one time */
        buffers[i] = (ashlar_pack_buffer){1 + draw(5000), begin, begin + 1 + draw(20)};
        rounded_bytes[i] = rounded(buffers[i].bytes);
    }
    return count;
}

/* The order of the recording: by begin, then as they were. */
static void sort(ashlar_pack_buffer *buffers, size_t count) {
    for (size_t i = 1; i < count; i++) {
        const ashlar_pack_buffer b = buffers[i];
        size_t at = i;
        for (; at > 0 && buffers[at - 1].begin > b.begin; at--) {
            buffers[at] = buffers[at - 1];
        }
        buffers[at] = b;
    }
}

static size_t peak_of(const ashlar_pack_buffer *buffers, size_t count) {
    size_t peak = 0;
    for (uint64_t time = 0; time < 64; time++) {
        size_t live = 0;
        for (size_t i = 0; i < count; i++) {
            const bool is_live = buffers[i].begin <= time && time < buffers[i].end;
            live += is_live ? rounded(buffers[i].bytes) : 0;
        }
        peak = live > peak ? live : peak;
    }
    return peak;
}

/* What the file says of slot i; false: there is no such row. */
static bool read_row(const char **at, unsigned long long row[5]) {
    int used = 0;
    const bool is_row = sscanf(*at, "%llu,%llu,%llu,%llu,%llu\n%n", &row[0], &row[1], &row[2],
                               &row[3], &row[4], &used) == 5;
    *at += used;
    return is_row;
}

CASE(lifetimes_are_planned_and_written) {
    static ashlar_pack_buffer buffers[BUFFERS];
    size_t bytes[BUFFERS];
    unsigned long long rows[BUFFERS][5];
    for (uint64_t seed = 1; seed <= 30; seed++) {
        draw_state = seed;
        const size_t count = draw_buffers(buffers, bytes);
        REQUIRE(set_up_plans());
        REQUIRE(ashlar_plan_record_buffers(allocator, streams[1], seed, buffers, count,
                                           ASHLAR_TAG_WORKSPACE) == ASHLAR_OK);
        CHECK_ZU(plans().slot_count, count);
        CHECK_ZU(plans().bound_bytes, peak_of(buffers, count));
        CHECK(ashlar_plan_write_minimalloc(allocator, streams[1], seed, streams[1], path) ==
              ASHLAR_OK);
        (void)read_text(text);
        sort(buffers, count);
        const char *at = text + strlen("id,lower,upper,size,offset\n");
        CHECK(strncmp(text, "id,lower,upper,size,offset\n", (size_t)(at - text)) == 0);
        size_t top = 0, wrong = 0;
        for (size_t i = 0; i < count; i++) {
            REQUIRE(read_row(&at, rows[i]));
            wrong += rows[i][0] != i || rows[i][3] != rounded(buffers[i].bytes);
            top = rows[i][3] + rows[i][4] > top ? rows[i][3] + rows[i][4] : top;
            for (size_t k = 0; k < i; k++) {
                const bool is_at_once =
                    buffers[i].begin < buffers[k].end && buffers[k].begin < buffers[i].end;
                const bool says_so = rows[i][1] < rows[k][2] && rows[k][1] < rows[i][2];
                const bool overlap =
                    rows[i][4] < rows[k][4] + rows[k][3] && rows[k][4] < rows[i][4] + rows[i][3];
                wrong += is_at_once != says_so || (is_at_once && overlap);
            }
        }
        CHECK(*at == '\0' && wrong == 0);
        CHECK_ZU(plans().plan_bytes, top);
        tear_down();
    }
}

CASE_WITH(a_wrong_buffer_is_named, set_up_plans()) {
    const ashlar_pack_buffer buffers[] = {{5, 0, 1}, {0, 0, 1}, {5, 3, 3}, {5, 3, 2}};
    CHECK_FAILS(ashlar_plan_record_buffers(allocator, streams[0], 1, buffers, 2, ASHLAR_TAG_USER),
                ASHLAR_EINVAL, "buffers[1]: 0 bytes");
    for (size_t i = 2; i < 4; i++) {
        CHECK_FAILS(
            ashlar_plan_record_buffers(allocator, streams[0], 1, &buffers[i], 1, ASHLAR_TAG_USER),
            ASHLAR_EINVAL, "buffers[0]: it ends");
    }
    CHECK(ashlar_plan_record_buffers(allocator, streams[0], 1, buffers, 1, ASHLAR_TAG_COUNT) ==
          ASHLAR_EINVAL);
    CHECK(allocator->planner.keys == NULL);
}

/* ---- writing ---- */

CASE_WITH(each_stream_of_a_key_is_written_by_itself, set_up_plans()) {
    write_sealed("ashlar-plan,2\nfingerprint," PRINT "\nplans,512,2,1\n"
                 "key,7,1,0,1,2,4\npart,0,1536,1536\npart,1,512,512\n"
                 "alloc,1000,0,0,0,4,512\nalloc,9,0,1,0,2,0\nalloc,9,0,0,0\nalloc,9,0,0,0,4,0\n");
    REQUIRE(load() == ASHLAR_OK);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[0], 7, streams[0], path) == ASHLAR_OK);
    (void)read_text(text);
    CHECK(strcmp(text, "id,lower,upper,size,offset\n0,0,4,1024,512\n3,3,4,512,0\n") == 0);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[0], 7, streams[1], path) == ASHLAR_OK);
    (void)read_text(text);
    CHECK(strcmp(text, "id,lower,upper,size,offset\n1,1,2,512,0\n") == 0);
    CHECK(ashlar_plan_write_svg(allocator, streams[0], 7, streams[0], path) == ASHLAR_OK);
    (void)read_text(text);
    CHECK_HAS(text, "plan of key 7");
    CHECK_HAS(text, "#0, user: 1024 B at 512, 0 to 4</title>");
    CHECK_HAS(text, "#1, user: 512 B at 0, 3 to 4</title>");
    CHECK(strstr(text, "1 to 2</title>") == NULL);
    CHECK(ashlar_plan_write_svg(allocator, streams[0], 8, streams[0], path) == ASHLAR_EINVAL);
    CHECK(ashlar_plan_write_svg(allocator, streams[0], 7, streams[0], "/nowhere/at/all") ==
          ASHLAR_EIO);
}

CASE_WITH(what_has_no_slots_is_not_written, set_up_plans()) {
    const ashlar_plan_event events[] = {{.bytes = 1}, {.is_free = true}};
    const ashlar_plan_options later = {.build_after = ASHLAR_PLAN_BUILD_NEVER};
    write_bytes("old", 3);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[0], 7, streams[0], path) ==
          ASHLAR_EINVAL);
    CHECK(ashlar_plan_set_options(allocator, &later) == ASHLAR_OK);
    REQUIRE(record(events, 2) == ASHLAR_OK);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[0], 7, streams[0], path) ==
          ASHLAR_EINVAL);
    REQUIRE(ashlar_plan_build(allocator) == ASHLAR_OK);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[0], 8, streams[0], path) ==
          ASHLAR_EINVAL);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[1], 7, streams[0], path) ==
          ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_plan_write_minimalloc(allocator, streams[0], 7, streams[1], path),
                ASHLAR_EINVAL, "key 7 has no plan with slots for this stream");
    CHECK(read_text(text) == 3 && names_in_folder() == 1);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[0], 7, streams[0], "/nowhere/at/all") ==
          ASHLAR_EIO);
    CHECK(ashlar_plan_write_minimalloc(allocator, streams[0], 7, streams[0], path) == ASHLAR_OK);
    CHECK(read_text(text) > 3);
}

/* ---- what fails on the way ---- */

/* Lists of one step; the second is merged with the first. */
static ashlar_status record_all(void) {
    static const ashlar_plan_event events[] = {
        {.block = 0, .bytes = 4 << 20}, {.block = 1, .bytes = 5}, {.block = 0, .is_free = true}};
    static const ashlar_pack_buffer buffers[] = {{9000, 3, 4}, {100, 1, 4}};
    const ashlar_status status = record(events, COUNT(events));
    return status != ASHLAR_OK ? status
                               : ashlar_plan_record_buffers(allocator, streams[0], 7, buffers,
                                                            COUNT(buffers), ASHLAR_TAG_USER);
}

CASE(lists_without_host_memory_are_recorded_again) {
    unsigned long n = 0, refused = 0;
    for (bool is_over = false; !is_over;) {
        n++;
        REQUIRE(set_up_plans());
        ashlar__host_fail_at(n);
        const ashlar_status status = record_all();
        is_over = is_still_armed(n);
        refused += status != ASHLAR_OK;
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        check_all();
        const ashlar_plan_stats before = plans();
        CHECK(status != ASHLAR_OK || (before.steps_recorded == 2 && before.plan_count == 1));
        CHECK(record_all() == ASHLAR_OK);
        CHECK(plans().steps_recorded == before.steps_recorded + 2 && plans().plan_count == 1);
        tear_down();
    }
    CHECK(refused > 15);
}

CASE(lists_that_the_driver_fails_are_recorded_again) {
    unsigned refused = 0;
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        bool has_fired = true;
        for (uint64_t n = 1; has_fired; n++) {
            REQUIRE(set_up_plans());
            ashlar__driver_fail_at(driver, fn, n, CU_UNKNOWN);
            const ashlar_status status = record_all();
            has_fired = atomic_load(&driver->fail_countdown) == 0;
            ashlar__driver_fail_at(driver, fn, 0, CU_SUCCESS);
            refused += status != ASHLAR_OK;
            CHECK(status == ASHLAR_OK || (has_fired && status == ASHLAR_EDRIVER));
            CHECK(record_all() == ASHLAR_OK && plans().plan_count == 1);
            check_all();
            ashlar_allocator_destroy(allocator);
            tear_down_device(); /* a context that could not be popped is still there */
        }
    }
    CHECK(refused > 2);
}

CASE(a_step_that_is_too_large_for_the_device_is_recorded) {
    const ashlar_plan_event events[] = {{.bytes = (size_t)1 << 62}, {.is_free = true}};
    REQUIRE(set_up_plans());
    CHECK_FAILS(record(events, 2), ASHLAR_ENOMEM, "more than the device has");
    CHECK(plans().steps_recorded == 1 && plans().plan_count == 0);
}

RUN_CASES_IN_FOLDER()
