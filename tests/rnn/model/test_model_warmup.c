/*
 * test_model_warmup.c - the warm-up of a model sizes every block for every length, and no later
 * step of any length asks the driver for anything but its own work.
 */
#include "tests/rnn/model/model_fixture.h"

#include <ashlar/plan.h>

#include "allocator/core/core.h"
#include "rnn/layer/backend.h"

enum { MAX_STEPS = 20, BATCH = 8 };

_Static_assert((2 * MAX_STEPS + 1) * BATCH <= 2 * CELLS_MAX + BATCH_MAX, "a batch fits");

/* Without caches no plan can be made: then the allocator's ordinary path is what is warmed up. */
static bool open_cached(const char *spec, uint64_t cache_bytes) {
    return open_model_cached(spec, ASHLAR_REGIONS_ALL, cache_bytes);
}

static ashlar_warmup_options lengths_to(size_t max_steps) {
    return (ashlar_warmup_options){
        .stream = streams[1], .min_length = 1, .max_length = max_steps, .length_bucket_count = 1};
}

/* What the steps are made of: device memory for one window of `steps` x batch at most. */
typedef struct warm_model {
    size_t steps, batch;
    int32_t *words; /* device: inputs, targets, lengths */
} warm_model;

/* A batch of sequences of `length` zeros. */
static ashlar_status warm_step(void *user, size_t length) {
    const warm_model *w = user;
    const size_t grid = w->steps * w->batch;
    int32_t lengths[64];
    for (size_t b = 0; b < w->batch; b++) {
        lengths[b] = (int32_t)length;
    }
    const ashlar_model_window window = {.steps = length,
                                        .count = w->batch,
                                        .inputs = w->words,
                                        .targets = w->words + grid,
                                        .lengths = w->words + 2 * grid,
                                        .rnn_lengths = lengths};
    ashlar_step_sizes sizes;
    CHECK(ashlar_fill(device, w->words, 0, 2 * grid * sizeof *w->words, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_copy_to_device(device, w->words + 2 * grid, lengths, w->batch * sizeof *lengths,
                                streams[1]) == ASHLAR_OK);
    const ashlar_status status = ashlar__model_sizes(model, length, w->batch, &sizes);
    return status == ASHLAR_OK ? ashlar__model_step(model, &window, &sizes, &results->loss)
                               : status;
}

static ashlar_status warm_rehearse(void *user, size_t length) {
    const warm_model *w = user;
    ashlar_step_sizes sizes;
    const ashlar_status status = ashlar__model_sizes(model, length, w->batch, &sizes);
    return status == ASHLAR_OK ? ashlar__model_dry_run(model, false, &sizes) : status;
}

/* words: room for 2 * as->max_length * batch + batch of them */
static ashlar_status warm_up_model(const ashlar_warmup_options *as, size_t batch, int32_t *words,
                                   ashlar_warmup_report *report) {
    warm_model w = {as->max_length, batch, words};
    ashlar_warmup_options filled = *as;
    filled.step = warm_step;
    filled.dry_run = warm_rehearse;
    filled.user = &w;
    return ashlar_allocator_warmup(allocator, &filled, report);
}

static ashlar_status warm_up_as(const ashlar_warmup_options *as, ashlar_warmup_report *report) {
    return warm_up_model(as, BATCH, results->inputs, report);
}

/* ---- back ends whose sizes do as they like ---- */

static size_t failing_steps; /* sizes of that length cannot be told; 0: of all can */

/* Never below the CPU's needs; the largest reserve at 7 steps, the largest workspace at 3. */
static ashlar_status odd_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                               size_t *reserve, size_t *work) {
    const ashlar_status status =
        ashlar__rnn_backend_cpu.sizes(rnn, steps, batch, training, reserve, work);
    *reserve += steps * 7 % 16 * MIB;
    *work += (steps == 3 ? 20 : steps * 5 % 8) * MIB;
    return steps == failing_steps ? ASHLAR_EOVERFLOW : status;
}

static ashlar_status queue_nothing(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                   const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                                   ashlar_stream stream) {
    (void)rnn, (void)pass, (void)batch, (void)buffers, (void)stream;
    return ASHLAR_OK;
}

