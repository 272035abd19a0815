/* warmup_lengths.c - which lengths a warm-up goes through, and which of them share a key. */
#include <ashlar/plan.h>

#include "allocator/base/error.h"
#include "allocator/core/core.h"
#include "allocator/step/step.h"

/* The number of lengths in one of the ranges that the program asks for. The range of the longest
 * lengths may have fewer. */
static size_t range_width(const ashlar_warmup_options *o) {
    const size_t others = o->max_length - o->min_length;
    return o->length_range_count == 0 ? others + 1 : others / o->length_range_count + 1;
}

uint64_t ashlar__warmup_number_of(const ashlar_warmup_options *o, size_t length) {
    const size_t at_most = length < o->max_length ? length : o->max_length;
    return at_most > o->min_length ? at_most - o->min_length : 0;
}

/* The number of the first length in the range of `length`. */
static uint64_t first_number(const ashlar_warmup_options *o, size_t length) {
    const uint64_t number = ashlar__warmup_number_of(o, length);
    return number - number % range_width(o);
}

/* The number of the last length in that range. */
static uint64_t last_number(const ashlar_warmup_options *o, size_t length) {
    const uint64_t last = ashlar__warmup_number_of(o, o->max_length);
    const uint64_t first = first_number(o, length), others = range_width(o) - 1;
    return others < last - first ? first + others : last;
}

ashlar_warmup_options ashlar__warmup_chosen(const ashlar_warmup_options *options) {
    ashlar_warmup_options o = ASHLAR_OR_ZERO(ashlar_warmup_options, options);
    o.min_length = o.min_length != 0 ? o.min_length : 1;
    return o;
}

uint64_t ashlar_warmup_key(const ashlar_warmup_options *options, size_t length) {
    ashlar_warmup_options o = ashlar__warmup_chosen(options);
    /* options that have not been checked may have max_length < min_length */
    o.max_length = o.max_length > o.min_length ? o.max_length : o.min_length;
    return o.key + ashlar__warmup_number_of(&o, length);
}

size_t ashlar__warmup_length_below(const ashlar_warmup_options *o, size_t length) {
    ASHLAR_CHECK2(o->min_length <= length && length <= o->max_length);
    const size_t first =
        o->dry_run != NULL ? length : o->min_length + (size_t)first_number(o, length);
    ASHLAR_CHECK2(o->min_length <= first && first <= length); /* so that a pass ends */
    return first > o->min_length ? first - 1 : 0;
}

size_t ashlar__warmup_visit_count(const ashlar_warmup_options *o) {
    const size_t others = o->max_length - o->min_length;
    return o->dry_run != NULL ? others + 1 : others / range_width(o) + 1;
}

static ashlar_status share_keys_locked(ashlar_allocator *a, const ashlar_warmup_options *o,
                                       bool is_one, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    const uint64_t last = ashlar__warmup_number_of(o, o->max_length);
    for (size_t length = o->max_length; length > 0;
         length = is_one ? 0 : ashlar__warmup_length_below(o, length)) {
        const uint64_t first = is_one ? 0 : first_number(o, length);
        ashlar_step_key *key = NULL;
        ASHLAR_TRY(ashlar__step_key_of_locked(a, o->key + first, state, &key));
        key->number_count = (is_one ? last : last_number(o, length)) - first + 1;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__warmup_share_keys(ashlar_allocator *a, const ashlar_warmup_options *o,
                                        bool is_one) {
    ashlar_stream_state *state = NULL;
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__stream_state_of_locked(a, o->stream, &state);
    if (status == ASHLAR_OK && state->pool == NULL) {
        status = share_keys_locked(a, o, is_one, state);
    }
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar__warmup_join(ashlar_allocator *a, const ashlar_warmup_options *o,
                                  size_t length) {
    ashlar_stream_state *state = NULL;
    const uint64_t number = o->key + ashlar__warmup_number_of(o, length);
    const uint64_t last = o->key + last_number(o, length);
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__stream_state_of_locked(a, o->stream, &state);
    ASHLAR_THEN(status, ashlar__step_key_join_locked(a, number, last, state));
    ashlar__allocator_leave(a);
    return status;
}
