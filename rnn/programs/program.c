/* program.c - how every program starts, reports failures, opens its device and ends; the page of
 * --html. */
#include "rnn/programs/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ashlar/model.h>
#include <ashlar/rnn.h>

#include "allocator/base/error.h"
#include "allocator/base/file.h"

void ashlar__program_init(void) {
    /* If descriptor 0, 1 or 2 is closed, the next open() would get its number, and text meant for
     * the terminal would go into that file. So open /dev/null in the wrong direction: reading or
     * writing fails then, as on a closed descriptor. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
            (void)opened; /* open() returns the lowest free descriptor: fd */
        }
    }
    (void)signal(SIGPIPE, SIG_IGN);
}

void ashlar__program_print_report(const char *line, void *unused) {
    (void)unused;
    fprintf(stderr, "ashlar: %s\n", line);
}

int ashlar__program_finish(const char *program, int exit_status) {
    if (exit_status == 0 && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        fprintf(stderr, "%s: standard output could not be written\n", program);
        return ASHLAR_EXIT_FAILED;
    }
    return exit_status;
}

int ashlar__program_exit_status(ashlar_status status) {
    return status == ASHLAR_EINVAL ? ASHLAR_EXIT_USAGE : ASHLAR_EXIT_FAILED;
}

int ashlar__program_fail(const char *program, ashlar_status status) {
    fprintf(stderr, "%s: %s\n", program, ashlar_error_detail());
    return ashlar__program_exit_status(status);
}

ashlar_status ashlar__program_check_writable(const char *path) {
    ashlar_file_buffer *file = NULL;
    if (path == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    ashlar__file_buffer_abort(file);
    return ASHLAR_OK;
}

ashlar_status ashlar__program_check_report(const char *path) {
    if (path == NULL || !ashlar__stream_is(path)) {
        return ashlar__program_check_writable(path);
    }
    if (strcmp(path, "-") == 0) {
        return ashlar__stream_take_stdout();
    }
    /* Do not open a pipe just to check it: closing it would tell its reader that output has ended.
     */
    ASHLAR_FAIL_IF(access(path, W_OK) != 0, ASHLAR_EIO, "cannot write %s: %s", path,
                   strerror(errno));
    return ASHLAR_OK;
}

bool ashlar__program_is_same_file(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) == 0 && stat(b, &y) == 0) {
        return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    }
    return strcmp(a, b) == 0;
}

/* Fail if this build or the installed libraries cannot compute on the device. */
static ashlar_status check_compute(ashlar_device *device) {
    const ashlar_rnn_config smallest = {.input = 1, .hidden = 1, .layers = 1};
    ashlar_rnn *rnn = NULL;
    ashlar_ops *ops = NULL;
    ashlar_status status = ashlar_rnn_create(device, &smallest, &rnn);
    ASHLAR_THEN(status, ashlar_ops_create(device, ASHLAR_F32, &ops));
    ashlar_ops_destroy(ops);
    ashlar_rnn_destroy(rnn);
    return status;
}

int ashlar__program_open_device(const char *program, const char *name, ashlar_device **out) {
    const char *asked = name != NULL ? name : secure_getenv("ASHLAR_DEVICE");
    const bool is_auto = asked == NULL || *asked == '\0' || strcmp(asked, "auto") == 0;
    ashlar_device *device = NULL;
    ashlar_status status = ashlar_device_open(name, &device);
    if (status == ASHLAR_OK && is_auto && check_compute(device) == ASHLAR_ENOTSUP) {
        fprintf(stderr, "%s: using the software device: %s\n", program, ashlar_error_detail());
        ashlar_device_close(device);
        status = ashlar_device_open("soft", &device);
    }
    if (status != ASHLAR_OK) {
        return ashlar__program_fail(program, status);
    }
    *out = device;
    return 0;
}

/* ---- the page of --html ---- */

extern const char ashlar__viewer[]; /* tools/viewer.html, which the build turns into a string */

static const char place[] = "<script id=data type=\"application/json\">";

/* Write JSON text with each "<" escaped, so that it cannot contain "</script>", which would end the
 * script element. In JSON "<" occurs only inside strings, where the escape means the same. */
static void put_inside_script(ashlar_file_buffer *file, const char *text, size_t bytes) {
    const char *const end = text + bytes;
    while (text < end) {
        const char *mark = memchr(text, '<', (size_t)(end - text));
        const char *stop = mark != NULL ? mark : end;
        ashlar__file_buffer_put(file, text, (size_t)(stop - text));
        if (mark != NULL) {
            ashlar__file_buffer_put(file, "\\u003c", 6);
        }
        text = mark != NULL ? mark + 1 : end;
    }
}

ashlar_status ashlar__page_write(const char *path, ashlar_json_writer *document) {
    ashlar_file_buffer *file;
    const char *text;
    size_t bytes;
    ASHLAR_TRY(ashlar__json_writer_text(document, &text, &bytes));
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    const char *const rest = strstr(ashlar__viewer, place) + sizeof place - 1;
    ashlar__file_buffer_put(file, ashlar__viewer, (size_t)(rest - ashlar__viewer));
    put_inside_script(file, text, bytes);
    ashlar__file_buffer_put(file, rest, strlen(rest));
    return ashlar__file_buffer_commit(file);
}
