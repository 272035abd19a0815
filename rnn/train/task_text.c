#include "rnn/train/task_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "rnn/data/cut.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/train/task_options.h"
#include "rnn/data/text_sum.h"

/* A batch under way. */
typedef struct slot {
    ashlar_cut cut;
    int32_t *host;   /* page-locked: the batch's image and extra */
    int32_t *device; /* its image */
} slot;

typedef struct text_task {
    ashlar_task head;
    ashlar_train_config config;
    const ashlar_corpus *corpus;
    uint64_t text_sum; /* of it, where has_text_sum */
    bool has_text_sum;
    ashlar_batcher *batcher;
    ashlar_cut_config cut;
    int32_t *drawn;     /* what the batcher writes: two grids and the lengths */
    ashlar_batch batch; /* its pointers lead there */
    ashlar_allocator *allocator;
    ashlar_model *model;
    char *carried; /* device: 2 sets of states for each micro-batch, if there are parts */
    size_t state_bytes; /* of a set */
    void *host;   /* of both slots */
    void *device; /* of both slots */
    slot slots[ASHLAR_TASK_SLOTS];
} text_task;

static text_task *text_of(ashlar_task *task) {
    return (text_task *)(void *)task; /* its first member */
}

static const text_task *const_text_of(const ashlar_task *task) {
    return (const text_task *)(const void *)task;
}

ashlar_model *ashlar_task_text_model(ashlar_task *task) {
    return text_of(task)->model;
}

/* --- what must be the same ------------------------------------------------------------------ */

/* The text is read once, and only where there is a file. */
static void add_data(ashlar_task *task, ashlar_facts *f) {
    text_task *t = text_of(task);
    if (!t->has_text_sum) {
        t->text_sum = ashlar_text_sum(t->corpus);
        t->has_text_sum = true;
    }
    (void)snprintf(ashlar_facts_add(f, "ashlar.text"), ASHLAR_FACT_BYTES,
                   "%zu records, %zu bytes, %016" PRIx64, ashlar_corpus_count(t->corpus),
                   ashlar_corpus_bytes(t->corpus), t->text_sum);
}

static void list_options(const ashlar_task *task, ashlar_task_listener *l) {
    const text_task *t = const_text_of(task);
    const ashlar_train_config *c = &t->config;
    const unsigned no_plan = ASHLAR_FOR_FILE | ASHLAR_FOR_REPORT;
    /* Files and plans are older than the choice of a type. */
    const unsigned of_type = c->dtype == ASHLAR_F32 ? ASHLAR_FOR_REPORT : ASHLAR_FOR_ALL;
    ashlar_option_stack(l, c);
    ashlar_option_count(l, no_plan, "ashlar.max_length", c->max_length);
    ashlar_option_count(l, no_plan, "ashlar.stride", c->stride);
    ashlar_option_count(l, ASHLAR_FOR_ALL, "ashlar.accumulate", t->cut.micro);
    ashlar_option_count(l, no_plan, "ashlar.bptt", t->cut.part);
    ashlar_option_count(l, ASHLAR_FOR_ALL, "ashlar.recompute", t->cut.chunk);
    ashlar_option_text(l, of_type, "ashlar.dtype", ashlar_dtype_name(c->dtype));
}

static void place(const ashlar_task *task, ashlar_facts *f) {
    const ashlar_random random = ashlar_batcher_random(const_text_of(task)->batcher);
    ashlar_facts_add_random(f, "ashlar.random", &random);
}

static void skip(ashlar_task *task, uint64_t batches) {
    ashlar_batcher_skip(text_of(task)->batcher, batches);
}

/* --- batches -------------------------------------------------------------------------------- */

static void fill_slot(text_task *t, size_t index) {
    slot *s = &t->slots[index];
    s->cut = ashlar_cut_of(&t->cut, t->batch.steps);
    ashlar_cut_fill(&s->cut, &t->batch, s->host);
}

static ashlar_task_batch next(ashlar_task *task, size_t index) {
    text_task *t = text_of(task);
    ashlar_batcher_next(t->batcher, &t->batch);
    fill_slot(t, index);
    return (ashlar_task_batch){.length = t->batch.steps,
                               .tokens = t->batch.tokens,
                               .parts = t->slots[index].cut.parts,
                               .epoch = t->batch.epoch};
}

