/*
 * main_results.h - the words of ashlar-bench that measure nothing: where it was measured, and a
 * page of it (internal).
 */
#ifndef ASHLAR_MAIN_RESULTS_H
#define ASHLAR_MAIN_RESULTS_H

#include <stdbool.h>

/* Whether the command line begins with one of them. */
bool ashlar__results_are_meant(int argc, char **argv);

/* Run it, without the program's own name: the exit status, and on failure a line on stderr. */
int ashlar__results_run(const char *program, int argc, char **argv);

/* For --help. */
void ashlar__results_print_help(void);

#endif /* ASHLAR_MAIN_RESULTS_H */
