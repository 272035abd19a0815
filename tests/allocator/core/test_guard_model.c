/*
 * test_guard_model.c - random calls on two allocators in a guard mode, beside a model: contents are
 * right on every stream, each planted write outside a block is reported, and nothing else is.
 *
 * Streams end and their handles come back; blocks are marked, handed from stream to stream, freed
 * on others; memory runs out, on the device and on the host.
 */
#include "tests/allocator/core/guard_fixture.h"
#include "allocator/base/random.h"

enum { LANES = 5, SLOTS = 24, ALLOCATORS = 2, NO_LANE = -1 };

typedef struct owned {
    unsigned char *ptr; /* NULL: the slot is empty */
    size_t bytes;
    int allocator;
    int home;        /* lane it was taken for; NO_LANE: that stream has ended */
    int last;        /* lane whose work comes behind all that is not marked; NO_LANE: home's */
    bool is_damaged; /* its red zone holds a planted byte */
    unsigned char value;
} owned;

typedef struct tally {
    size_t planted, reported;
} tally;

static ashlar_allocator *allocators[ALLOCATORS];
static ashlar_stream lanes[LANES];
static owned slots[SLOTS];
static tally tallies[ALLOCATORS];
static uint64_t random_state;
static bool is_fill;
static bool plants, fails; /* what this run draws */
static size_t freed_on_ended, planted_before, host_failures;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

static void count_report(const char *line, void *user) {
    tally *t = user;
    CHECK_HAS(line, "written to");
    t->reported++;
}

static ashlar_stream stream_of(int lane) {
    return lane == NO_LANE ? NULL : lanes[lane];
}

/* In one of eight calls a host allocation fails, if the call, or the device in it, makes one. */
static bool arm(void) {
    const bool is_armed = fails && draw(8) == 0;
    ashlar__host_fail_at(is_armed ? 1 + draw(3) : 0);
    return is_armed;
}

/* Whether a call failed for that, and so is to be made again. */
static bool is_again(ashlar_status status, bool was_armed) {
    ashlar__host_fail_at(0);
    const bool has_failed =
        was_armed && status != ASHLAR_OK && status != ASHLAR_EDAMAGE && status != ASHLAR_EPOINTER;
    host_failures += has_failed;
    return has_failed;
}

