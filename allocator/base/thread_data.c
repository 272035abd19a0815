/* thread_data.c - making a thread's memory, and freeing it after the thread's end. */
#include "allocator/base/thread_data.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"

typedef struct thread_data {
    void *data[ASHLAR_THREAD_DATA_COUNT];
    int rounds; /* of destructors that have met it */
} thread_data;

/* Destructors of other keys may run after the first round, and need what is here. */
enum { ROUNDS = 2 };

static _Thread_local thread_data *mine;
static pthread_key_t key;
static bool has_key;

static void end_thread(void *value) {
    thread_data *ending = value;
    if (++ending->rounds < ROUNDS && pthread_setspecific(key, ending) == 0) {
        return;
    }
    mine = NULL;
    for (size_t i = 0; i < ASHLAR_THREAD_DATA_COUNT; i++) {
        free(ending->data[i]);
    }
    free(ending);
}

static void make_key(void) {
    has_key = pthread_key_create(&key, end_thread) == 0;
}

static bool make_mine(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    thread_data *made = has_key ? calloc(1, sizeof *made) : NULL;
    if (made != NULL && pthread_setspecific(key, made) == 0) {
        mine = made;
    } else {
        free(made);
    }
    return mine != NULL;
}

void *ashlar__thread_data(ashlar_thread_datum datum, size_t bytes) {
    ASHLAR_ASSERT(datum < ASHLAR_THREAD_DATA_COUNT && bytes > 0);
    if (mine == NULL && !make_mine()) {
        return NULL;
    }
    if (mine->data[datum] == NULL) {
        mine->data[datum] = calloc(1, bytes);
    }
    return mine->data[datum];
}

void *ashlar__thread_data_if_any(ashlar_thread_datum datum) {
    ASHLAR_ASSERT(datum < ASHLAR_THREAD_DATA_COUNT);
    return mine != NULL ? mine->data[datum] : NULL;
}
