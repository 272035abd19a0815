/* state_shards.c - a divided optimizer: sends each rank's updated parameters to all, gathers the
 * ranks' moments for a file, and divides those of a file. */
#include "rnn/train/state_shards.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/optimizer/optimizer_part.h"
#include "rnn/train/train_impl.h"

enum { STAGING_BYTES = 1 << 20 };

bool ashlar__state_shards_are_used(const ashlar_train_config *c) {
    return c->shards_state && c->ranks != NULL && ashlar_ranks_count(c->ranks) > 1;
}

unsigned ashlar__state_shards_regions(const ashlar_train_config *c) {
    const unsigned all = ashlar_optimizer_regions(&c->optimizer);
    return ashlar__state_shards_are_used(c) ? ashlar__optimizer_part_regions(all) : all;
}

ashlar_status ashlar__state_shards_open(ashlar_trainer *t) {
    const ashlar_train_config *c = &t->config;
    if (!ashlar__state_shards_are_used(c)) {
        return ashlar_optimizer_create(t->task->arena, &c->optimizer, t->stream, &t->optimizer);
    }
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, STAGING_BYTES, ASHLAR_TAG_WORKSPACE, t->stream,
                                   &t->staging));
    return ashlar__optimizer_create_part(t->task->arena, &c->optimizer, ashlar_ranks_rank(c->ranks),
                                         ashlar_ranks_count(c->ranks), t->stream, &t->optimizer);
}

void ashlar__state_shards_close(ashlar_trainer *t) {
    if (t->staging != NULL) { /* cannot fail: this allocator gave the block */
        ASHLAR_IGNORE(ashlar_free(t->allocator, t->staging));
    }
    t->staging = NULL;
}

/* ---- a step ---- */

