/* batch_sampler.c - draws seeded batches of similar lengths, window by window. */
#include "rnn/data/batch_sampler.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"

/* An item drawn into the window. */
typedef struct drawn_item {
    ashlar_batch_sampler_item item;
    size_t draw; /* position in draw order; breaks ties, since qsort() is not stable */
} drawn_item;

/* Invariants: `items` holds the caller's items in this epoch's order; batch_order[] is a
 * permutation of 0 .. window - 1; drawn_count <= item_count; batches_left <= window */
struct ashlar_batch_sampler {
    size_t batch;
    size_t window;
    ashlar_random random;
    ashlar_batch_sampler_item *items; /* [item_count] */
    size_t item_count;
    size_t drawn_count;               /* items drawn in this epoch */
    drawn_item *drawn;                /* [window * batch], the window's items, for sorting */
    ashlar_batch_sampler_item *ready; /* [window * batch], the window's items in sorted order */
    size_t *batch_order;              /* [window] */
    size_t batches_left;              /* not handed out yet: the first entries of batch_order */
    double handed_out;                /* items handed out in all epochs; exact up to 2^53 */
};

static void shuffle(ashlar_random *random, void *array, size_t count, size_t item_bytes) {
    char *items = array, swap[sizeof(ashlar_batch_sampler_item)];
    ASHLAR_CHECK2(item_bytes <= sizeof swap);
    for (size_t i = count; i > 1; i--) {
        char *last = items + (i - 1) * item_bytes;
        char *other = items + (size_t)ashlar__random_below(random, i) * item_bytes;
        memcpy(swap, last, item_bytes);
        memmove(last, other, item_bytes); /* `other` may be the last item itself */
        memcpy(other, swap, item_bytes);
    }
}

static ashlar_status build(ashlar_batch_sampler *s, const ashlar_batch_sampler_item *items) {
    size_t places;
    ASHLAR_FAIL_IF(!ashlar__mul(s->window, s->batch, &places), ASHLAR_EOVERFLOW,
                   "batch sampler: a window of %zu batches of %zu; use less", s->window, s->batch);
    s->items = ashlar__host_calloc(s->item_count, sizeof *s->items);
    s->drawn = ashlar__host_calloc(places, sizeof *s->drawn);
    s->ready = ashlar__host_calloc(places, sizeof *s->ready);
    s->batch_order = ashlar__host_calloc(s->window, sizeof *s->batch_order);
    ASHLAR_FAIL_IF(
        s->items == NULL || s->drawn == NULL || s->ready == NULL || s->batch_order == NULL,
        ASHLAR_EHOSTMEM, "batch sampler: no host memory for %zu items and a window of %zu",
        s->item_count, places);
    memcpy(s->items, items, s->item_count * sizeof *items);
    for (size_t i = 0; i < s->window; i++) {
        s->batch_order[i] = i;
    }
    s->drawn_count = s->item_count; /* so that the first draw starts an epoch */
    return ASHLAR_OK;
}

ashlar_status ashlar__batch_sampler_create(const ashlar_batch_sampler_item *items, size_t count,
                                           size_t batch, size_t window, uint64_t seed,
                                           ashlar_batch_sampler **out) {
    ASHLAR_FAIL_IF(count == 0 || batch == 0 || window == 0, ASHLAR_EINVAL,
                   "batch sampler: %s is 0; give at least 1",
                   count == 0   ? "the number of items"
                   : batch == 0 ? "batch"
                                : "window");
    ashlar_batch_sampler *s;
    ASHLAR_HOST_NEW(s, 1, "batch sampler: no host memory");
    *s = (ashlar_batch_sampler){.batch = batch, .window = window, .item_count = count};
    ashlar__random_init(&s->random, seed);
    ASHLAR_HAND_OUT(build(s, items), s, ashlar__batch_sampler_destroy, out);
}

void ashlar__batch_sampler_destroy(ashlar_batch_sampler *s) {
    if (s == NULL) {
        return;
    }
    ashlar__host_free(s->items);
    ashlar__host_free(s->drawn);
    ashlar__host_free(s->ready);
    ashlar__host_free(s->batch_order);
    ashlar__host_free(s);
}

static int by_length(const void *a, const void *b) {
    const ashlar_batch_sampler_item *x = a;
    const ashlar_batch_sampler_item *y = b;
    if (x->length != y->length) {
        return x->length < y->length ? 1 : -1;
    }
    return (x->number > y->number) - (x->number < y->number);
}

void ashlar__batch_sort_items(ashlar_batch_sampler_item *items, size_t count) {
    qsort(items, count, sizeof *items, by_length);
}

static int longest_first(const void *a, const void *b) {
    const drawn_item *x = a;
    const drawn_item *y = b;
    if (x->item.length != y->item.length) {
        return x->item.length < y->item.length ? 1 : -1;
    }
    return (x->draw > y->draw) - (x->draw < y->draw);
}

static void fill_window(ashlar_batch_sampler *s) {
    const size_t places = s->window * s->batch;
    for (size_t i = 0; i < places; i++) {
        if (s->drawn_count == s->item_count) {
            shuffle(&s->random, s->items, s->item_count, sizeof *s->items);
            s->drawn_count = 0;
        }
        s->drawn[i] = (drawn_item){s->items[s->drawn_count++], i};
    }
    qsort(s->drawn, places, sizeof *s->drawn, longest_first);
    for (size_t i = 0; i < places; i++) {
        s->ready[i] = s->drawn[i].item;
    }
    shuffle(&s->random, s->batch_order, s->window, sizeof *s->batch_order);
    s->batches_left = s->window;
}

const ashlar_batch_sampler_item *ashlar__batch_sampler_next(ashlar_batch_sampler *s) {
    if (s->batches_left == 0) {
        fill_window(s);
    }
    ASHLAR_CHECK2(s->batches_left <= s->window && s->drawn_count <= s->item_count);
    s->handed_out += (double)s->batch;
    return s->ready + s->batch_order[--s->batches_left] * s->batch;
}

void ashlar__batch_sampler_skip(ashlar_batch_sampler *s, uint64_t batches) {
    for (; batches > 0; batches--) {
        (void)ashlar__batch_sampler_next(s);
    }
}

double ashlar__batch_sampler_epochs(const ashlar_batch_sampler *s) {
    return s->handed_out / (double)s->item_count;
}

ashlar_random ashlar__batch_sampler_random(const ashlar_batch_sampler *s) {
    return s->random;
}
