/* main_bench.c - ashlar-bench: measure ashlar beside its alternatives. */
#include <stdlib.h>
#include <string.h>

#include "bench/peers/bench_alloc.h"
#include "bench/arena/bench_arena.h"
#include "bench/replay/bench_pack.h"
#include "bench/rnn/bench_rnn.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "bench/programs/main_results.h"
#include "bench/peers/peer_loaded.h"
#include "rnn/programs/program.h"

static const char program[] = "ashlar-bench";

/* Values of ASHLAR_SOFT if the user gave none. For lists, the software device is several times as
 * large as the largest list needs. That costs nothing, since host memory is taken only when it is
 * written to. Under valgrind fewer addresses are available, but pairs need few. */
static const char soft_for_lists[] = "memory=64GiB", soft_for_pairs[] = "memory=4GiB";

typedef struct command {
    ashlar_bench_config config;
    const char *json;
    const char *device;
    ashlar_option_list peers; /* --peer: shared objects */
    size_t pairs;             /* pairs to run without measuring; 0: measure */
    char **files;             /* [file_count], MiniMalloc's problems; if any, only pack them */
    size_t file_count;
    size_t capacity; /* bytes that the plan of each file may take */
    size_t seconds;  /* to search for the plan of each file */
    bool counts_instructions;
    bool is_of_arenas, is_of_rnns;
    bool wants_help;
} command;

enum { OPTION_COUNT = 12, PACKING_TRIES = 5 };

static void list_options(command *c, ashlar_option options[static OPTION_COUNT]) {
    const ashlar_option all[] = {
        {"smoke", NULL, ASHLAR_OPTION_FLAG, &c->config.is_smoke, 0, 0,
         "a few short rounds, to see it run"},
        {"instructions", NULL, ASHLAR_OPTION_FLAG, &c->counts_instructions, 0, 0,
         "count instructions (valgrind) instead of time"},
        {"workload", "NAME", ASHLAR_OPTION_LIST, &c->config.workloads, 0, 0,
         "only this one (NAME or NAME/VARIANT)"},
        {"subject", "NAME", ASHLAR_OPTION_LIST, &c->config.subjects, 0, 0, "only this one"},
        {"peer", "FILE", ASHLAR_OPTION_LIST, &c->peers, 0, 0,
         "a shared object that is a further subject, see below"},
        {"threads", "N", ASHLAR_OPTION_COUNT, &c->config.threads, 0, ASHLAR_PEER_THREADS_MAX,
         "on so many; 0: 1, and one_size on 2 as well"},
        {"json", "FILE", ASHLAR_OPTION_TEXT, &c->json, 0, 0, "write the rows there"},
        {"device", "NAME", ASHLAR_OPTION_TEXT, &c->device, 0, 0,
         "auto, soft, soft:N, cuda, cuda:N"},
        {"pairs", "N", ASHLAR_OPTION_COUNT, &c->pairs, 0, 1e9,
         "only run N pairs of 4 KiB, for tools that count"},
        {"capacity", "N", ASHLAR_OPTION_COUNT, &c->capacity, 1, 1e18,
         "bytes that the plan of each FILE may take"},
        {"seconds", "N", ASHLAR_OPTION_COUNT, &c->seconds, 0, 1e6, "to search for each"},
        {"help", NULL, ASHLAR_OPTION_FLAG, &c->wants_help, 0, 0, "print this"},
    };
    ASHLAR_TABLE_IS_FULL(all, OPTION_COUNT);
    memcpy(options, all, sizeof all);
}

static void print_alloc_help(void) {
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
        "reserved_over_live, over_floor, over_ashlar}, null where it is not known; with\n"
        "--instructions also that.\n"
        "Of plan: {rows, packings}, rows with ns_step. There `ashlar` is the thread cache where\n"
        "blocks are small (one_size, rnn_step/N: N times 20 pairs in a step, which begins and\n"
        "ends within what is timed), and `plan` the same with its steps replayed.\n"
        "The targets at the end do not change the exit status. The software device has 64 GiB\n"
        "here unless ASHLAR_SOFT says otherwise.\n\n");
}

