/*
 * program_drawn.c - in place of program.c: a program whose steps differ in length, or that takes
 * one block after another; it prints how much was live at most, and how many events were recorded.
 * What the preload reserved for that, its report says.
 *
 *   lengths PATTERN   a step of a drawn length, with blocks that live to its end and others that
 *                     do not
 *   stream PATTERN    take, use, free
 */
#include "program.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

enum { STEPS = 60, LAYERS = 12, ROUNDS = 200 };

typedef enum wait_kind { WAIT_NONE, WAIT_STREAM, WAIT_DEVICE } wait_kind;

static const gpu *g;
static uint64_t state;
static size_t live, live_peak;
static int failures;

static size_t draw(size_t count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % count;
}

static void *take(size_t bytes, void *stream) {
    void *ptr = NULL;
    failures += g->alloc(&ptr, bytes) != 0;
    failures += ptr == NULL || g->fill(ptr, 1, bytes < MIB ? bytes : MIB, stream) != 0;
    live += bytes;
    live_peak = live > live_peak ? live : live_peak;
    return ptr;
}

static void give(void *ptr, size_t bytes) {
    failures += ptr == NULL || g->give(ptr) != 0;
    live -= bytes;
}

static void wait_for(wait_kind kind, void *stream) {
    failures += kind == WAIT_STREAM   ? g->wait(stream) != 0
                : kind == WAIT_DEVICE ? g->wait_all() != 0
                                      : 0;
}

/* Forward: each layer keeps one block and works in another; backward: they go, with a gradient. */
static void step(void *stream) {
    void *kept[LAYERS];
    size_t bytes[LAYERS];
    const size_t length = 8 + draw(57);
    for (size_t i = 0; i < LAYERS; i++) {
        bytes[i] = (1 + i % 3) * length * 80011;
        kept[i] = take(bytes[i], stream);
        void *work = take(bytes[i] / 2, stream);
        give(work, bytes[i] / 2);
    }
    for (size_t i = LAYERS; i-- > 0;) {
        void *gradient = take(bytes[i], stream);
        give(kept[i], bytes[i]);
        give(gradient, bytes[i]);
    }
}

/* The same blocks, all of which live to the end of the step. */
static void step_at_once(void *stream) {
    void *kept[LAYERS];
    size_t bytes[LAYERS];
    const size_t length = 8 + draw(57);
    for (size_t i = 0; i < LAYERS; i++) {
        bytes[i] = (1 + i % 3) * length * 80011;
        kept[i] = take(bytes[i], stream);
    }
    for (size_t i = 0; i < LAYERS; i++) {
        give(kept[i], bytes[i]);
    }
}

static void run_steps(void (*run)(void *), wait_kind kind, void *stream) {
    for (int i = 0; i < STEPS; i++) {
        run(stream);
        wait_for(kind, stream);
    }
}

static void run_stream(wait_kind kind, void *stream) {
    for (int i = 0; i < ROUNDS; i++) {
        const size_t bytes = (1 + draw(20)) * MIB;
        give(take(bytes, stream), bytes);
        wait_for(kind, stream);
    }
}

static unsigned long long event_records(void) {
    unsigned long long (*records)(void) = NULL;
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "ashlar_fake_event_records");
    memcpy(&records, &address, sizeof records);
    return records == NULL ? 0 : records();
}

int run_program(const gpu *calls, int argc, char **argv) {
    static const char *const kinds[] = {"none", "stream", "device"};
    static const char *const streams[] = {"legacy", "blocking", "unordered"};
    void *stream = NULL;
    size_t kind = 0, of = 0;
    g = calls;
    while (argc == 5 && kind < 3 && strcmp(argv[2], kinds[kind]) != 0) {
        kind++;
    }
    while (argc == 5 && of < 3 && strcmp(argv[3], streams[of]) != 0) {
        of++;
    }
    if (argc != 5 || kind == 3 || of == 3) {
        printf("usage: %s lengths|stream none|stream|device legacy|blocking|unordered SEED\n",
               argv[0]);
        return 2;
    }
    state = strtoull(argv[4], NULL, 10);
    failures += g->use(0) != 0;
    failures += of != 0 && g->make_stream(&stream, of == 1) != 0;
    if (strcmp(argv[1], "lengths") == 0) {
        run_steps(step, (wait_kind)kind, stream);
    } else if (strcmp(argv[1], "steps") == 0) {
        run_steps(step_at_once, (wait_kind)kind, stream);
    } else {
        run_stream((wait_kind)kind, stream);
    }
    printf("live %zu events %llu failures %d\n", live_peak, event_records(), failures);
    return failures != 0;
}
