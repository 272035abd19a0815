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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { BATCHES = 64, BATCH_BYTES = 100000 };

int main(void) {
    static unsigned char host[BATCH_BYTES];
    unsigned char(*results)[BATCH_BYTES]; /* page-locked: the host need not wait for a copy there */
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_stream copies, compute;
    ashlar_event copied;
    ashlar_stats stats;
    void *batch;
    int right = 0;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_stream_create(device, &copies) || ashlar_stream_create(device, &compute) ||
         ashlar_event_create(device, &copied) ||
         ashlar_device_host_alloc(device, BATCHES * sizeof *results, (void **)&results));
    for (int i = 0; i < BATCHES; i++) {
        memset(host, i, sizeof host);
        must(ashlar_alloc_tagged(memory, BATCH_BYTES, ASHLAR_TAG_BATCH, copies, &batch));
        must(ashlar_copy_to_device(device, batch, host, BATCH_BYTES, copies));
        must(ashlar_event_record(device, copied, copies));
        must(ashlar_stream_wait(device, compute, copied)); /* on the device: the host goes on */
        /* Its use, which is a copy here; a kernel goes in its place. */
        must(ashlar_copy_to_host(device, results[i], batch, BATCH_BYTES, compute));
        must(ashlar_record_stream(memory, batch, compute));
        must(ashlar_free(memory, batch));
    }
    must(ashlar_stream_synchronize(device, compute));
    for (int i = 0; i < BATCHES; i++) {
        right += results[i][0] == i && memcmp(results[i], results[i] + 1, BATCH_BYTES - 1) == 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("%d of %d batches are right; %d MiB reserved, %d events recorded\n", right, BATCHES,
           (int)(stats.reserved_bytes >> 20), (int)stats.events_recorded);
    ashlar_event_destroy(device, copied);
    ashlar_stream_destroy(device, compute); /* also tells the allocator that the stream ends */
    ashlar_stream_destroy(device, copies);
    ashlar_device_host_free(device, results);
    ashlar_allocator_destroy(memory);
    ashlar_device_close(device);
    return right != BATCHES;
}
