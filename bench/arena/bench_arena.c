/* bench_arena.c - the benchmark `arena`: chooses sets of tensors and operations, times them in
 * rounds, and adds the rows. */
#include "bench/arena/bench_arena.h"

#include <math.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/harness/harness.h"

/* As many rounds as fit into while_s; if rounds are long, still enough for a median. */
enum { ROUNDS_MAX = 41, ROUNDS_MIN = 7 };
static const double round_s = 2e-3, while_s = 8;

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_ARENA_COLUMN_MAP(COLUMN)};

#define MANY "10000_tensors"
/* Medians of equal work differ by this ratio, so it still counts as "not slower". */
#define EVEN 0.95

/* Targets are for operations of every training step and for checkpoints; others happen only once in
 * a training. */
static const ashlar_rows_target targets[] = {
    {"bytes per second / copy loop's", "arena", ASHLAR_ARENA_OVER_COPY, 0.8, true,
     .names = {"large", "adamw"}},
    {"per_tensor / arena", "per_tensor", ASHLAR_ARENA_OVER_ARENA, 3, true,
     .names = {MANY, "adamw"}},
    {"per_tensor / arena", "per_tensor", ASHLAR_ARENA_OVER_ARENA, EVEN, true,
     .names = {NULL, "adamw"}, .except = MANY},
    {"per_tensor / arena", "per_tensor", ASHLAR_ARENA_OVER_ARENA, EVEN, true,
     .names = {NULL, "zero"}},
    {"per_tensor / arena", "per_tensor", ASHLAR_ARENA_OVER_ARENA, EVEN, true,
     .names = {NULL, "norm"}},
    {"plain_file / arena", "plain_file", ASHLAR_ARENA_OVER_ARENA, 0.8, true,
     .names = {"large", "save_state"}},
    {"plain_file / arena", "plain_file", ASHLAR_ARENA_OVER_ARENA, 0.8, true,
     .names = {"large", "load_state"}},
};

static const ashlar_rows_form form = {columns, ASHLAR_ARENA_COLUMNS, ASHLAR_ARENA_SUBJECT, targets,
                                      sizeof targets / sizeof targets[0]};

/* One operation, measured in rounds by all runners. */
typedef struct contest {
    ashlar_arena_setup *setup;
    ashlar_arena_operation operation;
    ashlar_arena_runner runners[ASHLAR_ARENA_RUNNER_COUNT];
    size_t count;
} contest;

static ashlar_status take_turn(void *context, size_t index, size_t repeats,
                               double figures[static ASHLAR_ROUNDS_FIGURES]) {
    const contest *c = context;
    double sum = 0, seconds;
    for (size_t i = 0; i < repeats; i++) {
        ASHLAR_TRY(ashlar__arena_setup_run(c->setup, c->runners[index], c->operation, &seconds,
                                           &figures[1]));
        sum += seconds;
    }
    figures[0] = sum / (double)repeats;
    return ASHLAR_OK;
}

static ashlar_status add_rows(const contest *c, FILE *out, const char *name, ashlar_turns *turns,
                              ashlar_rows *rows) {
    static const char *const subjects[] = {"arena", "per_tensor", "plain_file"};
    double speeds[ASHLAR_ARENA_RUNNER_COUNT] = {0}, seconds[ASHLAR_ARENA_RUNNER_COUNT] = {0};
    double launches[ASHLAR_ARENA_RUNNER_COUNT] = {0};
    double low[ASHLAR_ARENA_RUNNER_COUNT] = {0}, high[ASHLAR_ARENA_RUNNER_COUNT] = {0};
    const size_t first = rows->count;
    for (size_t i = 0; i < c->count; i++) {
        const ashlar_arena_runner runner = c->runners[i];
        seconds[runner] = ashlar__turns_median(&turns[i], 0);
        launches[runner] = ashlar__turns_median(&turns[i], 1);
        ashlar__turns_spread(&turns[i], 0, &low[runner], &high[runner]);
        speeds[runner] =
            ashlar__arena_setup_bytes(c->setup, runner, c->operation) / seconds[runner];
    }
    for (size_t i = 0; c->runners[i] <= ASHLAR_ARENA_RUNNER_FILE; i++) {
        const ashlar_arena_runner runner = c->runners[i];
        const ashlar_row row = {{
            [ASHLAR_ARENA_CASE].text = name,
            [ASHLAR_ARENA_OPERATION].text = ashlar__arena_operation_name(c->operation),
            [ASHLAR_ARENA_SUBJECT].text = subjects[runner],
            [ASHLAR_ARENA_NS].number = seconds[runner] * 1e9,
            [ASHLAR_ARENA_NS_LOW].number = low[runner] * 1e9,
            [ASHLAR_ARENA_NS_HIGH].number = high[runner] * 1e9,
            [ASHLAR_ARENA_BYTES_PER_S].number = speeds[runner],
            [ASHLAR_ARENA_COPY_BYTES_PER_S].number = speeds[ASHLAR_ARENA_RUNNER_COPY],
            [ASHLAR_ARENA_LAUNCHES].number = launches[runner],
            [ASHLAR_ARENA_OVER_COPY].number = speeds[runner] / speeds[ASHLAR_ARENA_RUNNER_COPY],
        }};
        ASHLAR_TRY(ashlar__rows_add(rows, &row));
    }
    ashlar__rows_fill_ratios(rows, first, ASHLAR_ARENA_OVER_ARENA, ASHLAR_ARENA_NS, "arena");
    ashlar__rows_print(out, rows, first);
    return ASHLAR_OK;
}

