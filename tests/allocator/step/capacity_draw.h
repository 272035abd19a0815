/*
 * capacity_draw.h - programs that allocate, drawn by a seed: RNN trainings with and without plans,
 * and random sizes, on one to four streams. A seed gives the same program on every machine.
 *
 * A program is a list of calls. The first `setup_count` are made once and take what lives
 * throughout; the others are one round, which can be repeated. Blocks have numbers. A free of a
 * block that is not live is left out: some rounds free what the round before them has left.
 */
#ifndef ASHLAR_CAPACITY_DRAW_H
#define ASHLAR_CAPACITY_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { DRAW_CALLS = 8192, DRAW_BLOCKS = 4096, DRAW_STREAMS = 4, DRAW_LIVE = 512 };

typedef enum call_kind {
    CALL_TAKE,     /* block, bytes, stream */
    CALL_GIVE,     /* block */
    CALL_GIVE_ON,  /* block, stream */
    CALL_USE_ON,   /* block, stream: the stream waits for the block's own, works, is recorded */
    CALL_WAIT_FOR, /* stream: the host waits for it */
    CALL_BEGIN,    /* stream, bytes: the step's key */
    CALL_END,
} call_kind;

typedef struct call {
    call_kind kind;
    unsigned stream, thread, block;
    size_t bytes;
} call;

/* What a program is like, by its seed's remainder. */
typedef enum program_kind {
    PROGRAM_RNN,         /* one stream */
    PROGRAM_RNN_PLANNED, /* the same in steps */
    PROGRAM_PREFETCH,    /* batches are copied on a stream of their own */
    PROGRAM_MODELS,      /* one on each stream, in turns or at a time */
    PROGRAM_SIZES,       /* random ones on one stream */
    PROGRAM_STREAMS,     /* random ones on several streams */
    PROGRAM_SHARED,      /* the same, with frees and uses on other streams */
    PROGRAM_HOLES,       /* full of one size, every other one freed, then of another size */
    PROGRAM_KINDS
} program_kind;

typedef struct program {
    program_kind kind;
    unsigned streams, threads;
    bool is_late; /* work runs when the host waits */
    bool has_vmm, has_plan;
    uint64_t random;
    unsigned block_count, thread; /* while it is drawn */
    size_t setup_count, count;
    call calls[DRAW_CALLS];
} program;

/* ---- draws ---- */

