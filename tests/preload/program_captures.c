/*
 * program_captures.c - in place of program.c: programs that take and free memory during captures,
 * on a device of 256 MiB that would not hold it all. They run alone, and so they do beside ashlar.
 *
 *   again     take in each capture, free before the next one
 *   beside    a thread takes and frees while another thread captures
 *   before    the same, with memory of before the capture
 */
#include "program.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

enum { THREAD_LOCAL_CAPTURE = 1, ROUNDS = 100, BLOCKS = 3 };

static const gpu *g;
static int failures;

/* ---- in captures ---- */

static void capture_again(bool is_blocking, bool waits) {
    void *stream = NULL, *ptr = NULL;
    EXPECT(g->make_stream(&stream, is_blocking) == 0);
    EXPECT(g->alloc(&ptr, 20 * MIB) == 0 && g->fill(ptr, 1, MIB, stream) == 0);
    for (int i = 0; i < ROUNDS && failures == 0; i++) {
        EXPECT(!waits || g->wait_all() == 0);
        EXPECT(g->give(ptr) == 0);
        EXPECT(g->begin_capture(stream, RELAXED_CAPTURE) == 0);
        EXPECT(g->alloc(&ptr, 20 * MIB) == 0);
        EXPECT(g->fill(ptr, i, MIB, stream) == 0);
        EXPECT(g->end_capture(stream) == 0);
        EXPECT(g->fill(ptr, i, MIB, stream) == 0 && g->wait(stream) == 0);
    }
    EXPECT(g->give(ptr) == 0);
    EXPECT(g->end_stream(stream) == 0);
}

static void again(void) {
    for (int i = 0; i < 4; i++) {
        capture_again(i % 2 != 0, i / 2 != 0);
    }
}

/* ---- beside a capture ---- */

static bool other_is_blocking;
static void *old[BLOCKS]; /* memory of before the capture */

static void *take_beside(void *unused) {
    void *stream = NULL, *ptr = NULL;
    EXPECT(g->use(0) == 0 && g->make_stream(&stream, other_is_blocking) == 0);
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(old[i] == NULL || (g->fill(old[i], 7, MIB, stream) == 0 && g->give(old[i]) == 0));
        old[i] = NULL;
    }
    for (int i = 0; i < ROUNDS && failures == 0; i++) {
        unsigned char byte = 0;
        EXPECT(g->alloc(&ptr, 80 * MIB) == 0);
        EXPECT(g->fill(ptr, i, MIB, stream) == 0);
        EXPECT(i % 10 != 0 || (g->read(&byte, ptr, 1, stream) == 0 && byte == i));
        EXPECT(g->give(ptr) == 0);
    }
    EXPECT(g->end_stream(stream) == 0);
    return unused;
}

static void capture_beside(bool is_blocking, int mode) {
    void *stream = NULL;
    pthread_t other;
    EXPECT(g->make_stream(&stream, is_blocking) == 0);
    EXPECT(g->begin_capture(stream, mode) == 0);
    EXPECT(pthread_create(&other, NULL, take_beside, NULL) == 0);
    pthread_join(other, NULL);
    EXPECT(g->end_capture(stream) == 0);
    EXPECT(g->end_stream(stream) == 0);
}

static void beside(void) {
    for (int i = 0; i < 8; i++) {
        other_is_blocking = (i & 1) != 0;
        capture_beside((i & 2) != 0, (i & 4) != 0 ? RELAXED_CAPTURE : THREAD_LOCAL_CAPTURE);
    }
}

/* The stream is not blocking: no other way tells us that memory freed meanwhile is past. */
static void before(void) {
    for (int i = 0; i < 4; i++) {
        for (int b = 0; b < BLOCKS; b++) {
            EXPECT(g->alloc(&old[b], 80 * MIB) == 0);
        }
        other_is_blocking = (i & 1) != 0;
        capture_beside(false, (i & 2) != 0 ? RELAXED_CAPTURE : THREAD_LOCAL_CAPTURE);
    }
}

int run_program(const gpu *calls, int argc, char **argv) {
    void (*const run)(void) = argc != 2                        ? NULL
                              : strcmp(argv[1], "again") == 0  ? again
                              : strcmp(argv[1], "beside") == 0 ? beside
                              : strcmp(argv[1], "before") == 0 ? before
                                                               : NULL;
    if (run == NULL) {
        printf("usage: %s again|beside|before\n", argv[0]);
        return 2;
    }
    g = calls;
    EXPECT(g->use(0) == 0);
    run();
    return failures != 0;
}
