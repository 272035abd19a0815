/* train_verify.c - runs a training's first step on a device and on the CPU, and compares. */
#include "rnn/train/train_verify.h"

#include <math.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/train/train_impl.h"

/* The devices add up thousands of products in different orders. LEAST: the least value that a
 * difference is compared with, for tensors that are nearly 0. */
#define TOLERANCE_F32 1e-3
#define TOLERANCE_F64 1e-9
#define LEAST 1e-3

ashlar_train_config ashlar__train_verify_config(const ashlar_train_config *config) {
    ashlar_train_config plain = *config;
    plain.dropout = 0;
    plain.ranks = NULL;
    plain.shards = 0;
    plain.accumulate = 1;
    plain.pads = false;
    plain.graphs = 0;
    plain.plan_file = plain.resume_file = plain.save_file = NULL;
    plain.save_every = 0;
    return plain;
}

/* Copy a tensor of a region to the host, or from there. */
static ashlar_status copy_tensor(const ashlar_trainer *t, size_t i, ashlar_region region,
                                 void *host, bool is_upload) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(t->task->arena, i, &info);
    void *there = ashlar_arena_view(t->task->arena, region, i);
    return is_upload ? ashlar_copy_to_device(t->device, there, host, info.bytes, t->stream)
                     : ashlar_copy_to_host(t->device, host, there, info.bytes, t->stream);
}

static size_t largest_tensor(const ashlar_arena *arena) {
    size_t bytes = 1;
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        bytes = info.bytes > bytes ? info.bytes : bytes;
    }
    return bytes;
}

/* Give `to` the weights of `from`. room: for the largest tensor. */
static ashlar_status copy_weights(const ashlar_trainer *from, const ashlar_trainer *to,
                                  void *room) {
    for (size_t i = 0; i < ashlar_arena_tensor_count(from->task->arena); i++) {
        ASHLAR_TRY(copy_tensor(from, i, ASHLAR_REGION_PARAMETERS, room, false));
        ASHLAR_TRY(ashlar_stream_synchronize(from->device, from->stream));
        ASHLAR_TRY(copy_tensor(to, i, ASHLAR_REGION_PARAMETERS, room, true));
        ASHLAR_TRY(ashlar_stream_synchronize(to->device, to->stream));
    }
    return ASHLAR_OK;
}

/* Draw the first batch, and compute its first part's loss and gradients. */
static ashlar_status compute(ashlar_trainer *t, double *loss) {
    const ashlar_task_table *table = t->task->table;
    const ashlar_task_batch batch = table->next(t->task, 0);
    ASHLAR_TRY(table->upload(t->task, 0, t->stream));
    ASHLAR_TRY(ashlar__train_clear_sums(t, 0, batch.parts));
    ASHLAR_TRY(table->step(t->task, 0, 0, ashlar__train_seed(t, 1), t->losses));
    ASHLAR_TRY(ashlar_copy_to_host(t->device, loss, t->losses, sizeof *loss, t->stream));
    return ashlar_stream_synchronize(t->device, t->stream);
}

static double element(const void *values, ashlar_dtype dtype, size_t i) {
    return dtype == ASHLAR_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

/* How far two tensors are apart. */
typedef struct distance {
    size_t at;   /* the element that is furthest off */
    double part; /* how far off, as a fraction of `allowed`; infinite: not finite */
    double allowed;
} distance;

static distance measure(const void *got, const void *want, const ashlar_tensor_info *info) {
    double largest = LEAST;
    distance d = {.part = -1};
    for (size_t i = 0; i < info->elements; i++) {
        largest = fmax(largest, fabs(element(want, info->dtype, i)));
    }
    d.allowed = largest * (info->dtype == ASHLAR_F64 ? TOLERANCE_F64 : TOLERANCE_F32);
    for (size_t i = 0; i < info->elements; i++) {
        const double off = fabs(element(got, info->dtype, i) - element(want, info->dtype, i));
        const double part = isfinite(off) ? off / d.allowed : INFINITY;
        if (part > d.part) {
            d.at = i;
            d.part = part;
        }
    }
    return d;
}

static ashlar_status compare_losses(double got, double want, ashlar_dtype dtype) {
    const double allowed =
        fmax(fabs(want), LEAST) * (dtype == ASHLAR_F64 ? TOLERANCE_F64 : TOLERANCE_F32);
    ASHLAR_FAIL_IF(!(fabs(got - want) < allowed), ASHLAR_EDRIVER,
                   "verify: the loss is %.9g on the device, %.9g on the CPU (allowed: %.2g)", got,
                   want, allowed);
    return ASHLAR_OK;
}

/* rooms: two, each for the largest tensor. */
static ashlar_status compare_tensor(ashlar_trainer *const both[2], void *const rooms[2], size_t i,
                                    ashlar_verification *out) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(both[0]->task->arena, i, &info);
    for (int k = 0; k < 2; k++) {
        ASHLAR_TRY(copy_tensor(both[k], i, ASHLAR_REGION_GRADIENTS, rooms[k], false));
        ASHLAR_TRY(ashlar_stream_synchronize(both[k]->device, both[k]->stream));
    }
    const distance d = measure(rooms[0], rooms[1], &info);
    ASHLAR_FAIL_IF(!(d.part < 1), ASHLAR_EDRIVER,
                   "verify: the gradient of %s, element %zu of %zu, is %.9g on the device, %.9g on "
                   "the CPU (allowed: %.2g)",
                   info.name, d.at, info.elements, element(rooms[0], info.dtype, d.at),
                   element(rooms[1], info.dtype, d.at), d.allowed);
    out->worst = fmax(out->worst, d.part);
    out->tensors++;
    return ASHLAR_OK;
}

