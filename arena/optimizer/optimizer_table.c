/* optimizer_table.c - lists the runs of elements of an arena that an optimizer updates, cuts them
 * into chunks, and sets a job to those in a range of bytes. */
#include "arena/optimizer/optimizer_impl.h"

#include <stdlib.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

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

static void add_type(ashlar_optimizer_job *job, const ashlar_optimizer_run *run) {
    job->dtypes |= ASHLAR_DTYPE_BIT(run->dtype);
    job->matrix_dtypes |= run->is_matrix ? ASHLAR_DTYPE_BIT(run->dtype) : 0;
}

void ashlar__optimizer_cover(ashlar_optimizer_job *job, const ashlar_optimizer_run *runs,
                             size_t count) {
    job->runs = runs;
    job->run_count = count;
    job->dtypes = 0;
    job->matrix_dtypes = 0;
    job->first = 0;
    job->end = 0;
    job->first_chunk = 0;
    job->end_chunk = 0;
    job->elements = 0;
    for (size_t i = 0; i < count; i++) {
        ASHLAR_CHECK2(i == 0 || runs[i].first_chunk ==
                                    runs[i - 1].first_chunk + count_chunks(runs[i - 1].elements));
        job->elements += runs[i].elements;
        add_type(job, &runs[i]);
    }
    if (count > 0) {
        const ashlar_optimizer_run *last = &runs[count - 1];
        job->end = last->elements;
        job->first_chunk = runs[0].first_chunk;
        job->end_chunk = last->first_chunk + count_chunks(last->elements);
    }
}

/* The address at which a run begins in a region; NULL if the region is not among `regions`. */
static void *address(const ashlar_arena *arena, const ashlar_arena_run *run, ashlar_region region,
                     unsigned regions) {
    char *base = ashlar_arena_region(arena, region);
    const bool is_wanted = base != NULL && (regions & ASHLAR_REGION_BIT(region)) != 0;
    return is_wanted ? base + run->offset[ashlar__region_layout(region)] : NULL;
}

static ashlar_optimizer_run describe(const ashlar_arena *arena, const ashlar_arena_run *run,
                                     unsigned regions) {
    const bool is_narrow = ashlar_dtype_is_narrow(run->dtype);
    return (ashlar_optimizer_run){
        .parameters = address(arena, run, ASHLAR_REGION_PARAMETERS, regions),
        .gradients = address(arena, run, ASHLAR_REGION_GRADIENTS, regions),
        .moment1 = address(arena, run, ASHLAR_REGION_MOMENT1, regions),
        .moment2 = address(arena, run, ASHLAR_REGION_MOMENT2, regions),
        .master = is_narrow ? address(arena, run, ASHLAR_REGION_MASTER, regions) : NULL,
        .elements = run->elements,
        .rate_scale = run->options.rate_scale,
        .decay_scale = run->options.has_no_decay ? 0 : run->options.decay_scale,
        .tensor = arena->order[run->first],
        .dtype = run->dtype,
        .is_frozen = run->options.is_frozen,
        .is_matrix = run->is_matrix,
    };
}

static void add_run(ashlar_optimizer_table *table, const ashlar_arena *arena,
                    const ashlar_arena_run *run, const ashlar_optimizer_rule *rule) {
    const size_t begin = run->offset[ASHLAR_LAYOUT_STORAGE], i = table->count++;
    double scale = run->options.rate_scale;
    ASHLAR_CHECK2(i == 0 || table->places[i - 1].end <= begin);
    table->runs[i] = describe(arena, run, ashlar__optimizer_regions(&rule->config));
    table->places[i] = (ashlar_optimizer_place){
        .begin = begin,
        .end = begin + run->elements * ashlar_dtype_bytes(run->dtype),
        .elements_before =
            i == 0 ? 0 : table->places[i - 1].elements_before + table->runs[i - 1].elements};
    table->shape = ashlar__random_mix(table->shape + begin);
    if (run->is_matrix) {
        const size_t *shape = arena->tensors[arena->order[run->first]].info.shape;
        table->runs[i].muon_scale = ashlar__muon_scale(&rule->config, shape[0], shape[1]);
        table->matrices[table->matrix_count++] =
            (ashlar_optimizer_matrix){i, shape[0], shape[1], .is_wide = run->dtype == ASHLAR_F64};
        table->shape = ashlar__random_mix(table->shape + shape[0]);
        scale *= fmax(1, table->runs[i].muon_scale);
    }
    table->largest_scale = fmax(table->largest_scale, scale);
    table->largest_decay = fmax(table->largest_decay, run->options.decay_scale);
}

/* By type and shape, then by place. */
static int compare_matrices(const void *left, const void *right) {
    const ashlar_optimizer_matrix *a = left, *b = right;
    const size_t x[] = {a->is_wide, a->rows, a->columns, a->run};
    const size_t y[] = {b->is_wide, b->rows, b->columns, b->run};
    int order = 0;
    for (size_t i = 0; i < sizeof x / sizeof x[0] && order == 0; i++) {
        order = (x[i] > y[i]) - (x[i] < y[i]);
    }
    return order;
}

