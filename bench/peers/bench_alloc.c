/* bench_alloc.c - chooses workloads and subjects, measures them, and adds the rows. */
#include "bench/peers/bench_alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/harness/instructions.h"
#include "bench/peers/measure.h"
#include "bench/peers/peer_loaded.h"
#include "bench/replay/bench_pack.h"

/*
 * Many rounds, each shorter than a time slice of the scheduler: even on a busy machine most rounds
 * run uninterrupted, and the median is the time of an uninterrupted round.
 */
enum { ROUNDS = 61, SMOKE_ROUNDS = 1, PACKING_TRIES = 5 };
static const double round_ns = 1e6, smoke_round_ns = 1e5;

/* ---- the rows ---- */

static const ashlar_rows_column columns[] = {
    [ASHLAR_ALLOC_WORKLOAD] = {"workload", "workload", ASHLAR_ROWS_TEXT, 9, 0, 0},
    [ASHLAR_ALLOC_VARIANT] = {"variant", "variant", ASHLAR_ROWS_TEXT, 16, 0, 0},
    [ASHLAR_ALLOC_THREADS] = {"threads", "threads", ASHLAR_ROWS_NUMBER, 7, 0, 0},
    [ASHLAR_ALLOC_SUBJECT] = {"subject", "subject", ASHLAR_ROWS_TEXT, 9, 0, 0},
    [ASHLAR_ALLOC_NS_PAIR] = {"ns_pair", "ns/pair", ASHLAR_ROWS_NUMBER, 10, 1, 0},
    [ASHLAR_ALLOC_DRIVER_CALLS] = {"driver_calls", "driver calls", ASHLAR_ROWS_NUMBER, 13, 0, 0},
    [ASHLAR_ALLOC_RESERVED_OVER_LIVE] = {"reserved_over_live", "reserved/live", ASHLAR_ROWS_NUMBER,
                                         14, 3, 0},
    [ASHLAR_ALLOC_OVER_FLOOR] = {"over_floor", "x floor", ASHLAR_ROWS_NUMBER, 9, 2, 0},
    [ASHLAR_ALLOC_OVER_ASHLAR] = {"over_ashlar", "x ashlar", ASHLAR_ROWS_NUMBER, 9, 2, 0},
    [ASHLAR_ALLOC_INSTRUCTIONS] = {"instructions", NULL, ASHLAR_ROWS_OPTIONAL, 0, 0, 0},
    [ASHLAR_ALLOC_NS_STEP] = {"ns_step", NULL, ASHLAR_ROWS_OPTIONAL, 0, 0, 0},
    [ASHLAR_ALLOC_THROUGHPUT] = {NULL, NULL, ASHLAR_ROWS_NUMBER, 0, 0, 0},
};
ASHLAR_TABLE_IS_FULL(columns, ASHLAR_ALLOC_COLUMNS);

#define ON(of_threads, of_workload) .threads = (of_threads), .names = {of_workload}
#define C(column) ASHLAR_ALLOC_##column
#define FRAGMENTED "4096-fragmented" /* has no target */

static const ashlar_rows_target targets[] = {
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 2, ON(1, "one_size"), .except = FRAGMENTED},
    {"CUB / ashlar", "cub", C(OVER_ASHLAR), 5, true, ON(1, "one_size"), .except = FRAGMENTED},
    {"throughput / that of one thread", "ashlar", C(THROUGHPUT), 1.8, true, ON(2, "one_size"),
     .except = FRAGMENTED},
    {"CUB / ashlar", "cub", C(OVER_ASHLAR), 15, true, ON(2, "one_size"), .except = FRAGMENTED},
    {"instructions of a pair", "ashlar", C(INSTRUCTIONS), 130, ON(1, "one_size")},
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 8, ON(1, "mix")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "mix")},
    {"pair cost / floor", "ashlar", C(OVER_FLOOR), 8, ON(1, "random")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "random")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.05, ON(1, "rnn_cold")},
    {"reserved / peak live", "ashlar", C(RESERVED_OVER_LIVE), 1.02, ON(1, "rnn_warm")},
    {"driver calls after the first step", "ashlar", C(DRIVER_CALLS), 3, ON(1, "rnn_warm")},
    {"plan's reserved / peak live", "plan", C(RESERVED_OVER_LIVE), 1.02, ON(0, "rnn_warm")},
    {"driver calls of the plan's steps", "plan", C(DRIVER_CALLS), 0, ON(0, "rnn_warm")},
    {"replayed pair / thread cache's", "plan", C(OVER_ASHLAR), 1, .except = "rnn_warm"},
    {"instructions replayed / cache's", "plan", C(INSTRUCTIONS), 1, .base = "ashlar"},
};

