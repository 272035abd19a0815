/*
 * test_plan_file_oom.c - loads and saves of plans in which the n-th host allocation, or the n-th
 * call of each driver function, fails; and devices and disks that are full: nothing is changed, and
 * the next try works.
 */
#include "tests/allocator/step/plan_file_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#include <ashlar/plan_list.h>

/* Two keys, three streams. */
#define TWO_KEYS                                                  \
    "ashlar-plan,2\nfingerprint," PRINT "\nplans,512,3,2\n"       \
    "key,1,1,0,2,2,3\npart,0,4194304,4194304\npart,1,512,512\n"   \
    "alloc,4194304,0,0,0,3,0\nalloc,9,1,1,0\nalloc,5,2,1,0,3,0\n" \
    "key,2,1,0,1,2,2\npart,2,6291456,6291456\npart,0,1024,1024\n" \
    "alloc,6291456,0,0,0,2,0\nalloc,1024,1,1,0,2,0\n"

static void check_whole(ashlar_status status) {
    CHECK(status == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 2);
    CHECK_ZU(plans().slot_count, 4);
    CHECK_ZU(plans().plan_bytes, 4194304 + 512 + 6291456);
    check_all();
}

/* ---- loading ---- */

CASE(a_load_without_host_memory_changes_nothing) {
    unsigned long n = 0, refused = 0;
    for (bool is_over = false; !is_over;) {
        n++;
        REQUIRE(set_up_plans());
        write_sealed(TWO_KEYS);
        ashlar__host_fail_at(n);
        const ashlar_status status = load();
        is_over = is_still_armed(n);
        if (status == ASHLAR_OK) {
            check_whole(status);
        } else {
            refused++;
            CHECK(status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
            CHECK(allocator->planner.keys == NULL && allocator->planner.memories == NULL);
            CHECK(!allocator->planner.is_installing);
            check_all();
            check_whole(load());
        }
        tear_down();
    }
    CHECK(refused > 20);
}

CASE(a_load_that_the_driver_fails_changes_nothing) {
    static const cu_result results[] = {CU_OUT_OF_MEMORY, CU_UNKNOWN};
    unsigned refused = 0;
    for (size_t i = 0; i < 2; i++) {
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
            bool has_fired = true;
            for (uint64_t n = 1; has_fired; n++) {
                REQUIRE(set_up_plans());
                write_sealed(TWO_KEYS);
                ashlar__driver_fail_at(driver, fn, n, results[i]);
                const ashlar_status status = load();
                has_fired = atomic_load(&driver->fail_countdown) == 0;
                ashlar__driver_fail_at(driver, fn, 0, CU_SUCCESS);
                if (status != ASHLAR_OK) {
                    refused++;
                    CHECK(status == ASHLAR_EDRIVER || status == ASHLAR_ENOMEM);
                    CHECK(allocator->planner.keys == NULL && allocator->planner.memories == NULL);
                    check_all();
                    CHECK(load() == ASHLAR_OK);
                }
                check_whole(ASHLAR_OK);
                ashlar_allocator_destroy(allocator);
                tear_down_device(); /* a context that could not be popped is still there */
            }
        }
    }
    CHECK(refused > 10);
}

CASE_WITH(a_load_into_a_full_device_takes_nothing, set_up_cached("memory=16MiB", 4 * MIB)) {
    write_sealed(TWO_KEYS);
    unsigned char *other =
        take(8 * MIB, streams[3]); /* the first plan memory fits, the last does not */
    check_refused(ASHLAR_ENOMEM, "/file: no memory for its plans");
    give(other);
    check_whole(load());
    tear_down();
    REQUIRE(set_up_cached("memory=16MiB", 4 * MIB));
    write_sealed("ashlar-plan,2\nfingerprint," PRINT "\nplans,512,1,1\n"
                 "key,1,1,0,1,1,1\npart,0,9223372036854775808,9223372036854775808\n"
                 "alloc,9223372036854775808,0,0,0,1,0\n");
    check_refused(ASHLAR_ENOMEM, "more than the device has");
}

static unsigned char *in_the_way; /* what the program can give back, or NULL */

