/* bench_alloc.c - chooses workloads and subjects, measures them, and adds the rows. */
#include "bench/peers/bench_alloc.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/harness/instructions.h"
#include "bench/peers/measure.h"
#include "bench/peers/peer_loaded.h"

/*
 * Many rounds, each shorter than a time slice of the scheduler: even on a busy machine most rounds
 * run uninterrupted, and the median is the time of an uninterrupted round.
 */
enum { ROUNDS = 61, SMOKE_ROUNDS = 1 };
static const double round_ns = 1e6, smoke_round_ns = 1e5;

/* `text` is NAME, which stands for every variant of that workload, or NAME/VARIANT. */
static bool is_named(const ashlar_workload_spec *spec, const char *text) {
    const size_t name_bytes = strlen(spec->name);
    if (strncmp(text, spec->name, name_bytes) != 0) {
        return false;
    }
    const char *rest = text + name_bytes;
    return *rest == '\0' || (*rest == '/' && strcmp(rest + 1, spec->variant) == 0);
}

static bool is_wanted(const ashlar_bench_config *config, const ashlar_workload_spec *spec) {
    bool is_in_list = config->workloads.count == 0;
    for (size_t i = 0; i < config->workloads.count; i++) {
        is_in_list = is_in_list || is_named(spec, config->workloads.items[i]);
    }
    return is_in_list;
}

static const ashlar_workload_spec *specs_of(const ashlar_bench_config *config, size_t *count) {
    return config->is_of_plans ? ashlar__workload_plan_specs(count) : ashlar__workload_specs(count);
}

static ashlar_status check_workload(const ashlar_bench_config *config, const char *text) {
    size_t count;
    const ashlar_workload_spec *specs = specs_of(config, &count);
    for (size_t i = 0; i < count; i++) {
        if (is_named(&specs[i], text)) {
            return ASHLAR_OK;
        }
    }
    return ashlar__fail(
        ASHLAR_EINVAL,
        "--workload: there is no \"%.80s\"; there are one_size (or "
        "one_size/4096 and so on), %s",
        text, config->is_of_plans ? "rnn_step, rnn_warm" : "mix, random, rnn_warm, rnn_cold");
}

static ashlar_status check_subject(const char *text) {
    if (ashlar__peer_find(text) != NULL) {
        return ASHLAR_OK;
    }
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, " %s", peers[i]->name);
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "--subject: there is no \"%.80s\" in this build; there are%s", text, names);
}

ashlar_status ashlar__bench_check(const ashlar_bench_config *config) {
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < config->workloads.count && status == ASHLAR_OK; i++) {
        status = check_workload(config, config->workloads.items[i]);
    }
    for (size_t i = 0; i < config->subjects.count && status == ASHLAR_OK; i++) {
        status = check_subject(config->subjects.items[i]);
    }
    return status;
}

/* Whether `peer` is measured when no --subject is given. `device` may be NULL (not known). */
static bool is_usual(const ashlar_bench_config *config, const ashlar_device *device,
                     const ashlar_peer *peer) {
    if (config->is_of_plans) {
        return peer == ashlar__peer_ashlar() || peer == ashlar__peer_plan() ||
               peer == ashlar__peer_floor() || ashlar__peer_is_loaded(peer);
    }
    if (peer == ashlar__peer_cuda_async()) {
        return device != NULL && ashlar__peer_cuda_async_serves(device);
    }
    return peer != ashlar__peer_plan() && peer != ashlar__peer_none();
}

static bool is_chosen(const ashlar_bench_config *config, const ashlar_device *device,
                      const ashlar_peer *peer) {
    if (config->subjects.count == 0) {
        return is_usual(config, device, peer);
    }
    size_t i = 0;
    while (i < config->subjects.count && strcmp(config->subjects.items[i], peer->name) != 0) {
        i++;
    }
    return i < config->subjects.count;
}

/* The chosen peers, in the order of the report, which the order of the options does not change. */
static size_t choose_peers(const ashlar_bench_config *config, const ashlar_device *device,
                           const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    const ashlar_peer *all[ASHLAR_PEERS_MAX];
    const size_t all_count = ashlar__peers(all);
    size_t count = 0;
    for (size_t i = 0; i < all_count; i++) {
        if (is_chosen(config, device, all[i])) {
            out[count++] = all[i];
        }
    }
    return count;
}

/* Pairs per step, on average. The list must have steps. */
static double pairs_of_step(const ashlar_workload *w) {
    return (double)w->body_pairs / (double)ashlar__workload_body_steps(w);
}

static void print_steps(const ashlar_workload *w, const ashlar_bench_rows *rows, size_t first) {
    printf("  a step of %.0f pairs:", pairs_of_step(w));
    for (size_t i = first; i < rows->count; i++) {
        printf("%s %s %.0f ns", i > first ? "," : "", rows->items[i].subject,
               rows->items[i].ns_step);
    }
    putchar('\n');
    fflush(stdout);
}

