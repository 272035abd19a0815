/*
 * metadata.h - texts under keys, built up one by one: the metadata of a training's file (internal).
 *
 * Real numbers are written so that reading them gives every bit back.
 */
#ifndef ASHLAR_METADATA_H
#define ASHLAR_METADATA_H

#include <stdint.h>

#include <ashlar/checkpoint.h>

#include "allocator/base/random.h"

enum { ASHLAR_METADATA_MAX = 64, ASHLAR_METADATA_TEXT_BYTES = 768 };

typedef struct ashlar_metadata {
    ashlar_checkpoint_pair pairs[ASHLAR_METADATA_MAX]; /* the values lie in texts */
    char texts[ASHLAR_METADATA_MAX][ASHLAR_METADATA_TEXT_BYTES];
    size_t count;
} ashlar_metadata;

/*
 * A new key; the caller prints its text into the ASHLAR_METADATA_TEXT_BYTES bytes that are
 * returned. `key` must outlive the metadata. There are at most ASHLAR_METADATA_MAX.
 */
char *ashlar__metadata_add(ashlar_metadata *metadata, const char *key);

void ashlar__metadata_add_text(ashlar_metadata *metadata, const char *key, const char *value);
void ashlar__metadata_add_count(ashlar_metadata *metadata, const char *key, uint64_t value);
void ashlar__metadata_add_real(ashlar_metadata *metadata, const char *key, double value);
void ashlar__metadata_add_random(ashlar_metadata *metadata, const char *key,
                                 const ashlar_random *random);

#endif /* ASHLAR_METADATA_H */
