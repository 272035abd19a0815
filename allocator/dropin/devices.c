/* devices.c - the allocators of a process's devices and contexts, made at their first use; their
 * environment variables; and their end in a forked child. */
#include "allocator/dropin/devices.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/threads.h"
#include "allocator/core/core.h"

enum { LINE_BYTES = ASHLAR_DETAIL_BYTES + 128 };

_Static_assert(ASHLAR_DROPIN_CONTEXTS == ASHLAR_DROPIN_HOST + 1, "places: devices, host, contexts");

/* Indexed by place. Set under making_lock, and never unset for a device. */
static _Atomic(ashlar_allocator *) allocators[ASHLAR_DROPIN_ALLOCATORS_MAX];

/* A place is free while its context is NULL. */
static struct {
    _Atomic(cu_context) context;
    int ordinal; /* written before `context` */
} contexts[ASHLAR_DROPIN_CONTEXTS_MAX];
static atomic_int context_count;

static ashlar_lock making_lock = ASHLAR_LOCK(ASHLAR_LEVEL_DROPIN_DEVICES);
static bool is_expecting_fork; /* Lock: making_lock */

static void (*on_made)(ashlar_allocator *allocator); /* NULL: none. Lock: making_lock */

/* Set in a forked child before it has other threads. */
static atomic_bool is_forked;

/* ---- the environment ---- */

/* Read a variable that is "on" or "off". If it is not set, *is_on stays as it is. Errors:
 * ASHLAR_EINVAL. */
static ashlar_status read_switch(const char *name, bool *is_on) {
    const char *value = secure_getenv(name);
    if (value == NULL || *value == '\0') {
        return ASHLAR_OK;
    }
    const bool says_on = strcmp(value, "on") == 0;
    if (!says_on && strcmp(value, "off") != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "%s: \"%.64s\" is neither on nor off", name, value);
    }
    *is_on = says_on;
    return ASHLAR_OK;
}

static bool is_software(void) {
    const char *name = secure_getenv("ASHLAR_DEVICE");
    return name != NULL && (strcmp(name, "soft") == 0 || strncmp(name, "soft:", 5) == 0);
}

/* ---- reports ---- */

/* Write a line in one call, so that lines of different threads or processes do not mix. */
static void write_line(const char *what, const char *text) {
    char line[LINE_BYTES];
    const int length = snprintf(line, sizeof line, "ashlar: %s%s%s", what,
                                *what != '\0' && *text != '\0' ? ": " : "", text);
    ASHLAR_CHECK2(length > 0);
    size_t bytes = length < (int)sizeof line - 1 ? (size_t)length : sizeof line - 2;
    line[bytes++] = '\n';
    const ssize_t written = write(STDERR_FILENO, line, bytes);
    (void)written; /* nobody to tell */
}

/* An ashlar_report_fn. */
static void report_line(const char *line, void *unused) {
    (void)unused;
    write_line("", line);
}

void ashlar__dropin_report(const char *what) {
    bool is_on = false;
    /* Ignore a bad value here: it is reported when an allocator is made. */
    if (read_switch("ASHLAR_REPORT", &is_on) == ASHLAR_OK && is_on) {
        write_line(what, ashlar_error_detail());
    }
}

/* ---- forks ---- */

/* The child has only the thread that called fork(), but also locks that other threads may have
 * held. The parent cannot take them before the fork, because CUDA itself forks when it starts,
 * while an allocator is made. */
static void begin_child(void) {
    atomic_store(&is_forked, true);
    ashlar__lock_init(&making_lock, ASHLAR_LEVEL_DROPIN_DEVICES);
    for (int i = 0; i < ASHLAR_DROPIN_ALLOCATORS_MAX; i++) {
        ashlar_allocator *a = atomic_load(&allocators[i]);
        if (a != NULL) {
            a->report = NULL; /* only the parent reports leaks; the allocator's lock may never be
                               * free here */
        }
    }
}

bool ashlar__dropin_is_forked(void) {
    return atomic_load_explicit(&is_forked, memory_order_relaxed);
}

static ashlar_status expect_fork_locked(void) {
    ASHLAR_OWNS(&making_lock);
    if (!is_expecting_fork && pthread_atfork(NULL, NULL, begin_child) != 0) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a handler of forks");
    }
    is_expecting_fork = true;
    return ASHLAR_OK;
}

/* ---- making ---- */

/* Let all other devices use the allocator's memory, except those that cannot: they are not
 * connected to its device, or lack virtual memory management. */