static ashlar_status measure_operation(ashlar_arena_setup *setup, const char *name,
                                       const ashlar_bench_request *request,
                                       ashlar_arena_operation operation, ashlar_rows *rows) {
    contest c = {.setup = setup, .operation = operation};
    const ashlar_rounds how = {.most = ROUNDS_MAX,
                               .least = ROUNDS_MIN,
                               .while_s = while_s,
                               .round_s = round_s,
                               .is_smoke = request->is_smoke,
                               .run = take_turn,
                               .context = &c};
    ashlar_turns turns[ASHLAR_ARENA_RUNNER_COUNT];
    for (unsigned i = 0; i < ASHLAR_ARENA_RUNNER_COUNT; i++) {
        if (ashlar__arena_setup_has(setup, (ashlar_arena_runner)i, operation)) {
            c.runners[c.count++] = (ashlar_arena_runner)i;
        }
    }
    ASHLAR_TRY(ashlar__rounds_run(&how, c.count, turns));
    return add_rows(&c, request->out, name, turns, rows);
}

static bool workload(size_t i, ashlar_bench_name *out) {
    size_t count;
    const ashlar_arena_case *cases = ashlar__arena_cases(&count);
    const bool is_one = i < count * ASHLAR_ARENA_OPERATION_COUNT;
    if (is_one) {
        const unsigned operation = (unsigned)(i % ASHLAR_ARENA_OPERATION_COUNT);
        *out = (ashlar_bench_name){cases[i / ASHLAR_ARENA_OPERATION_COUNT].name,
                                   ashlar__arena_operation_name((ashlar_arena_operation)operation)};
    }
    return is_one;
}

/* Measure the requested operations of the i-th case, which is set up only if there are any. */
static ashlar_status measure_case(ashlar_device *device, const ashlar_bench_request *request,
                                  size_t i, ashlar_rows *rows) {
    size_t count;
    const ashlar_arena_case *which = &ashlar__arena_cases(&count)[i];
    ashlar_arena_setup setup = {0};
    ashlar_bench_name name = {0};
    ashlar_status status = ASHLAR_OK;
    for (unsigned k = 0; k < ASHLAR_ARENA_OPERATION_COUNT && status == ASHLAR_OK; k++) {
        if (!workload(i * ASHLAR_ARENA_OPERATION_COUNT + k, &name) ||
            !ashlar__bench_wants(&request->workloads, name)) {
            continue;
        }
        if (setup.device == NULL) {
            status = ashlar__arena_setup_init(&setup, device, which, request->is_smoke);
        }
        ASHLAR_THEN(status,
                    measure_operation(&setup, name.name, request, (ashlar_arena_operation)k, rows));
    }
    ashlar__arena_setup_finish(&setup);
    return status;
}

static ashlar_status run(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more) {
    size_t count;
    (void)more;
    (void)ashlar__arena_cases(&count);
    ashlar__rows_print_head(request->out, rows);
    for (size_t i = 0; i < count; i++) {
        ASHLAR_TRY(measure_case(device, request, i, rows));
    }
    return ASHLAR_OK;
}

const ashlar_benchmark ashlar__benchmark_arena = {
    .name = "arena",
    .takes = "--smoke, --workload, --json, --device",
    .form = &form,
    .workload = workload,
    .run = run,
};