static const ashlar_rnn_backend odd = {.sizes = odd_sizes, .queue = queue_nothing};

/* ---- the run ---- */

/* A rehearsal takes what a step takes, in its order: the n-th failure says how many there are. */
CASE_WITH(a_rehearsal_is_a_step_without_work, open_model("memory=1GiB", ASHLAR_REGIONS_ALL)) {
    const size_t big = 5 * MIB;
    const ashlar_step_sizes sizes = {
        .x = big, .y = big, .logits = big, .reserve = big, .work = big};
    const uint64_t before = CALLS(launch_host_func) + CALLS(memcpy_htod_async) +
                            CALLS(memset_d8_async);
    const ashlar_stats first = stats_now();
    CHECK(ashlar__model_dry_run(model, false, &sizes) == ASHLAR_OK);
    const ashlar_stats second = stats_now();
    CHECK_ZU(second.live_blocks, first.live_blocks);
    CHECK_ZU(second.alloc_count - first.alloc_count, 9);
    CHECK_ZU(second.live_peak_bytes - first.live_bytes, 5 * big); /* x, y, logits, two */
    CHECK_ZU(CALLS(launch_host_func) + CALLS(memcpy_htod_async) + CALLS(memset_d8_async), before);
    close_model();
    REQUIRE(open_model("memory=16MiB", ASHLAR_REGIONS_ALL)); /* room for two of them */
    const uint64_t live_blocks = stats_now().live_blocks;
    CHECK(ashlar__model_dry_run(model, false, &sizes) == ASHLAR_ENOMEM);
    CHECK_ZU(stats_now().live_blocks, live_blocks);
}

/* ---- after it ---- */