static const ashlar_rows_form form = {columns, ASHLAR_ALLOC_COLUMNS, ASHLAR_ALLOC_SUBJECT, targets,
                                      sizeof targets / sizeof targets[0]};

void ashlar__alloc_fill(ashlar_rows *rows, size_t first) {
    ashlar__rows_fill_ratios(rows, first, ASHLAR_ALLOC_OVER_FLOOR, ASHLAR_ALLOC_NS_PAIR, "floor");
    ashlar__rows_fill_ratios(rows, first, ASHLAR_ALLOC_OVER_ASHLAR, ASHLAR_ALLOC_NS_PAIR, "ashlar");
    for (size_t i = first; i < rows->count; i++) {
        ashlar_rows_cell *cells = rows->items[i].cells;
        const ashlar_row *one =
            ashlar__rows_find(rows, &rows->items[i], cells[ASHLAR_ALLOC_SUBJECT].text, 1);
        /* What n threads do / what one does: n if a pair costs each thread the same. */
        cells[ASHLAR_ALLOC_THROUGHPUT].number = one == NULL
                                                    ? NAN
                                                    : cells[ASHLAR_ALLOC_THREADS].number *
                                                          one->cells[ASHLAR_ALLOC_NS_PAIR].number /
                                                          cells[ASHLAR_ALLOC_NS_PAIR].number;
    }
}

/* ---- names ---- */

static bool name_of(const ashlar_workload_spec *specs, size_t count, size_t i,
                    ashlar_bench_name *out) {
    if (i < count) {
        *out = (ashlar_bench_name){specs[i].name, specs[i].variant};
    }
    return i < count;
}

static bool workload_of_alloc(size_t i, ashlar_bench_name *out) {
    size_t count;
    const ashlar_workload_spec *specs = ashlar__workload_specs(&count);
    return name_of(specs, count, i, out);
}

static bool workload_of_plan(size_t i, ashlar_bench_name *out) {
    size_t count;
    const ashlar_workload_spec *specs = ashlar__workload_plan_specs(&count);
    return name_of(specs, count, i, out);
}

static const char *subject_name(size_t i) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    return i < ashlar__peers(peers) ? peers[i]->name : NULL;
}

/* Whether `peer` is measured when no --subject is given. `device` may be NULL (not known). */
static bool is_usual(bool is_of_plans, const ashlar_device *device, const ashlar_peer *peer) {
    if (is_of_plans) {
        return peer == &ashlar__peer_ashlar || peer == &ashlar__peer_plan ||
               peer == &ashlar__peer_floor || ashlar__peer_is_loaded(peer);
    }
    if (peer == &ashlar__peer_cuda_async) {
        return device != NULL && ashlar__peer_cuda_async_serves(device);
    }
    return peer != &ashlar__peer_plan && peer != &ashlar__peer_none;
}

