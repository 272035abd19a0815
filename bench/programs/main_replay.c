/* main_replay.c - ashlar-replay: replay a recorded log of allocations, or pack buffers. */
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"
#include "rnn/programs/options.h"
#include "allocator/base/parse.h"
#include "rnn/programs/program.h"
#include "bench/replay/replay.h"
#include "bench/replay/bench_pack.h"

static const char program[] = "ashlar-replay";

/* More than any log of one device needs: no allocation fails, and the peak shows what it needs. */
static const char default_memory[] = "1TiB";

typedef struct command {
    const char *memory;
    size_t memory_bytes;
    const char *json;
    const char *html;
    size_t passes;
    bool finds_capacity;
    bool has_plan;
    ashlar_pack_job pack; /* if pack.path is NULL, logs are replayed instead */
    const char *capacity; /* --capacity as text: bytes that the plan may take; NULL: not given */
} command;

enum { OPTION_COUNT = 10, PASSES_MAX = 100000, CAPACITY_PASSES = 20 /* by default */ };

static void list_options(command *c, ashlar_option options[static OPTION_COUNT]) {
    const ashlar_option all[] = {
        {"memory", "SIZE", ASHLAR_OPTION_TEXT, &c->memory, 0, 0, "of the device: B, KiB ... TiB"},
        {"find-capacity", NULL, ASHLAR_OPTION_FLAG, &c->finds_capacity, 0, 0,
         "find the smallest device on which it passes"},
        {"repeat", "N", ASHLAR_OPTION_COUNT, &c->passes, 1, PASSES_MAX,
         "passes of one allocator; to find a capacity: 20"},
        {"plan", NULL, ASHLAR_OPTION_FLAG, &c->has_plan, 0, 0,
         "record its first step, replay the others on a plan"},
        {"pack", "FILE", ASHLAR_OPTION_TEXT, &c->pack.path, 0, 0,
         "find offsets for the buffers of FILE instead"},
        {"capacity", "N", ASHLAR_OPTION_TEXT, &c->capacity, 0, 0, "bytes that the plan may take"},
        {"seconds", "N", ASHLAR_OPTION_COUNT, &c->pack.seconds, 0, 1e6, "to search for it"},
        {"out", "FILE", ASHLAR_OPTION_TEXT, &c->pack.solution, 0, 0, "write the plan there"},
        {"json", "FILE", ASHLAR_OPTION_TEXT, &c->json, 0, 0, "write the figures there"},
        {"html", "FILE", ASHLAR_OPTION_TEXT, &c->html, 0, 0, "write a page: where the blocks lay"},
    };
    ASHLAR_TABLE_IS_FULL(all, OPTION_COUNT);
    memcpy(options, all, sizeof all);
}

static const char usage[] =
    "Usage: ashlar-replay FILE... [OPTION]...\n"
    "       ashlar-replay --pack FILE [OPTION]...\n"
    "Replay logs of allocations on a software device, and say what they take.\n";
static const char notes[] =
    "A FILE is a log of RMM (Thread,Time,Action,Pointer,Size,Stream), that of --pack\n"
    "one of MiniMalloc (id,lower,upper,size). ashlar-replay(1) explains the rest.\n";

/* ---- the command line ---- */

/* The size is rounded down to a multiple of ASHLAR_REPLAY_GRAIN_BYTES, like the device's. */
static ashlar_status parse_memory(const char *text, size_t *out) {
    const uint64_t most = (uint64_t)64 << 40; /* the software device's limit */
    uint64_t bytes = 0;
    if (ashlar__parse_bytes(ashlar__piece_of(text), &bytes) && bytes >= ASHLAR_REPLAY_GRAIN_BYTES &&
        bytes <= most) {
        *out = (size_t)bytes & ~(ASHLAR_REPLAY_GRAIN_BYTES - 1);
        return ASHLAR_OK;
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "--memory: \"%.80s\" is no size; give 2MiB to 64TiB, with a unit B, KiB, "
                        "MiB, GiB or TiB",
                        text);
}

/* ---- output ---- */