static void print_peer_help(void) {
    printf(
        "--peer FILE.so: a subject named as the file. It exports, with C's names, what PyTorch's\n"
        "pluggable allocators do:\n"
        "    void *alloc(size_t bytes, int device, cudaStream_t stream);\n"
        "    void free(void *ptr, size_t bytes, int device, cudaStream_t stream);\n"
        "Functions of other names are told by --peer FILE.so:ALLOC,FREE (one that includes\n"
        "stdlib.h, as cuda_runtime.h does, cannot have another free). Blocks are aligned to 16\n"
        "bytes, NULL where there is none; `free` gets what `alloc` got. Several threads call\n"
        "them at once where a list has several. The object is tried first, in a process of its\n"
        "own: one that crashes or hands out what is in use is refused. On the software device\n"
        "the stream is not CUDA's, so that an object that calls CUDA is for --device cuda. It\n"
        "keeps what it has cached from list to list; every other subject begins anew.\n"
        "cuda_async is what cudaMallocAsync calls, and only there on a CUDA device.\n\n");
}

static void print_arena_and_rnn_help(void) {
    printf(
        "arena: adamw, zero, norm, flatten, replicate and checkpoint of CASE[/OPERATION] in one\n"
        "range, tensor by tensor and in lists of 36, beside a copy of the same bytes by a loop "
        "(or\n"
        "memcpy) and as many threads. Takes --smoke, --workload, --json, --device. JSON: rows\n"
        "{case, operation, subject, ns, bytes_per_s, copy_bytes_per_s, over_arena}. Cases, all\n"
        "of fp32 tensors:\n");
    ashlar__bench_arena_print_cases(stdout);
    printf(
        "\n"
        "rnn: forward and backward of recurrent networks, the buffers of each step from the\n"
        "allocator (ashlar), from the driver (driver_each_step) or taken once (static_buffer: the\n"
        "limit), and the same network by oneDNN where this build has it, its reorders of weights\n"
        "included and padding computed. Takes --smoke, --workload, --subject, --threads (0: all),\n"
        "--json, --device. JSON: {processor, products, onednn, threads, rows}, rows of {case,\n"
        "subject, ms_forward, ms_backward, ms_step, steps_per_s, over_static, over_onednn,\n"
        "product_share}. Cases, all of fp32:");
    ashlar__bench_rnn_print_cases(stdout);
}

static void print_help(const ashlar_option *options) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    printf("Usage: %s [alloc|plan|arena|rnn] [OPTION]...\n"
           "       %s plan FILE... [OPTION]...\n"
           "       %s machine|report ...\n"
           "What one malloc + free pair costs on the host: beside other allocators (alloc), or\n"
           "served from a plan (plan), and what packing one takes. FILE: a problem as MiniMalloc\n"
           "reads it (id,lower,upper,size), which is packed, and nothing else is done.\n\n",
           program, program, program);
    ashlar__options_print(stdout, options, OPTION_COUNT);
    printf("\nSubjects of this build:");
    for (size_t i = 0; i < count; i++) {
        printf(" %s", peers[i]->name);
    }
    print_alloc_help();
    print_peer_help();
    print_arena_and_rnn_help();
    ashlar__results_print_help();
}

static ashlar_status measure(ashlar_device *device, const command *c, ashlar_bench_rows *rows) {
    if (c->pairs != 0) {
        return ashlar__bench_pairs(device, &c->config, c->pairs);
    }
    return ashlar__bench_alloc(device, &c->config, rows);
}

/* The rows of `alloc` or `plan`, and for `plan` the results of packing. */
typedef struct results {
    ashlar_bench_rows rows;
    ashlar_packing *packings; /* [packing_count]; room for file_count + 1 */
    size_t packing_count;
} results;

static void add_packing(results *r, const ashlar_packing *packing) {
    r->packings[r->packing_count++] = *packing;
    ashlar__bench_pack_print(stdout, packing);
}

/* Measures packing, only if `plan` is run without --pairs and without --workload. */
static ashlar_status pack(const command *c, results *r) {
    if (!c->config.is_of_plans || c->pairs != 0 || c->config.workloads.count > 0) {
        return ASHLAR_OK;
    }
    ashlar_packing packing;
    ASHLAR_TRY(ashlar__bench_pack(c->config.is_smoke ? 1 : PACKING_TRIES, &packing));
    printf("\n");
    add_packing(r, &packing);
    return ASHLAR_OK;
}

static ashlar_status pack_files(const command *c, results *r) {
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < c->file_count && status == ASHLAR_OK; i++) {
        ashlar_packing packing;
        status = ashlar__bench_pack_file(c->files[i], c->capacity, c->seconds, &packing);
        if (status == ASHLAR_OK) {
            add_packing(r, &packing);
        }
    }
    return status;
}

