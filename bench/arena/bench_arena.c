/* bench_arena.c - chooses cases and operations, times them in rounds, and adds the rows. */
#include "bench/arena/bench_arena.h"

#include <string.h>

#include "bench/arena/arena_setup.h"
#include "allocator/base/error.h"
#include "bench/harness/rounds.h"

/* Long rounds are few: as many as fit into the time, but enough for a median. */
enum { ROUNDS_MAX = 41, ROUNDS_MIN = 7 };
static const double round_s = 2e-3, while_s = 8;

/* What one runner's rounds were. */
typedef struct lane {
    ashlar_arena_runner runner;
    double ns[ROUNDS_MAX];
} lane;

/* One operation, measured in rounds by all runners. */
typedef struct contest {
    ashlar_arena_setup *setup;
    ashlar_arena_operation operation;
    lane lanes[ASHLAR_ARENA_RUNNER_COUNT];
    size_t count;
} contest;

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

static ashlar_status run_lane(void *context, size_t index, size_t repeats, size_t round,
                              double *seconds) {
    contest *r = context;
    lane *l = &r->lanes[index];
    double sum = 0;
    for (size_t i = 0; i < repeats; i++) {
        ASHLAR_TRY(ashlar__arena_setup_run(r->setup, l->runner, r->operation, seconds));
        sum += *seconds;
    }
    l->ns[round] = sum / (double)repeats * 1e9;
    return ASHLAR_OK;
}

/* ---- rows ---- */

static void choose_lanes(contest *r) {
    for (unsigned i = 0; i < ASHLAR_ARENA_RUNNER_COUNT; i++) {
        if (ashlar__arena_setup_has((ashlar_arena_runner)i, r->operation)) {
            r->lanes[r->count++].runner = (ashlar_arena_runner)i;
        }
    }
}

static ashlar_status add_rows(contest *r, const char *name, size_t rounds,
                              ashlar_arena_rows *rows) {
    double ns[ASHLAR_ARENA_RUNNER_COUNT] = {0};
    for (size_t i = 0; i < r->count; i++) {
        ns[r->lanes[i].runner] = ashlar__median(r->lanes[i].ns, rounds);
    }
    const double copied =
        ashlar__arena_setup_bytes(r->setup, ASHLAR_ARENA_RUNNER_LOOP, r->operation);
    for (size_t i = 0; i < r->count; i++) {
        const ashlar_arena_runner runner = r->lanes[i].runner;
        const ashlar_arena_row row = {
            .case_name = name,
            .operation = r->operation,
            .subject = runner,
            .ns = ns[runner],
            .bytes = ashlar__arena_setup_bytes(r->setup, runner, r->operation),
            .copy_bytes_per_s = copied / ns[ASHLAR_ARENA_RUNNER_LOOP] * 1e9,
            .memcpy_bytes_per_s = copied / ns[ASHLAR_ARENA_RUNNER_MEMCPY] * 1e9,
        };
        if (runner <= ASHLAR_ARENA_RUNNER_LISTS) {
            ASHLAR_TRY(ashlar__arena_rows_add(rows, &row));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status measure_operation(ashlar_arena_setup *setup, const char *name, bool is_smoke,
                                       ashlar_arena_operation operation, ashlar_arena_rows *rows) {
    contest r = {.setup = setup, .operation = operation};
    const ashlar_rounds how = {.most = ROUNDS_MAX,
                               .least = ROUNDS_MIN,
                               .while_s = while_s,
                               .round_s = round_s,
                               .is_smoke = is_smoke,
                               .run = run_lane,
                               .context = &r};
    const size_t first = rows->count;
    size_t repeats[ASHLAR_ARENA_RUNNER_COUNT], rounds;
    choose_lanes(&r);
    ASHLAR_TRY(ashlar__rounds_run(&how, r.count, repeats, &rounds));
    ASHLAR_TRY(add_rows(&r, name, rounds, rows));
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
