#include "bench/harness/copy_loop.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "arena/compute/workers.h"

enum { PIECE_BYTES = 1 << 18 /* worth waking a thread, as the optimizer's pieces are */ };

typedef struct line {
    uint64_t words[ASHLAR_COPY_LINE / sizeof(uint64_t)];
} line;

_Static_assert(PIECE_BYTES % sizeof(line) == 0, "pieces are whole lines");

/* The fence, which is no instruction, keeps the compiler from making a memcpy of the loop. */
static void loop(void *dst, const void *src, size_t bytes) {
    line *to = dst;
    const line *from = src;
    for (size_t i = 0; i < bytes / sizeof(line); i++) {
        to[i] = from[i];
        atomic_signal_fence(memory_order_seq_cst);
    }
}

static void library(void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
}

typedef struct share {
    const ashlar_copy_work *work;
    void (*copy)(void *dst, const void *src, size_t bytes);
} share;

static void copy_piece(void *context, size_t i) {
    const share *s = context;
    const ashlar_copy_work *w = s->work;
    const size_t begin = i * PIECE_BYTES;
    const size_t left = w->bytes - begin;
    s->copy((char *)w->dst + begin, (const char *)w->src + begin,
            left < PIECE_BYTES ? left : PIECE_BYTES);
}

static void copy(const ashlar_copy_work *work,
                 void (*fn)(void *dst, const void *src, size_t bytes)) {
    share s = {.work = work, .copy = fn};
    for (size_t i = 0; i < work->times; i++) {
        if (work->is_shared) {
            ashlar__workers_run((work->bytes + PIECE_BYTES - 1) / PIECE_BYTES, copy_piece, &s);
        } else {
            fn(work->dst, work->src, work->bytes);
        }
    }
}

void ashlar__copy_by_loop(const ashlar_copy_work *work) {
    copy(work, loop);
}

void ashlar__copy_by_memcpy(const ashlar_copy_work *work) {
    copy(work, library);
}
