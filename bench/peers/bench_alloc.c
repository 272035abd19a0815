/* bench_alloc.c - the benchmarks `alloc` and `plan`: columns and targets, the lists and peers that
 * are measured, and the rows. */
#include "bench/peers/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/peers/peer.h"
#include "bench/replay/bench_pack.h"

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_ALLOC_COLUMN_MAP(COLUMN)};

#define ON(of_threads, of_workload) .threads = (of_threads), .names = {of_workload}
#define C(column) ASHLAR_ALLOC_##column
#define FRAGMENTED "4096-fragmented" /* the targets except this variant */

static const ashlar_rows_target targets[] = {
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 2, ON(1, "one_size"), .except = FRAGMENTED},
    {"CUB / ashlar", "cub", C(OVER_ASHLAR), 5, true, ON(1, "one_size"), .except = FRAGMENTED},
    {"throughput / that of one thread", "ashlar", C(THROUGHPUT), 1.8, true, ON(2, "one_size"),
     .except = FRAGMENTED},
    {"CUB / ashlar", "cub", C(OVER_ASHLAR), 15, true, ON(2, "one_size"), .except = FRAGMENTED},
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 8, ON(1, "mix")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "mix")},
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 8, ON(1, "random")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "random")},
    {"throughput / that of one thread", "ashlar", C(THROUGHPUT), 1.3, true, ON(2, "mix")},
    {"throughput / that of one thread", "ashlar", C(THROUGHPUT), 1.3, true, ON(2, "random")},
    {"99.9th percentile / CUB's", "ashlar", C(NS_P999), 2, .base = "cub"},
    {"pair cost / that of 4 KiB", "ashlar", C(OVER_ONE_SIZE), 10, ON(2, "handoff")},
    {"pair cost / that of 4 KiB", "ashlar", C(OVER_ONE_SIZE), 4, ON(1, "streams_64")},
    {"pair cost / that of 4 KiB", "ashlar", C(OVER_ONE_SIZE), 8, ON(1, "streams_512")},
    {"host bytes of a live block", "ashlar", C(HOST_BYTES), 160, ON(1, "live_1e6")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "rnn_cold")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.02, ON(1, "rnn_warm")},
    {"driver calls after the first step", "ashlar", C(DRIVER_CALLS), 3, ON(1, "rnn_warm")},
    {"plan's reserved / peak live", "plan", C(RESERVED_OVER_LIVE), 1.02, ON(0, "rnn_warm")},
    {"driver calls of the plan's steps", "plan", C(DRIVER_CALLS), 0, ON(0, "rnn_warm")},
    {"replayed pair / thread cache's", "plan", C(OVER_ASHLAR), 1, .except = "rnn_warm"},
};

const ashlar_rows_form ashlar__alloc_form = {columns, ASHLAR_ALLOC_COLUMNS, ASHLAR_ALLOC_SUBJECT,
                                             targets, sizeof targets / sizeof targets[0]};

/* The same subject's row for pairs of 4 KiB on one thread. */
static const ashlar_row *find_4_kib(const ashlar_rows *rows, const ashlar_row *row) {
    const ashlar_row like = {{
        [ASHLAR_ALLOC_WORKLOAD].text = "one_size",
        [ASHLAR_ALLOC_VARIANT].text = "4096",
        [ASHLAR_ALLOC_THREADS].number = 1,
    }};
    return ashlar__rows_find(rows, &like, row->cells[ASHLAR_ALLOC_SUBJECT].text, 0);
}

static double ns_of(const ashlar_row *row) {
    return row != NULL ? row->cells[ASHLAR_ALLOC_NS_PAIR].number : NAN;
}

/* Set the figures that follow from others, OVER_FLOOR, OVER_ASHLAR, OVER_ONE_SIZE and THROUGHPUT,
 * in the rows from `first` on. */
