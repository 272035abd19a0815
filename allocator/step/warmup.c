/*
 * warmup.c - the warm-up of a program that works in steps: record every length, plan, prove that
 * later steps change nothing, and seal the allocator.
 */
#include <ashlar/plan.h>

#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/core/core.h"
#include "allocator/base/random.h"
#include "allocator/step/step.h"

/* ---- one length ---- */

typedef struct warmup {
    ashlar_allocator *allocator;
    const ashlar_warmup_options *options;
    bool is_planned; /* the steps get plans */
    bool is_dry_run; /* the steps being recorded get no memory */
    bool has_steps;  /* the thread has a cache, without which it cannot begin a step */
    uint64_t strayed; /* requests that replayed steps made on another stream than recorded */
} warmup;

enum { REASONS_BYTES = 256 };

static const char *const miss_texts[] = {
#define X(name, text) text,
    ASHLAR_PLAN_MISS_MAP(X)
#undef X
};

/* Write the misses between two readings of the statistics into `text`, for example "2 larger than
 * recorded, 1 behind the last recorded allocation". Returns the number of misses. A request on
 * another stream than recorded does not count: a program may take its streams from a pool. */
static uint64_t list_misses(const ashlar_plan_stats *before, const ashlar_plan_stats *after,
                            char text[static REASONS_BYTES]) {
    uint64_t count = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        ASHLAR_CHECK2(before->misses[i] <= after->misses[i]);
        const uint64_t misses =
            i != ASHLAR_PLAN_MISS_STREAM ? after->misses[i] - before->misses[i] : 0;
        if (misses > 0 && at < REASONS_BYTES) {
            at += (size_t)snprintf(text + at, REASONS_BYTES - at, "%s%llu %s", at > 0 ? ", " : "",
                                   (unsigned long long)misses, miss_texts[i]);
        }
        count += misses;
    }
    return count;
}

static ashlar_status begin(const warmup *w, size_t length) {
    const uint64_t key = w->options->key + ashlar__warmup_number_of(w->options, length);
    const ashlar_stream stream = w->options->stream;
    return !w->has_steps   ? ASHLAR_OK
           : w->is_dry_run ? ashlar__dry_run_begin(w->allocator, stream, key)
                           : ashlar_step_begin(w->allocator, stream, key);
}

static ashlar_status end(const warmup *w) {
    return !w->has_steps   ? ASHLAR_OK
           : w->is_dry_run ? ashlar__dry_run_end(w->allocator)
                           : ashlar_step_end(w->allocator);
}

/* Run `fn` as a step of this length. If the step is replayed, a miss is an error. */
static ashlar_status visit(warmup *w, ashlar_warmup_fn fn, size_t length) {
    ashlar_plan_stats before, after;
    char reasons[REASONS_BYTES];
    ASHLAR_CHECK2(fn != NULL && (!w->is_dry_run || fn == w->options->dry_run));
    ashlar_plan_get_stats(w->allocator, &before);
    ashlar_status status = begin(w, length);
    ASHLAR_THEN(status, fn(w->options->user, length));
    ASHLAR_THEN(status, end(w));
    ashlar_plan_get_stats(w->allocator, &after);
    w->strayed += after.misses[ASHLAR_PLAN_MISS_STREAM] - before.misses[ASHLAR_PLAN_MISS_STREAM];
    if (status == ASHLAR_OK && list_misses(&before, &after, reasons) > 0) {
        status = ashlar__fail(ASHLAR_EINVAL,
                              "requests of the step were not served from its plan (%s); it must "
                              "allocate as it did when it was recorded",
                              reasons);
    }
    return status == ASHLAR_OK
               ? ASHLAR_OK
               : ashlar__fail(status, "warm-up at length %zu: %s", length, ashlar_error_detail());
}

/* Visit all lengths, the longest first. */
static ashlar_status pass(warmup *w) {
    const ashlar_warmup_options *o = w->options;
    for (size_t length = o->max_length; length > 0;
         length = ashlar__warmup_length_below(o, length)) {
        ASHLAR_TRY(visit(w, o->dry_run != NULL ? o->dry_run : o->step, length));
        if (w->is_dry_run) {
            ASHLAR_TRY(ashlar__warmup_join(w->allocator, o, length));
        }
    }
    return ASHLAR_OK;
}

