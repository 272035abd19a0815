/*
 * plan_fixture.h - steps drawn by a seed, run for real, and the files that their plans are saved
 * in, for tests.
 */
#ifndef ASHLAR_PLAN_FIXTURE_H
#define ASHLAR_PLAN_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"
#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/random.h"

#include <ashlar/plan.h>
#include <ashlar/plan_file.h>

enum { TEXT_BYTES = 1 << 16, SCRIPT_BLOCKS = 40, SCRIPT_OPS = 2 * SCRIPT_BLOCKS };

static inline ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    return stats;
}

/* ---- files ---- */

/* The test's one file as a text; its bytes. */
static inline size_t read_text(char text[TEXT_BYTES]) {
    FILE *file = fopen(path, "rb");
    size_t bytes = 0;
    if (file != NULL) {
        bytes = fread(text, 1, TEXT_BYTES - 1, file);
        (void)fclose(file);
    }
    text[bytes] = '\0';
    return bytes;
}

/* ---- steps ---- */

typedef struct op {
    size_t block; /* number of the allocation */
    size_t bytes; /* of an allocation */
    ashlar_tag tag;
    int stream; /* that it is for */
    bool is_free;
    bool is_elsewhere; /* freed on another stream than it is for: such a block is not planned */
} op;

typedef struct script {
    op ops[SCRIPT_OPS];
    size_t count;
    size_t block_count;
} script;

static uint64_t draw_state;

static inline size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&draw_state, below);
}

/* Some blocks are never freed, and some on another stream; sizes of several powers of two. */
static inline void draw_script(script *s, int stream_count) {
    size_t live[SCRIPT_BLOCKS], live_count = 0;
    int stream_of[SCRIPT_BLOCKS];
    *s = (script){0};
    const size_t wanted = 1 + draw(SCRIPT_BLOCKS);
    while (s->block_count < wanted || (live_count > 0 && draw(8) != 0)) {
        if (s->block_count < wanted && draw(2) == 0) {
            stream_of[s->block_count] = (int)draw((size_t)stream_count);
            s->ops[s->count++] = (op){.block = s->block_count,
                                      .bytes = 1 + draw((size_t)1 << (1 + draw(18))),
                                      .tag = (ashlar_tag)draw(ASHLAR_TAG_COUNT),
                                      .stream = stream_of[s->block_count]};
            live[live_count++] = s->block_count++;
        } else if (live_count > 0) {
            const size_t which = draw(live_count), block = live[which];
            live[which] = live[--live_count];
            s->ops[s->count++] = (op){.block = block,
                                      .stream = stream_of[block],
                                      .is_free = true,
                                      .is_elsewhere = stream_count > 1 && draw(10) == 0};
        }
    }
}

/* A step; blocks that it leaves are freed behind it. */
static inline void play(const script *s, uint64_t key, ashlar_stream main_stream) {
    void *blocks[SCRIPT_BLOCKS] = {NULL};
    CHECK(ashlar_step_begin(allocator, main_stream, key) == ASHLAR_OK);
    for (size_t i = 0; i < s->count; i++) {
        const op *o = &s->ops[i];
        if (!o->is_free) {
            CHECK(ashlar_alloc_tagged(allocator, o->bytes, o->tag, streams[o->stream],
                                      &blocks[o->block]) == ASHLAR_OK);
            continue;
        }
        const ashlar_stream on = streams[(o->stream + o->is_elsewhere) % STREAMS];
        CHECK(ashlar_free_on(allocator, blocks[o->block], on) == ASHLAR_OK);
        blocks[o->block] = NULL;
    }
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    for (size_t i = 0; i < s->block_count; i++) {
        CHECK(ashlar_free(allocator, blocks[i]) == ASHLAR_OK);
    }
    check_all();
}

/* The streams of a step as a file of its key numbers them; how many. */
static inline size_t streams_by_use(const script *s, ashlar_stream main_stream,
                                    ashlar_stream out[STREAMS]) {
    size_t count = 0;
    out[count++] = main_stream;
    for (size_t i = 0; i < s->count; i++) {
        size_t known = 0;
        while (known < count && out[known] != streams[s->ops[i].stream]) {
            known++;
        }
        if (known == count) {
            out[count++] = streams[s->ops[i].stream];
        }
    }
    return count;
}

/* Another allocator in place of the case's, on the same device. */
static inline bool renew_allocator(void) {
    ashlar_config config;
    check_all();
    ashlar_allocator_destroy(allocator);
    ashlar_config_init(&config);
    config.cache_bytes = 64 * MIB;
    allocator = NULL;
    return ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK;
}

#endif /* ASHLAR_PLAN_FIXTURE_H */
