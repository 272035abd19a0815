/* bench_pack.c - runs the packer on problems from a seed and from files, and reports its time and
 * the quality of its plans. */
#include "bench/replay/bench_pack.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "allocator/base/host.h"
#include "allocator/heap/block.h"
#include "bench/harness/harness.h"
#include "bench/replay/replay.h"

enum { SEED = 20261121 };

/* By what share the plan is larger than the lower bound; 0 if there is nothing to pack. */
static double packing_gap(const ashlar_packing *p) {
    return p->result.bound_bytes == 0
               ? 0
               : (double)p->result.plan_bytes / (double)p->result.bound_bytes - 1;
}

static bool fits(const ashlar_packing *p) {
    return p->capacity_bytes == 0 || p->result.plan_bytes <= p->capacity_bytes;
}

static ashlar_status pack(const ashlar_pack_buffer *buffers, const ashlar_pack_options *options,
                          size_t *offsets, ashlar_packing *out) {
    const double start = ashlar__clock_s();
    ASHLAR_TRY(ashlar_pack(buffers, out->count, options, offsets, &out->result));
    out->seconds = ashlar__clock_s() - start;
    return ASHLAR_OK;
}

/* ---- problems from a seed ---- */

enum { SMOKE_CASES = 4 };

static const struct {
    const char *name;
    void (*make)(uint64_t seed, ashlar_pack_buffer *buffers, size_t count);
    uint64_t seed;
    size_t count;
    uint64_t budget_ms; /* a little less than a case's name says, so that the call ends by then */
} cases[] = {
    {"training", ashlar__pack_case_training, SEED, ASHLAR_PACKING_BUFFERS, 0},
    {"network/1 s", ashlar__pack_case_network, 1, 18700, 980},
    {"network_20000/0.3 s", ashlar__pack_case_network, 1, 20000, 285},
    {"network_60000/0.3 s", ashlar__pack_case_network, 1, 60000, 275},
    {"network_20000/0.3 s", ashlar__pack_case_network, 2, 20000, 285},
    {"network_60000/0.3 s", ashlar__pack_case_network, 3, 60000, 275},
    {"network/1 s", ashlar__pack_case_network, 15, 18700, 980},
    {"network/1 s", ashlar__pack_case_network, 38, 18700, 980},
    {"network/1 s", ashlar__pack_case_network, 92, 18700, 980},
    {"network/10 s", ashlar__pack_case_network, 15, 18700, 9900},
    {"network/10 s", ashlar__pack_case_network, 38, 18700, 9900},
    {"network/10 s", ashlar__pack_case_network, 92, 18700, 9900},
};

size_t ashlar__bench_pack_count(bool is_smoke) {
    return is_smoke ? SMOKE_CASES : sizeof cases / sizeof cases[0];
}

ashlar_status ashlar__bench_pack(size_t idx, ashlar_packing *out) {
    const size_t count = cases[idx].count;
    ashlar_packing packing = {
        .case_name = cases[idx].name, .seed = cases[idx].seed, .count = count};
    ashlar_pack_buffer *buffers = ashlar__host_calloc(count, sizeof *buffers);
    size_t *offsets = ashlar__host_calloc(count, sizeof *offsets);
    ashlar_status status = ASHLAR_OK;
    if (buffers == NULL || offsets == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for %zu buffers", count);
    } else {
        const ashlar_pack_options options = {.alignment = ASHLAR_BLOCK_ALIGN,
                                             .time_budget_ms = cases[idx].budget_ms};
        cases[idx].make(cases[idx].seed, buffers, count);
        status = pack(buffers, &options, offsets, &packing);
    }
    ashlar__host_free(buffers);
    ashlar__host_free(offsets);
    if (status == ASHLAR_OK) {
        *out = packing;
    }
    return status;
}

/* ---- problems from files ---- */

void ashlar__bench_pack_print(FILE *out, const ashlar_packing *p) {
    fprintf(out, "%s: ", p->case_name);
    if (p->seed != 0) {
        fprintf(out, "seed %" PRIu64 ", ", p->seed);
    }
    fprintf(out, "%zu buffers, bound %zu, plan %zu bytes, gap %.3f %%, %.3f s (%s)", p->count,
            p->result.bound_bytes, p->result.plan_bytes, 100 * packing_gap(p), p->seconds,
            p->result.strategy);
    if (p->capacity_bytes > 0) {
        fprintf(out, ", capacity %zu: %s", p->capacity_bytes, fits(p) ? "fits" : "does not fit");
    }
    fputc('\n', out);
    fflush(out);
}

#define COLUMN_MAP(X)                                    \
    X(PACK, NULL, NULL, TEXT, 9, 0, 0)                   \
    X(CASE_NAME, "case", NULL, TEXT, 20, 0, 0)           \
    X(SUBJECT, "subject", NULL, TEXT, 0, 0, 0)           \
    X(CASE_SEED, "seed", NULL, OPTIONAL, 0, 0, 0)        \
    X(BUFFERS, "buffers", NULL, NUMBER, 0, 0, 0)         \
    X(SECONDS, "seconds", NULL, NUMBER, 0, 0, 0)         \
    X(PLAN, "plan_bytes", NULL, NUMBER, 0, 0, 0)         \
    X(BOUND, "bound_bytes", NULL, NUMBER, 0, 0, 0)       \
    X(GAP, "gap", NULL, NUMBER, 0, 0, 0)                 \
    X(OPTIMAL, "optimal", NULL, BOOL, 0, 0, 0)           \
    X(CAPACITY, "capacity_bytes", NULL, NUMBER, 0, 0, 0) \
    X(FITS, "fits", NULL, BOOL, 0, 0, 0)                 \
    X(STRATEGY, "strategy", NULL, TEXT, 0, 0, 0)
