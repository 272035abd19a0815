/*
 * test_model_warmup.c - the warm-up of a model sizes every block for every length, and no later step
 * of any length asks the driver for anything but its own work.
 */
#include "model_fixture.h"

#include "backend.h"
#include "model_warmup.h"

enum { MAX_STEPS = 20, BATCH = 8 };

static made_batch staging;

static bool open_with_staging(const char *spec) {
    staging = (made_batch){.batch = {.inputs = staging.inputs,
                                     .targets = staging.targets,
                                     .lengths = staging.lengths}};
    return open_model(spec, ASHLAR_REGION_COUNT);
}

static ashlar_status warm_up(void) {
    return ashlar_warmup_run(model, MAX_STEPS, BATCH, &staging.batch, results);
}

/* ---- back ends whose sizes do as they like ---- */

static size_t failing_steps; /* sizes of that length cannot be told; 0: of all can */

/* Never below the CPU's needs; the largest reserve at 7 steps, the largest workspace at 3. */
static ashlar_status odd_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                               size_t *reserve, size_t *work) {
    const ashlar_status status =
        ashlar_rnn_backend_cpu.sizes(rnn, steps, batch, training, reserve, work);
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

/* ---- sizes ---- */

static void raise_to(size_t *largest, size_t value) {
    *largest = value > *largest ? value : *largest;
}

static void check_is_maximum(const ashlar_step_sizes *got) {
    ashlar_step_sizes want = {0}, s;
    for (size_t steps = 1; steps <= MAX_STEPS; steps++) {
        CHECK(ashlar_model_sizes(model, steps, BATCH, &s) == ASHLAR_OK);
        raise_to(&want.reserve, s.reserve);
        raise_to(&want.work, s.work);
    }
    /* The last ones: shapes grow with the length. */
    CHECK(got->grid == s.grid && got->lengths == s.lengths && got->x == s.x && got->y == s.y);
    CHECK(got->logits == s.logits);
    CHECK_ZU(got->reserve, want.reserve);
    CHECK_ZU(got->work, want.work);
}

static void sizes_are_the_maximum_over_all_lengths(void) {
    ashlar_step_sizes at_maximum, got;
    REQUIRE(open_with_staging("memory=1GiB"));
    CHECK(ashlar_warmup_sizes(model, MAX_STEPS, BATCH, &got) == ASHLAR_OK);
    check_is_maximum(&got);
    model->rnn->backend = &odd;
    CHECK(ashlar_warmup_sizes(model, MAX_STEPS, BATCH, &got) == ASHLAR_OK);
    check_is_maximum(&got);
    CHECK(ashlar_model_sizes(model, MAX_STEPS, BATCH, &at_maximum) == ASHLAR_OK);
    CHECK(got.reserve > at_maximum.reserve && got.work > at_maximum.work);
    CHECK(ashlar_warmup_sizes(model, 3, BATCH, &got) == ASHLAR_OK); /* its last length counts */
    CHECK(got.work > 20 * MIB);
    CHECK(ashlar_warmup_sizes(model, 1, BATCH, &got) == ASHLAR_OK); /* and its first */
    CHECK(got.work > 5 * MIB);
    close_model();
}

static void sizes_that_cannot_be_told_are_reported(void) {
    ashlar_step_sizes sizes = {.grid = 77};
    REQUIRE(open_with_staging("memory=1GiB"));
    model->rnn->backend = &odd;
    for (failing_steps = 1; failing_steps <= MAX_STEPS; failing_steps++) {
        CHECK(ashlar_warmup_sizes(model, MAX_STEPS, BATCH, &sizes) == ASHLAR_EOVERFLOW);
        CHECK_ZU(sizes.grid, 77);
    }
    CHECK(ashlar_warmup_sizes(model, MAX_STEPS, BATCH, &sizes) == ASHLAR_OK);
    failing_steps = 5;
    const ashlar_stats before = stats_now();
    CHECK(warm_up() == ASHLAR_EOVERFLOW);
    CHECK(stats_now().alloc_count == before.alloc_count && !stats_now().is_sealed);
    failing_steps = 0;
    close_model();
}

/* ---- the run ---- */

static void the_run_is_a_step_of_the_maximum_length(void) {
    made_batch same;
    enum { LARGEST = 65536 };
    static char gradients[LARGEST], parameters[LARGEST];
    REQUIRE(open_with_staging("memory=64MiB,mode=adversarial,seed=3"));
    const size_t bytes = ashlar_arena_region_bytes(model->arena);
    REQUIRE(bytes <= LARGEST);
    memcpy(parameters, region_of(ASHLAR_REGION_PARAMETERS), bytes);
    memset(staging.inputs, 0x7f, sizeof staging.inputs);
    memset(staging.targets, 0x7f, sizeof staging.targets);
    memset(staging.lengths, 0x7f, sizeof staging.lengths);
    CHECK(warm_up() == ASHLAR_OK);
    const double loss = results->loss; /* the stream has been waited for */
    memcpy(gradients, region_of(ASHLAR_REGION_GRADIENTS), bytes);
    CHECK(staging.lengths[BATCH] == 0x7f7f7f7f);
    CHECK_ZU(staging.batch.steps, MAX_STEPS);
    CHECK_ZU(staging.batch.tokens, MAX_STEPS * BATCH);
    for (size_t b = 0; b < BATCH; b++) {
        CHECK(staging.lengths[b] == MAX_STEPS);
    }
    const size_t last = MAX_STEPS * BATCH - 1;
    CHECK(staging.inputs[last] == 0 && staging.targets[last] == 0);
    CHECK(staging.inputs[last + 1] != 0 && staging.targets[last + 1] != 0);
    make_batch(&same, MAX_STEPS, BATCH, staging.lengths);
    memset(same.inputs, 0, sizeof same.inputs);
    memset(same.targets, 0, sizeof same.targets);
    run_step(&same);
    CHECK(loss > 0 && loss == results->loss);
    CHECK(memcmp(gradients, region_of(ASHLAR_REGION_GRADIENTS), bytes) == 0);
    CHECK(memcmp(parameters, region_of(ASHLAR_REGION_PARAMETERS), bytes) == 0);
    close_model();
}

static void buffers_have_their_largest_size_and_go_back(void) {
    ashlar_step_sizes s;
    REQUIRE(open_with_staging("memory=1GiB"));
    model->rnn->backend = &odd;
    CHECK(ashlar_warmup_sizes(model, MAX_STEPS, BATCH, &s) == ASHLAR_OK);
    const ashlar_stats before = stats_now();
    CHECK(warm_up() == ASHLAR_OK);
    const ashlar_stats after = stats_now();
    CHECK(after.is_sealed && !before.is_sealed);
    CHECK(after.live_blocks == before.live_blocks && after.driver_calls_sealed == 0);
    CHECK_ZU(after.tags[ASHLAR_TAG_RESERVE].peak_bytes, s.reserve);
    CHECK_ZU(after.tags[ASHLAR_TAG_WORKSPACE].peak_bytes, s.work);
    CHECK_ZU(after.tags[ASHLAR_TAG_BATCH].peak_bytes, 2 * s.grid + s.lengths);
    close_model();
}

static void a_run_that_fails_does_not_seal(void) {
    const int calls[] = {ASHLAR_DRIVER_FN_launch_host_func, ASHLAR_DRIVER_FN_stream_synchronize};
    REQUIRE(open_with_staging("memory=64MiB"));
    for (size_t i = 0; i < 2; i++) {
        ashlar_driver_fail_at(driver, calls[i], 1, CU_UNKNOWN);
        CHECK(warm_up() == ASHLAR_EDRIVER);
        CHECK(!stats_now().is_sealed);
    }
    CHECK(warm_up() == ASHLAR_OK);
    CHECK(stats_now().is_sealed);
    close_model();
}

/* A rehearsal takes what a step takes, in its order: the n-th failure says how many there are. */
static void a_rehearsal_is_a_step_without_work(void) {
    const size_t big = 5 * MIB;
    const ashlar_step_sizes sizes = {.grid = big, .lengths = big, .x = big, .y = big,
                                     .logits = big, .reserve = big, .work = big};
    REQUIRE(open_with_staging("memory=1GiB"));
    const uint64_t before = CALLS(launch_host_func) + CALLS(memcpy_htod_async) +
                            CALLS(memset_d8_async);
    const ashlar_stats first = stats_now();
    CHECK(ashlar_model_rehearse(model, &sizes) == ASHLAR_OK);
    const ashlar_stats second = stats_now();
    CHECK_ZU(second.live_blocks, first.live_blocks);
    CHECK_ZU(second.alloc_count - first.alloc_count, 12);
    CHECK_ZU(second.live_peak_bytes - first.live_bytes, 8 * big); /* three, x, y, logits, two */
    CHECK_ZU(CALLS(launch_host_func) + CALLS(memcpy_htod_async) + CALLS(memset_d8_async), before);
    close_model();
    REQUIRE(open_with_staging("memory=16MiB")); /* room for two of them */
    const uint64_t live_blocks = stats_now().live_blocks;
    CHECK(ashlar_model_rehearse(model, &sizes) == ASHLAR_ENOMEM);
    CHECK_ZU(stats_now().live_blocks, live_blocks);
    close_model();
}

/*
 * A back end that asks for four times as much at its second and third visit, so that a rehearsal
 * has something to do: the first visit of a length is the maximum's, the later ones rehearsals'.
 */
static size_t visits[MAX_STEPS + 1], last_visit, first_reserve;

static ashlar_status growing_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                                   size_t *reserve, size_t *work) {
    const size_t visit = ++visits[steps];
    const ashlar_status status =
        ashlar_rnn_backend_cpu.sizes(rnn, steps, batch, training, reserve, work);
    if (steps < MAX_STEPS) { /* the step itself, of the maximum, is not to map it all */
        *reserve += first_reserve << (visit < 3 ? 2 * visit - 2 : 4);
    }
    return visit == last_visit && steps == 1 ? ASHLAR_EOVERFLOW : status;
}

