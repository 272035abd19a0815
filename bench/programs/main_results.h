/*
 * main_results.h - the commands of ashlar-bench that measure nothing: `machine` describes the
 * machine of a measurement, `report` writes a page about its results (internal).
 */
#ifndef ASHLAR_MAIN_RESULTS_H
#define ASHLAR_MAIN_RESULTS_H

#include <stdbool.h>

#include <ashlar/status.h>

/* Whether argv[1] is `machine` or `report`. */
bool ashlar__results_are_meant(int argc, char **argv);

/* The exit status that stands for a status; if that is a failure, it is printed on stderr. */
int ashlar__results_exit_status(const char *program, ashlar_status status);

/* Run the command; argv[0] is its name. Returns the exit status; prints a failure on stderr. */
int ashlar__results_run(const char *program, int argc, char **argv);

/* Print the part of --help about these commands. */
void ashlar__results_print_help(void);

#endif /* ASHLAR_MAIN_RESULTS_H */
