/*
 * peer_bad.c - a shared object for ashlar-bench's --peer with pairs of functions each of which is
 * wrong in its own way; and which ends the process when it is loaded, where BAD_PEER is "load".
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <ashlar/export.h>

enum { EXIT_STATUS = 5, FIRST_CALLS = 1000 };

ASHLAR_API void *none_take(size_t bytes, int device, void *stream);
ASHLAR_API void *odd_take(size_t bytes, int device, void *stream);
ASHLAR_API void *same_take(size_t bytes, int device, void *stream);
ASHLAR_API void *late_take(size_t bytes, int device, void *stream);
ASHLAR_API void *exit_take(size_t bytes, int device, void *stream);
ASHLAR_API void *slow_take(size_t bytes, int device, void *stream);
ASHLAR_API void give(void *ptr, size_t bytes, int device, void *stream);
ASHLAR_API void crash_give(void *ptr, size_t bytes, int device, void *stream);

/* Address space that is never touched; no block is there twice. */
static uintptr_t next = UINT64_C(1) << 40;

static void *take(size_t bytes) {
    void *block = (void *)next;
    next += (bytes + 15) / 16 * 16;
    return block;
}

__attribute__((constructor)) static void load(void) {
    const char *what = getenv("BAD_PEER");
    if (what != NULL && what[0] == 'l') {
        (void)raise(SIGKILL);
    }
}

void *none_take(size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    return NULL;
}

void *odd_take(size_t bytes, int device, void *stream) {
    (void)device;
    (void)stream;
    return (unsigned char *)take(bytes + 16) + 8;
}

/* The last byte of each block is the first of the next. */
void *same_take(size_t bytes, int device, void *stream) {
    (void)device;
    (void)stream;
    return take((bytes - 1) / 16 * 16);
}

/* At first it is good. */
void *late_take(size_t bytes, int device, void *stream) {
    static int calls;
    (void)device;
    (void)stream;
    return ++calls < FIRST_CALLS ? take(bytes) : NULL;
}

void *exit_take(size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    exit(EXIT_STATUS);
}

/* As though a minute had gone by. */
void *slow_take(size_t bytes, int device, void *stream) {
    (void)device;
    (void)stream;
    (void)raise(SIGALRM);
    return take(bytes);
}

void give(void *ptr, size_t bytes, int device, void *stream) {
    (void)ptr;
    (void)bytes;
    (void)device;
    (void)stream;
}

void crash_give(void *ptr, size_t bytes, int device, void *stream) {
    (void)ptr;
    (void)bytes;
    (void)device;
    (void)stream;
    (void)raise(SIGSEGV);
}
