/* prefetch.c - draws and uploads the next batch while a step runs. */
#include "rnn/train/prefetch.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__prefetch_init(ashlar_prefetch *prefetch, ashlar_device *device,
                                    ashlar_task *task, ashlar_stream stream) {
    *prefetch = (ashlar_prefetch){.device = device, .task = task, .stream = stream};
    const size_t parts = ASHLAR_PREFETCH_FLIGHTS * task->max_parts;
    ASHLAR_HOST_NEW(prefetch->part_tokens, parts, "no host memory for %zu parts", parts);
    ASHLAR_TRY(ashlar_stream_create(device, &prefetch->copies));
    for (size_t i = 0; i < ASHLAR_TASK_BUFFERS; i++) {
        ASHLAR_TRY(ashlar_event_create(device, &prefetch->uploaded[i]));
        ASHLAR_TRY(ashlar_event_create(device, &prefetch->done[i]));
    }
    return ASHLAR_OK;
}

void ashlar__prefetch_finish(ashlar_prefetch *prefetch) {
    if (prefetch->device == NULL) {
        return;
    }
    const ashlar_stream streams[] = {prefetch->copies, prefetch->stream};
    for (size_t i = 0; i < 2; i++) {
        if (streams[i] != NULL) {
            ASHLAR_IGNORE(ashlar_stream_synchronize(prefetch->device, streams[i]));
        }
    }
    for (size_t i = 0; i < ASHLAR_TASK_BUFFERS; i++) {
        ashlar_event_destroy(prefetch->device, prefetch->uploaded[i]);
        ashlar_event_destroy(prefetch->device, prefetch->done[i]);
    }
    ashlar_stream_destroy(prefetch->device, prefetch->copies);
    ashlar__host_free(prefetch->part_tokens);
}

static ashlar_status record(ashlar_prefetch *prefetch, ashlar_event event, ashlar_stream stream) {
    prefetch->event_calls++;
    return ashlar_event_record(prefetch->device, event, stream);
}

void ashlar__prefetch_take(ashlar_prefetch *prefetch, size_t step) {
    ashlar_task *task = prefetch->task;
    const size_t buffer = ashlar__prefetch_buffer(step), flight = step % ASHLAR_PREFETCH_FLIGHTS;
    prefetch->batches[flight] = task->table->next(task, buffer);
    for (size_t part = 0; part < prefetch->batches[flight].parts; part++) {
        prefetch->part_tokens[flight * task->max_parts + part] =
            task->table->part(task, buffer, part).tokens;
    }
}

ashlar_status ashlar__prefetch_draw(ashlar_prefetch *prefetch, size_t step) {
    const size_t buffer = ashlar__prefetch_buffer(step);
    ashlar__prefetch_take(prefetch, step);
    ASHLAR_TRY(prefetch->task->table->upload(prefetch->task, buffer, prefetch->copies));
    return record(prefetch, prefetch->uploaded[buffer], prefetch->copies);
}

ashlar_status ashlar__prefetch_begin_step(ashlar_prefetch *prefetch, size_t step) {
    prefetch->event_calls++;
    return ashlar_stream_wait(prefetch->device, prefetch->stream,
                              prefetch->uploaded[ashlar__prefetch_buffer(step)]);
}

ashlar_status ashlar__prefetch_end_step(ashlar_prefetch *prefetch, size_t step) {
    return record(prefetch, prefetch->done[ashlar__prefetch_buffer(step)], prefetch->stream);
}

ashlar_status ashlar__prefetch_wait(ashlar_prefetch *prefetch, size_t step) {
    return ashlar_event_synchronize(prefetch->device,
                                    prefetch->done[ashlar__prefetch_buffer(step)]);
}
