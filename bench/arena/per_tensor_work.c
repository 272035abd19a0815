/* per_tensor_work.c - splits scattered tensors into lists, and works on them list by list. */
#include "bench/arena/per_tensor.h"

#include <string.h>

#include "allocator/base/host.h"
#include "arena/checkpoint/safetensors.h"

/* The chunks that `elements` fill, and the elements that `chunks` chunks have room for. */
static size_t count_chunks(size_t elements, size_t chunk) {
    return elements / chunk + (elements % chunk != 0);
}

static size_t room_in(size_t chunks, size_t chunk) {
    return chunks > SIZE_MAX / chunk ? SIZE_MAX : chunks * chunk;
}

/* Make the next list, from element *element of run *run on, and move both to its end. */
static ashlar_arena_list take(const ashlar_optimizer_run *runs, size_t count,
                              const ashlar_arena_list_limits *limits, size_t *run,
                              size_t *element) {
    ashlar_arena_list list = {.first = *run, .skip = *element};
    size_t chunks = limits->chunks;
    while (*run < count && list.count < limits->tensors && chunks > 0) {
        const size_t left = runs[*run].elements - *element;
        const size_t room = room_in(chunks, limits->chunk_elements);
        const size_t taken = left < room ? left : room;
        chunks -= count_chunks(taken, limits->chunk_elements);
        list.count++;
        list.end = *element + taken;
        *element = taken < left ? list.end : 0;
        *run += taken == left;
    }
    return list;
}

size_t ashlar__arena_lists_split(const ashlar_optimizer_run *runs, size_t count,
                                 const ashlar_arena_list_limits *limits, ashlar_arena_list *lists) {
    size_t made = 0, run = 0, element = 0;
    while (run < count) {
        const ashlar_arena_list list = take(runs, count, limits, &run, &element);
        if (lists != NULL) {
            lists[made] = list;
        }
        made++;
    }
    return made;
}

void ashlar__arena_list_piece(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              size_t i, size_t *begin, size_t *end) {
    *begin = i == 0 ? list->skip : 0;
    *end = i + 1 == list->count ? list->end : runs[list->first + i].elements;
}

void ashlar__arena_list_cover(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              const ashlar_optimizer_run *device_runs, ashlar_optimizer_job *job) {
    const size_t chunk = ASHLAR_OPTIMIZER_CHUNK;
    ashlar__optimizer_cover(job, runs + list->first, list->count);
    job->runs = device_runs + list->first;
    job->elements -= list->skip + (runs[list->first + list->count - 1].elements - list->end);
    job->first = list->skip;
    job->end = list->end;
    job->first_chunk = runs[list->first].first_chunk + list->skip / chunk;
    job->end_chunk =
        runs[list->first + list->count - 1].first_chunk + count_chunks(list->end, chunk);
}

static ashlar_status launch(const ashlar_per_tensor *t, const ashlar_optimizer_job *job) {
    return ashlar_launch(t->device, t->stream, ashlar__optimizer_cpu_run, job, sizeof *job);
}

static ashlar_status launch_lists(ashlar_per_tensor *t, unsigned pass, double learning_rate) {
    for (size_t l = 0; l < t->list_count; l++) {
        ashlar_optimizer_job *job = &t->jobs[l];
        job->passes = pass;
        job->scalars = pass == ASHLAR_OPTIMIZER_SUM ? &t->sums[l] : t->scalars;
        job->learning_rate = learning_rate;
        ASHLAR_TRY(launch(t, job));
    }
    return ASHLAR_OK;
}

typedef struct addition {
    ashlar_optimizer_scalars *total;
    ashlar_optimizer_scalars *sums;
    size_t count;
} addition;

static void add_up(void *args) {
    const addition *a = args;
    double sum = 0;
    for (size_t i = 0; i < a->count; i++) {
        sum += a->sums[i].sum;
        a->sums[i].sum_count = 0; /* so that, as after a decision, the next norm begins at 0 */
    }
    a->total->sum = sum;
}

ashlar_status ashlar__per_tensor_norm(ashlar_per_tensor *t) {
    const addition all = {.total = t->scalars, .sums = t->sums, .count = t->list_count};
    ASHLAR_TRY(launch_lists(t, ASHLAR_OPTIMIZER_SUM, 0));
    return ashlar_launch(t->device, t->stream, add_up, &all, sizeof all);
}

