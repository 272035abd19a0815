/*
 * test_dropin_devices.c - one allocator for each device of the process: made once, by whichever
 * thread, kept to the end, and not there in a forked child.
 */
#include "tests/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/core/core.h"
#include "allocator/device/device_impl.h"
#include "allocator/dropin/devices.h"
#include "allocator/driver/driver.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

enum { THREADS = 8, DEVICES = 2 };

static bool set_up(const char *spec) {
    setenv("ASHLAR_DEVICE", "soft", 1);
    unsetenv("ASHLAR_CONF");
    unsetenv("ASHLAR_REPORT");
    unsetenv("ASHLAR_PEERS");
    ashlar__dropin_forget();
    return ashlar__soft_configure(spec) == ASHLAR_OK;
}

/* ---- children; first, before this process has a device ---- */

/* The status with which a child ends that runs `body`, -1 if it does not end by itself. What it
 * writes to stderr is in `text`. */
static int in_child(int (*body)(void), char *text, size_t text_bytes) {
    int ends[2], status = 0;
    size_t length = 0;
    fflush(NULL);
    if (pipe(ends) != 0) {
        return -1;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(20); /* a lock that nobody gives back */
        (void)dup2(ends[1], STDERR_FILENO);
        const int result = body();
        exit(result); /* with all handlers */
    }
    (void)close(ends[1]);
    for (ssize_t got = 1; child > 0 && got > 0 && length + 1 < text_bytes;) {
        got = read(ends[0], text + length, text_bytes - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    text[length] = '\0';
    (void)close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

static int use_fresh(void) {
    ashlar_allocator *a = NULL;
    void *block;
    return ashlar__dropin_allocator(0, &a) == ASHLAR_OK &&
                   ashlar_alloc(a, 1000, NULL, &block) == ASHLAR_OK
               ? 0
               : 1;
}

CASE_WITH(a_child_of_a_process_without_devices_starts_afresh, set_up("devices=1")) {
    char text[4096];
    CHECK(in_child(use_fresh, text, sizeof text) == 0);
    CHECK(strcmp(text, "") == 0); /* what it leaked is nobody's business */
    setenv("ASHLAR_CONF", "leaks=on", 1);
    CHECK(in_child(use_fresh, text, sizeof text) == 0);
    CHECK_HAS(text, "ashlar: leak: soft:0: 1 blocks of 1000 bytes are still live\n");
    setenv("ASHLAR_REPORT", "off", 1);
    CHECK(in_child(use_fresh, text, sizeof text) == 0);
    CHECK(strcmp(text, "") == 0);
}

/* ---- one process ---- */

/* Whether device 1 writes to memory of device 0's allocator: only for a peer that is allowed. */
static bool is_reached_by_its_peer(void) {
    ashlar_allocator *a;
    ashlar_device *other;
    void *block;
    if (ashlar_device_open("soft:1", &other) != ASHLAR_OK) {
        return false;
    }
    const bool is_written = ashlar__dropin_allocator(0, &a) == ASHLAR_OK &&
                            ashlar_alloc(a, 4096, NULL, &block) == ASHLAR_OK &&
                            ashlar_fill(other, block, 7, 4096, NULL) == ASHLAR_OK &&
                            ashlar_stream_synchronize(other, NULL) == ASHLAR_OK;
    ashlar_device_close(other);
    return is_written;
}

CASE_WITH(memory_is_open_to_every_peer_unless_told_otherwise, set_up("devices=3,memory=64MiB")) {
    CHECK(is_reached_by_its_peer());
    REQUIRE(set_up("devices=3,memory=64MiB"));
    setenv("ASHLAR_PEERS", "off", 1);
    CHECK(!is_reached_by_its_peer());
}

CASE(a_bad_word_in_the_environment_is_refused_by_name) {
    const char *const names[] = {"ASHLAR_REPORT", "ASHLAR_PEERS"};
    for (size_t i = 0; i < 2; i++) {
        ashlar_allocator *a = NULL;
        REQUIRE(set_up("devices=1"));
        setenv(names[i], "maybe", 1);
        CHECK_FAILS(ashlar__dropin_allocator(0, &a), ASHLAR_EINVAL, names[i]);
        CHECK_HAS(ashlar_error_detail(), "maybe");
        CHECK(a == NULL);
        setenv(names[i], "", 1); /* as if it were not there */
        CHECK(ashlar__dropin_allocator(0, &a) == ASHLAR_OK);
        ashlar__dropin_forget();
        setenv(names[i], "off", 1);
        CHECK(ashlar__dropin_allocator(0, &a) == ASHLAR_OK);
    }
    ashlar_allocator *a = NULL;
    REQUIRE(set_up("devices=1"));
    setenv("ASHLAR_CONF", "limit=maybe", 1);
    CHECK(ashlar__dropin_allocator(0, &a) == ASHLAR_EINVAL);
    CHECK(a == NULL);
}

CASE(host_memory_that_runs_out_anywhere_is_reported_and_got_over) {
    for (unsigned long n = 1;; n++) {
        ashlar_allocator *a = NULL;
        REQUIRE(set_up("devices=2"));
        ashlar__host_fail_at(n);
        const ashlar_status status = ashlar__dropin_allocator(0, &a);
        ashlar__host_fail_at(0);
        if (status == ASHLAR_OK) {
            CHECK(n > 2);
            break;
        }
        CHECK(status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM); /* the device's, or ours */
        CHECK(a == NULL);
        CHECK(ashlar__dropin_peek(0) == NULL);
        CHECK(ashlar__dropin_allocator(0, &a) == ASHLAR_OK);
    }
}

CASE(a_driver_call_that_fails_anywhere_is_reported_and_got_over) {
    ashlar_driver *driver;
    REQUIRE(ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    for (unsigned n = 1;; n++) {
        ashlar_allocator *a = NULL;
        REQUIRE(set_up("devices=2"));
        ashlar__driver_fail_at(driver, -1, n, CU_UNKNOWN);
        const ashlar_status status = ashlar__dropin_allocator(0, &a);
        const bool is_spent = atomic_load(&driver->fail_countdown) == 0;
        ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
        if (!is_spent) {
            CHECK(status == ASHLAR_OK);
            CHECK(n > 5);
            break;
        }
        if (status != ASHLAR_OK) {
            CHECK(a == NULL);
            CHECK(ashlar__dropin_peek(0) == NULL);
            CHECK(ashlar__dropin_allocator(0, &a) == ASHLAR_OK);
        }
    }
}

/* ---- threads ---- */

static ashlar_allocator *seen[THREADS][DEVICES];
static pthread_barrier_t together;

static void *ask(void *arg) {
    const int thread = *(const int *)arg;
    (void)pthread_barrier_wait(&together);
    for (int i = 0; i < DEVICES; i++) {
        const int ordinal = (i + thread) % DEVICES;
        if (ashlar__dropin_allocator(ordinal, &seen[thread][ordinal]) != ASHLAR_OK) {
            seen[thread][ordinal] = NULL;
        }
    }
    return NULL;
}

static void take_long(ashlar_driver_fn fn) {
    if (fn == ASHLAR_DRIVER_FN_device_total_mem) {
        (void)usleep(20000);
    }
}

/* It takes so long to make one that they all come while the first is at it. */
CASE(threads_that_ask_at_once_get_the_same) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    ashlar_driver *driver = NULL;
    REQUIRE(set_up("devices=2") && ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    driver->delay = take_long;
    REQUIRE(pthread_barrier_init(&together, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        REQUIRE(pthread_create(&threads[i], NULL, ask, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)pthread_barrier_destroy(&together);
    driver->delay = NULL;
    for (int i = 0; i < THREADS; i++) {
        for (int j = 0; j < DEVICES; j++) {
            CHECK(seen[i][j] != NULL);
            CHECK(seen[i][j] == ashlar__dropin_peek(j));
        }
    }
}

/* ---- children of a process that has a device ---- */

static void *inherited;

static int use_inherited(void) {
    ashlar_allocator *a = NULL;
    const ashlar_status status = ashlar__dropin_allocator(0, &a);
    if (status != ASHLAR_EDRIVER || strstr(ashlar_error_detail(), "forked") == NULL) {
        return 1;
    }
    return a == NULL && ashlar__dropin_is_forked() && ashlar__dropin_peek(0) == NULL &&
                   ashlar__dropin_owner(inherited) == NULL
               ? 0
               : 2;
}

/* As above, with every lock of ours taken at the fork. */
CASE_WITH(a_child_waits_for_no_lock_that_was_held_at_the_fork, set_up("devices=1")) {
    char text[4096];
    ashlar_allocator *a;
    setenv("ASHLAR_CONF", "leaks=on", 1);
    setenv("ASHLAR_REPORT", "on", 1);
    REQUIRE(ashlar__dropin_allocator(0, &a) == ASHLAR_OK);
    REQUIRE(ashlar_alloc(a, 1000, NULL, &inherited) == ASHLAR_OK);
    (void)pthread_mutex_lock(&a->lock.mutex); /* as another thread: the child has none */
    const int status = in_child(use_inherited, text, sizeof text);
    (void)pthread_mutex_unlock(&a->lock.mutex);
    CHECK(status == 0);
    CHECK(strcmp(text, "") == 0);
    CHECK(ashlar_free(a, inherited) == ASHLAR_OK);
}

RUN_CASES()
