#include "bench/arena/bench_arena.h"

#include <string.h>

#include "bench/arena/arena_setup.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "bench/harness/median.h"

/* Rounds are few where they are long: as many as fit in a while, but enough for a median. */
enum { ROUNDS_MAX = 41, ROUNDS_MIN = 7 };
static const double round_s = 2e-3, while_s = 8;

/* What one runner's rounds were. */
typedef struct lane {
    ashlar_arena_runner runner;
    size_t repeats; /* of the operation in a round */
    double ns[ROUNDS_MAX];
} lane;

/* ---- names ---- */

/* "CASE" names all its operations, "CASE/OPERATION" one. */
static bool is_named(const char *text, const char *name, ashlar_arena_operation operation) {
    const size_t bytes = strlen(name);
    if (strncmp(text, name, bytes) != 0) {
        return false;
    }
    const char *rest = text + bytes;
    return *rest == '\0' ||
           (*rest == '/' && strcmp(rest + 1, ashlar__arena_operation_name(operation)) == 0);
}

static bool is_wanted(const ashlar_bench_arena_config *config, const ashlar_arena_case *which,
                      ashlar_arena_operation operation) {
    bool is_in_list = config->wanted.count == 0;
    for (size_t i = 0; i < config->wanted.count; i++) {
        is_in_list = is_in_list || is_named(config->wanted.items[i], which->name, operation);
    }
    return is_in_list;
}

static bool is_known(const char *text) {
    size_t count;
    const ashlar_arena_case *cases = ashlar__arena_cases(&count);
    for (size_t i = 0; i < count; i++) {
        for (unsigned op = 0; op < ASHLAR_ARENA_OPERATION_COUNT; op++) {
            if (is_named(text, cases[i].name, (ashlar_arena_operation)op)) {
                return true;
            }
        }
    }
    return false;
}

ashlar_status ashlar__bench_arena_check(const ashlar_bench_arena_config *config) {
    for (size_t i = 0; i < config->wanted.count; i++) {
        if (!is_known(config->wanted.items[i])) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "--workload: there is no \"%.80s\"; there are 100x128x128, model, "
                                "10000_tensors, large, each alone or with /adamw, /zero, /norm, "
                                "/flatten, /replicate, /checkpoint",
                                config->wanted.items[i]);
        }
    }
    return ASHLAR_OK;
}

void ashlar__bench_arena_print_cases(FILE *out) {
    size_t count;
    const ashlar_arena_case *cases = ashlar__arena_cases(&count);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "  %-15s %s\n", cases[i].name, cases[i].what);
    }
}

/* ---- rounds ---- */

/* Twice, the second time warm; that says how often the operation fits in a round. */
static ashlar_status warm_up(ashlar_arena_setup *setup, ashlar_arena_operation operation, lane *l) {
    double seconds = 0;
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < 2 && status == ASHLAR_OK; i++) {
        status = ashlar__arena_setup_run(setup, l->runner, operation, &seconds);
    }
    l->repeats = seconds < round_s ? (size_t)(round_s / (seconds + 1e-9)) : 1;
    return status;
}

static ashlar_status run_round(ashlar_arena_setup *setup, ashlar_arena_operation operation, lane *l,
                               size_t round) {
    double sum = 0;
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < l->repeats && status == ASHLAR_OK; i++) {
        double seconds;
        status = ashlar__arena_setup_run(setup, l->runner, operation, &seconds);
        sum += seconds;
    }
    l->ns[round] = sum / (double)l->repeats * 1e9;
    return status;
}

static ashlar_status run_rounds(ashlar_arena_setup *setup, ashlar_arena_operation operation,
                                bool is_smoke, lane *lanes, size_t count, size_t *rounds) {
    const double start = ashlar__clock_s();
    const size_t most = is_smoke ? 1 : ROUNDS_MAX;
    ashlar_status status = ASHLAR_OK;
    size_t round = 0;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = warm_up(setup, operation, &lanes[i]);
        lanes[i].repeats = is_smoke ? 1 : lanes[i].repeats;
    }
    while (status == ASHLAR_OK && round < most &&
           (round < ROUNDS_MIN || ashlar__clock_s() - start < while_s)) {
        for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
            status = run_round(setup, operation, &lanes[(round + i) % count], round);
        }
        round++;
    }
    *rounds = round;
    return status;
}

