/*
 * program_steps.c - in place of program.c: a program that has steps where it finds ashlar's
 * functions by dlsym(), and otherwise none.
 */
#include "program.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/allocator.h>

enum { LENGTHS = 128, STEPS = 300, WIDTH = 4 << 10 };

static const gpu *g;
static int failures;

/* What it asks for; NULL: it is not there. */
static struct {
    ashlar_allocator *(*allocator)(int device);
    __typeof__(&ashlar_step_begin) begin;
    __typeof__(&ashlar_step_end) end;
    __typeof__(&ashlar_plan_get_stats) get_plan_stats;
    __typeof__(&ashlar_allocator_trim) trim;
    __typeof__(&ashlar_allocator_seal) seal;
    __typeof__(&ashlar_allocator_get_stats) get_stats;
    __typeof__(&ashlar_error_detail) detail;
} ashlar;

static void find(void *handle) {
    static const struct {
        const char *name;
        void *field;
    } all[] = {
        {"ashlar_cuda_allocator", &ashlar.allocator},
        {"ashlar_step_begin", &ashlar.begin},
        {"ashlar_step_end", &ashlar.end},
        {"ashlar_plan_get_stats", &ashlar.get_plan_stats},
        {"ashlar_allocator_trim", &ashlar.trim},
        {"ashlar_allocator_seal", &ashlar.seal},
        {"ashlar_allocator_get_stats", &ashlar.get_stats},
        {"ashlar_error_detail", &ashlar.detail},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *address = dlsym(handle, all[i].name);
        EXPECT((address == NULL) == (dlerror() != NULL));
        memcpy(all[i].field, &address, sizeof address);
    }
}

static void work(size_t length, void *stream) {
    void *kept[LENGTHS], *gradient = NULL;
    for (size_t i = 0; i < length; i++) {
        EXPECT(g->alloc(&kept[i], (1 + i % 7) * WIDTH) == 0);
        EXPECT(g->fill(kept[i], (int)i, WIDTH, stream) == 0);
    }
    for (size_t i = length; i-- > 0;) {
        unsigned char byte = 0;
        EXPECT(g->alloc(&gradient, (1 + i % 5) * WIDTH) == 0);
        EXPECT(g->fill(gradient, 255, WIDTH, stream) == 0);
        EXPECT(i % 16 > 0 || (g->read(&byte, kept[i], 1, stream) == 0 && byte == i));
        EXPECT(g->give(gradient) == 0 && g->give(kept[i]) == 0);
    }
}

/* The longest step comes first, and its plan serves the others. */
static void loop(void *stream, uint64_t key) {
    ashlar_allocator *memory = ashlar.allocator(0);
    ashlar_plan_stats plans;
    ashlar_stats stats;
    if (memory == NULL) {
        printf("%s\n", ashlar.detail());
        failures++;
        return;
    }
    for (int step = 0; step < STEPS; step++) {
        EXPECT(ashlar.begin(memory, stream, key) == ASHLAR_OK);
        work(step == 0 ? LENGTHS : 1 + (size_t)step * 37 % LENGTHS, stream);
        EXPECT(ashlar.end(memory) == ASHLAR_OK);
        if (step == 0) {
            EXPECT(ashlar.trim(memory, 0) == ASHLAR_OK);
            ashlar.seal(memory);
        }
    }
    ashlar.get_stats(memory, &stats);
    ashlar.get_plan_stats(memory, &plans);
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        EXPECT(plans.misses[i] == 0);
    }
    EXPECT(plans.steps_replayed >= STEPS - 1);
    printf("driver calls after the warm-up: %llu\n", (unsigned long long)stats.driver_calls_sealed);
}

int run_program(const gpu *calls, int argc, char **argv) {
    void *stream = NULL;
    g = calls;
    if (g->use(0) != 0) {
        printf("there is no device\n");
        return 2;
    }
    find(RTLD_DEFAULT);
    EXPECT(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "ashlar_step_begin") == NULL);
    if (ashlar.allocator == NULL) {
        printf("no steps\n");
        work(LENGTHS, NULL);
        return failures > 0;
    }
    if (argc == 3 && strcmp(argv[1], "of") == 0) {
        find(dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD));
    }
    loop(NULL, 0);
    for (uint64_t key = 1; key < 4;
         key++) { /* each ends untold, and the next may have its handle */
        EXPECT(g->make_stream(&stream, key == 1) == 0);
        loop(stream, key);
        EXPECT(g->end_stream(stream) == 0);
    }
    return failures > 0;
}
