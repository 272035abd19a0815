/* plan_file.c - saving the plans of an allocator to a file, and loading them into another one. */
#include <ashlar/plan_file.h>

#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/streams.h"
#include "allocator/step/plan_image.h"
#include "allocator/step/step.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"

static const char *text_of(const char *fingerprint) {
    return fingerprint != NULL ? fingerprint : "";
}

/* ---- saving ---- */

/* The streams of an image. A stream's index is its number in the file. */
typedef struct numbering {
    const ashlar_stream_state **stream_states; /* [room]; room for every stream of every key */
    size_t room;
    uint32_t count;
} numbering;

static uint32_t number_of(numbering *n, const ashlar_stream_state *state) {
    uint32_t i = 0;
    while (i < n->count && n->stream_states[i] != state) {
        i++;
    }
    if (i == n->count) {
        ASHLAR_CHECK2(n->count < n->room);
        n->stream_states[n->count++] = state;
    }
    return i;
}

static ashlar_status copy_key(const ashlar_step_key *key, numbering *streams,
                              ashlar_image_key *out) {
    const ashlar_recording *from = &key->recording;
    ashlar_recording *to = &out->recording;
    ASHLAR_CHECK2(key->is_current && !key->is_busy && !from->is_incomplete);
    ASHLAR_CHECK2(key->plan->count == from->count);
    *out = (ashlar_image_key){
        .key = key->key, .number_count = key->number_count, .step_count = key->step_count};
    out->stream = number_of(streams, key->stream_state);
    to->allocs = ashlar__host_calloc((size_t)from->count + 1, sizeof *to->allocs);
    if (to->allocs == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the copy of a plan");
    }
    for (uint32_t stream_idx = 0; stream_idx < from->stream_count; stream_idx++) {
        out->streams[stream_idx] = number_of(streams, from->stream_states[stream_idx]);
        to->peaks[stream_idx] = from->peaks[stream_idx];
    }
    for (uint32_t i = 0; i < from->count; i++) {
        to->allocs[i] = from->allocs[i];
    }
    to->stream_count = from->stream_count;
    to->count = from->count;
    return ashlar__plan_restore(to, key->plan->offsets, &out->plan);
}

/* Count the keys to save: all that have recorded steps. Each must have an up-to-date plan. */
static ashlar_status count_keys(const ashlar_allocator *a, uint32_t *out) {
    uint32_t count = 0;
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (key->step_count > 0 && !key->is_current) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "key %llu was recorded, but not planned since; call "
                                "ashlar_plan_build() before its plan is saved",
                                (unsigned long long)key->key);
        }
        if (key->step_count > 0 && key->plan == NULL) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "key %llu has no plan, for there was no memory for it; call "
                                "ashlar_plan_build() before plans are saved",
                                (unsigned long long)key->key);
        }
        count += key->step_count > 0;
    }
    if (count == 0 || count > ASHLAR_PLAN_FILE_KEYS_MAX) {
        return ashlar__fail(ASHLAR_EINVAL, "%u keys have plans to save; record 1 .. %d", count,
                            ASHLAR_PLAN_FILE_KEYS_MAX);
    }
    *out = count;
    return ASHLAR_OK;
}

/* List the oldest key first. Loading puts each key in front of the planner's list, so saving loaded
 * plans writes the same file again. */
static void list_keys(const ashlar_allocator *a, const ashlar_step_key **keys, uint32_t count) {
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (key->step_count > 0) {
            ASHLAR_CHECK2(count > 0);
            keys[--count] = key;
        }
    }
    ASHLAR_CHECK2(count == 0);
}

static ashlar_status copy_keys(const ashlar_allocator *a, ashlar_plan_image *image) {
    enum { STREAMS_OF_KEY = ASHLAR_PLAN_STREAMS_MAX + 1 };
    uint32_t count = 0;
    ashlar_status status = count_keys(a, &count);
    if (status != ASHLAR_OK) {
        return status;
    }
    const ashlar_step_key **keys = ashlar__host_calloc(count, sizeof(ashlar_step_key *));
    numbering streams = {.room = (size_t)count * STREAMS_OF_KEY};
    streams.stream_states = ashlar__host_calloc(streams.room, sizeof(ashlar_stream_state *));
    image->keys = ashlar__host_calloc(count, sizeof *image->keys);
    if (keys == NULL || streams.stream_states == NULL || image->keys == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the copies of %u plans", count);
    } else {
        list_keys(a, keys, count);
    }
    for (uint32_t i = 0; i < count && status == ASHLAR_OK; i++) {
        image->key_count++;
        status = copy_key(keys[i], &streams, &image->keys[i]);
    }
    image->stream_count = streams.count;
    ashlar__host_free((void *)keys);
    ashlar__host_free((void *)streams.stream_states);
    return status;
}

