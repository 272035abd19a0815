/*
 * test_text.c - the text that a model writes to a file or a terminal, what writing it took, and the
 * report of that.
 */
#include "tests/rnn/model/sampled_fixture.h"

#include <fcntl.h>
#include <termios.h>

#include "tests/rnn/programs/report_fixture.h"
#include "tests/text.h"
#include "rnn/programs/train_program.h"

enum { BYTES = 600, TEXT_MAX = 4096 };

/* Equal weights throughout: every byte is as likely as any other, the mark too. */
static bool open_byte_model(void) {
    model_config =
        (ashlar_text_model_config){.classes = 256, .embedding = 2, .hidden = 3, .layers = 1};
    return open_model("memory=64MiB");
}

static ashlar_text_config config_of(const char *prime, size_t bytes) {
    return (ashlar_text_config){
        .sampler = {.sampling = {.temperature = 0.9, .top_p = 1}, .seed = 21},
        .prime = prime,
        .prime_bytes = strlen(prime),
        .bytes = bytes,
    };
}

/* What should stand in the file: the prime, then the sampler's own symbols for the seed. */
static size_t expected_text(const char *prime, bool is_terminal, char *text) {
    const ashlar_text_config config = config_of(prime, BYTES);
    ashlar_text_sampler *sampler = NULL;
    size_t count = 0, primed = config.prime_bytes;
    CHECK(ashlar__text_sampler_create(&sampled, &config.sampler, &sampler) == ASHLAR_OK);
    for (size_t i = 0; i < primed + BYTES; i++) {
        int32_t symbol = i < primed ? (unsigned char)prime[i] : -1;
        CHECK((i < primed ? ashlar__text_sampler_read(sampler, symbol)
                          : ashlar__text_sampler_next(sampler, &symbol)) == ASHLAR_OK);
        const bool is_shown = symbol == '\n' || symbol == '\t' || symbol >= 0xa0 ||
                              (symbol >= 0x20 && symbol <= 0x7e);
        if (symbol == 0) {
            memcpy(text + count, "\n%\n", 3);
            count += 3;
        } else {
            text[count++] = (char)(is_terminal && !is_shown ? '?' : symbol);
        }
    }
    text[count++] = '\n';
    ashlar__text_sampler_destroy(sampler);
    return count;
}

/* Shift the output bias of one symbol: makes it much likelier than the others. */
static void prefer(int32_t symbol) {
    size_t count;
    CHECK(ashlar_stream_synchronize(device, streams[1]) == ASHLAR_OK);
    weights_of("linear.bias", &count)[symbol] = 4;
}

CASE_WITH(a_file_gets_every_byte_as_it_is, open_byte_model()) {
    static char want[TEXT_MAX];
    prefer(ASHLAR_BATCHER_MARK);
    const size_t want_bytes = expected_text("\x1bOnce\xff\x01", false, want);
    const ashlar_text_config config = config_of("\x1bOnce\xff\x01", BYTES);
    CHECK(ashlar__text_write(&sampled, text_begin(), &config, NULL) == ASHLAR_OK);
    const char *text = text_end();
    CHECK_ZU(strlen(text), want_bytes); /* the mark, the only byte 0, is written as a line */
    CHECK(memcmp(text, want, want_bytes) == 0);
    CHECK_HAS(text, "\n%\n");
}

CASE(a_terminal_gets_no_control_characters) {
    static char want[TEXT_MAX], got[TEXT_MAX];
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    SKIP_IF(master < 0 || grantpt(master) != 0 || unlockpt(master) != 0, "no pseudo-terminal here");
    FILE *terminal = fopen(ptsname(master), "w");
    REQUIRE(terminal != NULL);
    struct termios raw;
    REQUIRE(tcgetattr(fileno(terminal), &raw) == 0);
    cfmakeraw(&raw);
    REQUIRE(tcsetattr(fileno(terminal), TCSANOW, &raw) == 0);
    REQUIRE(open_byte_model());
    const char prime[] = "\x01\x08\t\n\x0b\x1b\x1f ~\x7f\x80\x9f\xa0\xff";
    const size_t want_bytes = expected_text(prime, true, want);
    const ashlar_text_config config = config_of(prime, BYTES);
    CHECK(ashlar__text_write(&sampled, terminal, &config, NULL) == ASHLAR_OK);
    CHECK(fflush(terminal) == 0);
    size_t bytes = 0;
    for (ssize_t more = 1; more > 0 && bytes<want_bytes; bytes += more> 0 ? (size_t)more : 0) {
        more = read(master, got + bytes, want_bytes - bytes);
    }
    CHECK(bytes == want_bytes && memcmp(got, want, bytes) == 0);
    CHECK(memcmp(got, "??\t\n??? ~???\xa0\xff", 14) == 0);
    CHECK(fclose(terminal) == 0 && close(master) == 0);
}

/* ---- what it takes ---- */

/* However long the text: nothing grows, and nobody asks. */
static void check_constant(const ashlar_text_config *config) {
    ashlar_text_report r = {.bytes = 77};
    REQUIRE(open_model("memory=64MiB"));
    const uint64_t before = stats_now().live_bytes;
    FILE *out = nowhere();
    CHECK(ashlar__text_write(&sampled, out, config, &r) == ASHLAR_OK);
    CHECK_ZU(r.bytes, config->bytes);
    CHECK(r.seconds > 0);
    CHECK(r.start.live_bytes > before && r.start.alloc_count > 0);
    CHECK_ZU(r.end.live_bytes, r.start.live_bytes);
    CHECK_ZU(r.end.reserved_bytes, r.start.reserved_bytes);
    CHECK_ZU(r.end.alloc_count, r.start.alloc_count + config->bytes); /* a block for each walk */
    CHECK_ZU(r.calls.management, 0);
    CHECK_ZU(r.calls.wait, config->bytes);
    CHECK_ZU(r.calls.work, 3 * config->bytes); /* the model's operations */
    CHECK(stats_now().live_bytes > before);    /* what the model prepared */
    CHECK_ZU(stats_now().reserved_bytes, r.end.reserved_bytes);
    CHECK_ZU(stats_now().alloc_count, r.end.alloc_count);
    close_model();
}