static void make_up(ashlar_task *task, size_t index, size_t length) {
    text_task *t = text_of(task);
    const size_t cells = length * t->config.batch; /* fits: no batch is longer */
    memset(t->batch.inputs, 0, cells * sizeof t->batch.inputs[0]);
    memset(t->batch.targets, 0, cells * sizeof t->batch.targets[0]);
    for (size_t b = 0; b < t->config.batch; b++) {
        t->batch.lengths[b] = (int32_t)length;
    }
    t->batch.steps = length;
    fill_slot(t, index);
}

static ashlar_task_part part_of(const ashlar_task *task, size_t index, size_t part) {
    const slot *s = &const_text_of(task)->slots[index];
    return (ashlar_task_part){.length = ashlar_cut_window_of(&s->cut, 0, part).steps,
                              .tokens = ashlar_cut_tokens(&s->cut, s->host, part)};
}

static ashlar_status upload(ashlar_task *task, size_t index, ashlar_stream stream) {
    const text_task *t = text_of(task);
    const slot *s = &t->slots[index];
    return ashlar_copy_to_device(t->model->device, s->device, s->host,
                                 s->cut.image * sizeof *s->host, stream);
}

/* --- steps ---------------------------------------------------------------------------------- */

/* Set i of a micro-batch: parts read one and write the other, in turn. */
static void *carried_set(const text_task *t, size_t micro, size_t i) {
    return t->carried + (2 * micro + i % 2) * t->state_bytes;
}

/*
 * Every position weighs 1 / (tokens of the whole part), also where it is not worked off at once.
 * Where it is, that is what the loss makes of it by itself.
 */
static ashlar_model_window window_of(const text_task *t, const slot *s, size_t micro, size_t part) {
    const ashlar_cut *cut = &s->cut;
    const ashlar_cut_window at = ashlar_cut_window_of(cut, micro, part);
    const bool is_whole = cut->micro == 1 && cut->chunks == 1;
    return (ashlar_model_window){
        .steps = at.steps,
        .count = cut->count,
        .chunk = t->cut.chunk == 0 ? 0 : cut->chunk,
        .inputs = s->device + at.inputs,
        .targets = s->device + at.targets,
        .lengths = s->device + at.lengths,
        .rnn_lengths = s->host + at.rnn_lengths,
        .weight = is_whole ? 0 : 1 / (double)ashlar_cut_tokens(cut, s->host, part),
        .first = part == 0 ? NULL : carried_set(t, micro, part),
        .last = part + 1 == cut->parts ? NULL : carried_set(t, micro, part + 1),
    };
}

/* An odd number, as the loop has one for steps: micro-batches drop each their own outputs. */
static const uint64_t MICRO_STRIDE = UINT64_C(0xa0761d6478bd642f);

static ashlar_status step(ashlar_task *task, size_t index, size_t part, uint64_t seed,
                          double *loss) {
    const text_task *t = text_of(task);
    const slot *s = &t->slots[index];
    ashlar_status status = ASHLAR_OK;
    t->model->loss_scale = task->loss_scale;
    for (size_t m = 0; m < s->cut.micro && status == ASHLAR_OK; m++) {
        const ashlar_model_window window = window_of(t, s, m, part);
        ashlar_step_sizes sizes;
        t->model->dropout_seed = seed + m * MICRO_STRIDE;
        status =
            ashlar_model_chunk_sizes(t->model, window.steps, window.count, window.chunk, &sizes);
        if (status == ASHLAR_OK) {
            status = ashlar_model_step(t->model, &window, &sizes, loss);
        }
    }
    return status;
}

/* Every length on its own: a back end's workspace need not grow with it (cuDNN's does not). */
static ashlar_status rehearse(ashlar_task *task, size_t length) {
    const text_task *t = text_of(task);
    const ashlar_cut cut = ashlar_cut_of(&t->cut, length);
    ashlar_step_sizes sizes;
    ashlar_status status =
        ashlar_model_chunk_sizes(t->model, length, cut.count, t->cut.chunk, &sizes);
    for (size_t m = 0; m < cut.micro && status == ASHLAR_OK; m++) {
        status = ashlar_model_rehearse(t->model, t->cut.chunk != 0, &sizes);
    }
    return status;
}

/* --- what the options save ------------------------------------------------------------------ */