static ashlar_status allow_peers(ashlar_allocator *a) {
    bool is_wanted = true;
    ASHLAR_TRY(read_switch("ASHLAR_PEERS", &is_wanted));
    const ashlar_device *device = ashlar_allocator_device(a);
    int count = 0;
    if (is_wanted) {
        const cu_result result = ASHLAR_DRIVER_CALL(device->driver, device_get_count, (&count));
        if (result != CU_SUCCESS) {
            return ashlar__driver_error(device->driver, "cuDeviceGetCount", result);
        }
    }
    ASHLAR_CHECK2(count >= 0);
    for (int peer = 0; peer < count; peer++) {
        if (peer != device->info.ordinal) {
            const ashlar_status status = ashlar_allocator_allow_peer(a, peer);
            ASHLAR_TRY(status == ASHLAR_ENOTSUP ? ASHLAR_OK : status);
        }
    }
    return ASHLAR_OK;
}

/* Apply ASHLAR_REPORT and ASHLAR_PEERS. Leaks and damage that ASHLAR_CONF has the allocator look
 * for are reported, unless ASHLAR_REPORT=off. */
static ashlar_status equip(ashlar_allocator *a) {
    bool reports = true;
    ASHLAR_TRY(read_switch("ASHLAR_REPORT", &reports));
    if (reports) {
        ashlar_allocator_set_report(a, report_line, NULL);
    }
    ASHLAR_TRY(allow_peers(a));
    if (on_made != NULL) {
        on_made(a);
    }
    return ASHLAR_OK;
}

void ashlar__dropin_on_made(void (*made)(ashlar_allocator *allocator)) {
    ashlar__lock_acquire(&making_lock);
    on_made = made;
    ashlar__lock_release(&making_lock);
}

static ashlar_status create(int place, ashlar_device *device, ashlar_allocator **out) {
    if (place != ASHLAR_DROPIN_HOST) {
        return ashlar_allocator_create(device, out);
    }
    return ashlar__allocator_create_in(device, NULL, ASHLAR_RANGE_HOST, out);
}

static ashlar_status open_device(int place, int ordinal, ashlar_device **out) {
    char name[32];
    if (place >= ASHLAR_DROPIN_CONTEXTS) {
        const cu_context context = atomic_load(&contexts[place - ASHLAR_DROPIN_CONTEXTS].context);
        ASHLAR_CHECK2(context != NULL);
        return ashlar__device_open_within(ordinal, context, out);
    }
    ASHLAR_CHECK2(place == ordinal || place == ASHLAR_DROPIN_HOST);
    (void)snprintf(name, sizeof name, "%s:%d", is_software() ? "soft" : "cuda", ordinal);
    return ashlar_device_open(name, out);
}

