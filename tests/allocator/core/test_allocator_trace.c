/*
 * test_allocator_trace.c - that a traced allocator records what it does, all of it and in order.
 * The ring and the writers have tests of their own.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <pthread.h>

#include "allocator/core/core.h"
#include "tests/allocator/base/file_fixture.h"

enum { EVENTS_MAX = 1 << 16 };

static ashlar_trace_event events[EVENTS_MAX]; /* of the case's allocator, oldest first */
static size_t event_count;
static uint64_t event_lost;

static uint64_t clock_ns;

static uint64_t test_clock(void) {
    return ++clock_ns;
}

static bool set_up_clocked(const char *spec, uint64_t cache_bytes, uint64_t capacity) {
    if (!set_up_traced(spec, cache_bytes, capacity) || allocator->client.trace == NULL) {
        return false;
    }
    clock_ns = 0;
    allocator->client.trace->now_ns = test_clock;
    return true;
}

static void read_events(void) {
    event_count = ashlar__trace_read(allocator->client.trace, events, EVENTS_MAX, &event_lost);
}

/* Event i, whole but for its place in the order of all. */
static void check_event(size_t i, const ashlar_trace_event *want) {
    const ashlar_trace_event *got = &events[i];
    const bool is_same = i < event_count && got->time_ns == i + event_lost + 1 &&
                         got->action == want->action && got->address == want->address &&
                         got->bytes == want->bytes && got->requested == want->requested &&
                         got->stream == want->stream && got->tag == want->tag &&
                         got->thread == want->thread;
    CHECK(is_same);
    if (!is_same) {
        printf("# event %zu of %zu: action %d, %#llx, %llu bytes, %llu requested, tag %d\n", i,
               event_count, got->action, (unsigned long long)got->address,
               (unsigned long long)got->bytes, (unsigned long long)got->requested, got->tag);
    }
}

/* How much of a range is mapped after the first `count` events. */
static uint64_t mapped_at(size_t count, uint64_t address, uint64_t bytes) {
    uint64_t mapped = 0;
    for (size_t i = 0; i < count; i++) {
        const ashlar_trace_event *e = &events[i];
        const uint64_t begin = e->address > address ? e->address : address;
        const uint64_t e_end = e->address + e->bytes, end = address + bytes;
        const uint64_t both = (e_end < end ? e_end : end) - begin;
        if (begin < e_end && begin < end) {
            mapped += e->action == ASHLAR_TRACE_MAP ? both : 0;
            mapped -= e->action == ASHLAR_TRACE_UNMAP ? both : 0;
        }
    }
    return mapped;
}

static unsigned char *take_tagged(size_t bytes, ashlar_tag tag, ashlar_stream stream) {
    void *ptr = NULL;
    CHECK(ashlar_alloc_tagged(allocator, bytes, tag, stream, &ptr) == ASHLAR_OK);
    return ptr;
}

/* ---- one event after another ---- */

/* The block, or NULL; the check macros are the main thread's. */
static void *take_in_thread(void *unused) {
    void *ptr = NULL;
    (void)unused;
    return ashlar_alloc_tagged(allocator, 3000, ASHLAR_TAG_BATCH, NULL, &ptr) == ASHLAR_OK ? ptr
                                                                                           : NULL;
}

