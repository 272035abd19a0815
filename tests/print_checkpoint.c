/*
 * print_checkpoint.c - what ashlar has after it has loaded a file of ashlar-train, for
 * shell_checkpoint.sh to compare with what another reader finds there.
 *
 *   print_checkpoint tensors FILE            each part of each tensor: name, type, shape, bytes
 *   print_checkpoint outputs FILE SYMBOL...  the LSTM's outputs for these bytes: a line of each
 * step
 *
 * "tensors" needs a file with the optimizer's state, "outputs" one with the parameters, in any
 * type.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/checkpoint.h>

#include "rnn/data/batcher.h"
#include "rnn/model/model.h"
#include "rnn/train/task_options.h"

static ashlar_allocator *allocator;
static ashlar_model *model;

static void must(ashlar_status status) {
    if (status != ASHLAR_OK) {
        fprintf(stderr, "print_checkpoint: %s\n", ashlar_error_detail());
        exit(1);
    }
}

static size_t read_count(const ashlar_checkpoint *file, const char *key) {
    const char *text = ashlar_checkpoint_metadata(file, key);
    return text != NULL ? strtoul(text, NULL, 10) : 0;
}

static void load_model(const char *path, unsigned regions, unsigned flags) {
    ashlar_checkpoint *file;
    ashlar_device *device;
    must(ashlar_checkpoint_open(path, &file));
    const ashlar_model_config config = {.classes = ASHLAR_BATCHER_SYMBOLS,
                                        .layers = read_count(file, ASHLAR_METADATA_LAYERS),
                                        .hidden = read_count(file, ASHLAR_METADATA_HIDDEN),
                                        .embedding = read_count(file, ASHLAR_METADATA_EMBEDDING)};
    must(ashlar_device_open("soft", &device));
    must(ashlar_allocator_create(device, &allocator));
    must(ashlar__model_create(allocator, NULL, &config, regions, &model));
    must(ashlar_checkpoint_load(model->arena, file, flags, NULL));
    ashlar_checkpoint_close(file);
}

static void unload_model(void) {
    ashlar_device *device = model->device;
    ashlar__model_destroy(model);
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
}

/* The software device's memory is the host's. */
static void print_part(const char *prefix, ashlar_region region, size_t tensor) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(model->arena, tensor, &info);
    const unsigned char *bytes = ashlar_arena_view(model->arena, region, tensor);
    printf("%s%s F32 ", prefix, info.name);
    for (size_t i = 0; i < info.rank; i++) {
        printf("%s%zu", i > 0 ? "," : "", info.shape[i]);
    }
    putchar(' ');
    for (size_t i = 0; i < info.bytes; i++) {
        printf("%02x", bytes[i]);
    }
    putchar('\n');
}

static void print_tensors(const char *path) {
    load_model(path, ASHLAR_REGIONS_ALL, ASHLAR_CHECKPOINT_STATE);
    for (size_t i = 0; i < ashlar_arena_tensor_count(model->arena); i++) {
        print_part("", ASHLAR_REGION_PARAMETERS, i);
        print_part("optimizer.moment1.", ASHLAR_REGION_MOMENT1, i);
        print_part("optimizer.moment2.", ASHLAR_REGION_MOMENT2, i);
    }
    unload_model();
}

static void *take(size_t bytes) {
    void *out;
    must(ashlar_alloc(allocator, bytes > 0 ? bytes : 1, NULL, &out));
    return out;
}

static const void *first_of_stack(void) {
    size_t tensor;
    must(ashlar_arena_find(model->arena, "lstm.weight_ih_l0", &tensor));
    return ashlar_arena_view(model->arena, ASHLAR_REGION_PARAMETERS, tensor);
}

static void print_outputs(const char *path, size_t count, char **symbols) {
    load_model(path, ASHLAR_REGIONS_INFERENCE, ASHLAR_CHECKPOINT_CONVERT);
    const size_t in = model->config.embedding, out = model->config.hidden;
    const int32_t length = (int32_t)count;
    const ashlar_rnn_batch batch = {.steps = count, .batch = 1, .lengths = &length};
    size_t reserve_bytes, work_bytes;
    must(ashlar_rnn_sizes(model->rnn, count, 1, false, &reserve_bytes, &work_bytes));
    float *x = take(count * in * sizeof *x), *y = take(count * out * sizeof *y);
    const float *table = model->parameters.embedding;
    for (size_t t = 0; t < count; t++) {
        memcpy(x + t * in, table + strtoul(symbols[t], NULL, 10) % 256 * in, in * sizeof *x);
    }
    const ashlar_rnn_buffers buffers = {
        .work = take(work_bytes), .x = x, .weights = first_of_stack(), .y = y};
    must(ashlar_rnn_forward(model->rnn, &batch, &buffers, NULL));
    must(ashlar_stream_synchronize(model->device, NULL));
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < out; i++) {
            printf("%.9g%c", (double)y[t * out + i], i + 1 < out ? ' ' : '\n');
        }
    }
    must(ashlar_free(allocator, x));
    must(ashlar_free(allocator, y));
    must(ashlar_free(allocator, buffers.work));
    unload_model();
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "tensors") == 0) {
        print_tensors(argv[2]);
    } else if (argc >= 4 && strcmp(argv[1], "outputs") == 0) {
        print_outputs(argv[2], (size_t)argc - 3, argv + 3);
    } else {
        fprintf(stderr, "usage: print_checkpoint tensors FILE | outputs FILE SYMBOL...\n");
        return 2;
    }
    return 0;
}
