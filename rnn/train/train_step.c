/* train_step.c - the walks of a step over the model: training, dry runs, and what they need. */
#include "rnn/train/train_impl.h"

#include "allocator/base/error.h"
#include "allocator/base/random.h"

/* The difference between the dropout seeds of neighbouring micro-batches, which must drop different
 * outputs. Odd, like those between steps and parts. */
static const uint64_t MICRO_STRIDE = UINT64_C(0xa0761d6478bd642f);

ashlar_status ashlar__train_clear_sums(ashlar_trainer *t, size_t part, size_t parts) {
    ASHLAR_TRY(
        part > 0 ? ASHLAR_OK
                 : ashlar_fill(t->device, t->votes, 0, (1 + parts) * sizeof *t->losses, t->stream));
    return ashlar_arena_zero(t->arena, ASHLAR_REGION_GRADIENTS, t->stream);
}

uint64_t ashlar__trainer_key(const ashlar_trainer *t, size_t length) {
    return ashlar_warmup_key(&t->warmup, length);
}

ashlar_status ashlar__train_begin_part(ashlar_trainer *t, size_t buffer, size_t part) {
    const size_t length = ashlar__batches_length(&t->batches, buffer, part);
    return ashlar_step_begin(t->allocator, t->stream, ashlar__trainer_key(t, length));
}

static void add_address(ashlar_trainer *t, const void *address) {
    t->address_sum = ashlar__random_mix(t->address_sum + (uintptr_t)address);
}

ashlar_status ashlar__train_walk(ashlar_trainer *t, size_t buffer, size_t part, uint64_t seed,
                                 double *loss) {
    const ashlar_batches *b = &t->batches;
    const ashlar_step_values *values = t->values[buffer];
    for (size_t piece = 0; piece < b->split.pieces; piece++) {
        void *address = NULL;
        ashlar_batch_part p;
        ashlar__batches_get(b, buffer, t->shard * b->split.pieces + piece, part, &p);
        p.batch.loss = loss;
        p.batch.scale = ashlar_optimizer_loss_scale_address(t->optimizer);
        p.batch.seed = seed + piece * MICRO_STRIDE;
        p.batch.seed_at = values == NULL ? NULL : &values->seed;
        p.batch.weight_at = values == NULL || p.batch.weight == 0 ? NULL : &values->weights[part];
        p.batch.sequence_first = t->drops_alone ? 0 : b->shards.first + t->shard;
        p.batch.sequence_stride = t->drops_alone ? 0 : b->shards.all;
        p.batch.address = &address;
        ASHLAR_TRY(ashlar_model_run(t->model, ASHLAR_WALK_TRAIN, &p.batch, t->stream));
        add_address(t, address);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__train_take_blocks(ashlar_trainer *t, ashlar_walk walk, size_t length) {
    const ashlar_model_batch shape = ashlar__batches_shape(&t->batches, length);
    for (size_t micro = 0; micro < t->batches.micro; micro++) {
        void *address;
        ASHLAR_TRY(ashlar_model_dry_run(t->model, walk, &shape, t->stream, &address));
        add_address(t, address);
    }
    return ASHLAR_OK;
}

/* A step takes the blocks of its training walks; a step of the held-out text the same, and then
 * those of its own walks. So one dry run is that of both. */
ashlar_status ashlar__train_dry_run(void *user, size_t length) {
    ashlar_trainer *t = user;
    ASHLAR_TRY(ashlar__train_take_blocks(t, ASHLAR_WALK_TRAIN, length));
    return t->config.held_out > 0 ? ashlar__train_take_blocks(t, ASHLAR_WALK_TEST, length)
                                  : ASHLAR_OK;
}

/* ---- what a step needs ---- */

/* Bytes of the longest part's block, if batches were split otherwise. */
static ashlar_status bytes_of(const ashlar_trainer *t, size_t length, size_t count, size_t chunk,
                              uint64_t *bytes) {
    ashlar_model_batch shape = ashlar__batches_shape(&t->batches, length);
    ashlar_model_need need;
    shape.batch = count;
    shape.chunk = chunk;
    ASHLAR_TRY(ashlar_model_get_need(t->model, ASHLAR_WALK_TRAIN, &shape, &need));
    *bytes = need.plan_bytes;
    return ASHLAR_OK;
}

ashlar_status ashlar__train_block_bytes(const ashlar_trainer *t, size_t length, uint64_t *bytes) {
    return bytes_of(t, length, t->batches.count, t->batches.chunk, bytes);
}

ashlar_status ashlar__train_get_savings(const ashlar_trainer *t, ashlar_train_report *out) {
    const ashlar_batches *b = &t->batches;
    const size_t pieces = b->split.pieces, part = b->max_part_length;
    const ashlar_train_saving options[] = {{"accumulate", pieces == 1 ? 0 : pieces, 0},
                                           {"bptt", b->split.part, 0},
                                           {"recompute", b->chunk, 0}};
    ASHLAR_TRY(bytes_of(t, part, b->count, b->chunk, &out->step_bytes));
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i].value != 0) {
            ashlar_train_saving *s = &out->savings[out->savings_count++];
            *s = options[i];
            ASHLAR_TRY(bytes_of(t, i == 1 ? b->max_length : part,
                                i == 0 ? b->count * pieces : b->count, i == 2 ? 0 : b->chunk,
                                &s->bytes));
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__trainer_list_buffers(ashlar_trainer *t, ashlar_model_buffer *out,
                                           size_t capacity, ashlar_train_picture *picture) {
    const ashlar_model_batch shape = ashlar__batches_shape(&t->batches, t->longest_part);
    ashlar_model_need test;
    ASHLAR_TRY(ashlar_model_get_need(t->model, ASHLAR_WALK_TRAIN, &shape, &picture->need));
    ASHLAR_TRY(ashlar_model_get_need(t->model, ASHLAR_WALK_TEST, &shape, &test));
    picture->forward_phases = test.phases;
    return ashlar_model_list_buffers(t->model, ASHLAR_WALK_TRAIN, &shape, out, capacity,
                                     &picture->count);
}
