/*
 * probe_updates.c - how fast the optimizer's kernels go through memory, beside a copy by the driver
 * of as many bytes.
 *
 * Rounds of both take turns; the figures are medians. Rows of the file: {"kernel", "type",
 * "subject", "elements", "bytes", "ns", "bytes_per_s"}, the subject "ashlar" or "copy", which reads
 * half of the bytes and writes the other half.
 */
#include "tests/gpu/probe.h"

#include <stdio.h>
#include <stdlib.h>

#include <ashlar/optimizer.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"

enum { ROUNDS = 9, REPEATS = 10, SMOKE_ROUNDS = 1, SMOKE_REPEATS = 2 };

static const struct {
    const char *name;
    ashlar_optimizer_config config;
    ashlar_dtype dtype;
} kernels[] = {
    {"sgd", {.kind = ASHLAR_OPTIMIZER_SGD}, ASHLAR_F32},
    {"momentum", {.kind = ASHLAR_OPTIMIZER_SGD, .momentum = 0.9}, ASHLAR_F32},
    {"adagrad", {.kind = ASHLAR_OPTIMIZER_ADAGRAD}, ASHLAR_F32},
    {"rmsprop", {.kind = ASHLAR_OPTIMIZER_RMSPROP}, ASHLAR_F32},
    {"adamw", {.kind = ASHLAR_OPTIMIZER_ADAMW}, ASHLAR_F32},
    {"adamw", {.kind = ASHLAR_OPTIMIZER_ADAMW}, ASHLAR_F64},
    {"adamw", {.kind = ASHLAR_OPTIMIZER_ADAMW}, ASHLAR_F16},
    {"adamw", {.kind = ASHLAR_OPTIMIZER_ADAMW}, ASHLAR_BF16},
};

typedef enum work { SUM, UPDATE, COPY } work;

typedef struct updates {
    ashlar_device *device;
    ashlar_stream stream;
    ashlar_allocator *allocator;
    ashlar_arena *arena;
    ashlar_optimizer *optimizer;
    size_t rounds, repeats;
    void *from, *to; /* [bytes / 2] of the largest copy */
} updates;

static size_t region_bytes(const updates *u, ashlar_region region) {
    return (ashlar_arena_get_info(u->arena).regions >> region & 1) != 0
               ? ashlar_arena_get_info(u->arena).region_bytes[region]
               : 0;
}

/* What a pass reads and writes. Parameters that have a master are only written. */
static size_t bytes_of(const updates *u, work what) {
    const size_t gradients = region_bytes(u, ASHLAR_REGION_GRADIENTS);
    const size_t masters = region_bytes(u, ASHLAR_REGION_MASTER);
    const size_t state =
        masters + region_bytes(u, ASHLAR_REGION_MOMENT1) + region_bytes(u, ASHLAR_REGION_MOMENT2);
    return what == SUM ? gradients
                       : gradients + 2 * state +
                             (masters > 0 ? 1 : 2) * region_bytes(u, ASHLAR_REGION_PARAMETERS);
}

static ashlar_status open_arena(updates *u, const ashlar_optimizer_config *config,
                                ashlar_dtype dtype, size_t elements) {
    ASHLAR_TRY(ashlar_arena_create(&u->arena));
    ASHLAR_TRY(ashlar_arena_add(u->arena, "weights", dtype, 1, &elements, NULL));
    ASHLAR_TRY(ashlar_arena_commit(u->arena, u->allocator, u->stream, ASHLAR_REGIONS_TRAINING));
    ASHLAR_TRY(ashlar_arena_zero(u->arena, ASHLAR_REGION_PARAMETERS, u->stream));
    ASHLAR_TRY(ashlar_arena_zero(u->arena, ASHLAR_REGION_GRADIENTS, u->stream));
    ASHLAR_TRY(ashlar_optimizer_create(u->arena, config, u->stream, &u->optimizer));
    const size_t half = bytes_of(u, UPDATE) / 2;
    ASHLAR_TRY(ashlar_alloc(u->allocator, half, u->stream, &u->from));
    ASHLAR_TRY(ashlar_alloc(u->allocator, half, u->stream, &u->to));
    return ashlar_fill(u->device, u->from, 1, half, u->stream);
}

static void close_arena(updates *u) {
    void *const copies[] = {u->from, u->to};
    for (size_t i = 0; i < 2; i++) {
        if (copies[i] != NULL) {
            const ashlar_status status = ashlar_free(u->allocator, copies[i]);
            (void)status;
        }
    }
    u->from = u->to = NULL;
    ashlar_optimizer_destroy(u->optimizer);
    u->optimizer = NULL;
    ashlar_arena_destroy(u->arena);
    u->arena = NULL;
}

static ashlar_status queue(const updates *u, work what, size_t bytes) {
    const size_t all = ashlar_arena_get_info(u->arena).region_bytes[ASHLAR_REGION_PARAMETERS];
    switch (what) {
    case SUM:
        return ashlar_optimizer_step_with(
            u->optimizer, &(ashlar_optimizer_call){.parts = ASHLAR_OPTIMIZER_SUM, .bytes = all},
            u->stream);
    case UPDATE: /* no element may be updated twice between decisions */
        return ashlar_optimizer_step_with(
            u->optimizer,
            &(ashlar_optimizer_call){.parts = ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE,
                                     .learning_rate = 1e-3,
                                     .gradient_scale = 1,
                                     .bytes = all},
            u->stream);
    default:
        return ashlar_copy(u->device, u->to, u->from, bytes / 2, u->stream);
    }
}