/* Of the longest step that is cut like that. */
static ashlar_status peak_of(const text_task *t, const ashlar_cut_config *config, uint64_t *bytes) {
    const ashlar_cut cut = ashlar_cut_of(config, t->head.max_length);
    ashlar_step_sizes sizes;
    ASHLAR_TRY(ashlar_model_chunk_sizes(t->model, cut.part, cut.count, config->chunk, &sizes));
    *bytes = ashlar_model_step_peak(config->chunk != 0, &sizes);
    return ASHLAR_OK;
}

static ashlar_status savings(const ashlar_task *task, uint64_t *bytes,
                             ashlar_task_saving out[static ASHLAR_TASK_SAVINGS_MAX],
                             size_t *count) {
    const text_task *t = const_text_of(task);
    ashlar_cut_config without[] = {t->cut, t->cut, t->cut};
    const ashlar_task_saving options[] = {{"accumulate", t->cut.micro == 1 ? 0 : t->cut.micro, 0},
                                          {"bptt", t->cut.part, 0},
                                          {"recompute", t->cut.chunk, 0}};
    without[0].micro = 1;
    without[1].part = 0;
    without[2].chunk = 0;
    *count = 0;
    ashlar_status status = peak_of(t, &t->cut, bytes);
    for (size_t i = 0; i < 3 && status == ASHLAR_OK; i++) {
        if (options[i].value != 0) {
            out[*count] = options[i];
            status = peak_of(t, &without[i], &out[(*count)++].bytes);
        }
    }
    return status;
}

/* --- life ----------------------------------------------------------------------------------- */

enum { SLOT_ALIGN = 256 };

/* The slots' memory on both sides, each a piece of one block. */
static ashlar_status take_slots(text_task *t, ashlar_stream stream) {
    const ashlar_cut largest = ashlar_cut_of(&t->cut, t->head.max_length);
    const size_t words = largest.image + largest.extra, item = sizeof(int32_t);
    size_t image;
    if (!ashlar_mul(largest.image, item, &image) ||
        !ashlar_align_up(image, SLOT_ALIGN, &image)) {
        return ashlar_fail(ASHLAR_EOVERFLOW, "a batch of %zu words is too large to address",
                           largest.image);
    }
    ashlar_status status = ashlar_device_host_alloc(ashlar_allocator_device(t->allocator),
                                                    ASHLAR_TASK_SLOTS * words * item, &t->host);
    if (status == ASHLAR_OK) {
        status = ashlar_alloc_tagged(t->allocator, ASHLAR_TASK_SLOTS * image, ASHLAR_TAG_BATCH,
                                     stream, &t->device);
    }
    for (size_t i = 0; status == ASHLAR_OK && i < ASHLAR_TASK_SLOTS; i++) {
        t->slots[i].host = (int32_t *)t->host + i * words;
        t->slots[i].device = (int32_t *)t->device + i * (image / item);
    }
    return status;
}

/* The states between parts: of each micro-batch those that a part begins with, and ends with. */
static ashlar_status take_carried(text_task *t, ashlar_stream stream) {
    ashlar_step_sizes sizes;
    void *carried = NULL;
    size_t bytes = 0;
    ashlar_status status =
        ashlar_model_sizes(t->model, 1, t->config.batch / t->cut.micro, &sizes);
    if (status == ASHLAR_OK && !ashlar_mul(2 * t->cut.micro, sizes.state, &bytes)) {
        status = ashlar_fail(ASHLAR_EOVERFLOW, "the states of %zu sequences are too large",
                             t->config.batch);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_alloc_tagged(t->allocator, bytes, ASHLAR_TAG_ACTIVATIONS, stream, &carried);
        t->carried = carried;
        t->state_bytes = sizes.state;
    }
    return status;
}

static ashlar_status open_task(ashlar_task *task, ashlar_allocator *allocator, ashlar_stream stream,
                          unsigned regions) {
    text_task *t = text_of(task);
    const ashlar_model_config model = {.classes = ASHLAR_BATCHER_SYMBOLS,
                                       .embedding = t->config.embedding,
                                       .hidden = t->config.hidden,
                                       .layers = t->config.layers,
                                       .cell = t->config.cell,
                                       .projection = t->config.projection,
                                       .dropout = t->config.dropout,
                                       .dtype = t->config.dtype};
    t->allocator = allocator;
    ashlar_status status = ashlar_model_create(allocator, stream, &model, regions, &t->model);
    if (status == ASHLAR_OK) {
        task->arena = t->model->arena;
        status = ashlar_model_init_weights(t->model, t->config.seed);
    }
    if (status == ASHLAR_OK) {
        status = take_slots(t, stream);
    }
    return status == ASHLAR_OK && task->max_parts > 1 ? take_carried(t, stream) : status;
}