static ashlar_status copy_text(const char *text, char **out) {
    const size_t bytes = strlen(text) + 1;
    *out = ashlar__host_calloc(bytes, 1);
    if (*out == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the fingerprint of plans");
    }
    memcpy(*out, text, bytes);
    return ASHLAR_OK;
}

ashlar_status ashlar_plan_save(ashlar_allocator *a, const char *path, const char *fingerprint) {
    ashlar_plan_image image = {0};
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_status status = ashlar__plan_check_fingerprint(text_of(fingerprint));
    if (status == ASHLAR_OK) {
        status = copy_text(text_of(fingerprint), &image.fingerprint);
    }
    if (status == ASHLAR_OK) {
        ashlar__allocator_enter(a);
        status = ashlar__planner_refuse_busy_locked(&a->planner);
        status = status == ASHLAR_OK ? copy_keys(a, &image) : status;
        ashlar__allocator_leave(a);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__plan_image_write(&image, path);
    }
    ashlar__plan_image_finish(&image);
    return status;
}

/* ---- loading plans ---- */

/* The keys that a load moves from an image into the allocator, and their streams' states. */
typedef struct arrival {
    ashlar_step_key **keys; /* [count] */
    uint32_t count;
    ashlar_stream_state **stream_states; /* [state_count], indexed by the image's stream numbers */
    uint32_t state_count;
} arrival;

static void finish_arrival(arrival *in, bool has_arrived) {
    for (uint32_t i = 0; in->keys != NULL && i < in->count && !has_arrived; i++) {
        ashlar__planner_free_key(in->keys[i]);
    }
    ashlar__host_free((void *)in->keys);
    ashlar__host_free((void *)in->stream_states);
}

static ashlar_status prepare_arrival(ashlar_plan_image *image, arrival *in) {
    in->keys = ashlar__host_calloc(image->key_count, sizeof(ashlar_step_key *));
    in->stream_states = ashlar__host_calloc(image->stream_count, sizeof(ashlar_stream_state *));
    bool has_room = in->keys != NULL && in->stream_states != NULL;
    ASHLAR_CHECK2(image->key_count > 0 && image->stream_count > 0);
    in->count = image->key_count;
    in->state_count = image->stream_count;
    for (uint32_t i = 0; i < in->count && has_room; i++) {
        in->keys[i] = ashlar__host_calloc(1, sizeof *in->keys[i]);
        has_room = in->keys[i] != NULL;
    }
    return has_room ? ASHLAR_OK
                    : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %u plans", in->count);
}

static ashlar_status find_states(ashlar_allocator *a, const ashlar_stream *streams, arrival *in) {
    for (uint32_t i = 0; i < in->state_count; i++) {
        const ashlar_status status =
            ashlar__stream_state_of_locked(a, streams[i], &in->stream_states[i]);
        if (status != ASHLAR_OK) {
            return status;
        }
        if (in->stream_states[i]->pool != NULL) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "streams: number %u is being captured; load the "
                                "plans before",
                                i);
        }
        for (uint32_t other = 0; other < i; other++) {
            if (in->stream_states[other] == in->stream_states[i]) {
                return ashlar__fail(ASHLAR_EINVAL,
                                    "streams: numbers %u and %u are the same; give "
                                    "one for each of the file's %u",
                                    other, i, in->state_count);
            }
        }
    }
    return ASHLAR_OK;
}

static bool has_state(const arrival *in, const ashlar_stream_state *state) {
    uint32_t i = 0;
    while (i < in->state_count && in->stream_states[i] != state) {
        i++;
    }
    return i < in->state_count;
}

