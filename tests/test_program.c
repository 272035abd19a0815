/*
 * test_program.c - what both programs share: the choice of the device, the words on stderr, and
 * the text that a model writes to a file or a terminal.
 */
#include "model_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "error.h"
#include "program.h"
#include "sampler.h"

/*
 * In the place of driver_cuda.c's: a CUDA driver that stands on the software device, so that what
 * depends on having one can be tested anywhere.
 */
static bool has_cuda;
static ashlar_driver cuda;

ashlar_status ashlar_driver_open_cuda(ashlar_driver **out) {
    ashlar_driver *soft = NULL;
    if (!has_cuda || ashlar_driver_open_soft(&soft) != ASHLAR_OK) {
        return ashlar_fail(ASHLAR_ENODEVICE, "no CUDA driver");
    }
    cuda.table = soft->table;
    cuda.name = "cuda";
    *out = &cuda;
    return ASHLAR_OK;
}

/* ---- stderr ---- */

static char heard[4096];
static int real_stderr;
static FILE *aside;

static void listen_to_stderr(void) {
    aside = tmpfile();
    real_stderr = dup(STDERR_FILENO);
    CHECK(aside != NULL && real_stderr >= 0 && dup2(fileno(aside), STDERR_FILENO) >= 0);
}

/* What was written to stderr since, 0-terminated, in `heard`. */
static void stop_listening(void) {
    CHECK(fflush(stderr) == 0 && dup2(real_stderr, STDERR_FILENO) >= 0);
    CHECK(close(real_stderr) == 0);
    rewind(aside);
    heard[fread(heard, 1, sizeof heard - 1, aside)] = '\0';
    CHECK(fclose(aside) == 0);
}

static void a_failure_is_one_line_that_names_the_program(void) {
    listen_to_stderr();
    CHECK(ashlar_fail(ASHLAR_EINVAL, "batch: 0 sequences") == ASHLAR_EINVAL);
    const int status = ashlar_program_fail("ashlar-test", 7);
    stop_listening();
    CHECK(status == 7);
    CHECK(strcmp(heard, "ashlar-test: batch: 0 sequences\n") == 0);
}

static void lost_output_is_a_failure(void) {
    const int real_stdout = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY);
    REQUIRE(real_stdout >= 0 && full >= 0);
    CHECK(ashlar_program_finish("ashlar-test", 0) == 0);
    CHECK(ashlar_program_finish("ashlar-test", 2) == 2);
    listen_to_stderr();
    CHECK(fflush(stdout) == 0 && dup2(full, STDOUT_FILENO) >= 0);
    fputs("lost", stdout);
    const int status = ashlar_program_finish("ashlar-test", 0); /* the flush fails */
    const int again = ashlar_program_finish("ashlar-test", 0);  /* it failed before */
    const int other = ashlar_program_finish("ashlar-test", 2);  /* has something else to say */
    CHECK(dup2(real_stdout, STDOUT_FILENO) >= 0);
    clearerr(stdout);
    stop_listening();
    CHECK(status == ASHLAR_EXIT_FAILED && again == ASHLAR_EXIT_FAILED && other == 2);
    CHECK(strcmp(heard, "ashlar-test: standard output could not be written\n"
                        "ashlar-test: standard output could not be written\n") == 0);
    CHECK(close(full) == 0 && close(real_stdout) == 0);
}

/* In a child: its exit status says which expectation failed. */
static int start_without(int closed) {
    (void)close(closed);
    (void)signal(SIGPIPE, SIG_DFL);
    ashlar_program_init();
    const int next = open("/dev/null", O_RDONLY);
    const char byte = 'x';
    int ends[2];
    if (next <= STDERR_FILENO) {
        return 1; /* a file took the place of a standard one */
    }
    if (closed == STDIN_FILENO ? read(closed, &heard, 1) >= 0 : write(closed, &byte, 1) >= 0) {
        return 2; /* using it succeeds without a word */
    }
    if (pipe(ends) != 0 || close(ends[0]) != 0 || write(ends[1], &byte, 1) >= 0) {
        return 3; /* and this is reached at all: no signal */
    }
    return 0;
}

static void standard_files_are_open_and_a_closed_pipe_is_no_signal(void) {
    for (int closed = STDIN_FILENO; closed <= STDERR_FILENO; closed++) {
        int status = -1;
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            _exit(start_without(closed));
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK_ZU((size_t)WEXITSTATUS(status), 0);
    }
}

/* ---- the device ---- */