static const ashlar_rnn_backend growing = {.sizes = growing_sizes, .queue = queue_nothing};

static void lengths_are_rehearsed_until_a_pass_changes_nothing(void) {
    REQUIRE(open_with_staging("memory=1GiB"));
    model->rnn->backend = &growing;
    memset(visits, 0, sizeof visits);
    first_reserve = 40 * MIB;
    last_visit = 0;
    CHECK(warm_up() == ASHLAR_OK);
    for (size_t steps = 1; steps < MAX_STEPS; steps++) {
        CHECK_ZU(visits[steps], 4); /* two passes map memory, the third finds it there */
    }
    close_model();
}

static void a_rehearsal_that_fails_does_not_seal(void) {
    for (int kind = 0; kind < 3; kind++) {
        REQUIRE(open_with_staging("memory=256MiB"));
        model->rnn->backend = &growing;
        memset(visits, 0, sizeof visits);
        first_reserve = (kind == 2 ? 20 : 1) * MIB; /* 320 at the third visit: too much */
        last_visit = (size_t)kind + 2;
        CHECK(warm_up() == (kind == 2 ? ASHLAR_ENOMEM : ASHLAR_EOVERFLOW));
        CHECK(!stats_now().is_sealed);
        close_model();
    }
}

/* At length 3, and not before the rehearsal, nearly all that a full device has, in one piece. */
static ashlar_status greedy_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                                  size_t *reserve, size_t *work) {
    const ashlar_status status =
        ashlar_rnn_backend_cpu.sizes(rnn, steps, batch, training, reserve, work);
    *work += (steps == 3 && ++visits[3] > 1 ? 55 : 10) * MIB;
    return status;
}

