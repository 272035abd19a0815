/* training.c - saves and loads a whole training: the arena, the optimizer, the step and seeds. */
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/device.h>
#include <ashlar/optimizer.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/checkpoint/safetensors.h"
#include "arena/layout/arena_impl.h"

#define UPDATES "ashlar.updates"
#define MODEL_SEED "ashlar.model_seed"

enum { STEP, SEED, OPTIMIZER, KEYS, TEXT_BYTES = 160, NUMBER_BYTES = 21 };

static const char *const keys[KEYS] = {
    [STEP] = "ashlar.step",
    [SEED] = "ashlar.seed",
    [OPTIMIZER] = "ashlar.optimizer_state",
};

/* Print the fields in their order, reals in hexadecimal; the norm may be infinite or NaN. */
static void print_state(const ashlar_training_state *state, char texts[KEYS][TEXT_BYTES]) {
    const ashlar_optimizer_state *o = &state->optimizer;
    (void)snprintf(texts[STEP], TEXT_BYTES, "%" PRIu64, state->step);
    (void)snprintf(texts[SEED], TEXT_BYTES, "%" PRIu64, state->seed);
    (void)snprintf(texts[OPTIMIZER], TEXT_BYTES,
                   "%" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %a %a", o->step, o->skipped,
                   o->good_steps, o->is_skipped, o->loss_scale, o->norm);
}

/* Read the state. Then print it and compare: this shows that all of the text was understood. */
static ashlar_status read_state(const ashlar_checkpoint *file, ashlar_training_state *out) {
    ashlar_training_state s = {.step = 0};
    ashlar_optimizer_state *o = &s.optimizer;
    char again[KEYS][TEXT_BYTES];
    const char *texts[KEYS];
    for (int i = 0; i < KEYS; i++) {
        texts[i] = ashlar_checkpoint_metadata(file, keys[i]);
        texts[i] = texts[i] != NULL ? texts[i] : "";
    }
    (void)sscanf(texts[STEP], "%" SCNu64, &s.step);
    (void)sscanf(texts[SEED], "%" SCNu64, &s.seed);
    (void)sscanf(texts[OPTIMIZER], "%" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu32 " %la %la",
                 &o->step, &o->skipped, &o->good_steps, &o->is_skipped, &o->loss_scale, &o->norm);
    print_state(&s, again);
    const bool is_scale = o->loss_scale >= (double)FLT_MIN && o->loss_scale <= (double)FLT_MAX;
    for (int i = 0; i < KEYS; i++) {
        ASHLAR_FAIL_IF(strcmp(texts[i], again[i]) != 0 || (i == OPTIMIZER && !is_scale),
                       ASHLAR_EFORMAT,
                       "%s: no good %s in its metadata; go on from a file of a whole training",
                       ashlar__safetensors_path(file), keys[i]);
    }
    *out = s;
    return ASHLAR_OK;
}

/* Read a number, which stays as it is if the file lacks it. Then print it and compare, likewise. */
static ashlar_status read_number(const ashlar_checkpoint *file, const char *key, uint64_t most,
                                 const char *unit, uint64_t *number) {
    const char *text = ashlar_checkpoint_metadata(file, key);
    char again[NUMBER_BYTES];
    if (text == NULL) {
        return ASHLAR_OK;
    }
    (void)sscanf(text, "%" SCNu64, number);
    (void)snprintf(again, sizeof again, "%" PRIu64, *number);
    ASHLAR_FAIL_IF(strcmp(text, again) != 0 || *number > most, ASHLAR_EFORMAT,
                   "%s: no good %s in its metadata; it is at most %" PRIu64 "%s",
                   ashlar__safetensors_path(file), key, most, unit);
    return ASHLAR_OK;
}

/* ---- how often tensors were updated that were ever frozen ---- */

typedef struct updates_work {
    const ashlar_arena *arena;
    size_t count;
    uint64_t *updates; /* [count] */
    char *text;        /* keys and numbers of all tensors; then that of the tensors listed */
} updates_work;

static ashlar_status open_updates(updates_work *w, const ashlar_arena *arena) {
    size_t bytes = NUMBER_BYTES; /* cannot wrap: all names are in memory already */
    *w = (updates_work){.arena = arena, .count = arena->tensor_count};
    for (size_t i = 0; i < w->count; i++) {
        bytes += strlen(arena->tensors[i].name) + sizeof UPDATES "." + NUMBER_BYTES;
    }
    w->updates = ashlar__host_calloc(w->count, sizeof *w->updates);
    w->text = ashlar__host_calloc(bytes, 1);
    ASHLAR_FAIL_IF(w->updates == NULL || w->text == NULL, ASHLAR_EHOSTMEM,
                   "no host memory for the updates of %zu tensors", w->count);
    return ASHLAR_OK;
}

static void close_updates(updates_work *w) {
    ashlar__host_free(w->updates);
    ashlar__host_free(w->text);
}

/* Print at *text, which then is behind it. */
static const char *print(char **text, const char *format, ...) {
    char *start = *text;
    va_list arguments;
    va_start(arguments, format);
    *text += vsprintf(start, format, arguments) + 1;
    va_end(arguments);
    return start;
}

