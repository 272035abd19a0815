/*
 * world_forks.h - forks: a child that makes every call on its parent's allocators, and is told.
 *
 * A fork comes between two acts, or within a call of the allocator, where that calls the driver:
 * its locks are held, and what they guard is half changed, as if another thread of the parent had
 * forked. The child says by a pipe what is wrong, and has so many seconds.
 */
#ifndef ASHLAR_WORLD_FORKS_H
#define ASHLAR_WORLD_FORKS_H

#include "tests/allocator/step/forked_calls.h"
#include "tests/allocator/world/world_warmup.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 10 };

static unsigned calls_until_fork; /* 0: no fork is to come */
static bool is_child;

static inline void *some_block_of(const store *s) {
    void *found = (void *)&world; /* a child is not told that it is none */
    for (size_t i = 0; i < SLOTS; i++) {
        found = is_of(s, &world.blocks[i]) ? world.blocks[i].ptr : found;
    }
    return found;
}

static inline void be_child(int lane) {
    ashlar_device *own = NULL;
    (void)alarm(CHILD_SECONDS);
    is_child = true;
    for (int i = 0; i < world.set->store_count; i++) {
        const store *s = &world.stores[i];
        const forked_known known = {some_block_of(s), s->at->made[lane], s->pool};
        forked_call_all(s->allocator, &known);
    }
    is_child = false;
    FORKED_EXPECT(ashlar_device_open("soft:0", &own) == ASHLAR_EDRIVER);
    for (int i = 0; i < world.set->store_count; i++) {
        ashlar_allocator_destroy(world.stores[i].allocator);
    }
    _exit(forked_line == 0 ? 0 : forked_line % 255 + 1);
}

static inline void fork_now(int lane) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        be_child(lane);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        wrong("a fork failed");
    } else if (WIFSIGNALED(status)) {
        wrong("the child of a fork was ended by signal %d%s", WTERMSIG(status),
              WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    } else if (status != 0) {
        wrong("the child of a fork was answered wrongly (line %d of forked_calls.h, modulo 255)",
              WEXITSTATUS(status) - 1);
    }
}

/* In place of the software device's delay, before each call; a child is to make none. */
static inline void fork_in_call(ashlar_driver_fn fn) {
    FORKED_EXPECT(!is_child);
    if (calls_until_fork > 0 && ashlar__driver_fn_kind(fn) != ASHLAR_DRIVER_WORK &&
        --calls_until_fork == 0) {
        fork_now(LANE_MADE);
    }
}

static inline void act_fork(const store *s, const act *a) {
    s->at->device->driver->delay = fork_in_call;
    if (a->choice % 4 == 0) {
        TELL("fork_and_call_all(); /* forked_calls.h */");
        fork_now(LANE_MADE);
        return;
    }
    calls_until_fork = 1 + a->choice % 13;
    TELL("fork_and_call_all() before the driver's call %u from here on;", calls_until_fork);
}

#endif /* ASHLAR_WORLD_FORKS_H */