size_t ashlar__muon_batch(const ashlar_optimizer_matrix *matrices, size_t count, size_t at) {
    const size_t most = ((size_t)64 << 20) / ashlar__muon_products_bytes(&matrices[at]);
    const ashlar_optimizer_matrix *first = &matrices[at];
    size_t batch = 1;
    while (batch < most && at + batch < count && first[batch].is_wide == first->is_wide &&
           first[batch].rows == first->rows && first[batch].columns == first->columns) {
        batch++;
    }
    return batch;
}

static void fill(ashlar_optimizer_table *table, const ashlar_arena *arena,
                 const ashlar_arena_run *runs, size_t count, const ashlar_optimizer_rule *rule) {
    for (size_t i = 0; i < count; i++) {
        add_run(table, arena, &runs[i], rule);
    }
    table->chunk_count = ashlar__optimizer_number(table->runs, table->count);
    if (table->matrix_count == 0) {
        return;
    }
    qsort(table->matrices, table->matrix_count, sizeof *table->matrices, compare_matrices);
    for (size_t at = 0, batch; at < table->matrix_count; at += batch) {
        batch = ashlar__muon_batch(table->matrices, table->matrix_count, at);
        const size_t bytes = batch * ashlar__muon_products_bytes(&table->matrices[at]);
        table->products_bytes = bytes > table->products_bytes ? bytes : table->products_bytes;
    }
}

ashlar_status ashlar__optimizer_table_init(ashlar_optimizer_table *table, const ashlar_arena *arena,
                                           const ashlar_optimizer_rule *rule) {
    const size_t most = arena->tensor_count;
    ashlar_arena_run *runs = ashlar__host_calloc(most, sizeof *runs);
    *table = (ashlar_optimizer_table){0};
    if (runs != NULL) {
        const bool is_muon = rule->config.kind == ASHLAR_OPTIMIZER_MUON;
        const size_t count = ashlar__arena_runs(arena, is_muon, runs);
        table->runs = ashlar__host_calloc(count, sizeof *table->runs);
        table->places = ashlar__host_calloc(count, sizeof *table->places);
        table->matrices = is_muon ? ashlar__host_calloc(count, sizeof *table->matrices) : NULL;
        if (table->runs != NULL && table->places != NULL && is_muon == (table->matrices != NULL)) {
            fill(table, arena, runs, count, rule);
            ashlar__host_free(runs);
            return ASHLAR_OK;
        }
    }
    ashlar__host_free(runs);
    ashlar__optimizer_table_finish(table);
    return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the optimizer's runs of %zu tensors",
                        most);
}

void ashlar__optimizer_table_finish(ashlar_optimizer_table *table) {
    ashlar__host_free(table->runs);
    ashlar__host_free(table->places);
    ashlar__host_free(table->matrices);
    *table = (ashlar_optimizer_table){0};
}

/* The first run that ends after `offset`; table->count if none does. */
static size_t find(const ashlar_optimizer_table *table, size_t offset) {
    size_t low = 0, high = table->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (table->places[middle].end > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* The number of elements of run `i` that lie before `offset`. */
static size_t elements_before(const ashlar_optimizer_table *table, size_t i, size_t offset) {
    const ashlar_optimizer_place *place = &table->places[i];
    if (offset <= place->begin) {
        return 0;
    }
    const size_t end = offset < place->end ? offset : place->end;
    ASHLAR_CHECK2((end - place->begin) % ashlar_dtype_bytes(table->runs[i].dtype) == 0);
    return (end - place->begin) / ashlar_dtype_bytes(table->runs[i].dtype);
}

size_t ashlar__optimizer_table_piece(const ashlar_optimizer_table *table, size_t offset,
                                     size_t stop, size_t bytes) {
    const bool is_last = stop - offset <= bytes;
    const size_t end = is_last ? stop : (offset + bytes) / ASHLAR_ARENA_ALIGN * ASHLAR_ARENA_ALIGN;
    const size_t i = find(table, end);
    if (i < table->count && table->runs[i].is_matrix && table->places[i].begin < end) {
        return table->places[i].begin > offset ? table->places[i].begin : table->places[i].end;
    }
    return end;
}

void ashlar__optimizer_table_select(const ashlar_optimizer_table *table,
                                    const ashlar_optimizer_run *runs, size_t offset, size_t bytes,
                                    ashlar_optimizer_job *job) {
    const size_t chunk = ASHLAR_OPTIMIZER_CHUNK, stop = offset + bytes;
    const size_t first = find(table, offset);
    size_t end = find(table, stop);
    end += end < table->count && table->places[end].begin < stop;
    ashlar__optimizer_cover(job, NULL, 0);
    if (bytes == 0 || first == end) {
        return;
    }
    const size_t last = end - 1;
    job->runs = runs + first;
    job->run_count = end - first;
    job->first_run = first;
    for (size_t i = first; i < end; i++) {
        add_type(job, &table->runs[i]);
    }
    job->first = elements_before(table, first, offset);
    job->end = elements_before(table, last, stop);
    job->first_chunk = table->runs[first].first_chunk + job->first / chunk;
    job->end_chunk = table->runs[last].first_chunk + (job->end + chunk - 1) / chunk;
    job->elements = table->places[last].elements_before + job->end -
                    table->places[first].elements_before - job->first;
    ASHLAR_CHECK2(job->end <= table->runs[last].elements);
    ASHLAR_CHECK2(job->first_chunk < job->end_chunk && job->end_chunk <= table->chunk_count);
}
