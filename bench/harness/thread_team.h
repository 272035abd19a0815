/*
 * thread_team.h - threads that live as long as a measurement and start their work together
 * (internal).
 *
 * The caller's thread waits while they work, so that even a measurement on one thread runs in a
 * process with two. In a process with a single thread glibc takes faster paths without atomic
 * operations, which a CUDA process, always multi-threaded, never gets.
 */
#ifndef ASHLAR_THREAD_TEAM_H
#define ASHLAR_THREAD_TEAM_H

#include <stddef.h>

#include <ashlar/status.h>

typedef struct ashlar_thread_team ashlar_thread_team;

/* The work of thread `thread`, numbered from 0. */
typedef ashlar_status (*ashlar_thread_team_work)(void *arg, size_t thread);

/*
 * Start `threads` >= 1 threads, which wait for work.
 *
 * Ownership: the caller ends *out with ashlar__thread_team_destroy().
 * Errors:    ASHLAR_EHOSTMEM (no host memory, or the system starts no more threads).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__thread_team_create(size_t threads,
                                                           ashlar_thread_team **out);
void ashlar__thread_team_destroy(ashlar_thread_team *team); /* NULL is allowed */

/*
 * Run work(arg, i) on every thread i at once, and wait until all have returned.
 *
 * wall_ns   from the start of the first thread to the end of the last one
 * Threads:  one caller at a time.
 * Errors:   the failure of the lowest-numbered thread that failed, with its detail; *wall_ns is
 *           unchanged then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__thread_team_run(ashlar_thread_team *team,
                                                        ashlar_thread_team_work work, void *arg,
                                                        double *wall_ns);

#endif /* ASHLAR_THREAD_TEAM_H */
