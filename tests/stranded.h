/*
 * stranded.h - a program that fills a device with blocks of one size, frees some of them, and asks
 * for blocks of other sizes until it is refused: as a list of how many bytes it was given each
 * time. It knows nothing of ashlar, so that the list can be compared with that of the plain driver.
 *
 * Beside it stands what the device says is free, which it is held to: as much can be had in blocks
 * of 2 MiB, and in one.
 */
#ifndef ASHLAR_STRANDED_H
#define ASHLAR_STRANDED_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/preload/program.h"

#define STRANDED_MIB ((size_t)1 << 20)

enum {
    STRANDED_ROWS = 512,
    STRANDED_BLOCKS = 4096,
    STRANDED_STREAMS = 3,
    STRANDED_GRAIN_MIB = 2, /* the driver rounds each block up to as much */
    STRANDED_MIXED = 0,     /* sizes are drawn */
    STRANDED_ONE = 1,       /* one block, as large as can be had */
    STRANDED_REFUSALS = 16, /* before drawn sizes are given up */
    STRANDED_MARK_BYTES = 256,
};

typedef struct stranded_row {
    char name[32]; /* MiB of the blocks, "to64" if drawn; which are kept; what is asked for */
    size_t bytes, promised; /* given; said to be free before */
} stranded_row;

typedef struct stranded_block {
    void *ptr;
    size_t bytes;
    void *stream;
    unsigned char mark;
} stranded_block;

typedef struct stranded {
    const gpu *g;
    bool is_on_streams; /* by cudaMallocAsync() and its like */
    void *streams[STRANDED_STREAMS];
    size_t total_bytes; /* free on the device at first */
    stranded_row rows[STRANDED_ROWS];
    size_t row_count;
    int failures; /* of calls that must succeed, and blocks that do not hold what was written */
    uint64_t random;
    stranded_block kept[STRANDED_BLOCKS], asked[STRANDED_BLOCKS];
    size_t kept_count, asked_count;
} stranded;

static inline size_t stranded_draw(stranded *s, size_t count) {
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(s->random >> 33) % count;
}

static inline void stranded_expect(stranded *s, bool is_so, const char *what) {
    if (!is_so && s->failures++ < 8) {
        printf("# stranded: %s\n", what);
    }
}

static inline void stranded_add(stranded *s, const char *size, const char *pattern,
                                const char *what, size_t promised, size_t bytes) {
    stranded_expect(s, s->row_count < STRANDED_ROWS, "too many rows");
    if (s->row_count < STRANDED_ROWS) {
        stranded_row *row = &s->rows[s->row_count++];
        (void)snprintf(row->name, sizeof row->name, "%s-%s-%s", size, pattern, what);
        row->bytes = bytes;
        row->promised = promised;
    }
}

/* ---- blocks ---- */

/* False: there is no memory for it. */
static inline bool stranded_take(stranded *s, stranded_block *b, size_t bytes, size_t i) {
    *b = (stranded_block){.bytes = bytes,
                          .stream = s->streams[i % STRANDED_STREAMS],
                          .mark = (unsigned char)(i * 7 + 1)};
    const int result =
        s->is_on_streams ? s->g->alloc_on(&b->ptr, bytes, b->stream) : s->g->alloc(&b->ptr, bytes);
    stranded_expect(s, result == 0 || result == OUT_OF_MEMORY, "an allocation fails otherwise");
    if (result == 0) {
        const size_t last = bytes - STRANDED_MARK_BYTES; /* both ends: no two blocks overlap */
        const int filled =
            s->g->fill(b->ptr, b->mark, STRANDED_MARK_BYTES, b->stream) +
            s->g->fill((char *)b->ptr + last, b->mark, STRANDED_MARK_BYTES, b->stream);
        stranded_expect(s, filled == 0, "a fill fails");
    }
    return result == 0;
}

static inline bool stranded_holds(stranded *s, const stranded_block *b) {
    unsigned char ends[2][STRANDED_MARK_BYTES];
    const char *last = (const char *)b->ptr + b->bytes - STRANDED_MARK_BYTES;
    bool is_same = s->g->read(ends[0], b->ptr, STRANDED_MARK_BYTES, b->stream) == 0 &&
                   s->g->read(ends[1], last, STRANDED_MARK_BYTES, b->stream) == 0;
    for (size_t i = 0; i < STRANDED_MARK_BYTES; i++) {
        is_same = is_same && ends[0][i] == b->mark && ends[1][i] == b->mark;
    }
    return is_same;
}

