/*
 * test_optimizer_cuda_kernels.c - the CUDA kernels' source on the CPU (cuda_emulation.h) against
 * the CPU's own loops: the same bits everywhere but in the sum over chunks.
 */
#include "tests/arena/optimizer/optimizer_world_fixture.h"

#include "tests/cuda/optimizer_cuda_host.h"
#include "arena/optimizer/optimizer_kernels.h"

static void run_kernel(const char *name, const ashlar_optimizer_job *job, size_t blocks,
                       unsigned threads) {
    const host_kernel *kernel = NULL;
    for (size_t i = 0; (kernel = optimizer_kernel_at(i)) != NULL; i++) {
        if (strcmp(kernel->name, name) == 0) {
            break;
        }
    }
    CHECK(kernel != NULL);
    if (kernel != NULL) {
        kernel->run(job, (unsigned)blocks, threads);
    }
}

/* Launch the algorithm's kernel for each type. */
static void run_updates(const ashlar_optimizer_job *job, size_t chunks) {
    static const char *const functions[] = {
#define X(name, function, has1, has2) #function,
        ASHLAR_ALGORITHM_MAP(X)
#undef X
    };
    static const char *const types[] = {"f32", "f64", "f16", "bf16"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "ashlar_kernel_%s_%s", functions[job->rule.algorithm],
                       types[i]);
        run_kernel(name, job, chunks, ASHLAR_CHUNK_THREADS);
    }
}

/* The parts of a job that are asked for, as optimizer_cuda.c launches them. */
static void run_emulated(const ashlar_optimizer_job *job) {
    const size_t chunks = job->end_chunk - job->first_chunk;
    if ((job->passes & ASHLAR_OPTIMIZER_SUM) != 0 && chunks > 0) {
        run_kernel("ashlar_kernel_sum", job, chunks, ASHLAR_CHUNK_THREADS);
    }
    if ((job->passes & (ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE)) != 0) {
        run_kernel("ashlar_kernel_decide", job, 1, ASHLAR_DECIDE_THREADS);
    }
    if ((job->passes & ASHLAR_OPTIMIZER_UPDATE) != 0 && chunks > 0) {
        run_updates(job, chunks);
    }
}

/* Run `passes` on both; the CPU's sum then stands in both. */
static void run_both(ashlar_optimizer_job *cpu, ashlar_optimizer_job *cuda, unsigned passes) {
    cpu->passes = cuda->passes = passes;
    ashlar__optimizer_cpu_run_with(cpu, &ashlar__optimizer_kernels_baseline);
    run_emulated(cuda);
    if (cuda->scalars->sum != cpu->scalars->sum) { /* infinite sums have no difference */
        CHECK_NEAR(cuda->scalars->sum, cpu->scalars->sum, 0, 1e-14);
    }
    cuda->scalars->sum = cpu->scalars->sum;
}

/* Three steps, of which the second is skipped. */
static void check_steps(const world *start, ashlar_algorithm algorithm) {
    const ashlar_optimizer_config config = world_config(algorithm);
    world on_cpu = world_copy(start), on_cuda = world_copy(start);
    ashlar_optimizer_job cpu = world_job(&on_cpu, &config), cuda = world_job(&on_cuda, &config);
    cpu.scalars->state.loss_scale = cuda.scalars->state.loss_scale = 1024;
    for (int step = 0; step < 3; step++) {
        world_draw(&on_cpu, (uint64_t)step + 77, false);
        world_draw(&on_cuda, (uint64_t)step + 77, false);
        if (step == 1) {
            put_element((void *)(uintptr_t)on_cpu.runs[0].gradients, on_cpu.runs[0].dtype, 0,
                        INFINITY);
            put_element((void *)(uintptr_t)on_cuda.runs[0].gradients, on_cpu.runs[0].dtype, 0,
                        INFINITY);
        }
        run_both(&cpu, &cuda, ASHLAR_OPTIMIZER_SUM);
        CHECK(world_is_same(&on_cpu, &on_cuda));
        run_both(&cpu, &cuda, ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE);
        CHECK(world_is_same(&on_cpu, &on_cuda));
        CHECK(cuda.scalars->state.is_skipped == (step == 1));
    }
    CHECK(cuda.scalars->state.step == 2 && cuda.scalars->state.skipped == 1);
    CHECK(memcmp(on_cuda.bytes + start->arrays_at, start->bytes + start->arrays_at,
                 start->size - start->arrays_at) != 0);
    world_free(&on_cpu);
    world_free(&on_cuda);
}

