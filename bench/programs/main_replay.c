/* main_replay.c - ashlar-replay: replay a recorded log of allocations, or pack buffers. */
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"
#include "rnn/programs/options.h"
#include "allocator/base/parse.h"
#include "rnn/programs/program.h"
#include "bench/replay/replay.h"
#include "bench/replay/bench_pack.h"
#include "bench/replay/what_if.h"

static const char program[] = "ashlar-replay";

/* More than any log of one device needs: no allocation fails, and the peak shows what it needs. */
static const char default_memory[] = "1TiB";

typedef struct command {
    const char *memory;
    const char *json;
    const char *html;
    ashlar_replay_job job;
    ashlar_pack_job pack; /* if pack.path is NULL, logs are replayed instead */
    ashlar_option_list assertions;
    ashlar_snapshot_job snapshot;
    bool is_diff;
    bool has_passes; /* --repeat was given */
    bool has_failed; /* an assertion does not hold */
    ashlar_what_if what_if;
    const char *capacity; /* --capacity as text: bytes that the plan may take; NULL: not given */
} command;

enum { OPTION_COUNT = 14, PASSES_MAX = 100000, CAPACITY_PASSES = 20 /* by default */ };

static void list_options(command *c, ashlar_option options[static OPTION_COUNT]) {
    const ashlar_option all[] = {
        {"memory", "SIZE", ASHLAR_OPTION_TEXT, &c->memory, 0, 0, "of the device: B, KiB ... TiB"},
        {"find-capacity", NULL, ASHLAR_OPTION_FLAG, &c->job.finds_capacity, 0, 0,
         "find the smallest device on which it passes"},
        {"repeat", "N", ASHLAR_OPTION_COUNT, &c->job.passes, 1, PASSES_MAX,
         "passes of one allocator; to find a capacity: 20"},
        {"plan", NULL, ASHLAR_OPTION_FLAG, &c->job.has_plan, 0, 0,
         "record its first step, replay the others on a plan"},
        {"pack", "FILE", ASHLAR_OPTION_TEXT, &c->pack.path, 0, 0,
         "find offsets for the buffers of FILE instead"},
        {"capacity", "N", ASHLAR_OPTION_TEXT, &c->capacity, 0, 0, "bytes that the plan may take"},
        {"seconds", "N", ASHLAR_OPTION_COUNT, &c->pack.seconds, 0, 1e6, "to search for it"},
        {"out", "FILE", ASHLAR_OPTION_TEXT, &c->pack.solution, 0, 0, "write the plan there"},
        {"torch", "SETTINGS", ASHLAR_OPTION_TEXT, &c->what_if.torch, 0, 0,
         "of a snapshot: try PyTorch's allocator with these, too"},
        {"diff", NULL, ASHLAR_OPTION_FLAG, &c->is_diff, 0, 0,
         "compare two snapshots by line and size"},
        {"assert", "LIMIT", ASHLAR_OPTION_LIST, &c->assertions, 0, 0,
         "of a snapshot: peak<=SIZE, or grown, reserved, live"},
        {"junit", "FILE", ASHLAR_OPTION_TEXT, &c->snapshot.junit, 0, 0,
         "write what came of these there"},
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

/* ---- the work ---- */

/* Print the answers, and the assertions that do not hold. */
static void print_lines(command *c, const ashlar_events *events) {
    for (size_t i = 0; i < events->line_count; i++) {
        const ashlar_event_line *line = &events->lines[i];
        if (line->is_failure) {
            fprintf(stderr, "%s: %s\n", program, line->text);
            c->has_failed = true;
        } else {
            printf("%s\n", line->text);
        }
    }
}

/* Answer for one file; or for what differs, if there is one before. */
static ashlar_status replay_file(command *c, const char *before, const char *path,
                                 ashlar_json_writer *w) {
    ashlar_events *events = NULL;
    ashlar_status status = ASHLAR_OK;
    const bool is_log = before == NULL && c->assertions.count == 0 && !ashlar__snapshot_is(path);
    ASHLAR_FAIL_IF(is_log && c->what_if.torch != NULL, ASHLAR_EINVAL,
                   "%s: --torch is about snapshots of PyTorch", path);
    ASHLAR_FAIL_IF(!is_log && (c->has_passes || c->job.has_plan), ASHLAR_EINVAL,
                   "%s: --%s is about logs of RMM, and this is a snapshot", path,
                   c->has_passes ? "repeat" : "plan");
    if (is_log) {
        return ashlar__replay_log_run(&c->job, path, stdout, w);
    }
    c->snapshot.before = before;
    ASHLAR_TRY(ashlar__snapshot_read(path, &c->snapshot, &events));
    const char *answers = events->answers != NULL ? events->answers : "[]";
    if (before == NULL) {
        ashlar__json_open_document(w, "ashlar-snapshot/1");
        ashlar__json_add_string(w, "trace", path);
        status = ashlar__what_if_run(&c->what_if, events, stdout, w);
        ashlar__json_put_key(w, "answers");
    }
    ashlar__json_put_parsed(w, answers, strlen(answers));
    if (before == NULL) {
        ashlar__json_close_object(w);
    }
    print_lines(c, events);
    ashlar__events_free(events);
    return status;
}

/* Replay every file, even after one has failed, or pack one problem. Each failure prints one line;
 * results so far are written. */
static int run(command *c, int count, char **files) {
    ashlar_json_writer w;
    int exit_status = 0;
    ashlar_status status = ashlar__program_check_report(c->json);
    ASHLAR_THEN(status, ashlar__program_check_writable(c->html));
    ASHLAR_THEN(status, ashlar__program_check_writable(c->snapshot.junit));
    ASHLAR_THEN(status, ashlar__program_check_writable(c->pack.solution));
    if (status != ASHLAR_OK) {
        return ashlar__program_fail(program, status);
    }
    ashlar__json_writer_init(&w, 2);
    c->pack.writer = &w;
    if (count > 1 && !c->is_diff) {
        ashlar__json_open_array(&w);
    }
    status = c->pack.path != NULL ? ashlar__replay_pack_run(&c->pack, stdout) : ASHLAR_OK;
    if (status != ASHLAR_OK) {
        exit_status = ashlar__program_fail(program, status);
    }
    for (int i = 0; i < count; i += c->is_diff ? count : 1) {
        status = replay_file(c, c->is_diff ? files[0] : NULL, files[c->is_diff ? 1 : i], &w);
        if (status != ASHLAR_OK) {
            exit_status = ashlar__program_fail(program, status);
        }
    }
    const bool has_figures = w.bytes > (count > 1 ? 1 : 0); /* more than the array's "[" */
    if (count > 1 && !c->is_diff) {
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
    return c->has_failed ? ASHLAR_EXIT_FAILED : exit_status;
}

static ashlar_status check_assertions(command *c, int file_count) {
    ASHLAR_FAIL_IF(c->is_diff && file_count != 2, ASHLAR_EINVAL,
                   "--diff compares two snapshots; name both, the older one first");
    ASHLAR_FAIL_IF(c->snapshot.junit != NULL && c->assertions.count == 0, ASHLAR_EINVAL,
                   "--junit writes what came of --assert; give one");
    ASHLAR_FAIL_IF(c->snapshot.junit != NULL && file_count != 1 + c->is_diff, ASHLAR_EINVAL,
                   "--junit is about one snapshot, or two with --diff");
    ASHLAR_TABLE_IS_FULL(c->assertions.items, ASHLAR_SNAPSHOT_ASSERTIONS_MAX);
    c->snapshot.assertions = c->assertions.items;
    c->snapshot.assertion_count = c->assertions.count;
    return ASHLAR_OK;
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
    if (file_count > 0 || c->job.finds_capacity || c->job.has_plan || c->job.passes > 1 ||
        c->assertions.count > 0) {
        return ashlar__fail(ASHLAR_EINVAL, "--pack FILE replays nothing; leave out %s",
                            file_count > 0          ? "the other files"
                            : c->job.finds_capacity ? "--find-capacity"
                            : c->job.has_plan       ? "--plan"
                            : c->job.passes > 1     ? "--repeat"
                                                    : "--assert");
    }
    c->pack.lists_blocks = c->html != NULL;
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
    command c = {.memory = default_memory,
                 .job = {.passes = 1, .report = ashlar__program_print_report},
                 .pack.seconds = 60};
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
    c.has_passes = ashlar__options_given("repeat", argc, argv) != NULL;
    int exit_status = 0, count = 0;
    const ashlar_status parsed =
        ashlar__options_parse_words(options, OPTION_COUNT, argc, argv, files);
    while (files[count] != NULL) {
        count++;
    }
    if (parsed != ASHLAR_OK || parse_memory(c.memory, &c.job.memory_bytes) != ASHLAR_OK ||
        check_pack(&c, count) != ASHLAR_OK || check_assertions(&c, count) != ASHLAR_OK) {
        exit_status = ashlar__program_fail(program, ASHLAR_EINVAL);
    } else if (count == 0 && c.pack.path == NULL) {
        fprintf(stderr, "%s: no log given; name a file, see --help\n", program);
        exit_status = ASHLAR_EXIT_USAGE;
    } else if (count > 1 && c.html != NULL && !c.is_diff) {
        fprintf(stderr, "%s: --html shows one log; name one file\n", program);
        exit_status = ASHLAR_EXIT_USAGE;
    } else {
        c.what_if.memory_bytes =
            ashlar__options_given("memory", argc, argv) != NULL ? c.job.memory_bytes : 0;
        c.what_if.finds_capacity = c.job.finds_capacity;
        c.job.lists_blocks = c.html != NULL;
        c.job.passes = c.job.finds_capacity && !c.has_passes ? CAPACITY_PASSES : c.job.passes;
        exit_status = run(&c, count, files);
    }
    ashlar__host_free(files);
    return exit_status;
}

int main(int argc, char **argv) {
    ashlar__program_init();
    return ashlar__program_finish(program, run_command(argc, argv));
}
