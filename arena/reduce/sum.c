/* sum.c - adds up gradients elementwise, on all cores where there are many. */
#include "arena/reduce/sum.h"

#include "allocator/base/error.h"
#include "allocator/device/device_impl.h"
#include "arena/compute/convert.h"
#include "arena/compute/workers.h"

enum { PIECE_ELEMENTS = 1 << 15 }; /* worth waking a thread for */

static void add_f32(float *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

static void add_f64(double *to, const double *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

static void add_f16(uint16_t *to, const uint16_t *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] =
            ashlar__f16_from_float(ashlar__float_from_f16(to[i]) + ashlar__float_from_f16(from[i]));
    }
}

static void add_bf16(uint16_t *to, const uint16_t *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = ashlar__bf16_from_float(ashlar__float_from_bf16(to[i]) +
                                        ashlar__float_from_bf16(from[i]));
    }
}

typedef struct work {
    ashlar_dtype dtype;
    char *to;
    const char *from;
    size_t count;
} work;

static void add_piece(void *context, size_t i) {
    const work *w = context;
    const size_t first = i * PIECE_ELEMENTS, left = w->count - first;
    const size_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
    void *to = w->to + first * ashlar_dtype_bytes(w->dtype);
    const void *from = w->from + first * ashlar_dtype_bytes(w->dtype);
    switch (w->dtype) {
    case ASHLAR_F32:
        add_f32(to, from, count);
        break;
    case ASHLAR_F64:
        add_f64(to, from, count);
        break;
    case ASHLAR_F16:
        add_f16(to, from, count);
        break;
    case ASHLAR_BF16:
    case ASHLAR_DTYPE_COUNT:
        add_bf16(to, from, count);
        break;
    }
}

void ashlar__sum_add(ashlar_dtype dtype, void *to, const void *from, size_t count) {
    work w = {dtype, to, from, count};
    ashlar__workers_run((count + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS, add_piece, &w);
}

static void run_add(void *args) {
    const work *w = args;
    ashlar__sum_add(w->dtype, w->to, w->from, w->count);
}

ashlar_status ashlar__sum_queue_add(ashlar_device *device, ashlar_dtype dtype, void *to,
                                    const void *from, size_t count, ashlar_stream stream) {
    const work w = {dtype, to, from, count};
    const size_t bytes = ashlar__operand_bytes(count, 1, ashlar_dtype_bytes(dtype));
    ASHLAR_TRY(ashlar__check_operands(
        device, "a sum",
        (const ashlar_operand[]){{"to", to, bytes, true}, {"from", from, bytes, true}, {0}}));
    return ashlar_launch(device, stream, run_add, &w, sizeof w);
}

ashlar_status ashlar__sum_add_gradients(const ashlar_arena *arena, const void *from,
                                        ashlar_stream stream) {
    ashlar_device *device = ashlar_allocator_device(ashlar_arena_allocator(arena));
    char *gradients = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    for (size_t i = 0; i < ashlar_arena_bucket_count(arena); i++) {
        ashlar_arena_bucket range;
        ashlar_arena_get_bucket(arena, i, &range);
        ASHLAR_TRY(ashlar__sum_queue_add(device, range.dtype, gradients + range.offset,
                                         (const char *)from + range.offset,
                                         range.bytes / ashlar_dtype_bytes(range.dtype), stream));
    }
    return ASHLAR_OK;
}
