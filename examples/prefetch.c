/* prefetch.c - batches are copied to the device on one stream while another one computes.
 *
 *     cc prefetch.c -o prefetch $(pkg-config --cflags --libs ashlar) && ./prefetch
 *
 * A block belongs to the stream that it was taken for, here the stream of copies. The stream that
 * computes uses it, too: ashlar_record_stream() says so. Then the host may free the block as soon
 * as its work is queued, and need not wait for either stream: nothing is copied over the block
 * before the work that reads it is done. Without that line the output may be wrong. To see it, set
 *
 *     ASHLAR_SOFT=mode=adversarial,seed=1 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/ashlar.h>

enum { BATCHES = 64, BATCH_BYTES = 100000 };

static void must(ashlar_status status) {
    if (status != ASHLAR_OK) {
        fprintf(stderr, "%s\n", ashlar_error_detail());
        exit(1);
    }
}

/* Queue the copy of batch i and its use, which is a copy here; a kernel goes in its place. */
static void queue_batch(ashlar_allocator *memory, ashlar_stream copies, ashlar_stream compute,
                        ashlar_event copied, int i, unsigned char *result) {
    ashlar_device *device = ashlar_allocator_device(memory);
    static unsigned char host[BATCH_BYTES];
    void *batch;
    memset(host, i, sizeof host);
    must(ashlar_alloc_tagged(memory, BATCH_BYTES, ASHLAR_TAG_BATCH, copies, &batch));
    must(ashlar_copy_to_device(device, batch, host, BATCH_BYTES, copies));
    must(ashlar_event_record(device, copied, copies));
    must(ashlar_stream_wait(device, compute, copied)); /* on the device: the host goes on */
    must(ashlar_copy(device, result, batch, BATCH_BYTES, compute));
    must(ashlar_record_stream(memory, batch, compute));
    must(ashlar_free(memory, batch));
}

/* How many of the results are as they should be. */
static int count_right(ashlar_device *device, ashlar_stream stream, const unsigned char *results) {
    static unsigned char host[BATCH_BYTES];
    int right = 0;
    for (int i = 0; i < BATCHES; i++) {
        must(ashlar_copy_to_host(device, host, results + (size_t)i * BATCH_BYTES, BATCH_BYTES,
                                 stream));
        must(ashlar_stream_synchronize(device, stream));
        right += host[0] == i && memcmp(host, host + 1, BATCH_BYTES - 1) == 0;
    }
    return right;
}

int main(void) {
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_stream copies, compute;
    ashlar_event copied;
    ashlar_stats stats;
    void *results;
    must(ashlar_device_open(NULL, &device));
    must(ashlar_allocator_create(device, &memory));
    must(ashlar_stream_create(device, &copies));
    must(ashlar_stream_create(device, &compute));
    must(ashlar_event_create(device, &copied));
    must(ashlar_alloc(memory, (size_t)BATCHES * BATCH_BYTES, compute, &results));
    for (int i = 0; i < BATCHES; i++) {
        queue_batch(memory, copies, compute, copied, i,
                    (unsigned char *)results + (size_t)i * BATCH_BYTES);
    }
    const int right = count_right(device, compute, results);
    ashlar_allocator_get_stats(memory, &stats);
    printf("%d of %d batches are right; %" PRIu64 " MiB reserved, %" PRIu64 " events recorded\n",
           right, BATCHES, stats.reserved_bytes >> 20, stats.events_recorded);
    must(ashlar_free(memory, results));
    ashlar_event_destroy(device, copied);
    ashlar_stream_destroy(device, compute); /* also tells the allocator that the stream ends */
    ashlar_stream_destroy(device, copies);
    ashlar_allocator_destroy(memory);
    ashlar_device_close(device);
    return right != BATCHES;
}
