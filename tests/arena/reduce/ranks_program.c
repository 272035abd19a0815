/*
 * ranks_program.c - a program of several ranks, for shell_ranks.sh and shell_nccl.sh: each
 * collective of ranks.h in each type and order against what it must give; and ranks that fail on
 * purpose. With a second word, cuda, each rank has a CUDA device of its own.
 *
 *     ranks_program all                  status 0: every result is right on every rank
 *     ranks_program shape|order|facts    rank 1 does something else; the line of the failure
 *     ranks_program late                 rank 1 does not come
 *     ranks_program gradient             rank 1 has a parameter without a gradient
 *     ranks_program hang                 rank 1 stops with a collective queued, on CUDA devices
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ashlar/ashlar.h>

#include "allocator/base/error.h"
#include "arena/compute/convert.h"

enum { ELEMENTS = 4 * 3 * 70000 }; /* more than a piece of the tree's staging */

static ashlar_device *device;
static ashlar_stream stream;
static ashlar_ranks *ranks;
static char data[ELEMENTS * sizeof(double)]; /* a copy of what the ranks have: */
static ashlar_allocator *allocator;
static void *on_device;

static void must(ashlar_status status) {
    if (status != ASHLAR_OK) {
        fprintf(stderr, "%s\n", ashlar_error_detail());
        ashlar_ranks_close(ranks, true);
        exit(1);
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
    must(ashlar_copy_to_device(device, on_device, data, sizeof data, stream));
    must(ashlar_stream_synchronize(device, stream)); /* the copy is filled anew, next */
}

static double sum_at(size_t i) {
    double sum = 0;
    for (size_t rank = 0; rank < ashlar_ranks_get_info(ranks).count; rank++) {
        sum += number(rank, i);
    }
    return sum;
}

static size_t wrong;

static void expect(const char *what, ashlar_dtype dtype, size_t first, size_t end,
                   double (*wanted)(size_t i)) {
    must(ashlar_copy_to_host(device, data, on_device, sizeof data, stream));
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
    return number(ashlar_ranks_get_info(ranks).count - 1, i);
}

static double of_owner(size_t i) {
    return number(i / (ELEMENTS / ashlar_ranks_get_info(ranks).count), i);
}

static void run_all(ashlar_ranks_order order) {
    const size_t rank = ashlar_ranks_get_info(ranks).rank,
                 count = ashlar_ranks_get_info(ranks).count;
    const size_t shard = ELEMENTS / count;
    const ashlar_collectives *c = NULL;
    must(ashlar_ranks_collectives(ranks, device, order, &c));
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type++) {
        const ashlar_dtype dtype = (ashlar_dtype)type;
        fill(dtype, rank);
        must(c->broadcast(c->context, on_device, ELEMENTS, dtype, count - 1, stream));
        expect("broadcast", dtype, 0, ELEMENTS, of_last);
        fill(dtype, rank);
        must(c->all_reduce(c->context, on_device, ELEMENTS, dtype, stream));
        expect("all_reduce", dtype, 0, ELEMENTS, sum_at);
        fill(dtype, rank);
        must(c->reduce_scatter(c->context, on_device, ELEMENTS, dtype, stream));
        expect("reduce_scatter", dtype, rank * shard, (rank + 1) * shard, sum_at);
        fill(dtype, rank);
        must(c->all_gather(c->context, on_device, ELEMENTS, dtype, stream));
        expect("all_gather", dtype, 0, ELEMENTS, of_owner);
    }
}

/* More collectives at once than any list of them holds. */
static void run_many(void) {
    const ashlar_collectives *c = NULL;
    must(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &c));
    fill(ASHLAR_F32, ashlar_ranks_get_info(ranks).rank);
    for (int i = 0; i < 200; i++) {
        must(c->broadcast(c->context, on_device, 10, ASHLAR_F32, 0, stream));
    }
    must(c->all_reduce(c->context, (float *)on_device + 10, ELEMENTS - 10, ASHLAR_F32, stream));
    expect("all_reduce behind many", ASHLAR_F32, 10, ELEMENTS, sum_at);
}

static void report(ashlar_status status) {
    if ((status != ASHLAR_OK || ashlar_ranks_check(ranks) != ASHLAR_OK) &&
        ashlar_ranks_get_info(ranks).reports) {
        fprintf(stderr, "LINE %s\n", ashlar_error_detail());
    }
}