CASE(a_known_sequence_is_recorded_event_by_event) {
    void *none = NULL;
    void *other = NULL;
    pthread_t thread;
    const uint32_t me = ashlar__trace_thread();
    REQUIRE(set_up_clocked("memory=8MiB", 0, 100));
    const uint64_t base = allocator->constants.base;
    const uint64_t s1 = (uintptr_t)streams[1], s3 = (uintptr_t)streams[3];
    unsigned char *ptr = take_tagged(1000, ASHLAR_TAG_WEIGHTS, streams[1]);
    CHECK(ashlar_alloc_tagged(allocator, 8 * MIB, ASHLAR_TAG_SAVED, streams[3], &none) ==
          ASHLAR_ENOMEM);
    CHECK(strstr(ashlar_error_detail(), "more than there is") == NULL);
    CHECK(ashlar_alloc_tagged(allocator, SIZE_MAX, ASHLAR_TAG_MOMENTS,
                              (ashlar_stream)CU_STREAM_LEGACY, &none) == ASHLAR_ENOMEM);
    REQUIRE(pthread_create(&thread, NULL, take_in_thread, NULL) == 0);
    REQUIRE(pthread_join(thread, &other) == 0);
    CHECK(other != NULL);
    CHECK(ashlar_free_on(allocator, ptr, streams[3]) == ASHLAR_OK);
    CHECK(ashlar_free(allocator, other) == ASHLAR_OK);
    read_events();
    CHECK_ZU(event_count, 8);
    const uint64_t theirs = (uintptr_t)other; /* in another stream's zone */
    CHECK(theirs >= base + 8 * MIB);
    const ashlar_trace_event want[] = {
        {.action = ASHLAR_TRACE_MAP, .address = base, .bytes = 2 * MIB, .thread = me},
        {.action = ASHLAR_TRACE_ALLOC,
         .address = base,
         .bytes = 1024,
         .requested = 1000,
         .stream = s1,
         .tag = ASHLAR_TAG_WEIGHTS,
         .thread = me},
        {.action = ASHLAR_TRACE_OOM,
         .bytes = 6 * MIB,
         .requested = 8 * MIB,
         .stream = s3,
         .tag = ASHLAR_TAG_SAVED,
         .thread = me},
        {.action = ASHLAR_TRACE_OOM,
         .bytes = 6 * MIB,
         .requested = SIZE_MAX,
         .tag = ASHLAR_TAG_MOMENTS,
         .thread = me},
        {.action = ASHLAR_TRACE_MAP,
         .address = theirs,
         .bytes = 2 * MIB,
         .thread = events[4].thread},
        {.action = ASHLAR_TRACE_ALLOC,
         .address = theirs,
         .bytes = 3072,
         .requested = 3000,
         .tag = ASHLAR_TAG_BATCH,
         .thread = events[4].thread},
        {.action = ASHLAR_TRACE_FREE,
         .address = base,
         .bytes = 1024,
         .requested = 1000,
         .stream = s3,
         .tag = ASHLAR_TAG_WEIGHTS,
         .thread = me},
        {.action = ASHLAR_TRACE_FREE,
         .address = theirs,
         .bytes = 3072,
         .requested = 3000,
         .tag = ASHLAR_TAG_BATCH,
         .thread = me},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        check_event(i, &want[i]);
    }
    CHECK(events[4].thread != me);
}

/* ---- where calls fail ---- */

static void check_trace_is_true(bool was_refused) {
    size_t allocs = 0, frees = 0, refusals = 0;
    const ashlar_stats s = stats_now();
    read_events();
    for (size_t i = 0; i < event_count; i++) {
        allocs += events[i].action == ASHLAR_TRACE_ALLOC;
        frees += events[i].action == ASHLAR_TRACE_FREE;
        refusals += events[i].action == ASHLAR_TRACE_OOM;
        if (events[i].action == ASHLAR_TRACE_ALLOC) {
            CHECK_ZU(mapped_at(i, events[i].address, events[i].bytes), events[i].bytes);
        }
    }
    CHECK_ZU(mapped_at(event_count, 0, UINT64_MAX), s.reserved_bytes - s.spare_bytes);
    CHECK(allocs == s.alloc_count && frees == s.free_count && refusals == was_refused);
}

CASE(an_allocator_that_cannot_have_its_trace_is_not_made) {
    ashlar_config config = {0};
    ashlar_allocator *const none = NULL;
    config.trace_events = 1000;
    REQUIRE(set_up_device("memory=8MiB"));
    for (unsigned long n = 1; n <= 2; n++) { /* the allocator, then the ring */
        allocator = none;
        HOST_FAILS_AT(
            n, CHECK(ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_EHOSTMEM));
        CHECK(allocator == none);
    }
    CHECK_HAS(ashlar_error_detail(), "1000 events");
    DRIVER_FAILS_AT(
        ASHLAR_DRIVER_FN_mem_get_allocation_granularity, 1, CU_LAUNCH_FAILED,
        CHECK(ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_EDRIVER));
    config.trace_events = ASHLAR_CONFIG_EVENTS_MAX + 1;
    CHECK_FAILS(ashlar_allocator_create_with(device, &config, &allocator), ASHLAR_EINVAL,
                "trace_events");
    CHECK(allocator == none);
}

