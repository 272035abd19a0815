/* scheduler.c - whose turn it is, and the locks of threads that take turns. */
#include "tests/orders/scheduler.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "tests/orders/races.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* only the linker knows of __wrap_ */

enum { POINTS_MAX = 1000000, ROUNDS = 3 };

typedef enum task_state { READY, BLOCKED, GIVING_WAY, DONE } task_state;

typedef struct task {
    pthread_t thread;
    sem_t turn;
    task_state state;
    const void *awaits; /* BLOCKED: what is to be released */
    uint64_t since;     /* GIVING_WAY: goes on when another thread has gone on since */
    int rounds;         /* of destructors, at the thread's end */
    bool is_controlled;
} task;

static task tasks[SCHEDULER_TASKS];
static int task_count;
static sem_t main_turn;
static uint64_t points, steps; /* steps: what GIVING_WAY goes by */
static scheduler_choice *choose_way;
static void (*prepare_task)(int);
static void (*run_task)(int);
static bool (*ends_task)(int);
static int ways[SCHEDULER_TASKS];
static _Thread_local task *self; /* NULL: not a thread of a run */
static pthread_key_t end_key;

/* ---- turns ---- */

static void wait_for(sem_t *turn) {
    while (sem_wait(turn) != 0) {
    }
}

static bool may_go_on(const task *t) {
    return t->state == READY || (t->state == GIVING_WAY && steps > t->since);
}

static size_t list_ways(bool can_stay) {
    size_t count = 0;
    if (can_stay) {
        ways[count++] = (int)(self - tasks);
    }
    for (int i = 0; i < task_count; i++) {
        if (&tasks[i] != self && may_go_on(&tasks[i])) {
            ways[count++] = i;
        }
    }
    return count;
}

int scheduler_way(size_t way) {
    return ways[way];
}

static void go_to(task *next) {
    task *me = self;
    if (next != me) {
        steps += next->state == READY;
        next->state = READY;
        (void)sem_post(&next->turn);
        if (me != NULL && me->state != DONE) {
            wait_for(&me->turn);
        }
    }
}

/* The thread cannot go on, or has given way. */
static void hand_over(void) {
    const size_t count = list_ways(false);
    if (count == 0) {
        bool are_done = true;
        for (int i = 0; i < task_count; i++) {
            are_done &= tasks[i].state == DONE;
        }
        if (!are_done) {
            static const char *const names[] = {"ready", "blocked", "giving way", "done"};
            scheduler_found("no thread can go on: %s, %s, %s", names[tasks[0].state],
                            names[tasks[1].state], names[tasks[2].state]);
        }
        (void)sem_post(&main_turn);
        return;
    }
    go_to(&tasks[ways[count > 1 ? choose_way(count, false, true) : 0]]);
}

static bool is_scheduled(void) {
    return self != NULL && self->is_controlled;
}

bool scheduler_point(const void *site) {
    if (!is_scheduled()) {
        return false;
    }
    steps++;
    if (++points > POINTS_MAX) {
        scheduler_found("the threads do not end");
    }
    const size_t count = list_ways(true);
    if (count > 1) {
        go_to(&tasks[ways[choose_way(count, true, races_is_shared(site))]]);
    }
    return true;
}

static void block_on(const void *what) {
    self->state = BLOCKED;
    self->awaits = what;
    hand_over();
}

static void release(const void *what) {
    for (int i = 0; i < task_count; i++) {
        if (tasks[i].state == BLOCKED && tasks[i].awaits == what) {
            tasks[i].state = READY;
        }
    }
}

/* ---- runs ---- */

static void finish(void) {
    races_show((int)(self - tasks));
    self->is_controlled = false;
    self->state = DONE;
    hand_over();
}

/* The destructors of the library's own keys have run when this one is called for the last time. */
static void end_thread(void *value) {
    task *ending = value;
    if (++ending->rounds < ROUNDS) {
        (void)pthread_setspecific(end_key, ending);
    } else if (ending->is_controlled) {
        finish();
    }
}

