/* test_file_stream.c - a text goes into a file, a pipe, a device, or to standard output. */
#include "tests/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/file.h"

static bool holds(int fd, const char *want) {
    char text[64] = "";
    return read(fd, text, sizeof text - 1) >= 0 && strcmp(text, want) == 0;
}

CASE(a_pipe_is_written_to_and_stays) {
    char path[] = "/tmp/ashlar-stream-XXXXXX";
    REQUIRE(mkdtemp(path) != NULL);
    char pipe_path[64];
    (void)snprintf(pipe_path, sizeof pipe_path, "%s/pipe", path);
    REQUIRE(mkfifo(pipe_path, 0600) == 0);
    const int reader = open(pipe_path, O_RDONLY | O_NONBLOCK);
    CHECK(ashlar__stream_is(pipe_path) && ashlar__stream_is("-") && ashlar__stream_is("/dev/null"));
    CHECK(!ashlar__stream_is(path) && !ashlar__stream_is("/nowhere/at/all"));
    CHECK(ashlar__stream_write_line(pipe_path, "{}", 2) == ASHLAR_OK);
    CHECK(holds(reader, "{}\n") && ashlar__stream_is(pipe_path));
    CHECK(close(reader) == 0 && unlink(pipe_path) == 0);
    CHECK(ashlar__stream_write_line(pipe_path, "[]", 2) == ASHLAR_OK); /* now a file, as ever */
    CHECK(!ashlar__stream_is(pipe_path) && unlink(pipe_path) == 0 && rmdir(path) == 0);
}

CASE(what_cannot_be_written_is_said) {
    CHECK_FAILS(ashlar__stream_write_line("/dev/full", "{}", 2), ASHLAR_EIO, "/dev/full");
    CHECK_FAILS(ashlar__stream_write_line("/nowhere/at/all", "{}", 2), ASHLAR_EIO, "/nowhere");
}

/* Standard output and error are two pipes. */
CASE(the_text_for_people_moves_to_standard_error) {
    int out[2], err[2];
    const int old_out = dup(STDOUT_FILENO), old_err = dup(STDERR_FILENO);
    REQUIRE(fflush(stdout) == 0 && pipe(out) == 0 && pipe(err) == 0);
    CHECK(dup2(out[1], STDOUT_FILENO) >= 0 && dup2(err[1], STDERR_FILENO) >= 0);
    const ashlar_status taken = ashlar__stream_take_stdout();
    printf("for people");
    const bool is_flushed = fflush(stdout) == 0;
    const ashlar_status written = ashlar__stream_write_line("-", "{}", 2);
    CHECK(dup2(old_out, STDOUT_FILENO) >= 0 && dup2(old_err, STDERR_FILENO) >= 0);
    CHECK(taken == ASHLAR_OK && is_flushed && written == ASHLAR_OK);
    CHECK(holds(out[0], "{}\n") && holds(err[0], "for people"));
    const int all[] = {out[0], out[1], err[0], err[1], old_out, old_err};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK(close(all[i]) == 0);
    }
}

RUN_CASES()