static double mib(uint64_t bytes) {
    return (double)bytes / (double)(1 << 20);
}

/* A log and the outcome of its replay. */
typedef struct outcome {
    const ashlar_rmm_log *log;
    const ashlar_replay_config *config;
    ashlar_replay_result result;
    size_t capacity; /* bytes; 0: not asked for */
} outcome;

/* Print memory after the first two passes and the last, which shows growth from pass to pass. */
static void print_passes(const ashlar_replay_config *config) {
    const size_t passes = config->passes;
    printf("  %zu passes; reserved after pass 1: %.0f MiB, 2: %.0f MiB", passes,
           mib(config->reserved[0]), mib(config->reserved[1]));
    if (passes > 2) {
        printf(", %zu: %.0f MiB", passes, mib(config->reserved[passes - 1]));
    }
    printf("\n");
}

static void print_result(const outcome *o) {
    const ashlar_replay_result *r = &o->result;
    const ashlar_replay_plan *plan = o->config->plan;
    const double memory = mib(o->config->memory_bytes);
    printf("%s: %zu events, %zu allocations, %zu failed; threads %zu, streams %zu\n", o->log->name,
           o->log->event_count, r->allocations, r->failures, o->log->thread_count,
           o->log->stream_count);
    if (o->log->recorded_failures > 0) {
        const bool is_one = o->log->recorded_failures == 1;
        printf("  %zu request%s failed in the log itself, and %s not made again: with %s at least "
               "%.1f MiB are needed\n",
               o->log->recorded_failures, is_one ? "" : "s", is_one ? "is" : "are",
               is_one ? "it" : "them", mib(o->log->needed_bytes));
    }
    if (r->allocations == r->failures) {
        printf("  nothing was allocated on a device of %.0f MiB\n", memory);
        return;
    }
    if (o->log->stream_count > 1) {
        printf("  streams keep the log's order; frees on another than the allocation's: %zu\n",
               r->cross_frees);
    }
    printf("  peak live %.1f MiB, reserved %.1f MiB (%.3f x), of %.0f MiB\n", mib(r->peak_live),
           mib(r->peak_reserved), (double)r->peak_reserved / (double)r->peak_live, memory);
    if (o->config->passes > 1) {
        print_passes(o->config);
    }
    printf("  hit rate %.4f, driver calls %llu, %.0f ns per call\n", r->hit_rate,
           (unsigned long long)r->driver_calls, r->ns_per_op);
    if (plan != NULL) {
        ashlar__replay_plan_print(stdout, plan, &r->plan);
    }
    if (o->capacity != 0) {
        printf("  %s on a device of %.0f MiB and not with 2 MiB less%s\n",
               o->config->passes > 1 ? "all passes succeed" : "passes", mib(o->capacity),
               o->log->recorded_failures > 0 ? ", but for what failed in the log" : "");
    }
}

static void put_passes(ashlar_json_writer *w, const ashlar_replay_config *config) {
    ashlar__json_add_uint64(w, "passes", config->passes);
    ashlar__json_put_key(w, "reserved_after_pass_bytes");
    ashlar__json_open_array(w);
    for (size_t i = 0; i < config->passes; i++) {
        ashlar__json_put_uint64(w, config->reserved[i]);
    }
    ashlar__json_close_array(w);
}

static void put_result(ashlar_json_writer *w, const outcome *o) {
    const ashlar_replay_result *r = &o->result;
    const ashlar_replay_plan *plan = o->config->plan;
    const ashlar_rmm_log *log = o->log;
    ashlar__json_open_document(w, "ashlar-replay/1");
    ashlar__json_add_string(w, "trace", log->name);
    ashlar__json_add_uint64(w, "memory_bytes", o->config->memory_bytes);
    ashlar__json_add_uint64(w, "events", log->event_count);
    ashlar__json_add_uint64(w, "allocations", r->allocations);
    ashlar__json_add_uint64(w, "threads", log->thread_count);
    ashlar__json_add_uint64(w, "streams", log->stream_count);
    ashlar__json_add_uint64(w, "recorded_failures", log->recorded_failures);
    ashlar__json_add_uint64(w, "failures", r->failures);
    ashlar__json_add_uint64(w, "live_peak_bytes", r->peak_live);
    ashlar__json_add_uint64(w, "reserved_peak_bytes", r->peak_reserved);
    put_passes(w, o->config);
    ashlar__json_add_uint64(w, "cross_frees", r->cross_frees);
    ashlar__json_add_uint64(w, "driver_calls", r->driver_calls);
    ashlar__json_add_double(w, "hit_rate", r->hit_rate);
    ashlar__json_add_double(w, "ns_per_op", r->ns_per_op);
    if (plan != NULL) {
        ashlar__replay_plan_put(w, plan, &r->plan);
    }
    if (o->capacity != 0) {
        ashlar__json_add_uint64(w, "capacity_bytes", o->capacity);
    }
}