/* ---- rows ---- */

static size_t choose_lanes(ashlar_arena_operation operation,
                           lane lanes[static ASHLAR_ARENA_RUNNER_COUNT]) {
    size_t count = 0;
    for (unsigned i = 0; i < ASHLAR_ARENA_RUNNER_COUNT; i++) {
        if (ashlar__arena_setup_has((ashlar_arena_runner)i, operation)) {
            lanes[count++].runner = (ashlar_arena_runner)i;
        }
    }
    return count;
}

static ashlar_status add_rows(const ashlar_arena_setup *setup, const char *name,
                              ashlar_arena_operation operation, lane *lanes, size_t count,
                              size_t rounds, ashlar_arena_rows *rows) {
    double ns[ASHLAR_ARENA_RUNNER_COUNT] = {0};
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < count; i++) {
        ns[lanes[i].runner] = ashlar__median(lanes[i].ns, rounds);
    }
    const double copied = ashlar__arena_setup_bytes(setup, ASHLAR_ARENA_RUNNER_LOOP, operation);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        const ashlar_arena_runner runner = lanes[i].runner;
        const ashlar_arena_row row = {
            .case_name = name,
            .operation = operation,
            .subject = runner,
            .ns = ns[runner],
            .bytes = ashlar__arena_setup_bytes(setup, runner, operation),
            .copy_bytes_per_s = copied / ns[ASHLAR_ARENA_RUNNER_LOOP] * 1e9,
            .memcpy_bytes_per_s = copied / ns[ASHLAR_ARENA_RUNNER_MEMCPY] * 1e9,
        };
        if (runner <= ASHLAR_ARENA_RUNNER_LISTS) {
            status = ashlar__arena_rows_add(rows, &row);
        }
    }
    return status;
}

static ashlar_status measure_operation(ashlar_arena_setup *setup, const char *name, bool is_smoke,
                                       ashlar_arena_operation operation, ashlar_arena_rows *rows) {
    lane lanes[ASHLAR_ARENA_RUNNER_COUNT] = {0};
    const size_t count = choose_lanes(operation, lanes), first = rows->count;
    size_t rounds;
    ASHLAR_TRY(run_rounds(setup, operation, is_smoke, lanes, count, &rounds));
    ASHLAR_TRY(add_rows(setup, name, operation, lanes, count, rounds, rows));
    ashlar__arena_rows_print(stdout, rows, first);
    return ASHLAR_OK;
}

static ashlar_status measure_case(ashlar_device *device, const ashlar_bench_arena_config *config,
                                  const ashlar_arena_case *which, ashlar_arena_rows *rows) {
    ashlar_arena_setup setup = {0};
    ashlar_status status = ashlar__arena_setup_init(&setup, device, which, config->is_smoke);
    for (unsigned i = 0; i < ASHLAR_ARENA_OPERATION_COUNT && status == ASHLAR_OK; i++) {
        if (is_wanted(config, which, (ashlar_arena_operation)i)) {
            status = measure_operation(&setup, which->name, config->is_smoke,
                                       (ashlar_arena_operation)i, rows);
        }
    }
    ashlar__arena_setup_finish(&setup);
    return status;
}

ashlar_status ashlar__bench_arena(ashlar_device *device, const ashlar_bench_arena_config *config,
                                  ashlar_arena_rows *rows) {
    size_t count;
    const ashlar_arena_case *cases = ashlar__arena_cases(&count);
    ashlar_status status = ASHLAR_OK;
    ashlar__arena_rows_print_head(stdout);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        bool is_case_wanted = false;
        for (unsigned op = 0; op < ASHLAR_ARENA_OPERATION_COUNT; op++) {
            is_case_wanted =
                is_case_wanted || is_wanted(config, &cases[i], (ashlar_arena_operation)op);
        }
        if (is_case_wanted) {
            status = measure_case(device, config, &cases[i], rows);
        }
    }
    return status;
}
