/* interrupt.h - takes SIGINT and SIGTERM as requests to end soon, with everything kept (internal).
 */
#ifndef ASHLAR_INTERRUPT_H
#define ASHLAR_INTERRUPT_H

#include <signal.h>

/* Catch SIGINT and SIGTERM, except where the caller had them ignored. Returns a pointer to the
 * number of the signal that came; 0: none yet. The second signal ends the process at once. */
const volatile sig_atomic_t *ashlar__interrupt_catch(void);

/* Set a line to write at the first signal; it must outlive the program's run. For one of several
 * ranks: the launcher may end it while it waits for a rank that has died. */
void ashlar__interrupt_announce(const char *line);

/* The exit status after a signal: that of a process that the signal had killed. */
int ashlar__interrupt_exit_status(void);

/* "SIGINT" or "SIGTERM". */
const char *ashlar__interrupt_name(void);

#endif /* ASHLAR_INTERRUPT_H */
