/* plan_out.c - writing a key's plan as MiniMalloc's CSV, and as a picture. */
#include <ashlar/plan_list.h>

#include <stdio.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/host.h"
#include "allocator/core/streams.h"
#include "allocator/step/step.h"
#include "allocator/trace/picture.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"

/* The slots of a plan for one stream. */
typedef struct slots {
    const ashlar_plan *plan;
    uint32_t stream_idx;
} slots;

/* The index of the stream in the plan's stream_plans; stream_count if the plan lacks the stream. */
static uint32_t idx_of(const ashlar_plan *plan, const ashlar_stream_state *state) {
    uint32_t stream_idx = 0;
    while (stream_idx < plan->stream_count &&
           plan->stream_plans[stream_idx].stream_state != state) {
        stream_idx++;
    }
    return stream_idx;
}

static ashlar_status find_locked(ashlar_allocator *a, ashlar_stream stream, uint64_t number,
                                 ashlar_stream user, slots *out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = NULL, *user_state = NULL;
    ashlar_status status = ashlar__stream_state_of_locked(a, stream, &state);
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_of_locked(a, user, &user_state);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    const ashlar_step_key *key = ashlar__step_key_find_locked(a, number, state);
    const ashlar_plan *plan = key != NULL ? key->plan : NULL;
    const uint32_t stream_idx = plan != NULL ? idx_of(plan, user_state) : 0;
    if (plan == NULL || stream_idx == plan->stream_count) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "key %llu has no plan with slots for this stream; record one first",
                            (unsigned long long)number);
    }
    *out = (slots){.plan = plan, .stream_idx = stream_idx};
    return ASHLAR_OK;
}

static bool is_of(const slots *s, uint32_t i) {
    ASHLAR_CHECK2(s->stream_idx < s->plan->stream_count && i < s->plan->count);
    return s->plan->slots[i].stream_idx == s->stream_idx && s->plan->slots[i].bytes > 0;
}

/* ---- MiniMalloc ---- */

static void write_rows(const slots *s, ashlar_file_buffer *file) {
    ashlar__file_buffer_print(file, "id,lower,upper,size,offset\n");
    for (uint32_t i = 0; i < s->plan->count; i++) {
        const ashlar_slot *slot = &s->plan->slots[i];
        if (is_of(s, i)) {
            ashlar__file_buffer_print(file, "%u,%u,%u,%zu,%zu\n", i, i, slot->end, slot->bytes,
                                      s->plan->offsets[i]);
        }
    }
}

ashlar_status ashlar_plan_write_minimalloc(ashlar_allocator *a, ashlar_stream stream, uint64_t key,
                                           ashlar_stream user, const char *path) {
    ashlar_file_buffer *file = NULL;
    slots found = {0};
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_status status = ashlar__file_buffer_create(path, &file);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__allocator_enter(a);
    status = find_locked(a, stream, key, user, &found);
    if (status == ASHLAR_OK) {
        write_rows(&found, file);
    }
    ashlar__allocator_leave(a);
    if (status != ASHLAR_OK) {
        ashlar__file_buffer_abort(file);
        return status;
    }
    return ashlar__file_buffer_commit(file);
}

/* ---- a picture ---- */

/* A copy of the slots, so that drawing needs no lock. */
typedef struct drawing {
    ashlar_picture_block *blocks; /* [count] */
    size_t count;
    size_t plan_bytes;
} drawing;

static ashlar_status copy_locked(ashlar_allocator *a, ashlar_stream stream, uint64_t key,
                                 ashlar_stream user, drawing *out) {
    ASHLAR_OWNS(&a->lock);
    slots s;
    const ashlar_status status = find_locked(a, stream, key, user, &s);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_picture_block *blocks = ashlar__host_calloc((size_t)s.plan->count + 1, sizeof *blocks);
    if (blocks == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to draw a plan");
    }
    *out = (drawing){.blocks = blocks, .plan_bytes = s.plan->stream_plans[s.stream_idx].plan_bytes};
    for (uint32_t i = 0; i < s.plan->count; i++) {
        const ashlar_slot *slot = &s.plan->slots[i];
        if (is_of(&s, i)) {
            ASHLAR_CHECK2(i < slot->end && s.plan->offsets[i] + slot->bytes <= out->plan_bytes);
            blocks[out->count++] = (ashlar_picture_block){
                .begin = i,
                .end = slot->end,
                .offset = s.plan->offsets[i],
                .bytes = slot->bytes,
                .tag = slot->tag,
            };
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_plan_write_svg(ashlar_allocator *a, ashlar_stream stream, uint64_t key,
                                    ashlar_stream user, const char *path) {
    char title[64];
    drawing d = {0};
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    ashlar_status status = copy_locked(a, stream, key, user, &d);
    ashlar__allocator_leave(a);
    if (status != ASHLAR_OK) {
        return status;
    }
    (void)snprintf(title, sizeof title, "plan of key %llu", (unsigned long long)key);
    const ashlar_picture picture = {
        .title = title,
        .time_unit = "allocations",
        .blocks = d.blocks,
        .count = d.count,
        .has_tags = true,
        .limit_label = "plan",
        .limit_bytes = d.plan_bytes,
    };
    status = ashlar__picture_write(&picture, path);
    ashlar__host_free(d.blocks);
    return status;
}