static ashlar_status time_round(const updates *u, work what, size_t bytes, double *ns) {
    ASHLAR_TRY(ashlar_stream_synchronize(u->device, u->stream));
    const uint64_t begin = ashlar__clock_ns();
    for (size_t i = 0; i < u->repeats; i++) {
        ASHLAR_TRY(queue(u, what, bytes));
    }
    ASHLAR_TRY(ashlar_stream_synchronize(u->device, u->stream));
    *ns = (double)(ashlar__clock_ns() - begin) / (double)u->repeats;
    return ASHLAR_OK;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Median times of a pass and of the copy beside it, behind one round that is not counted. */
static ashlar_status time_pass(const updates *u, work what, double *pass_ns, double *copy_ns) {
    double pass[ROUNDS + 1], copy[ROUNDS + 1];
    const size_t bytes = bytes_of(u, what);
    for (size_t i = 0; i <= u->rounds; i++) {
        ASHLAR_TRY(time_round(u, what, bytes, &pass[i]));
        ASHLAR_TRY(time_round(u, COPY, bytes, &copy[i]));
    }
    qsort(pass + 1, u->rounds, sizeof pass[0], compare);
    qsort(copy + 1, u->rounds, sizeof copy[0], compare);
    *pass_ns = pass[1 + u->rounds / 2];
    *copy_ns = copy[1 + u->rounds / 2];
    return ASHLAR_OK;
}

static ashlar_status add_row(const updates *u, const char *name, ashlar_dtype dtype, work what,
                             FILE *json, size_t *row_count) {
    double ns, copy_ns;
    const size_t bytes = bytes_of(u, what);
    ASHLAR_TRY(time_pass(u, what, &ns, &copy_ns));
    (void)printf("%-9s %-5s %11zu bytes %12.0f ns %8.1f GB/s, the copy %8.1f\n", name,
                 ashlar_dtype_name(dtype), bytes, ns, (double)bytes / ns, (double)bytes / copy_ns);
    for (int i = 0; i < 2; i++) {
        (void)fprintf(json,
                      "%s\n  {\"kernel\": \"%s\", \"type\": \"%s\", \"subject\": \"%s\", "
                      "\"elements\": %zu, \"bytes\": %zu, \"ns\": %.0f, \"bytes_per_s\": %.4g}",
                      (*row_count)++ > 0 ? "," : "", name, ashlar_dtype_name(dtype),
                      i == 0 ? "ashlar" : "copy", ashlar_arena_get_info(u->arena).elements, bytes,
                      i == 0 ? ns : copy_ns, 1e9 * (double)bytes / (i == 0 ? ns : copy_ns));
    }
    return ASHLAR_OK;
}

/* Each kernel; and the pass over the gradients, which is the same for all, once for each type. */
static ashlar_status add_rows(updates *u, size_t elements, FILE *json, size_t *row_count) {
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        const ashlar_dtype dtype = kernels[i].dtype;
        ASHLAR_TRY(open_arena(u, &kernels[i].config, dtype, elements));
        ASHLAR_TRY(add_row(u, kernels[i].name, dtype, UPDATE, json, row_count));
        if (kernels[i].config.kind == ASHLAR_OPTIMIZER_ADAMW) {
            ASHLAR_TRY(add_row(u, "norm", dtype, SUM, json, row_count));
        }
        close_arena(u);
    }
    return ASHLAR_OK;
}

static ashlar_status run(updates *u, bool is_smoke, FILE *json, size_t *row_count) {
    const size_t elements = (size_t)1 << (is_smoke ? 13 : 26);
    u->rounds = is_smoke ? SMOKE_ROUNDS : ROUNDS;
    u->repeats = is_smoke ? SMOKE_REPEATS : REPEATS;
    ASHLAR_TRY(ashlar_device_open("cuda", &u->device));
    ASHLAR_TRY(ashlar_stream_create(u->device, &u->stream));
    ASHLAR_TRY(ashlar_allocator_create(u->device, &u->allocator));
    return add_rows(u, elements, json, row_count);
}

static void finish(updates *u) {
    close_arena(u);
    ashlar_allocator_destroy(u->allocator);
    if (u->stream != NULL) {
        ashlar_stream_destroy(u->device, u->stream);
    }
    ashlar_device_close(u->device);
}

int probe_updates(bool is_smoke, const char *path) {
    updates u = {0};
    size_t row_count = 0;
    FILE *json = fopen(path != NULL ? path : "/dev/null", "we");
    if (json == NULL) {
        (void)printf("%s cannot be written\n", path);
        return 1;
    }
    (void)fprintf(json, "[");
    const ashlar_status status = run(&u, is_smoke, json, &row_count);
    if (status != ASHLAR_OK) {
        (void)printf("after %zu passes: %s\n", row_count / 2, ashlar_error_detail());
    }
    finish(&u);
    (void)fprintf(json, "\n]\n");
    if (fclose(json) != 0 || status != ASHLAR_OK) {
        return status == ASHLAR_ENOTSUP ? 77 : 1; /* a build without kernels */
    }
    (void)printf("%zu passes beside a copy\n", row_count / 2);
    return 0;
}