/* ---- the parts of a warm-up ---- */

/* Give all free memory back to the device. The first trim records an event on each stream. After a
 * wait, the second trim finds these events completed, and so knows that the streams are done. A
 * trim records no event on a stream that has one pending, so there is a wait before the first trim,
 * too. */
static ashlar_status give_back(ashlar_allocator *a) {
    for (int i = 0; i < 2; i++) {
        ASHLAR_TRY(ashlar__device_synchronize(a->device));
        ASHLAR_TRY(ashlar_allocator_trim(a, 0));
    }
    return ASHLAR_OK;
}

/* Record all lengths. After a failure is_dry_run may still be set, so that undo() ends the step. */
static ashlar_status record(warmup *w) {
    ASHLAR_CHECK2(w->is_planned && !w->is_dry_run);
    w->is_dry_run = w->options->dry_run != NULL;
    ASHLAR_TRY(pass(w));
    /* Join again: the more the largest step needs, the more may a plan of several lengths need, and
     * that step may have been recorded after others. */
    for (size_t length = w->options->max_length;
         w->is_dry_run && length > w->options->min_length;) {
        ASHLAR_TRY(ashlar__warmup_join(w->allocator, w->options, --length));
    }
    w->is_dry_run = false; /* a replay needs memory */
    return ASHLAR_OK;
}

/* Record the steps. Then give all free memory back before the plans take theirs, so that no hole is
 * left beside a plan's memory. */
static ashlar_status plan(warmup *w) {
    ASHLAR_TRY(record(w));
    ASHLAR_TRY(give_back(w->allocator));
    const ashlar_status status = ashlar_plan_build(w->allocator);
    return status != ASHLAR_ENOMEM
               ? status
               : ashlar__fail(status,
                              "warm-up: no memory for the plan of a step of length %zu; make the "
                              "steps shorter or smaller: %s",
                              w->options->max_length, ashlar_error_detail());
}

/* ---- the proof ---- */

/* What the memory looks like before or after a pass. */
typedef struct picture {
    ashlar_stats stats;
    uint64_t layout; /* hash of each window's zone, and of how much of the window is mapped */
    uint64_t cross_frees, left_cross, short_count; /* the heap's fields of the same names */
} picture;

static picture look(ashlar_allocator *a) {
    picture p = {.layout = 0};
    ashlar_allocator_get_stats(a, &p.stats);
    ashlar__allocator_enter(a);
    for (const ashlar_window *w = a->heap.windows; w != NULL; w = w->above) {
        const uint64_t parts[] = {w->offset, (uint64_t)(uintptr_t)w->zone, w->mapped_count};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            p.layout = ashlar__random_mix(p.layout + parts[i]);
        }
    }
    p.cross_frees = a->heap.cross_frees;
    p.left_cross = a->heap.left_cross;
    p.short_count = a->heap.short_count;
    ashlar__allocator_leave(a);
    return p;
}

/* The number of requests that were served without mapping memory or taking another stream's. */
static uint64_t served_in_place(const ashlar_stats *s) {
    return s->served_planned + s->served_cached + s->served_same_stream + s->served_idle;
}

/* Whether the memory was the same before and after a pass, and served all requests in between. */
static bool is_repeated(const picture *before, const picture *after) {
    return before->layout == after->layout && before->short_count == after->short_count &&
           before->left_cross == after->left_cross &&
           before->stats.reserved_bytes == after->stats.reserved_bytes &&
           after->stats.alloc_count - before->stats.alloc_count ==
               served_in_place(&after->stats) - served_in_place(&before->stats);
}

/* Whether plans served all requests between the two pictures. */
static bool is_all_planned(const picture *before, const picture *after) {
    return after->stats.alloc_count - before->stats.alloc_count ==
           after->stats.served_planned - before->stats.served_planned;
}

/* Choose whether later steps of each length begin with an empty cache and with all blocks that were
 * used on several streams back in gaps: see ashlar_step_key.is_held. */