/* Rank 1 differs in the second collective of step 7. */
static ashlar_status differ(const ashlar_collectives *c, const char *how) {
    const bool is_other = ashlar_ranks_get_info(ranks).rank == 1;
    if (is_other && strcmp(how, "late") == 0) {
        (void)sleep(60);
    }
    if (is_other && strcmp(how, "order") == 0) {
        ASHLAR_TRY(c->broadcast(c->context, on_device, 20, ASHLAR_F32, 0, stream));
    }
    ASHLAR_TRY(c->all_reduce(c->context, on_device, is_other && strcmp(how, "shape") == 0 ? 19 : 20,
                             ASHLAR_F32, stream));
    if (is_other && strcmp(how, "hang") == 0) {
        (void)raise(SIGSTOP); /* the whole process: its device, too */
    }
    return ashlar_stream_synchronize(device, stream);
}

static void fail_on_purpose(const char *how) {
    const ashlar_collectives *c = NULL;
    const bool is_other = ashlar_ranks_get_info(ranks).rank == 1;
    must(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &c));
    ashlar_ranks_mark(ranks, 7, is_other && strcmp(how, "facts") == 0 ? 5 : 6);
    ashlar_status status = ASHLAR_OK;
    if (strcmp(how, "facts") != 0) {
        status = c->all_reduce(c->context, on_device, 10, ASHLAR_F32, stream);
    }
    report(status == ASHLAR_OK ? differ(c, how) : status);
}

/* Rank 1 has a parameter without a gradient; the others wait for it. */
static void miss_a_gradient(void) {
    const ashlar_collectives *c = NULL;
    ashlar_arena *arena;
    ashlar_reducer *reducer;
    must(ashlar_ranks_collectives(ranks, device, ASHLAR_RANKS_FASTEST, &c));
    must(ashlar_arena_create(&arena));
    must(ashlar_arena_add(arena, "seldom", ASHLAR_F32, 1, &(size_t){300}, NULL));
    must(ashlar_arena_add(arena, "always", ASHLAR_F32, 1, &(size_t){300}, NULL));
    must(ashlar_arena_set_buckets(arena, 1, 1));
    must(ashlar_arena_commit(arena, allocator, stream, ASHLAR_REGIONS_ALL));
    must(ashlar_reducer_create(arena, c, ASHLAR_REDUCTION_ALL, stream, &reducer));
    must(ashlar_reducer_begin(reducer));
    must(ashlar_reducer_final(reducer, 1, stream));
    if (ashlar_ranks_get_info(ranks).rank != 1) {
        must(ashlar_reducer_final(reducer, 0, stream));
    }
    const ashlar_status status = ashlar_reducer_finish(reducer, stream);
    report(status == ASHLAR_OK ? ashlar_stream_synchronize(device, stream) : status);
    ashlar_ranks_close(ranks, true); /* ends the others, too */
}

static void open_all(const char *kind) {
    char name[32] = "soft";
    if (strcmp(kind, "cuda") == 0) {
        (void)snprintf(name, sizeof name, "cuda:%zu", ashlar_ranks_get_info(ranks).rank);
    }
    must(ashlar_device_open(name, &device));
    must(ashlar_stream_create(device, &stream));
    must(ashlar_allocator_create(device, &allocator));
    must(ashlar_alloc(allocator, sizeof data, stream, &on_device));
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "all";
    must(ashlar_ranks_open(NULL, 2000, &ranks));
    open_all(argc > 2 ? argv[2] : "soft");
    if (strcmp(how, "all") == 0) {
        run_all(ASHLAR_RANKS_FASTEST);
        run_all(ASHLAR_RANKS_TREE);
        run_many();
    } else if (strcmp(how, "gradient") == 0) {
        miss_a_gradient();
    } else {
        fail_on_purpose(how);
    }
    ashlar_ranks_drop_collectives(ranks, strcmp(how, "all") != 0);
    must(ashlar_free(allocator, on_device));
    ashlar_allocator_destroy(allocator);
    ashlar_stream_destroy(device, stream);
    ashlar_device_close(device);
    ashlar_ranks_close(ranks, wrong > 0 || strcmp(how, "late") == 0 || strcmp(how, "hang") == 0);
    return wrong > 0;
}
