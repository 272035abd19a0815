/* task_options.c - writes a task's options to its file and report; builds metadata; opens and
 * closes a task, and takes its memory. */
#include "rnn/train/task_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

char *ashlar__metadata_add(ashlar_metadata *f, const char *key) {
    ASHLAR_ASSERT(f->count < ASHLAR_METADATA_MAX);
    char *text = f->texts[f->count];
    f->pairs[f->count++] = (ashlar_checkpoint_pair){key, text};
    return text;
}

void ashlar__metadata_add_text(ashlar_metadata *f, const char *key, const char *value) {
    f->is_text[f->count] = true;
    (void)snprintf(ashlar__metadata_add(f, key), ASHLAR_METADATA_TEXT_BYTES, "%s", value);
}

void ashlar__metadata_add_count(ashlar_metadata *f, const char *key, uint64_t value) {
    (void)snprintf(ashlar__metadata_add(f, key), ASHLAR_METADATA_TEXT_BYTES, "%" PRIu64, value);
}

/* Use the fewest digits that restore the number, since people read the text, too. */
void ashlar__metadata_add_real(ashlar_metadata *f, const char *key, double value) {
    char *text = ashlar__metadata_add(f, key);
    int digits = 0;
    do {
        digits++;
        (void)snprintf(text, ASHLAR_METADATA_TEXT_BYTES, "%.*g", digits, value);
    } while (digits < 17 && strtod(text, NULL) != value);
}

void ashlar__metadata_add_stack(ashlar_metadata *f, const ashlar_train_config *c) {
    ashlar__metadata_add_text(f, ASHLAR_METADATA_CELL, ashlar_rnn_cell_name(c->cell));
    ashlar__metadata_add_count(f, ASHLAR_METADATA_PROJECTION, c->projection);
    ashlar__metadata_add_real(f, ASHLAR_METADATA_DROPOUT, c->dropout);
    ashlar__metadata_add_count(f, ASHLAR_METADATA_LAYERS, c->layers);
    ashlar__metadata_add_count(f, ASHLAR_METADATA_HIDDEN, c->hidden);
    ashlar__metadata_add_count(f, ASHLAR_METADATA_EMBEDDING, c->embedding);
    ashlar__metadata_add_count(f, "ashlar.batch", c->batch);
}

void ashlar__task_add_facts(ashlar_task *task, ashlar_metadata *metadata) {
    task->table->list_options(task, metadata);
    if (task->data[0] == '\0') { /* only now, since it reads all data */
        task->table->describe_data(task, task->data);
    }
    ashlar__metadata_add_text(metadata, "ashlar.text", task->data);
}

void ashlar__task_add_position(const ashlar_task *task, ashlar_metadata *metadata) {
    const ashlar_random r = ashlar__batch_sampler_random(task->sampler);
    (void)snprintf(ashlar__metadata_add(metadata, "ashlar.random"), ASHLAR_METADATA_TEXT_BYTES,
                   "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, r.s[0], r.s[1],
                   r.s[2], r.s[3]);
}

void ashlar__task_put_config(const ashlar_task *task, ashlar_json_writer *writer) {
    ashlar_metadata all = {.is_for_report = true};
    task->table->list_options(task, &all);
    for (size_t i = 0; i < all.count; i++) {
        const char *name = all.pairs[i].key + strlen("ashlar.");
        if (all.is_text[i]) {
            ashlar__json_add_string(writer, name, all.texts[i]);
        } else {
            ashlar__json_add_double(writer, name, strtod(all.texts[i], NULL));
        }
    }
}

ashlar_status ashlar__task_take_host(ashlar_task *task, size_t bytes) {
    return ashlar_device_host_alloc(ashlar_allocator_device(task->allocator), bytes, &task->host);
}

ashlar_status ashlar__task_take_block(ashlar_task *task, size_t i, size_t bytes, ashlar_tag tag,
                                      ashlar_stream stream) {
    return ashlar_alloc_tagged(task->allocator, bytes, tag, stream, &task->blocks[i]);
}

ashlar_status ashlar__task_open(ashlar_task *task, ashlar_allocator *allocator,
                                ashlar_stream stream, unsigned regions) {
    task->allocator = allocator;
    return task->table->open(task, stream, regions);
}

void ashlar__task_close(ashlar_task *task) {
    if (task->allocator == NULL) {
        return;
    }
    task->table->close(task);
    task->arena = NULL;
    for (size_t i = 0; i < ASHLAR_TASK_BLOCKS; i++) {
        /* Cannot fail: this allocator gave the block, or it is NULL. */
        ASHLAR_IGNORE(ashlar_free(task->allocator, task->blocks[i]));
        task->blocks[i] = NULL;
    }
    ashlar_device_host_free(ashlar_allocator_device(task->allocator), task->host);
    task->host = NULL;
}
