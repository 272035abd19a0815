/* optimizer_job.c - the runs and chunks of a job, the same on every back end. */
#include "allocator/base/check_level.h"
#include "arena/optimizer/optimizer_impl.h"

static size_t count_chunks(size_t elements) {
    return elements / ASHLAR_OPTIMIZER_CHUNK + (elements % ASHLAR_OPTIMIZER_CHUNK != 0);
}

size_t ashlar__optimizer_number(ashlar_optimizer_run *runs, size_t count) {
    size_t chunk = 0;
    for (size_t i = 0; i < count; i++) {
        runs[i].first_chunk = chunk;
        chunk += count_chunks(runs[i].elements);
    }
    return chunk;
}

void ashlar__optimizer_cover(ashlar_optimizer_job *job, const ashlar_optimizer_run *runs,
                             size_t count) {
    job->runs = runs;
    job->run_count = count;
    job->first = 0;
    job->end = 0;
    job->first_chunk = 0;
    job->end_chunk = 0;
    job->elements = 0;
    for (size_t i = 0; i < count; i++) {
        ASHLAR_CHECK2(i == 0 || runs[i].first_chunk == runs[i - 1].first_chunk +
                                                           count_chunks(runs[i - 1].elements));
        job->elements += runs[i].elements;
    }
    if (count > 0) {
        const ashlar_optimizer_run *last = &runs[count - 1];
        job->end = last->elements;
        job->first_chunk = runs[0].first_chunk;
        job->end_chunk = last->first_chunk + count_chunks(last->elements);
    }
}
