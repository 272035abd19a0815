/* interrupt.c - notes the first SIGINT or SIGTERM. */
#include "rnn/programs/interrupt.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const int signals[] = {SIGINT, SIGTERM};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static volatile sig_atomic_t caught;
static const char *announced = "";

/* A second signal must kill, whichever it is, so both get their default actions back. */
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

/* If only another rank got the signal, assume SIGTERM, which launchers send. */
static int number_caught(void) {
    return caught != 0 ? caught : SIGTERM;
}

int ashlar__interrupt_exit_status(void) {
    return 128 + number_caught();
}

const char *ashlar__interrupt_name(void) {
    return number_caught() == SIGINT ? "SIGINT" : "SIGTERM";
}
