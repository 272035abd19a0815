/*
 * test_steps.c - that a log's steps begin where the program's did: at its marks, or where a period
 * of its allocations has least live; and that a log without steps has none.
 */
#include "bench/replay/steps.h"

#include <unistd.h>

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "tests/bench/replay/rmm_fixture.h"

#define NONE SIZE_MAX

enum { EVENTS_MAX = 60000 };

static ashlar_rmm_event events[EVENTS_MAX]; /* of the case's log */
static ashlar_rmm_log made;
static size_t begins[100]; /* where the case had its steps begin, and the last one end */
static uint64_t random_state;
static ashlar_steps steps;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

static void start(uint64_t seed) {
    random_state = seed;
    made = (ashlar_rmm_log){
        .name = (char *)(uintptr_t) "made", .events = events, .thread_count = 1, .stream_count = 9};
}

static void put(ashlar_rmm_action action, size_t block, size_t bytes, size_t stream) {
    if (made.event_count < EVENTS_MAX) {
        events[made.event_count] =
            (ashlar_rmm_event){action, made.event_count + 2, 0, stream, block, bytes};
        made.event_count++;
    }
}

static size_t take_on(size_t bytes, size_t stream) {
    put(ASHLAR_RMM_ALLOCATE, made.block_count, bytes, stream);
    return made.block_count++;
}

static size_t take(size_t bytes) {
    return take_on(bytes, 0);
}

static void give(size_t block) {
    put(ASHLAR_RMM_FREE, block, 0, 0);
}

static void give_all(const size_t *blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        give(blocks[i]);
    }
}

/* Forward: `layers` of 5 blocks, of which 3 are kept. Backward: 4 blocks more for each layer. */
static void train(size_t layers, size_t rarity) {
    size_t kept[300], count = 0;
    kept[count++] = take(70000);
    for (size_t layer = 0; layer < layers; layer++) {
        for (size_t k = 0; k < 5; k++) {
            const bool is_changed = rarity != 0 && draw(rarity) == 0;
            const size_t block = take(is_changed ? 99 + draw(1000) : 512 * (k * k + 3));
            if (k % 2 == 0) {
                kept[count++] = block;
            } else {
                give(block);
            }
        }
    }
    while (count > 0) {
        for (size_t k = 0; k < 4; k++) {
            give(take(1024 * (k * k + 5)));
        }
        for (size_t k = 0; k < 3 && count > 0; k++) {
            give(kept[--count]);
        }
    }
}

static void initialise(size_t count) {
    for (size_t i = 0; i < count; i++) {
        (void)take(4096 * (1 + draw(4)));
    }
}

/* `count` equal steps, noted down; something else behind them. */
static void put_steps(size_t count, size_t layers, size_t rarity) {
    for (size_t i = 0; i < count; i++) {
        begins[i] = made.event_count;
        train(layers, rarity);
    }
    begins[count] = made.event_count;
}

static bool find(const ashlar_rmm_log *log) {
    steps = (ashlar_steps){.count = 77};
    return ashlar__steps_find(log, &steps) == ASHLAR_OK;
}

static void check_steps(size_t count) {
    CHECK_ZU(steps.count, count);
    for (size_t i = 0; i <= count && count == steps.count; i++) {
        CHECK_ZU(steps.boundaries[i], begins[i]);
    }
    ashlar__steps_finish(&steps);
    CHECK(steps.boundaries == NULL && steps.count == 0);
}

static void check_none(void) {
    CHECK_ZU(steps.count, 0);
    CHECK(steps.boundaries == NULL && steps.score == 0 && steps.period == 0);
}

static void expect_steps(size_t count) {
    REQUIRE(find(&made));
    check_steps(count);
}

static void expect_none(void) {
    REQUIRE(find(&made));
    check_none();
}

/* ---- by period ---- */

CASE(steps_begin_where_least_is_live) {
    static const size_t counts[] = {2, 3, 10}, layers[] = {6, 24, 60};
    for (size_t c = 0; c < 3; c++) {
        for (size_t l = 0; l < 3; l++) {
            start(1);
            initialise(30);
            put_steps(counts[c], layers[l], 0);
            REQUIRE(find(&made));
            CHECK(steps.score == 1);
            CHECK_ZU(steps.period, 1 + 5 * layers[l] + 4 * (layers[l] + 1));
            check_steps(counts[c]);
        }
    }
}

CASE(a_tail_is_in_no_step) {
    start(1);
    initialise(30);
    put_steps(5, 12, 0);
    initialise(40);
    expect_steps(5);
}

/* Cut by so many allocations and their frees; what is live from the start must not matter. */
CASE(a_step_that_the_log_does_not_end_is_none) {
    static const size_t cuts[] = {10, 20, 60};
    for (size_t c = 0; c < 3; c++) {
        start(1);
        initialise(30);
        put_steps(5, 12, 0);
        for (size_t cut = 0; cut < cuts[c];) {
            cut += events[--made.event_count].action == ASHLAR_RMM_ALLOCATE;
        }
        expect_steps(4);
    }
}