static size_t greater(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Send what rank `root` has of one bucket, whose elements are all of one type. */
static ashlar_status send_bucket(const ashlar_trainer *t, size_t root,
                                 const ashlar_optimizer_part *part,
                                 const ashlar_arena_bucket *bucket) {
    const ashlar_collectives *c = t->sums.collectives;
    const size_t from = greater(part->begin, bucket->offset);
    const size_t to = smaller(part->end, bucket->offset + bucket->bytes);
    char *parameters = ashlar_arena_region(t->task->arena, ASHLAR_REGION_PARAMETERS);
    return from >= to ? ASHLAR_OK
                      : c->broadcast(c->context, parameters + from,
                                     (to - from) / ashlar_dtype_bytes(bucket->dtype), bucket->dtype,
                                     root, t->stream);
}

static ashlar_status send_parameters(const ashlar_trainer *t) {
    const ashlar_arena *arena = t->task->arena;
    const size_t ranks = ashlar_ranks_count(t->config.ranks);
    for (size_t root = 0; root < ranks; root++) {
        const ashlar_optimizer_part part = ashlar__optimizer_part_bounds(t->optimizer, root, ranks);
        for (size_t i = 0; i < ashlar_arena_bucket_count(arena); i++) {
            ashlar_arena_bucket bucket;
            ashlar_arena_get_bucket(arena, i, &bucket);
            ASHLAR_TRY(send_bucket(t, root, &part, &bucket));
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__state_shards_step(ashlar_trainer *t, double learning_rate) {
    const ashlar_collectives *c = t->sums.collectives;
    double *sums;
    size_t count;
    ASHLAR_TRY(ashlar__optimizer_part_squares(t->optimizer, t->stream, &sums, &count));
    ASHLAR_TRY(c->all_reduce(c->context, sums, count, ASHLAR_F64, t->stream));
    ASHLAR_TRY(ashlar__optimizer_part_update(t->optimizer, learning_rate, 1, t->stream));
    return send_parameters(t);
}

/* ---- moments and masters ---- */

/* Bring a piece of rank `root`'s moments into every rank's staging block, and from there to `to`,
 * unless that is NULL. It is sent as F32, four bytes to an element, whatever its type. */
static ashlar_status collect_piece(const ashlar_trainer *t, size_t root, const char *from,
                                   size_t bytes, char *to) {
    const ashlar_collectives *c = t->sums.collectives;
    if (from != NULL) {
        ASHLAR_TRY(ashlar_copy(t->device, t->staging, from, bytes, t->stream));
    }
    ASHLAR_TRY(
        c->broadcast(c->context, t->staging, bytes / sizeof(float), ASHLAR_F32, root, t->stream));
    if (to != NULL) {
        ASHLAR_TRY(ashlar_copy_to_host(t->device, to, t->staging, bytes, t->stream));
    }
    return ashlar_stream_synchronize(t->device, t->stream);
}

/* Gather a region from the parts of all ranks into `image`; NULL: this rank only lends its part. */
static ashlar_status collect(const ashlar_trainer *t, size_t state, char *image) {
    const size_t ranks = ashlar_ranks_count(t->config.ranks);
    const char *own = ashlar__optimizer_part_of(t->optimizer)->states[state].data;
    for (size_t root = 0; root < ranks; root++) {
        const ashlar_part_state part =
            ashlar__optimizer_part_bounds(t->optimizer, root, ranks).states[state];
        const char *from = root == ashlar_ranks_rank(t->config.ranks) ? own : NULL;
        for (size_t at = part.begin; at < part.end; at += STAGING_BYTES) {
            ASHLAR_TRY(collect_piece(t, root, from == NULL ? NULL : from + (at - part.begin),
                                     smaller(STAGING_BYTES, part.end - at),
                                     image == NULL ? NULL : image + at));
        }
    }
    return ashlar_ranks_check(t->config.ranks);
}

/* The region of state `i`, if the optimizer has it and it has bytes. */
static bool is_needed(const ashlar_trainer *t, size_t i, ashlar_region *region) {
    *region = ashlar__optimizer_part_of(t->optimizer)->states[i].region;
    return (ashlar_optimizer_regions(&t->config.optimizer) & ASHLAR_REGION_BIT(*region)) != 0 &&
           ashlar_arena_region_bytes(t->task->arena, *region) > 0;
}

/* Take host memory, filled with 0, for the regions that the arena lacks. */
static ashlar_status take_images(const ashlar_trainer *t, ashlar_checkpoint_images *images) {
    for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
        ashlar_region region;
        if (is_needed(t, i, &region)) {
            const size_t bytes = ashlar_arena_region_bytes(t->task->arena, region);
            ASHLAR_HOST_NEW(images->of[region], bytes, "no host memory for the %zu bytes of %s",
                            bytes, ashlar_region_text(region));
        }
    }
    return ASHLAR_OK;
}

static void give_images(ashlar_checkpoint_images *images) {
    for (size_t i = 0; i < ASHLAR_REGION_COUNT; i++) {
        ashlar__host_free(images->of[i]);
    }
}

/* This rank takes part even if it had no memory for images: the others need its part. */
static ashlar_status collect_all(const ashlar_trainer *t, const ashlar_checkpoint_images *images) {
    for (size_t i = 0; i < ASHLAR_PART_STATES; i++) {
        ashlar_region region;
        if (is_needed(t, i, &region)) {
            ASHLAR_TRY(collect(t, i, images->of[region]));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status save_collected(ashlar_trainer *t, const char *path) {
    ashlar_checkpoint_images images = {0};
    const ashlar_status taken = path != NULL ? take_images(t, &images) : ASHLAR_OK;
    ashlar_status status = collect_all(t, &images);
    status = taken != ASHLAR_OK ? taken : status;
    if (status == ASHLAR_OK && path != NULL) {
        const ashlar_train_context parts = {&t->config, t->task, t->stream};
        status = ashlar__train_checkpoint_save(path, &parts, &t->state, &images);
    }
    give_images(&images);
    return status;
}

ashlar_status ashlar__state_shards_save(ashlar_trainer *t, const char *path) {
    const ashlar_train_context parts = {&t->config, t->task, t->stream};
    const ashlar_checkpoint_images none = {0};
    return ashlar__state_shards_are_used(&t->config) ? save_collected(t, path)
           : path != NULL ? ashlar__train_checkpoint_save(path, &parts, &t->state, &none)
                          : ASHLAR_OK;
}

/* Copy this rank's part of what was read to the device. */
static ashlar_status divide(const ashlar_trainer *t, const ashlar_checkpoint_images *images) {
    const ashlar_optimizer_part *own = ashlar__optimizer_part_of(t->optimizer);
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < ASHLAR_PART_STATES && status == ASHLAR_OK; i++) {
        const ashlar_part_state *state = &own->states[i];
        if (state->data != NULL) {
            status = ashlar_copy_to_device(t->device, state->data,
                                           images->of[state->region] + state->begin,
                                           state->end - state->begin, t->stream);
        }
    }
    /* Wait after a failure too: the images are about to be freed. */
    const ashlar_status waited = ashlar_stream_synchronize(t->device, t->stream);
    return status == ASHLAR_OK ? waited : status;
}

ashlar_status ashlar__state_shards_load(ashlar_trainer *t) {
    const ashlar_train_context parts = {&t->config, t->task, t->stream};
    const bool is_divided = ashlar__state_shards_are_used(&t->config);
    ashlar_checkpoint_images images = {0};
    ashlar_status status = is_divided ? take_images(t, &images) : ASHLAR_OK;
    ASHLAR_THEN(status,
                ashlar__train_checkpoint_load(t->config.resume_file, &parts, &t->state, &images));
    ASHLAR_THEN(status, is_divided ? divide(t, &images) : ASHLAR_OK);
    give_images(&images);
    return status;
}