CASE(no_length_of_text_takes_memory_with_any_cell) {
    usual_model();
    for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        for (size_t projection = 0; projection <= (cell == ASHLAR_RNN_LSTM ? 7 : 0);
             projection += 7) {
            ashlar_text_config config = config_of("\1\2\3", 1000);
            model_config.cell = (ashlar_rnn_cell)cell;
            model_config.projection = projection;
            check_constant(&config);
            config.bytes = 3000;
            config.sampler.sampling.top_k = 5;
            config.sampler.sampling.top_p = 0.9;
            check_constant(&config);
        }
    }
}

/* ---- failures ---- */

/* A reader that went away does not want the rest of a text without end. */
CASE_WITH(a_text_that_cannot_be_written_ends_at_once, open_byte_model()) {
    const ashlar_text_config config = config_of("", (size_t)1 << 60);
    ashlar_text_report report = {.bytes = 77};
    FILE *full = fopen("/dev/full", "w");
    REQUIRE(full != NULL);
    CHECK_FAILS(ashlar__text_write(&sampled, full, &config, &report), ASHLAR_EIO,
                "could not be written");
    CHECK_ZU(report.bytes, 77);
    CHECK(ferror(full) != 0);
    (void)fclose(full);
}

/* Each allocation fails once; nothing is left behind, and no text is written. */
CASE_WITH(several_texts_without_host_memory_are_refused, open_byte_model()) {
    ashlar_text_config config = config_of("ab", 20);
    config.sampler.count = 3;
    unsigned long n = 1;
    CHECK(ashlar__text_write(&sampled, nowhere(), &config, NULL) == ASHLAR_OK); /* prepares */
    const uint64_t live_blocks = stats_now().live_blocks;
    for (ashlar_status status = ASHLAR_EHOSTMEM; status != ASHLAR_OK && n < 500; n++) {
        ashlar_text_report report = {.bytes = 77};
        HOST_FAILS_AT(n, status = ashlar__text_write(&sampled, text_begin(), &config, &report));
        const char *text = text_end();
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        CHECK_ZU(report.bytes, status == ASHLAR_OK ? 60 : 77);
        CHECK((strcmp(text, "\n") != 0) == (status == ASHLAR_OK));
        CHECK(stats_now().live_blocks <= live_blocks);
    }
    CHECK_ZU(stats_now().live_blocks, live_blocks);
    CHECK(n > 15);
    config.bytes = SIZE_MAX / 2;
    CHECK_FAILS(ashlar__text_write(&sampled, nowhere(), &config, NULL), ASHLAR_EOVERFLOW,
                "3 texts");
}

/* ---- the report ---- */

static const ashlar_text_report made_report = {
    .bytes = 4000,
    .seconds = 2,
    .start = {.live_bytes = 10, .reserved_bytes = 20, .alloc_count = 3},
    .end = {.live_bytes = 12, .reserved_bytes = 22, .alloc_count = 9},
    .calls = {.management = 321, .work = 50, .wait = 60},
};

static bool open_report(const ashlar_text_report *report) {
    ashlar_text_config config = config_of("ab", 4000);
    config.sampler.sampling.top_k = 8;
    config.sampler.sampling.top_p = 0.5;
    CHECK(ashlar__text_report_write(path, &sampled, &config, report) == ASHLAR_OK);
    return read_document();
}

CASE(the_report_has_each_number_under_its_name) {
    REQUIRE(open_byte_model() && open_report(&made_report));
    check_text(document, "device", "soft:0");
    CHECK(json_member(document, "device_name") != NULL);
    check_uint(document, "bytes", 4000);
    check_real(document, "seconds", 2);
    check_real(document, "bytes_per_s", 2000);
    check_uint(document, "live_start_bytes", 10);
    check_uint(document, "reserved_start_bytes", 20);
    check_uint(document, "live_end_bytes", 12);
    check_uint(document, "reserved_end_bytes", 22);
    check_uint(document, "allocations_after_start", 6);
    check_uint(document, "driver_calls_after_start", 321);
    check_uint(document, "work_calls_after_start", 50);
    check_uint(document, "wait_calls_after_start", 60);
    const ashlar_json *config = json_member(document, "config");
    check_text(config, "cell", "lstm");
    check_uint(config, "layers", 1);
    check_uint(config, "hidden", 3);
    check_uint(config, "projection", 0);
    check_uint(config, "embedding", 2);
    check_real(config, "temperature", 0.9);
    check_uint(config, "top_k", 8);
    check_real(config, "top_p", 0.5);
    check_uint(config, "seed", 21);
    check_uint(config, "prime_bytes", 2);
}

CASE_WITH(a_report_that_cannot_be_written_is_an_error, open_byte_model()) {
    const ashlar_text_config config = config_of("", 1);
    (void)unlink(path);
    CHECK(ashlar__text_report_write("/absent/report", &sampled, &config, &made_report) ==
          ASHLAR_EIO);
    HOST_FAILS_AT(1, CHECK(ashlar__text_report_write(path, &sampled, &config, &made_report) ==
                           ASHLAR_EHOSTMEM));
    CHECK(names_in_folder() == 0);
}

RUN_CASES_IN_FOLDER()