CASE(every_algorithm_and_type_gets_the_bits_of_the_cpu) {
    const run_spec specs[] = {
        {ASHLAR_F32, 64, {0}},   {ASHLAR_F16, 4160, {0}}, {ASHLAR_F64, 4096, {0}},
        {ASHLAR_F32, 8192, {0}}, {ASHLAR_BF16, 64, {0}},  {ASHLAR_F32, 4097, {0}},
        {ASHLAR_F64, 37, {0}},   {ASHLAR_F16, 3, {0}},
    };
    world start = world_new(specs, sizeof specs / sizeof *specs);
    world_draw(&start, 5, true);
    for (int algorithm = 0; algorithm < ASHLAR_ALGORITHM_COUNT; algorithm++) {
        check_steps(&start, (ashlar_algorithm)algorithm);
    }
    world_free(&start);
}

/* Any one array out of line, or all of them. */
CASE(arrays_need_no_alignment_but_their_elements) {
    for (int array = 0; array <= ARRAYS; array++) {
        run_spec specs[] = {
            {ASHLAR_F32, 131, {0}},
            {ASHLAR_F64, 131, {0}},
            {ASHLAR_F16, 131, {0}},
            {ASHLAR_BF16, 131, {0}},
        };
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < ARRAYS; k++) {
                specs[i].shift[k] = array == k || array == ARRAYS ? 1 : 0;
            }
        }
        world start = world_new(specs, 4);
        world_draw(&start, (uint64_t)array, true);
        check_steps(&start, ASHLAR_ALGORITHM_ADAM);
        world_free(&start);
    }
}

CASE(a_job_may_begin_and_end_inside_a_run) {
    static const struct {
        size_t first_run, run_count, first, end, first_chunk, end_chunk;
    } ranges[] = {
        {0, 1, 0, 1, 0, 1},       {0, 1, 64, 128, 0, 1},    {0, 1, 3, 4097, 0, 2},
        {0, 1, 4096, 9000, 1, 3}, {0, 2, 9000, 64, 2, 4},   {0, 3, 8191, 4096, 1, 5},
        {1, 2, 5, 7, 3, 5},       {2, 1, 4000, 5000, 4, 6},
    };
    const run_spec specs[] = {
        {ASHLAR_F32, 9001, {0}}, {ASHLAR_BF16, 4096, {0}}, {ASHLAR_F32, 5000, {0}}};
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_ADAM);
    world start = world_new(specs, 3);
    world_draw(&start, 9, true);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        world on_cpu = world_copy(&start), on_cuda = world_copy(&start);
        ashlar_optimizer_job cpu = world_job(&on_cpu, &config), cuda = world_job(&on_cuda, &config);
        ashlar_optimizer_job *both[] = {&cpu, &cuda};
        for (int k = 0; k < 2; k++) {
            both[k]->runs += ranges[i].first_run;
            both[k]->run_count = ranges[i].run_count;
            both[k]->first = ranges[i].first;
            both[k]->end = ranges[i].end;
            both[k]->first_chunk = ranges[i].first_chunk;
            both[k]->end_chunk = ranges[i].end_chunk;
            both[k]->scalars->state.loss_scale = 1;
        }
        run_both(&cpu, &cuda, ASHLAR_OPTIMIZER_SUM);
        run_both(&cpu, &cuda, ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE);
        CHECK(world_is_same(&on_cpu, &on_cuda));
        CHECK(!world_is_same(&start, &on_cuda));
        world_free(&on_cpu);
        world_free(&on_cuda);
    }
    world_free(&start);
}

CASE(runs_without_elements_are_passed_over) {
    const run_spec specs[] = {
        {ASHLAR_F64, 0, {0}}, {ASHLAR_F32, 70, {0}}, {ASHLAR_F16, 0, {0}},
        {ASHLAR_F16, 0, {0}}, {ASHLAR_F64, 70, {0}}, {ASHLAR_F64, 0, {0}},
    };
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_NESTEROV);
    world on_cpu = world_new(specs, 6);
    world_draw(&on_cpu, 3, true);
    world on_cuda = world_copy(&on_cpu);
    ashlar_optimizer_job cpu = world_job(&on_cpu, &config), cuda = world_job(&on_cuda, &config);
    CHECK_ZU(cuda.end_chunk, 2);
    cpu.scalars->state.loss_scale = cuda.scalars->state.loss_scale = 1;
    run_both(&cpu, &cuda, ASHLAR_OPTIMIZER_SUM);
    run_both(&cpu, &cuda, ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE);
    CHECK(world_is_same(&on_cpu, &on_cuda));
    world_free(&on_cpu);
    world_free(&on_cuda);
}

