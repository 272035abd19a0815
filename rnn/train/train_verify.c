/* train_verify.c - computes a training's first step on a device and on the CPU, and compares the
 * loss and the gradients. */
#include <math.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/train/train_impl.h"

/* The devices add up thousands of products in different orders. LEAST: the least value that a
 * difference is compared with, for tensors that are nearly 0. */
#define TOLERANCE_F32 1e-3
#define TOLERANCE_F64 1e-9
#define LEAST 1e-3

static double tolerance(ashlar_dtype dtype) {
    return dtype == ASHLAR_F64 ? TOLERANCE_F64 : TOLERANCE_F32;
}

static double element(const void *values, ashlar_dtype dtype, size_t i) {
    return dtype == ASHLAR_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

/* Copy a region of the arena to the host, or from there. */
static ashlar_status copy_region(const ashlar_trainer *t, ashlar_region region, void *host,
                                 bool is_upload) {
    void *there = ashlar_arena_region(t->arena, region);
    const size_t bytes = ashlar_arena_get_info(t->arena).region_bytes[region];
    ASHLAR_TRY(is_upload ? ashlar_copy_to_device(t->device, there, host, bytes, t->stream)
                         : ashlar_copy_to_host(t->device, host, there, bytes, t->stream));
    return ashlar_stream_synchronize(t->device, t->stream);
}

/* Draw the first batch, and compute its first part's loss and gradients. */
static ashlar_status compute(ashlar_trainer *t, double *loss) {
    const size_t parts = ashlar__batches_next(&t->batches, 0)->parts;
    ASHLAR_TRY(ashlar__batches_upload(&t->batches, t->device, 0, t->stream));
    ASHLAR_TRY(ashlar__train_clear_sums(t, 0, parts));
    ASHLAR_TRY(ashlar__train_walk(t, 0, 0, ashlar__train_seed(t, 1), t->losses));
    ASHLAR_TRY(ashlar_copy_to_host(t->device, loss, t->losses, sizeof *loss, t->stream));
    return ashlar_stream_synchronize(t->device, t->stream);
}

static ashlar_status compare_tensor(const ashlar_tensor_info *info, const void *got,
                                    const void *want, ashlar_verification *out) {
    double largest = LEAST, worst = -1;
    size_t at = 0;
    for (size_t i = 0; i < info->elements; i++) {
        const double size = fabs(element(want, info->dtype, i));
        largest = size > largest ? size : largest; /* GCC 12 for ARM stumbles over fmax() here */
    }
    const double allowed = largest * tolerance(info->dtype);
    for (size_t i = 0; i < info->elements; i++) {
        const double off = fabs(element(got, info->dtype, i) - element(want, info->dtype, i));
        const double part = isfinite(off) ? off / allowed : INFINITY;
        at = part > worst ? i : at;
        worst = part > worst ? part : worst;
    }
    ASHLAR_FAIL_IF(!(worst < 1), ASHLAR_EDRIVER,
                   "verify: the gradient of %s, element %zu of %zu, is %.9g on the device, %.9g on "
                   "the CPU (allowed: %.2g)",
                   info->name, at, info->elements, element(got, info->dtype, at),
                   element(want, info->dtype, at), allowed);
    out->worst = fmax(out->worst, worst);
    out->tensors++;
    return ASHLAR_OK;
}

/* The trainer of the device, then that of the CPU; the gradients of both go to rooms. */
static ashlar_status compare(ashlar_trainer *const t[2], char *const rooms[2],
                             ashlar_verification *out) {
    const ashlar_arena *arena = t[0]->arena;
    const char *const region = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    double losses[2];
    ASHLAR_TRY(copy_region(t[0], ASHLAR_REGION_PARAMETERS, rooms[0], false));
    ASHLAR_TRY(copy_region(t[1], ASHLAR_REGION_PARAMETERS, rooms[0], true));
    for (int k = 0; k < 2; k++) {
        ASHLAR_TRY(compute(t[k], &losses[k]));
        ASHLAR_TRY(copy_region(t[k], ASHLAR_REGION_GRADIENTS, rooms[k], false));
    }
    const double allowed = fmax(fabs(losses[1]), LEAST) * tolerance(t[0]->config.dtype);
    ASHLAR_FAIL_IF(!(fabs(losses[0] - losses[1]) < allowed), ASHLAR_EDRIVER,
                   "verify: the loss is %.9g on the device, %.9g on the CPU (allowed: %.2g)",
                   losses[0], losses[1], allowed);
    out->loss = losses[1];
    for (size_t i = 0; i < ashlar_arena_get_info(arena).tensor_count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        const char *view = ashlar_arena_view(arena, ASHLAR_REGION_GRADIENTS, i);
        ASHLAR_TRY(
            compare_tensor(&info, rooms[0] + (view - region), rooms[1] + (view - region), out));
    }
    return ASHLAR_OK;
}

/* With trainers and rooms that the caller frees, whatever becomes of it. The training has nothing
 * that differs between devices, and nothing is read or written. */
static ashlar_status verify(ashlar_device *const devices[2], const ashlar_corpus *corpus,
                            ashlar_train_config config, ashlar_trainer *trainers[2], char *rooms[2],
                            ashlar_verification *out) {
    config.dropout = 0;
    config.ranks = NULL;
    config.shards = 0;
    config.accumulate = 1;
    config.pads = config.graphs = false;
    config.resume_file = config.save_file = NULL;
    config.save_every = 0;
    for (int k = 0; k < 2; k++) {
        ASHLAR_TRY(ashlar__trainer_create(devices[k], corpus, &config, &trainers[k]));
        const size_t bytes =
            ashlar_arena_get_info(trainers[k]->arena).region_bytes[ASHLAR_REGION_PARAMETERS];
        ASHLAR_HOST_NEW(rooms[k], bytes, "verify: no host memory for %zu bytes of weights", bytes);
    }
    return compare(trainers, rooms, out);
}

ashlar_status ashlar__train_verify(ashlar_device *device, const ashlar_corpus *corpus,
                                   const ashlar_train_config *config, ashlar_verification *out) {
    ashlar_device *devices[2] = {device, NULL};
    ashlar_trainer *trainers[2] = {NULL, NULL};
    char *rooms[2] = {NULL, NULL};
    ashlar_verification found = {0};
    const ashlar_device_info info = ashlar_device_get_info(device);
    ASHLAR_FAIL_IF(info.kind != ASHLAR_DEVICE_CUDA, ASHLAR_EINVAL,
                   "verify: the device is the CPU; there is nothing to compare it with: give "
                   "--device cuda");
    ASHLAR_TRY(ashlar_device_open("soft", &devices[1]));
    const ashlar_status status = verify(devices, corpus, *config, trainers, rooms, &found);
    for (int k = 0; k < 2; k++) {
        ashlar__host_free(rooms[k]);
        ashlar__trainer_destroy(trainers[k]);
    }
    ashlar_device_close(devices[1]);
    if (status == ASHLAR_OK) {
        *out = found;
    }
    return status;
}
