/*
 * test_streams_time.c - independent streams do not wait for each other because of the allocator,
 * and reserve little more than their blocks have at a time.
 *
 * Programs of several streams run on a software device with virtual time, so that figures follow
 * from the calls alone and may be judged. The ideal beside them is the same program with blocks
 * that cost nothing; every driver call for memory is in ashlar's time.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include <ashlar/allocator.h>

#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "tests/allocator/soft/soft_probe.h"
#include "tests/check.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define PLENTY ((size_t)64 << 30)

enum {
    STREAMS_MAX = 8,
    LAG = 4, /* by how many steps the host may run ahead of a stream; of models: */
    MODEL_LAG = 2,
    AWAY_MAX = 64,     /* blocks given back that other streams still use */
    SETTLE = 2,        /* steps of each stream in which memory is still taken */
    BYTES_PER_NS = 25, /* that a kernel works on; few, as if each byte took much arithmetic */
    /* A walk of the heap at each allocation leaves time for few steps: memory is taken in too many
     * of these for a bound on times. */
    IS_SHORT = ASHLAR_DEBUG >= 3,
};

/* Who gives blocks: nobody, or ashlar. */
typedef enum subject { IDEAL, ASHLAR } subject;

typedef struct block {
    void *ptr; /* NULL: no block */
    size_t bytes, owner;
    unsigned uses;       /* bits of the further streams that use it */
    uint64_t use_end_ns; /* when these are done with it */
} block;

/* What the blocks of one stream need: a block that others use counts until they are done with it.
 */
typedef struct need {
    size_t bytes, peak_bytes, cross_count;
    block away[AWAY_MAX];
} need;

typedef struct waits {
    uint64_t streams, host;
} waits;

typedef struct figures {
    uint64_t ns;         /* from the first request to the end of all work */
    uint64_t settled_ns; /* the same from the end of the first steps on */
    size_t reserved_bytes, need_bytes;
    double waits_per_step, host_waits_per_step; /* not the program's own, nor of the first steps */
    bool has_no_memory;
} figures;

static struct sim {
    subject subject;
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_event event;
    ashlar_stream streams[STREAMS_MAX];
    ashlar_event ends[STREAMS_MAX][LAG];      /* of step % LAG */
    size_t steps[STREAMS_MAX];
    need needs[STREAMS_MAX];
    size_t stream_count, stepping, step_count, settled_steps;
    uint64_t settled_ns;
    waits own, settled;
    figures figures;
} s;

static char one_block[64 * MIB];

#define OK(call) CHECK((call) == ASHLAR_OK)

/* ---- the calls of a program ---- */

static soft_figures read_figures(void) {
    soft_figures f = {0};
    OK(ashlar__soft_get_figures(0, &f));
    return f;
}

/* When all that was requested is over. */
static uint64_t end_of(const soft_figures *f) {
    const uint64_t host_ns = ashlar__soft_host_ns();
    return f->end_ns > host_ns ? f->end_ns : host_ns;
}

static void settle_need(need *n) {
    size_t kept = 0;
    for (size_t i = 0; i < n->cross_count; i++) {
        if (n->away[i].use_end_ns > ashlar__soft_host_ns()) {
            n->away[kept++] = n->away[i];
        } else {
            n->bytes -= n->away[i].bytes;
        }
    }
    n->cross_count = kept;
}

static void wait_for(ashlar_stream stream, ashlar_stream after) {
    OK(ashlar_event_record(s.device, s.event, after));
    OK(ashlar_stream_wait(s.device, stream, s.event));
}

