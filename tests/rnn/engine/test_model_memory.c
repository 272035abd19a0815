/* test_model_memory.c - a training walk in less memory than it takes, in chunks and without: steps
 * after a warm-up, captured ones, and what fails in between. */
#include "tests/rnn/engine/engine_fixture.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEVICE "memory=64MiB,mode=adversarial"

/* The block has several handles, which a trim gives back to the device. */
enum { T = 48, B = 16, E = 5, H = 16, V = 7 };

static const ashlar_optimizer_config sgd = {ASHLAR_OPTIMIZER_SGD, .learning_rate = 0.1};
static ashlar_optimizer *optimizer;
static ashlar_model_batch batch;
static char trace[32], device_spec[128] = DEVICE;

static void close_steps(void) {
    wait_for(streams[0]);
    ashlar_optimizer_destroy(optimizer);
}

/* An LSTM on tokens, and where the model shall not be cut what pools its outputs. */
static void declare(bool is_local) {
    const ashlar_rnn_config config = {
        .hidden = H, .layers = 2, .cell = ASHLAR_RNN_LSTM, .directions = is_local ? 1 : 2};
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = declare_stacks(tokens, V, E, &config);
    drawn.classes[0] = drawn.classes[1] = V;
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY,
                      ashlar_model_linear(model, "linear", x, V, true), targets, NULL);
}

/* Copies cost next to nothing, so that there are some. */
static bool open_steps(bool is_local) {
    static const ashlar_model_rates rates = {.out_bytes = 1e15, .back_bytes = 1e15};
    if (!open_model(device_spec, 1)) {
        return false;
    }
    declare(is_local);
    if (commit(1) != ASHLAR_OK || ashlar_model_set_rates(model, &rates) != ASHLAR_OK ||
        ashlar_optimizer_create(ashlar_model_arena(model), &sgd, streams[0], &optimizer) !=
            ASHLAR_OK) {
        return false;
    }
    batch = draw_batch(T, B, true);
    batch.weight = 0.01;
    batch.chunk = is_local ? 8 : 0;
    return check_at_end(close_steps);
}

/* A memory in which the longest batch has a third of what would be of use beyond the least. */
static size_t limit_memory(void) {
    ashlar_model_batch b = batch;
    ashlar_model_need whole = {0};
    ashlar_model_tiers tiers = {0};
    b.memory = b.chunk > 0 ? SIZE_MAX : 0;
    CHECK(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &whole) == ASHLAR_OK);
    CHECK(ashlar_model_get_tiers(model, &b, &tiers) == ASHLAR_OK);
    CHECK(tiers.host_bytes == 0 && tiers.resident_bytes > 0);
    batch.memory = tiers.least_bytes + (whole.plan_bytes - tiers.least_bytes) / 3;
    CHECK(ashlar_model_get_tiers(model, &batch, &tiers) == ASHLAR_OK);
    CHECK(tiers.host_bytes > 0);
    return tiers.host_bytes;
}

static double first[GRADIENTS], after[GRADIENTS];

static void restore(void) {
    wait_for(streams[0]);
    memcpy(region(ASHLAR_REGION_PARAMETERS), first, region_count() * sizeof *first);
}