/* The chosen peers, in the order of the rows, which the order of the options does not change. */
static size_t choose_peers(const ashlar_bench_request *request, bool is_of_plans,
                           const ashlar_device *device, const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    const ashlar_peer *all[ASHLAR_PEERS_MAX];
    const size_t all_count = ashlar__peers(all);
    size_t count = 0;
    for (size_t i = 0; i < all_count; i++) {
        const ashlar_bench_name name = {all[i]->name, NULL};
        if (request->subjects.count == 0 ? is_usual(is_of_plans, device, all[i])
                                         : ashlar__bench_wants(&request->subjects, name)) {
            out[count++] = all[i];
        }
    }
    return count;
}

/* ---- time ---- */

/* One run of the benchmark. */
typedef struct bench {
    const ashlar_bench_request *request;
    bool is_of_plans; /* it runs the lists with steps */
    ashlar_device *device;
    ashlar_rows *rows;
} bench;

/* Pairs per step, on average. The list must have steps. */
static double pairs_of_step(const ashlar_workload *w) {
    return (double)w->body_pairs / (double)ashlar__workload_body_steps(w);
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

static ashlar_status measure_one(const bench *b, const ashlar_workload *workload, size_t threads) {
    const bool is_smoke = b->request->is_smoke;
    const ashlar_measure_config how = {
        .device = b->device,
        .threads = threads,
        .rounds = is_smoke ? SMOKE_ROUNDS : ROUNDS,
        .round_ns = is_smoke ? smoke_round_ns : round_ns,
    };
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    ashlar_measurement results[ASHLAR_PEERS_MAX];
    const size_t count = choose_peers(b->request, b->is_of_plans, b->device, peers);
    const size_t first = b->rows->count;
    ASHLAR_TRY(ashlar__measure(&how, workload, peers, count, results));
    for (size_t i = 0; i < count; i++) {
        const double ns = results[i].ns_pair;
        const ashlar_row row = {{
            [ASHLAR_ALLOC_WORKLOAD].text = workload->name,
            [ASHLAR_ALLOC_VARIANT].text = workload->variant,
            [ASHLAR_ALLOC_THREADS].number = (double)threads,
            [ASHLAR_ALLOC_SUBJECT].text = peers[i]->name,
            [ASHLAR_ALLOC_NS_PAIR].number = ns,
            [ASHLAR_ALLOC_DRIVER_CALLS].number =
                peers[i]->hides_calls ? NAN : (double)results[i].driver_calls,
            [ASHLAR_ALLOC_RESERVED_OVER_LIVE].number = results[i].reserved_over_live,
            [ASHLAR_ALLOC_INSTRUCTIONS].number = NAN,
            [ASHLAR_ALLOC_NS_STEP].number = b->is_of_plans ? ns * pairs_of_step(workload) : NAN,
        }};
        ASHLAR_TRY(ashlar__rows_add(b->rows, &row));
    }
    ashlar__alloc_fill(b->rows, first);
    ashlar__rows_print(b->request->out, b->rows, first);
    if (b->is_of_plans) {
        print_steps(b->request->out, workload, b->rows, first);
    }
    return ASHLAR_OK;
}

/* Runs on request->threads threads; if that is 0, on one, and on two if the spec has_threads. */
static ashlar_status measure_spec(const bench *b, const ashlar_workload_spec *spec) {
    ashlar_workload workload;
    const size_t asked = b->request->threads;
    const size_t first = asked != 0 ? asked : 1;
    const size_t last = asked != 0 ? asked : spec->has_threads ? 2 : 1;
    ashlar_status status = ashlar__workload_init(&workload, spec);
    if (status != ASHLAR_OK) {
        return status;
    }
    for (size_t threads = first; threads <= last && status == ASHLAR_OK; threads++) {
        status = measure_one(b, &workload, threads);
    }
    ashlar__workload_finish(&workload);
    return status;
}

static ashlar_status measure_specs(const bench *b) {
    size_t count;
    const ashlar_workload_spec *specs =
        b->is_of_plans ? ashlar__workload_plan_specs(&count) : ashlar__workload_specs(&count);
    ashlar__rows_print_head(b->request->out, b->rows);
    for (size_t i = 0; i < count; i++) {
        const ashlar_bench_name name = {specs[i].name, specs[i].variant};
        if (ashlar__bench_wants(&b->request->workloads, name)) {
            ASHLAR_TRY(measure_spec(b, &specs[i]));
        }
    }
    return ASHLAR_OK;
}

/* ---- instructions ---- */

/* Run at least request->pairs pairs of 4 KiB: the program that callgrind counts. */
static ashlar_status run_pairs(const bench *b) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = choose_peers(b->request, b->is_of_plans, b->device, peers);
    const ashlar_option_list wanted = {.items = {"one_size/4096"}, .count = 1};
    ashlar_bench_name name = {0};
    size_t spec_count, spec = 0;
    ashlar_workload workload;
    while (workload_of_alloc(spec, &name) && !ashlar__bench_wants(&wanted, name)) {
        spec++;
    }
    ashlar_status status =
        ashlar__workload_init(&workload, &ashlar__workload_specs(&spec_count)[spec]);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t times = (b->request->pairs + workload.body_pairs - 1) / workload.body_pairs;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = ashlar__measure_repeat(b->device, &workload, peers[i], times);
    }
    ashlar__workload_finish(&workload);
    return status;
}

