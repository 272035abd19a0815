/*
 * test_program.c - what both programs share: the choice of the device, the words on stderr.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "rnn/programs/program.h"

/*
 * In the place of driver_cuda.c's: a CUDA driver that stands on the software device, so that what
 * depends on having one can be tested anywhere.
 */
static bool has_cuda;
static ashlar_driver cuda;

ashlar_status ashlar__driver_open_cuda(ashlar_driver **out) {
    ashlar_driver *soft = NULL;
    if (!has_cuda || ashlar__driver_open_soft(&soft) != ASHLAR_OK) {
        return ashlar__fail(ASHLAR_ENODEVICE, "no CUDA driver");
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

CASE(a_failure_is_one_line_that_names_the_program) {
    listen_to_stderr();
    CHECK(ashlar__fail(ASHLAR_EINVAL, "batch: 0 sequences") == ASHLAR_EINVAL);
    const int status = ashlar__program_fail("ashlar-test", ASHLAR_EINVAL);
    stop_listening();
    CHECK(status == ASHLAR_EXIT_USAGE);
    CHECK(strcmp(heard, "ashlar-test: batch: 0 sequences\n") == 0);
}

CASE(lost_output_is_a_failure) {
    const int real_stdout = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY);
    REQUIRE(real_stdout >= 0 && full >= 0);
    CHECK(ashlar__program_finish("ashlar-test", 0) == 0);
    CHECK(ashlar__program_finish("ashlar-test", 2) == 2);
    listen_to_stderr();
    CHECK(fflush(stdout) == 0 && dup2(full, STDOUT_FILENO) >= 0);
    fputs("lost", stdout);
    const int status = ashlar__program_finish("ashlar-test", 0); /* the flush fails */
    const int again = ashlar__program_finish("ashlar-test", 0);  /* it failed before */
    const int other = ashlar__program_finish("ashlar-test", 2);  /* has something else to say */
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
    ashlar__program_init();
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

CASE(standard_files_are_open_and_a_closed_pipe_is_no_signal) {
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
    const int status = ashlar__program_open_device("ashlar-test", name, &device);
    stop_listening();
    CHECK(unsetenv("ASHLAR_DEVICE") == 0);
    return status;
}

static void check_opens(const char *name, const char *environment, ashlar_device_kind kind,
                        const char *words) {
    ashlar_device_info info;
    const int status = open_device(name, environment);
    CHECK(status == 0);
    CHECK(strncmp(heard, words, strlen(words)) == 0 && (*words != '\0' || *heard == '\0'));
    if (status == 0) {
        info = ashlar_device_get_info(device);
        CHECK(info.kind == kind);
        ashlar_device_close(device);
    }
    /* A device that was tried and left was closed, too. */
    CHECK(atomic_load(&cuda.calls[ASHLAR_DRIVER_FN_primary_ctx_retain]) ==
          atomic_load(&cuda.calls[ASHLAR_DRIVER_FN_primary_ctx_release]));
}

CASE(a_cuda_device_is_passed_over_only_where_nobody_asked_for_it) {
    const char *const word = "ashlar-test: using the software device: "; /* and why */
    CHECK(setenv("ASHLAR_CUDNN", "/nowhere/libcudnn.so.9", 1) == 0);
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

CASE(a_device_that_cannot_be_opened_is_an_exit_status) {
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

/* ---- files ---- */

CASE(two_names_of_one_file_are_the_same) {
    char folder[] = "/tmp/ashlar-program-XXXXXX";
    REQUIRE(mkdtemp(folder) != NULL && chdir(folder) == 0);
    FILE *file = fopen("one", "w");
    REQUIRE(file != NULL && fclose(file) == 0);
    file = fopen("two", "w");
    REQUIRE(file != NULL && fclose(file) == 0);
    CHECK(symlink("one", "link") == 0);
    CHECK(ashlar__program_is_same_file("one", "one"));
    CHECK(ashlar__program_is_same_file("one", "./one"));
    CHECK(ashlar__program_is_same_file("link", "one"));
    CHECK(!ashlar__program_is_same_file("one", "two"));
    CHECK(!ashlar__program_is_same_file("one", "absent") &&
          !ashlar__program_is_same_file("absent", "one"));
    CHECK(ashlar__program_is_same_file("absent", "absent"));
    CHECK(!ashlar__program_is_same_file("absent", "missing"));
    CHECK(unlink("link") == 0 && unlink("one") == 0 && unlink("two") == 0);
    CHECK(chdir("/") == 0 && rmdir(folder) == 0);
}

RUN_CASES()