/* splitmix64 */
static inline uint64_t draw(program *p) {
    uint64_t x = p->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline size_t draw_in(program *p, size_t low, size_t high) {
    return low + (size_t)(draw(p) % (high - low + 1));
}

static inline bool draw_one_in(program *p, size_t n) {
    return draw(p) % n == 0;
}

/* All magnitudes from 2^low to 2^high bytes are as likely. */
static inline size_t draw_bytes(program *p, size_t low, size_t high) {
    const size_t least = (size_t)1 << draw_in(p, low, high - 1);
    return draw_in(p, least, 2 * least);
}

/* ---- calls ---- */

static inline void add_call(program *p, call_kind kind, unsigned stream, unsigned block,
                            size_t bytes) {
    if (p->threads > 1 && draw_one_in(p, 16)) {
        p->thread = (unsigned)draw_in(p, 0, p->threads - 1);
    }
    if (p->count < DRAW_CALLS) {
        p->calls[p->count++] = (call){kind, stream, p->thread, block, bytes};
    }
}

/* A block that is not live, taken on the stream. */
static inline unsigned add_take(program *p, unsigned stream, size_t bytes) {
    const unsigned block = p->block_count++ % DRAW_BLOCKS;
    add_call(p, CALL_TAKE, stream, block, bytes);
    return block;
}

static inline void add_give(program *p, unsigned block) {
    add_call(p, CALL_GIVE, 0, block, 0);
}

/* Another stream than this one, if there are several. */
static inline unsigned another_stream(program *p, unsigned stream) {
    return p->streams == 1 ? stream
                           : (stream + (unsigned)draw_in(p, 1, p->streams - 1)) % p->streams;
}

/* ---- trainings ---- */

enum { RNN_LAYERS = 3, RNN_STEPS = 48 };

typedef struct rnn {
    unsigned stream, copies; /* the model's, and that of its batches */
    size_t batch, hidden, layers, words;
    bool is_by_time; /* forward saves a block for each time step, else one for each layer */
    bool has_plan, has_one_key, waits;
    unsigned saved[RNN_LAYERS][RNN_STEPS];
} rnn;

static inline void draw_rnn(program *p, rnn *m, unsigned stream, unsigned copies) {
    *m = (rnn){.stream = stream,
               .copies = copies,
               .batch = draw_in(p, 1, 8) * 8,
               .hidden = draw_in(p, 1, 10) * 64,
               .layers = draw_in(p, 1, RNN_LAYERS),
               .words = draw_in(p, 1, 30) * 100,
               .is_by_time = draw_one_in(p, 2),
               .has_plan = p->has_plan,
               .has_one_key = draw_one_in(p, 3),
               .waits = draw_one_in(p, 2)};
    for (size_t i = 0; i < m->layers; i++) { /* weights, gradients, two moments */
        for (size_t k = 0; k < 4; k++) {
            (void)add_take(p, stream, 8 * m->hidden * m->hidden * sizeof(float));
        }
    }
}

static inline void add_forward(program *p, rnn *m, size_t length) {
    const size_t row = m->batch * m->hidden * sizeof(float);
    for (size_t i = 0; i < m->layers; i++) {
        const unsigned workspace = add_take(p, m->stream, 2 * MIB + length * row / 4);
        for (size_t t = 0; t < (m->is_by_time ? length : 1); t++) {
            m->saved[i][t] = add_take(p, m->stream, 5 * row * (m->is_by_time ? 1 : length));
        }
        add_give(p, workspace);
    }
}

static inline void add_backward(program *p, rnn *m, size_t length, unsigned gradient) {
    const size_t row = m->batch * m->hidden * sizeof(float);
    for (size_t i = m->layers; i-- > 0;) {
        const unsigned next = add_take(p, m->stream, length * row);
        for (size_t t = m->is_by_time ? length : 1; t-- > 0;) {
            const unsigned workspace = add_take(p, m->stream, m->is_by_time ? 4 * row : 3 * MIB);
            add_give(p, m->saved[i][t]);
            add_give(p, workspace);
        }
        add_give(p, gradient);
        gradient = next;
    }
    add_give(p, gradient);
}

static inline void add_rnn_step(program *p, rnn *m, size_t length) {
    const size_t logits_bytes = length * m->batch * m->words * sizeof(float);
    const unsigned data = add_take(p, m->copies, length * m->batch * 64 * sizeof(float));
    if (m->copies != m->stream) {
        add_call(p, CALL_USE_ON, m->stream, data, 0);
    }
    if (m->has_plan) {
        add_call(p, CALL_BEGIN, m->stream, 0, m->has_one_key ? 1 : 1 + (length + 7) / 8);
    }
    add_forward(p, m, length);
    const unsigned logits = add_take(p, m->stream, logits_bytes);
    const unsigned gradient = add_take(p, m->stream, logits_bytes);
    add_give(p, logits);
    add_backward(p, m, length, gradient);
    if (m->has_plan) {
        add_call(p, CALL_END, 0, 0, 0);
    }
    add_give(p, data);
    if (m->waits) {
        add_call(p, CALL_WAIT_FOR, m->stream, 0, 0);
    }
}

static inline void draw_training(program *p, bool has_prefetch) {
    rnn m;
    draw_rnn(p, &m, 0, has_prefetch ? 1 : 0);
    p->setup_count = p->count;
    for (size_t steps = draw_in(p, 2, 5); steps > 0; steps--) {
        add_rnn_step(p, &m, draw_in(p, 4, m.is_by_time ? RNN_STEPS / 2 : RNN_STEPS));
    }
}

/* Merge the lists of calls that end at these places, a few calls of each at a time. */
static inline void interleave(program *p, const size_t *ends, size_t list_count) {
    static call merged[DRAW_CALLS];
    size_t at[DRAW_STREAMS], left = p->count - p->setup_count, count = 0;
    for (size_t i = 0; i < list_count; i++) {
        at[i] = i == 0 ? p->setup_count : ends[i - 1];
    }
    while (left > 0) {
        const size_t i = draw_in(p, 0, list_count - 1);
        for (size_t n = draw_in(p, 1, 8); n > 0 && at[i] < ends[i]; n--, left--) {
            merged[count++] = p->calls[at[i]++];
        }
    }
    memcpy(&p->calls[p->setup_count], merged, count * sizeof *merged);
}

static inline void draw_models(program *p) {
    static rnn models[DRAW_STREAMS];
    size_t ends[DRAW_STREAMS];
    for (unsigned i = 0; i < p->streams; i++) {
        draw_rnn(p, &models[i], i, i);
    }
    p->setup_count = p->count;
    for (unsigned i = 0; i < p->streams; i++) {
        for (size_t steps = draw_in(p, 1, 3); steps > 0; steps--) {
            add_rnn_step(p, &models[i], draw_in(p, 4, RNN_STEPS / 2));
        }
        ends[i] = p->count;
    }
    if (!p->has_plan) { /* a thread is in one step at a time */
        interleave(p, ends, p->streams);
    }
}

/* ---- random sizes ---- */

typedef struct live_blocks {
    unsigned block[DRAW_LIVE], stream[DRAW_LIVE];
    size_t bytes[DRAW_LIVE], count, sum;
} live_blocks;

static inline void draw_take(program *p, live_blocks *live, size_t low, size_t high) {
    const size_t i = live->count++;
    live->stream[i] = (unsigned)draw_in(p, 0, p->streams - 1);
    live->bytes[i] = draw_bytes(p, low, high);
    live->block[i] = add_take(p, live->stream[i], live->bytes[i]);
    live->sum += live->bytes[i];
}

static inline void draw_give(program *p, live_blocks *live, size_t i) {
    const unsigned stream = live->stream[i];
    const size_t way = p->kind == PROGRAM_SHARED ? draw_in(p, 0, 5) : 0;
    if (way == 1) {
        add_call(p, CALL_GIVE_ON, another_stream(p, stream), live->block[i], 0);
    } else {
        if (way == 2) {
            add_call(p, CALL_USE_ON, another_stream(p, stream), live->block[i], 0);
        }
        add_give(p, live->block[i]);
    }
    live->sum -= live->bytes[i];
    live->count--;
    live->block[i] = live->block[live->count];
    live->stream[i] = live->stream[live->count];
    live->bytes[i] = live->bytes[live->count];
}

static inline void draw_sizes(program *p) {
    static const size_t spans[][2] = {{9, 22}, {16, 23}, {20, 24}, {9, 24}};
    const size_t *span = spans[draw_in(p, 0, 3)];
    const size_t most = draw_in(p, 24, 160) * MIB, calls = draw_in(p, 60, 240);
    const bool stays = draw_one_in(p, 4), has_plan = p->has_plan;
    live_blocks live = {.count = 0};
    for (size_t n = draw_in(p, 0, 8); n > 0; n--) {
        (void)add_take(p, 0, draw_bytes(p, 9, 22));
    }
    p->setup_count = p->count;
    if (has_plan) {
        add_call(p, CALL_BEGIN, 0, 0, 1);
    }
    for (size_t i = 0; i < calls; i++) {
        if (live.count < DRAW_LIVE && (live.count == 0 || (live.sum < most && draw(p) % 5 < 3))) {
            draw_take(p, &live, span[0], span[1]);
        } else {
            draw_give(p, &live, draw_in(p, 0, live.count - 1));
        }
    }
    while (live.count > (stays ? 3 : 0)) {
        draw_give(p, &live, draw_in(p, 0, live.count - 1));
    }
    if (has_plan) {
        add_call(p, CALL_END, 0, 0, 0);
    }
    if (live.count > 0) { /* the next round frees it before it takes it again */
        memmove(&p->calls[p->setup_count + live.count], &p->calls[p->setup_count],
                (p->count - p->setup_count) * sizeof *p->calls);
        p->count += live.count;
        for (size_t i = 0; i < live.count; i++) {
            p->calls[p->setup_count + i] = (call){CALL_GIVE, 0, 0, live.block[i], 0};
        }
    }
}

static inline void draw_holes(program *p) {
    unsigned blocks[DRAW_LIVE];
    const size_t most = draw_in(p, 48, 192) * MIB;
    p->setup_count = p->count;
    for (size_t phases = draw_in(p, 2, 4); phases > 0; phases--) {
        const size_t first = draw_bytes(p, 18, 23), second = draw_bytes(p, 18, 24);
        const size_t count = most / first < DRAW_LIVE / 2 ? most / first : DRAW_LIVE / 2;
        const size_t more = count / 2 * first / second;
        size_t all = count;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = add_take(p, (unsigned)draw_in(p, 0, p->streams - 1), first);
        }
        for (size_t i = 1; i < count; i += 2) {
            add_give(p, blocks[i]);
        }
        for (size_t i = 0; i < more && all < DRAW_LIVE; i++) {
            blocks[all++] = add_take(p, (unsigned)draw_in(p, 0, p->streams - 1), second);
        }
        for (size_t i = 0; i < all; i++) {
            if (i >= count || i % 2 == 0) {
                add_give(p, blocks[i]);
            }
        }
    }
}