/* ---- several threads ---- */

enum { THREADS = 4, ROUNDS = 3000, KEPT = 8 };

static pthread_mutex_t mail_lock = PTHREAD_MUTEX_INITIALIZER;
static void *mail; /* a block on its way to whichever thread looks next */
static atomic_int running;

static void *churn(void *stream) {
    void *kept[KEPT] = {NULL};
    long bad_count = 0;
    for (int i = 0; i < ROUNDS; i++) {
        void **slot = &kept[i * 5 % KEPT];
        bad_count += ashlar_free(allocator, *slot) != ASHLAR_OK;
        bad_count +=
            ashlar_alloc_tagged(allocator, 1 + (size_t)i * 37 % 5000,
                                (ashlar_tag)(i % ASHLAR_TAG_COUNT), stream, slot) != ASHLAR_OK;
        if (i % 16 == 0) {
            pthread_mutex_lock(&mail_lock);
            void *const in = mail;
            mail = *slot;
            *slot = in;
            pthread_mutex_unlock(&mail_lock);
        }
    }
    for (int i = 0; i < KEPT; i++) {
        bad_count += ashlar_free(allocator, kept[i]) != ASHLAR_OK;
    }
    atomic_fetch_sub(&running, 1);
    return bad_count == 0 ? NULL : stream;
}

/* Play the trace: blocks are taken while free, and given back as they were taken. Returns the most
 * requested bytes that were live at once. */
static uint64_t play_events(void) {
    static ashlar_trace_event live[THREADS * KEPT + 1];
    size_t live_count = 0, wrong = 0;
    uint64_t live_bytes = 0, peak_bytes = 0;
    for (size_t i = 0; i < event_count; i++) {
        const ashlar_trace_event *e = &events[i];
        size_t at = 0;
        while (at < live_count && (e->address >= live[at].address + live[at].bytes ||
                                   live[at].address >= e->address + e->bytes)) {
            at++;
        }
        if (e->action == ASHLAR_TRACE_ALLOC && at == live_count && at < THREADS * KEPT + 1) {
            live[live_count++] = *e;
            live_bytes += e->requested;
            peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
        } else if (e->action == ASHLAR_TRACE_FREE && at < live_count) {
            wrong += live[at].address != e->address || live[at].bytes != e->bytes ||
                     live[at].requested != e->requested || live[at].tag != e->tag;
            live[at] = live[--live_count];
            live_bytes -= e->requested;
        } else {
            wrong += e->action != ASHLAR_TRACE_MAP;
        }
    }
    CHECK(wrong == 0 && live_count == 0);
    return peak_bytes;
}

CASE(threads_are_recorded_in_the_order_of_what_they_did) {
    pthread_t threads[THREADS];
    REQUIRE(set_up_traced("memory=64MiB", 1 * MIB, EVENTS_MAX));
    atomic_store(&running, THREADS);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, churn, streams[i]) == 0);
    }
    do { /* writers run beside them */
        CHECK(ashlar_allocator_write_snapshot(allocator, path) == ASHLAR_OK);
        CHECK(ashlar_allocator_write_trace(allocator, path, NULL) == ASHLAR_OK);
    } while (atomic_load(&running) > 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        REQUIRE(pthread_join(threads[i], &failed) == 0);
        CHECK(failed == NULL);
    }
    CHECK(ashlar_free(allocator, mail) == ASHLAR_OK);
    mail = NULL;
    check_trace_is_true(false);
    CHECK_ZU(stats_now().alloc_count, (size_t)THREADS * ROUNDS);
    CHECK_ZU(play_events(), stats_now().live_peak_bytes);
}

RUN_CASES_IN_FOLDER()
