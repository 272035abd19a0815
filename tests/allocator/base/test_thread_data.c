/* test_thread_data.c - a thread's own memory, from its first use to the thread's end. */
#include "tests/check.h"

#include <pthread.h>
#include <string.h>

#include "allocator/base/threads.h"

enum { BYTES = 100 };

static void *use(void *found) {
    char *mine = ashlar__thread_data(ASHLAR_THREAD_SOFT_STREAMS, BYTES);
    static const char zeros[BYTES];
    *(bool *)found = mine != NULL && memcmp(mine, zeros, BYTES) == 0;
    if (mine != NULL) {
        memset(mine, 1, BYTES);
    }
    return NULL;
}

CASE(each_thread_has_memory_of_its_own_zeroed_at_first) {
    bool found[2] = {false, false};
    pthread_t threads[2];
    CHECK(ashlar__thread_data_if_any(ASHLAR_THREAD_SOFT_STREAMS) == NULL);
    char *mine = ashlar__thread_data(ASHLAR_THREAD_SOFT_STREAMS, BYTES);
    REQUIRE(mine != NULL);
    memset(mine, 7, BYTES);
    for (int i = 0; i < 2; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, use, &found[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
        CHECK(found[i]);
    }
    CHECK(ashlar__thread_data(ASHLAR_THREAD_SOFT_STREAMS, BYTES) == mine && mine[BYTES - 1] == 7);
    CHECK(ashlar__thread_data_if_any(ASHLAR_THREAD_SOFT_STREAMS) == mine);
    CHECK(ashlar__thread_data_if_any(ASHLAR_THREAD_SOFT_CONTEXTS) == NULL);
}

static pthread_key_t later;
static bool was_there;

static void look(void *unused) {
    (void)unused;
    const char *mine = ashlar__thread_data_if_any(ASHLAR_THREAD_SOFT_STREAMS);
    was_there = mine != NULL && mine[0] == 1;
}

static void *use_and_look_at_the_end(void *found) {
    (void)use(found);
    (void)pthread_setspecific(later, &later);
    return NULL;
}

/* The key is newer than that of threads.c, so its destructor comes second. */
CASE(the_memory_is_there_while_the_rest_of_the_thread_ends) {
    bool found = false;
    pthread_t thread;
    REQUIRE(ashlar__thread_data(ASHLAR_THREAD_SOFT_STREAMS, BYTES) != NULL);
    REQUIRE(pthread_key_create(&later, look) == 0);
    REQUIRE(pthread_create(&thread, NULL, use_and_look_at_the_end, &found) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    CHECK(found && was_there);
    CHECK(pthread_key_delete(later) == 0);
}

RUN_CASES()