/* ---- the work ---- */

/* Replay one log and write its figures. Returns ASHLAR_ENOMEM if allocations of the replay failed;
 * the figures are written even so. */
static ashlar_status replay_log(const command *c, const ashlar_rmm_log *log,
                                ashlar_replay_config *config, ashlar_json_writer *w) {
    outcome o = {.log = log, .config = config};
    ashlar_status status = ashlar__replay_run(log, config, &o.result);
    if (status == ASHLAR_OK && c->finds_capacity && o.result.failures == 0) {
        status = ashlar__replay_find_capacity(log, config, &o.result, &o.capacity);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    print_result(&o);
    put_result(w, &o);
    if (c->html != NULL) {
        status = ashlar__replay_put_blocks(w, log, config->addresses);
    }
    ashlar__json_close_object(w);
    ASHLAR_TRY(status);
    return o.result.failures == 0 ? ASHLAR_OK : ashlar__fail(ASHLAR_ENOMEM, "%s", o.result.failure);
}

static ashlar_status replay_file(const command *c, const char *path, ashlar_json_writer *w) {
    ashlar_rmm_log *log = NULL;
    ashlar_replay_plan plan = {.passes = c->passes};
    ASHLAR_TRY(ashlar__rmm_log_read(path, &log));
    ashlar_status status =
        c->has_plan ? ashlar__replay_plan_init(log, c->passes, &plan) : ASHLAR_OK;
    if (status == ASHLAR_OK) {
        ashlar_replay_config config = {
            .calls = &ashlar__replay_calls_of_ashlar,
            .report = ashlar__program_print_report,
            .memory_bytes = c->memory_bytes,
            .passes = plan.passes,
            .addresses = ashlar__host_calloc(log->block_count + 1, sizeof *config.addresses),
            .reserved = ashlar__host_calloc(plan.passes, sizeof *config.reserved),
            .plan = c->has_plan ? &plan : NULL,
        };
        status = config.addresses != NULL && config.reserved != NULL
                     ? replay_log(c, log, &config, w)
                     : ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to replay it", log->name);
        ashlar__host_free(config.addresses);
        ashlar__host_free(config.reserved);
    }
    ashlar__replay_plan_finish(&plan);
    ashlar__rmm_log_free(log);
    return status;
}

/* Replay every file, even after one has failed, or pack one problem. Each failure prints one line;
 * results so far are written. */
static int run(command *c, int count, char **files) {
    ashlar_json_writer w;
    int exit_status = 0;
    ashlar_status status = ashlar__program_check_report(c->json);
    ASHLAR_THEN(status, ashlar__program_check_writable(c->html));
    ASHLAR_THEN(status, ashlar__program_check_writable(c->pack.solution));
    if (status != ASHLAR_OK) {
        return ashlar__program_fail(program, status);
    }
    ashlar__json_writer_init(&w, 2);
    c->pack.writer = &w;
    if (count > 1) {
        ashlar__json_open_array(&w);
    }
    status = c->pack.path != NULL ? ashlar__replay_pack_run(&c->pack, stdout) : ASHLAR_OK;
    if (status != ASHLAR_OK) {
        exit_status = ashlar__program_fail(program, status);
    }
    for (int i = 0; i < count; i++) {
        status = replay_file(c, files[i], &w);
        if (status != ASHLAR_OK) {
            exit_status = ashlar__program_fail(program, status);
        }
    }
    const bool has_figures = w.bytes > (count > 1 ? 1 : 0); /* more than the array's "[" */
    if (count > 1) {
        ashlar__json_close_array(&w);
    }
    status = c->json != NULL && has_figures ? ashlar__json_writer_save(&w, c->json) : ASHLAR_OK;
    if (status == ASHLAR_OK && c->html != NULL && has_figures) {
        status = ashlar__page_write(c->html, &w);
    }
    if (status != ASHLAR_OK) {
        exit_status = ashlar__program_fail(program, status);
    }
    ashlar__json_writer_finish(&w);
    return exit_status;
}

/* Refuse options and files that have no meaning with --pack, or without it. Reads the capacity. */
static ashlar_status check_pack(command *c, int file_count) {
    uint64_t capacity = 0;
    if (c->pack.path == NULL) {
        return c->capacity == NULL && c->pack.solution == NULL
                   ? ASHLAR_OK
                   : ashlar__fail(ASHLAR_EINVAL, "--%s belongs to --pack FILE",
                                  c->capacity != NULL ? "capacity" : "out");
    }
    if (file_count > 0 || c->finds_capacity || c->has_plan || c->passes > 1) {
        return ashlar__fail(ASHLAR_EINVAL, "--pack FILE replays nothing; leave out %s",
                            file_count > 0      ? "the other files"
                            : c->finds_capacity ? "--find-capacity"
                            : c->has_plan       ? "--plan"
                                                : "--repeat");
    }
    c->pack.lists_blocks = c->html != NULL;
    c->pack.progress = isatty(STDERR_FILENO) == 1 ? stderr : NULL;
    if (c->capacity != NULL && ((!ashlar__parse_count(ashlar__piece_of(c->capacity), &capacity) &&
                                 !ashlar__parse_bytes(ashlar__piece_of(c->capacity), &capacity)) ||
                                capacity == 0)) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--capacity: \"%.80s\" is no size; give bytes from 1, as 1048576 or "
                            "1MiB",
                            c->capacity);
    }
    c->pack.capacity_bytes = (size_t)capacity;
    return ASHLAR_OK;
}