/* ---- a program ---- */

static inline void draw_calls(program *p) {
    switch (p->kind) {
    case PROGRAM_RNN:
    case PROGRAM_RNN_PLANNED:
        draw_training(p, false);
        break;
    case PROGRAM_PREFETCH:
        draw_training(p, true);
        break;
    case PROGRAM_MODELS:
        draw_models(p);
        break;
    case PROGRAM_HOLES:
        draw_holes(p);
        break;
    default:
        draw_sizes(p);
    }
}

static inline void draw_program(program *p, unsigned seed) {
    const program_kind kind = (program_kind)(seed % PROGRAM_KINDS);
    const bool is_alone =
        kind == PROGRAM_RNN || kind == PROGRAM_RNN_PLANNED || kind == PROGRAM_SIZES;
    memset(p, 0, sizeof *p);
    p->kind = kind;
    p->random = seed;
    p->is_late = draw_one_in(p, 3);
    p->has_vmm = !draw_one_in(p, 10);
    p->has_plan = kind == PROGRAM_RNN_PLANNED ||
                  (kind != PROGRAM_RNN && kind != PROGRAM_HOLES && draw_one_in(p, 3));
    p->streams = is_alone                   ? 1
                 : kind == PROGRAM_PREFETCH ? 2
                                            : (unsigned)draw_in(p, 2, DRAW_STREAMS);
    p->threads = 1;
    if (kind >= PROGRAM_SIZES && !p->has_plan && draw_one_in(p, 3)) {
        p->threads = (unsigned)draw_in(p, 2, 3);
    }
    draw_calls(p);
}

#endif /* ASHLAR_CAPACITY_DRAW_H */
