/*
 * test_report.c - the report of a training in words and as JSON, and the lines that show progress.
 *
 * Every field of the report gets a number of its own, so that a swapped one is seen.
 */
#include "tests/rnn/programs/report_fixture.h"
#include "tests/text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rnn/programs/train_program.h"

static const ashlar_train_config config = {
    .steps = 505,
    .optimizer = {.kind = ASHLAR_OPTIMIZER_RMSPROP,
                  .learning_rate = 0.0625,
                  .weight_decay = 0.125,
                  .clip_norm = 0.375},
    .seed = 18446744073709551615u,
    .buckets = 506,
    .layers = 507,
};

static const ashlar_evaluation evaluation = {
    .records = 681, .symbols = 682, .loss = 6.75, .bits_per_byte = 8.5, .management_calls = 683};

static ashlar_train_report a_report(void) {
    const uint64_t mib = 1048576;
    ashlar_train_report r = {
        .device = {.kind = ASHLAR_DEVICE_SOFT, .ordinal = 6, .name = "some \"device\""},
        .steps = 601,
        .steps_skipped = 660,
        .parameters = 602,
        .batch = 503,
        .max_length = 603,
        .warmed_length = 607,
        .warmed_count = 1,
        .lengths_distinct = 604,
        .sequences = 605,
        .bptt = 608,
        .recompute = 609,
        .tokens = 606000,
        .epochs = 6.25,
        .loss_first = 5.5451,
        .loss_last = 1.2345,
        .seconds = 60.6,
        .tokens_per_s = 10000.25,
        .setup = {.management = 611, .work = 612, .wait = 613},
        .warmup = {.management = 621, .work = 622, .wait = 623},
        .training = {.management = 631, .work = 632, .wait = 633},
        .weights_contiguous = true,
        .step_memory = {.is_planned = true,
                        .unsteady_because = "only one was looked at",
                        .plan_count = 654,
                        .reserved_bytes = 53 * mib,
                        .bound_bytes = 50 * mib,
                        .plan_bytes = 52 * mib,
                        .gap = 0.04,
                        .hits = 651,
                        .misses = 652,
                        .steps_replayed = 653},
        .savings = {{"accumulate", 671, 100 * mib}, {"bptt", 672, 60 * mib}},
        .savings_count = 2,
        .stats = {.live_peak_bytes = 64 * mib,
                  .reserved_peak_bytes = 80 * mib,
                  .alloc_count = 1000,
                  .served_planned = 20,
                  .served_cached = 10,
                  .served_same_stream = 670,
                  .served_idle = 200,
                  .served_completed = 50,
                  .served_waited = 30,
                  .served_mapped = 15,
                  .served_after_sync = 5,
                  .driver_calls_sealed = 641},
    };
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        r.stats.tags[tag].peak_bytes = (uint64_t)(tag + 1) * 10 * mib;
        r.stats.tags[tag].at_peak_bytes = (uint64_t)(tag + 1) * mib;
    }
    r.stats.tags[ASHLAR_TAG_USER].peak_bytes = 0; /* never used */
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        r.growth[tag] = (ashlar_tag_growth){.first_bytes = 700 + (uint64_t)tag,
                                            .held_bytes = 800 + 3 * (uint64_t)tag};
    }
    r.growth[ASHLAR_TAG_SAVED].is_growing = true;
    r.growth[ASHLAR_TAG_SAVED].since_step = 719;
    r.growth[ASHLAR_TAG_SAVED].growth_bytes = 77;
    return r;
}

/* ---- words and tables ---- */

static const char *print(const ashlar_train_report *r) {
    ashlar__report_print(text_begin(), r, &evaluation);
    return text_end();
}