/* Open with the environment's ASHLAR_DEVICE set so, NULL: not set. */
static int open_device(const char *name, const char *environment) {
    device = NULL;
    CHECK((environment != NULL ? setenv("ASHLAR_DEVICE", environment, 1)
                               : unsetenv("ASHLAR_DEVICE")) == 0);
    listen_to_stderr();
    const int status = ashlar_program_open_device("ashlar-test", name, &device);
    stop_listening();
    CHECK(unsetenv("ASHLAR_DEVICE") == 0);
    return status;
}

static void check_opens(const char *name, const char *environment, ashlar_device_kind kind,
                        const char *words) {
    ashlar_device_info info;
    const int status = open_device(name, environment);
    CHECK(status == 0);
    CHECK(strcmp(heard, words) == 0);
    if (status == 0) {
        ashlar_device_info_read(device, &info);
        CHECK(info.kind == kind);
        ashlar_device_close(device);
    }
    /* A device that was tried and left was closed, too. */
    CHECK(atomic_load(&cuda.calls[ASHLAR_DRIVER_FN_primary_ctx_retain]) ==
          atomic_load(&cuda.calls[ASHLAR_DRIVER_FN_primary_ctx_release]));
}

static void a_cuda_device_is_passed_over_only_where_nobody_asked_for_it(void) {
    const char *const word =
        "ashlar-test: no RNN back end for CUDA yet, using the software device\n";
    REQUIRE(ashlar_soft_configure("devices=2") == ASHLAR_OK);
    has_cuda = true;
    check_opens(NULL, NULL, ASHLAR_DEVICE_SOFT, word);
    check_opens(NULL, "", ASHLAR_DEVICE_SOFT, word);
    check_opens(NULL, "auto", ASHLAR_DEVICE_SOFT, word);
    check_opens("auto", NULL, ASHLAR_DEVICE_SOFT, word);
    check_opens("auto", "cuda", ASHLAR_DEVICE_SOFT, word);
    check_opens("cuda", NULL, ASHLAR_DEVICE_CUDA, "");
    check_opens("cuda:1", "auto", ASHLAR_DEVICE_CUDA, "");
    check_opens(NULL, "cuda", ASHLAR_DEVICE_CUDA, "");
    check_opens("soft", NULL, ASHLAR_DEVICE_SOFT, "");
    has_cuda = false;
    check_opens(NULL, NULL, ASHLAR_DEVICE_SOFT, "");
    check_opens("auto", "soft:1", ASHLAR_DEVICE_SOFT, "");
    check_opens(NULL, "soft:1", ASHLAR_DEVICE_SOFT, "");
}

static void a_device_that_cannot_be_opened_is_an_exit_status(void) {
    REQUIRE(ashlar_soft_configure("") == ASHLAR_OK);
    has_cuda = false;
    CHECK(open_device("abacus", NULL) == ASHLAR_EXIT_USAGE);
    CHECK(strncmp(heard, "ashlar-test: device: \"abacus\"", 29) == 0);
    CHECK(open_device(NULL, "abacus") == ASHLAR_EXIT_USAGE);
    CHECK(strncmp(heard, "ashlar-test: ASHLAR_DEVICE: \"abacus\"", 36) == 0);
    CHECK(open_device("soft:9", NULL) == ASHLAR_EXIT_FAILED);
    CHECK_HAS(heard, "ashlar-test: soft:9:");
    CHECK(open_device("cuda", NULL) == ASHLAR_EXIT_FAILED);
    CHECK(strcmp(heard, "ashlar-test: no CUDA driver\n") == 0);
    CHECK(device == NULL);
    CHECK(ASHLAR_EXIT_USAGE == 2 && ASHLAR_EXIT_FAILED == 1);
}

/* ---- text ---- */

enum { BYTES = 600, TEXT_MAX = 4096 };

/* Equal weights throughout: every byte is as likely as any other, the mark too. */
static bool open_byte_model(void) {
    const ashlar_model_config config = {.classes = 256, .embedding = 2, .hidden = 3, .layers = 1};
    return set_up("memory=64MiB") &&
           ashlar_model_create(allocator, streams[1], &config, ASHLAR_REGIONS_INFERENCE, &model) ==
                ASHLAR_OK;
}

