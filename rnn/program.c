#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "batcher.h"
#include "file.h"
#include "sampler.h"

void ashlar_program_init(void) {
    /*
     * A closed 0, 1 or 2 would be given to the next open(), to the device's memory say, and what
     * is printed would go there. The wrong direction is meant: using it fails, as it did before.
     */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
            (void)opened; /* the lowest free one, which is fd */
        }
    }
    (void)signal(SIGPIPE, SIG_IGN);
}

static void print_report(const char *line, void *unused) {
    (void)unused;
    fprintf(stderr, "ashlar: %s\n", line);
}

void ashlar_program_print_reports(ashlar_allocator *allocator) {
    ashlar_allocator_on_report(allocator, print_report, NULL);
}

int ashlar_program_finish(const char *program, int exit_status) {
    if (exit_status == 0 && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        fprintf(stderr, "%s: standard output could not be written\n", program);
        return ASHLAR_EXIT_FAILED;
    }
    return exit_status;
}

int ashlar_program_fail(const char *program, int exit_status) {
    fprintf(stderr, "%s: %s\n", program, ashlar_error_detail());
    return exit_status;
}

ashlar_status ashlar_program_check_writable(const char *path) {
    ashlar_file *file = NULL;
    if (path == NULL) {
        return ASHLAR_OK;
    }
    const ashlar_status status = ashlar_file_create(path, &file);
    if (status == ASHLAR_OK) {
        ashlar_file_abort(file);
    }
    return status;
}

double ashlar_program_now_s(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time); /* cannot fail on Linux */
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int ashlar_program_open_device(const char *program, const char *name, ashlar_device **out) {
    ashlar_device *device = NULL;
    ashlar_status status = ashlar_device_open(name, &device);
    if (status == ASHLAR_OK) {
        ashlar_device_info info;
        ashlar_device_info_read(device, &info);
        const char *asked = name != NULL ? name : getenv("ASHLAR_DEVICE");
        const bool chose_itself = asked == NULL || *asked == '\0' || strcmp(asked, "auto") == 0;
        if (chose_itself && info.kind == ASHLAR_DEVICE_CUDA) {
            ashlar_device_close(device);
            fprintf(stderr, "%s: no RNN back end for CUDA yet, using the software device\n",
                    program);
            status = ashlar_device_open("soft", &device);
        }
    }
    if (status != ASHLAR_OK) {
        return ashlar_program_fail(program, status == ASHLAR_EINVAL ? ASHLAR_EXIT_USAGE
                                                                    : ASHLAR_EXIT_FAILED);
    }
    *out = device;
    return 0;
}

/* A terminal obeys control characters: show it none but the end of a line and the tab. */
static void put_symbol(FILE *out, int32_t symbol, bool is_terminal) {
    const bool is_control = (symbol < ' ' && symbol != '\n' && symbol != '\t') || symbol == 0x7f ||
                            (symbol >= 0x80 && symbol < 0xa0);
    if (symbol == ASHLAR_BATCHER_MARK) {
        fputs("\n%\n", out);
    } else {
        fputc(is_terminal && is_control ? '?' : symbol, out);
    }
}

ashlar_status ashlar_program_sample(ashlar_model *model, FILE *out, size_t bytes,
                                    double temperature, uint64_t seed, const char *prime) {
    const ashlar_sampler_config config = {.temperature = temperature, .seed = seed};
    const bool is_terminal = isatty(fileno(out)) == 1;
    ashlar_sampler *sampler = NULL;
    ashlar_status status = ashlar_sampler_create(model, &config, &sampler);
    for (const char *p = prime; status == ASHLAR_OK && *p != '\0'; p++) {
        put_symbol(out, (unsigned char)*p, is_terminal);
        status = ashlar_sampler_feed(sampler, (unsigned char)*p);
    }
    for (size_t i = 0; status == ASHLAR_OK && i < bytes; i++) {
        int32_t symbol = 0;
        status = ashlar_sampler_next(sampler, &symbol);
        if (status == ASHLAR_OK) {
            put_symbol(out, symbol, is_terminal);
        }
    }
    fputc('\n', out);
    ashlar_sampler_destroy(sampler);
    return status;
}
