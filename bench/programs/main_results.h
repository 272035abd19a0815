/*
 * main_results.h - the commands of ashlar-bench that measure nothing: `machine` writes where a
 * measurement was made, `report` a page about it (internal).
 */
#ifndef ASHLAR_MAIN_RESULTS_H
#define ASHLAR_MAIN_RESULTS_H

#include <stdbool.h>

/* Whether the command line begins with one of them. */
bool ashlar__results_are_meant(int argc, char **argv);

/* Run it; argv[0] is the command. Returns the exit status; prints a failure on stderr. */
int ashlar__results_run(const char *program, int argc, char **argv);

/* For --help. */
void ashlar__results_print_help(void);

#endif /* ASHLAR_MAIN_RESULTS_H */
