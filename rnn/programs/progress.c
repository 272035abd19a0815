/* progress.c - shows a training's progress: on a terminal one line that is rewritten, else a line
 * every few seconds; catches SIGINT and SIGTERM. */
#include "rnn/programs/train_program.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A terminal's columns, unless it tells; bytes of a line, and of the text for the time left. */
enum { USUAL_COLUMNS = 80, LINE_BYTES = 256, LEFT_BYTES = 32 };

/* Seconds between two lines: short enough to see progress, long enough to keep a log small. */
static const double terminal_interval = 0.1, plain_interval = 5.0;

void ashlar__progress_init(ashlar_progress *progress, FILE *out) {
    *progress = (ashlar_progress){.out = out, .is_terminal = isatty(fileno(out)) == 1};
}

/* How wide the terminal is now: it may change while the training runs. */
static int terminal_columns(const ashlar_progress *p) {
    struct winsize size = {0};
    return ioctl(fileno(p->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                            : USUAL_COLUMNS;
}

/* "42 s", "3:07 min" or "2:05 h". */
static void format_left(char text[static LEFT_BYTES], double seconds) {
    const unsigned long long s = (unsigned long long)fmin(fmax(seconds, 0) + 0.5, 1e15);
    if (s < 60) {
        (void)snprintf(text, LEFT_BYTES, "%llu s", s);
    } else {
        const bool is_minutes = s < 3600;
        const unsigned long long unit = is_minutes ? 60 : 3600;
        (void)snprintf(text, LEFT_BYTES, "%llu:%02llu %s", s / unit, s % unit * 60 / unit,
                       is_minutes ? "min" : "h");
    }
}

/* Rewrite the terminal's line, as far as it has room. The last column stays empty, since some
 * terminals would begin another line. */
static void rewrite_line(const ashlar_progress *p, const ashlar_train_progress *now) {
    char left[LEFT_BYTES], line[LINE_BYTES];
    const double each = now->seconds / (double)(now->step - now->resumed);
    format_left(left, each * (double)(now->steps - now->step));
    (void)snprintf(line, sizeof line, "%zu/%zu  loss %.3f  %s left  %.1f k/s, T %zu", now->step,
                   now->steps, now->loss, left, now->tokens_per_s / 1e3, now->length);
    fprintf(p->out, "\r%.*s\033[K%s", terminal_columns(p) - 1, line,
            now->step == now->steps ? "\n" : "");
}

void ashlar__progress_show(void *context, const ashlar_train_progress *now) {
    ashlar_progress *p = context;
    const double interval = p->is_terminal ? terminal_interval : plain_interval;
    const bool is_edge = now->step == now->resumed + 1 || now->step == now->steps;
    if (!is_edge && now->seconds - p->shown_at < interval) {
        return;
    }
    p->shown_at = now->seconds;
    if (p->is_terminal) {
        rewrite_line(p, now);
    } else {
        fprintf(p->out, "step %zu/%zu  loss %.4f  length %zu  epoch %.3f  %.0f tokens/s\n",
                now->step, now->steps, now->loss, now->length, now->epoch, now->tokens_per_s);
    }
    fflush(p->out);
}

/* ---- the first SIGINT or SIGTERM ---- */

static const int signals[] = {SIGINT, SIGTERM};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static volatile sig_atomic_t caught;
static const char *announced = "";

/* The handler of both signals. A second one of either must end the process, so it gives both their
 * default actions back. */
static void note(int number) {
    caught = number;
    const ssize_t written = write(STDERR_FILENO, announced, strlen(announced));
    (void)written;
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)signal(signals[i], SIG_DFL);
    }
}

void ashlar__interrupt_announce(const char *line) {
    announced = line;
}

const volatile sig_atomic_t *ashlar__interrupt_catch(void) {
    for (size_t i = 0; i < SIGNALS; i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            action = (struct sigaction){.sa_handler = note, .sa_flags = SA_RESTART};
            (void)sigaction(signals[i], &action, NULL);
        }
    }
    return &caught;
}

int ashlar__interrupt_number(void) {
    return caught != 0 ? caught : SIGTERM;
}