/* The step's weights without a limit, whose chunks go forward twice. */
static void expect_step(void) {
    ashlar_model_batch b = batch;
    b.memory = 0;
    memcpy(first, region(ASHLAR_REGION_PARAMETERS), region_count() * sizeof *first);
    CHECK(ashlar_model_step(model, optimizer, &b, 0.1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    memcpy(after, region(ASHLAR_REGION_PARAMETERS), region_count() * sizeof *after);
    restore();
}

static bool has_weights(const double *weights) {
    wait_for(streams[0]);
    return memcmp(region(ASHLAR_REGION_PARAMETERS), weights, region_count() * sizeof *weights) == 0;
}

/* Let the next walk take streams, events and page-locked memory anew. */
static void give_back_host(void) {
    const ashlar_away had = model->away;
    ashlar__away_finish(&model->away);
    model->away = (ashlar_away){
        .device = had.device, .needed_bytes = had.needed_bytes, .needed_events = had.needed_events};
}

static void check_failures(void) {
    static const ashlar_driver_fn calls[] = {
        ASHLAR_DRIVER_FN_stream_create,     ASHLAR_DRIVER_FN_event_create,
        ASHLAR_DRIVER_FN_mem_host_alloc,    ASHLAR_DRIVER_FN_memcpy_dtoh_async,
        ASHLAR_DRIVER_FN_memcpy_htod_async, ASHLAR_DRIVER_FN_event_record,
        ASHLAR_DRIVER_FN_stream_wait_event, ASHLAR_DRIVER_FN_launch_host_func};
    expect_step();
    (void)limit_memory();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t failures = 0;
        uint64_t made = 1;
        give_back_host();
        for (uint64_t n = 1; made >= n; n++) {
            const uint64_t before = atomic_load(&driver->calls[calls[i]]);
            ashlar_status status;
            DRIVER_FAILS_AT(calls[i], n, CU_UNKNOWN,
                            status = ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]));
            made = atomic_load(&driver->calls[calls[i]]) - before;
            CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
            CHECK(has_weights(status == ASHLAR_OK ? after : first));
            CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK); /* no copy uses the block */
            failures += status != ASHLAR_OK;
            restore();
        }
        CHECK(failures > 0);
    }
}

CASE_WITH(a_copy_that_fails_is_told_and_nothing_is_trained, open_steps(true)) {
    check_failures();
}

CASE_WITH(nor_where_buffers_move_one_by_one, open_steps(false)) {
    check_failures();
}

CASE_WITH(without_host_memory_nothing_is_trained, open_steps(true)) {
    expect_step();
    (void)limit_memory();
    ashlar_status status = ASHLAR_EHOSTMEM;
    for (unsigned long n = 1; status != ASHLAR_OK; n++) {
        ashlar__host_fail_at(n);
        status = ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]);
        ashlar__host_fail_at(0);
        CHECK(has_weights(status == ASHLAR_OK ? after : first));
        restore();
    }
}

/* ---- after the warm-up ---- */

static void check_warmed(void) {
    static int32_t lengths[B];
    ashlar_warmup_report report;
    const size_t host_bytes = limit_memory();
    batch.lengths = lengths;
    REQUIRE(ashlar_model_warmup(model, &batch, streams[0], &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady && host_bytes > 0);
    const uint64_t before = counts_now().memory;
    for (size_t i = 0; i < 3 * T; i++) {
        ashlar_model_batch b = batch;
        b.steps = i < T ? T - i : 1 + below(T);
        for (size_t k = 0; k < B; k++) {
            lengths[k] = (int32_t)(1 + below(b.steps));
        }
        CHECK(ashlar_model_step(model, optimizer, &b, 0.1, streams[0]) == ASHLAR_OK);
    }
    wait_for(streams[0]);
    CHECK(counts_now().memory == before && stats_now().driver_calls_sealed == 0);
}

CASE_WITH(after_the_warm_up_no_length_takes_memory, open_steps(true)) {
    check_warmed();
}

CASE_WITH(nor_where_buffers_have_moved, open_steps(false)) {
    check_warmed();
}

/* ---- captured ---- */

static void check_captured(void) {
    ashlar_graph *graph;
    expect_step();
    (void)limit_memory();
    (void)run(ASHLAR_WALK_TRAIN, &batch);
    expect();
    batch.lengths = NULL; /* a capture does not read them on the host */
    (void)run(ASHLAR_WALK_TRAIN, &batch);
    expect();
    REQUIRE(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_graph_end(graph) == ASHLAR_OK);
    for (size_t i = 0; i < 3; i++) {
        clear();
        CHECK(ashlar_graph_launch(graph) == ASHLAR_OK);
        wait_for(streams[0]);
        check_same(0);
    }
    ashlar_graph_destroy(graph);
}

CASE_WITH(copies_are_captured_with_the_walk, open_steps(true)) {
    check_captured();
}

CASE_WITH(and_those_of_single_buffers, open_steps(false)) {
    check_captured();
}

CASE_WITH(rates_that_are_none_are_refused, open_steps(true)) {
    const ashlar_model_rates rates = {.flops = -1}, no_number = {.back_bytes = NAN};
    CHECK_FAILS(ashlar_model_set_rates(model, &rates), ASHLAR_EINVAL, "a rate of -1");
    CHECK_FAILS(ashlar_model_set_rates(model, &no_number), ASHLAR_EINVAL, "give a finite one");
    CHECK(ashlar_model_set_rates(model, NULL) == ASHLAR_OK);
}

/* ---- traces ---- */

static bool open_traced(bool is_local) {
    (void)snprintf(trace, sizeof trace, "/tmp/ashlar-trace-XXXXXX");
    const int fd = mkstemp(trace);
    (void)snprintf(device_spec, sizeof device_spec, DEVICE ",time=on,trace=%s", trace);
    return fd >= 0 && close(fd) == 0 && open_steps(is_local);
}

/* Read a trace's lines on a tier: the sum of what it gets, and of all. */
static long long read_tier(const char *tier, long long *left) {
    char line[512], name[64];
    long long got = 0, bytes;
    FILE *file = fopen(trace, "r");
    (void)snprintf(name, sizeof name, "\"cat\":\"tier\",\"name\":\"%s\"", tier);
    *left = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *args = strstr(line, name) != NULL ? strstr(line, "\"bytes\":") : NULL;
        if (args != NULL && sscanf(args, "\"bytes\":%lld", &bytes) == 1) {
            got += bytes > 0 ? bytes : 0;
            *left += bytes;
            CHECK(*left >= 0);
        }
    }
    CHECK(file != NULL && fclose(file) == 0);
    return got;
}