static void alloc_fill(ashlar_rows *rows, size_t first) {
    ashlar__rows_fill_ratios(rows, first, ASHLAR_ALLOC_OVER_FLOOR, ASHLAR_ALLOC_NS_PAIR, "floor");
    ashlar__rows_fill_ratios(rows, first, ASHLAR_ALLOC_OVER_ASHLAR, ASHLAR_ALLOC_NS_PAIR, "ashlar");
    for (size_t i = first; i < rows->count; i++) {
        const ashlar_row *row = &rows->items[i];
        ashlar_rows_cell *cells = rows->items[i].cells;
        const ashlar_row *one = ashlar__rows_find(rows, row, cells[ASHLAR_ALLOC_SUBJECT].text, 1);
        /* The throughput of n threads over that of one: n if a pair costs each thread the same. */
        cells[ASHLAR_ALLOC_THROUGHPUT].number =
            one == row ? NAN : cells[ASHLAR_ALLOC_THREADS].number * ns_of(one) / ns_of(row);
        cells[ASHLAR_ALLOC_OVER_ONE_SIZE].number = ns_of(row) / ns_of(find_4_kib(rows, row));
    }
}

/*
 * Many rounds, each shorter than a time slice of the scheduler: even on a busy machine most rounds
 * run uninterrupted, and the median is the time of an uninterrupted round.
 */
enum { ROUNDS = 61 };
static const double round_ns = 1e6;

/* One run of one of the two benchmarks. */
typedef struct alloc_bench {
    const ashlar_bench_request *request;
    bool is_of_plans; /* true: the benchmark `plan`, whose lists have steps; false: `alloc` */
    ashlar_device *device;
    ashlar_rows *rows;
} alloc_bench;

/* ---- names ---- */

static bool name_of(const ashlar_workload_spec *spec, ashlar_bench_name *out) {
    if (spec != NULL) {
        *out = (ashlar_bench_name){spec->name, spec->variant};
    }
    return spec != NULL;
}

static bool workload_of_alloc(size_t i, ashlar_bench_name *out) {
    return name_of(ashlar__workload_spec(false, i), out);
}

static bool workload_of_plan(size_t i, ashlar_bench_name *out) {
    return name_of(ashlar__workload_spec(true, i), out);
}

static const char *subject_name(size_t i) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    return i < ashlar__peers(peers) ? peers[i]->name : NULL;
}

/* Whether `peer` is measured when no --subject is given. */
static bool is_usual(bool is_of_plans, const ashlar_peer *peer) {
    if (is_of_plans) {
        return peer == &ashlar__peer_ashlar || peer == &ashlar__peer_plan ||
               peer == &ashlar__peer_floor || ashlar__peer_is_loaded(peer);
    }
    return peer != &ashlar__peer_plan && peer != &ashlar__peer_none;
}

static size_t choose_peers(const alloc_bench *b, const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    const ashlar_peer *all[ASHLAR_PEERS_MAX];
    const size_t all_count = ashlar__peers(all);
    size_t count = 0;
    for (size_t i = 0; i < all_count; i++) {
        const ashlar_bench_name name = {all[i]->name, NULL};
        if (b->request->subjects.count == 0 ? is_usual(b->is_of_plans, all[i])
                                            : ashlar__bench_wants(&b->request->subjects, name)) {
            out[count++] = all[i];
        }
    }
    return count;
}

/* ---- time ---- */

/* Pairs per step, on average. The list must have steps. */
static double pairs_of_step(const ashlar_workload *w) {
    return (double)w->body_pairs / (double)ashlar__workload_body_steps(w);
}

static size_t choose_able_peers(const alloc_bench *b, const ashlar_workload *w,
                                const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    const ashlar_peer *chosen[ASHLAR_PEERS_MAX];
    const size_t chosen_count = choose_peers(b, chosen);
    size_t count = 0;
    for (size_t i = 0; i < chosen_count; i++) {
        if (ashlar__measure_can(w, chosen[i])) {
            out[count++] = chosen[i];
        }
    }
    return count;
}

static void print_steps(FILE *out, const ashlar_workload *w, const ashlar_rows *rows,
                        size_t first) {
    fprintf(out, "  a step of %.0f pairs:", pairs_of_step(w));
    for (size_t i = first; i < rows->count; i++) {
        const ashlar_rows_cell *cells = rows->items[i].cells;
        fprintf(out, "%s %s %.0f ns", i > first ? "," : "", cells[ASHLAR_ALLOC_SUBJECT].text,
                cells[ASHLAR_ALLOC_NS_STEP].number);
    }
    fputc('\n', out);
    fflush(out);
}

