/* train_buckets.c - lists the ranges of lengths that share a plan, and how their steps ran. */
#include "rnn/train/train_buckets.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* The allocator's list, newly allocated. */
static ashlar_status read_list(ashlar_allocator *a, const ashlar_warmup_options *warmup,
                               ashlar_warmup_bucket **out, size_t *count) {
    ashlar_warmup_bucket *list;
    ASHLAR_TRY(ashlar_warmup_list_buckets(a, warmup, NULL, 0, count));
    list = ashlar__host_calloc(*count + 1, sizeof *list);
    if (list == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a list of %zu buckets", *count);
    }
    ASHLAR_HAND_OUT(ashlar_warmup_list_buckets(a, warmup, list, *count, count), list,
                    ashlar__host_free, out);
}

ashlar_status ashlar__train_buckets_begin(ashlar_train_buckets *buckets, ashlar_allocator *a,
                                          const ashlar_warmup_options *warmup) {
    ashlar_warmup_bucket *warm = NULL;
    size_t count;
    ASHLAR_TRY(read_list(a, warmup, &warm, &count));
    ashlar_train_bucket *list = ashlar__host_calloc(count + 1, sizeof *list);
    for (size_t i = 0; i < count && list != NULL; i++) {
        list[i].warm = warm[i];
    }
    ashlar__host_free(warm);
    if (list == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a list of %zu buckets", count);
    }
    ashlar__train_buckets_free(buckets);
    *buckets = (ashlar_train_buckets){list, count};
    return ASHLAR_OK;
}

void ashlar__train_buckets_launched(const ashlar_train_buckets *buckets, size_t length) {
    for (size_t i = 0; i < buckets->count; i++) {
        ashlar_train_bucket *b = &buckets->list[i];
        b->launched += b->warm.first_length <= length && length <= b->warm.last_length;
    }
}

/* The list is as it was at the beginning, unless the program dropped plans. */
ashlar_status ashlar__train_buckets_end(ashlar_train_buckets *buckets, ashlar_allocator *a,
                                        const ashlar_warmup_options *warmup) {
    ashlar_warmup_bucket *now = NULL;
    size_t count;
    ASHLAR_TRY(read_list(a, warmup, &now, &count));
    for (size_t i = 0; i < buckets->count && i < count; i++) {
        ashlar_warmup_bucket *warm = &buckets->list[i].warm;
        now[i].steps -= warm->steps;
        now[i].calls -= warm->calls;
        now[i].own_calls -= warm->own_calls;
        *warm = now[i];
    }
    ashlar__host_free(now);
    return ASHLAR_OK;
}

void ashlar__train_buckets_free(ashlar_train_buckets *buckets) {
    ashlar__host_free(buckets->list);
    *buckets = (ashlar_train_buckets){0};
}