static inline void stranded_give(stranded *s, stranded_block *b) {
    stranded_expect(s, stranded_holds(s, b), "a block was overwritten");
    const int result = s->is_on_streams ? s->g->give_on(b->ptr, b->stream) : s->g->give(b->ptr);
    stranded_expect(s, result == 0, "a free fails");
}

static inline void stranded_give_asked(stranded *s) {
    for (size_t i = 0; i < s->asked_count; i++) {
        stranded_give(s, &s->asked[i]);
    }
    s->asked_count = 0;
    stranded_expect(s, s->g->wait_all() == 0, "a wait fails");
}

/* ---- requests ---- */

static inline bool stranded_ask(stranded *s, size_t bytes) {
    stranded_expect(s, s->asked_count < STRANDED_BLOCKS, "too many blocks");
    if (s->asked_count == STRANDED_BLOCKS ||
        !stranded_take(s, &s->asked[s->asked_count], bytes, s->asked_count)) {
        return false;
    }
    s->asked_count++;
    return true;
}

static inline size_t stranded_asked_bytes(const stranded *s) {
    size_t sum = 0;
    for (size_t i = 0; i < s->asked_count; i++) {
        sum += s->asked[i].bytes;
    }
    return sum;
}

/* The most of so many MiB that can be had in one block: all, or by bisection. */
static inline void stranded_ask_one(stranded *s, size_t most_mib) {
    size_t good = 0, bad = most_mib + STRANDED_GRAIN_MIB;
    size_t next = most_mib;
    while (bad - good > STRANDED_GRAIN_MIB) {
        stranded_give_asked(s);
        *(stranded_ask(s, next * STRANDED_MIB) ? &good : &bad) = next;
        next = (good + (bad - good) / 2) / STRANDED_GRAIN_MIB * STRANDED_GRAIN_MIB;
    }
    if (good > 0 && s->asked_count == 0) {
        stranded_expect(s, stranded_ask(s, good * STRANDED_MIB), "one block, and not once more");
    }
}

static inline size_t stranded_free_bytes(stranded *s) {
    size_t free_bytes = 0, total_bytes = 0;
    stranded_expect(s, s->g->info(&free_bytes, &total_bytes) == 0, "nobody says what is free");
    return free_bytes;
}

static inline void stranded_phase(stranded *s, const char *size, const char *pattern,
                                  size_t request) {
    char what[16];
    const size_t promised = stranded_free_bytes(s);
    (void)snprintf(what, sizeof what, "%zu", request);
    if (request == STRANDED_MIXED) {
        for (int refused = 0; refused < STRANDED_REFUSALS;) {
            refused += !stranded_ask(s, (2 + stranded_draw(s, 63)) * STRANDED_MIB);
        }
    } else if (request == STRANDED_ONE) {
        stranded_ask_one(s, promised / STRANDED_MIB);
    } else {
        while (stranded_ask(s, request * STRANDED_MIB)) {
        }
    }
    stranded_add(s, size, pattern,
                 request == STRANDED_MIXED ? "mixed"
                 : request == STRANDED_ONE ? "one"
                                           : what,
                 promised, stranded_asked_bytes(s));
    stranded_give_asked(s);
}

/* ---- a device full of holes ---- */

static inline bool stranded_is_kept(stranded *s, const char *pattern, size_t i) {
    return strcmp(pattern, "half") == 0    ? i % 2 == 0
           : strcmp(pattern, "third") == 0 ? i % 3 == 0
                                           : stranded_draw(s, 2) == 0;
}

/* Of one size, or of sizes that are drawn. */
typedef struct stranded_sizes {
    const char *name;
    size_t least, most; /* bytes */
} stranded_sizes;

