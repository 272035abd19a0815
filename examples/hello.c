/* hello.c - open a device, take a block and give it back, read the statistics.
 *
 *     cc hello.c -o hello $(pkg-config --cflags --libs ashlar) && ./hello
 */
#include <stdio.h>

#include <ashlar/ashlar.h>

int main(void) {
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_stats stats;
    void *block;
    if (ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
        ashlar_alloc(memory, 1000000, NULL, &block) || ashlar_free(memory, block)) {
        return fprintf(stderr, "%s\n", ashlar_error_detail()), 1;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("%d bytes live, %d at the peak\n", (int)stats.live_bytes, (int)stats.live_peak_bytes);
    ashlar_allocator_destroy(memory);
    ashlar_device_close(device);
}
