#include "bench/arena/arena_lists.h"

/* Chunks that `elements` are, and how many of them `chunks` chunks have room for. */
static size_t count_chunks(size_t elements, size_t chunk) {
    return elements / chunk + (elements % chunk != 0);
}

static size_t room_in(size_t chunks, size_t chunk) {
    return chunks > SIZE_MAX / chunk ? SIZE_MAX : chunks * chunk;
}

/* The next list, from element *element of run *run on; both move to where it ends. */
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