static void hold_steps(const warmup *w, bool is_held) {
    ashlar_allocator *a = w->allocator;
    const uint64_t last = ashlar__warmup_number_of(w->options, w->options->max_length);
    ashlar__allocator_enter(a);
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (key->key - w->options->key <= last) {
            key->is_held = is_held;
            key->is_warmed = true;
            key->warmup_key = w->options->key;
            key->is_ordinary = !w->is_planned;
        }
    }
    if (w->has_steps) {
        ashlar__cycle_restart(ashlar__cache_get(a)); /* other threads cannot empty this thread's
                                                        cache */
    }
    ashlar__allocator_leave(a);
}

/*
 * Returns why a pass that changed nothing does not prove that later passes change nothing either;
 * NULL: it does prove this.
 *
 * Plans serve the same requests in whatever order the steps come. On the ordinary path a block's
 * address follows from the requests since the step began, and from the memory that was free at its
 * beginning. If steps are held (see ashlar_step_key.is_held), all memory that they use is free
 * then. So a length gets the same addresses each time, and these have memory. Nothing proves this
 * for a length that has not run; nor without steps, when a freed block that several streams used
 * becomes free again at an unpredictable moment, as soon as the device is done with it.
 */
static const char *doubt(const warmup *w, const picture *before, const picture *after) {
    if (ashlar__allocator_is_guarded(w->allocator)) {
        return "a guard mode is on, which keeps freed memory for a while";
    }
    if (w->strayed > 0) {
        return "requests come on other streams than when their step was recorded";
    }
    const ashlar_warmup_options *o = w->options;
    const bool visits_all = ashlar__warmup_visit_count(o) == o->max_length - o->min_length + 1;
    if (!visits_all && !is_all_planned(before, after)) {
        return "the ordinary path serves requests, and without a dry run not every length has run";
    }
    return !w->has_steps && before->cross_frees != after->cross_frees
               ? "blocks are used on several streams, and the thread has no cache"
               : NULL;
}

/*
 * Repeat passes over all lengths until a pass changes nothing.
 *
 * One pass may not be enough: on the ordinary path a shorter step may place its blocks in other
 * holes. Memory that a pass maps stays mapped, so the passes come to an end. But if memory is
 * short, streams may take it from each other forever.
 */
static ashlar_status prove(warmup *w, ashlar_warmup_report *report) {
    bool is_repeating = false, is_planned = false;
    report->unsteady_because = "every pass took memory from the driver or from another stream";
    while (!is_repeating && report->pass_count < ASHLAR_WARMUP_PASSES_MAX) {
        const picture before = look(w->allocator);
        ASHLAR_TRY(pass(w));
        const picture after = look(w->allocator);
        report->pass_count++;
        is_repeating = is_repeated(&before, &after);
        is_planned = is_all_planned(&before, &after);
        if (is_repeating) {
            report->unsteady_because = doubt(w, &before, &after);
        }
    }
    report->is_steady = report->unsteady_because == NULL;
    hold_steps(w, report->is_steady && !is_planned);
    return ASHLAR_OK;
}

/* Run real steps: the longest, and on a CUDA device others, since cuDNN, cuBLAS and modules that
 * are loaded lazily take memory of their own when a size first wants another of their kernels. */
static ashlar_status run_steps(warmup *w) {
    const ashlar_warmup_options *o = w->options;
    const bool has_libraries = w->allocator->device->info.kind == ASHLAR_DEVICE_CUDA;
    size_t length = o->max_length;
    ASHLAR_TRY(visit(w, o->step, length));
    while (has_libraries && length > o->min_length) {
        length = length / 2 > o->min_length ? length / 2 : o->min_length;
        ASHLAR_TRY(visit(w, o->step, length));
    }
    return ASHLAR_OK;
}

