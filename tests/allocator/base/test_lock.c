/*
 * test_lock.c - what debug builds know of locks: who holds them, and in which order they are taken.
 */
#include "allocator/base/threads.h"

#include "tests/child.h"

static ashlar_lock outer = ASHLAR_LOCK(ASHLAR_LEVEL_ALLOCATOR);
static ashlar_lock inner = ASHLAR_LOCK(ASHLAR_LEVEL_SOFT);
static ashlar_lock between = ASHLAR_LOCK(ASHLAR_LEVEL_PATTERN_CHECK);

static void in_order(void) {
    ashlar__lock_acquire(&outer);
    ashlar__lock_acquire(&inner);
    ashlar__lock_release(&outer);
    ashlar__lock_release(&inner);
    ashlar__lock_acquire(&outer);
    ashlar__lock_release(&outer);
}

static void out_of_order(void) {
    ashlar__lock_acquire(&inner);
    ashlar__lock_acquire(&outer);
}

static void tried_out_of_order(void) {
    ashlar__lock_acquire(&inner);
    if (!ashlar__lock_try_acquire(&outer)) {
        abort();
    }
    ashlar__lock_release(&inner);
    ashlar__lock_release(&outer);
}

static void in_order_behind_a_tried_one(void) {
    ashlar__lock_acquire(&inner);
    (void)ashlar__lock_try_acquire(&outer);
    ashlar__lock_acquire(&between); /* below the older one alone */
}

static void taken_twice(void) {
    ashlar__lock_acquire(&outer);
    ashlar__lock_acquire(&outer);
}

static void released_by_a_stranger(void) {
    ashlar__lock_release(&outer);
}

static void owned_by_nobody(void) {
    ASHLAR_OWNS(&outer);
}

static void *assert_owner(void *unused) {
    ASHLAR_OWNS(&outer);
    return unused;
}

static void owned_by_another_thread(void) {
    pthread_t thread;
    ashlar__lock_acquire(&outer);
    if (pthread_create(&thread, NULL, assert_owner, NULL) == 0) {
        (void)pthread_join(thread, NULL);
    }
}

CASE(locks_are_taken_in_the_order_of_ranks) {
    CHECK(!child_aborts(in_order));
    CHECK(!child_aborts(tried_out_of_order));
    SKIP_IF(ASHLAR_DEBUG < 2, "built without a record of locks");
    CHECK(child_aborts(out_of_order));
    CHECK(child_aborts(in_order_behind_a_tried_one));
    CHECK(child_aborts(taken_twice));
}

CASE(the_owner_is_the_thread_that_holds_it) {
    ashlar__lock_acquire(&outer);
    CHECK(ashlar__lock_is_held(&outer));
    ASHLAR_OWNS(&outer);
    ashlar__lock_release(&outer);
    SKIP_IF(ASHLAR_DEBUG < 2, "built without a record of locks");
    CHECK(!ashlar__lock_is_held(&outer));
    CHECK(child_aborts(owned_by_nobody));
    CHECK(child_aborts(owned_by_another_thread));
    CHECK(child_aborts(released_by_a_stranger));
}

RUN_CASES()
