/* ashlar-bench: measure ashlar beside its alternatives. */
#include <stdlib.h>
#include <string.h>

#include "bench_alloc.h"
#include "peer.h"
#include "program.h"

static const char program[] = "ashlar-bench";

/*
 * The software device where the user describes none. Room for the largest list several times over:
 * host memory is taken only as it is written to. Valgrind has fewer addresses, pairs need few.
 */
static const char soft_for_lists[] = "memory=64GiB", soft_for_pairs[] = "memory=4GiB";

typedef struct command {
    ashlar_bench_config config;
    const char *json;
    const char *device;
    size_t pairs; /* 0: measure */
    bool counts_instructions;
    bool wants_help;
} command;

enum { OPTION_COUNT = 9 };

static void list_options(command *c, ashlar_option options[static OPTION_COUNT]) {
    const ashlar_option all[OPTION_COUNT] = {
        {"smoke", NULL, ASHLAR_OPTION_FLAG, &c->config.is_smoke, 0, 0,
         "a few short rounds, to see it run"},
        {"instructions", NULL, ASHLAR_OPTION_FLAG, &c->counts_instructions, 0, 0,
         "count instructions (valgrind) instead of time"},
        {"workload", "NAME", ASHLAR_OPTION_LIST, &c->config.workloads, 0, 0,
         "only this one (NAME or NAME/VARIANT)"},
        {"subject", "NAME", ASHLAR_OPTION_LIST, &c->config.subjects, 0, 0, "only this one"},
        {"threads", "N", ASHLAR_OPTION_COUNT, &c->config.threads, 0, ASHLAR_PEER_THREADS_MAX,
         "on so many; 0: 1, and one_size on 2 as well"},
        {"json", "FILE", ASHLAR_OPTION_TEXT, &c->json, 0, 0, "write the rows there"},
        {"device", "NAME", ASHLAR_OPTION_TEXT, &c->device, 0, 0,
         "auto, soft, soft:N, cuda, cuda:N"},
        {"pairs", "N", ASHLAR_OPTION_COUNT, &c->pairs, 0, 1e9,
         "only run N pairs of 4 KiB, for tools that count"},
        {"help", NULL, ASHLAR_OPTION_FLAG, &c->wants_help, 0, 0, "print this"},
    };
    memcpy(options, all, sizeof all);
}

static void print_help(const ashlar_option *options) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar_peers(peers);
    printf("Usage: %s [alloc] [OPTION]...\nWhat one malloc + free pair costs on the host.\n\n",
           program);
    ashlar_options_print(stdout, options, OPTION_COUNT);
    printf("\nSubjects of this build:");
    for (size_t i = 0; i < count; i++) {
        printf(" %s", peers[i]->name);
    }
    printf(
        "\n\n"
        "Every subject runs the same recorded list of operations, each with an instance of its\n"
        "own, in rounds that take turns. ns/pair is the median over the rounds of the wall time\n"
        "of all threads / the pairs of ONE thread: with perfect scaling it stays what it is on\n"
        "one thread. Driver calls are those of the list's first run, without the choice of a\n"
        "context (rnn_*: of the 1000 steps; rnn_warm runs one of full length before them).\n"
        "Reserved/live compares the peaks. `floor` is the least work that any allocator of\n"
        "device memory has: a thread's own free list, and a page map to find the block.\n"
        "JSON: an array of rows {workload, variant, threads, subject, ns_pair, driver_calls,\n"
        "reserved_over_live}, null where it is not known; with --instructions also that.\n"
        "The targets at the end do not change the exit status. The software device has 64 GiB\n"
        "here unless ASHLAR_SOFT says otherwise.\n");
}

static ashlar_status measure(ashlar_device *device, const command *c, ashlar_bench_rows *rows) {
    if (c->pairs != 0) {
        return ashlar_bench_pairs(device, &c->config, c->pairs);
    }
    return ashlar_bench_alloc(device, &c->config, rows);
}

static ashlar_status run_on_device(const command *c, ashlar_bench_rows *rows) {
    ashlar_device *device = NULL;
    ashlar_status status = ashlar_device_open(c->device, &device);
    if (status == ASHLAR_OK) {
        status = measure(device, c, rows);
        ashlar_device_close(device);
    }
    return status;
}

static ashlar_status run_command(const command *c) {
    ashlar_bench_rows rows = {0};
    ashlar_status status = ashlar_bench_check(&c->config);
    if (status == ASHLAR_OK) {
        status = ashlar_program_check_writable(c->json);
    }
    if (status == ASHLAR_OK) {
        status = c->counts_instructions ? ashlar_bench_instructions(c->device, &c->config, &rows)
                                        : run_on_device(c, &rows);
    }
    if (status == ASHLAR_OK && rows.count > 0) {
        printf("\n");
        ashlar_bench_print_targets(stdout, &rows);
    }
    if (status == ASHLAR_OK && c->json != NULL) {
        status = ashlar_bench_rows_write(c->json, &rows);
    }
    ashlar_bench_rows_finish(&rows);
    return status;
}

static int run(int argc, char **argv) {
    command c = {0};
    ashlar_option options[OPTION_COUNT];
    list_options(&c, options);
    /* The one group there is so far may be left out. */
    if (argc > 1 && strcmp(argv[1], "alloc") == 0) {
        argc--;
        argv++;
    }
    if (ashlar_options_parse(options, OPTION_COUNT, argc, argv) != ASHLAR_OK) {
        return ashlar_program_fail(program, ASHLAR_EXIT_USAGE);
    }
    if (c.wants_help) {
        print_help(options);
        return 0;
    }
    const bool needs_little = c.counts_instructions || c.pairs != 0;
    (void)setenv("ASHLAR_SOFT", needs_little ? soft_for_pairs : soft_for_lists, 0);
    const ashlar_status status = run_command(&c);
    return status == ASHLAR_OK
               ? 0
               : ashlar_program_fail(program, status == ASHLAR_EINVAL ? ASHLAR_EXIT_USAGE
                                                                      : ASHLAR_EXIT_FAILED);
}

int main(int argc, char **argv) {
    ashlar_program_init();
    return ashlar_program_finish(program, run(argc, argv));
}