/* NULL: there is no memory. */
static void *take_ptr(size_t bytes, ashlar_stream stream) {
    void *ptr = one_block;
    if (s.subject == ASHLAR) {
        const ashlar_status status = ashlar_alloc(s.allocator, bytes, stream, &ptr);
        s.figures.has_no_memory = s.figures.has_no_memory || status == ASHLAR_ENOMEM;
        CHECK(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
        return status == ASHLAR_OK ? ptr : NULL;
    }
    return ptr;
}

static block take(size_t bytes, size_t stream) {
    need *n = &s.needs[stream];
    settle_need(n);
    n->bytes += bytes;
    n->peak_bytes = n->bytes > n->peak_bytes ? n->bytes : n->peak_bytes;
    void *ptr = take_ptr(bytes, s.streams[stream]);
    return (block){.ptr = ptr, .bytes = bytes, .owner = stream};
}

static void drop_need(const block *b) {
    need *n = &s.needs[b->owner];
    if (b->uses == 0) {
        n->bytes -= b->bytes;
        return;
    }
    settle_need(n);
    REQUIRE(n->cross_count < AWAY_MAX);
    n->away[n->cross_count++] = *b;
}

/* Give a block back, after all that uses it. on: the stream whose last work that is; NULL: any. */
static void give_on(block *b, ashlar_stream on) {
    if (b->ptr != NULL) {
        drop_need(b);
        for (size_t i = 0; s.subject == ASHLAR && on == NULL && i < s.stream_count; i++) {
            if ((b->uses >> i & 1) != 0) {
                OK(ashlar_record_stream(s.allocator, b->ptr, s.streams[i]));
            }
        }
        if (s.subject == ASHLAR) {
            OK(on == NULL ? ashlar_free(s.allocator, b->ptr)
                          : ashlar_free_on(s.allocator, b->ptr, on));
        }
    }
    *b = (block){0};
}

static void give(block *b) {
    give_on(b, NULL);
}

static uint64_t kernel_ns(size_t bytes) {
    return bytes / BYTES_PER_NS;
}

static void work(size_t stream, uint64_t ns) {
    OK(ashlar__soft_work(s.streams[stream], ns));
}

/* A kernel that works on all bytes of the blocks. */
static void kernel_on(size_t stream, block *const *blocks, size_t count) {
    size_t bytes = 0;
    uint64_t end_ns = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += blocks[i]->bytes;
    }
    work(stream, kernel_ns(bytes));
    OK(ashlar__soft_stream_ns(s.streams[stream], &end_ns));
    for (size_t i = 0; i < count; i++) {
        block *b = blocks[i];
        if (b->ptr != NULL && stream != b->owner) {
            b->uses |= 1U << stream;
            b->use_end_ns = end_ns > b->use_end_ns ? end_ns : b->use_end_ns;
        }
    }
}

#define KERNEL(stream, ...)                       \
    kernel_on((stream), (block *[]){__VA_ARGS__}, \
              sizeof((block *[]){__VA_ARGS__}) / sizeof(block *))

/* Data is handed on: `stream` waits for what is queued on `after`. */
static void follow(size_t stream, size_t after) {
    const soft_figures before = read_figures();
    wait_for(s.streams[stream], s.streams[after]);
    s.own.streams += read_figures().wait_count - before.wait_count;
}

/* The host waits until the stream has ended all but its newest `lag` steps. */
static void begin_step(size_t stream, size_t lag) {
    const size_t step = s.steps[stream];
    if (step >= lag) {
        const soft_figures before = read_figures();
        OK(ashlar_event_synchronize(s.device, s.ends[stream][(step - lag) % LAG]));
        s.own.host += read_figures().host_wait_count - before.host_wait_count;
    }
}

static void end_step(size_t stream) {
    const size_t step = s.steps[stream]++;
    if (++s.step_count == SETTLE * s.stepping) {
        const soft_figures now = read_figures();
        s.settled_ns = end_of(&now);
        s.settled = (waits){now.wait_count - s.own.streams, now.host_wait_count - s.own.host};
        s.settled_steps = s.step_count;
    }
    OK(ashlar_event_record(s.device, s.ends[stream][step % LAG], s.streams[stream]));
}

/* ---- programs ---- */

/* Each stream in turn takes a block, works on it, and gives it back. */
static void run_independent(size_t bytes, size_t steps) {
    for (size_t i = 0; i < steps * s.stream_count; i++) {
        const size_t stream = i % s.stream_count;
        begin_step(stream, LAG);
        block b = take(bytes, stream);
        KERNEL(stream, &b);
        give(&b);
        end_step(stream);
    }
}

/* Models take activations forwards and give them back backwards. */
enum { LENGTH = 32, SHORTEST = 8, LONGEST = 56, FIXED = 0 /* else the seed of drawn lengths */ };
#define ACTIVATION_BYTES (3584 * KIB)
#define WORKSPACE_BYTES (2 * MIB)
#define GRADIENT_BYTES (1 * MIB)

typedef struct model {
    size_t stream, length, at; /* at: runs to 2 * length */
    uint64_t random;           /* 0: each step has LENGTH */
    block activations[LONGEST], gradient;
} model;

static void begin_model_step(model *m) {
    m->at = 0;
    m->length = m->random == FIXED
                    ? LENGTH
                    : SHORTEST + ashlar__random_step_below(&m->random, LONGEST - SHORTEST + 1);
    begin_step(m->stream, MODEL_LAG);
}

/* One time step, forwards or backwards. */
static void advance(model *m) {
    block workspace = take(WORKSPACE_BYTES, m->stream);
    if (m->at < m->length) {
        m->activations[m->at] = take(ACTIVATION_BYTES, m->stream);
        KERNEL(m->stream, &m->activations[m->at], &workspace);
    } else {
        block *activation = &m->activations[2 * m->length - 1 - m->at];
        const block gradient = take(GRADIENT_BYTES, m->stream);
        block below = m->gradient;
        m->gradient = gradient;
        KERNEL(m->stream, activation, &workspace, &m->gradient, &below);
        give(activation);
        give(&below);
    }
    give(&workspace);
    if (++m->at == 2 * m->length) {
        give(&m->gradient);
        end_step(m->stream);
        begin_model_step(m);
    }
}