/* Adding up chunks: every one counts once, whatever their number is beside that of threads. */
CASE(the_sum_has_every_chunk_once_and_is_the_same_each_time) {
    static const size_t counts[] = {0, 1, 2, 255, 256, 257, 511, 1000, 2049};
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_SGD);
    static double partials[2100];
    uint64_t random = 8;
    for (size_t i = 0; i < 2100; i++) {
        partials[i] = fabs(draw_value(&random));
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ashlar_optimizer_scalars scalars = {.sum = 99, .state.loss_scale = 4};
        ashlar_optimizer_job job = {.rule = {.algorithm = ASHLAR_ALGORITHM_SGD, .config = config},
                                    .passes = ASHLAR_OPTIMIZER_SUM,
                                    .first_chunk = 7,
                                    .end_chunk = 7 + counts[i],
                                    .scalars = &scalars,
                                    .partials = partials,
                                    .gradient_scale = 1};
        const ashlar_optimizer_scalars before = scalars;
        long double want = 0;
        for (size_t k = job.first_chunk; k < job.end_chunk; k++) {
            want += partials[k];
        }
        run_emulated(&(ashlar_optimizer_job){.rule = job.rule, .passes = 0, .scalars = &scalars});
        CHECK(memcmp(&scalars, &before, sizeof scalars) == 0); /* nothing was asked for */
        run_kernel("ashlar_kernel_decide", &job, 1, ASHLAR_DECIDE_THREADS);
        const double sum = scalars.sum;
        CHECK_NEAR(sum, (double)want, 0, 1e-15 * 16);
        CHECK(scalars.state.step == 0); /* a sum decides nothing */
        job.passes |= ASHLAR_OPTIMIZER_DECIDE;
        run_kernel("ashlar_kernel_decide", &job, 1, ASHLAR_DECIDE_THREADS);
        CHECK(scalars.sum == sum && scalars.state.step == 1);
        CHECK(scalars.state.norm == sqrt(sum) / 4);
        scalars.sum = 16;
        job.passes = ASHLAR_OPTIMIZER_DECIDE; /* of a sum that the program has made */
        run_kernel("ashlar_kernel_decide", &job, 1, ASHLAR_DECIDE_THREADS);
        CHECK(scalars.sum == 16 && scalars.state.norm == 1 && scalars.state.step == 2);
    }
}

/* Launches of SUM alone add up to the next decision; the one after it begins anew. */
CASE(sums_before_a_decision_add_up) {
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_SGD);
    static double partials[1000];
    for (size_t i = 0; i < 1000; i++) {
        partials[i] = (double)(i + 1); /* whole numbers have an exact sum */
    }
    ashlar_optimizer_scalars scalars = {.sum = 99, .state.loss_scale = 1};
    for (size_t step = 1; step <= 3; step++) {
        for (size_t begin = 0; begin < 1000; begin += 125 * step) {
            const size_t end = begin + 125 * step < 1000 ? begin + 125 * step : 1000;
            const ashlar_optimizer_job job = {.rule = {.config = config},
                                              .passes = ASHLAR_OPTIMIZER_SUM,
                                              .first_chunk = begin,
                                              .end_chunk = end,
                                              .scalars = &scalars,
                                              .partials = partials};
            run_kernel("ashlar_kernel_decide", &job, 1, ASHLAR_DECIDE_THREADS);
            CHECK(scalars.sum == (double)(end * (end + 1) / 2));
        }
        const ashlar_optimizer_job job = {.rule = {.config = config},
                                          .passes = ASHLAR_OPTIMIZER_DECIDE,
                                          .scalars = &scalars,
                                          .gradient_scale = 1};
        run_kernel("ashlar_kernel_decide", &job, 1, ASHLAR_DECIDE_THREADS);
        CHECK(scalars.sum == 500500 && scalars.state.step == step);
    }
}

CASE(a_skipped_step_touches_no_array) {
    const run_spec specs[] = {{ASHLAR_F32, 5000, {0}}, {ASHLAR_F16, 70, {0}}};
    for (int algorithm = 0; algorithm < ASHLAR_ALGORITHM_COUNT; algorithm++) {
        const ashlar_optimizer_config config = world_config((ashlar_algorithm)algorithm);
        world w = world_new(specs, 2);
        world_draw(&w, 4, true);
        put_element(w.bytes + w.array_at[1][1], ASHLAR_F16, 69, NAN);
        const world before = world_copy(&w);
        ashlar_optimizer_job job = world_job(&w, &config);
        job.scalars->state.loss_scale = 1024;
        job.passes = ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE;
        run_emulated(&job);
        CHECK(memcmp(before.bytes + w.arrays_at, w.bytes + w.arrays_at, w.size - w.arrays_at) == 0);
        CHECK(job.scalars->state.is_skipped == 1 && job.scalars->state.step == 0);
        CHECK(job.scalars->state.skipped == 1 && job.scalars->state.loss_scale == 512);
        world_free(&w);
        free(before.bytes);
    }
}

RUN_CASES()
