#include "bench/replay/bench_pack.h"

#include <string.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "bench/harness/median.h"
#include "bench/replay/pack_cases.h"
#include "allocator/pack/pack_csv.h"
#include "allocator/heap/size_class.h"

enum { SEED = 20261121 };

static const double seconds_limit = 1, gap_limit = 0.03;

double ashlar__packing_gap(const ashlar_packing *p) {
    return p->result.bound_bytes == 0
               ? 0
               : (double)p->result.plan_bytes / (double)p->result.bound_bytes - 1;
}

static ashlar_status pack_often(const ashlar_pack_buffer *buffers,
                                const ashlar_pack_options *options, size_t tries, size_t *offsets,
                                ashlar_packing *out) {
    double seconds[ASHLAR_PACKING_TRIES_MAX];
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < tries && status == ASHLAR_OK; i++) {
        const double start = ashlar__clock_s();
        status = ashlar_pack(buffers, out->count, options, offsets, &out->result);
        seconds[i] = ashlar__clock_s() - start;
    }
    if (status == ASHLAR_OK) {
        out->seconds = ashlar__median(seconds, tries);
    }
    return status;
}

ashlar_status ashlar__bench_pack(size_t tries, ashlar_packing *out) {
    const size_t count = ASHLAR_PACKING_BUFFERS;
    ashlar_packing packing = {.problem = "training", .count = count};
    ashlar_pack_buffer *buffers = ashlar__host_calloc(count, sizeof *buffers);
    size_t *offsets = ashlar__host_calloc(count, sizeof *offsets);
    ashlar_status status = ASHLAR_OK;
    if (buffers == NULL || offsets == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for %zu buffers", count);
    } else {
        const ashlar_pack_options options = {.alignment = ASHLAR_BLOCK_ALIGN};
        ashlar__pack_case_training(SEED, buffers, count);
        status = pack_often(buffers, &options, tries, offsets, &packing);
    }
    ashlar__host_free(buffers);
    ashlar__host_free(offsets);
    if (status == ASHLAR_OK) {
        *out = packing;
    }
    return status;
}

static ashlar_status pack_table(const ashlar_pack_table *table, size_t seconds,
                                ashlar_packing *packing) {
    const ashlar_pack_options options = {.capacity_bytes = packing->capacity_bytes,
                                         .time_budget_ms = 1000 * (uint64_t)seconds};
    size_t *offsets = ashlar__host_calloc(table->count + 1, sizeof *offsets);
    size_t bytes;
    if (offsets == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory to pack %s", packing->problem);
    }
    packing->count = table->count;
    ashlar_status status = pack_often(table->buffers, &options, 1, offsets, packing);
    if (status == ASHLAR_OK) {
        status = ashlar_pack_verify(table->buffers, table->count, 1, offsets, &bytes);
    }
    ashlar__host_free(offsets);
    return status;
}

ashlar_status ashlar__bench_pack_file(const char *path, size_t capacity_bytes, size_t seconds,
                                      ashlar_packing *out) {
    const char *slash = strrchr(path, '/');
    ashlar_packing packing = {.problem = slash != NULL ? slash + 1 : path,
                              .capacity_bytes = capacity_bytes};
    ashlar_pack_table table = {0};
    ashlar_status status = ashlar__pack_table_read(path, &table);
    if (status == ASHLAR_OK) {
        status = pack_table(&table, seconds, &packing);
    }
    ashlar__pack_table_finish(&table);
    if (status == ASHLAR_OK) {
        *out = packing;
    }
    return status;
}

static bool fits(const ashlar_packing *p) {
    return p->result.plan_bytes <= p->capacity_bytes;
}

void ashlar__bench_pack_print(FILE *out, const ashlar_packing *p) {
    fprintf(out, "pack      %-16s %7zu buffers %8.3f s  plan %zu B, bound %zu B, gap %.2f %%%s\n",
            p->problem, p->count, p->seconds, p->result.plan_bytes, p->result.bound_bytes,
            100 * ashlar__packing_gap(p),
            p->capacity_bytes == 0 ? ""
            : fits(p)              ? ", fits"
                                   : ", DOES NOT FIT");
    fflush(out);
}

static void print_verdict(FILE *out, const ashlar_packing *p, const char *what, double value,
                          double limit) {
    fprintf(out, "%-8s pack      %-16s           %-34s %9.3f  (at most %g)\n",
            value <= limit ? "met" : "NOT MET", p->problem, what, value, limit);
}

void ashlar__bench_pack_print_targets(FILE *out, const ashlar_packing *p) {
    print_verdict(out, p, "seconds", p->seconds, seconds_limit);
    print_verdict(out, p, "gap", ashlar__packing_gap(p), gap_limit);
}

void ashlar__bench_pack_put(ashlar_json_writer *w, const ashlar_packing *p) {
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "problem", p->problem);
    ashlar__json_add_uint64(w, "buffers", p->count);
    ashlar__json_add_double(w, "seconds", p->seconds);
    ashlar__json_add_uint64(w, "plan_bytes", p->result.plan_bytes);
    ashlar__json_add_uint64(w, "bound_bytes", p->result.bound_bytes);
    ashlar__json_add_double(w, "gap", ashlar__packing_gap(p));
    if (p->capacity_bytes != 0) {
        ashlar__json_add_uint64(w, "capacity", p->capacity_bytes);
        ashlar__json_add_bool(w, "fits", fits(p));
    }
    ashlar__json_close_object(w);
}