/* Refuse to load if the allocator already has steps on one of the streams: all plans of a stream
 * share one memory, and a loaded plan might need a larger one. */
static ashlar_status refuse_known(const ashlar_allocator *a, const arrival *in) {
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        bool is_on = has_state(in, key->stream_state);
        for (uint32_t stream_idx = 0; stream_idx < key->recording.stream_count; stream_idx++) {
            is_on = is_on || has_state(in, key->recording.stream_states[stream_idx]);
        }
        for (uint32_t stream_idx = 0; key->plan != NULL && stream_idx < key->plan->stream_count;
             stream_idx++) {
            is_on = is_on || has_state(in, key->plan->stream_plans[stream_idx].stream_state);
        }
        if (is_on) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "key %llu has steps on one of these streams already; "
                                "load plans before, or call ashlar_plan_drop()",
                                (unsigned long long)key->key);
        }
    }
    return ASHLAR_OK;
}

/* Move a key out of the image. */
static void fill_key(ashlar_image_key *from, const arrival *in, ashlar_step_key *key) {
    ASHLAR_CHECK2(from->stream < in->state_count);
    ASHLAR_CHECK2(from->plan->stream_count == from->recording.stream_count);
    *key = (ashlar_step_key){.key = from->key,
                             .number_count = from->number_count,
                             .stream_state = in->stream_states[from->stream],
                             .recording = from->recording,
                             .step_count = from->step_count,
                             .plan = from->plan};
    for (uint32_t stream_idx = 0; stream_idx < key->recording.stream_count; stream_idx++) {
        ASHLAR_CHECK2(from->streams[stream_idx] < in->state_count);
        ashlar_stream_state *state = in->stream_states[from->streams[stream_idx]];
        key->recording.stream_states[stream_idx] = state;
        key->plan->stream_plans[stream_idx].stream_state = state;
    }
    from->recording = (ashlar_recording){0};
    from->plan = NULL;
}

static ashlar_status load_locked(ashlar_allocator *a, ashlar_cache *own,
                                 const ashlar_stream *streams, ashlar_plan_image *image,
                                 arrival *in) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ashlar__planner_refuse_busy_locked(&a->planner);
    if (status == ASHLAR_OK) {
        status = find_states(a, streams, in);
    }
    if (status == ASHLAR_OK) {
        status = refuse_known(a, in);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    for (uint32_t i = 0; i < in->count; i++) {
        fill_key(&image->keys[i], in, in->keys[i]);
    }
    return ashlar__planner_adopt_locked(a, own, in->keys, in->count);
}

static ashlar_status load(ashlar_allocator *a, const ashlar_stream *streams,
                          ashlar_plan_image *image) {
    arrival in = {0};
    ashlar_status status = prepare_arrival(image, &in);
    if (status == ASHLAR_OK) {
        ashlar_cache *own = ashlar__cache_get(a);
        ashlar__allocator_enter(a);
        status = load_locked(a, own, streams, image, &in);
        ashlar__allocator_leave(a);
    }
    finish_arrival(&in, status == ASHLAR_OK);
    return status;
}

ashlar_status ashlar_plan_load(ashlar_allocator *a, const ashlar_stream *streams,
                               size_t stream_count, const char *path, const char *fingerprint) {
    ashlar_plan_image image = {0};
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_status status = ashlar__plan_image_read(path, &image);
    if (status == ASHLAR_OK && strcmp(image.fingerprint, text_of(fingerprint)) != 0) {
        status = ashlar__fail(ASHLAR_EINVAL,
                              "%s:2: the plans are of '%.400s', not of '%.400s'; record and save "
                              "them again",
                              path, image.fingerprint, text_of(fingerprint));
    }
    if (status == ASHLAR_OK && image.stream_count > stream_count) {
        status = ashlar__fail(ASHLAR_EINVAL, "%s:3: the plans are for %u streams; %zu were given",
                              path, image.stream_count, stream_count);
    }
    if (status == ASHLAR_OK && a->cache_bytes > 0) {
        status = load(a, streams, &image);
        status = status == ASHLAR_ENOMEM ? ashlar__fail(status, "%s: no memory for its plans: %s",
                                                        path, ashlar_error_detail())
                                         : status;
    }
    ashlar__plan_image_finish(&image);
    return status;
}
