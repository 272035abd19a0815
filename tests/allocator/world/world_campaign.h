/*
 * world_campaign.h - many programs, one after another, until one fails: that is shrunk, and told as
 * lines of C.
 */
#ifndef ASHLAR_WORLD_CAMPAIGN_H
#define ASHLAR_WORLD_CAMPAIGN_H

#include "tests/allocator/world/world_draw.h"
#include "tests/allocator/world/world_run.h"

#include <sys/mman.h>
#include <time.h>

/* ---- shrinking ---- */

enum { REPLAYS_MAX = 3000 };

typedef struct shrinking {
    world_program best, trial;
    char failure[sizeof failure]; /* what it is about */
    int replays;
} shrinking;

/* Messages differ in numbers, and in nothing else, if they say the same. */
static inline bool is_same_failure(const char *a, const char *b) {
    const size_t words = strcspn(a, "0123456789");
    return words == strcspn(b, "0123456789") && strncmp(a, b, words) == 0;
}

/* Whether the trial still fails, in the same way; it is then the best. */
static inline bool trial_fails(shrinking *s) {
    if (s->replays++ >= REPLAYS_MAX) {
        return false;
    }
    const world_verdict v = run_in_child(&s->trial, false);
    if (v.failure[0] == '\0' || !is_same_failure(v.failure, s->failure)) {
        return false;
    }
    s->best = s->trial;
    s->best.count = v.at < s->trial.count ? v.at : s->trial.count;
    return true;
}

/* Leave out `part` acts at a time. True: it got shorter. */
static inline bool leave_out(shrinking *s, size_t part) {
    bool is_shorter = false;
    for (size_t at = 0; at < s->best.count && s->replays < REPLAYS_MAX;) {
        const size_t rest = s->best.count - at, left_out = part < rest ? part : rest;
        s->trial = s->best;
        s->trial.count -= left_out;
        memmove(s->trial.acts + at, s->best.acts + at + left_out, (rest - left_out) * sizeof(act));
        const bool fails = trial_fails(s);
        is_shorter |= fails;
        at += fails ? 0 : left_out;
    }
    return is_shorter;
}

/* The plainest setting in which it still fails. */
static inline void make_plain(shrinking *s) {
    for (int i = 0; i < 9; i++) {
        s->trial = s->best;
        setting *set = &s->trial.set;
        set->thread_count = i == 0 ? 1 : set->thread_count;
        set->store_count = i == 1 ? 1 : set->store_count;
        set->guard = i == 2 ? 0 : set->guard;
        set->zeroes = i != 3 && set->zeroes;
        set->reclaims = i != 4 && set->reclaims;
        set->has_vmm = i == 5 || set->has_vmm;
        set->is_adversarial = (i != 6 || set->overlaps) && set->is_adversarial;
        set->waits = i != 7 && set->waits;
        set->shares = i != 8 && set->shares;
        if (memcmp(set, &s->best.set, sizeof *set) != 0) {
            (void)trial_fails(s);
        }
    }
}

/* Acts with plain sizes and the first choice of everything. */
static inline void make_acts_plain(shrinking *s) {
    for (size_t i = 0; i < s->best.count; i++) {
        for (int what = 0; what < 3; what++) {
            s->trial = s->best;
            act *a = &s->trial.acts[i];
            const act before = *a;
            a->bytes = what == 0 ? 4096 : a->bytes;
            a->choice = what == 1 ? 0 : a->choice;
            a->tag = what == 2 ? 0 : a->tag;
            if (memcmp(a, &before, sizeof before) != 0) {
                (void)trial_fails(s);
            }
        }
    }
}

static inline void shrink(shrinking *s) {
    for (size_t part = s->best.count / 2; part > 0 && s->replays < REPLAYS_MAX;) {
        const bool is_shorter = leave_out(s, part);
        part = part > 1 ? part / 2 : (is_shorter ? 1 : 0);
    }
    make_plain(s);
    make_acts_plain(s);
    (void)leave_out(s, 2);
    while (leave_out(s, 1)) {
    }
}

/* A program that failed is shrunk, and what is left of it is told. */
static inline void report(const world_program *p, const char *what) {
    shrinking *s = malloc(sizeof *s);
    if (s == NULL) {
        return;
    }
    s->best = s->trial = *p;
    (void)snprintf(s->failure, sizeof s->failure, "%s", what);
    s->replays = 0;
    if (!trial_fails(s)) {
        printf("# seed %llu alone does not fail again\n", (unsigned long long)p->seed);
    } else {
        shrink(s);
        printf("# shrunk from %zu to %zu acts in %d runs:\n", p->count, s->best.count, s->replays);
        const world_verdict v = run_in_child(&s->best, true);
        printf("# which fails: %s\n", v.failure);
    }
    free(s);
}

/* ---- a campaign ---- */

typedef struct campaign {
    uint64_t first_seed;
    uint64_t programs; /* 0: no end */
    double seconds;    /* 0: no end */
    world_wish wish;
    const char *line_begin; /* of the last line; "# " in a test */
} campaign;

/* What the process that runs the programs leaves, whatever ends it. */
typedef struct campaign_state {
    _Atomic uint64_t seed; /* of the program that runs */
    _Atomic uint64_t operations, programs;
    ashlar_stats served;
    size_t warm_count, steady_count;
    char failure[sizeof failure];
} campaign_state;

static inline double seconds_now(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void run_campaign_here(const campaign *c, campaign_state *state) {
    static world_program p;
    const double begin = seconds_now();
    for (uint64_t i = 0; c->programs == 0 || i < c->programs; i++) {
        if (c->seconds > 0 && seconds_now() - begin >= c->seconds) {
            break;
        }
        draw_program(&p, c->first_seed + i, &c->wish);
        atomic_store(&state->seed, c->first_seed + i);
        (void)alarm(HANG_SECONDS);
        const world_verdict v = run_here(&p);
        atomic_fetch_add(&state->operations, v.at);
        atomic_fetch_add(&state->programs, 1);
        state->served = world_served;
        state->warm_count = world.warm_count;
        state->steady_count = world.steady_count;
        if (v.failure[0] != '\0') {
            memcpy(state->failure, v.failure, sizeof v.failure);
            _exit(2);
        }
    }
}

/* True: no program failed. */
static inline bool run_campaign(const campaign *c) {
    static world_program p;
    int status = 0;
    campaign_state *state =
        mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) {
        return false;
    }
    const double begin = seconds_now();
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        run_campaign_here(c, state);
        exit(0); /* sanitizers look for leaks */
    }
    const bool has_ended = child > 0 && waitpid(child, &status, 0) == child;
    const double seconds = seconds_now() - begin;
    const bool is_right = has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!is_right) {
        const uint64_t seed = atomic_load(&state->seed);
        const char *what = state->failure[0] != '\0' ? state->failure : RUN_CRASHED;
        printf("# seed %llu fails: %s\n", (unsigned long long)seed, what);
        draw_program(&p, seed, &c->wish);
        report(&p, what);
    }
    const double operations = (double)atomic_load(&state->operations);
    printf("%sworld: %.0f operations, %llu programs, seed %llu, %.0f operations/s\n", c->line_begin,
           operations, (unsigned long long)atomic_load(&state->programs),
           (unsigned long long)c->first_seed, operations / (seconds > 0 ? seconds : 1));
    world_served = state->served;
    world.warm_count = state->warm_count;
    world.steady_count = state->steady_count;
    (void)munmap(state, sizeof *state);
    return is_right;
}

#endif /* ASHLAR_WORLD_CAMPAIGN_H */
