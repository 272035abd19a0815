/* task_options.h - the list of a task's options for the training's file and the report; and the
 * metadata that the options become in the file (internal). */
#ifndef ASHLAR_TASK_OPTIONS_H
#define ASHLAR_TASK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/arena.h>

#include "rnn/train/train.h"

enum { ASHLAR_METADATA_MAX = 64, ASHLAR_METADATA_TEXT_BYTES = 768 };

typedef struct ashlar_metadata {
    ashlar_checkpoint_pair pairs[ASHLAR_METADATA_MAX]; /* pairs[i].value is texts[i] */
    char texts[ASHLAR_METADATA_MAX][ASHLAR_METADATA_TEXT_BYTES];
    bool is_text[ASHLAR_METADATA_MAX]; /* or a number */
    bool is_for_report; /* of the JSON, under keys without "ashlar."; else for the training's file,
                         * and resuming requires the same values */
    size_t count;
} ashlar_metadata;

/* Add a value under a key; at most ASHLAR_METADATA_MAX of them. `key` must outlive the metadata.
 * ashlar__metadata_add() returns ASHLAR_METADATA_TEXT_BYTES bytes for the caller to print the value
 * into. Real numbers are written so that reading them restores every bit. */
char *ashlar__metadata_add(ashlar_metadata *metadata, const char *key);

void ashlar__metadata_add_text(ashlar_metadata *metadata, const char *key, const char *value);
void ashlar__metadata_add_count(ashlar_metadata *metadata, const char *key, uint64_t value);
void ashlar__metadata_add_real(ashlar_metadata *metadata, const char *key, double value);

/* Keys of a checkpoint's metadata that the model is built from. */
#define ASHLAR_METADATA_LAYERS "ashlar.layers"
#define ASHLAR_METADATA_CELL "ashlar.cell"             /* absent: lstm */
#define ASHLAR_METADATA_PROJECTION "ashlar.projection" /* absent: none */
#define ASHLAR_METADATA_DROPOUT "ashlar.dropout"       /* used in its training */
#define ASHLAR_METADATA_HIDDEN "ashlar.hidden"
#define ASHLAR_METADATA_EMBEDDING "ashlar.embedding"

/* The places where an option is written, as bits of `who`. */
/* Add the options of the recurrent layers, which every task has. */
void ashlar__metadata_add_stack(ashlar_metadata *metadata, const ashlar_train_config *config);

/* Add what must be the same when a training resumes: the options and a checksum of the data. */
void ashlar__task_add_facts(ashlar_task *task, ashlar_metadata *metadata);

void ashlar__task_add_position(const ashlar_task *task, ashlar_metadata *metadata);

/* Add the options to an open JSON object. */
void ashlar__task_put_config(const ashlar_task *task, ashlar_json_writer *writer);

#endif /* ASHLAR_TASK_OPTIONS_H */
