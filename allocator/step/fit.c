/*
 * fit.c - finding the largest value, of a batch size for example, with which a program runs on a
 * device of a given size, and the smallest device on which it runs with that value.
 */
#include <ashlar/plan.h>

#include "allocator/base/error.h"
#include "allocator/core/core.h"
#include "allocator/device/device_impl.h"

#define GRANULE_BYTES ((size_t)2 << 20)

typedef struct search {
    ashlar_device *device;
    ashlar_fit_options options;
    size_t trials;
    size_t reserved_bytes; /* the most memory that the last trial reserved */
} search;

/* Run the program with a value on a device of `bytes` bytes. *runs: whether the memory sufficed. */
static ashlar_status try(search *s, size_t value, size_t bytes, bool *runs) {
    ashlar_allocator *allocator = NULL;
    ashlar_stats stats;
    ASHLAR_TRY(ashlar_allocator_create(s->device, &allocator));
    ashlar__allocator_pretend(allocator, bytes);
    const ashlar_status status = s->options.run(s->options.user, allocator, value);
    ashlar_allocator_get_stats(allocator, &stats);
    ashlar_allocator_destroy(allocator);
    s->trials++;
    s->reserved_bytes = (size_t)stats.reserved_peak_bytes;
    *runs = status == ASHLAR_OK;
    return status == ASHLAR_ENOMEM ? ASHLAR_OK : status;
}

/*
 * Find the largest value: double it first, then bisect.
 *
 * Invariant: `value` runs; `beyond` does not run, or is above max_value.
 */
static ashlar_status find_value(search *s, size_t bytes, size_t *out) {
    const size_t last = s->options.max_value;
    size_t value = s->options.min_value, beyond = last + 1;
    bool runs = false;
    ASHLAR_TRY(try(s, value, bytes, &runs));
    if (!runs) {
        return ASHLAR_ENOMEM; /* the detail is that of the failed trial */
    }
    for (bool is_doubling = true; beyond - value > 1;) {
        const size_t middle =
            is_doubling && value < beyond / 2 ? 2 * value : value + (beyond - value) / 2;
        ASHLAR_TRY(try(s, middle, bytes, &runs));
        *(runs ? &value : &beyond) = middle;
        is_doubling = is_doubling && runs;
    }
    *out = value;
    return ASHLAR_OK;
}

/*
 * Find the smallest device that the value runs on. `most` is the size of a device that it runs on.
 *
 * Invariant, in granules: the value runs on `enough`, and does not run on `few`.
 */
static ashlar_status find_need(search *s, size_t value, size_t most, size_t *out) {
    size_t few = 0, enough = most / GRANULE_BYTES;
    bool runs = true;
    while (enough - few > 1) {
        const size_t middle = few + (enough - few) / 2;
        ASHLAR_TRY(try(s, value, middle * GRANULE_BYTES, &runs));
        *(runs ? &enough : &few) = middle;
    }
    *out = enough * GRANULE_BYTES;
    return ASHLAR_OK;
}

static ashlar_status fit(search *s, size_t bytes, ashlar_fit_result *out) {
    bool runs = false;
    ASHLAR_TRY(find_value(s, bytes, &out->value));
    ASHLAR_TRY(try(s, out->value, bytes, &runs)); /* the last trial may have had another value */
    ASHLAR_FAIL_IF(!runs, ASHLAR_EINVAL, "fit: run takes other memory the second time, for %zu",
                   out->value);
    /* Begin with a device that has just what the last trial reserved, in whole granules. */
    const size_t most = (s->reserved_bytes + GRANULE_BYTES - 1) & ~(GRANULE_BYTES - 1);
    ASHLAR_TRY(try(s, out->value, most, &runs));
    ASHLAR_TRY(find_need(s, out->value, runs ? most : bytes, &out->need_bytes));
    out->trials = s->trials;
    return ASHLAR_OK;
}

static ashlar_status check(const search *s, size_t bytes) {
    const ashlar_fit_options *o = &s->options;
    const size_t has = (size_t)s->device->info.total_bytes;
    ASHLAR_FAIL_IF(s->device->info.kind != ASHLAR_DEVICE_SOFT, ASHLAR_ENOTSUP,
                   "fit: it is found on a software device; open \"soft\"");
    ASHLAR_FAIL_IF(o->run == NULL, ASHLAR_EINVAL, "fit: run is NULL");
    ASHLAR_FAIL_IF(o->max_value < o->min_value || o->max_value == SIZE_MAX, ASHLAR_EINVAL,
                   "fit: values %zu to %zu; give max_value, at least min_value", o->min_value,
                   o->max_value);
    ASHLAR_FAIL_IF(bytes < GRANULE_BYTES || bytes > has, ASHLAR_EINVAL,
                   "fit: a device of %zu bytes; give %zu to what the software device has, %zu "
                   "(ASHLAR_SOFT=memory=...)",
                   bytes, GRANULE_BYTES, has);
    return ASHLAR_OK;
}

ashlar_status ashlar_fit(ashlar_device *device, const ashlar_fit_options *options,
                         ashlar_fit_result *out) {
    ashlar_fit_options chosen = ASHLAR_OR_ZERO(ashlar_fit_options, options);
    search s = {.device = device, .options = chosen};
    ashlar_fit_result result = {0};
    size_t bytes =
        chosen.device_bytes != 0 ? chosen.device_bytes : (size_t)device->info.total_bytes;
    s.options.min_value += chosen.min_value == 0;
    bytes &= ~(GRANULE_BYTES - 1);
    ASHLAR_TRY(check(&s, bytes));
    ASHLAR_TRY(fit(&s, bytes, &result));
    *out = result;
    return ASHLAR_OK;
}
