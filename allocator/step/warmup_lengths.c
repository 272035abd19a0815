/* warmup_lengths.c - which lengths a warm-up goes through, and which of them share a key. */
#include "allocator/step/warmup_lengths.h"

#include "allocator/core/hold.h"
#include "allocator/core/streams.h"
#include "allocator/step/step.h"

/* Whether the lengths that share a plan are found by their recordings. */
static bool finds_buckets(const ashlar_warmup_options *o) {
    return o->length_bucket_count == 0 && o->dry_run != NULL;
}

size_t ashlar__warmup_bucket_width(const ashlar_warmup_options *o) {
    const size_t count = o->length_bucket_count > 0 ? o->length_bucket_count : 1;
    return finds_buckets(o) ? 1 : (o->max_length - o->min_length) / count + 1;
}

size_t ashlar__warmup_bucket_of(const ashlar_warmup_options *o, size_t length) {
    const size_t at_most = length < o->max_length ? length : o->max_length;
    const size_t above = at_most > o->min_length ? at_most - o->min_length : 0;
    return above / ashlar__warmup_bucket_width(o);
}

uint64_t ashlar_warmup_key(const ashlar_warmup_options *options, size_t length) {
    return options->key + ashlar__warmup_bucket_of(options, length);
}

size_t ashlar__warmup_length_below(const ashlar_warmup_options *o, size_t length) {
    size_t first = length; /* the shortest length that this visit covers */
    ASHLAR_CHECK2(o->min_length <= length && length <= o->max_length);
    if (o->dry_run == NULL) {
        first = o->min_length + ashlar__warmup_bucket_of(o, length) * ashlar__warmup_bucket_width(o);
    }
    ASHLAR_CHECK2(o->min_length <= first && first <= length); /* so a pass ends */
    return first > o->min_length ? first - 1 : 0;
}

ashlar_status ashlar__warmup_join(ashlar_allocator *a, const ashlar_warmup_options *o,
                                  size_t length) {
    ashlar_stream_state *state = NULL;
    if (!finds_buckets(o)) {
        return ASHLAR_OK;
    }
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__stream_state_of_locked(a, o->stream, &state);
    if (status == ASHLAR_OK) {
        status = ashlar__step_key_join_locked(a, ashlar_warmup_key(o, length), state);
    }
    ashlar__allocator_leave(a);
    return status;
}