/* Print the figures that only workloads of this kind have. */
static void print_more(FILE *out, ashlar_workload_kind kind, const ashlar_rows *rows,
                       size_t first) {
    for (size_t i = first; i < rows->count; i++) {
        const ashlar_rows_cell *cells = rows->items[i].cells;
        const char *subject = cells[ASHLAR_ALLOC_SUBJECT].text;
        if (kind == ASHLAR_WORKLOAD_LATENCY) {
            fprintf(out,
                    "  %s: half of the pairs within %.0f ns, 99 %% %.0f, 99.9 %% %.0f, all %.0f\n",
                    subject, cells[ASHLAR_ALLOC_NS_P50].number, cells[ASHLAR_ALLOC_NS_P99].number,
                    cells[ASHLAR_ALLOC_NS_P999].number, cells[ASHLAR_ALLOC_NS_MAX].number);
        } else if (kind == ASHLAR_WORKLOAD_LIVE) {
            fprintf(out, "  %s: %.1f bytes of host memory for each live block\n", subject,
                    cells[ASHLAR_ALLOC_HOST_BYTES].number);
        }
    }
    fflush(out);
}

static ashlar_row row_of(const alloc_bench *b, const ashlar_workload *w, size_t threads,
                         const ashlar_peer *peer, const ashlar_measurement *m) {
    return (ashlar_row){{
        [ASHLAR_ALLOC_WORKLOAD].text = w->name,
        [ASHLAR_ALLOC_VARIANT].text = w->variant,
        [ASHLAR_ALLOC_THREADS].number = (double)threads,
        [ASHLAR_ALLOC_SUBJECT].text = peer->name,
        [ASHLAR_ALLOC_NS_PAIR].number = m->ns_pair,
        [ASHLAR_ALLOC_NS_PAIR_LOW].number = m->ns_pair_low,
        [ASHLAR_ALLOC_NS_PAIR_HIGH].number = m->ns_pair_high,
        [ASHLAR_ALLOC_DRIVER_CALLS].number = peer->hides_calls ? NAN : (double)m->driver_calls,
        [ASHLAR_ALLOC_RESERVED_OVER_LIVE].number = m->reserved_over_live,
        [ASHLAR_ALLOC_NS_STEP].number = b->is_of_plans ? m->ns_pair * pairs_of_step(w) : NAN,
        [ASHLAR_ALLOC_NS_P50].number = m->ns_p50,
        [ASHLAR_ALLOC_NS_P99].number = m->ns_p99,
        [ASHLAR_ALLOC_NS_P999].number = m->ns_p999,
        [ASHLAR_ALLOC_NS_MAX].number = m->ns_max,
        [ASHLAR_ALLOC_HOST_BYTES].number = m->host_bytes,
    }};
}

static ashlar_status measure_one(const alloc_bench *b, const ashlar_workload *workload,
                                 size_t threads) {
    const ashlar_measure_config how = {
        .device = b->device,
        .threads = threads,
        .rounds = ROUNDS,
        .round_ns = b->request->is_smoke ? 0 : round_ns,
    };
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    ashlar_measurement results[ASHLAR_PEERS_MAX];
    const size_t count = choose_able_peers(b, workload, peers);
    const size_t first = b->rows->count;
    ASHLAR_TRY(count > 0 ? ashlar__measure(&how, workload, peers, count, results) : ASHLAR_OK);
    for (size_t i = 0; i < count; i++) {
        const ashlar_row row = row_of(b, workload, threads, peers[i], &results[i]);
        ASHLAR_TRY(ashlar__rows_add(b->rows, &row));
    }
    alloc_fill(b->rows, first);
    ashlar__rows_print(b->request->out, b->rows, first);
    print_more(b->request->out, workload->kind, b->rows, first);
    if (b->is_of_plans) {
        print_steps(b->request->out, workload, b->rows, first);
    }
    return ASHLAR_OK;
}

/* A plain list runs on request->threads threads, unless that is 0. */
static ashlar_status measure_spec(const alloc_bench *b, const ashlar_workload_spec *spec) {
    ashlar_workload workload;
    const size_t asked = spec->kind == ASHLAR_WORKLOAD_LIST ? b->request->threads : 0;
    const size_t first = asked != 0 ? asked : spec->threads_least;
    const size_t last = asked != 0 ? asked : spec->threads_most;
    ashlar_status status = ASHLAR_OK;
    ASHLAR_TRY(ashlar__workload_init(&workload, spec, b->request->is_smoke));
    for (size_t threads = first; threads <= last && status == ASHLAR_OK; threads++) {
        status = measure_one(b, &workload, threads);
    }
    ashlar__workload_finish(&workload);
    return status;
}