CASE(the_words_hold_the_numbers) {
    ashlar_train_report r = a_report();
    const char *text = print(&r);
    CHECK_HAS(text, "601 steps on some \"device\" (soft:6), 606000 symbols in 60.6 s: 10000 per "
                    "second");
    CHECK_HAS(text, "The loss went from 5.5451 to 1.2345 nats per symbol.");
    CHECK_HAS(text,
              "Batches of 503 had 604 different lengths, up to 603; the warm-up ran one batch "
              "of length 607,");
    CHECK_HAS(text, "asked the driver for memory, streams or attributes 631 times (calls\nof the "
                    "allocator: 641).");
    CHECK_HAS(text, "The 602 parameters lie in one contiguous range");
    CHECK_HAS(text,
              "On 681 held-out records the loss is 6.7500 nats per symbol, 8.500 bits per byte");
    CHECK_HAS(text, "streams or attributes: 683)");
    CHECK_HAS(text, "and after it the process asked");
    CHECK(strstr(text, "is not counted") == NULL && strstr(text, "TF32") == NULL);
    r.device.kind = ASHLAR_DEVICE_CUDA;
    r.weights_contiguous = false;
    r.warmed_count = 10;
    r.warmed_least = 3;
    r.is_tf32 = true;
    text = print(&r);
    CHECK_HAS(text, "the warm-up ran 10 batches of lengths 607 to 3,\nand after it ashlar asked");
    CHECK_HAS(text, "The layers multiplied f32 in TF32");
    CHECK_HAS(text, "What cuDNN, cuBLAS and the CUDA runtime ask by themselves is not counted");
    CHECK_HAS(text, "(cuda:6)");
    CHECK_HAS(text, "The 602 parameters are NOT where the arena placed them");
}

CASE(the_tables_hold_the_numbers) {
    ashlar_train_report r = a_report();
    const char *text = print(&r);
    CHECK_HAS(text, "\nWhere memory went (MiB)      at peak    at most\n  weights ");
    CHECK_HAS(text, "\nCalls into the driver      memory, streams   copies, launches   host waits\n"
                    "  set-up ");
    CHECK_HAS(text, "\n  weights                       2.00      20.00\n");
    CHECK_HAS(text, "\n  batch                         8.00      80.00\n");
    CHECK(strstr(text, "\n  user ") == NULL); /* was never used */
    CHECK_HAS(text, "\n  live, all of them            64.00\n");
    CHECK_HAS(text, "\n  reserved from the device     80.00  (1.250 x live)\n");
    CHECK_HAS(text, "\n  set-up                               611                612          613"
                    "\n  warm-up                              621                622          623"
                    "\n  training, after it                   631                632          633"
                    "\n");
    r.stats.tags[ASHLAR_TAG_USER].peak_bytes = 1;
    text = print(&r);
    CHECK_HAS(text, "at most\n  user                          1.00       0.00\n");
}

CASE(the_words_tell_of_the_plan) {
    ashlar_train_report r = a_report();
    const char *text = print(&r);
    CHECK_HAS(text, "a step needs 50.00 MiB at its peak and has 53.00 MiB (1.060 x).\n");
    CHECK_HAS(text,
              "The plan, 52.00 MiB and 4.00 % above that peak, served 651 blocks of 653 steps "
              "and\nmissed 652.\nNot proven steady: only one was looked at.\n");
    r.step_memory.is_planned = false;
    r.step_memory.is_steady = true;
    text = print(&r);
    CHECK_HAS(text, "(1.060 x),\nwithout a plan.\nSteady: no step takes memory");
    CHECK(strstr(text, "The plan") == NULL);
}

/* ---- JSON ---- */

/* Write the report and read it back. */
static bool written(const ashlar_train_report *r) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__report_put(&w, &config, r, &evaluation);
    ashlar__json_close_object(&w);
    CHECK(ashlar__json_writer_end(&w, path) == ASHLAR_OK);
    return read_document();
}

CASE(the_json_holds_every_number_of_the_training) {
    const ashlar_train_report r = a_report();
    REQUIRE(written(&r));
    check_text(document, "device", "soft:6");
    check_text(document, "device_name", "some \"device\"");
    check_uint(document, "steps", 601);
    check_uint(document, "parameters", 602);
    check_uint(document, "steps_skipped", 660);
    check_real(document, "loss_first", 5.5451);
    check_real(document, "loss_last", 1.2345);
    check_uint(document, "tokens", 606000);
    check_real(document, "epochs", 6.25);
    check_real(document, "seconds", 60.6);
    check_real(document, "tokens_per_s", 10000.25);
    check_uint(document, "sequences", 605);
    check_uint(document, "lengths_distinct", 604);
    check_uint(document, "max_length", 603);
    check_uint(document, "held_out_records", 681);
    check_uint(document, "held_out_symbols", 682);
    check_real(document, "held_out_loss", 6.75);
    check_real(document, "held_out_bits_per_byte", 8.5);
    check_uint(document, "held_out_driver_calls", 683);
}

