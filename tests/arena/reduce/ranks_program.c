/*
 * ranks_program.c - a program of several ranks, for shell_ranks.sh: each collective of ranks.h in
 * each type and order against what it must give; and ranks that fail on purpose.
 *
 *     ranks_program all                  status 0: every result is right on every rank
 *     ranks_program shape|order|facts    rank 1 does something else; the line of the failure
 *     ranks_program late                 rank 1 does not come
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ashlar/ashlar.h>

#include "arena/compute/convert.h"

enum { ELEMENTS = 4 * 3 * 70000 }; /* more than a piece of the tree's staging */

static ashlar_device *device;
static ashlar_stream stream;
static ashlar_ranks *ranks;
static char data[ELEMENTS * sizeof(double)];

static void must(ashlar_status status) {
    if (status != ASHLAR_OK) {
        fprintf(stderr, "%s\n", ashlar_error_detail());
        ashlar_ranks_close(ranks, true);
    }
}

static double value_at(ashlar_dtype dtype, size_t i) {
    double value = 0;
    ashlar__convert(ASHLAR_F64, &value, dtype, data + i * ashlar_dtype_bytes(dtype), 1);
    return value;
}

/* Small whole numbers, whose sums are exact in every type. */
static double number(size_t rank, size_t i) {
    return (double)((rank + 1) * (i % 13));
}

static void fill(ashlar_dtype dtype, size_t rank) {
    for (size_t i = 0; i < ELEMENTS; i++) {
        const double value = number(rank, i);
        ashlar__convert(dtype, data + i * ashlar_dtype_bytes(dtype), ASHLAR_F64, &value, 1);
    }
}

static double sum_at(size_t i) {
    double sum = 0;
    for (size_t rank = 0; rank < ashlar_ranks_count(ranks); rank++) {
        sum += number(rank, i);
    }
    return sum;
}

static size_t wrong;

static void expect(const char *what, ashlar_dtype dtype, size_t first, size_t end,
                   double (*wanted)(size_t i)) {
    must(ashlar_stream_synchronize(device, stream));
    must(ashlar_ranks_check(ranks));
    for (size_t i = first; i < end; i++) {
        if (value_at(dtype, i) != wanted(i)) {
            fprintf(stderr, "%s of %s: element %zu is %g, not %g\n", what, ashlar_dtype_name(dtype),
                    i, value_at(dtype, i), wanted(i));
            wrong++;
            return;
        }
    }
}

static double of_last(size_t i) {
    return number(ashlar_ranks_count(ranks) - 1, i);
}

static double of_owner(size_t i) {
    return number(i / (ELEMENTS / ashlar_ranks_count(ranks)), i);
}

static void run_all(ashlar_ranks_order order) {
    const size_t rank = ashlar_ranks_rank(ranks), count = ashlar_ranks_count(ranks);
    const size_t shard = ELEMENTS / count;
    const ashlar_collectives *c = NULL;
    must(ashlar_ranks_collectives(ranks, device, order, &c));
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type++) {
        const ashlar_dtype dtype = (ashlar_dtype)type;
        fill(dtype, rank);
        must(c->broadcast(c->context, data, ELEMENTS, dtype, count - 1, stream));
        expect("broadcast", dtype, 0, ELEMENTS, of_last);
        fill(dtype, rank);
        must(c->all_reduce(c->context, data, ELEMENTS, dtype, stream));
        expect("all_reduce", dtype, 0, ELEMENTS, sum_at);
        fill(dtype, rank);
        must(c->reduce_scatter(c->context, data, ELEMENTS, dtype, stream));
        expect("reduce_scatter", dtype, rank * shard, (rank + 1) * shard, sum_at);
        fill(dtype, rank);
        must(c->all_gather(c->context, data, ELEMENTS, dtype, stream));
        expect("all_gather", dtype, 0, ELEMENTS, of_owner);
    }
}

/* Rank 1 differs in the second collective of step 7. */
static void fail_on_purpose(const char *how) {
    const ashlar_collectives *c = NULL;
    const bool is_other = ashlar_ranks_rank(ranks) == 1;
    must(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &c));
    ashlar_ranks_mark(ranks, 7, is_other && strcmp(how, "facts") == 0 ? 5 : 6);
    if (strcmp(how, "facts") != 0) {
        must(c->all_reduce(c->context, data, 10, ASHLAR_F32, stream));
    }
    if (is_other && strcmp(how, "late") == 0) {
        (void)sleep(60);
    }
    if (is_other && strcmp(how, "order") == 0) {
        must(c->broadcast(c->context, data, 20, ASHLAR_F32, 0, stream));
    }
    must(c->all_reduce(c->context, data, is_other && strcmp(how, "shape") == 0 ? 19 : 20,
                       ASHLAR_F32, stream));
    must(ashlar_stream_synchronize(device, stream));
    if (ashlar_ranks_check(ranks) != ASHLAR_OK && ashlar_ranks_reports(ranks)) {
        fprintf(stderr, "LINE %s\n", ashlar_error_detail());
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "all";
    must(ashlar_ranks_open(NULL, 2000, &ranks));
    must(ashlar_device_open("soft", &device));
    must(ashlar_stream_create(device, &stream));
    if (strcmp(how, "all") == 0) {
        run_all(ASHLAR_RANKS_FASTEST);
        run_all(ASHLAR_RANKS_TREE);
    } else {
        fail_on_purpose(how);
    }
    ashlar_stream_destroy(device, stream);
    ashlar_device_close(device);
    ashlar_ranks_close(ranks, wrong > 0 || strcmp(how, "late") == 0);
    return wrong > 0;
}
