/*
 * test_guard_places.c - that a double or foreign free is told with its own place and the place of
 * the free before, as long as the log of frees holds that.
 */
#include "tests/allocator/core/guard_fixture.h"

#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include "allocator/base/compiler.h"

#define DEVICE "memory=64MiB"

enum { FUNCTION_BYTES = 4096 }; /* no function here is longer */

/* One function for each free; volatile keeps each call where it stands. */
static volatile ashlar_status last;

static ASHLAR_NOINLINE void free_first(void *ptr) {
    last = ashlar_free(allocator, ptr);
}

static ASHLAR_NOINLINE void free_second(void *ptr) {
    last = ashlar_free(allocator, ptr);
    last = last == ASHLAR_OK ? ASHLAR_EIO : last; /* unlike the first, lest they become one */
}

static ASHLAR_NOINLINE void free_first_on(void *ptr) {
    last = ashlar_free_on(allocator, ptr, streams[1]);
}

/* The address behind `words` in the last detail lies in the function. */
static void check_place(const char *words, void (*function)(void *)) {
    const char *at = strstr(ashlar_error_detail(), words);
    unsigned long long thread = 0;
    void *address = NULL;
    CHECK(at != NULL);
    if (at != NULL) {
        CHECK(sscanf(at + strlen(words), "thread %llu at %p in ", &thread, &address) == 2);
        CHECK(thread == ashlar__thread_number());
        CHECK((uintptr_t)address - (uintptr_t)function < FUNCTION_BYTES);
        CHECK_HAS(at, "in test_guard_places+0x");
    }
}

CASE(a_double_free_tells_both_places) {
    REQUIRE(set_up_guarded(DEVICE, ASHLAR_GUARD_FILL));
    void *ptr = take(1000, streams[0]);
    free_first(ptr);
    CHECK(last == ASHLAR_OK);
    free_second(ptr);
    CHECK_FAILS(last, ASHLAR_EPOINTER, "freed before");
    check_place("; this free: ", free_second);
    check_place("; the one before: ", free_first);
    ptr = take(1000, streams[0]);
    free_first_on(ptr);
    CHECK(last == ASHLAR_OK);
    free_first_on(ptr);
    CHECK(last == ASHLAR_EPOINTER);
    check_place("; this free: ", free_first_on);
    check_place("; the one before: ", free_first_on);
}

CASE(a_foreign_free_tells_its_own_place) {
    static char elsewhere[16];
    REQUIRE(set_up_guarded(DEVICE, ASHLAR_GUARD_FILL));
    free_second(elsewhere);
    CHECK(last == ASHLAR_EPOINTER);
    check_place("; this free: ", free_second);
    CHECK(strstr(ashlar_error_detail(), "the one before") == NULL);
    free_second(elsewhere); /* the refused one was no free */
    CHECK(strstr(ashlar_error_detail(), "the one before") == NULL);
}

static void *free_in_thread(void *ptr) {
    free_first(ptr);
    return (void *)(uintptr_t)ashlar__thread_number();
}

CASE(the_thread_of_the_free_before_is_told) {
    char text[64];
    void *number = NULL;
    pthread_t thread;
    REQUIRE(set_up_guarded(DEVICE, ASHLAR_GUARD_FILL));
    void *ptr = take(1000, streams[0]);
    REQUIRE(pthread_create(&thread, NULL, free_in_thread, ptr) == 0);
    REQUIRE(pthread_join(thread, &number) == 0);
    CHECK((uintptr_t)number != ashlar__thread_number());
    free_second(ptr);
    (void)snprintf(text, sizeof text, "the one before: thread %zu at ", (size_t)number);
    CHECK_HAS(ashlar_error_detail(), text);
    check_place("; this free: ", free_second);
}

CASE(the_newest_free_of_an_address_is_the_one_told) {
    REQUIRE(set_up_guarded(DEVICE, ASHLAR_GUARD_FILL));
    void *ptr = take(2 * MIB, streams[0]);
    allocator->guards.fill->limit_bytes = 0; /* no quarantine: the address comes back at once */
    free_second(ptr);
    CHECK(take(2 * MIB, streams[0]) == ptr);
    free_first(ptr);
    free_second(ptr);
    CHECK(last == ASHLAR_EPOINTER);
    check_place("; the one before: ", free_first);
}

CASE(the_log_holds_the_last_1024_frees) {
    static ashlar_free_log log; /* as the header of the allocator promises */
    CHECK_ZU(ASHLAR_FREE_LOG_ENTRIES, 1024);
    CHECK(ashlar__free_log_find(&log, 0) == NULL);
    for (cu_ptr ptr = 1; ptr <= 3000; ptr++) {
        ashlar__free_log_add(&log, ptr, (ashlar_call_site){.thread = ptr});
        CHECK(ashlar__free_log_find(&log, ptr)->place.thread == ptr);
        CHECK(ptr < 1024 || ashlar__free_log_find(&log, ptr - 1023)->place.thread == ptr - 1023);
        CHECK(ptr <= 1024 || ashlar__free_log_find(&log, ptr - 1024) == NULL);
    }
}

CASE(a_place_is_written_as_far_as_it_is_known) {
    char text[ASHLAR_CALL_SITE_BYTES];
    ashlar__call_site_write((ashlar_call_site){(const void *)(uintptr_t)16, 7}, text);
    CHECK(strcmp(text, "thread 7 at 0x10") == 0);
    void *in_library = NULL;
    pid_t (*const function)(void) = getppid; /* exported by its library, in every build */
    memcpy(&in_library, &function, sizeof in_library);
    ashlar__call_site_write((ashlar_call_site){in_library, 8}, text);
    CHECK_HAS(text, "thread 8 at 0x");
    CHECK_HAS(text, "+0x");
    CHECK_HAS(text, "+0x0)");
    CHECK(strchr(text, '/') == NULL); /* of the file, its name alone */
}

CASE_WITH(without_a_guard_nothing_is_added, set_up(DEVICE)) {
    static char elsewhere[16];
    free_second(elsewhere);
    CHECK(last == ASHLAR_EPOINTER);
    CHECK(strstr(ashlar_error_detail(), "this free") == NULL);
}

RUN_CASES()
