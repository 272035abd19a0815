/*
 * test_least_capacity.c - two hundred drawn programs need no more memory than they once did, but
 * for what zones cost at their ends: each is run on the device that least_capacity.csv gives for
 * it, and a little more.
 *
 * With the word "list" the program writes such a file instead, for the library it is linked with.
 */
#include "tests/check.h"

#include "tests/allocator/step/capacity_run.h"

enum { LISTED = 200, LISTED_RUNS = 5, LINE_BYTES = 256 };

static size_t least_mib[LISTED + 1]; /* [seed]; 0: the file does not give it */
static program drawn;
static capacity_run run;

static void describe(const program *p) {
    printf("%u streams, %u threads%s%s%s", p->streams, p->threads, p->has_plan ? ", planned" : "",
           p->is_late ? ", late" : "", p->has_vmm ? "" : ", without virtual memory");
}

/* ---- the file ---- */

static bool read_line(const char *line) {
    unsigned seed = 0, streams = 0;
    size_t mib = 0;
    if (line[0] == '#' || strncmp(line, "seed,", 5) == 0) {
        return true;
    }
    const bool is_good = sscanf(line, "%u,%u,%zu", &seed, &streams, &mib) == 3 && seed >= 1 &&
                         seed <= LISTED && least_mib[seed] == 0;
    if (is_good) {
        draw_program(&drawn, seed);
        least_mib[seed] = mib;
    }
    return is_good && drawn.streams == streams;
}

CASE(every_program_is_listed_once) {
    const char *source = getenv("ASHLAR_SOURCE");
    char path[1024], line[LINE_BYTES];
    (void)snprintf(path, sizeof path, "%s/tests/allocator/step/least_capacity.csv",
                   source == NULL ? "." : source);
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        CHECK(read_line(line));
    }
    CHECK(fclose(file) == 0);
    for (unsigned seed = 1; seed <= LISTED; seed++) {
        CHECK(least_mib[seed] > 0);
    }
}

/* ---- the programs ---- */

/*
 * Once all blocks of all streams lay side by side. Now a stream has two zones of its own, and each
 * may end in a handle in part used: all but one of them may lack. Without virtual memory it is a
 * part of a segment that others share.
 */
static size_t allowance_mib(const program *p) {
    return p->has_vmm ? (size_t)2 * (2 * p->streams - 1) : 16;
}

static void check_program(unsigned seed) {
    draw_program(&drawn, seed);
    const bool does_run = run_program(&run, &drawn, least_mib[seed] + allowance_mib(&drawn));
    CHECK(does_run);
    if (!does_run) {
        printf("# seed %u (", seed);
        describe(&drawn);
        printf(") fails on %zu MiB: %s\n", least_mib[seed], run.failure);
        printf("# it runs on %zu MiB\n",
               find_capacity(&run, &drawn, least_mib[seed], CAPACITY_MOST_MIB));
    }
}

static void check_kind(program_kind kind) {
    for (unsigned seed = 1; seed <= LISTED; seed++) {
        if (seed % PROGRAM_KINDS == (unsigned)kind) {
            REQUIRE(least_mib[seed] > 0);
            check_program(seed);
        }
    }
}

CASE(a_training_runs_where_it_did) {
    check_kind(PROGRAM_RNN);
}

CASE(a_training_with_plans_runs_where_it_did) {
    check_kind(PROGRAM_RNN_PLANNED);
}

CASE(a_training_with_a_stream_of_copies_runs_where_it_did) {
    check_kind(PROGRAM_PREFETCH);
}

CASE(models_on_streams_of_their_own_run_where_they_did) {
    check_kind(PROGRAM_MODELS);
}

CASE(random_sizes_fit_where_they_did) {
    check_kind(PROGRAM_SIZES);
}

CASE(random_sizes_on_several_streams_fit_where_they_did) {
    check_kind(PROGRAM_STREAMS);
}

CASE(blocks_that_streams_share_fit_where_they_did) {
    check_kind(PROGRAM_SHARED);
}

CASE(holes_are_filled_where_they_were) {
    check_kind(PROGRAM_HOLES);
}

/* So that the cases above could fail. */
CASE(no_program_runs_in_less_than_it_has_live) {
    for (unsigned seed = 1; seed <= LISTED; seed += 7) {
        draw_program(&drawn, seed);
        REQUIRE(run_program(&run, &drawn, CAPACITY_MOST_MIB));
        const size_t mib = (run.live_peak_bytes - 1) / (CAPACITY_GRAIN_MIB * MIB);
        CHECK(!run_program(&run, &drawn, mib * CAPACITY_GRAIN_MIB));
    }
}

/* ---- a new list ---- */

static bool runs_each_time(size_t mib) {
    int passed = 0;
    while (passed < LISTED_RUNS && run_program(&run, &drawn, mib)) {
        passed++;
    }
    return passed == LISTED_RUNS;
}

/* Threads that meet may make one run differ from the next, so a capacity has to do several times.
 */
static int write_list(void) {
    printf("seed,streams,capacity_mib\n");
    for (unsigned seed = 1; seed <= LISTED; seed++) {
        draw_program(&drawn, seed);
        if (!run_program(&run, &drawn, CAPACITY_MOST_MIB)) {
            fprintf(stderr, "seed %u: %s\n", seed, run.failure);
            return 1;
        }
        size_t mib = (run.live_peak_bytes + CAPACITY_GRAIN_MIB * MIB - 1) /
                     (CAPACITY_GRAIN_MIB * MIB) * CAPACITY_GRAIN_MIB;
        while (!runs_each_time(mib)) {
            mib += CAPACITY_GRAIN_MIB;
        }
        printf("%u,%u,%zu\n", seed, drawn.streams, mib);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        return write_list();
    }
    check_run_cases();
    return check_report();
}
