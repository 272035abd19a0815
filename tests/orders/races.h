/* races.h - which accesses of threads that take turns meet, and whether they are ordered. */
#ifndef ASHLAR_RACES_H
#define ASHLAR_RACES_H

#include <stdbool.h>

/* A run begins: everything so far comes before it. */
void races_begin(int task_count);

/* The calling thread, scheduled, is at an operation on `what` that other threads may see. `site`:
 * in the code. */
void races_access(const void *what, const void *site, bool changes);
bool races_is_shared(const void *site);

/* It comes after whatever was released there; what it did so far is released. keeps: together with
 * what was released there before. */
void races_acquire(const void *what);
void races_release(const void *what, bool keeps);

/* All threads see from now on what this one has stored. */
void races_show(int task);

/* In scheduler.c: a place where a scheduled thread may be preempted; false: it is not scheduled.
 * The number of the scheduled thread, or -1. */
bool scheduler_point(const void *site);
int scheduler_self(void);

#endif /* ASHLAR_RACES_H */