static void *live(void *arg) {
    const int i = (int)((task *)arg - tasks);
    self = arg;
    (void)pthread_setspecific(end_key, arg);
    prepare_task(i);
    (void)sem_post(&main_turn);
    wait_for(&self->turn);
    self->is_controlled = true;
    run_task(i);
    if (!ends_task(i)) {
        finish();
        wait_for(&self->turn);
    }
    return NULL;
}

void scheduler_run(int count, void (*prepare)(int), void (*body)(int), bool (*ends)(int),
                   scheduler_choice *choice) {
    static bool has_key;
    if (!has_key) {
        has_key = pthread_key_create(&end_key, end_thread) == 0;
        (void)sem_init(&main_turn, 0, 0);
    }
    task_count = count;
    choose_way = choice;
    prepare_task = prepare;
    run_task = body;
    ends_task = ends;
    points = 0;
    for (int i = 0; i < count; i++) {
        tasks[i] = (task){.state = READY};
        (void)sem_init(&tasks[i].turn, 0, 0);
        if (pthread_create(&tasks[i].thread, NULL, live, &tasks[i]) != 0) {
            abort();
        }
        wait_for(&main_turn);
    }
    races_begin(count);
    hand_over();
    wait_for(&main_turn);
    for (int i = 0; i < count; i++) {
        if (!ends_task(i)) {
            (void)sem_post(&tasks[i].turn);
        }
        (void)pthread_join(tasks[i].thread, NULL);
        (void)sem_destroy(&tasks[i].turn);
    }
}

uint64_t scheduler_points(void) {
    return points;
}

int scheduler_self(void) {
    return is_scheduled() ? (int)(self - tasks) : -1;
}

void scheduler_tell(const void *by) {
    if (is_scheduled()) {
        races_show(scheduler_self());
        races_release(by, true);
    }
}

void scheduler_hear(const void *by) {
    if (is_scheduled()) {
        races_acquire(by);
    }
}

/* ---- what the linker puts in the place of the C library's ---- */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __real_pthread_cond_broadcast(pthread_cond_t *condition);
int __real_sched_yield(void);
long __real_syscall(long number, ...);

static void show_all(void) {
    for (int i = 0; i < task_count; i++) {
        races_show(i);
    }
}

static int lock_in_turn(pthread_mutex_t *mutex, const void *site) {
    races_show(scheduler_self());
    races_access(mutex, site, true);
    while (__real_pthread_mutex_trylock(mutex) != 0) {
        block_on(mutex);
    }
    races_acquire(mutex);
    return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    const void *site = __builtin_return_address(0);
    return scheduler_point(site) ? lock_in_turn(mutex, site) : __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex) {
    const void *site = __builtin_return_address(0);
    const bool is_controlled = scheduler_point(site);
    if (is_controlled) {
        races_show(scheduler_self());
    }
    const int result = __real_pthread_mutex_trylock(mutex);
    if (is_controlled) {
        races_access(mutex, site, true);
    }
    if (is_controlled && result == 0) {
        races_acquire(mutex);
    }
    return result;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (is_scheduled()) {
        races_show(scheduler_self());
        races_release(mutex, true);
    }
    const int result = __real_pthread_mutex_unlock(mutex);
    release(mutex);
    return result;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    if (!is_scheduled()) {
        return __real_pthread_cond_wait(condition, mutex);
    }
    (void)__wrap_pthread_mutex_unlock(mutex);
    block_on(condition);
    return lock_in_turn(mutex, __builtin_return_address(0));
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition) {
    release(condition);
    return __real_pthread_cond_broadcast(condition);
}

/* Somebody else has to do something first, so this is no preemption. */
int __wrap_sched_yield(void) {
    if (is_scheduled()) {
        show_all();
        self->state = GIVING_WAY;
        self->since = steps;
        hand_over();
    }
    return 0;
}

long __wrap_syscall(long number, ...) {
    long args[3];
    va_list list;
    va_start(list, number);
    for (size_t i = 0; i < 3; i++) {
        args[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_membarrier && scheduler_point(__builtin_return_address(0))) {
        show_all();
        return 0;
    }
    return __real_syscall(number, args[0], args[1], args[2]);
}