static ashlar_status run_on_device(const command *c, results *r) {
    ashlar_device *device = NULL;
    ashlar_status status = ashlar_device_open(c->device, &device);
    if (status == ASHLAR_OK) {
        status = measure(device, c, &r->rows);
        ashlar_device_close(device);
    }
    return status == ASHLAR_OK ? pack(c, r) : status;
}

static void print_targets(const results *r) {
    printf("\n");
    ashlar__bench_print_targets(stdout, &r->rows);
    for (size_t i = 0; i < r->packing_count; i++) {
        ashlar__bench_pack_print_targets(stdout, &r->packings[i]);
    }
}

static ashlar_status write_plan_json(const char *path, const results *r) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_object(&w);
    ashlar__json_put_key(&w, "rows");
    ashlar__bench_rows_put(&w, &r->rows);
    ashlar__json_put_key(&w, "packings");
    ashlar__json_open_array(&w);
    for (size_t i = 0; i < r->packing_count; i++) {
        ashlar__bench_pack_put(&w, &r->packings[i]);
    }
    ashlar__json_close_array(&w);
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}

/* ---- arena ---- */

static ashlar_status check_arena_options(const command *c) {
    const bool has_others = c->config.subjects.count > 0 || c->config.threads != 0 ||
                            c->peers.count > 0 || c->pairs != 0 || c->counts_instructions;
    return has_others ? ashlar__fail(ASHLAR_EINVAL, "arena: takes --smoke, --workload, --json and "
                                                    "--device only; leave out the others")
                      : ASHLAR_OK;
}

static ashlar_status measure_arenas(const command *c, const ashlar_bench_arena_config *config) {
    ashlar_arena_rows rows = {0};
    ashlar_device *device = NULL;
    ashlar_status status = ashlar_device_open(c->device, &device);
    if (status == ASHLAR_OK) {
        status = ashlar__bench_arena(device, config, &rows);
        ashlar_device_close(device);
    }
    if (status == ASHLAR_OK) {
        printf("\n");
        ashlar__arena_rows_print_targets(stdout, &rows);
    }
    if (status == ASHLAR_OK && c->json != NULL) {
        status = ashlar__arena_rows_write(c->json, &rows);
    }
    ashlar__arena_rows_finish(&rows);
    return status;
}

static ashlar_status run_arenas(const command *c) {
    const ashlar_bench_arena_config config = {.is_smoke = c->config.is_smoke,
                                              .wanted = c->config.workloads};
    ASHLAR_TRY(check_arena_options(c));
    ASHLAR_TRY(ashlar__bench_arena_check(&config));
    ASHLAR_TRY(ashlar__program_check_writable(c->json));
    return measure_arenas(c, &config);
}

/* ---- rnn ---- */

static ashlar_status check_rnn_options(const command *c) {
    return c->pairs != 0 || c->counts_instructions || c->peers.count > 0
               ? ashlar__fail(ASHLAR_EINVAL,
                              "rnn: takes --smoke, --workload, --subject, --threads, "
                              "--json and --device only; leave out the others")
               : ASHLAR_OK;
}

static ashlar_status measure_rnns(const command *c, const ashlar_bench_rnn_config *config) {
    ashlar_rnn_results rows = {0};
    ashlar_device *device = NULL;
    ashlar_status status = ashlar_device_open(c->device, &device);
    if (status == ASHLAR_OK) {
        status = ashlar__bench_rnn(device, config, &rows);
        ashlar_device_close(device);
    }
    if (status == ASHLAR_OK) {
        printf("\n");
        ashlar__rnn_results_print_targets(stdout, &rows);
    }
    return status == ASHLAR_OK && c->json != NULL ? ashlar__rnn_results_write(c->json, &rows)
                                                  : status;
}

static ashlar_status run_rnns(const command *c) {
    const ashlar_bench_rnn_config config = {.is_smoke = c->config.is_smoke,
                                            .wanted = c->config.workloads,
                                            .subjects = c->config.subjects,
                                            .threads = c->config.threads};
    ASHLAR_TRY(check_rnn_options(c));
    ASHLAR_TRY(ashlar__bench_rnn_check(&config));
    ASHLAR_TRY(ashlar__program_check_writable(c->json));
    return measure_rnns(c, &config);
}

/* ---- alloc and plan ---- */

