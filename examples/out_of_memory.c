/* out_of_memory.c - at a memory limit a callback frees what the program can do without; then a
 * request that is too large fails, and its detail says what takes the memory.
 *
 *     cc out_of_memory.c -o out_of_memory $(pkg-config --cflags --libs ashlar) && ./out_of_memory
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

enum { MIB = 1 << 20, BLOCK = 4 * MIB, KEPT = 6 };

/* Blocks that the program keeps because it may need them again. */
typedef struct cache {
    ashlar_allocator *memory;
    void *blocks[KEPT];
    int count;
} cache;

static void must(ashlar_status status) {
    if (status != ASHLAR_OK) {
        fprintf(stderr, "%s\n", ashlar_error_detail());
        exit(1);
    }
}

/* Called when a request of `bytes` bytes finds no memory: frees as much, as far as there is. */
static bool give_back(void *user, size_t bytes) {
    cache *kept = user;
    size_t freed = 0;
    while (kept->count > 0 && freed < bytes) {
        must(ashlar_free(kept->memory, kept->blocks[--kept->count]));
        freed += BLOCK;
    }
    printf("%zu MiB are wanted: gave back %zu MiB\n", bytes / MIB, freed / MIB);
    return freed > 0; /* then the allocator looks again */
}

int main(void) {
    const ashlar_config config = {.limit_bytes = 32 * MIB};
    ashlar_device *device;
    cache kept = {0};
    void *weights, *batch, *too_much;
    must(ashlar_device_open(NULL, &device));
    must(ashlar_allocator_create_with(device, &config, &kept.memory));
    must(ashlar_alloc_tagged(kept.memory, 8 * MIB, ASHLAR_TAG_WEIGHTS, NULL, &weights));
    for (; kept.count < KEPT; kept.count++) {
        must(ashlar_alloc(kept.memory, BLOCK, NULL, &kept.blocks[kept.count]));
    }
    puts("All of the limit is in use.");
    ashlar_allocator_set_reclaim(kept.memory, give_back, &kept);
    must(ashlar_alloc_tagged(kept.memory, 6 * MIB, ASHLAR_TAG_BATCH, NULL, &batch));
    puts("The batch has its memory.");

    const ashlar_status status = ashlar_alloc(kept.memory, 30 * MIB, NULL, &too_much);
    printf("%s:\n%s\n", ashlar_status_name(status), ashlar_error_detail());
    ashlar_allocator_destroy(kept.memory);
    ashlar_device_close(device);
    return status != ASHLAR_ENOMEM;
}
