/*
 * safetensors_find.h - a file's tensor by its name, for tests.
 */
#ifndef ASHLAR_SAFETENSORS_FIND_H
#define ASHLAR_SAFETENSORS_FIND_H

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

#endif /* ASHLAR_SAFETENSORS_FIND_H */