static void check_bool(const ashlar_json *object, const char *key, bool want) {
    const ashlar_json *value = json_member(object, key);
    CHECK(value != NULL && value->kind == ASHLAR_JSON_BOOL && value->boolean == want);
}

static void check_tags(void) {
    const ashlar_json *tags = json_member(document, "bytes_by_tag");
    for (int i = 0; i < ASHLAR_TAG_COUNT; i++) {
        const uint64_t number = (uint64_t)i;
        const ashlar_json *tag = json_member(tags, ashlar_tag_name((ashlar_tag)i));
        check_uint(tag, "at_peak", (number + 1) * 1048576);
        check_uint(tag, "own_peak", i == ASHLAR_TAG_USER ? 0 : (number + 1) * 10485760);
        check_uint(tag, "held", 800 + 3 * number);
        check_uint(tag, "held_after_warmup", 700 + number);
        check_bool(tag, "grows", i == ASHLAR_TAG_SAVED);
        CHECK((json_member(tag, "grows_since_step") != NULL) == (i == ASHLAR_TAG_SAVED));
    }
    const ashlar_json *reserve = json_member(tags, "saved");
    check_uint(reserve, "grows_since_step", 719);
    check_uint(reserve, "grown_since_then", 77);
}

CASE(the_json_holds_calls_and_memory) {
    ashlar_train_report r = a_report();
    REQUIRE(written(&r));
    check_uint(document, "driver_calls_setup", 611);
    check_uint(document, "driver_calls_warmup", 621);
    check_uint(document, "driver_calls_after_warmup", 631);
    check_uint(document, "allocator_driver_calls_after_warmup", 641);
    check_uint(document, "work_calls_after_warmup", 632);
    check_uint(document, "wait_calls_after_warmup", 633);
    check_uint(document, "step_reserved_bytes", 53 * 1048576);
    check_uint(document, "bound_bytes", 50 * 1048576);
    check_uint(document, "plan_bytes", 52 * 1048576);
    check_uint(document, "plan_count", 654);
    check_real(document, "plan_gap", 0.04);
    check_uint(document, "plan_hits", 651);
    check_uint(document, "plan_misses", 652);
    check_uint(document, "steps_replayed", 653);
    const ashlar_json *savings = json_member(document, "step_bytes_without");
    check_uint(savings, "accumulate", 100 * 1048576);
    check_uint(savings, "bptt", 60 * 1048576);
    check_uint(document, "live_peak_bytes", 64 * 1048576);
    check_uint(document, "reserved_peak_bytes", 80 * 1048576);
    check_uint(document, "allocations", 1000);
    check_uint(document, "allocations_served_without_driver", 700);
    check_bool(document, "weights_contiguous", true);
    check_bool(document, "tf32", false);
    check_tags();
    r.weights_contiguous = false;
    r.is_tf32 = true;
    r.device.kind = ASHLAR_DEVICE_CUDA;
    REQUIRE(written(&r));
    check_bool(document, "weights_contiguous", false);
    check_bool(document, "tf32", true);
    check_text(document, "device", "cuda:6");
}

CASE(the_json_holds_the_configuration) {
    const ashlar_train_report r = a_report();
    REQUIRE(written(&r));
    const ashlar_json *c = json_member(document, "config");
    REQUIRE(c != NULL);
    check_uint(c, "layers", 507);
    check_uint(c, "bptt", 608);
    check_uint(c, "recompute", 609);
    check_text(c, "cell", "lstm");
    check_real(c, "learning_rate", 0.0625);
    check_real(c, "weight_decay", 0.125);
    check_real(c, "clip_norm", 0.375);
    check_uint(c, "seed", UINT64_MAX);
    check_uint(c, "buckets", 506);
    check_bool(c, "plan", true);
    check_text(c, "optimizer", "rmsprop");
    check_text(c, "blas", ashlar_cpu_get_info().products);
    check_uint(c, "threads", (uint64_t)ashlar_cpu_get_info().threads);
}

