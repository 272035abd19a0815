/* interrupt.h - SIGINT and SIGTERM as a wish to end soon, with everything kept (internal). */
#ifndef ASHLAR_INTERRUPT_H
#define ASHLAR_INTERRUPT_H

#include <signal.h>

/* Catch SIGINT and SIGTERM, except where the caller had them ignored. Returns where the number of
 * the signal will be; 0: none came yet. The second signal ends the process at once. */
const volatile sig_atomic_t *ashlar__interrupt_catch(void);

/* A line to write at the first signal; it must outlive the program's run. For one of several ranks,
 * which may wait for one that has died while the launcher ends it. */
void ashlar__interrupt_announce(const char *line);

/* The exit status after a signal, as of a process that it had killed. */
int ashlar__interrupt_exit_status(void);

/* "SIGINT" or "SIGTERM". */
const char *ashlar__interrupt_name(void);

#endif /* ASHLAR_INTERRUPT_H */