static ashlar_status compare(ashlar_trainer *const both[2], void *const rooms[2],
                             ashlar_verification *out) {
    const ashlar_arena *arena = both[0]->task->arena;
    double losses[2];
    ASHLAR_TRY(copy_weights(both[0], both[1], rooms[0]));
    for (int k = 0; k < 2; k++) {
        ASHLAR_TRY(compute(both[k], &losses[k]));
    }
    ASHLAR_TRY(compare_losses(losses[0], losses[1], both[0]->config.dtype));
    out->loss = losses[1];
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ASHLAR_TRY(compare_tensor(both, rooms, i, out));
    }
    return ASHLAR_OK;
}

static ashlar_status compare_in_rooms(ashlar_trainer *const both[2], ashlar_verification *out) {
    const size_t bytes = largest_tensor(both[0]->task->arena);
    void *const rooms[2] = {ashlar__host_calloc(1, bytes), ashlar__host_calloc(1, bytes)};
    const ashlar_status status =
        rooms[0] == NULL || rooms[1] == NULL
            ? ashlar__fail(ASHLAR_EHOSTMEM, "verify: no host memory for a tensor of %zu bytes",
                           bytes)
            : compare(both, rooms, out);
    ashlar__host_free(rooms[0]);
    ashlar__host_free(rooms[1]);
    return status;
}

/* Create both trainers, or none. */
static ashlar_status open_both(ashlar_device *const devices[2], ashlar_task *tasks[2],
                               const ashlar_train_config *config, ashlar_trainer *both[2]) {
    both[0] = both[1] = NULL;
    ashlar_status status = ashlar__trainer_create(devices[0], tasks[0], config, &both[0]);
    if (status != ASHLAR_OK) {
        tasks[1]->table->destroy(tasks[1]);
        return status;
    }
    status = ashlar__trainer_create(devices[1], tasks[1], config, &both[1]);
    if (status != ASHLAR_OK) {
        ashlar__trainer_destroy(both[0]);
    }
    return status;
}

ashlar_status ashlar__train_verify(ashlar_device *device, ashlar_task *tasks[2],
                                   const ashlar_train_config *config, ashlar_verification *out) {
    ashlar_device *devices[2] = {device, NULL};
    ashlar_trainer *both[2];
    ashlar_verification found = {0};
    ashlar_device_info info;
    ashlar_device_get_info(device, &info);
    ashlar_status status =
        info.kind != ASHLAR_DEVICE_CUDA
            ? ashlar__fail(ASHLAR_EINVAL, "verify: the device is the CPU; there is nothing to "
                                          "compare it with: give --device cuda")
            : ashlar_device_open("soft", &devices[1]);
    if (status != ASHLAR_OK) {
        tasks[0]->table->destroy(tasks[0]);
        tasks[1]->table->destroy(tasks[1]);
        return status;
    }
    status = open_both(devices, tasks, config, both);
    if (status == ASHLAR_OK) {
        status = compare_in_rooms(both, &found);
        ashlar__trainer_destroy(both[1]);
        ashlar__trainer_destroy(both[0]);
    }
    ashlar_device_close(devices[1]);
    if (status == ASHLAR_OK) {
        *out = found;
    }
    return status;
}
