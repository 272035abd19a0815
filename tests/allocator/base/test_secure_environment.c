/*
 * test_secure_environment.c - that a program which runs with more rights than its caller does not
 * open the libraries that the caller's environment names.
 *
 * The program runs itself: as it is, and as a copy that belongs to another user and runs with his
 * rights (setuid), which the kernel tells it.
 */
#include "allocator/base/shared_library.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/allocator/base/file_fixture.h"

enum { OTHER_USER = 65534, OPENED = 10, NOT_OPENED = 11, NOT_SECURE = 12 };

/* What the program does in a child: its exit status says whether the library was opened. */
static int open_library(bool is_secure) {
    static const char *const functions[] = {"cos"};
    static const ashlar_shared_library library = {.what = "a library",
                                                  .variable = "ASHLAR_TEST_LIBRARY",
                                                  .names = {"libashlar-no-such-library.so"},
                                                  .functions = functions,
                                                  .function_count = 1};
    static ashlar_shared_table table = {.lock = ASHLAR_LOCK(ASHLAR_LEVEL_SHARED_LIBRARY)};
    double (*function)(double);
    if ((getauxval(AT_SECURE) != 0) != is_secure) {
        return NOT_SECURE;
    }
    return ashlar__shared_load(&table, &library, &function) == ASHLAR_OK ? OPENED : NOT_OPENED;
}

static int run(const char *program, const char *how) {
    int status = -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        (void)setenv("ASHLAR_TEST_LIBRARY", "libm.so.6", 1);
        (void)execl(program, program, how, (char *)NULL);
        _exit(1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A copy of this program as `path`, which runs with another user's rights. */
static bool copy_program(void) {
    static char bytes[1 << 16];
    FILE *from = fopen("/proc/self/exe", "rb"), *to = fopen(path, "wb");
    bool is_good = from != NULL && to != NULL;
    for (size_t got; is_good && (got = fread(bytes, 1, sizeof bytes, from)) > 0;) {
        is_good = fwrite(bytes, 1, got, to) == got;
    }
    is_good = is_good && fclose(to) == 0 && fclose(from) == 0;
    return is_good && chown(path, OTHER_USER, OTHER_USER) == 0 && chmod(path, 04755) == 0 &&
           chmod(folder, 0755) == 0;
}

CASE(a_library_that_the_environment_names_is_opened) {
    CHECK(run("/proc/self/exe", "plain") == OPENED);
}

CASE(with_another_users_rights_it_is_not) {
    SKIP_IF(geteuid() != 0, "only root can give files away");
    REQUIRE(copy_program());
    const int status = run(path, "secure");
    SKIP_IF(status == NOT_SECURE, "programs here run with their caller's rights");
    CHECK(status == NOT_OPENED);
}

int main(int argc, char **argv) {
    if (argc == 2) {
        /* Not exit(): a sanitizer that looks for leaks may not, with another user's rights. */
        _exit(open_library(strcmp(argv[1], "secure") == 0));
    }
    if (!make_folder()) {
        return 99;
    }
    check_run_cases();
    remove_folder();
    return check_report();
}
