/*
 * program_drawn.c - in place of program.c: programs that take and free blocks of drawn sizes. Each
 * prints how much was live at most, and how many calls of the driver it took. What the preload
 * reserved for that, its report says.
 *
 *   steps     a step of a drawn length, with blocks that live to its end
 *   lengths   the same, with others that do not
 *   stream    take, use, free
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

static void run_same(wait_kind kind, void *stream) {
    run_steps(step_at_once, kind, stream);
}

static void run_lengths(wait_kind kind, void *stream) {
    run_steps(step, kind, stream);
}

static const struct {
    const char *name;
    void (*run)(wait_kind kind, void *stream);
} patterns[] = {
    {"steps", run_same},
    {"lengths", run_lengths},
    {"stream", run_stream},
};

/* What the tests' libcuda.so.1 counts. */
static unsigned long long counted(const char *name) {
    unsigned long long (*count)(void) = NULL;
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    memcpy(&count, &address, sizeof count);
    return count == NULL ? 0 : count();
}

/* The place of a word among `count` names, which lie `step` bytes apart; `count`: it is none. */
static size_t find_word(const char *word, const char *const names[], size_t count) {
    size_t i = 0;
    while (i < count && strcmp(word, names[i]) != 0) {
        i++;
    }
    return i;
}

int run_program(const gpu *calls, int argc, char **argv) {
    static const char *const kinds[] = {"none", "stream", "device"};
    static const char *const streams[] = {"legacy", "blocking", "unordered"};
    enum { PATTERNS = sizeof patterns / sizeof patterns[0] };
    void *stream = NULL;
    size_t pattern = 0;
    g = calls;
    while (argc >= 2 && pattern < PATTERNS && strcmp(argv[1], patterns[pattern].name) != 0) {
        pattern++;
    }
    const size_t kind = argc >= 5 ? find_word(argv[2], kinds, 3) : 3;
    const size_t of = argc >= 5 ? find_word(argv[3], streams, 3) : 3;
    if (argc > 5 || pattern == PATTERNS || kind == 3 || of == 3) {
        printf("usage: %s PATTERN none|stream|device legacy|blocking|unordered SEED\n", argv[0]);
        return 2;
    }
    state = strtoull(argv[4], NULL, 10);
    failures += g->use(0) != 0;
    failures += of != 0 && g->make_stream(&stream, of == 1) != 0;
    patterns[pattern].run((wait_kind)kind, stream);
    printf("live %zu events %llu calls %llu failures %d\n", live_peak,
           counted("ashlar_fake_event_records"), counted("ashlar_fake_calls"), failures);
    return failures != 0;
}
