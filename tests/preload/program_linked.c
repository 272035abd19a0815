/*
 * program_linked.c - in place of program.c: a program that is linked with ashlar, and has steps
 * with an allocator of its own. What it names and what it looks up is of that ashlar, and no other.
 */
#include "program.h"

#include <dlfcn.h>
#include <string.h>

#include <ashlar/ashlar.h>

static int failures;

static bool finds_its_own(void) {
    __typeof__(&ashlar_step_begin) own = ashlar_step_begin;
    void *found = dlsym(RTLD_DEFAULT, "ashlar_step_begin");
    return memcmp(&own, &found, sizeof own) == 0;
}

static void run_steps(ashlar_allocator *memory, const gpu *g) {
    ashlar_plan_stats plans;
    for (int i = 0; i < 3; i++) {
        void *own = NULL, *plain = NULL;
        EXPECT(ashlar_step_begin(memory, NULL, 0) == ASHLAR_OK);
        EXPECT(ashlar_alloc(memory, 1 << 20, NULL, &own) == ASHLAR_OK);
        EXPECT(g->alloc(&plain, 1 << 20) == 0);
        EXPECT(g->fill(own, 1, 1 << 20, NULL) == 0 && g->fill(plain, 1, 1 << 20, NULL) == 0);
        EXPECT(g->give(plain) == 0);
        EXPECT(ashlar_free(memory, own) == ASHLAR_OK);
        EXPECT(ashlar_step_end(memory) == ASHLAR_OK);
    }
    ashlar_plan_get_stats(memory, &plans);
    EXPECT(plans.hits == 2 && plans.slot_count == 1);
}

int run_program(const gpu *g, int argc, char **argv) {
    ashlar_device *device;
    ashlar_allocator *memory;
    (void)argc, (void)argv;
    if (g->use(0) != 0 || ashlar_device_open("cuda:0", &device) != ASHLAR_OK) {
        printf("there is no device\n");
        return 2;
    }
    EXPECT(finds_its_own());
    if (ashlar_allocator_create(device, &memory) == ASHLAR_OK) {
        run_steps(memory, g);
        ashlar_allocator_destroy(memory);
    } else {
        failures++;
    }
    ashlar_device_close(device);
    return failures > 0;
}
