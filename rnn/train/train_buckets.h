/* train_buckets.h - the ranges of lengths that share a plan, and how their steps ran (internal). */
#ifndef ASHLAR_TRAIN_BUCKETS_H
#define ASHLAR_TRAIN_BUCKETS_H

#include <ashlar/warmup.h>

typedef struct ashlar_train_bucket {
    ashlar_warmup_bucket warm; /* `steps` and calls: of the training, after the warm-up */
    uint64_t launched;         /* of these steps, those that were one launch */
} ashlar_train_bucket;

typedef struct ashlar_train_buckets {
    ashlar_train_bucket *list; /* [count], by length */
    size_t count;
} ashlar_train_buckets;

/* List the buckets of a warm-up, and count from here on. What was listed before is freed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_buckets_begin(ashlar_train_buckets *buckets,
                                                            ashlar_allocator *a,
                                                            const ashlar_warmup_options *warmup);

/* Count a step of this length that was one launch. */
void ashlar__train_buckets_launched(const ashlar_train_buckets *buckets, size_t length);

/* Read the counts of what ran since ashlar__train_buckets_begin(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_buckets_end(ashlar_train_buckets *buckets,
                                                          ashlar_allocator *a,
                                                          const ashlar_warmup_options *warmup);

void ashlar__train_buckets_free(ashlar_train_buckets *buckets);

#endif /* ASHLAR_TRAIN_BUCKETS_H */