static void give(const text_task *t, void *block) {
    const ashlar_status unused = block == NULL ? ASHLAR_OK : ashlar_free(t->allocator, block);
    (void)unused; /* a block of this allocator, and nobody to tell */
}

static void close_task(ashlar_task *task) {
    text_task *t = text_of(task);
    ashlar_model_destroy(t->model);
    t->model = NULL;
    task->arena = NULL;
    give(t, t->device);
    give(t, t->carried);
    t->device = NULL;
    t->carried = NULL;
    if (t->host != NULL) {
        ashlar_device_host_free(ashlar_allocator_device(t->allocator), t->host);
        t->host = NULL;
    }
}

static void destroy_task(ashlar_task *task) {
    text_task *t = text_of(task);
    ashlar_batcher_destroy(t->batcher);
    ashlar_host_free(t->drawn);
    ashlar_host_free(t);
}

static const ashlar_task_table table = {
    .open = open_task,
    .close = close_task,
    .destroy = destroy_task,
    .next = next,
    .make_up = make_up,
    .part = part_of,
    .upload = upload,
    .step = step,
    .rehearse = rehearse,
    .savings = savings,
    .list_options = list_options,
    .add_data = add_data,
    .place = place,
    .skip = skip,
};

static ashlar_status take_drawn(text_task *t) {
    const size_t grid = ashlar_batcher_grid_bytes(t->batcher) / sizeof *t->drawn;
    t->drawn = ashlar_host_calloc(2 * grid + t->config.batch, sizeof *t->drawn);
    if (t->drawn == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a batch of %zu words", 2 * grid);
    }
    t->batch = (ashlar_batch){
        .inputs = t->drawn, .targets = t->drawn + grid, .lengths = t->drawn + 2 * grid};
    return ASHLAR_OK;
}

/*
 * The least that is no smaller than the root. Of chunks of about that many steps as much is in
 * memory as of states at their borders; chunks of twice as many cost less time, for most of the
 * memory is saved either way.
 */
static size_t root_up(size_t value) {
    size_t root = (size_t)sqrt((double)value);
    while (root * root < value) {
        root++;
    }
    return root;
}

static void choose_cut(text_task *t, size_t longest) {
    const ashlar_train_config *c = &t->config;
    const size_t part = c->bptt == 0 || c->bptt > longest ? longest : c->bptt;
    const size_t chunk = c->recomputes_auto ? 2 * root_up(part) : c->recompute;
    t->cut = (ashlar_cut_config){
        .batch = c->batch,
        .micro = c->accumulate == 0 ? 1 : c->accumulate,
        .part = part < longest ? part : 0,
        .chunk = chunk < part ? chunk : 0, /* one chunk is as well done at once */
    };
}

static ashlar_status build(text_task *t) {
    const ashlar_batcher_config supply = {
        .batch = t->config.batch,
        .max_steps = t->config.max_length,
        .seed = t->config.seed,
        .stride = t->config.stride,
    };
    if (t->config.accumulate > 1 && t->config.batch % t->config.accumulate != 0) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "--accumulate: %zu does not divide the %zu sequences of --batch",
                           t->config.accumulate, t->config.batch);
    }
    ASHLAR_TRY(ashlar_batcher_create(t->corpus, &supply, &t->batcher));
    const size_t longest = ashlar_batcher_max_steps(t->batcher);
    choose_cut(t, longest);
    const ashlar_cut cut = ashlar_cut_of(&t->cut, longest);
    t->head.max_length = longest;
    t->head.max_part_length = cut.part;
    t->head.max_parts = cut.parts;
    t->head.batch = t->config.batch;
    t->head.sequences = ashlar_batcher_piece_count(t->batcher);
    return take_drawn(t);
}

ashlar_status ashlar_task_text_create(const ashlar_corpus *corpus,
                                      const ashlar_train_config *config, ashlar_task **out) {
    text_task *t = ashlar_host_calloc(1, sizeof *t);
    if (t == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a task");
    }
    *t = (text_task){.head = {.table = &table}, .config = *config, .corpus = corpus};
    const ashlar_status status = build(t);
    if (status != ASHLAR_OK) {
        destroy_task(&t->head);
        return status;
    }
    *out = &t->head;
    return ASHLAR_OK;
}
