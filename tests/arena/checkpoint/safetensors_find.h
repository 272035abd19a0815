/*
 * safetensors_find.h - a file's tensor by its name, and its elements, for tests.
 */
#ifndef ASHLAR_SAFETENSORS_FIND_H
#define ASHLAR_SAFETENSORS_FIND_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arena/checkpoint/safetensors.h"

static inline const ashlar_safetensors_entry *find_tensor(const ashlar_safetensors *file,
                                                          const char *name) {
    for (size_t i = 0; i < ashlar__safetensors_count(file); i++) {
        if (strcmp(ashlar__safetensors_at(file, i)->name, name) == 0) {
            return ashlar__safetensors_at(file, i);
        }
    }
    return NULL;
}

/* A copy of the tensor's elements, or NULL. The caller frees it. */
static inline void *copy_elements(const ashlar_safetensors *file,
                                  const ashlar_safetensors_entry *entry) {
    size_t bytes = 0;
    if (ashlar__safetensors_entry_bytes(entry, &bytes) != ASHLAR_OK) {
        return NULL;
    }
    void *data = malloc(bytes + 1);
    if (data == NULL || ashlar__safetensors_read(file, entry, 0, bytes, data) != ASHLAR_OK) {
        free(data);
        return NULL;
    }
    return data;
}

/* Whether the tensor's elements are those at `want`, which may be NULL if there are none. */
static inline bool has_elements(const ashlar_safetensors *file,
                                const ashlar_safetensors_entry *entry, const void *want) {
    size_t bytes = 0;
    void *data = copy_elements(file, entry);
    const bool has = data != NULL && ashlar__safetensors_entry_bytes(entry, &bytes) == ASHLAR_OK &&
                     (bytes == 0 || memcmp(data, want, bytes) == 0);
    free(data);
    return has;
}

#endif /* ASHLAR_SAFETENSORS_FIND_H */
