/*
 * program_train.c - what a program does that trains: every step takes the same buffers, of many
 * sizes, uses them on three streams, frees some while they are still written, and ends with a wait.
 */
#include "program.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB ((size_t)1 << 10)

enum { STREAMS = 3, BUFFERS = 24, STEPS = 30 };

typedef struct buffer {
    void *ptr;
    size_t bytes;
    unsigned char value;
    size_t stream;
} buffer;

static uint64_t state;

static size_t draw(size_t count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % count;
}

/* One time in two by the other way, if there are two. */
static bool is_on_stream(train_way way) {
    return way == TRAIN_MIXED ? draw(2) == 0 : way == TRAIN_ON_STREAMS;
}

static bool take(const gpu *g, buffer *b, train_way way, void **streams) {
    void *stream = streams[b->stream];
    const int taken =
        is_on_stream(way) ? g->alloc_on(&b->ptr, b->bytes, stream) : g->alloc(&b->ptr, b->bytes);
    return taken == 0 && g->fill(b->ptr, b->value, b->bytes, stream) == 0;
}

static bool give(const gpu *g, buffer *b, train_way way, void **streams) {
    const int given = is_on_stream(way) ? g->give_on(b->ptr, streams[b->stream]) : g->give(b->ptr);
    b->ptr = NULL;
    return given == 0;
}

static bool holds(const gpu *g, const buffer *b, void **streams) {
    unsigned char *copy = malloc(b->bytes);
    bool is_same = copy != NULL && g->read(copy, b->ptr, b->bytes, streams[b->stream]) == 0;
    for (size_t i = 0; i < b->bytes && is_same; i++) {
        is_same = copy[i] == b->value;
    }
    free(copy);
    return is_same;
}

static bool step(const gpu *g, train_way way, int number, void **streams) {
    buffer buffers[BUFFERS] = {{NULL, 0, 0, 0}};
    bool is_good = true;
    state = 3;
    for (int i = 0; i < BUFFERS; i++) {
        buffer *b = &buffers[i];
        *b = (buffer){.bytes = KIB * (1 + draw(900)),
                      .value = (unsigned char)(number * BUFFERS + i),
                      .stream = draw(STREAMS)};
        is_good = take(g, b, way, streams) && is_good;
        buffer *old = &buffers[draw((size_t)i + 1)];
        if (old->ptr != NULL && draw(2) == 0) {
            is_good = give(g, old, way, streams) && is_good;
        }
    }
    for (int i = 0; i < BUFFERS; i++) {
        if (buffers[i].ptr != NULL) {
            is_good = holds(g, &buffers[i], streams) && is_good;
            is_good = give(g, &buffers[i], way, streams) && is_good;
        }
    }
    return g->wait_all() == 0 && is_good;
}

int train(const gpu *g, train_way way) {
    void *streams[STREAMS];
    unsigned long long after_first = 0;
    int bad = 0;
    for (int i = 0; i < STREAMS; i++) {
        bad += g->make_stream(&streams[i], i == 0) != 0;
    }
    for (int i = 0; i < STEPS; i++) {
        bad += !step(g, way, i, streams);
        after_first = i == 0 ? memory_calls() : after_first;
    }
    print_calls(after_first);
    for (int i = 0; i < STREAMS; i++) {
        bad += g->end_stream(streams[i]) != 0;
    }
    return bad;
}
