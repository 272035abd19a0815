/*
 * safetensors_find.h - a file's tensor by its name, and its elements, for tests.
 */
#ifndef ASHLAR_SAFETENSORS_FIND_H
#define ASHLAR_SAFETENSORS_FIND_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arena/checkpoint/safetensors.h"

static inline const ashlar_checkpoint_tensor *find_tensor(const ashlar_checkpoint *file,
                                                          const char *name) {
    for (size_t i = 0; i < ashlar_checkpoint_count(file); i++) {
        if (strcmp(ashlar_checkpoint_at(file, i)->name, name) == 0) {
            return ashlar_checkpoint_at(file, i);
        }
    }
    return NULL;
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