/* The host serves the streams in turn, one time step each; every second one is half a step late. */
static void run_models(size_t seed, size_t steps) {
    static model models[STREAMS_MAX];
    memset(models, 0, sizeof models);
    for (size_t i = 0; i < s.stream_count; i++) {
        models[i] = (model){.stream = i, .random = seed == FIXED ? FIXED : seed + i};
        begin_model_step(&models[i]);
        if (i % 2 != 0) {
            work(i, LENGTH * kernel_ns(ACTIVATION_BYTES + WORKSPACE_BYTES + GRADIENT_BYTES));
        }
    }
    for (size_t tick = 0; tick < (2 * steps + 1) * LENGTH; tick++) {
        for (size_t i = 0; i < s.stream_count && !s.figures.has_no_memory; i++) {
            const size_t late = i % 2 * LENGTH;
            if (tick >= late && tick < late + 2 * steps * LENGTH) {
                advance(&models[i]);
            }
        }
    }
    for (size_t i = 0; i < s.stream_count; i++) {
        for (size_t k = 0; k < LONGEST; k++) {
            give(&models[i].activations[k]);
        }
        give(&models[i].gradient);
    }
}

/* One stream copies batches that the other computes on. */
static void run_prefetch(size_t unused, size_t steps) {
    enum { COPY, COMPUTE, KERNELS = 4 };
    (void)unused;
    for (size_t step = 0; step < steps; step++) {
        block hidden[KERNELS];
        begin_step(COMPUTE, LAG);
        block batch = take(32 * MIB, COPY), labels = take(256 * KIB, COPY);
        KERNEL(COPY, &batch, &labels);
        follow(COMPUTE, COPY);
        for (size_t i = 0; i < KERNELS; i++) {
            hidden[i] = take(8 * MIB, COMPUTE);
            KERNEL(COMPUTE, &hidden[i], i == 0 ? &batch : &hidden[i - 1], &labels);
        }
        for (size_t i = KERNELS; i-- > 0;) {
            give(&hidden[i]);
        }
        give(&batch);
        give(&labels);
        end_step(COMPUTE);
    }
}

/* Each stream hands its block to the next one. */
static void run_pipeline(size_t by_free_on, size_t steps) {
    const size_t last = s.stream_count - 1;
    for (size_t step = 0; step < steps; step++) {
        begin_step(last, LAG);
        block b = take(16 * MIB, 0);
        KERNEL(0, &b);
        for (size_t i = 1; i <= last; i++) {
            follow(i, i - 1);
            KERNEL(i, &b);
        }
        give_on(&b, by_free_on ? s.streams[last] : NULL);
        end_step(last);
    }
}

typedef struct program {
    const char *name;
    size_t streams, stepping; /* stepping: how many of the streams have steps */
    void (*run)(size_t variant, size_t steps);
    size_t variant, steps;
    size_t need_bytes; /* 0: not known by hand */
    double share;      /* of the need that the device has; 0: more than enough */
} program;

