#include "rnn/train/feed.h"

ashlar_status ashlar_feed_init(ashlar_feed *feed, ashlar_device *device, ashlar_task *task,
                               ashlar_stream stream) {
    *feed = (ashlar_feed){.device = device, .task = task, .stream = stream};
    ashlar_status status = ashlar_stream_create(device, &feed->copies);
    for (size_t i = 0; i < ASHLAR_TASK_SLOTS && status == ASHLAR_OK; i++) {
        status = ashlar_event_create(device, &feed->uploaded[i]);
        if (status == ASHLAR_OK) {
            status = ashlar_event_create(device, &feed->done[i]);
        }
    }
    return status;
}

void ashlar_feed_finish(ashlar_feed *feed) {
    if (feed->device == NULL) {
        return;
    }
    const ashlar_stream streams[] = {feed->copies, feed->stream};
    for (size_t i = 0; i < 2; i++) {
        if (streams[i] != NULL) {
            const ashlar_status unused = ashlar_stream_synchronize(feed->device, streams[i]);
            (void)unused; /* whoever queued it was told */
        }
    }
    for (size_t i = 0; i < ASHLAR_TASK_SLOTS; i++) {
        ashlar_event_destroy(feed->device, feed->uploaded[i]);
        ashlar_event_destroy(feed->device, feed->done[i]);
    }
    ashlar_stream_destroy(feed->device, feed->copies);
}

static ashlar_status record(ashlar_feed *feed, ashlar_event event, ashlar_stream stream) {
    feed->points++;
    return ashlar_event_record(feed->device, event, stream);
}

ashlar_status ashlar_feed_draw(ashlar_feed *feed, size_t step) {
    const size_t slot = ashlar_feed_slot(step);
    feed->batches[slot] = feed->task->table->next(feed->task, slot);
    const ashlar_status status = feed->task->table->upload(feed->task, slot, feed->copies);
    return status == ASHLAR_OK ? record(feed, feed->uploaded[slot], feed->copies) : status;
}

ashlar_status ashlar_feed_begin_step(ashlar_feed *feed, size_t step) {
    feed->points++;
    return ashlar_stream_wait(feed->device, feed->stream, feed->uploaded[ashlar_feed_slot(step)]);
}

ashlar_status ashlar_feed_end_step(ashlar_feed *feed, size_t step) {
    return record(feed, feed->done[ashlar_feed_slot(step)], feed->stream);
}

ashlar_status ashlar_feed_wait(ashlar_feed *feed, size_t step) {
    return ashlar_event_synchronize(feed->device, feed->done[ashlar_feed_slot(step)]);
}
