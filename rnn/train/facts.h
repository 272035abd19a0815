/*
 * facts.h - texts under keys, built up one by one: the metadata of a training's file (internal).
 *
 * Real numbers are written so that reading them gives every bit back.
 */
#ifndef ASHLAR_FACTS_H
#define ASHLAR_FACTS_H

#include <stdint.h>

#include <ashlar/checkpoint.h>

#include "allocator/base/random.h"

enum { ASHLAR_FACTS_MAX = 64, ASHLAR_FACT_BYTES = 768 };

typedef struct ashlar_facts {
    ashlar_checkpoint_pair pairs[ASHLAR_FACTS_MAX]; /* the values lie in texts */
    char texts[ASHLAR_FACTS_MAX][ASHLAR_FACT_BYTES];
    size_t count;
} ashlar_facts;

/*
 * A new fact; the caller prints its text into the ASHLAR_FACT_BYTES bytes that are returned.
 * `key` must outlive the facts, of which there are at most ASHLAR_FACTS_MAX.
 */
char *ashlar_facts_add(ashlar_facts *facts, const char *key);

void ashlar_facts_add_text(ashlar_facts *facts, const char *key, const char *value);
void ashlar_facts_add_count(ashlar_facts *facts, const char *key, uint64_t value);
void ashlar_facts_add_real(ashlar_facts *facts, const char *key, double value);
void ashlar_facts_add_random(ashlar_facts *facts, const char *key, const ashlar_random *random);

#endif /* ASHLAR_FACTS_H */