#define MODEL_BYTES (LENGTH * ACTIVATION_BYTES + WORKSPACE_BYTES + GRADIENT_BYTES)
static const program programs[] = {
    {"independent 2 x 2 MiB", 2, 2, run_independent, 2 * MIB, 512, 2 * 2 * MIB, 0},
    {"independent 2 x 16 MiB", 2, 2, run_independent, 16 * MIB, 512, 2 * 16 * MIB, 0},
    {"independent 2 x 64 MiB", 2, 2, run_independent, 64 * MIB, 512, 2 * 64 * MIB, 0},
    /* Twice as many steps: the first calls of the driver take as long as a hundred of these. */
    {"independent 8 x 2 MiB", 8, 8, run_independent, 2 * MIB, 1024, 8 * 2 * MIB, 0},
    {"independent 8 x 16 MiB", 8, 8, run_independent, 16 * MIB, 512, 8 * 16 * MIB, 0},
    {"independent 8 x 64 MiB", 8, 8, run_independent, 64 * MIB, 512, 8 * 64 * MIB, 0},
    {"models 2", 2, 2, run_models, FIXED, 96, 2 * MODEL_BYTES, 0},
    {"models 4", 4, 4, run_models, FIXED, 96, 4 * MODEL_BYTES, 0},
    {"models 8", 8, 8, run_models, FIXED, 96, 8 * MODEL_BYTES, 0},
    {"models 8, of drawn lengths", 8, 8, run_models, 1, 96, 0, 0},
    /* The host is LAG steps ahead; four hidden blocks. */
    {"prefetch", 2, 1, run_prefetch, 0, 256, LAG *(32 * MIB + MIB / 4) + 4 * 8 * MIB, 0},
    {"pipeline, record_stream", 3, 1, run_pipeline, false, 256, LAG * 16 * MIB, 0},
    {"pipeline, free_on", 3, 1, run_pipeline, true, 256, LAG * 16 * MIB, 0},
    {"models 2, 87 %", 2, 2, run_models, FIXED, 96, 2 * MODEL_BYTES, 0.87},
    {"models 4, 87 %", 4, 4, run_models, FIXED, 96, 4 * MODEL_BYTES, 0.87},
    {"models 8, 87 %", 8, 8, run_models, FIXED, 96, 8 * MODEL_BYTES, 0.87},
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

/* ---- a run ---- */

static void measure(const program *p, size_t steps) {
    const uint64_t begin_ns = ashlar__soft_host_ns();
    p->run(p->variant, steps);
    const soft_figures f = read_figures();
    const double counted = (double)(s.step_count - s.settled_steps);
    s.figures.ns = end_of(&f) - begin_ns;
    s.figures.settled_ns = end_of(&f) - s.settled_ns;
    s.figures.reserved_bytes = f.physical_peak_bytes;
    s.figures.waits_per_step = (double)(f.wait_count - s.own.streams - s.settled.streams) / counted;
    s.figures.host_waits_per_step =
        (double)(f.host_wait_count - s.own.host - s.settled.host) / counted;
    for (size_t i = 0; i < s.stream_count; i++) {
        s.figures.need_bytes += s.needs[i].peak_bytes;
    }
}

static figures run(const program *p, subject who, size_t steps, size_t memory) {
    char line[80];
    (void)snprintf(line, sizeof line, "time=on,memory=%zuB", memory);
    OK(ashlar__soft_configure(line));
    memset(&s, 0, sizeof s);
    s.subject = who;
    s.stream_count = p->streams;
    s.stepping = p->stepping;
    OK(ashlar_device_open("soft", &s.device));
    OK(ashlar__device_enter(s.device));
    OK(ashlar_event_create(s.device, &s.event));
    for (size_t i = 0; i < p->streams; i++) {
        OK(ashlar_stream_create(s.device, &s.streams[i]));
        for (size_t k = 0; k < LAG; k++) {
            OK(ashlar_event_create(s.device, &s.ends[i][k]));
        }
    }
    OK(ashlar_allocator_create(s.device, &s.allocator));
    measure(p, steps);
    ashlar_allocator_destroy(s.allocator);
    for (size_t i = 0; i < p->streams; i++) {
        for (size_t k = 0; k < LAG; k++) {
            ashlar_event_destroy(s.device, s.ends[i][k]);
        }
        ashlar_stream_destroy(s.device, s.streams[i]);
    }
    ashlar_event_destroy(s.device, s.event);
    ashlar__device_leave(s.device);
    ashlar_device_close(s.device);
    return s.figures;
}

static size_t steps_of(const program *p) {
    return IS_SHORT ? 8 : p->steps;
}

static size_t memory_of(const program *p) {
    return p->share != 0 ? (size_t)(p->share * (double)p->need_bytes) : PLENTY;
}

/* ---- the cases ---- */

CASE(streams_are_kept_apart_in_little_more_memory_than_they_need) {
    for (size_t i = 0; i < PROGRAMS; i++) {
        const program *p = &programs[i];
        const figures ideal = run(p, IDEAL, steps_of(p), PLENTY);
        const figures f = run(p, ASHLAR, steps_of(p), memory_of(p));
        const double time = (double)f.ns / (double)ideal.ns;
        const double settled = (double)f.settled_ns / (double)ideal.settled_ns;
        const double reserved = (double)f.reserved_bytes / (double)ideal.need_bytes;
        printf("# %s: time %.4f of the ideal's, settled %.4f, reserved %.3f of the need, waits a "
               "step %.3f, of the host %.3f\n",
               p->name, time, settled, reserved, f.waits_per_step, f.host_waits_per_step);
        CHECK(p->need_bytes == 0 || ideal.need_bytes == p->need_bytes);
        CHECK(!f.has_no_memory);
        if (p->share != 0) { /* they take memory from each other */
            CHECK(IS_SHORT || time <= 1.06);
            CHECK(reserved <= p->share);
            continue;
        }
        CHECK(IS_SHORT || time <= 1.01);
        CHECK(IS_SHORT || settled <= 1.001);
        CHECK(reserved <= 1.05);
        CHECK(f.waits_per_step == 0 && f.host_waits_per_step == 0);
    }
}

RUN_CASES()