/* Steps of drawn lengths, as trained. Returns the calls that were not the steps' own work. */
static uint64_t run_random_steps(int count, uint64_t seed, const ashlar_warmup_options *as) {
    const uint64_t before = management_calls();
    ashlar_random random;
    ashlar__random_init(&random, seed);
    for (int i = 0; i < count; i++) {
        int32_t lengths[BATCH];
        made_batch made;
        size_t steps = 1;
        for (size_t b = 0; b < BATCH; b++) {
            lengths[b] = 1 + (int32_t)ashlar__random_below(&random, MAX_STEPS);
            steps = (size_t)lengths[b] > steps ? (size_t)lengths[b] : steps;
        }
        make_batch(&made, steps, BATCH, lengths);
        const uint64_t key = ashlar_warmup_key(as, steps);
        CHECK(ashlar_step_begin(allocator, streams[1], key) == ASHLAR_OK);
        run_step(&made);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    return management_calls() - before;
}

static void check_steps_after(const char *spec, const ashlar_rnn_backend *backend,
                              uint64_t cache_bytes, size_t bucket_count) {
    ashlar_warmup_report report;
    REQUIRE(open_cached(spec, cache_bytes));
    ashlar_warmup_options as = lengths_to(MAX_STEPS);
    as.length_bucket_count = bucket_count;
    model->rnn->backend = backend;
    CHECK(warm_up_as(&as, &report) == ASHLAR_OK);
    CHECK(report.is_planned == (cache_bytes > 0));
    const ashlar_stats before = stats_now();
    CHECK_ZU(run_random_steps(100, 11, &as), staging_calls(100 * 3, 0)); /* of the batches */
    const ashlar_stats after = stats_now();
    CHECK_ZU(after.driver_calls_sealed, 0);
    CHECK(after.reserved_bytes == before.reserved_bytes);
    CHECK(after.live_blocks == before.live_blocks);
    ashlar_plan_stats plan;
    ashlar_plan_get_stats(allocator, &plan);
    CHECK_ZU(plan.hits - report.plan.hits, cache_bytes > 0 ? 100 * 9 : 0);
    /* Three equal ranges may merge sizes that do not go together; ranges that are found do not. */
    CHECK(cache_bytes == 0 || bucket_count > 0 ||
          plan.memory_bytes <= plan.bound_bytes * 101 / 100);
    close_model();
}

CASE(steps_after_the_warm_up_do_not_manage_memory) {
    const char *const specs[] = {"memory=1GiB", "memory=1GiB,mode=adversarial,seed=7"};
    for (int i = 0; i < 8; i++) {
        const ashlar_rnn_backend *backend = i / 2 % 2 == 0 ? &ashlar__rnn_backend_cpu : &odd;
        check_steps_after(specs[i % 2], backend, i < 4 ? 0 : 64 * MIB, 0);
        check_steps_after(specs[i % 2], backend, i < 4 ? 0 : 64 * MIB, 3);
    }
}

/* Every length of a model of this shape, in a drawn order, twice. */
static void check_shape(const ashlar_model_config *config, size_t max_steps, size_t batch,
                        uint64_t cache_bytes, ashlar_random *random) {
    const ashlar_rnn_backend idle = {.sizes = ashlar__rnn_backend_cpu.sizes,
                                     .queue = queue_nothing};
    REQUIRE(set_up_cached("memory=4GiB,mode=adversarial", cache_bytes));
    REQUIRE(ashlar__model_create(allocator, streams[1], config, 3, &model) == ASHLAR_OK);
    model->rnn->backend = &idle;
    results = (step_memory *)(void *)take(sizeof *results, streams[1]);
    int32_t *words =
        (int32_t *)(void *)take((2 * max_steps + 1) * batch * sizeof(int32_t), streams[1]);
    const ashlar_warmup_options as = lengths_to(max_steps);
    ashlar_warmup_report report;
    CHECK(warm_up_model(&as, batch, words, &report) == ASHLAR_OK);
    CHECK(report.is_steady);
    for (size_t i = 0; i < 2 * max_steps; i++) {
        ashlar_step_sizes sizes;
        const size_t steps =
            i < max_steps ? max_steps - i : 1 + (size_t)ashlar__random_below(random, max_steps);
        CHECK(ashlar__model_sizes(model, steps, batch, &sizes) == ASHLAR_OK);
        CHECK(ashlar_step_begin(allocator, streams[1], ashlar_warmup_key(&as, steps)) == ASHLAR_OK);
        CHECK(ashlar__model_dry_run(model, false, &sizes) == ASHLAR_OK);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    const ashlar_stats stats = stats_now();
    CHECK_ZU(stats.driver_calls_sealed, 0);
    if (cache_bytes > 0) { /* not even to begin with: the rehearsals took nothing. Small and large
                            * blocks lie apart, each kind in whole handles of 2 MiB */
        CHECK(stats.reserved_peak_bytes <= stats.live_peak_bytes + 5 * MIB);
    }
    give(words);
    give(results);
    ashlar__model_destroy(model);
    tear_down();
}

/*
 * Smaller blocks are not always placed where the larger ones were: in the first two shapes one
 * length finds no hole for its last buffer after a step of the longest alone. The seed is fixed.
 */
CASE(no_shape_has_a_length_that_finds_no_room) {
    const struct {
        ashlar_model_config config;
        size_t max_steps, batch;
    } known[] = {
        {{.classes = 135, .embedding = 290, .hidden = 153, .layers = 1}, 47, 40},
        {{.classes = 202, .embedding = 245, .hidden = 42, .layers = 1}, 44, 47},
    };
    ashlar_random random;
    ashlar__random_init(&random, 23);
    for (size_t i = 0; i < 2; i++) {
        check_shape(&known[i].config, known[i].max_steps, known[i].batch, 0, &random);
        check_shape(&known[i].config, known[i].max_steps, known[i].batch, 64 * MIB, &random);
    }
    for (int i = 0; i < 20; i++) {
        const ashlar_model_config config = {
            .classes = 8 + (size_t)ashlar__random_below(&random, 300),
            .embedding = 1 + (size_t)ashlar__random_below(&random, 400),
            .hidden = 1 + (size_t)ashlar__random_below(&random, 200),
            .layers = 1,
        };
        check_shape(&config, 2 + (size_t)ashlar__random_below(&random, 60),
                    8 + (size_t)ashlar__random_below(&random, 40), i % 2 == 0 ? 0 : 64 * MIB,
                    &random);
    }
}

RUN_CASES()
