/* warmup.c - steps of variable length: after the warm-up none of them calls the driver.
 *
 *     cc warmup.c -o warmup $(pkg-config --cflags --libs ashlar) && ./warmup
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { BATCH = 32, WIDTH = 256, LAYERS = 4, LENGTH_MAX = 100, STEPS = 1000 };

/* A step's allocations: forward keeps an activation for each layer, backward frees them and takes a
 * gradient for each. The work would be queued in between. */
static ashlar_status step(void *user, size_t length) {
    ashlar_allocator *memory = user;
    const size_t bytes = length * BATCH * WIDTH * sizeof(float);
    void *activation[LAYERS], *gradient, *next;
    for (int layer = 0; layer < LAYERS; layer++) {
        must(ashlar_alloc_tagged(memory, bytes, ASHLAR_TAG_SAVED, NULL, &activation[layer]));
    }
    must(ashlar_alloc(memory, bytes, NULL, &gradient));
    for (int layer = LAYERS; layer-- > 0; gradient = next) {
        must(ashlar_alloc(memory, bytes, NULL, &next));
        must(ashlar_free(memory, gradient));
        must(ashlar_free(memory, activation[layer]));
    }
    return ashlar_free(memory, gradient);
}

int main(void) {
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_warmup_report report;
    ashlar_stats stats;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory));
    const ashlar_warmup_options options = {
        .max_length = LENGTH_MAX, .dry_run = step, .user = memory};
    must(ashlar_allocator_warmup(memory, &options, &report));
    printf("A step of any length from 1 to %d takes no more memory: %s.\n", LENGTH_MAX,
           report.is_steady ? "guaranteed" : report.unsteady_because);
    printf("%" PRIu64 " bytes are reserved; the largest step has %" PRIu64 " live at once.\n",
           report.reserved_bytes, report.plan.bound_bytes);

    uint32_t random = 1;
    for (int i = 0; i < STEPS; i++) {
        random = random * 1664525 + 1013904223;
        const size_t length = 1 + (random >> 8) % LENGTH_MAX;
        must(ashlar_step_begin(memory, NULL, ashlar_warmup_key(&options, length)));
        must(step(memory, length));
        must(ashlar_step_end(memory));
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("%d steps: %" PRIu64 " driver calls, %" PRIu64 " bytes reserved.\n", STEPS,
           stats.driver_calls_sealed, stats.reserved_bytes);
    ashlar_allocator_destroy(memory);
    ashlar_device_close(device);
    return !report.is_steady || stats.driver_calls_sealed != 0;
}
