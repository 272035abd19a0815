/* progress.c - shows a training's progress: on a terminal one line that is rewritten, else a line
 * every few seconds; catches SIGINT and SIGTERM. */
#include "rnn/programs/train_program.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A terminal's columns, unless it tells, and at most; the bar's columns; bytes of the text for the
 * time left. */
enum { USUAL_COLUMNS = 80, WIDEST = 10000, BAR_LEAST = 8, BAR_COLUMNS = 24, LEFT_BYTES = 32 };
#define BAR_FULL "########################"
#define BAR_EMPTY "........................"
_Static_assert(sizeof BAR_FULL == BAR_COLUMNS + 1 && sizeof BAR_EMPTY == sizeof BAR_FULL,
               "a bar is a part of these");

/* Seconds between two lines: short enough to see progress, long enough to keep a log small. */
static const double terminal_interval = 0.1, plain_interval = 5.0;

void ashlar__progress_init(ashlar_progress *progress, FILE *out) {
    *progress = (ashlar_progress){.out = out, .is_terminal = isatty(fileno(out)) == 1};
}

/* How wide the terminal is now: it may change while the training runs. If the terminal does not
 * say, the environment's COLUMNS may. */
static int terminal_columns(const ashlar_progress *p) {
    struct winsize size = {0};
    const char *text = secure_getenv("COLUMNS");
    if (ioctl(fileno(p->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    const int columns = text != NULL ? atoi(text) : 0;
    return columns > 0 && columns <= WIDEST ? columns : USUAL_COLUMNS;
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

/* Rewrite the terminal's line. Parts that do not fit are left out, the least important first. The
 * last column stays empty, since some terminals would begin another line. */
static void print_bar(const ashlar_progress *p, const ashlar_train_progress *now) {
    char parts[4][64], left[LEFT_BYTES], line[sizeof parts];
    const int room = terminal_columns(p) - 1;
    const double each = now->seconds / (double)(now->step - now->resumed);
    int used = 0;
    format_left(left, each * (double)(now->steps - now->step));
    (void)snprintf(parts[0], sizeof parts[0], "%zu/%zu", now->step, now->steps);
    (void)snprintf(parts[1], sizeof parts[1], "  loss %.3f", now->loss);
    (void)snprintf(parts[2], sizeof parts[2], "  %s left", left);
    (void)snprintf(parts[3], sizeof parts[3], "  %.1f k/s, T %zu", now->tokens_per_s / 1e3,
                   now->length);
    for (int i = 0; i < 4 && (i == 0 || used + (int)strlen(parts[i]) <= room); i++) {
        used += snprintf(line + used, sizeof line - (size_t)used, "%s", parts[i]);
    }
    const int bar = room - used - 3 < BAR_COLUMNS ? room - used - 3 : BAR_COLUMNS;
    fputs("\r", p->out);
    if (bar >= BAR_LEAST) {
        const int filled = (int)((double)bar * (double)now->step / (double)now->steps);
        fprintf(p->out, "[%.*s%.*s] ", filled, BAR_FULL, bar - filled, BAR_EMPTY);
    }
    fprintf(p->out, "%.*s\033[K", room > 0 ? room : 0, line);
    if (now->step == now->steps) {
        fputc('\n', p->out);
    }
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
        print_bar(p, now);
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