static int run_command(int argc, char **argv) {
    command c = {.memory = default_memory, .passes = 1, .pack.seconds = 60};
    ashlar_option options[OPTION_COUNT];
    list_options(&c, options);
    if (ashlar__options_answer(program, usage, notes, options, OPTION_COUNT, argc, argv)) {
        return 0;
    }
    char **files = ashlar__host_calloc((size_t)argc + 1, sizeof *files);
    if (files == NULL) {
        fprintf(stderr, "%s: no host memory\n", program);
        return ASHLAR_EXIT_FAILED;
    }
    const bool has_passes = ashlar__options_given("repeat", argc, argv) != NULL;
    int exit_status = 0, count = 0;
    const ashlar_status parsed =
        ashlar__options_parse_words(options, OPTION_COUNT, argc, argv, files);
    while (files[count] != NULL) {
        count++;
    }
    if (parsed != ASHLAR_OK || parse_memory(c.memory, &c.memory_bytes) != ASHLAR_OK ||
        check_pack(&c, count) != ASHLAR_OK) {
        exit_status = ashlar__program_fail(program, ASHLAR_EINVAL);
    } else if (count == 0 && c.pack.path == NULL) {
        fprintf(stderr, "%s: no log given; name a file, see --help\n", program);
        exit_status = ASHLAR_EXIT_USAGE;
    } else if (count > 1 && c.html != NULL) {
        fprintf(stderr, "%s: --html shows one log; name one file\n", program);
        exit_status = ASHLAR_EXIT_USAGE;
    } else {
        c.passes = c.finds_capacity && !has_passes ? CAPACITY_PASSES : c.passes;
        exit_status = run(&c, count, files);
    }
    ashlar__host_free(files);
    return exit_status;
}

int main(int argc, char **argv) {
    ashlar__program_init();
    return ashlar__program_finish(program, run_command(argc, argv));
}
