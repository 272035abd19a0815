/*
 * test_repeated.c - what passed once passes always: a drawn step on one stream, with nothing live
 * before it and after it, is repeated on the least device on which it passes at first.
 *
 * ASHLAR_REPEATED_STEPS in the environment says how many steps are drawn, ASHLAR_SEED which is the
 * first.
 */
#include "tests/check.h"

#include <ashlar/allocator.h>

#include "allocator/base/random.h"
#include "allocator/soft/soft.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { CALLS = 240, LIVE = 128, REPETITIONS = 100, MOST_MIB = 1024, GRAIN_MIB = 2 };

/* A call takes a block if `bytes` is not 0, or gives it back. */
typedef struct call {
    size_t bytes;
    unsigned block;
} call;

typedef struct step {
    uint64_t random;
    call calls[CALLS];
    size_t count, peak_bytes;
    bool waits, works; /* the host waits after each step; work is queued for each block */
} step;

static ashlar_device *device;
static ashlar_allocator *allocator;
static ashlar_stream stream;
static void *blocks[CALLS];
static step drawn;
static char failure[512];

/* ---- a step ---- */

static uint64_t draw(step *s, uint64_t below) {
    return ashlar__random_mix(s->random++) % below;
}

/* All magnitudes from 2^low to 2^high bytes are as likely. */
static size_t draw_bytes(step *s, size_t low, size_t high) {
    const size_t least = (size_t)1 << (low + draw(s, high - low));
    return least + draw(s, least + 1);
}

static void draw_step(step *s, uint64_t seed) {
    static const size_t spans[][2] = {{9, 22}, {16, 23}, {20, 24}, {9, 24}, {17, 20}};
    unsigned live[LIVE], block_count = 0;
    size_t live_bytes[LIVE], live_count = 0, sum = 0;
    memset(s, 0, sizeof *s);
    s->random = ashlar__random_mix(seed);
    const size_t *span = spans[draw(s, 5)];
    const size_t most = (16 + draw(s, 120)) * MIB, calls = 30 + draw(s, CALLS / 2 - 30);
    s->waits = draw(s, 2) == 0;
    s->works = draw(s, 2) == 0;
    while (s->count < calls || live_count > 0) {
        const bool is_take = s->count < calls && live_count < LIVE &&
                             (live_count == 0 || (sum < most && draw(s, 5) < 3));
        if (is_take) {
            const size_t bytes = draw_bytes(s, span[0], span[1]);
            live[live_count] = block_count;
            live_bytes[live_count++] = bytes;
            s->calls[s->count++] = (call){bytes, block_count++};
            sum += bytes;
            s->peak_bytes = sum > s->peak_bytes ? sum : s->peak_bytes;
        } else {
            const size_t i = draw(s, live_count);
            s->calls[s->count++] = (call){0, live[i]};
            sum -= live_bytes[i];
            live[i] = live[--live_count];
            live_bytes[i] = live_bytes[live_count];
        }
    }
}

static void do_nothing(void *args) {
    (void)args;
}

static bool run_step(const step *s) {
    for (size_t i = 0; i < s->count; i++) {
        const call *c = &s->calls[i];
        const ashlar_status status =
            c->bytes == 0 ? ashlar_free(allocator, blocks[c->block])
                          : ashlar_alloc(allocator, c->bytes, stream, &blocks[c->block]);
        if (status != ASHLAR_OK) {
            (void)snprintf(failure, sizeof failure, "call %zu: %s", i, ashlar_error_detail());
            return false;
        }
        if (s->works && c->bytes > 0) {
            CHECK(ashlar_launch(device, stream, do_nothing, NULL, 0) == ASHLAR_OK);
        }
    }
    if (s->waits) {
        CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    }
    return true;
}

/* The number of repetitions that pass on a device of `mib` MiB, up to `most`. */
static size_t repeat(const step *s, const char *mode, size_t mib, size_t most) {
    char spec[64];
    size_t passed = 0;
    (void)snprintf(spec, sizeof spec, "memory=%zuMiB,mode=%s", mib, mode);
    if (ashlar__soft_configure(spec) != ASHLAR_OK ||
        ashlar_device_open("soft", &device) != ASHLAR_OK) {
        return 0;
    }
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    CHECK(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    while (passed < most && run_step(s)) {
        passed++;
    }
    ashlar_allocator_destroy(allocator);
    ashlar_stream_destroy(device, stream);
    ashlar_device_close(device);
    return passed;
}

/* Whether it passes each time with `more_mib` more than it takes to pass at first. */
static bool check_step(uint64_t seed, const char *mode, size_t more_mib) {
    draw_step(&drawn, seed);
    size_t mib = (drawn.peak_bytes + GRAIN_MIB * MIB - 1) / (GRAIN_MIB * MIB) * GRAIN_MIB;
    while (mib < MOST_MIB && repeat(&drawn, mode, mib, 1) == 0) {
        mib += GRAIN_MIB;
    }
    mib += more_mib;
    const size_t passed = repeat(&drawn, mode, mib, REPETITIONS);
    if (passed < REPETITIONS) {
        printf("# seed %llu, %s: passes on %zu MiB, and fails there in repetition %zu: %s\n",
               (unsigned long long)seed, mode, mib, passed + 1, failure);
    }
    return passed == REPETITIONS;
}

static unsigned long long number_of(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void check_steps(const char *mode, size_t more_mib) {
    const unsigned long long count = number_of("ASHLAR_REPEATED_STEPS", 100);
    const unsigned long long first = number_of("ASHLAR_SEED", 1);
    size_t bad = 0;
    for (unsigned long long i = 0; i < count; i++) {
        bad += !check_step(first + i, mode, more_mib);
    }
    CHECK(bad == 0);
    printf("# %llu steps, mode=%s, %zu MiB more: %zu fail later\n", count, mode, more_mib, bad);
}

CASE(a_step_that_passed_once_passes_always) {
    check_steps("eager", 0);
}

/* While the device is at work on freed memory, a block goes to where memory is rather than wait on
 * the host. So the device's speed decides what is left over, also when the step first passes. */
CASE(with_a_little_more_it_passes_always_while_work_is_under_way) {
    check_steps("overlap", 4 * GRAIN_MIB);
}

RUN_CASES()