static ashlar_status measure_one(ashlar_device *device, const ashlar_bench_config *config,
                                 const ashlar_workload *workload, size_t threads,
                                 ashlar_bench_rows *rows) {
    const ashlar_measure_config how = {
        .device = device,
        .threads = threads,
        .rounds = config->is_smoke ? SMOKE_ROUNDS : ROUNDS,
        .round_ns = config->is_smoke ? smoke_round_ns : round_ns,
    };
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    ashlar_measurement results[ASHLAR_PEERS_MAX];
    const size_t count = choose_peers(config, device, peers), first = rows->count;
    ashlar_status status = ashlar__measure(&how, workload, peers, count, results);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        const ashlar_bench_row row = {
            .workload = workload->name,
            .variant = workload->variant,
            .threads = threads,
            .subject = peers[i]->name,
            .ns_pair = results[i].ns_pair,
            .driver_calls = results[i].driver_calls,
            .hides_calls = peers[i]->hides_calls,
            .reserved_over_live = results[i].reserved_over_live,
            .ns_step = config->is_of_plans ? results[i].ns_pair * pairs_of_step(workload) : 0,
        };
        status = ashlar__bench_rows_add(rows, &row);
    }
    if (status == ASHLAR_OK) {
        ashlar__bench_print_rows(stdout, rows, first);
        if (config->is_of_plans) {
            print_steps(workload, rows, first);
        }
    }
    return status;
}

/* Runs on config->threads threads; if that is 0, on one, and on two if the spec has_threads. */
static ashlar_status measure_spec(ashlar_device *device, const ashlar_bench_config *config,
                                  const ashlar_workload_spec *spec, ashlar_bench_rows *rows) {
    ashlar_workload workload;
    const size_t first = config->threads != 0 ? config->threads : 1;
    const size_t last = config->threads != 0 ? config->threads : spec->has_threads ? 2 : 1;
    ashlar_status status = ashlar__workload_init(&workload, spec);
    if (status != ASHLAR_OK) {
        return status;
    }
    for (size_t threads = first; threads <= last && status == ASHLAR_OK; threads++) {
        status = measure_one(device, config, &workload, threads, rows);
    }
    ashlar__workload_finish(&workload);
    return status;
}

ashlar_status ashlar__bench_alloc(ashlar_device *device, const ashlar_bench_config *config,
                                  ashlar_bench_rows *rows) {
    size_t count;
    const ashlar_workload_spec *specs = specs_of(config, &count);
    ashlar_status status = ASHLAR_OK;
    ashlar__bench_print_head(stdout);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        if (is_wanted(config, &specs[i])) {
            status = measure_spec(device, config, &specs[i], rows);
        }
    }
    return status;
}

/* --- instructions ---------------------------------------------------------------------------- */

static ashlar_status record_4096(ashlar_workload *out) {
    size_t count, i = 0;
    const ashlar_workload_spec *specs = ashlar__workload_specs(&count);
    while (!is_named(&specs[i], "one_size/4096")) {
        i++;
    }
    return ashlar__workload_init(out, &specs[i]);
}

ashlar_status ashlar__bench_pairs(ashlar_device *device, const ashlar_bench_config *config,
                                  size_t pairs) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = choose_peers(config, device, peers);
    ashlar_workload workload;
    ashlar_status status = record_4096(&workload);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t times = (pairs + workload.body_pairs - 1) / workload.body_pairs;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = ashlar__measure_repeat(device, &workload, peers[i], times);
    }
    ashlar__workload_finish(&workload);
    return status;
}

ashlar_status ashlar__bench_instructions(const char *device, const ashlar_bench_config *config,
                                         ashlar_bench_rows *rows) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = choose_peers(config, NULL, peers);
    double of_loop = 0;
    ashlar_status status =
        ashlar__instructions_of_pair(device, ashlar__peer_none()->name, &of_loop);
    if (status != ASHLAR_OK) {
        return status;
    }
    printf("%-9s %20s  (without the loop's own %.2f)\n", "subject", "instructions/pair", of_loop);
    for (size_t i = 0; i < count; i++) {
        if (peers[i] == ashlar__peer_driver() && config->subjects.count == 0) {
            continue; /* the driver has no cache, so a pair is never a hit */
        }
        ashlar_bench_row row = {
            .workload = "one_size",
            .variant = "4096-instructions",
            .threads = 1,
            .subject = peers[i]->name,
        };
        double counted = 0;
        status = ashlar__instructions_of_pair(device, row.subject, &counted);
        if (status == ASHLAR_OK) {
            row.instructions = counted - of_loop;
            status = ashlar__bench_rows_add(rows, &row);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
        printf("%-9s %20.2f\n", row.subject, row.instructions);
        fflush(stdout);
    }
    return ASHLAR_OK;
}