static ashlar_status run_group(const command *c, results *r) {
    if (c->file_count > 0) {
        return pack_files(c, r);
    }
    return c->counts_instructions ? ashlar__bench_instructions(c->device, &c->config, &r->rows)
                                  : run_on_device(c, r);
}

static ashlar_status run_command(const command *c) {
    results r = {.packings = ashlar__host_calloc(c->file_count + 1, sizeof *r.packings)};
    ashlar_status status = r.packings != NULL
                               ? ashlar__bench_check(&c->config)
                               : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the results");
    if (status == ASHLAR_OK) {
        status = ashlar__program_check_writable(c->json);
    }
    if (status == ASHLAR_OK) {
        status = run_group(c, &r);
    }
    if (status == ASHLAR_OK && r.rows.count > 0) {
        print_targets(&r);
    }
    if (status == ASHLAR_OK && c->json != NULL) {
        status = c->config.is_of_plans ? write_plan_json(c->json, &r)
                                       : ashlar__bench_rows_write(c->json, &r.rows);
    }
    ashlar__bench_rows_finish(&r.rows);
    ashlar__host_free(r.packings);
    return status;
}

/* Load the objects of --peer. Call this before anything looks up subjects or opens a device. */
static ashlar_status load_peers(const command *c) {
    ashlar_status status = ASHLAR_OK;
    if (c->peers.count > 0 && c->counts_instructions) {
        return ashlar__fail(ASHLAR_EINVAL, "--instructions: not of peers; leave out --peer");
    }
    for (size_t i = 0; i < c->peers.count && status == ASHLAR_OK; i++) {
        status = ashlar__peer_trial(c->peers.items[i], c->device);
    }
    for (size_t i = 0; i < c->peers.count && status == ASHLAR_OK; i++) {
        status = ashlar__peer_load(c->peers.items[i]);
    }
    return status;
}

static int run_words(command *c, const ashlar_option *options, int argc, char **argv) {
    if (ashlar__options_parse(options, OPTION_COUNT, argc, argv) != ASHLAR_OK) {
        return ashlar__program_fail(program, ASHLAR_EXIT_USAGE);
    }
    if (c->wants_help) {
        print_help(options);
        return 0;
    }
    const bool needs_little = c->counts_instructions || c->pairs != 0;
    (void)setenv("ASHLAR_SOFT", needs_little ? soft_for_pairs : soft_for_lists, 0);
    ashlar_status status = load_peers(c);
    if (status == ASHLAR_OK) {
        status = c->is_of_arenas ? run_arenas(c) : c->is_of_rnns ? run_rnns(c) : run_command(c);
    }
    return status == ASHLAR_OK
               ? 0
               : ashlar__program_fail(program, status == ASHLAR_EINVAL ? ASHLAR_EXIT_USAGE
                                                                       : ASHLAR_EXIT_FAILED);
}

static ashlar_status take_files(command *c, const ashlar_option *options, int *argc, char **argv) {
    c->files = ashlar__host_calloc((size_t)*argc, sizeof *c->files);
    if (c->files == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the names of the files");
    }
    c->file_count = (size_t)ashlar__options_take_words(options, OPTION_COUNT, argc, argv, c->files);
    return ASHLAR_OK;
}

static int run(int argc, char **argv) {
    command c = {.capacity = (size_t)1 << 20, .seconds = 60};
    ashlar_option options[OPTION_COUNT];
    list_options(&c, options);
    c.config.is_of_plans = argc > 1 && strcmp(argv[1], "plan") == 0;
    c.is_of_arenas = argc > 1 && strcmp(argv[1], "arena") == 0;
    c.is_of_rnns = argc > 1 && strcmp(argv[1], "rnn") == 0;
    if (c.config.is_of_plans || c.is_of_arenas || c.is_of_rnns ||
        (argc > 1 && strcmp(argv[1], "alloc") == 0)) {
        argc--;
        argv++;
    }
    if (c.config.is_of_plans && take_files(&c, options, &argc, argv) != ASHLAR_OK) {
        return ashlar__program_fail(program, ASHLAR_EXIT_FAILED);
    }
    const int exit_status = run_words(&c, options, argc, argv);
    ashlar__host_free(c.files);
    return exit_status;
}

int main(int argc, char **argv) {
    ashlar__program_init();
    const int exit_status = ashlar__results_are_meant(argc, argv)
                                ? ashlar__results_run(program, argc - 1, argv + 1)
                                : run(argc, argv);
    return ashlar__program_finish(program, exit_status);
}