/* What goes to a tier leaves it again. Sizes are without what aligns them. */
static void check_trace(void) {
    const long long host = (long long)limit_memory();
    long long left;
    CHECK(ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    const long long away = read_tier("host", &left);
    CHECK(left == 0 && away <= host && away > host / 2);
    CHECK(read_tier("resident", &left) > away && left == 0); /* each once more, before it leaves */
    CHECK(unlink(trace) == 0);
}

CASE_WITH(a_trace_tells_which_chunks_are_away, open_traced(true)) {
    check_trace();
}

CASE_WITH(or_which_buffers, open_traced(false)) {
    check_trace();
}

/* ---- a machine that is busy ---- */

static time_t leap; /* by which the clock goes on at each call */

int clock_gettime(clockid_t clock, struct timespec *out) {
    static time_t leaps;
    const int result = (int)syscall(SYS_clock_gettime, clock, out);
    out->tv_sec += __atomic_add_fetch(&leaps, leap, __ATOMIC_RELAXED);
    return result;
}

/* Of GRUs, whose buffers in the order of their sizes take more than the search finds. */
static bool open_gru(void) {
    const ashlar_rnn_config gru = {.hidden = 100, .layers = 3, .cell = ASHLAR_RNN_GRU};
    if (!open_model(DEVICE, 1)) {
        return false;
    }
    ashlar_tensor *x = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, 0);
    x = ashlar_model_embedding(model, "embedding", x, V, 1);
    x = ashlar_model_linear(model, "linear", ashlar_model_rnn(model, "gru", x, &gru, NULL).y, 256,
                            true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, x, targets, NULL);
    return commit(1) == ASHLAR_OK;
}

CASE_WITH(what_chunks_need_does_not_depend_on_the_clock, open_gru()) {
    ashlar_model_batch b = {.batch = 31, .chunk = 8, .weight = 1, .loss = loss};
    for (b.steps = 9; b.steps <= 16; b.steps++) {
        size_t bytes[2];
        for (leap = 0; leap < 2; leap++) { /* another memory: planned anew */
            ashlar_model_need need = {0};
            b.memory = SIZE_MAX - (size_t)leap;
            CHECK(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &need) == ASHLAR_OK);
            bytes[leap] = need.plan_bytes;
        }
        CHECK_ZU(bytes[0], bytes[1]);
    }
    leap = 0;
}

RUN_CASES()
