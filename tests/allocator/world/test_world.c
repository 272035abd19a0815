/*
 * test_world.c - random programs of everything that the allocator's interface has, beside a model
 * that knows the answer: streams that end, plans, guard modes, limits, several allocators,
 * devices and threads, in one program. What fails is shrunk to a few lines of C.
 *
 *     test_world --seconds 3600 --seed 1 --mode adversarial      a long run
 *     test_world --programs 1 --seed 4711                        the one program of that seed
 *     test_world --law none ...                                  without the law of availability
 *
 * Its last line is "world: N operations, P programs, seed S, R operations/s"; its status is 1 if a
 * program failed.
 */
#include "tests/check.h"
#include "tests/allocator/world/world_campaign.h"

enum { PROGRAMS = ASHLAR_DEBUG >= 3 ? 12 : 120 }; /* level 3 walks the heap at each call */

static void run_short(int mode, int threads) {
    const campaign c = {.first_seed = 1,
                        .programs = mode == 2 ? PROGRAMS / 4 : PROGRAMS,
                        .wish = {mode, threads, true},
                        .line_begin = "# "};
    CHECK(run_campaign(&c));
}

/* Each rung of the ladder was taken. */
static void check_ladder(bool is_adversarial) {
    const ashlar_stats *s = &world_served;
    if (PROGRAMS < 100) {
        return; /* few programs need not have everything */
    }
    CHECK(s->served_planned > 0 && s->served_cached > 0 && s->served_same_stream > 0);
    CHECK(s->served_idle > 0 && s->served_mapped > 0 && s->served_completed > 0);
    CHECK(s->served_gathered > 0 && s->served_drained > 0 && s->served_reclaimed > 0);
    CHECK(!is_adversarial || (s->served_waited > 0 && s->served_after_sync > 0));
    printf("# %zu warm-ups, %zu of them called steady\n", world.warm_count, world.steady_count);
    CHECK(world.steady_count > 10 && 3 * world.steady_count > 2 * world.warm_count);
}

CASE(no_program_goes_wrong_when_work_runs_late) {
    run_short(1, 1);
    check_ladder(true);
}

CASE(no_program_goes_wrong_when_work_runs_at_once) {
    run_short(0, 1);
    check_ladder(false);
}

/* In what order is the machine's affair, so that a failure may not come again. */
CASE(no_program_goes_wrong_when_work_runs_beside_it) {
    run_short(2, 0);
}

CASE(no_program_of_threads_that_take_turns_goes_wrong) {
    run_short(-1, THREADS);
    check_ladder(true);
}

/* ---- long runs ---- */

static int usage(void) {
    (void)fprintf(stderr, "usage: test_world [--seconds N | --programs N] [--seed S] [--mode "
                          "eager|adversarial|overlap] [--threads N] [--law availability|none]\n");
    return 2;
}

static bool read_option(campaign *c, const char *name, const char *value) {
    if (strcmp(name, "--seconds") == 0) {
        c->seconds = strtod(value, NULL);
    } else if (strcmp(name, "--programs") == 0) {
        c->programs = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--seed") == 0) {
        c->first_seed = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--threads") == 0) {
        c->wish.threads = atoi(value);
    } else if (strcmp(name, "--law") == 0) {
        c->wish.has_law = strcmp(value, "none") != 0;
    } else if (strcmp(name, "--mode") == 0) {
        c->wish.mode = strcmp(value, "overlap") == 0 ? 2 : strcmp(value, "adversarial") == 0;
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv) {
    campaign c = {.first_seed = 1, .wish = {.mode = -1, .has_law = true}, .line_begin = ""};
    if (argc == 1) {
        check_run_cases();
        return check_report();
    }
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc || !read_option(&c, argv[i], argv[i + 1])) {
            return usage();
        }
    }
    return run_campaign(&c) ? 0 : 1;
}
