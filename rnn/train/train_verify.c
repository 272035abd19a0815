/* train_verify.c - runs a training's first step on a device and on the CPU, and compares what the
 * operations have put out, the loss, and the gradients. */
#include "rnn/train/train.h"

#include <math.h>
#include <string.h>

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
    plain.graphs = false;
    plain.resume_file = plain.save_file = NULL;
    plain.save_every = 0;
    return plain;
}

/* ---- what operations put out: the step's buffers, as they are given back ---- */

enum { OUTPUTS_MAX = 64 }; /* a step has fewer; of a word's tokens the first ones are compared */

typedef struct output {
    const char *name;
    const void *there; /* on the device; NULL: given back */
    unsigned char *values;
    size_t bytes;
} output;

/* One device's side. */
typedef struct side {
    ashlar_train_config config;
    ashlar_buffer_hooks hooks;
    ashlar_trainer *trainer;
    double loss;
    output outputs[OUTPUTS_MAX];
    size_t count;
} side;

static ashlar_status take_output(void *context, const ashlar_buffer_request *request,
                                 ashlar_allocator *allocator, ashlar_stream stream, void **out) {
    side *s = context;
    ASHLAR_TRY(ashlar_alloc_tagged(allocator, request->bytes, request->tag, stream, out));
    if (request->tag == ASHLAR_TAG_ACTIVATIONS && s->count < OUTPUTS_MAX) {
        s->outputs[s->count++] =
            (output){.name = request->name, .there = *out, .bytes = request->bytes};
    }
    return ASHLAR_OK;
}

static ashlar_status keep(const side *s, output *o) {
    const ashlar_trainer *t = s->trainer;
    const void *there = o->there;
    o->there = NULL;
    ASHLAR_HOST_NEW(o->values, o->bytes, "verify: no host memory for the %s", o->name);
    ASHLAR_TRY(ashlar_copy_to_host(t->device, o->values, there, o->bytes, t->stream));
    return ashlar_stream_synchronize(t->device, t->stream);
}

static ashlar_status give_output(void *context, ashlar_allocator *allocator, void *ptr) {
    side *s = context;
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < s->count && status == ASHLAR_OK; i++) {
        status = s->outputs[i].there == ptr ? keep(s, &s->outputs[i]) : ASHLAR_OK;
    }
    const ashlar_status given = ashlar_free(allocator, ptr);
    return status == ASHLAR_OK ? given : status;
}

static void drop_outputs(side *s) {
    while (s->count > 0) {
        ashlar__host_free(s->outputs[--s->count].values);
    }
}

/* ---- one device's step ---- */

/* Copy a region of the arena to the host, or from there. */
static ashlar_status copy_region(const side *s, ashlar_region region, void *host, bool is_upload) {
    const ashlar_trainer *t = s->trainer;
    void *there = ashlar_arena_region(t->task->arena, region);
    const size_t bytes = ashlar_arena_region_bytes(t->task->arena, region);
    ASHLAR_TRY(is_upload ? ashlar_copy_to_device(t->device, there, host, bytes, t->stream)
                         : ashlar_copy_to_host(t->device, host, there, bytes, t->stream));
    return ashlar_stream_synchronize(t->device, t->stream);
}

/* Draw the first batch, and compute its first part's loss and gradients. */
static ashlar_status compute(side *s) {
    ashlar_trainer *t = s->trainer;
    const ashlar_task_table *table = t->task->table;
    const ashlar_task_batch batch = table->next(t->task, 0);
    ASHLAR_TRY(table->upload(t->task, 0, t->stream));
    ASHLAR_TRY(ashlar__train_clear_sums(t, 0, batch.parts));
    ASHLAR_TRY(table->step(t->task, 0, 0, ashlar__train_seed(t, 1), t->losses));
    ASHLAR_TRY(ashlar_copy_to_host(t->device, &s->loss, t->losses, sizeof s->loss, t->stream));
    return ashlar_stream_synchronize(t->device, t->stream);
}

