/* roof.c - shares the loops of the best instruction set among the workers, and times them. */
#include "bench/rnn/bench_rnn.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "arena/compute/element.h"
#include "arena/compute/workers.h"

enum { ROUNDS = 100000, LINES = 4 * 64 /* bytes that the loop reads at once */ };
static const double least_s = 4e-3;

typedef struct work {
    ashlar_roof roof;
    const ashlar_roof_loops *loops;
    const char *buffer;
    size_t part_bytes; /* of each thread */
    float results[ASHLAR_WORKERS_MAX];
} work;

static void run_one(void *context, size_t i) {
    work *w = context;
    w->results[i] = w->roof == ASHLAR_ROOF_FMA
                        ? w->loops->multiply(ROUNDS, 0.999f)
                        : w->loops->read(w->buffer + i * w->part_bytes, w->part_bytes);
}

double ashlar__roof_run(ashlar_roof roof, const void *buffer, size_t bytes) {
#define ROW(set) &ashlar__roof_loops_##set,
    static const ashlar_roof_loops *const sets[] = {ASHLAR_SETS(ROW)};
    static volatile float kept; /* so that the compiler cannot drop the loops */
    const size_t threads = ashlar__workers_count();
    work w = {.roof = roof,
              .loops = sets[ashlar__best_set()],
              .buffer = buffer,
              .part_bytes = bytes / threads / LINES * LINES};
    const size_t each = roof == ASHLAR_ROOF_FMA ? 2 * ROUNDS * w.loops->products : w.part_bytes;
    const double start = ashlar__clock_s();
    double seconds = 0, done = 0;
    ASHLAR_ASSERT(each > 0);
    while (seconds < least_s) {
        ashlar__workers_run(threads, run_one, &w);
        done += (double)each * (double)threads;
        seconds = ashlar__clock_s() - start;
    }
    kept = w.results[0];
    (void)kept;
    return done / seconds;
}
