/*
 * test_barrier_refused.c - a process whose seccomp filter refuses membarrier(2) after its threads
 * have begun to rely on it.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "allocator/base/threads.h"
#include "allocator/core/core.h"
#include "tests/child.h"

enum { THREADS = 4, ROUNDS = 4000, BLOCKS = 16 };

/* Have all threads' calls of membarrier(2) fail from now on. */
static bool refuse(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

static atomic_int ready_count, bad_count;
static atomic_bool may_go_on;

/* Blocks of all threads are in turn on one stream: each is written by its owner only. */
static void *work(void *unused) {
    void *blocks[BLOCKS] = {0};
    bool is_told = false;
    (void)unused;
    for (size_t i = 0; i < ROUNDS; i++) {
        void **block = &blocks[(i * 7) % BLOCKS];
        if (*block != NULL && ashlar_free(allocator, *block) != ASHLAR_OK) {
            atomic_fetch_add(&bad_count, 1);
        }
        if (ashlar_alloc(allocator, (size_t)512 << (i % 6), streams[i / 64 % 2], block) != ASHLAR_OK) {
            *block = NULL;
            atomic_fetch_add(&bad_count, 1);
        }
        if (i == ROUNDS / 4 && !is_told) {
            is_told = true;
            atomic_fetch_add(&ready_count, 1);
            while (!atomic_load(&may_go_on)) {
            }
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL && ashlar_free(allocator, blocks[i]) != ASHLAR_OK) {
            atomic_fetch_add(&bad_count, 1);
        }
    }
    return NULL;
}

static void go_on_without_membarrier(void) {
    pthread_t threads[THREADS];
    REQUIRE(set_up_cached("memory=64MiB", MIB));
    give(take(4096, streams[0])); /* so that this thread has a cache */
    atomic_store(&ready_count, 0);
    atomic_store(&may_go_on, false);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    while (atomic_load(&ready_count) < THREADS) {
    }
    REQUIRE(refuse());
    atomic_store(&may_go_on, true);
    for (int i = 0; i < 100; i++) {
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(atomic_load(&bad_count) == 0);
    CHECK(allocator->are_hits_over);
    CHECK(!ashlar__barrier_init());
    const uint64_t cached = stats_now().served_cached;
    give(take(4096, streams[0]));
    give(take(4096, streams[0]));
    CHECK(stats_now().served_cached > cached); /* from the magazines still, under the lock */
}

static void try_filter(void) {
    CHECK(ashlar__barrier_init() && refuse());
}

CASE(threads_go_on_when_membarrier_is_refused) {
    SKIP_IF(run_child(try_filter) != 0, "no membarrier(2), or no filter may be installed");
    CHECK(child_passes(go_on_without_membarrier));
}

RUN_CASES()