#define COLUMN_ENUM(name, ...) name,
#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
enum { COLUMN_MAP(COLUMN_ENUM) COLUMNS };
static const ashlar_rows_column columns[] = {COLUMN_MAP(COLUMN)};

static const ashlar_rows_target targets[] = {
    {"seconds", NULL, SECONDS, .limit = 1, .except = "network/10 s"},
    {"gap", NULL, GAP, .limit = 0.03},
    {"gap", NULL, GAP, .limit = 0.02, .names = {"pack", "network/1 s"}},
    {"gap", NULL, GAP, .limit = 0.01, .names = {"pack", "network/10 s"}},
    {"seconds", NULL, SECONDS, .limit = 10, .names = {"pack", "network/10 s"}},
    {"gap", NULL, GAP, .limit = 0.005, .names = {"pack", "network_20000/0.3 s"}},
    {"seconds", NULL, SECONDS, .limit = 0.3, .names = {"pack", "network_20000/0.3 s"}},
    {"gap", NULL, GAP, .limit = 0.005, .names = {"pack", "network_60000/0.3 s"}},
    {"seconds", NULL, SECONDS, .limit = 0.3, .names = {"pack", "network_60000/0.3 s"}},
};

const ashlar_rows_form ashlar__packing_form = {columns, COLUMNS, SUBJECT, targets,
                                               sizeof targets / sizeof targets[0]};

ashlar_row ashlar__packing_row(const ashlar_packing *p) {
    return (ashlar_row){{
        [PACK].text = "pack",
        [CASE_NAME].text = p->case_name,
        [SUBJECT].text = "ashlar",
        [CASE_SEED].number = p->seed != 0 ? (double)p->seed : NAN,
        [BUFFERS].number = (double)p->count,
        [SECONDS].number = p->seconds,
        [PLAN].number = (double)p->result.plan_bytes,
        [BOUND].number = (double)p->result.bound_bytes,
        [GAP].number = packing_gap(p),
        [OPTIMAL].number = p->result.is_optimal,
        [CAPACITY].number = p->capacity_bytes != 0 ? (double)p->capacity_bytes : NAN,
        [FITS].number = fits(p),
        [STRATEGY].text = p->result.strategy,
    }};
}

static void put_packing(const ashlar_pack_job *job, const ashlar_packing *p,
                        const ashlar_pack_table *table, const size_t *offsets) {
    ashlar_json_writer *w = job->writer;
    const ashlar_row row = ashlar__packing_row(p);
    ashlar__json_open_document(w, "ashlar-pack/1");
    ashlar__rows_put_members(w, &ashlar__packing_form, &row);
    if (job->lists_blocks) {
        ashlar__replay_open_blocks(w, "time");
        for (size_t i = 0; i < table->count; i++) {
            const ashlar_pack_buffer *b = &table->buffers[i];
            ashlar__replay_put_block(w, offsets[i], b->bytes, b->begin, b->end);
        }
        ashlar__json_close_table(w);
    }
    ashlar__json_close_object(w);
}

/* Pack a table once, verify the plan, and write it. */
static ashlar_status pack_table(const ashlar_pack_job *job, const ashlar_pack_table *table,
                                size_t *offsets, ashlar_packing *p) {
    const ashlar_pack_options options = {.capacity_bytes = job->capacity_bytes,
                                         .time_budget_ms = (uint64_t)job->seconds * 1000};
    size_t bytes = 0;
    p->count = table->count;
    ASHLAR_TRY(pack(table->buffers, &options, offsets, p));
    ASHLAR_TRY(ashlar__pack_check(table->buffers, table->count, offsets, &bytes));
    ASHLAR_FAIL_IF(bytes != p->result.plan_bytes, ASHLAR_EFORMAT,
                   "%s: the plan ends at %zu, not at %zu", job->path, bytes, p->result.plan_bytes);
    if (job->solution != NULL) {
        ASHLAR_TRY(ashlar__pack_table_write(table, offsets, job->solution));
    }
    put_packing(job, p, table, offsets);
    return ASHLAR_OK;
}

ashlar_status ashlar__replay_pack_run(const ashlar_pack_job *job, FILE *out) {
    ashlar_packing p = {.case_name = job->path, .capacity_bytes = job->capacity_bytes};
    ashlar_pack_table table = {0};
    ASHLAR_TRY(ashlar__pack_table_read(job->path, &table));
    size_t *offsets = ashlar__host_calloc(table.count + 1, sizeof *offsets); /* count may be 0 */
    const ashlar_status status =
        offsets != NULL ? pack_table(job, &table, offsets, &p)
                        : ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory for %zu offsets",
                                       job->path, table.count);
    ashlar__host_free(offsets);
    ashlar__pack_table_finish(&table);
    ASHLAR_TRY(status);
    ashlar__bench_pack_print(out, &p);
    ASHLAR_FAIL_IF(!fits(&p), ASHLAR_ENOMEM,
                   "%s: the best plan of %zu s needs %zu bytes, the capacity is %zu%s", job->path,
                   job->seconds, p.result.plan_bytes, job->capacity_bytes,
                   p.result.bound_bytes > job->capacity_bytes || p.result.is_optimal
                       ? "; no plan fits"
                       : "; more --seconds may help");
    return ASHLAR_OK;
}
