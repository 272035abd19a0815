/*
 * test_leaks.c - leaks=on: what is live when the allocator ends, or the process, is told by tag and
 * size; the latter without a call of the driver.
 */
#include "tests/allocator/core/guard_fixture.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE "memory=64MiB"

static bool set_up_leaking(ashlar_guard guard) {
    report_count = 0;
    if (!set_up_device(DEVICE) || make_guarded(guard, true) != ASHLAR_OK) {
        return false;
    }
    ashlar_allocator_set_report(allocator, keep_report, &report_count);
    return true;
}

static void *leak(size_t bytes, ashlar_tag tag) {
    void *ptr = NULL;
    CHECK(ashlar_alloc_tagged(allocator, bytes, tag, streams[0], &ptr) == ASHLAR_OK);
    return ptr;
}

/* ---- the process's end; first: a device used by the parent works in no child ---- */

static int report_fd;
static uint64_t calls_at_exit;

static uint64_t calls_now(void) {
    uint64_t sum = 0;
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        sum += atomic_load(&driver->calls[fn]);
    }
    return sum;
}

static void send(const char *line, void *unused) {
    (void)unused;
    (void)!write(report_fd, line, strlen(line));
    (void)!write(report_fd, "\n", 1);
}

/* Runs after the library's own: it was registered before. */
static void send_calls(void) {
    char line[64];
    (void)snprintf(line, sizeof line, "%llu calls",
                   (unsigned long long)(calls_now() - calls_at_exit));
    send(line, NULL);
}

/* What a process that ends by exit(), having done `act`, says at its end. */
static void in_child(void (*act)(void), char *said, size_t said_bytes) {
    int ends[2], status = 1;
    size_t count = 0;
    said[0] = '\0';
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        report_fd = ends[1];
        (void)atexit(send_calls);
        act();
        calls_at_exit = calls_now();
        exit(check_failed);
    }
    close(ends[1]);
    for (ssize_t n = 1; n > 0 && count<said_bytes - 1; count += n> 0 ? (size_t)n : 0) {
        n = read(ends[0], said + count, said_bytes - 1 - count);
    }
    said[count] = '\0';
    close(ends[0]);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static ashlar_allocator *others[2];

/* Three allocators: one is destroyed, one leaks, one has nothing to tell. */
static void leave_behind(void) {
    for (int i = 0; i < 2; i++) {
        CHECK(make_guarded(ASHLAR_GUARD_OFF, true) == ASHLAR_OK);
        others[i] = allocator;
        ashlar_allocator_set_report(allocator, send, NULL);
    }
    CHECK(make_guarded(ASHLAR_GUARD_OFF, true) == ASHLAR_OK);
    ashlar_allocator_set_report(allocator, send, NULL);
    (void)leak(700, ASHLAR_TAG_BATCH);
    (void)leak(700, ASHLAR_TAG_BATCH);
    ashlar_allocator_destroy(others[0]);
}

static void leak_at_exit(void) {
    CHECK(set_up_device(DEVICE));
    leave_behind();
}

CASE(an_allocator_never_destroyed_is_reported_without_a_driver_call) {
    char said[1024];
    in_child(leak_at_exit, said, sizeof said);
    CHECK_HAS(said, "leak: soft:0: 2 blocks of 1400 bytes are still live\n"
                    "leak: batch: 2 of 700 bytes, 1400 bytes, at 0x");
    CHECK_HAS(said, "\n0 calls\n");
    const char *first = strstr(said, "still live");
    CHECK(first != NULL && strstr(first + 1, "still live") == NULL);
}

/* ---- the allocator's end ---- */

CASE(live_blocks_are_told_by_tag_and_size_the_most_bytes_first) {
    static const ashlar_guard guards[] = {ASHLAR_GUARD_OFF, ASHLAR_GUARD_FILL};
    for (size_t i = 0; i < 2; i++) {
        char text[256];
        void *few[2], *many[6];
        REQUIRE(set_up_leaking(guards[i]));
        few[0] = leak(700, ASHLAR_TAG_BATCH);
        for (int k = 0; k < 6; k++) {
            many[k] = leak(700, ASHLAR_TAG_MOMENTS);
        }
        few[1] = leak(5000, ASHLAR_TAG_MOMENTS);
        give(leak(900, ASHLAR_TAG_USER));
        ashlar_allocator_destroy(allocator);
        CHECK(report_count == 4);
        CHECK(strcmp(reports[0], "leak: soft:0: 8 blocks of 9900 bytes are still live") == 0);
        (void)snprintf(text, sizeof text, "leak: moments: 1 of 5000 bytes, 5000 bytes, at %p",
                       few[1]);
        CHECK(strcmp(reports[1], text) == 0);
        (void)snprintf(text, sizeof text,
                       "leak: moments: 6 of 700 bytes, 4200 bytes, at %p %p %p %p ...", many[0],
                       many[1], many[2], many[3]);
        CHECK(strcmp(reports[2], text) == 0);
        (void)snprintf(text, sizeof text, "leak: batch: 1 of 700 bytes, 700 bytes, at %p", few[0]);
        CHECK(strcmp(reports[3], text) == 0);
        tear_down_device();
    }
}

CASE_WITH(groups_beyond_the_largest_are_only_counted, set_up_leaking(ASHLAR_GUARD_OFF)) {
    for (size_t i = 1; i <= 40; i++) {
        (void)leak(i * 100, ASHLAR_TAG_USER);
    }
    ashlar_allocator_destroy(allocator);
    CHECK(report_count == 34);
    CHECK_HAS(reports[1], "1 of 4000 bytes");
    CHECK_HAS(reports[32], "1 of 900 bytes");
    CHECK_HAS(reports[33], "leak: and blocks of 8 more sizes");
}

CASE(without_the_option_or_a_callback_nothing_is_said) {
    REQUIRE(set_up_guarded(DEVICE, ASHLAR_GUARD_OFF));
    (void)leak(700, ASHLAR_TAG_BATCH);
    ashlar_allocator_destroy(allocator);
    CHECK(report_count == 0);
    tear_down_device();
    REQUIRE(set_up_leaking(ASHLAR_GUARD_OFF));
    ashlar_allocator_set_report(allocator, NULL, NULL);
    (void)leak(700, ASHLAR_TAG_BATCH);
    ashlar_allocator_destroy(allocator);
    CHECK(report_count == 0);
}

RUN_CASES()
