/* alloc_instructions.c - counts the instructions of one malloc + free pair with each allocator, and
 * runs pairs for valgrind or other tools that count. */
#include "bench/peers/bench_alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/peers/measure.h"

/* The lists whose pairs are counted. */
static const struct counted {
    ashlar_bench_name name;
    const char *variant;            /* of the row */
    size_t bodies_few, bodies_many; /* the difference is counted */
} counted[] = {
    {{"one_size", "4096"}, "4096-instructions", 16, 1024},
    {{"random", ""}, "instructions", 2, 12},
};

static const ashlar_workload_spec *find_spec(ashlar_bench_name name) {
    const ashlar_workload_spec *spec;
    size_t i = 0;
    while ((spec = ashlar__workload_spec(false, i)) != NULL &&
           (strcmp(spec->name, name.name) != 0 || strcmp(spec->variant, name.variant) != 0)) {
        i++;
    }
    return spec;
}

/* The first list that the request names; if it names none, pairs of 4 KiB. */
static const ashlar_workload_spec *spec_to_repeat(const ashlar_bench_request *request) {
    ashlar_bench_name name = counted[0].name;
    if (request->workloads.count > 0) {
        size_t i = 0;
        while (ashlar__benchmark_alloc.workload(i, &name) &&
               !ashlar__bench_wants(&request->workloads, name)) {
            i++;
        }
    }
    return find_spec(name);
}

ashlar_status ashlar__alloc_run_pairs(const ashlar_alloc_bench *b) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__alloc_choose_peers(b, peers);
    ashlar_workload workload;
    ashlar_status status = ASHLAR_OK;
    ASHLAR_TRY(ashlar__workload_init(&workload, spec_to_repeat(b->request), false));
    const size_t times = (b->request->pairs + workload.body_pairs - 1) / workload.body_pairs;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = ashlar__measure_repeat(b->device, &workload, peers[i], times);
    }
    ashlar__workload_finish(&workload);
    return status;
}

static ashlar_status add_instructions(const ashlar_alloc_bench *b, const struct counted *c,
                                      const char *subject, double instructions) {
    ashlar_row row = {{
        [ASHLAR_ALLOC_WORKLOAD].text = c->name.name,
        [ASHLAR_ALLOC_VARIANT].text = c->variant,
        [ASHLAR_ALLOC_THREADS].number = 1,
        [ASHLAR_ALLOC_SUBJECT].text = subject,
    }};
    for (size_t column = ASHLAR_ALLOC_NS_PAIR; column < ASHLAR_ALLOC_COLUMNS; column++) {
        row.cells[column].number = NAN;
    }
    row.cells[ASHLAR_ALLOC_INSTRUCTIONS].number = instructions;
    fprintf(b->request->out, "%-13s %-9s %20.2f\n", c->name.name, subject, instructions);
    fflush(b->request->out);
    return ashlar__rows_add(b->rows, &row);
}

/*
 * Count the instructions of a pair of a list on every chosen subject, by running this program twice
 * under valgrind's callgrind with different numbers of pairs. The difference is exact, whatever
 * else the machine does. The loop's own instructions, counted with a subject that does nothing, are
 * subtracted.
 */
static ashlar_status count_list(const ashlar_alloc_bench *b, const struct counted *c) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    ashlar_alloc_bench without_device = *b; /* leaves out peers that need a CUDA device */
    without_device.device = NULL;
    const size_t count = ashlar__alloc_choose_peers(&without_device, peers);
    double of_loop = 0, instructions = 0;
    ashlar_workload w;
    ASHLAR_TRY(ashlar__workload_init(&w, find_spec(c->name), false));
    ashlar_instructions_job job = {.device = b->request->device,
                                   .workload = c->name,
                                   .subject = ashlar__peer_none.name,
                                   .few = c->bodies_few * w.body_pairs,
                                   .many = c->bodies_many * w.body_pairs};
    ashlar__workload_finish(&w);
    ASHLAR_TRY(ashlar__instructions_of_pair(&job, &of_loop));
    fprintf(b->request->out, "%-13s %-9s %20s  (without the loop's own %.2f)\n", "workload",
            "subject", "instructions/pair", of_loop);
    for (size_t i = 0; i < count; i++) {
        if (peers[i] == &ashlar__peer_driver && b->request->subjects.count == 0) {
            continue; /* the driver has no cache, so a pair is never a hit */
        }
        job.subject = peers[i]->name;
        ASHLAR_TRY(ashlar__instructions_of_pair(&job, &instructions));
        ASHLAR_TRY(add_instructions(b, c, peers[i]->name, instructions - of_loop));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__alloc_count_instructions(const ashlar_alloc_bench *b) {
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        const bool is_there = i == 0 || !b->is_of_plans;
        if (is_there && ashlar__bench_wants(&b->request->workloads, counted[i].name)) {
            ASHLAR_TRY(count_list(b, &counted[i]));
        }
    }
    return ASHLAR_OK;
}
