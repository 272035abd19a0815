/* bench_streams.c - the benchmark `streams`: chooses programs and allocators, runs them
 * (simulation.h), and adds the rows. */
#include "bench/streams/bench_streams.h"

#include <math.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/streams/simulation.h"

/* More than any program takes. */
#define PLENTY_BYTES ((size_t)64 << 30)
#define SHARED "models_fixed_087"

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_STREAMS_COLUMN_MAP(COLUMN)};

static const ashlar_rows_target targets[] = {
    {"time / ideal's", "ashlar", ASHLAR_STREAMS_TIME, 1.01, .except = SHARED},
    {"reserved / need", "ashlar", ASHLAR_STREAMS_RESERVED, 1.05, .except = SHARED},
    {"waits per step", "ashlar", ASHLAR_STREAMS_WAITS, 0, .except = SHARED},
    {"time / ideal's", "ashlar", ASHLAR_STREAMS_TIME, 1.06, .names = {SHARED}},
};

static const ashlar_rows_form form = {columns, ASHLAR_STREAMS_COLUMNS, ASHLAR_STREAMS_SUBJECT,
                                      targets, sizeof targets / sizeof targets[0]};

static bool workload(size_t i, ashlar_bench_name *out) {
    size_t count;
    const ashlar_streams_case *cases = ashlar__streams_cases(&count);
    if (i < count) {
        *out = (ashlar_bench_name){cases[i].name, cases[i].variant};
    }
    return i < count;
}

static const char *subject_name(size_t i) {
    ashlar_streams_subject subject;
    return ashlar__streams_subject(i, &subject) ? subject.name : NULL;
}

/* Add a row, even for a subject that had no memory for the program. */
static ashlar_status add_row(const ashlar_streams_case *c, const ashlar_streams_subject *subject,
                             size_t steps, const ashlar_sim_figures *ideal, ashlar_rows *rows) {
    const size_t share_bytes = (size_t)(c->share * (double)ideal->need_bytes);
    ashlar_sim_figures f = {0};
    const ashlar_status status = ashlar__sim_run(
        &c->program, subject, steps, c->share != 0 ? share_bytes : PLENTY_BYTES, false, &f);
    if (status != ASHLAR_OK && status != ASHLAR_ENOMEM) {
        return status;
    }
    const bool has = status == ASHLAR_OK;
    const ashlar_row row = {{
        [ASHLAR_STREAMS_CASE].text = c->name,
        [ASHLAR_STREAMS_VARIANT].text = c->variant,
        [ASHLAR_STREAMS_SUBJECT].text = subject->name,
        [ASHLAR_STREAMS_STREAMS].number = (double)c->program.streams,
        [ASHLAR_STREAMS_BYTES].number = c->bytes != 0 ? (double)c->bytes : NAN,
        [ASHLAR_STREAMS_TIME].number = has ? (double)f.ns / (double)ideal->ns : NAN,
        [ASHLAR_STREAMS_SETTLED].number =
            has ? (double)f.settled_ns / (double)ideal->settled_ns : NAN,
        [ASHLAR_STREAMS_RESERVED].number =
            has ? (double)f.reserved_bytes / (double)ideal->need_bytes : NAN,
        [ASHLAR_STREAMS_WAITS].number = has ? f.waits_per_step : NAN,
        [ASHLAR_STREAMS_HOST_WAITS].number = has ? f.host_waits_per_step : NAN,
    }};
    return ashlar__rows_add(rows, &row);
}

static ashlar_status measure_case(const ashlar_streams_case *c, const ashlar_bench_request *request,
                                  ashlar_rows *rows) {
    const size_t steps = request->is_smoke ? c->smoke_steps : c->steps;
    const size_t first = rows->count;
    ashlar_sim_figures ideal = {0};
    ashlar_streams_subject subject;
    ASHLAR_TRY(ashlar__sim_run(&c->program, &ashlar__streams_per_stream, steps, PLENTY_BYTES, false,
                               &ideal));
    for (size_t i = 0; ashlar__streams_subject(i, &subject); i++) {
        const ashlar_bench_name name = {subject.name, NULL};
        if (ashlar__bench_wants(&request->subjects, name)) {
            ASHLAR_TRY(add_row(c, &subject, steps, &ideal, rows));
        }
    }
    ashlar__rows_print(request->out, rows, first);
    return ASHLAR_OK;
}

static ashlar_status run(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more) {
    size_t count;
    const ashlar_streams_case *cases = ashlar__streams_cases(&count);
    (void)device;
    (void)more;
    ashlar__rows_print_head(request->out, rows);
    for (size_t i = 0; i < count; i++) {
        const ashlar_bench_name name = {cases[i].name, cases[i].variant};
        if (ashlar__bench_wants(&request->workloads, name)) {
            ASHLAR_TRY(measure_case(&cases[i], request, rows));
        }
    }
    return ASHLAR_OK;
}

static void print_help(FILE *out) {
    fprintf(
        out,
        "streams: how much independent streams wait for each other because of the allocator, on\n"
        "software devices with virtual time: the figures are the same in each run. Subjects:\n"
        "ashlar, cub, per_stream (a pool for each stream, as PyTorch's). The ideal is per_stream\n"
        "with more memory than it takes. Takes --smoke, --workload, --subject, --json. JSON: rows\n"
        "{case, variant, subject, streams, bytes (if all blocks have as many), time_over_ideal,\n"
        "settled_over_ideal, reserved_over_need, waits_per_step, host_waits_per_step}; null: the\n"
        "subject had no memory left.\n"
        "  time      from the first request to the end of all work: with every driver call of the\n"
        "            subject, those that take memory too, and so has the ideal's\n"
        "  settled   the same, from the end of the first two steps of each stream on\n"
        "  need      sum over the streams of the most bytes that their blocks have at a time; a\n"
        "            block counts until it is freed and other streams have done their last work\n"
        "  reserved  the most physical memory that the device gave out\n"
        "  waits     in-stream waits that made work later, but for those of the program, per step\n"
        "            of a stream; the first two steps of each do not count. Host waits, likewise: "
        "how\n"
        "            often the host waited for the device\n"
        "Cases: independent (STREAMSxBYTES: a block, a kernel on it, freed), models_fixed and\n"
        "models_varying (steps forwards and backwards, of fixed or drawn lengths, half a step\n"
        "apart), prefetch (a stream fills batches for another), pipeline (three streams hand\n"
        "blocks on), models_fixed_087 (on a device of 0.87 of the need).\n");
}

const ashlar_benchmark ashlar__benchmark_streams = {
    .name = "streams",
    .takes = "--smoke, --workload, --subject, --json",
    .form = &form,
    .opens_devices = true,
    .is_virtual = true,
    .workload = workload,
    .subject = subject_name,
    .run = run,
    .print_help = print_help,
};