/*
 * Count the instructions of a malloc + free pair of 4 KiB on every chosen subject, by running this
 * program twice under valgrind's callgrind with different numbers of pairs. The difference is
 * exact, whatever else the machine does. The loop's own instructions, counted with a subject that
 * does nothing, are subtracted.
 */
static ashlar_status count_instructions(const bench *b) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = choose_peers(b->request, b->is_of_plans, NULL, peers);
    double of_loop = 0, counted = 0;
    ASHLAR_TRY(ashlar__instructions_of_pair(b->request->device, ashlar__peer_none.name, &of_loop));
    fprintf(b->request->out, "%-9s %20s  (without the loop's own %.2f)\n", "subject",
            "instructions/pair", of_loop);
    for (size_t i = 0; i < count; i++) {
        if (peers[i] == &ashlar__peer_driver && b->request->subjects.count == 0) {
            continue; /* the driver has no cache, so a pair is never a hit */
        }
        ASHLAR_TRY(ashlar__instructions_of_pair(b->request->device, peers[i]->name, &counted));
        ashlar_row row = {{
            [ASHLAR_ALLOC_WORKLOAD].text = "one_size",
            [ASHLAR_ALLOC_VARIANT].text = "4096-instructions",
            [ASHLAR_ALLOC_THREADS].number = 1,
            [ASHLAR_ALLOC_SUBJECT].text = peers[i]->name,
        }};
        for (size_t column = ASHLAR_ALLOC_NS_PAIR; column < ASHLAR_ALLOC_COLUMNS; column++) {
            row.cells[column].number = NAN;
        }
        row.cells[ASHLAR_ALLOC_INSTRUCTIONS].number = counted - of_loop;
        ASHLAR_TRY(ashlar__rows_add(b->rows, &row));
        fprintf(b->request->out, "%-9s %20.2f\n", peers[i]->name, counted - of_loop);
        fflush(b->request->out);
    }
    return ASHLAR_OK;
}

/* ---- the benchmarks ---- */

static ashlar_status run(bench *b) {
    if (b->request->counts_instructions) {
        return count_instructions(b);
    }
    ASHLAR_TRY(ashlar_device_open(b->request->device, &b->device));
    const ashlar_status status = b->request->pairs != 0 ? run_pairs(b) : measure_specs(b);
    ashlar_device_close(b->device);
    return status;
}

static ashlar_status run_alloc(const ashlar_bench_request *request, ashlar_rows *rows,
                               ashlar_rows *more) {
    (void)more;
    return run(&(bench){.request = request, .rows = rows});
}