/* ---- progress ---- */

static char *shown;
static size_t shown_bytes;
static FILE *shown_file;

static void close_shown(void) {
    check_forget(close_shown);
    CHECK(fclose(shown_file) == 0);
    free(shown);
    shown = NULL;
}

static bool open_shown(ashlar_progress *p) {
    shown_file = open_memstream(&shown, &shown_bytes);
    if (shown_file == NULL) {
        return false;
    }
    ashlar__progress_init(p, shown_file);
    return check_at_end(close_shown);
}

static void show_step(ashlar_progress *p, size_t step, double seconds) {
    const ashlar_train_progress now = {.step = step,
                                       .steps = 48,
                                       .loss = 1.23456,
                                       .epoch = 0.5,
                                       .length = 77,
                                       .tokens_per_s = 12345.6,
                                       .seconds = seconds};
    ashlar__progress_show(p, &now);
}

static size_t lines(char separator) {
    size_t count = 0;
    for (size_t i = 0; i < shown_bytes; i++) {
        count += shown[i] == separator;
    }
    return count;
}

CASE(progress_elsewhere_is_a_plain_line_every_five_seconds) {
    ashlar_progress p;
    REQUIRE(open_shown(&p));
    CHECK(!p.is_terminal);
    show_step(&p, 1, 2); /* the first is always shown, and at once */
    CHECK(strcmp(shown, "step 1/48  loss 1.2346  length 77  epoch 0.500  12346 tokens/s\n") == 0);
    show_step(&p, 2, 6.9); /* 4.9 seconds after it */
    CHECK_ZU(lines('\n'), 1);
    show_step(&p, 3, 7);
    CHECK_ZU(lines('\n'), 2);
    show_step(&p, 4, 11.9);
    CHECK_ZU(lines('\n'), 2);
    show_step(&p, 47, 12);
    show_step(&p, 48, 12.01); /* and the last */
    CHECK_ZU(lines('\n'), 4);
    CHECK_ZU(lines('\r'), 0);
}

CASE(progress_on_a_terminal_is_one_line_that_is_rewritten) {
    ashlar_progress p;
    REQUIRE(open_shown(&p));
    p.is_terminal = true;
    show_step(&p, 1, 0.5);
    CHECK(strcmp(shown, "\r1/48  loss 1.235  24 s left  12.3 k/s, T 77\033[K") == 0);
    show_step(&p, 12, 0.59); /* too soon */
    CHECK_ZU(lines('\r'), 1);
    show_step(&p, 12, 20);
    CHECK_HAS(shown, "\r12/48  ");
    CHECK_HAS(shown, "  1:00 min left ");
    CHECK_ZU(lines('\n'), 0);
    show_step(&p, 48, 20.01);
    CHECK_HAS(shown, "\r48/48  ");
    CHECK_HAS(shown, "  0 s left  12.3 k/s, T 77\033[K\n");
    CHECK_ZU(lines('\n'), 1);
}

/* What has no room is cut off, and the last column stays empty. */
CASE(the_line_is_no_wider_than_the_terminal) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    SKIP_IF(master < 0 || grantpt(master) != 0 || unlockpt(master) != 0, "no pseudo-terminal here");
    FILE *terminal = fopen(ptsname(master), "w");
    REQUIRE(terminal != NULL);
    for (unsigned short columns = 1; columns < 50; columns += 12) {
        const struct winsize size = {.ws_row = 9, .ws_col = columns};
        char got[LINE_MAX];
        ashlar_progress p;
        CHECK(ioctl(master, TIOCSWINSZ, &size) == 0);
        ashlar__progress_init(&p, terminal);
        CHECK(p.is_terminal);
        show_step(&p, 1, 0.5);
        const ssize_t bytes = read(master, got, sizeof got);
        const size_t all = strlen("1/48  loss 1.235  24 s left  12.3 k/s, T 77");
        const size_t room = (size_t)columns - 1, want = room < all ? room : all;
        CHECK_ZU((size_t)bytes, want + strlen("\r\033[K"));
    }
    CHECK(fclose(terminal) == 0 && close(master) == 0);
}

RUN_CASES_IN_FOLDER()
