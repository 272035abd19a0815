/* init.c - draws a model's initial weights on the host, and copies them to the device. */
#include <ashlar/model.h>

#include <math.h>

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "arena/compute/convert.h"
#include "arena/layout/arena_impl.h"

static size_t tensors_of(const ashlar_part *part) {
    size_t count = 0;
    if (part->kind != ASHLAR_PART_RNN) {
        return part->kind == ASHLAR_PART_LINEAR ? 2 : 1;
    }
    for (size_t p = 0; p < part->layout->pseudo_layers; p++) {
        for (int tensor = 0; tensor < ASHLAR_RNN_TENSOR_COUNT; tensor++) {
            count += ashlar_rnn_layout_view(part->layout, p, (ashlar_rnn_tensor)tensor).rows > 0;
        }
    }
    return count;
}

static bool is_linear(const ashlar_arena_entry *tensors, const ashlar_part *part) {
    const ashlar_tensor_info *weight = &tensors[0].info, *bias = &tensors[1].info;
    return weight->rank == 2 &&
           (part->kind != ASHLAR_PART_LINEAR || (bias->rank == 1 && bias->dtype == weight->dtype &&
                                                 bias->shape[0] == weight->shape[0]));
}

static bool is_stack(const ashlar_arena_entry *tensors, size_t count,
                     const ashlar_rnn_layout *layout) {
    size_t elements = 0;
    for (size_t i = 0; i < count; i++) {
        elements += tensors[i].group == tensors[0].group ? tensors[i].info.elements : 0;
    }
    return elements == layout->elements && tensors[0].info.dtype == layout->config.dtype;
}

static ashlar_status check_part(const ashlar_arena *arena, const ashlar_part *part, size_t number) {
    ASHLAR_FAIL_IF((unsigned)part->kind >= ASHLAR_PART_KIND_COUNT, ASHLAR_EINVAL,
                   "ashlar_init_weights: part %zu is of no known kind", number);
    ASHLAR_FAIL_IF(part->kind == ASHLAR_PART_RNN && part->layout == NULL, ASHLAR_EINVAL,
                   "ashlar_init_weights: part %zu is a stack, and its layout is NULL", number);
    const size_t count = tensors_of(part);
    ASHLAR_FAIL_IF(
        part->first >= arena->tensor_count || count > arena->tensor_count - part->first,
        ASHLAR_EINVAL,
        "ashlar_init_weights: part %zu begins with tensor %zu and has %zu; the arena has "
        "%zu",
        number, part->first, count, arena->tensor_count);
    const ashlar_arena_entry *tensors = &arena->tensors[part->first];
    ASHLAR_FAIL_IF(!(part->kind == ASHLAR_PART_RNN ? is_stack(tensors, count, part->layout)
                                                   : is_linear(tensors, part)),
                   ASHLAR_EINVAL,
                   "ashlar_init_weights: part %zu begins with tensor %zu, %s, and the shapes from "
                   "there on are not those of its kind",
                   number, part->first, tensors->name);
    return ASHLAR_OK;
}

/* Add `value` to an element of any type. */
static void add(ashlar_dtype dtype, char *values, size_t element, double value) {
    char *place = values + element * ashlar_dtype_bytes(dtype);
    double sum = 0;
    ashlar__convert(ASHLAR_F64, &sum, dtype, place, 1);
    sum += value;
    ashlar__convert(dtype, place, ASHLAR_F64, &sum, 1);
}

/* Draw from a normal distribution of standard deviation 1, by the method of Box and Muller. */
static double draw_normal(ashlar_random *random) {
    static const double turn = 6.283185307179586;
    const double radius = sqrt(-2 * log(1 - ashlar__random_uniform(random)));
    return radius * cos(turn * ashlar__random_uniform(random));
}

/* Add 1 to each LSTM forget gate's bias: to bW or, without one, to bR. Gates are in the order
 * i f g o. */
