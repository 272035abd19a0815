/* optimizer_table.c - lists the runs of elements of an arena that an optimizer updates, cuts them
 * into chunks, and sets a job to those in a range of bytes. */
#include "arena/optimizer/optimizer_impl.h"

#include <stdlib.h>
#include <string.h>

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
        .tensor = arena->order[run->first],
        .dtype = run->dtype,
        .is_decayed = !run->options.has_no_decay,
        .is_frozen = run->options.is_frozen,
    };
}

/* The tensor order[at], if MUON updates it as a whole; or NULL. */
static const ashlar_tensor_info *matrix_at(const ashlar_arena *arena, size_t at) {
    const ashlar_tensor_info *info = &arena->tensors[arena->order[at]].info;
    return info->rank == 2 && !info->options.is_elementwise ? info : NULL;
}

/* The part of a run of the arena that begins with tensor order[first], for MUON: a matrix, without
 * padding, or what lies before the next one. */
static ashlar_arena_run part_of(const ashlar_arena *arena, const ashlar_arena_run *run,
                                size_t first) {
    const size_t stop = run->first + run->count, width = ashlar_dtype_bytes(run->dtype);
    const ashlar_tensor_info *matrix = matrix_at(arena, first);
    ashlar_arena_run part = *run;
    part.first = first;
    part.count = 1;
    if (matrix != NULL || first > run->first) {
        memcpy(part.offset, arena->tensors[arena->order[first]].info.offset, sizeof part.offset);
    }
    if (matrix != NULL) {
        part.elements = matrix->elements;
        return part;
    }
    while (first + part.count < stop && matrix_at(arena, first + part.count) == NULL) {
        part.count++;
    }
    const size_t end = first + part.count;
    const size_t end_offset =
        end < stop ? arena->tensors[arena->order[end]].info.offset[ASHLAR_LAYOUT_STORAGE]
                   : run->offset[ASHLAR_LAYOUT_STORAGE] + run->elements * width;
    part.elements = (end_offset - part.offset[ASHLAR_LAYOUT_STORAGE]) / width;
    return part;
}

static void add_run(ashlar_optimizer_table *table, const ashlar_arena *arena,
                    const ashlar_arena_run *run, const ashlar_optimizer_rule *rule) {
    const size_t begin = run->offset[ASHLAR_LAYOUT_STORAGE], i = table->count++;
    const size_t before = i == 0 ? 0 : table->places[i - 1].elements_before;
    const ashlar_tensor_info *matrix =
        rule->config.kind == ASHLAR_OPTIMIZER_MUON ? matrix_at(arena, run->first) : NULL;
    double scale = run->options.rate_scale;
    ASHLAR_CHECK2(i == 0 || table->places[i - 1].end <= begin);
    table->runs[i] = describe(arena, run, ashlar__optimizer_regions(&rule->config));
    table->places[i] = (ashlar_optimizer_place){
        .begin = begin,
        .end = begin + run->elements * ashlar_dtype_bytes(run->dtype),
        .elements_before = before + (i == 0 ? 0 : table->runs[i - 1].elements)};
    table->shape = ashlar__random_mix(table->shape + begin);
    if (matrix != NULL) {
        const size_t rows = matrix->shape[0], columns = matrix->shape[1];
        const bool is_wide = matrix->dtype == ASHLAR_F64;
        table->runs[i].is_matrix = true;
        table->runs[i].muon_scale = ashlar__muon_scale(&rule->config, rows, columns);
        table->matrices[table->matrix_count++] =
            (ashlar_optimizer_matrix){i, rows, columns, is_wide};
        table->shape = ashlar__random_mix(table->shape + rows);
        scale *= fmax(1, table->runs[i].muon_scale);
    }
    table->largest_scale = fmax(table->largest_scale, scale);
}

static int compare_sizes(size_t a, size_t b) {
    return (a > b) - (a < b);
}

static int compare_matrices(const void *left, const void *right) {
    const ashlar_optimizer_matrix *a = left, *b = right;
    const int type = (int)a->is_wide - (int)b->is_wide, rows = compare_sizes(a->rows, b->rows);
    const int columns = compare_sizes(a->columns, b->columns);
    return type != 0      ? type
           : rows != 0    ? rows
           : columns != 0 ? columns
                          : compare_sizes(a->run, b->run);
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
        if (rule->config.kind != ASHLAR_OPTIMIZER_MUON) {
            add_run(table, arena, &runs[i], rule);
            continue;
        }
        for (size_t at = runs[i].first; at < runs[i].first + runs[i].count;) {
            const ashlar_arena_run part = part_of(arena, &runs[i], at);
            add_run(table, arena, &part, rule);
            at += part.count;
        }
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
        const size_t count = ashlar__arena_runs(arena, runs);
        const bool is_muon = rule->config.kind == ASHLAR_OPTIMIZER_MUON;
        const size_t room = is_muon ? most : count; /* a run for each tensor, at most */
        table->runs = ashlar__host_calloc(room, sizeof *table->runs);
        table->places = ashlar__host_calloc(room, sizeof *table->places);
        table->matrices = is_muon ? ashlar__host_calloc(most, sizeof *table->matrices) : NULL;
        if (table->runs != NULL && table->places != NULL && (table->matrices != NULL || !is_muon)) {
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