static ashlar_status replay(warmup *w, ashlar_warmup_report *report) {
    const ashlar_warmup_options *o = w->options;
    if (w->has_steps && (!w->is_planned || o->dry_run == NULL)) {
        ASHLAR_TRY(ashlar__warmup_share_keys(w->allocator, o, !w->is_planned));
    }
    if (w->is_planned) {
        ASHLAR_TRY(plan(w));
    }
    hold_steps(w, true);
    if (o->step != NULL && o->dry_run != NULL) {
        ASHLAR_TRY(run_steps(w));
    }
    ASHLAR_TRY(prove(w, report));
    return ashlar__device_synchronize(w->allocator->device);
}

/* ---- before and after ---- */

static ashlar_status check_options(const ashlar_warmup_options *o) {
    ASHLAR_FAIL_IF(o->min_length > o->max_length, ASHLAR_EINVAL,
                   "warm-up: lengths %zu to %zu; give max_length, and min_length from 1 to it",
                   o->min_length, o->max_length);
    ASHLAR_FAIL_IF(o->step == NULL && o->dry_run == NULL, ASHLAR_EINVAL,
                   "warm-up: give a step, a dry run, or both");
    return ASHLAR_OK;
}

static ashlar_status forget(const warmup *w) {
    const ashlar_warmup_options *o = w->options;
    return ashlar__planner_forget_keys(w->allocator, o->key,
                                       ashlar__warmup_number_of(o, o->max_length) + 1);
}

/* Set the option build_after. Returns its old value. */
static uint32_t set_build_after(ashlar_allocator *a, uint32_t step_count) {
    ashlar__lock_acquire(&a->lock);
    const uint32_t before = a->planner.options.build_after;
    a->planner.options.build_after = step_count;
    ashlar__lock_release(&a->lock);
    return before;
}

/* After a failure, drop the plans and recordings, and give back what memory is free. Returns
 * `status`, and restores its error detail. */
static ashlar_status undo(const warmup *w, ashlar_status status) {
    char detail[ASHLAR_DETAIL_BYTES];
    memcpy(detail, ashlar_error_detail(), sizeof detail);
    ashlar_status ignored = end(w); /* perhaps no step has begun; only `status` counts */
    ignored = forget(w);
    ignored = give_back(w->allocator);
    (void)ignored;
    return ashlar_error_set(status, detail);
}

static void fill_report(const warmup *w, const ashlar_stats *before, ashlar_warmup_report *report) {
    const ashlar_warmup_options *o = w->options;
    ashlar_stats after;
    ashlar_allocator_get_stats(w->allocator, &after);
    ashlar_plan_get_stats(w->allocator, &report->plan);
    ASHLAR_CHECK2(report->plan.bound_bytes <= report->plan.plan_bytes);
    ASHLAR_CHECK2(before->driver_calls <= after.driver_calls);
    report->is_planned = w->is_planned;
    report->length_count = ashlar__warmup_visit_count(o);
    report->gap = report->plan.bound_bytes == 0
                      ? 0
                      : (double)report->plan.plan_bytes / (double)report->plan.bound_bytes - 1;
    report->reserved_bytes = after.reserved_bytes;
    report->driver_calls = after.driver_calls - before->driver_calls;
}

ashlar_status ashlar_allocator_warmup(ashlar_allocator *a, const ashlar_warmup_options *options,
                                      ashlar_warmup_report *out) {
    const ashlar_warmup_options chosen = ashlar__warmup_chosen(options);
    warmup w = {.allocator = a, .options = &chosen};
    ashlar_warmup_report report = {0};
    ashlar_stats before;
    ASHLAR_TRY(check_options(&chosen));
    ASHLAR_TRY(forget(&w));
    w.has_steps = ashlar__cache_get(a) != NULL;
    w.is_planned = !chosen.without_plan && w.has_steps;
    ashlar_allocator_get_stats(a, &before);
    const uint32_t build_after = set_build_after(a, ASHLAR_PLAN_BUILD_NEVER);
    ashlar_status status = replay(&w, &report);
    if (status != ASHLAR_OK) {
        status = undo(&w, status);
    }
    (void)set_build_after(a, build_after);
    ASHLAR_TRY(status);
    ashlar_allocator_seal(a);
    fill_report(&w, &before, &report);
    if (out != NULL) {
        *out = report;
    }
    return ASHLAR_OK;
}