static ashlar_status make_locked(int place, int ordinal, ashlar_allocator **out) {
    ASHLAR_OWNS(&making_lock);
    ASHLAR_CHECK2(atomic_load(&allocators[place]) == NULL && is_expecting_fork);
    ashlar_device *device;
    ashlar_allocator *a;
    ashlar_status status = open_device(place, ordinal, &device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = create(place, device, &a);
    if (status != ASHLAR_OK) {
        ashlar_device_close(device);
        return status;
    }
    status = equip(a);
    if (status != ASHLAR_OK) {
        ashlar_allocator_destroy(a);
        ashlar_device_close(device);
        return status;
    }
    *out = a;
    return ASHLAR_OK;
}

static ashlar_status make(int place, int ordinal, ashlar_allocator **out) {
    ASHLAR_FAIL_IF(ashlar__dropin_is_forked(), ASHLAR_EDRIVER,
                   "device %d: this process was forked from one that had used a device, and CUDA "
                   "does not survive that; fork before, or start processes anew (\"spawn\")",
                   ordinal);
    ASHLAR_FAIL_IF(ordinal < 0 || ordinal >= ASHLAR_DROPIN_DEVICES_MAX, ASHLAR_EINVAL,
                   "device %d: ordinals are 0 to %d", ordinal, ASHLAR_DROPIN_DEVICES_MAX - 1);
    ASHLAR_CHECK2(place >= 0 && place < ASHLAR_DROPIN_ALLOCATORS_MAX);
    ashlar__lock_acquire(&making_lock);
    ashlar_allocator *a = atomic_load(&allocators[place]);
    ashlar_status status = ASHLAR_OK;
    if (a == NULL) {
        status = expect_fork_locked();
        ASHLAR_THEN(status, make_locked(place, ordinal, &a));
        if (status == ASHLAR_OK) {
            atomic_store_explicit(&allocators[place], a, memory_order_release);
        }
    }
    ashlar__lock_release(&making_lock);
    if (status == ASHLAR_OK) {
        *out = a;
    }
    return status;
}

static ashlar_allocator *peek(int place) {
    return (unsigned)place >= ASHLAR_DROPIN_ALLOCATORS_MAX || ashlar__dropin_is_forked()
               ? NULL
               : atomic_load_explicit(&allocators[place], memory_order_acquire);
}

ashlar_status ashlar__dropin_at(int place, int ordinal, ashlar_allocator **out) {
    ashlar_allocator *a = peek(place);
    if (!ASHLAR_LIKELY(a != NULL)) {
        return make(place,
                    place >= ASHLAR_DROPIN_CONTEXTS
                        ? contexts[place - ASHLAR_DROPIN_CONTEXTS].ordinal
                        : ordinal,
                    out);
    }
    *out = a;
    return ASHLAR_OK;
}

ashlar_allocator *ashlar__dropin_peek(int ordinal) {
    return peek(ashlar__dropin_place(ordinal));
}

ashlar_allocator *ashlar__dropin_owner(const void *ptr) {
    size_t bytes;
    for (int i = 0; i < ASHLAR_DROPIN_DEVICES_MAX; i++) {
        ashlar_allocator *a = ashlar__dropin_peek(i);
        if (a != NULL && ashlar_usable_bytes(a, ptr, &bytes) == ASHLAR_OK) {
            return a;
        }
    }
    return NULL;
}

/* ---- contexts ---- */

int ashlar__dropin_add_context(int ordinal, cu_context context) {
    int place = -1;
    ASHLAR_CHECK2(context != NULL); /* NULL marks a free place */
    if (is_software()) {
        return -1; /* a CUDA context, but the user asked for software devices */
    }
    ashlar__lock_acquire(&making_lock);
    for (int i = 0; i < ASHLAR_DROPIN_CONTEXTS_MAX && place < 0; i++) {
        if (atomic_load(&contexts[i].context) == NULL) {
            contexts[i].ordinal = ordinal;
            atomic_store(&contexts[i].context, context);
            atomic_fetch_add(&context_count, 1);
            place = ASHLAR_DROPIN_CONTEXTS + i;
            ASHLAR_CHECK2(atomic_load(&allocators[place]) == NULL);
        }
    }
    ASHLAR_CHECK2(atomic_load(&context_count) <= ASHLAR_DROPIN_CONTEXTS_MAX);
    ashlar__lock_release(&making_lock);
    return place;
}

int ashlar__dropin_find_context(cu_context context) {
    ASHLAR_CHECK2(context != NULL);
    if (atomic_load_explicit(&context_count, memory_order_relaxed) == 0) {
        return -1;
    }
    for (int i = 0; i < ASHLAR_DROPIN_CONTEXTS_MAX; i++) {
        if (atomic_load(&contexts[i].context) == context) {
            return ASHLAR_DROPIN_CONTEXTS + i;
        }
    }
    return -1;
}

void ashlar__dropin_drop_context(int place) {
    ASHLAR_CHECK2(place >= ASHLAR_DROPIN_CONTEXTS && place < ASHLAR_DROPIN_ALLOCATORS_MAX);
    ASHLAR_CHECK2(atomic_load(&contexts[place - ASHLAR_DROPIN_CONTEXTS].context) != NULL);
    ashlar_allocator *a = atomic_exchange(&allocators[place], NULL);
    if (a != NULL) {
        ashlar_device *device = ashlar_allocator_device(a);
        ashlar_allocator_destroy(a);
        ashlar_device_close(device);
    }
    atomic_store(&contexts[place - ASHLAR_DROPIN_CONTEXTS].context, NULL);
    atomic_fetch_sub(&context_count, 1);
    ASHLAR_CHECK2(atomic_load(&context_count) >= 0);
}

void ashlar__dropin_forget(void) {
    for (int i = 0; i < ASHLAR_DROPIN_CONTEXTS_MAX; i++) {
        atomic_store(&contexts[i].context, NULL);
    }
    atomic_store(&context_count, 0);
    for (int i = 0; i < ASHLAR_DROPIN_ALLOCATORS_MAX; i++) {
        atomic_store(&allocators[i], NULL);
    }
}
