/* main_bench.c - ashlar-bench: compares ashlar with other allocators, tensors and RNNs. */
#include <stdlib.h>
#include <string.h>

#include "bench/arena/bench_arena.h"
#include "bench/harness/harness.h"
#include "bench/peers/measure.h"
#include "bench/rnn/bench_rnn.h"
#include "allocator/base/error.h"
#include "bench/peers/peer.h"
#include "rnn/programs/program.h"

static const char program[] = "ashlar-bench";

/* Values of ASHLAR_SOFT if the user gave none. For lists, the software device is several times as
 * large as the largest list needs. That costs nothing, since host memory is taken only when it is
 * written to. Under valgrind fewer addresses are available, but pairs need few. */
static const char soft_for_lists[] = "memory=64GiB", soft_for_pairs[] = "memory=4GiB";

/* The benchmarks of the command line; the first is the default. A new one needs a row here. */
static const ashlar_benchmark *const benchmarks[] = {
    &ashlar__benchmark_alloc,
    &ashlar__benchmark_plan,
    &ashlar__benchmark_arena,
    &ashlar__benchmark_rnn,
};

enum { BENCHMARKS = sizeof benchmarks / sizeof benchmarks[0], OPTION_COUNT = 8 };

static void list_options(ashlar_bench_request *r, ashlar_option options[static OPTION_COUNT]) {
    const ashlar_option all[] = {
        {"smoke", NULL, ASHLAR_OPTION_FLAG, &r->is_smoke, 0, 0,
         "a few short rounds, to see it run"},
        {"workload", "NAME", ASHLAR_OPTION_LIST, &r->workloads, 0, 0,
         "only this one (NAME or NAME/VARIANT)"},
        {"subject", "NAME", ASHLAR_OPTION_LIST, &r->subjects, 0, 0, "only this one"},
        {"peer", "FILE", ASHLAR_OPTION_LIST, &r->peers, 0, 0,
         "a shared object that is a further subject"},
        {"threads", "N", ASHLAR_OPTION_COUNT, &r->threads, 0, ASHLAR_PEER_THREADS_MAX,
         "on so many; 0: 1, and one_size, mix, random on 2 as well"},
        {"json", "FILE", ASHLAR_OPTION_TEXT, &r->json, 0, 0, "write the rows there"},
        {"device", "NAME", ASHLAR_OPTION_TEXT, &r->device, 0, 0,
         "auto, soft, soft:N, cuda, cuda:N"},
        {"pairs", "N", ASHLAR_OPTION_COUNT, &r->pairs, 0, 1e9,
         "only run N pairs of a list (4 KiB), for tools that count"},
    };
    ASHLAR_TABLE_IS_FULL(all, OPTION_COUNT);
    memcpy(options, all, sizeof all);
}

/* Whether the command line asked for help or the version. */
static bool answer(const ashlar_option *options, int argc, char **argv) {
    char groups[64] = "", usage[512];
    size_t used = 0;
    for (size_t i = 0; i < BENCHMARKS; i++) {
        used += (size_t)snprintf(groups + used, sizeof groups - used, "%s%s", i > 0 ? "|" : "",
                                 benchmarks[i]->name);
    }
    (void)snprintf(usage, sizeof usage,
                   "Usage: %s [%s] [OPTION]...\n"
                   "       %s machine --json FILE [OPTION]...\n"
                   "Measure ashlar beside its alternatives. ashlar-bench(1) explains what, the\n"
                   "columns and the JSON; an unknown name is answered by those that are known.\n\n",
                   program, groups, program);
    return ashlar__options_answer(program, usage, "", options, OPTION_COUNT, argc, argv);
}

/* Refuse options that have no meaning for the benchmark. */
static ashlar_status check_options(const ashlar_benchmark *b, const ashlar_option *options,
                                   int argc, char **argv) {
    for (size_t i = 0; i < OPTION_COUNT && b->takes != NULL; i++) {
        if (strstr(b->takes, options[i].name) == NULL &&
            ashlar__options_given(options[i].name, argc, argv) != NULL) {
            return ashlar__fail(ASHLAR_EINVAL, "%s: takes %s only; leave out --%s", b->name,
                                b->takes, options[i].name);
        }
    }
    return ASHLAR_OK;
}