/* Write the pairs of listed tensors, and last their number. Returns how many pairs there are. */
static size_t print_updates(const updates_work *w, ashlar_checkpoint_pair *pairs) {
    char *text = w->text;
    size_t listed = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (w->updates[i] != ASHLAR_UPDATED_ALWAYS) {
            pairs[listed].key = print(&text, UPDATES ".%s", w->arena->tensors[i].name);
            pairs[listed++].value = print(&text, "%" PRIu64, w->updates[i]);
        }
    }
    pairs[listed] = (ashlar_checkpoint_pair){UPDATES, print(&text, "%zu", listed)};
    return listed + 1;
}

static ashlar_status read_updates(const ashlar_checkpoint *file, updates_work *w, uint64_t most) {
    const char *listed = ashlar_checkpoint_metadata(file, UPDATES);
    size_t found = 0;
    char again[NUMBER_BYTES];
    for (size_t i = 0; i < w->count; i++) {
        char *text = w->text;
        const char *key = print(&text, UPDATES ".%s", w->arena->tensors[i].name);
        const bool is_listed = listed != NULL && ashlar_checkpoint_metadata(file, key) != NULL;
        const bool is_new = listed == NULL && w->arena->tensors[i].info.options.is_frozen;
        w->updates[i] = is_new ? 0 : ASHLAR_UPDATED_ALWAYS;
        if (is_listed) {
            ASHLAR_TRY(read_number(file, key, most, " steps", &w->updates[i]));
            found++;
        }
    }
    (void)snprintf(again, sizeof again, "%zu", found);
    ASHLAR_FAIL_IF(listed != NULL && strcmp(listed, again) != 0, ASHLAR_EFORMAT,
                   "%s: its " UPDATES " is %s, but it has those of %zu tensors of the arena",
                   ashlar__safetensors_path(file), listed, found);
    return ASHLAR_OK;
}

/* ---- save and load ---- */

static ashlar_status save(const updates_work *w, const char *path, const ashlar_training_state *now,
                          const ashlar_checkpoint_pair *metadata, size_t metadata_count,
                          ashlar_stream stream) {
    char texts[KEYS][TEXT_BYTES], seed[NUMBER_BYTES];
    ashlar_checkpoint_pair *all;
    ASHLAR_HOST_NEW(all, metadata_count + KEYS + w->count + 2,
                    "no host memory for the metadata of %s", path);
    print_state(now, texts);
    size_t count = 0;
    for (; count < KEYS; count++) {
        all[count] = (ashlar_checkpoint_pair){keys[count], texts[count]};
    }
    (void)snprintf(seed, sizeof seed, "%" PRIu64, w->arena->seed);
    all[count++] = (ashlar_checkpoint_pair){MODEL_SEED, seed};
    count += print_updates(w, all + count);
    for (size_t i = 0; i < metadata_count; i++) {
        all[count++] = metadata[i];
    }
    const ashlar_status status =
        ashlar_checkpoint_save(w->arena, path, ASHLAR_CHECKPOINT_STATE, all, count, stream);
    ashlar__host_free(all);
    return status;
}

ashlar_status ashlar_training_save(const ashlar_arena *arena, const ashlar_optimizer *optimizer,
                                   const char *path, const ashlar_training_state *state,
                                   const ashlar_checkpoint_pair *metadata, size_t metadata_count,
                                   ashlar_stream stream) {
    ashlar_training_state now = *state;
    updates_work w;
    ASHLAR_FAIL_IF(ashlar__arena_regions(arena) == 0, ASHLAR_EINVAL,
                   "checkpoint: the arena is not committed");
    ashlar_status status = open_updates(&w, arena);
    ASHLAR_THEN(status, ashlar_optimizer_copy_state_to_host(optimizer, &now.optimizer, w.updates,
                                                            stream)); /* waits */
    ASHLAR_THEN(status, save(&w, path, &now, metadata, metadata_count, stream));
    close_updates(&w);
    return status;
}

ashlar_status ashlar_training_load(ashlar_arena *arena, ashlar_optimizer *optimizer,
                                   const ashlar_checkpoint *file, ashlar_stream stream,
                                   ashlar_training_state *out) {
    const ashlar_load_options options = {.flags = ASHLAR_CHECKPOINT_STATE};
    ashlar_training_state state;
    uint64_t seed = arena->seed;
    updates_work w;
    ASHLAR_TRY(read_state(file, &state));
    ASHLAR_TRY(read_number(file, MODEL_SEED, UINT64_MAX, "", &seed)); /* earlier files lack it */
    ashlar_status status = open_updates(&w, arena);
    ASHLAR_THEN(status, read_updates(file, &w, state.optimizer.step));
    ASHLAR_THEN(status, ashlar_checkpoint_load(arena, file, &options, stream, NULL));
    ASHLAR_THEN(status, ashlar_optimizer_copy_state_to_device(optimizer, &state.optimizer,
                                                              w.updates, stream));
    close_updates(&w);
    if (status == ASHLAR_OK) {
        arena->seed = seed;
        *out = state;
    }
    return status;
}