static void raise_forget_bias(const ashlar_rnn_layout *layout, char *values) {
    const size_t hidden = layout->config.hidden;
    for (size_t p = 0; p < layout->pseudo_layers && layout->config.cell == ASHLAR_RNN_LSTM; p++) {
        ashlar_rnn_view bias = ashlar_rnn_layout_view(layout, p, ASHLAR_RNN_BW);
        bias = bias.rows > 0 ? bias : ashlar_rnn_layout_view(layout, p, ASHLAR_RNN_BR);
        for (size_t j = hidden; j < 2 * hidden && bias.rows > 0; j++) {
            add(layout->config.dtype, values, bias.offset + j, 1);
        }
    }
}

/* Draw the values of a part's tensors into `values`, all 0 before, in the arena's layout. */
static void draw_values(const ashlar_arena *arena, ashlar_init_rule rule, const ashlar_part *part,
                        ashlar_random *random, char *values) {
    const ashlar_arena_entry *tensors = &arena->tensors[part->first];
    const size_t start = tensors->info.offset[ASHLAR_LAYOUT_STORAGE], count = tensors_of(part);
    const bool is_table = part->kind == ASHLAR_PART_EMBEDDING;
    const bool is_normal = is_table && rule == ASHLAR_INIT_PYTORCH;
    const size_t width =
        part->kind == ASHLAR_PART_RNN ? part->layout->config.hidden : tensors->info.shape[1];
    const double bound = is_table ? sqrt(3.0) : 1.0 / sqrt((double)width);
    for (size_t i = 0; i < count; i++) {
        const ashlar_tensor_info *info = &tensors[i].info;
        char *own = values + (info->offset[ASHLAR_LAYOUT_STORAGE] - start);
        for (size_t j = 0; j < info->elements; j++) {
            add(info->dtype, own, j,
                is_normal ? draw_normal(random) : bound * (2 * ashlar__random_uniform(random) - 1));
        }
    }
    if (part->kind == ASHLAR_PART_RNN && rule == ASHLAR_INIT_ASHLAR) {
        raise_forget_bias(part->layout, values);
    }
}

/* Draw a part's values, and copy its range of the arena at once: the padding between tensors is
 * copied, too, as zeros. */
static ashlar_status draw_part(const ashlar_arena *arena, ashlar_init_rule rule,
                               const ashlar_part *part, ashlar_random *random,
                               ashlar_stream stream) {
    const ashlar_arena_entry *tensors = &arena->tensors[part->first];
    const size_t start = tensors->info.offset[ASHLAR_LAYOUT_STORAGE];
    size_t bytes = 0;
    for (size_t i = 0; i < tensors_of(part); i++) {
        const ashlar_tensor_info *info = &tensors[i].info;
        const size_t end = info->offset[ASHLAR_LAYOUT_STORAGE] - start + info->bytes;
        bytes = end > bytes ? end : bytes;
    }
    char *values;
    ASHLAR_HOST_NEW(values, bytes, "no host memory for %zu bytes of weights", bytes);
    draw_values(arena, rule, part, random, values);
    const ashlar_status status = ashlar_copy_to_device(
        ashlar_allocator_device(arena->allocator),
        (char *)arena->regions[ASHLAR_REGION_PARAMETERS] + start, values, bytes, stream);
    ashlar__host_free(values);
    return status;
}

ashlar_status ashlar_init_weights(ashlar_arena *arena, ashlar_init_rule rule,
                                  const ashlar_part *parts, size_t count, uint64_t seed,
                                  ashlar_stream stream) {
    ashlar_random random;
    ASHLAR_FAIL_IF(arena->regions[ASHLAR_REGION_PARAMETERS] == NULL, ASHLAR_EINVAL,
                   "ashlar_init_weights: the arena is not committed");
    ASHLAR_FAIL_IF((unsigned)rule >= ASHLAR_INIT_RULE_COUNT, ASHLAR_EINVAL,
                   "ashlar_init_weights: %d is no rule", (int)rule);
    for (size_t i = 0; i < count; i++) {
        ASHLAR_TRY(check_part(arena, &parts[i], i));
    }
    ashlar__random_init(&random, seed);
    for (size_t i = 0; i < count; i++) {
        ASHLAR_TRY(draw_part(arena, rule, &parts[i], &random, stream));
    }
    return ASHLAR_OK;
}