static void note_nothing(void *unused) {
    (void)unused;
}

/* Half of the memory was another stream's, which is still busy: the host waits, once is enough. */
static void a_rehearsal_may_have_to_wait_for_memory(void) {
    const ashlar_rnn_backend greedy = {.sizes = greedy_sizes, .queue = queue_nothing};
    REQUIRE(open_with_staging("memory=64MiB,mode=adversarial"));
    model->rnn->backend = &greedy;
    memset(visits, 0, sizeof visits);
    unsigned char *own = take(30 * MIB, streams[1]), *other = take(30 * MIB, streams[2]);
    CHECK(ashlar_launch(device, streams[2], note_nothing, NULL, 0) == ASHLAR_OK);
    give(own);
    give(other);
    CHECK(warm_up() == ASHLAR_OK);
    CHECK_ZU(visits[3], 3); /* two passes */
    const ashlar_stats stats = stats_now();
    CHECK(stats.is_sealed && stats.served_after_sync == 1);
    close_model();
}

/* ---- after it ---- */

static uint64_t management_calls(void) {
    ashlar_driver_counts counts;
    ashlar_device_counts_read(device, &counts);
    return counts.memory + counts.order + counts.query;
}

/* Steps of drawn lengths. Returns the calls that were not the steps' own work. */
static uint64_t run_random_steps(int count, uint64_t seed) {
    const uint64_t before = management_calls();
    ashlar_random random;
    ashlar_random_init(&random, seed);
    for (int i = 0; i < count; i++) {
        int32_t lengths[BATCH];
        made_batch made;
        size_t steps = 1;
        for (size_t b = 0; b < BATCH; b++) {
            lengths[b] = 1 + (int32_t)ashlar_random_below(&random, MAX_STEPS);
            steps = (size_t)lengths[b] > steps ? (size_t)lengths[b] : steps;
        }
        make_batch(&made, steps, BATCH, lengths);
        run_step(&made);
    }
    return management_calls() - before;
}