static void op_take(owned *o) {
    void *ptr = NULL;
    ashlar_status status = ASHLAR_OK;
    *o = (owned){.bytes = 1 + draw(draw(4) == 0 ? 700000 : 6000),
                 .allocator = (int)draw(ALLOCATORS),
                 .home = (int)draw(LANES),
                 .value = (unsigned char)(1 + draw(200))};
    o->last = o->home;
    for (bool is_due = true; is_due;) {
        const bool is_armed = arm();
        status = ashlar_alloc(allocators[o->allocator], o->bytes, lanes[o->home], &ptr);
        is_due = is_again(status, is_armed);
    }
    CHECK(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
    o->ptr = ptr;
    if (ptr != NULL) {
        queue_write(lanes[o->home], ptr, o->bytes, o->value);
    }
}

static void mark(const owned *o, int lane) {
    ashlar_status status = ASHLAR_OK;
    for (bool is_due = true; is_due;) {
        const bool is_armed = arm();
        status = ashlar_record_stream(allocators[o->allocator], o->ptr, lanes[lane]);
        is_due = is_again(status, is_armed);
    }
    CHECK(status == ASHLAR_OK);
}

/* A further stream reads the block, to which the program's own order does not come back. */
static void op_read(const owned *o) {
    const int lane = (int)draw(LANES);
    order_behind(stream_of(o->last), lanes[lane]);
    queue_verify(lanes[lane], o->ptr, o->bytes, o->value);
    if (lane != o->last) {
        mark(o, lane);
    }
}

/* The block is another stream's from now on; those who read it are still marked. */
static void op_move(owned *o) {
    const int lane = (int)draw(LANES);
    order_behind(stream_of(o->last), lanes[lane]);
    queue_verify(lanes[lane], o->ptr, o->bytes, o->value);
    o->last = lane;
}

static size_t block_bytes(const owned *o) {
    return (o->bytes + ASHLAR_RED_ZONE_BYTES + 511) / 512 * 512;
}

/* One byte behind the block; or, if a block lies there at once, in front of that. */
static void op_plant(owned *o) {
    const size_t end = block_bytes(o);
    size_t at = o->bytes + draw(end - o->bytes);
    for (const owned *q = slots; q < slots + SLOTS && draw(2) == 0; q++) {
        if (q->ptr == o->ptr + end) {
            at = end - 1;
            planted_before++;
            break;
        }
    }
    if (!o->is_damaged) {
        poke(stream_of(o->last), o->ptr + at, 0);
        o->is_damaged = true;
        tallies[o->allocator].planted++;
    }
}

static void op_free(owned *o) {
    ashlar_allocator *a = allocators[o->allocator];
    const ashlar_stream last = stream_of(o->last);
    const bool is_plain = o->last == o->home;
    ashlar_status status = ASHLAR_OK;
    if (o->last != NO_LANE) {
        queue_verify(last, o->ptr, o->bytes, o->value);
    }
    for (bool is_due = true; is_due;) {
        const bool is_armed = arm();
        status = is_plain ? ashlar_free(a, o->ptr) : ashlar_free_on(a, o->ptr, last);
        is_due = is_again(status, is_armed);
    }
    CHECK(status == ASHLAR_OK || status == ASHLAR_EDAMAGE);
    freed_on_ended += o->home == NO_LANE;
    if (plants && draw(4) == 0 && block_bytes(o) <= a->guard_fill->limit_bytes) {
        poke(last, o->ptr + draw(block_bytes(o)), 0);
        tallies[o->allocator].planted++;
    }
    o->ptr = NULL;
}

/* End a stream, and make another, which has its handle. */
static void op_end_stream(void) {
    const int lane = (int)draw(LANES);
    for (owned *o = slots; o < slots + SLOTS; o++) {
        if (o->ptr != NULL && o->last == lane && o->home != lane) {
            op_move(o); /* whoever ends a stream has another one take over */
            if (o->last == lane) {
                op_free(o);
            }
        }
    }
    const ashlar_stream ended = lanes[lane];
    ashlar_stream_destroy(device, ended);
    CHECK(ashlar_stream_create(device, &lanes[lane]) == ASHLAR_OK);
    CHECK(lanes[lane] == ended);
    for (owned *o = slots; o < slots + SLOTS; o++) {
        if (o->ptr != NULL && o->home == lane) {
            const bool is_last = o->last == lane;
            o->home = NO_LANE;
            o->last = is_last ? NO_LANE : o->last;
        }
    }
}

static void op_limits(void) {
    ashlar_allocator *a = allocators[draw(ALLOCATORS)];
    const ashlar_status status =
        draw(2) == 0 ? ashlar_allocator_trim(a, 0) : ashlar_allocator_set_limit(a, 4 * MIB);
    CHECK(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
    CHECK(ashlar_allocator_set_limit(a, 0) == ASHLAR_OK);
}

static void op_on_block(owned *o) {
    const size_t kind = draw(10);
    if (o->home == NO_LANE && o->last == NO_LANE) {
        op_free(o); /* behind its stream's work, which only the allocator can still name */
    } else if (kind < 3) {
        op_read(o);
    } else if (kind < 5) {
        op_move(o);
    } else if (kind == 5 && plants) {
        op_plant(o);
    } else {
        op_free(o);
    }
}

static void run_ops(int ops) {
    for (int op = 0; op < ops; op++) {
        const size_t kind = draw(40);
        owned *o = &slots[draw(SLOTS)];
        if (kind == 0) {
            op_end_stream();
        } else if (kind == 1) {
            op_limits();
        } else if (kind < 4) {
            wait_for(lanes[draw(LANES)]);
        } else if (o->ptr == NULL) {
            op_take(o);
        } else {
            op_on_block(o);
        }
    }
}

static bool set_up_model(int seed, ashlar_guard guard) {
    ashlar_config config;
    ashlar_config_init(&config);
    config.guard = guard;
    is_fill = guard == ASHLAR_GUARD_FILL;
    plants = is_fill && seed % 3 != 0;
    fails = seed % 3 != 1;
    random_state = (uint64_t)seed * 7919;
    memset(slots, 0, sizeof slots);
    memset(tallies, 0, sizeof tallies);
    atomic_store(&payload_bad_count, 0);
    bool is_set_up = set_up_device(drawn_order(
        is_fill ? "memory=24MiB," HANDLES_COME_BACK : "memory=96MiB," HANDLES_COME_BACK, seed));
    for (int i = 0; i < LANES && is_set_up; i++) {
        is_set_up = ashlar_stream_create(device, &lanes[i]) == ASHLAR_OK;
    }
    for (int i = 0; i < ALLOCATORS && is_set_up; i++) {
        is_set_up = ashlar_allocator_create_with(device, &config, &allocators[i]) == ASHLAR_OK;
        ashlar_allocator_set_report(allocators[i], count_report, &tallies[i]);
    }
    return is_set_up;
}

static void end_model(int seed) {
    for (int i = 0; i < ALLOCATORS; i++) {
        while (ashlar_allocator_check(allocators[i]) == ASHLAR_EDAMAGE) {
        }
        CHECK(ashlar_allocator_check(allocators[i]) == ASHLAR_OK);
        ashlar_allocator_destroy(allocators[i]);
        /* What a free had queued before it failed may find a damage, too. */
        const bool is_right = plants && fails ? tallies[i].reported >= tallies[i].planted
                                              : tallies[i].reported == tallies[i].planted;
        CHECK(is_right);
        if (!is_right) {
            printf("# seed %d: %zu planted, %zu reported\n", seed, tallies[i].planted,
                   tallies[i].reported);
        }
    }
    for (int i = 0; i < LANES; i++) {
        ashlar_stream_destroy(device, lanes[i]);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
    tear_down_device();
}

static void run_seeds(ashlar_guard guard, int seeds, int ops) {
    size_t planted = 0;
    freed_on_ended = planted_before = host_failures = 0;
    for (int seed = 1; seed <= seeds; seed++) {
        REQUIRE(set_up_model(seed, guard));
        run_ops(ops);
        planted += tallies[0].planted + tallies[1].planted;
        end_model(seed);
    }
    CHECK(freed_on_ended > 0 && host_failures > 0);
    CHECK(guard != ASHLAR_GUARD_FILL || (planted > 50 && planted_before > 0));
}

CASE(every_planted_write_is_reported_and_nothing_else) {
    run_seeds(ASHLAR_GUARD_FILL, 12, 1500);
}

RUN_CASES()