/* Steps of 100 allocations, the first or the last of which has 30 others at its open end. */
CASE(a_step_of_which_much_is_different_at_the_end_is_none) {
    for (size_t odd = 0; odd < 6; odd += 5) {
        start(1);
        for (size_t i = 0; i < 6; i++) {
            size_t blocks[100];
            begins[i] = made.event_count;
            for (size_t k = 0; k < 100; k++) {
                const bool is_odd = i == odd && (odd == 0 ? k < 30 : k >= 70);
                blocks[k] = take(is_odd ? 100000 + draw(1000) : 512 * (1 + k * k % 83));
            }
            give_all(blocks, 100);
        }
        begins[6] = made.event_count;
        if (odd == 0) {
            memmove(begins, begins + 1, 6 * sizeof *begins);
        }
        expect_steps(5);
    }
}

/* Least is live at the start; but in the first step that is after the first half. */
CASE(where_the_first_step_has_its_trough_does_not_matter) {
    start(1);
    const size_t early = take(1 << 20);
    for (size_t i = 0; i < 6; i++) {
        size_t blocks[40];
        begins[i] = made.event_count;
        for (size_t k = 0; k < 40; k++) {
            blocks[k] = take(512 * (1 + k * k % 31));
            if (k == 19) {
                give_all(blocks + 1, 19); /* all but one */
                if (i == 0) {
                    give(early);
                }
            }
        }
        give(blocks[0]);
        give_all(blocks + 20, 20);
    }
    begins[6] = made.event_count;
    expect_steps(6);
}

/* Any place is a trough: the one that most steps have. */
CASE(of_equal_troughs_the_one_of_most_steps_is_taken) {
    start(1);
    for (size_t i = 0; i < 6; i++) {
        begins[i] = made.event_count;
        for (size_t k = 0; k < (i == 5 ? 10 : 50); k++) {
            give(take(512 * (1 + k * k % 43)));
        }
    }
    expect_steps(5);
}

/* The frees at the end of a step are the step's; of the last one, up to the log's end. */
CASE(what_a_step_frees_at_its_end_is_in_it) {
    start(1);
    for (size_t i = 0; i < 6; i++) {
        size_t blocks[20];
        begins[i] = made.event_count;
        for (size_t k = 0; k < 20; k++) {
            blocks[k] = take(512 * (1 + k * k % 17));
        }
        give_all(blocks, 20);
    }
    begins[6] = made.event_count;
    expect_steps(6);
}

CASE(small_changes_move_no_boundary) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        start(seed);
        initialise(30);
        put_steps(12, 30, 60);
        REQUIRE(find(&made));
        CHECK(steps.score > 0.5 && steps.score < 1);
        check_steps(12);
    }
}

/* What lives on after the first step (gradients, moments) makes its trough lower than the others.
 */
CASE(a_first_step_that_fills_up_moves_no_boundary) {
    start(1);
    begins[0] = made.event_count;
    train(10, 0);
    (void)take(1 << 20);
    for (size_t i = 1; i < 6; i++) {
        begins[i] = made.event_count;
        train(10, 0);
        give(take(1 << 20));
    }
    begins[6] = made.event_count;
    expect_steps(6);
}

/* All of one size; where each is for is all that tells. */
CASE(streams_tell_allocations_apart) {
    start(1);
    for (size_t i = 0; i < 8; i++) {
        size_t blocks[40];
        begins[i] = made.event_count;
        for (size_t k = 0; k < 40; k++) {
            blocks[k] = take_on(512, k * k % 9);
        }
        give_all(blocks, 40);
    }
    begins[8] = made.event_count;
    REQUIRE(find(&made));
    CHECK_ZU(steps.period, 40);
    check_steps(8);
    for (size_t i = 0; i < made.event_count; i++) {
        events[i].stream = 0;
    }
    expect_none();
}

CASE(one_step_is_none) {
    start(1);
    initialise(30);
    put_steps(1, 24, 0);
    expect_none();
}

CASE(noise_is_none) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        start(seed);
        for (size_t i = 0; i < 3000; i++) {
            const size_t block = take(512 * (1 + draw(seed * 3)));
            if (draw(3) != 0) {
                give(block);
            }
        }
        expect_none();
    }
}

CASE(a_log_with_nothing_in_it_has_none) {
    start(1);
    expect_none();
    put(ASHLAR_RMM_NOTHING, 0, 5, 0);
    expect_none();
    give(take(512));
    expect_none();
}

/* ---- by marks ---- */

CASE(marks_are_where_steps_begin) {
    REQUIRE(parse(HEADER "1,0,allocate,0x10,1,0\n1,0,step,,0,0\n1,0,free,0x10,1,0\n"
                         "1,0,step,,0,0\n1,0,allocate,0x10,1,0\n") == ASHLAR_OK);
    REQUIRE(find(log_of));
    CHECK(steps.score == 1 && steps.period == 0);
    begins[0] = 1;
    begins[1] = 3;
    begins[2] = 5;
    check_steps(2);
}

