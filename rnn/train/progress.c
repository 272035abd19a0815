#include "rnn/train/progress.h"

#include <unistd.h>

/* Seconds between two lines: often enough to see life, seldom enough for a log or a slow line. */
static const double terminal_interval = 0.1, plain_interval = 5.0;

void ashlar__progress_init(ashlar_progress *progress, FILE *out) {
    *progress = (ashlar_progress){.out = out, .is_terminal = isatty(fileno(out)) == 1};
}

static void print_bar(FILE *out, const ashlar_train_progress *now) {
    enum { COLUMNS = 24 };
    const size_t filled = now->step * COLUMNS / now->steps;
    const double each = now->seconds / (double)(now->step - now->resumed);
    const double left = each * (double)(now->steps - now->step);
    fputs("\r[", out);
    for (size_t i = 0; i < COLUMNS; i++) {
        fputc(i < filled ? '#' : '.', out);
    }
    fprintf(out, "] %zu/%zu  loss %.3f  T %3zu  %.1f k/s  %.0f s left \033[K", now->step,
            now->steps, now->loss, now->length, now->tokens_per_s / 1e3, left);
    if (now->step == now->steps) {
        fputc('\n', out);
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
        print_bar(p->out, now);
    } else {
        fprintf(p->out, "step %zu/%zu  loss %.4f  length %zu  epoch %.3f  %.0f tokens/s\n",
                now->step, now->steps, now->loss, now->length, now->epoch, now->tokens_per_s);
    }
    fflush(p->out);
}