static ashlar_status measure_specs(const alloc_bench *b) {
    const ashlar_workload_spec *spec;
    ashlar__rows_print_head(b->request->out, b->rows);
    for (size_t i = 0; (spec = ashlar__workload_spec(b->is_of_plans, i)) != NULL; i++) {
        const ashlar_bench_name name = {spec->name, spec->variant};
        if (ashlar__bench_wants(&b->request->workloads, name)) {
            ASHLAR_TRY(measure_spec(b, spec));
        }
    }
    alloc_fill(b->rows, 0); /* for the JSON, since some rows precede the row that they are
                             * compared with */
    return ASHLAR_OK;
}

/* ---- pairs alone, for tools that count instructions ---- */

/* The first list that the request names; if it names none, pairs of 4 KiB. */
static const ashlar_workload_spec *spec_to_repeat(const alloc_bench *b) {
    const ashlar_workload_spec *spec;
    for (size_t i = 0; (spec = ashlar__workload_spec(b->is_of_plans, i)) != NULL; i++) {
        const ashlar_bench_name name = {spec->name, spec->variant};
        if (b->request->workloads.count > 0
                ? ashlar__bench_wants(&b->request->workloads, name)
                : strcmp(spec->name, "one_size") == 0 && strcmp(spec->variant, "4096") == 0) {
            break;
        }
    }
    return spec; /* the names were checked: there is one */
}

static ashlar_status run_pairs(const alloc_bench *b) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = choose_peers(b, peers);
    ashlar_workload workload;
    ashlar_status status = ASHLAR_OK;
    ASHLAR_TRY(ashlar__workload_init(&workload, spec_to_repeat(b), false));
    const size_t times = (b->request->pairs + workload.body_pairs - 1) / workload.body_pairs;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = ashlar__measure_repeat(b->device, &workload, peers[i], times);
    }
    fprintf(b->request->out, "%zu pairs\n", times * workload.body_pairs);
    ashlar__workload_finish(&workload);
    return status;
}

/* ---- the benchmarks ---- */

static ashlar_status run(const alloc_bench *b) {
    return b->request->pairs != 0 ? run_pairs(b) : measure_specs(b);
}

static ashlar_status run_alloc(const ashlar_bench_request *request, ashlar_device *device,
                               ashlar_rows *rows, ashlar_rows *more) {
    (void)more;
    return run(&(alloc_bench){.request = request, .device = device, .rows = rows});
}

/* Run `plan`. Unless single workloads are requested, also pack problems that seeds describe. */
static ashlar_status run_plan(const ashlar_bench_request *r, ashlar_device *device,
                              ashlar_rows *rows, ashlar_rows *packings) {
    const alloc_bench b = {.request = r, .is_of_plans = true, .device = device, .rows = rows};
    ashlar_packing packing;
    ASHLAR_TRY(run(&b));
    if (r->pairs != 0 || r->workloads.count > 0) {
        return ASHLAR_OK;
    }
    fputc('\n', r->out);
    for (size_t i = 0; i < ashlar__bench_pack_count(r->is_smoke); i++) {
        ASHLAR_TRY(ashlar__bench_pack(i, &packing));
        const ashlar_row row = ashlar__packing_row(&packing);
        ashlar__bench_pack_print(r->out, &packing);
        ASHLAR_TRY(ashlar__rows_add(packings, &row));
    }
    return ASHLAR_OK;
}

const ashlar_benchmark ashlar__benchmark_alloc = {
    .name = "alloc",
    .form = &ashlar__alloc_form,
    .workload = workload_of_alloc,
    .subject = subject_name,
    .run = run_alloc,
};

const ashlar_benchmark ashlar__benchmark_plan = {
    .name = "plan",
    .form = &ashlar__alloc_form,
    .more = &ashlar__packing_form,
    .more_key = "packings",
    .workload = workload_of_plan,
    .subject = subject_name,
    .run = run_plan,
};
