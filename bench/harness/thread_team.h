/*
 * thread_team.h - threads that live as long as a measurement and start their work together
 * (internal).
 *
 * The caller's thread waits meanwhile, so that even a measurement on one thread has two: with only
 * one, glibc leaves out the lock prefix of atomic instructions, and a CUDA process always has more.
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
 * Ownership: *out is the caller's.
 * Errors:    ASHLAR_EHOSTMEM (memory, or the system has no thread left).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__thread_team_create(size_t threads,
                                                           ashlar_thread_team **out);
void ashlar__thread_team_destroy(ashlar_thread_team *team); /* NULL is allowed */

/*
 * Run work(arg, i) on every thread i at once, and wait for all.
 *
 * wall_ns   from the first thread's beginning to the last one's end
 * Threads:  one caller at a time.
 * Errors:   the failure of the lowest thread that failed, with its detail; wall_ns is then as it
 *           was.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__thread_team_run(ashlar_thread_team *team,
                                                        ashlar_thread_team_work work, void *arg,
                                                        double *wall_ns);

#endif /* ASHLAR_THREAD_TEAM_H */