/* No more blocks than the driver alone has room for; returns their bytes. */
static inline size_t stranded_fill(stranded *s, const stranded_sizes *sizes) {
    const size_t grain = STRANDED_GRAIN_MIB * STRANDED_MIB;
    size_t taken = 0, of_driver = 0;
    for (s->kept_count = 0; s->kept_count < STRANDED_BLOCKS; s->kept_count++) {
        const size_t bytes = sizes->least + stranded_draw(s, sizes->most - sizes->least + 1);
        of_driver += (bytes + grain - 1) / grain * grain;
        if (of_driver > s->total_bytes ||
            !stranded_take(s, &s->kept[s->kept_count], bytes, s->kept_count)) {
            break;
        }
        taken += bytes;
    }
    return taken;
}

static inline void stranded_make_holes(stranded *s, const char *pattern) {
    size_t left = 0;
    for (size_t i = 0; i < s->kept_count; i++) {
        if (stranded_is_kept(s, pattern, i)) {
            s->kept[left++] = s->kept[i];
        } else {
            stranded_give(s, &s->kept[i]);
        }
    }
    s->kept_count = left;
    stranded_expect(s, s->g->wait_all() == 0, "a wait fails");
}

static inline void stranded_give_kept(stranded *s) {
    for (size_t i = 0; i < s->kept_count; i++) {
        stranded_give(s, &s->kept[i]);
    }
    stranded_expect(s, s->g->wait_all() == 0, "a wait fails");
}

/* Half of the sizes that are asked for, others in each round, then what is held to its promise. */
static inline void stranded_round(stranded *s, const stranded_sizes *sizes, const char *pattern,
                                  size_t round) {
    static const size_t requests[] = {3, 8, 16, 32, 40, 48, 64, STRANDED_MIXED};
    const size_t count = sizeof requests / sizeof *requests;
    s->random = round;
    stranded_add(s, sizes->name, pattern, "filled", 0, stranded_fill(s, sizes));
    stranded_make_holes(s, pattern);
    for (size_t i = 0; i < count / 2; i++) {
        stranded_phase(s, sizes->name, pattern, requests[(3 * round + i) % count]);
    }
    stranded_phase(s, sizes->name, pattern, round % 2 == 0 ? STRANDED_ONE : 2);
    stranded_phase(s, sizes->name, pattern, round % 2 == 0 ? 2 : STRANDED_ONE);
    stranded_give_kept(s);
}

/* Holes that are smaller than what the driver maps as one. */
static inline void stranded_round_of_small(stranded *s) {
    static const stranded_sizes small = {"small", STRANDED_MIB / 16, STRANDED_MIB / 16};
    (void)stranded_fill(s, &small);
    stranded_make_holes(s, "half");
    stranded_phase(s, small.name, "half", 2);
    stranded_phase(s, small.name, "half", STRANDED_ONE);
    stranded_give_kept(s);
}

/* Each round is on what earlier ones have left of the device. */
static inline void stranded_run(stranded *s, const gpu *g, bool is_on_streams) {
#define ALL_OF(mib) \
    { #mib, (mib)*STRANDED_MIB, (mib)*STRANDED_MIB }
    static const stranded_sizes sizes[] = {ALL_OF(2),
                                           ALL_OF(3),
                                           ALL_OF(8),
                                           ALL_OF(16),
                                           ALL_OF(32),
                                           ALL_OF(48),
                                           ALL_OF(64),
                                           {"to64", 2 * STRANDED_MIB, 64 * STRANDED_MIB},
                                           {"to8", 2 * STRANDED_MIB, 8 * STRANDED_MIB}};
#undef ALL_OF
    static const char *const patterns[] = {"half", "third", "random"};
    size_t round = 0;
    memset(s, 0, sizeof *s);
    s->g = g;
    s->is_on_streams = is_on_streams;
    s->total_bytes = stranded_free_bytes(s);
    for (size_t i = 0; i < STRANDED_STREAMS; i++) {
        stranded_expect(s, g->make_stream(&s->streams[i], i == 0) == 0, "no stream");
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
            stranded_round(s, &sizes[i], patterns[k], round++);
        }
    }
    stranded_round_of_small(s);
    for (size_t i = 0; i < STRANDED_STREAMS; i++) {
        stranded_expect(s, g->end_stream(s->streams[i]) == 0, "a stream does not end");
    }
}

#endif /* ASHLAR_STRANDED_H */