/* The program is asked for memory in the middle of a load, without the lock. */
static bool give_back(void *user, size_t bytes) {
    (void)user, (void)bytes;
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_EINVAL);
    CHECK(ashlar_plan_build(allocator) == ASHLAR_EINVAL);
    CHECK(ashlar_plan_save(allocator, path, PRINT) == ASHLAR_EINVAL);
    CHECK(load() == ASHLAR_EINVAL);
    CHECK(ashlar_plan_record_events(allocator, streams[0], 1, NULL, 0) == ASHLAR_EINVAL);
    CHECK(ashlar_plan_record_events(allocator, streams[0], 9, NULL, 0) == ASHLAR_EINVAL);
    for (uint64_t key = 1; key <= 3; key++) { /* two of the load's, and a new one */
        CHECK(ashlar_step_begin(allocator, streams[0], key) == ASHLAR_OK);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    const bool has_some = in_the_way != NULL;
    CHECK(ashlar_free(allocator, in_the_way) == ASHLAR_OK);
    in_the_way = NULL;
    return has_some;
}

CASE(steps_that_begin_while_a_load_waits_take_the_ordinary_path) {
    for (int succeeds = 0; succeeds < 2; succeeds++) {
        REQUIRE(set_up_cached("memory=16MiB", 4 * MIB));
        write_sealed(TWO_KEYS);
        unsigned char *other = take(8 * MIB, streams[3]);
        in_the_way = succeeds != 0 ? other : NULL;
        ashlar_allocator_set_reclaim(allocator, give_back, NULL);
        const ashlar_status status = load();
        ashlar_allocator_set_reclaim(allocator, NULL, NULL);
        CHECK(status == (succeeds != 0 ? ASHLAR_OK : ASHLAR_ENOMEM));
        CHECK_ZU(plans().steps_declined, 3);
        CHECK_ZU(plans().plan_count, succeeds != 0 ? 2 : 0);
        /* Their key has none, and nothing of the load's is there if that failed. */
        size_t key_count = 0;
        for (const ashlar_step_key *key = allocator->planner.keys; key != NULL; key = key->next) {
            key_count++;
            CHECK(!key->is_busy && key->plan != NULL);
        }
        CHECK_ZU(key_count, succeeds != 0 ? 2 : 0);
        check_all();
        if (succeeds == 0) {
            give(other);
        }
        tear_down();
    }
}

/* ---- saving ---- */

CASE_WITH(a_disk_that_fills_leaves_the_old_file, set_up_plans()) {
    struct rlimit before;
    write_sealed(TWO_KEYS);
    REQUIRE(load() == ASHLAR_OK);
    write_bytes("old", 3);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const struct rlimit tight = {100, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    const ashlar_status status = ashlar_plan_save(allocator, path, PRINT);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    (void)signal(SIGXFSZ, handler);
    CHECK_FAILS(status, ASHLAR_EIO, path);
    CHECK(read_text(text) == 3 && memcmp(text, "old", 3) == 0 && names_in_folder() == 1);
    CHECK(ashlar_plan_save(allocator, "/nowhere/at/all", PRINT) == ASHLAR_EIO);
}

CASE_WITH(a_save_without_host_memory_leaves_the_old_file, set_up_plans()) {
    unsigned long n = 0;
    bool is_over = false;
    write_sealed(TWO_KEYS);
    REQUIRE(load() == ASHLAR_OK);
    while (!is_over) {
        n++;
        write_bytes("old", 3);
        ashlar__host_fail_at(n);
        const ashlar_status status = ashlar_plan_save(allocator, path, PRINT);
        is_over = is_still_armed(n);
        const size_t bytes = read_text(text);
        CHECK(status == (is_over ? ASHLAR_OK : ASHLAR_EHOSTMEM));
        CHECK(is_over || (bytes == 3 && memcmp(text, "old", 3) == 0));
        CHECK(names_in_folder() == 1);
    }
    write_sealed(TWO_KEYS);
    (void)read_text(again);
    CHECK(strcmp(text, again) == 0 && n > 10);
}

RUN_CASES_IN_FOLDER()
