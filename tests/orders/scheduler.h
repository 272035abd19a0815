/*
 * scheduler.h - threads that run one at a time, in an order that a search chooses, and a judge of
 * whether what they do is ordered.
 *
 * The rooms under test are compiled with -fsanitize=thread, and this file is the runtime that the
 * compiler's calls go to; calls that block or give way come here by the linker's --wrap. A thread
 * may be preempted before each atomic operation and each lock; elsewhere it goes on. That is
 * enough: between two such points a thread touches memory that no other thread touches meanwhile,
 * or there is a data race, and that is found as one, by vector clocks over C's own happens-before,
 * with the memory orders that the code says.
 *
 * The schedules are sequentially consistent: an atomic load sees the newest store; or, if stores
 * are delayed, the newest that need not be delayed any more. That is one extreme of what a
 * processor with store buffers does.
 */
#ifndef ASHLAR_SCHEDULER_H
#define ASHLAR_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCHEDULER_TASKS = 3 };

/*
 * How a schedule is chosen. `count` threads can go on; 0 is the running one if can_stay.
 * is_shared: what the running thread does next is done to something that another one touches too,
 *     in some schedule of this program that was run so far, and one of the two changes it.
 */
typedef size_t scheduler_choice(size_t count, bool can_stay, bool is_shared);

/* Run body(i) for each thread i < count. prepare(i) runs first on the thread, with no other one
 * about. ends(i): the end of thread i is a part of the schedule. Returns when all have ended. */
void scheduler_run(int count, void (*prepare)(int), void (*body)(int), bool (*ends)(int),
                   scheduler_choice *choice);

/* Which threads a choice is about: the way's thread. Only inside a scheduler_choice. */
int scheduler_way(size_t way);

/*
 * Whether atomic stores, but for those of memory_order_seq_cst, are kept from the other threads for
 * as long as they may be: until the thread changes an atomic variable otherwise, takes or releases
 * a lock, or ends; until a barrier in all threads; until another thread gives way.
 */
void scheduler_delay_stores(bool delays);

/* Forget what is shared, for another program; and whether more is known to be shared than at the
 * last call of grew(): schedules that were chosen before have to be chosen anew. */
void scheduler_forget(void);
bool scheduler_grew(void);

/* The points that the last run passed. */
uint64_t scheduler_points(void);

/* A thread of the program tells another one, which hears of it, what it did so far. */
void scheduler_tell(const void *by);
void scheduler_hear(const void *by);

/* Called for a finding; does not return. */
void scheduler_found(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif /* ASHLAR_SCHEDULER_H */