/* Files are packed, and nothing else is done; training steps are packed if all is measured. */
static ashlar_status run_plan(const ashlar_bench_request *r, ashlar_rows *rows,
                              ashlar_rows *packings) {
    ashlar_packing packing;
    for (size_t i = 0; i < r->file_count; i++) {
        const ashlar_pack_job job = {
            .path = r->files[i], .capacity_bytes = r->capacity, .seconds = r->seconds};
        ASHLAR_TRY(ashlar__bench_pack_file(&job, &packing));
        ashlar__bench_pack_print(r->out, &packing);
        ASHLAR_TRY(ashlar__packing_add(packings, &packing));
    }
    if (r->file_count > 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(run(&(bench){.request = r, .is_of_plans = true, .rows = rows}));
    if (r->pairs != 0 || r->counts_instructions || r->workloads.count > 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__bench_pack(r->is_smoke ? 1 : PACKING_TRIES, &packing));
    fputc('\n', r->out);
    ashlar__bench_pack_print(r->out, &packing);
    return ashlar__packing_add(packings, &packing);
}

static void print_alloc_help(FILE *out) {
    const char *name;
    fprintf(out, "\nSubjects of this build:");
    for (size_t i = 0; (name = subject_name(i)) != NULL; i++) {
        fprintf(out, " %s", name);
    }
    fprintf(
        out,
        "\n\n"
        "Every subject runs the same recorded list of operations, each with an instance of its\n"
        "own, in rounds that take turns. ns/pair is the median over the rounds of the wall time\n"
        "of all threads / the pairs of ONE thread: with perfect scaling it stays what it is on\n"
        "one thread. Driver calls are those of the list's first run, without the choice of a\n"
        "context (rnn_*: of the 1000 steps; rnn_warm runs one of full length before them).\n"
        "Reserved/live compares the peaks. `floor` is the least work that any allocator of\n"
        "device memory has: a thread's own free list, and a page map to find the block.\n"
        "JSON: an array of rows {workload, variant, threads, subject, ns_pair, driver_calls,\n"
        "reserved_over_live, over_floor, over_ashlar}, null where it is not known; with\n"
        "--instructions also that.\n"
        "Of plan: {rows, packings}, rows with ns_step. There `ashlar` is the thread cache where\n"
        "blocks are small (one_size, rnn_step/N: N times 20 pairs in a step, which begins and\n"
        "ends within what is timed), and `plan` the same with its steps replayed.\n"
        "The targets at the end do not change the exit status. The software device has 64 GiB\n"
        "here unless ASHLAR_SOFT says otherwise.\n\n"
        "--peer FILE.so: a subject named as the file. It exports, with C's names, what PyTorch's\n"
        "pluggable allocators do:\n"
        "    void *alloc(size_t bytes, int device, cudaStream_t stream);\n"
        "    void free(void *ptr, size_t bytes, int device, cudaStream_t stream);\n"
        "Functions of other names are told by --peer FILE.so:ALLOC,FREE (one that includes\n"
        "stdlib.h, as cuda_runtime.h does, cannot have another free). Blocks are aligned to 16\n"
        "bytes, NULL where there is none; `free` gets what `alloc` got. Several threads call\n"
        "them at once where a list has several. The object is tried first, in a process of its\n"
        "own: one that crashes or hands out what is in use is refused. On the software device\n"
        "the stream is not CUDA's, so that an object that calls CUDA is for --device cuda. It\n"
        "keeps what it has cached from list to list; every other subject begins anew.\n"
        "cuda_async is what cudaMallocAsync calls, and only there on a CUDA device.\n\n");
}

const ashlar_benchmark ashlar__benchmark_alloc = {
    .name = "alloc",
    .form = &form,
    .workload = workload_of_alloc,
    .subject = subject_name,
    .run = run_alloc,
    .print_help = print_alloc_help,
};

const ashlar_benchmark ashlar__benchmark_plan = {
    .name = "plan",
    .form = &form,
    .more = &ashlar__packing_form,
    .more_key = "packings",
    .workload = workload_of_plan,
    .subject = subject_name,
    .run = run_plan,
};