static double element(const void *values, ashlar_dtype dtype, size_t i) {
    return dtype == ASHLAR_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

/* ---- comparing ---- */

/* How far two tensors are apart. */
typedef struct distance {
    size_t at;   /* the element that is furthest off */
    double part; /* how far off, as a fraction of `allowed`; infinite: not finite */
    double allowed;
} distance;

/* `has_padding`: where `want` is 0, which padding is, `got` may be anything. */
static distance measure(const void *got, const void *want, ashlar_dtype dtype, size_t count,
                        bool has_padding) {
    double largest = LEAST;
    distance d = {.part = -1};
    for (size_t i = 0; i < count; i++) {
        const double size = fabs(element(want, dtype, i));
        largest = size > largest ? size : largest; /* GCC 12 for ARM stumbles over fmax() here */
    }
    d.allowed = largest * (dtype == ASHLAR_F64 ? TOLERANCE_F64 : TOLERANCE_F32);
    for (size_t i = 0; i < count; i++) {
        if (has_padding && element(want, dtype, i) == 0) {
            continue;
        }
        const double off = fabs(element(got, dtype, i) - element(want, dtype, i));
        const double part = isfinite(off) ? off / d.allowed : INFINITY;
        if (part > d.part) {
            d.at = i;
            d.part = part;
        }
    }
    return d;
}

/* What is compared: "the gradient of %s" and so on, in the error's detail. */
static ashlar_status compare_values(const char *what, const char *name, const void *const values[2],
                                    ashlar_dtype dtype, size_t count, bool has_padding,
                                    ashlar_verification *out) {
    const distance d = measure(values[0], values[1], dtype, count, has_padding);
    ASHLAR_FAIL_IF(!(d.part < 1), ASHLAR_EDRIVER,
                   "verify: the %s%s, element %zu of %zu, is %.9g on the device, %.9g on the CPU "
                   "(allowed: %.2g)",
                   what, name, d.at, count, element(values[0], dtype, d.at),
                   element(values[1], dtype, d.at), d.allowed);
    out->worst = fmax(out->worst, d.part);
    return ASHLAR_OK;
}

/* In the order in which the step took them. A device may have further buffers of its own. */
static ashlar_status compare_outputs(const side sides[2], ashlar_verification *out) {
    const ashlar_dtype dtype = sides[0].config.dtype;
    for (size_t i = 0, k = 0; i < sides[0].count; i++) {
        const output *got = &sides[0].outputs[i], *want = &sides[1].outputs[k];
        if (k == sides[1].count || strcmp(got->name, want->name) != 0) {
            continue;
        }
        const void *const values[2] = {got->values, want->values};
        ASHLAR_TRY(compare_values("", got->name, values, dtype,
                                  got->bytes / ashlar_dtype_bytes(dtype), true, out));
        out->outputs++;
        k++;
    }
    return ASHLAR_OK;
}

static ashlar_status compare_losses(double got, double want, ashlar_dtype dtype) {
    const double allowed =
        fmax(fabs(want), LEAST) * (dtype == ASHLAR_F64 ? TOLERANCE_F64 : TOLERANCE_F32);
    ASHLAR_FAIL_IF(!(fabs(got - want) < allowed), ASHLAR_EDRIVER,
                   "verify: the loss is %.9g on the device, %.9g on the CPU (allowed: %.2g)", got,
                   want, allowed);
    return ASHLAR_OK;
}

/* gradients: both sides' regions, which are laid out alike. */
static ashlar_status compare_gradients(const ashlar_arena *arena, void *const gradients[2],
                                       ashlar_verification *out) {
    const char *const region = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        const char *const view = ashlar_arena_view(arena, ASHLAR_REGION_GRADIENTS, i);
        const void *const values[2] = {(char *)gradients[0] + (view - region),
                                       (char *)gradients[1] + (view - region)};
        ASHLAR_TRY(compare_values("gradient of ", info.name, values, info.dtype, info.elements,
                                  false, out));
        out->tensors++;
    }
    return ASHLAR_OK;
}

/* rooms: two, each for a region. */
static ashlar_status compare(side sides[2], void *const rooms[2], ashlar_verification *out) {
    ASHLAR_TRY(copy_region(&sides[0], ASHLAR_REGION_PARAMETERS, rooms[0], false));
    ASHLAR_TRY(copy_region(&sides[1], ASHLAR_REGION_PARAMETERS, rooms[0], true));
    for (int k = 0; k < 2; k++) {
        ASHLAR_TRY(compute(&sides[k]));
        ASHLAR_TRY(copy_region(&sides[k], ASHLAR_REGION_GRADIENTS, rooms[k], false));
    }
    ASHLAR_TRY(compare_outputs(sides, out));
    ASHLAR_TRY(compare_losses(sides[0].loss, sides[1].loss, sides[0].config.dtype));
    out->loss = sides[1].loss;
    return compare_gradients(sides[0].trainer->task->arena, rooms, out);
}

static ashlar_status compare_in_rooms(side sides[2], ashlar_verification *out) {
    const size_t bytes =
        ashlar_arena_region_bytes(sides[0].trainer->task->arena, ASHLAR_REGION_PARAMETERS);
    void *const rooms[2] = {ashlar__host_calloc(1, bytes), ashlar__host_calloc(1, bytes)};
    const ashlar_status status =
        rooms[0] == NULL || rooms[1] == NULL
            ? ashlar__fail(ASHLAR_EHOSTMEM, "verify: no host memory for %zu bytes of weights",
                           bytes)
            : compare(sides, rooms, out);
    ashlar__host_free(rooms[0]);
    ashlar__host_free(rooms[1]);
    return status;
}

/* Create both trainers, or none. */
static ashlar_status open_both(ashlar_device *const devices[2], ashlar_task *tasks[2],
                               const ashlar_train_config *config, side sides[2]) {
    for (int k = 0; k < 2; k++) {
        sides[k].hooks =
            (ashlar_buffer_hooks){.take = take_output, .give = give_output, .context = &sides[k]};
        sides[k].config = *config;
        sides[k].config.hooks = &sides[k].hooks;
    }
    ashlar_status status =
        ashlar__trainer_create(devices[0], tasks[0], &sides[0].config, &sides[0].trainer);
    if (status != ASHLAR_OK) {
        tasks[1]->table->destroy(tasks[1]);
        return status;
    }
    status = ashlar__trainer_create(devices[1], tasks[1], &sides[1].config, &sides[1].trainer);
    if (status != ASHLAR_OK) {
        ashlar__trainer_destroy(sides[0].trainer);
    }
    return status;
}

ashlar_status ashlar__train_verify(ashlar_device *device, ashlar_task *tasks[2],
                                   const ashlar_train_config *config, ashlar_verification *out) {
    ashlar_device *devices[2] = {device, NULL};
    side sides[2] = {0};
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
    status = open_both(devices, tasks, config, sides);
    if (status == ASHLAR_OK) {
        status = compare_in_rooms(sides, &found);
        ashlar__trainer_destroy(sides[1].trainer);
        ashlar__trainer_destroy(sides[0].trainer);
        drop_outputs(&sides[0]);
        drop_outputs(&sides[1]);
    }
    ashlar_device_close(devices[1]);
    if (status == ASHLAR_OK) {
        *out = found;
    }
    return status;
}