ashlar_status ashlar__per_tensor_step(ashlar_per_tensor *t, double learning_rate) {
    const ashlar_optimizer_job decide = {.rule = t->rule,
                                         .passes = ASHLAR_OPTIMIZER_DECIDE,
                                         .scalars = t->scalars,
                                         .gradient_scale = 1};
    ASHLAR_TRY(ashlar__per_tensor_norm(t));
    ASHLAR_TRY(launch(t, &decide));
    return launch_lists(t, ASHLAR_OPTIMIZER_UPDATE, learning_rate);
}

typedef struct fills {
    const ashlar_copy_span *spans; /* in host memory; they outlive the queued work */
    size_t count;
} fills;

static void fill_zeros(void *args) {
    const fills *f = args;
    for (size_t i = 0; i < f->count; i++) {
        memset(f->spans[i].dst, 0, f->spans[i].bytes);
    }
}

ashlar_status ashlar__per_tensor_zero(ashlar_per_tensor *t) {
    const ashlar_copy_span *span = t->gradients;
    for (size_t l = 0; l < t->list_count; l++) {
        const fills list = {.spans = span, .count = t->lists[l].count};
        ASHLAR_TRY(t->is_single
                       ? ashlar_fill(t->device, span->dst, 0, span->bytes, t->stream)
                       : ashlar_launch(t->device, t->stream, fill_zeros, &list, sizeof list));
        span += list.count;
    }
    return ASHLAR_OK;
}

static ashlar_status copy_lists(const ashlar_per_tensor *t, const ashlar_copy_span *spans) {
    for (size_t l = 0; l < t->list_count; l++) {
        ASHLAR_TRY(t->is_single
                       ? ashlar_copy(t->device, spans->dst, spans->src, spans->bytes, t->stream)
                       : ashlar_copy_batch(t->device, spans, t->lists[l].count, t->stream));
        spans += t->lists[l].count;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__per_tensor_flatten(ashlar_per_tensor *t) {
    ASHLAR_TRY(copy_lists(t, t->gathers));
    for (size_t i = 0; i < t->count; i++) {
        t->pointers[i] = ashlar_arena_view(t->arena, ASHLAR_REGION_PARAMETERS, i);
    }
    return ASHLAR_OK;
}

void ashlar__per_tensor_scatter(ashlar_per_tensor *t) {
    for (size_t i = 0; i < t->count; i++) {
        t->pointers[i] = t->runs[i].parameters;
    }
}

ashlar_status ashlar__per_tensor_replicate(ashlar_per_tensor *t) {
    ashlar__per_tensor_drop_replica(t);
    for (size_t i = 0; i < t->count; i++) {
        ASHLAR_TRY(ashlar_alloc(t->allocator, t->runs[i].elements * sizeof(float), t->stream,
                                &t->replica[i]));
    }
    for (size_t l = 0, span = 0; l < t->list_count; l++) {
        for (size_t i = 0; i < t->lists[l].count; i++, span++) {
            const size_t skip = i == 0 ? t->lists[l].skip : 0;
            t->copies[span].dst = (float *)t->replica[t->lists[l].first + i] + skip;
        }
    }
    return copy_lists(t, t->copies);
}

static ashlar_status read_tensors(const ashlar_per_tensor *t, char *image,
                                  ashlar_safetensors_entry *entries) {
    for (size_t i = 0; i < t->count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(t->arena, i, &info);
        entries[i] = (ashlar_safetensors_entry){
            .name = info.name, .dtype = info.dtype, .rank = info.rank, .data = image};
        memcpy(entries[i].shape, info.shape, info.rank * sizeof info.shape[0]);
        ASHLAR_TRY(
            ashlar_copy_to_host(t->device, image, t->runs[i].parameters, info.bytes, t->stream));
        image += info.bytes;
    }
    return ashlar_stream_synchronize(t->device, t->stream);
}

ashlar_status ashlar__per_tensor_save(ashlar_per_tensor *t, const char *path) {
    char *image = ashlar__host_calloc(ashlar_arena_elements(t->arena), sizeof(float));
    ashlar_safetensors_entry *entries = ashlar__host_calloc(t->count, sizeof *entries);
    ashlar_status status =
        image != NULL && entries != NULL
            ? read_tensors(t, image, entries)
            : ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory to save %s", path);
    ASHLAR_THEN(status, ashlar__safetensors_write(path, entries, t->count, NULL, 0));
    ashlar__host_free(entries);
    ashlar__host_free(image);
    return status;
}