/* A mark at the end says where the last step ended. */
CASE(what_follows_the_last_mark_is_a_step_if_it_allocates) {
    REQUIRE(parse(HEADER "1,0,step,,0,0\n1,0,allocate,0x10,1,0\n1,0,step,,0,0\n"
                         "1,0,free,0x10,1,0\n") == ASHLAR_OK);
    REQUIRE(find(log_of));
    begins[0] = 0;
    begins[1] = 2;
    check_steps(1);
    REQUIRE(parse(HEADER "1,0,allocate,0x10,1,0\n1,0,step,,0,0\n1,0,free,0x10,1,0\n") == ASHLAR_OK);
    REQUIRE(find(log_of));
    check_none();
}

CASE(marks_win_over_a_period) {
    start(1);
    put(ASHLAR_RMM_STEP, 0, 0, 0);
    put_steps(6, 12, 0);
    REQUIRE(find(&made));
    begins[0] = 0;
    begins[1] = made.event_count;
    check_steps(1);
}

/* ---- recorded logs ---- */

/* Read a recorded log into log_of; else why that is not possible. */
static const char *read_recorded(const char *name) {
    char file[1000];
    const char *source = getenv("ASHLAR_SOURCE");
    (void)snprintf(file, sizeof file, "%s/../shared/traces/pytorch/%s.rmm.csv.gz",
                   source != NULL ? source : ".", name);
    if (access(file, R_OK) != 0) {
        return "no recorded trainings beside the source folder";
    }
    drop_log();
    (void)check_at_end(drop_log);
    const ashlar_status status = ashlar__rmm_log_read(file, &log_of);
    CHECK(status == ASHLAR_OK || status == ASHLAR_ENOTSUP);
    return status == ASHLAR_OK ? NULL : "a build without zlib";
}

#define REQUIRE_RECORDED(name)                 \
    do {                                       \
        const char *why = read_recorded(name); \
        SKIP_IF(why != NULL, why);             \
    } while (0)

/* Each holds one step of a training, told by what is live: it rises and falls once. */
CASE(a_recorded_step_of_a_training_is_none) {
    static const char *const names[] = {"gpt_medium_128_train", "gpt_medium_512_train"};
    for (size_t i = 0; i < 2; i++) {
        REQUIRE_RECORDED(names[i]);
        REQUIRE(find(log_of));
        check_none();
    }
}

/* The same step four times, as if it had gone on: its frees of what was live before are left out.
 */
CASE(a_recorded_step_done_again_is_found) {
    size_t live = 0; /* what was live before: the first events */
    REQUIRE_RECORDED("gpt_medium_128_train");
    const ashlar_rmm_log *log = log_of;
    while (log->events[live].action == ASHLAR_RMM_ALLOCATE) {
        live++;
    }
    start(1);
    initialise(200);
    for (size_t n = 0; n < 4; n++) {
        static size_t blocks[20000]; /* by the log's; NONE: freed */
        begins[n] = made.event_count;
        for (size_t i = live; i < log->event_count; i++) {
            const ashlar_rmm_event *event = &log->events[i];
            if (event->action == ASHLAR_RMM_ALLOCATE) {
                blocks[event->block] = take(event->bytes);
            } else if (event->block >= live) {
                give(blocks[event->block]);
                blocks[event->block] = NONE;
            }
        }
        for (size_t i = live; i < log->block_count; i++) { /* nothing is kept */
            if (blocks[i] != NONE) {
                give(blocks[i]);
            }
        }
    }
    begins[4] = made.event_count;
    REQUIRE(find(&made));
    CHECK(steps.score == 1);
    check_steps(4);
}

/* 24 layers behind the weights, and nothing that says they are no steps. */
CASE(recorded_layers_of_an_inference_are_found) {
    REQUIRE_RECORDED("gpt_medium_128_inference");
    REQUIRE(find(log_of));
    CHECK_ZU(steps.count, 24);
    CHECK_ZU(steps.period, 53);
    CHECK(steps.score > 0.99);
    ashlar__steps_finish(&steps);
}

/* ---- errors ---- */

CASE(no_host_memory_at_any_call_changes_nothing) {
    for (int is_marked = 0; is_marked <= 1; is_marked++) {
        start(1);
        if (is_marked) {
            put(ASHLAR_RMM_STEP, 0, 0, 0);
        }
        put_steps(4, 12, 0);
        steps = (ashlar_steps){.count = 77};
        FOR_HOST_FAILURES(n, status, ashlar__steps_find(&made, &steps)) {
            CHECK(status == ASHLAR_OK || (steps.count == 77 && steps.boundaries == NULL));
            CHECK(status == ASHLAR_OK || ashlar_error_detail()[0] != '\0');
        }
        CHECK(n > (is_marked ? 1 : 10));
        CHECK_ZU(steps.count, is_marked ? 1 : 4);
        ashlar__steps_finish(&steps);
    }
}

RUN_CASES()
