/*
 * test_optimizer_cpu.c - the CPU's loops: the same bits from every instruction set and any number
 * of threads, and lists of runs of any length.
 */
#include "arena/optimizer/optimizer_impl.h"

#include "tests/check.h"
#include "tests/arena/optimizer/element_fixture.h"
#include "arena/compute/workers.h"
#include "allocator/base/random.h"

enum { RUNS = 9, ROOM = 40000 };

/* More than one chunk, less, exactly one; ends that are no multiple of any vector. */
static const size_t lengths[RUNS] = {40000, 1, 4096, 8192, 17, 39999, 15, 4097, 63};
static const ashlar_dtype types[RUNS] = {ASHLAR_F32, ASHLAR_F32, ASHLAR_F64,
                                         ASHLAR_F16, ASHLAR_F16, ASHLAR_BF16,
                                         ASHLAR_F64, ASHLAR_F32, ASHLAR_BF16};

/* Everything a job works on; compared as a whole. */
typedef struct world {
    double parameters[RUNS][ROOM], gradients[RUNS][ROOM], moment1[RUNS][ROOM], moment2[RUNS][ROOM];
    float master[RUNS][ROOM];
    double partials[RUNS * (ROOM / ASHLAR_OPTIMIZER_CHUNK + 1)];
    ashlar_optimizer_scalars scalars;
} world;

static world *first, *second;
static ashlar_optimizer_run runs[RUNS];

/* A world with drawn values, and the runs over it. The same each time. */
static void draw_world(world *w) {
    uint64_t state = 12345;
    memset(w, 0, sizeof *w);
    w->scalars.state.loss_scale = 1;
    for (size_t r = 0; r < RUNS; r++) {
        for (size_t i = 0; i < lengths[r]; i++) {
            const double value = 2 * ashlar__random_step_uniform(&state) - 1;
            put_element(w->parameters[r], types[r], i, value);
            put_element(w->gradients[r], types[r], i, value * value - 0.25);
        }
        runs[r] = (ashlar_optimizer_run){
            .parameters = w->parameters[r],
            .gradients = w->gradients[r],
            .moment1 = w->moment1[r],
            .moment2 = w->moment2[r],
            .master = ashlar_dtype_is_narrow(types[r]) ? w->master[r] : NULL,
            .elements = lengths[r],
            .rate_scale = r % 3 == 1 ? 0.5 : 1,
            .dtype = types[r],
            .decay_scale = r % 2 == 0,
        };
    }
}

static ashlar_optimizer_job job_on(world *w, ashlar_algorithm algorithm) {
    static const ashlar_optimizer_kind kinds[ASHLAR_ALGORITHM_COUNT] = {
        ASHLAR_OPTIMIZER_SGD,     ASHLAR_OPTIMIZER_SGD,     ASHLAR_OPTIMIZER_SGD,
        ASHLAR_OPTIMIZER_ADAMW,   ASHLAR_OPTIMIZER_ADAGRAD, ASHLAR_OPTIMIZER_RMSPROP,
        ASHLAR_OPTIMIZER_RMSPROP, ASHLAR_OPTIMIZER_MUON,    ASHLAR_OPTIMIZER_MUON};
    ashlar_optimizer_job job = {.passes = ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE |
                                          ASHLAR_OPTIMIZER_UPDATE,
                                .scalars = &w->scalars,
                                .partials = w->partials,
                                .learning_rate = 0.01,
                                .gradient_scale = 1};
    job.rule.algorithm = algorithm;
    job.rule.config.kind = kinds[algorithm];
    CHECK(ashlar_optimizer_complete(&job.rule.config) == ASHLAR_OK);
    job.rule.config.momentum = 0.9;
    job.rule.config.weight_decay = 0.1;
    job.rule.config.clip_norm = 1;
    return job;
}

/* Three steps over all runs at once. */
static void run_steps(world *w, ashlar_algorithm algorithm,
                      const ashlar_optimizer_kernels *kernels) {
    draw_world(w);
    CHECK_ZU(ashlar__optimizer_number(runs, RUNS), 10 + 1 + 1 + 2 + 1 + 10 + 1 + 2 + 1);
    ashlar_optimizer_job job = job_on(w, algorithm);
    ashlar__optimizer_cover(&job, runs, RUNS);
    for (int step = 0; step < 3; step++) {
        ashlar__optimizer_cpu_run_with(&job, kernels);
    }
}

CASE(every_number_of_threads_gets_the_same_bits) {
    for (int a = 0; a < ASHLAR_ALGORITHM_COUNT; a++) {
        ashlar__workers_set_count(1);
        run_steps(first, (ashlar_algorithm)a, ashlar__optimizer_kernels_best());
        CHECK(first->scalars.state.step == 3 && first->scalars.state.norm > 1);
        for (size_t threads = 2; threads <= 4; threads++) {
            ashlar__workers_set_count(threads);
            run_steps(second, (ashlar_algorithm)a, ashlar__optimizer_kernels_best());
            CHECK(memcmp(first, second, sizeof *first) == 0);
        }
    }
    ashlar__workers_set_count(0);
}

CASE(every_instruction_set_gets_the_same_bits) {
    SKIP_IF(ashlar__optimizer_kernels_best() == &ashlar__optimizer_kernels_baseline,
            "this processor runs the baseline only");
    for (int a = 0; a < ASHLAR_ALGORITHM_COUNT; a++) {
        run_steps(first, (ashlar_algorithm)a, &ashlar__optimizer_kernels_baseline);
        run_steps(second, (ashlar_algorithm)a, ashlar__optimizer_kernels_best());
        CHECK(memcmp(first, second, sizeof *first) == 0);
    }
}

int main(void) {
    first = malloc(sizeof *first);
    second = malloc(sizeof *second);
    if (first == NULL || second == NULL) {
        return 1;
    }
    check_run_cases();
    free(first);
    free(second);
    return check_report();
}