static void close_byte_model(void) {
    ashlar_model_destroy(model);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

/* What should stand in the file: the prime, then the sampler's own symbols for the seed. */
static size_t expected_text(const char *prime, bool is_terminal, char *text) {
    const ashlar_sampler_config config = {.temperature = 0.9, .seed = 21};
    ashlar_sampler *sampler = NULL;
    size_t count = 0, primed = strlen(prime);
    CHECK(ashlar_sampler_create(model, &config, &sampler) == ASHLAR_OK);
    for (size_t i = 0; i < primed + BYTES; i++) {
        int32_t symbol = i < primed ? (unsigned char)prime[i] : -1;
        CHECK((i < primed ? ashlar_sampler_feed(sampler, symbol)
                          : ashlar_sampler_next(sampler, &symbol)) == ASHLAR_OK);
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
    ashlar_sampler_destroy(sampler);
    return count;
}

/* Shift the output bias of one symbol: makes it much likelier than the others. */
static void prefer(int32_t symbol) {
    ((float *)model->parameters.bias)[symbol] = 4;
}

static void a_file_gets_every_byte_as_it_is(void) {
    static char want[TEXT_MAX];
    char *text = NULL;
    size_t bytes = 0;
    REQUIRE(open_byte_model());
    prefer(ASHLAR_BATCHER_MARK);
    const size_t want_bytes = expected_text("\x1bOnce\xff\x01", false, want);
    FILE *out = open_memstream(&text, &bytes);
    REQUIRE(out != NULL);
    CHECK(ashlar_program_sample(model, out, BYTES, 0.9, 21, "\x1bOnce\xff\x01") == ASHLAR_OK);
    CHECK(fclose(out) == 0);
    CHECK_ZU(bytes, want_bytes);
    CHECK(bytes == want_bytes && memcmp(text, want, bytes) == 0);
    CHECK(memmem(text, bytes, "\n%\n", 3) != NULL);
    free(text);
    close_byte_model();
}

static void a_terminal_gets_no_control_characters(void) {
    static char want[TEXT_MAX], got[TEXT_MAX];
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        SKIP("no pseudo-terminal here");
    }
    FILE *terminal = fopen(ptsname(master), "w");
    REQUIRE(terminal != NULL);
    struct termios raw;
    REQUIRE(tcgetattr(fileno(terminal), &raw) == 0);
    cfmakeraw(&raw);
    REQUIRE(tcsetattr(fileno(terminal), TCSANOW, &raw) == 0);
    REQUIRE(open_byte_model());
    const char prime[] = "\x01\x08\t\n\x0b\x1b\x1f ~\x7f\x80\x9f\xa0\xff";
    const size_t want_bytes = expected_text(prime, true, want);
    CHECK(ashlar_program_sample(model, terminal, BYTES, 0.9, 21, prime) == ASHLAR_OK);
    CHECK(fflush(terminal) == 0);
    size_t bytes = 0;
    for (ssize_t more = 1; more > 0 && bytes < want_bytes; bytes += more > 0 ? (size_t)more : 0) {
        more = read(master, got + bytes, want_bytes - bytes);
    }
    CHECK(bytes == want_bytes && memcmp(got, want, bytes) == 0);
    CHECK(memcmp(got, "??\t\n??? ~???\xa0\xff", 14) == 0);
    CHECK(fclose(terminal) == 0 && close(master) == 0);
    close_byte_model();
}

static void text_that_cannot_be_drawn_ends_with_its_status(void) {
    REQUIRE(open_byte_model());
    for (uint64_t n = 1; n <= 12; n++) { /* 2 for the mark, 2 for each of "ab", 4 for each byte */
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        REQUIRE(out != NULL);
        ashlar_driver_fail_at(driver, ASHLAR_DRIVER_FN_launch_host_func, n, CU_UNKNOWN);
        CHECK(ashlar_program_sample(model, out, 2, 1, 21, "ab") == ASHLAR_EDRIVER);
        CHECK(fclose(out) == 0);
        const size_t symbols = n <= 2 ? 0 : n <= 4 ? 1 : n <= 10 ? 2 : 3;
        CHECK(bytes == symbols + 1 && text[bytes - 1] == '\n');
        CHECK(symbols == 0 || text[0] == 'a');
        free(text);
    }
    ashlar_driver_fail_at(driver, -1, 0, CU_SUCCESS);
    close_byte_model();
}

int main(void) {
    RUN(a_failure_is_one_line_that_names_the_program);
    RUN(lost_output_is_a_failure);
    RUN(standard_files_are_open_and_a_closed_pipe_is_no_signal);
    RUN(a_cuda_device_is_passed_over_only_where_nobody_asked_for_it);
    RUN(a_device_that_cannot_be_opened_is_an_exit_status);
    RUN(a_file_gets_every_byte_as_it_is);
    RUN(a_terminal_gets_no_control_characters);
    RUN(text_that_cannot_be_drawn_ends_with_its_status);
    return check_report();
}