/* Load the objects of --peer. Call this before anything looks up subjects or opens a device. */
static ashlar_status load_peers(const ashlar_bench_request *r) {
    for (size_t i = 0; i < r->peers.count; i++) {
        ASHLAR_TRY(ashlar__peer_load(r->peers.items[i]));
    }
    return ASHLAR_OK;
}

static ashlar_status run_benchmark(const ashlar_benchmark *b, const ashlar_bench_request *r,
                                   const ashlar_option *options, int argc, char **argv) {
    (void)setenv("ASHLAR_SOFT", r->pairs != 0 ? soft_for_pairs : soft_for_lists, 0);
    ASHLAR_TRY(check_options(b, options, argc, argv));
    ASHLAR_TRY(load_peers(r));
    ASHLAR_TRY(ashlar__benchmark_check(b, r));
    ASHLAR_TRY(ashlar__program_check_report(r->json));
    return ashlar__benchmark_run(b, r);
}

static ashlar_status run(const ashlar_benchmark *b, int argc, char **argv) {
    ashlar_bench_request r = {.out = stdout};
    ashlar_option options[OPTION_COUNT];
    list_options(&r, options);
    if (answer(options, argc, argv)) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__options_parse(options, OPTION_COUNT, argc, argv));
    return run_benchmark(b, &r, options, argc, argv);
}

/* ---- `machine`, which writes machine.json and is no benchmark ---- */

/* List the peers whose version is known; returns how many. */
static size_t list_parts(ashlar_machine_part parts[static ASHLAR_PEERS_MAX]) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (peers[i]->version != NULL) {
            parts[used++] = (ashlar_machine_part){peers[i]->name, peers[i]->version};
        }
    }
    return used;
}

static ashlar_status write_machine(int argc, char **argv) {
    ashlar_machine_part parts[ASHLAR_PEERS_MAX];
    ashlar_machine_config config = {.parts = parts, .part_count = list_parts(parts)};
    const char *device_name = NULL, *path = NULL;
    const ashlar_option options[] = {
        {"json", "FILE", ASHLAR_OPTION_TEXT, &path, 0, 0, ""},
        {"device", "NAME", ASHLAR_OPTION_TEXT, &device_name, 0, 0, ""},
        {"commit", "TEXT", ASHLAR_OPTION_TEXT, &config.commit, 0, 0, ""},
        {"smoke", NULL, ASHLAR_OPTION_FLAG, &config.is_smoke, 0, 0, ""},
    };
    ashlar_device *device = NULL;
    ashlar_status status =
        ashlar__options_parse(options, sizeof options / sizeof options[0], argc, argv);
    if (status == ASHLAR_OK && path == NULL) {
        status = ashlar__fail(ASHLAR_EINVAL, "machine: --json FILE is missing");
    }
    if (status == ASHLAR_OK) {
        status = ashlar_device_open(device_name, &device);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__machine_write(&config, device, path);
        ashlar_device_close(device);
    }
    return status;
}

/* ---- the command line ---- */

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    const ashlar_benchmark *chosen = NULL;
    ashlar_status status;
    ashlar__program_init();
    for (size_t i = 0; i < BENCHMARKS && chosen == NULL; i++) {
        chosen = strcmp(word, benchmarks[i]->name) == 0 ? benchmarks[i] : NULL;
    }
    const bool asks = argc == 3 && (strcmp(argv[2], "-h") == 0 || strcmp(argv[2], "--help") == 0);
    if (asks) {
        status = run(benchmarks[0], argc - 1, argv + 1);
    } else if (strcmp(word, "machine") == 0) {
        status = write_machine(argc - 1, argv + 1);
    } else if (chosen != NULL) {
        status = run(chosen, argc - 1, argv + 1);
    } else {
        status = run(benchmarks[0], argc, argv);
    }
    const int exit_status = status == ASHLAR_OK ? 0 : ashlar__program_fail(program, status);
    return ashlar__program_finish(program, exit_status);
}