static void steps_after_the_warm_up_do_not_manage_memory(void) {
    const char *const specs[] = {"memory=1GiB", "memory=1GiB,mode=adversarial,seed=7"};
    for (int i = 0; i < 4; i++) {
        REQUIRE(open_with_staging(specs[i % 2]));
        model->rnn->backend = i < 2 ? &ashlar_rnn_backend_cpu : &odd;
        CHECK(warm_up() == ASHLAR_OK);
        const ashlar_stats before = stats_now();
        CHECK_ZU(run_random_steps(100, 11), 0);
        const ashlar_stats after = stats_now();
        CHECK_ZU(after.driver_calls_sealed, 0);
        CHECK(after.reserved_bytes == before.reserved_bytes);
        CHECK(after.live_blocks == before.live_blocks);
        close_model();
    }
}

/* The same steps: what the case above does not see is there to be seen. */
static void without_the_warm_up_they_would(void) {
    REQUIRE(open_with_staging("memory=1GiB"));
    model->rnn->backend = &odd;
    CHECK(run_random_steps(100, 11) > 0);
    close_model();
    REQUIRE(open_with_staging("memory=1GiB")); /* one step of the maximum length is not enough */
    model->rnn->backend = &odd;
    int32_t lengths[BATCH];
    for (size_t b = 0; b < BATCH; b++) {
        lengths[b] = MAX_STEPS;
    }
    made_batch longest;
    make_batch(&longest, MAX_STEPS, BATCH, lengths);
    run_step(&longest);
    CHECK(run_random_steps(100, 11) > 0);
    close_model();
}

/* Every length of a model of this shape, in a drawn order, twice. */
static void check_shape(const ashlar_model_config *config, size_t max_steps, size_t batch,
                        ashlar_random *random) {
    static int32_t grid[4096], lengths[64];
    ashlar_batch made = {.inputs = grid, .targets = grid, .lengths = lengths};
    const ashlar_rnn_backend idle = {.sizes = ashlar_rnn_backend_cpu.sizes, .queue = queue_nothing};
    REQUIRE(set_up("memory=4GiB,mode=adversarial"));
    REQUIRE(ashlar_model_create(allocator, streams[1], config, 2, &model) == ASHLAR_OK);
    model->rnn->backend = &idle;
    void *memory = take(sizeof *results, streams[1]);
    CHECK(ashlar_warmup_run(model, max_steps, batch, &made, memory) == ASHLAR_OK);
    for (size_t i = 0; i < 2 * max_steps; i++) {
        ashlar_step_sizes sizes;
        const size_t steps = i < max_steps ? max_steps - i
                                           : 1 + (size_t)ashlar_random_below(random, max_steps);
        CHECK(ashlar_model_sizes(model, steps, batch, &sizes) == ASHLAR_OK);
        CHECK(ashlar_model_rehearse(model, &sizes) == ASHLAR_OK);
    }
    ashlar_stats stats;
    ashlar_stats_read(allocator, &stats);
    CHECK_ZU(stats.driver_calls_sealed, 0);
    give(memory);
    ashlar_model_destroy(model);
    tear_down();
}

/*
 * Smaller blocks are not always placed where the larger ones were: in the first two shapes one
 * length finds no hole for its last buffer after a step of the longest alone. The seed is fixed.
 */
static void no_shape_has_a_length_that_finds_no_room(void) {
    const struct {
        ashlar_model_config config;
        size_t max_steps, batch;
    } known[] = {{{135, 290, 153, 1}, 47, 40}, {{202, 245, 42, 1}, 44, 47}};
    ashlar_random random;
    ashlar_random_init(&random, 23);
    for (size_t i = 0; i < 2; i++) {
        check_shape(&known[i].config, known[i].max_steps, known[i].batch, &random);
    }
    for (int i = 0; i < 20; i++) {
        const ashlar_model_config config = {
            .classes = 8 + (size_t)ashlar_random_below(&random, 300),
            .embedding = 1 + (size_t)ashlar_random_below(&random, 400),
            .hidden = 1 + (size_t)ashlar_random_below(&random, 200),
            .layers = 1,
        };
        check_shape(&config, 2 + (size_t)ashlar_random_below(&random, 60),
                    8 + (size_t)ashlar_random_below(&random, 40), &random);
    }
}

int main(void) {
    RUN(sizes_are_the_maximum_over_all_lengths);
    RUN(sizes_that_cannot_be_told_are_reported);
    RUN(the_run_is_a_step_of_the_maximum_length);
    RUN(buffers_have_their_largest_size_and_go_back);
    RUN(a_run_that_fails_does_not_seal);
    RUN(a_rehearsal_is_a_step_without_work);
    RUN(lengths_are_rehearsed_until_a_pass_changes_nothing);
    RUN(a_rehearsal_that_fails_does_not_seal);
    RUN(a_rehearsal_may_have_to_wait_for_memory);
    RUN(steps_after_the_warm_up_do_not_manage_memory);
    RUN(without_the_warm_up_they_would);
    RUN(no_shape_has_a_length_that_finds_no_room);
    return check_report();
}
