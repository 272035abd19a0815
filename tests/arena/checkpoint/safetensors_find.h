/*
 * safetensors_find.h - a file's tensors, and their elements, for tests.
 */
#ifndef ASHLAR_SAFETENSORS_FIND_H
#define ASHLAR_SAFETENSORS_FIND_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arena/checkpoint/safetensors.h"

static inline size_t count_of(const ashlar_checkpoint *file) {
    size_t count;
    (void)ashlar_checkpoint_tensors(file, &count);
    return count;
}

static inline const ashlar_checkpoint_tensor *tensor_at(const ashlar_checkpoint *file, size_t i) {
    size_t count;
    return &ashlar_checkpoint_tensors(file, &count)[i];
}

/* A copy of the tensor's elements, or NULL. The caller frees it. */
static inline void *copy_elements(const ashlar_checkpoint *file,
                                  const ashlar_checkpoint_tensor *from) {
    void *data = malloc(from->bytes + 1);
    if (data == NULL || ashlar__safetensors_read(file, from, 0, from->bytes, data) != ASHLAR_OK) {
        free(data);
        return NULL;
    }
    return data;
}

/* Whether the tensor's elements are those at `want`, which may be NULL if there are none. */
static inline bool has_elements(const ashlar_checkpoint *file, const ashlar_checkpoint_tensor *from,
                                const void *want) {
    void *data = copy_elements(file, from);
    const bool has = data != NULL && (from->bytes == 0 || memcmp(data, want, from->bytes) == 0);
    free(data);
    return has;
}

#endif /* ASHLAR_SAFETENSORS_FIND_H */
