/*
 * test_steady.c - what the warm-up calls steady is steady: random programs, whose blocks are freed
 * on other streams or marked for them, run their lengths in any order and take no more memory.
 *
 * ASHLAR_STEADY_PROGRAMS in the environment says how many programs are drawn, ASHLAR_SEED which is
 * the first.
 */
#include "tests/allocator/step/step_fixture.h"

#include <ashlar/plan.h>

enum { LENGTHS_MAX = 8, BLOCKS_MAX = 40, WEIGHTS = 6, TICKS = 2000, TIMES_MAX = 8, PROGRAMS = 240 };

/* What becomes of a block besides being taken, used and freed on its own stream. */
typedef enum fate { AT_HOME, MOVED, SHARED, SHARED_AND_MOVED } fate;

typedef struct made_block {
    size_t base, slope; /* bytes: base + slope * length, or of a drawn length if it wavers */
    bool wavers;
    size_t min_length; /* shorter steps do without it */
    int stream, next, third;
    ashlar_tag tag;
    fate fate;
    size_t begin, span, period, times; /* in ticks of a step: when it is taken, for how long */
} made_block;

typedef struct made_event {
    size_t block;
    bool is_take;
} made_event;

typedef struct made_program {
    uint64_t seed;
    size_t length_count, block_count, bucket_count;
    bool without_plan, without_dry_run, is_eager, without_virtual, has_small_cache, syncs,
        is_prompt_at_first;
    bool is_small; /* most blocks have a size class */
    bool is_ready; /* the warm-up is over */
    made_block blocks[BLOCKS_MAX];
    made_event events[2 * BLOCKS_MAX * TIMES_MAX]; /* of a step, in order */
    size_t event_count;
    unsigned char *live[BLOCKS_MAX];
} made_program;

static made_program made;

/* ---- drawing ---- */

static size_t made_bytes(void) {
    switch (made.is_small ? 2 + draw(3) : draw(4)) {
    case 0:
        return 1 + draw(8 * KIB);
    case 1:
        return 1 + draw(300 * KIB);
    case 4:
        return 1 + draw(100 * KIB);
    default:
        return 1 + draw(made.is_small ? 250 * KIB : 3 * MIB);
    }
}

static void make_block(made_block *b, int stream_count, bool crosses) {
    const bool grows_only = made.without_dry_run; /* as the warm-up asks */
    *b = (made_block){.base = made_bytes(), .slope = draw(2) * made_bytes() / 2};
    b->wavers = !grows_only && draw(made.is_small ? 2 : 4) == 0;
    b->min_length = !grows_only && draw(4) == 0 ? draw(made.length_count) : 0;
    b->stream = (int)draw((size_t)stream_count);
    b->next = (int)draw((size_t)stream_count);
    b->third = (int)draw((size_t)stream_count);
    b->tag = (ashlar_tag)draw(ASHLAR_TAG_COUNT);
    b->fate = crosses && draw(3) == 0 ? (fate)(1 + draw(3)) : AT_HOME;
    const bool is_short = draw(2) == 0;
    b->begin = draw(1000);
    b->span = 1 + draw(is_short ? 100 : 900);
    b->period = b->span + 1 + draw(20);
    b->times = is_short ? 1 + draw(made.is_small || draw(3) == 0 ? TIMES_MAX : 1) : 1;
}

static void make_events(void) {
    for (size_t now = 0; now < TICKS; now++) {
        for (size_t i = 0; i < made.block_count; i++) {
            const made_block *b = &made.blocks[i];
            const size_t age = now - b->begin, phase = age % b->period;
            if (now >= b->begin && age / b->period < b->times && (phase == 0 || phase == b->span)) {
                made.events[made.event_count++] = (made_event){i, phase == 0};
            }
        }
    }
}

static void make_program(uint64_t seed) {
    made = (made_program){.seed = seed};
    random_state = ashlar__random_mix(seed);
    const int stream_count = 1 + (int)draw(STREAMS);
    const bool crosses = stream_count > 1 && draw(4) > 0;
    made.length_count = 1 + draw(LENGTHS_MAX);
    made.is_prompt_at_first = draw(3) == 0;
    made.is_small = draw(2) == 0;
    made.block_count = 2 + draw(BLOCKS_MAX - 2);
    made.bucket_count = draw(3);
    made.without_plan = draw(2) == 0;
    made.without_dry_run = draw(8) == 0;
    made.is_eager = draw(2) == 0;
    made.without_virtual = draw(6) == 0;
    made.has_small_cache = draw(4) == 0;
    made.syncs = draw(2) == 0;
    for (size_t i = 0; i < made.block_count; i++) {
        make_block(&made.blocks[i], stream_count, crosses);
    }
    make_events();
}

/* ---- a step ---- */

static size_t bytes_of(const made_block *b, size_t length) {
    const size_t at = b->wavers ? (length * 7 + b->begin) % LENGTHS_MAX : length;
    return b->base + b->slope * at;
}

static ashlar_status take_made(size_t i, size_t length, bool works) {
    const made_block *b = &made.blocks[i];
    void *ptr = NULL;
    const size_t bytes = bytes_of(b, length);
    const ashlar_status status =
        ashlar_alloc_tagged(allocator, bytes, b->tag, streams[b->stream], &ptr);
    made.live[i] = ptr;
    if (status == ASHLAR_OK && works) {
        queue_write(streams[b->stream], ptr, bytes < 64 ? bytes : 64, (unsigned char)(i + 1));
    }
    return status;
}

static void use_elsewhere(const made_block *b, size_t i, int stream, bool works) {
    order_streams(b->stream, stream);
    if (works) {
        queue_verify(streams[stream], made.live[i], b->base < 64 ? b->base : 64,
                     (unsigned char)(i + 1));
    }
}

static ashlar_status give_made(size_t i, bool works) {
    const made_block *b = &made.blocks[i];
    unsigned char *ptr = made.live[i];
    if (ptr == NULL) {
        return ASHLAR_OK;
    }
    ashlar_status status = ASHLAR_OK;
    if (b->fate == SHARED || b->fate == SHARED_AND_MOVED) {
        use_elsewhere(b, i, b->third, works);
        status = ashlar_record_stream(allocator, ptr, streams[b->third]);
    }
    const bool moves = b->fate == MOVED || b->fate == SHARED_AND_MOVED;
    use_elsewhere(b, i, moves ? b->next : b->stream, works);
    made.live[i] = NULL;
    if (status != ASHLAR_OK) {
        return status;
    }
    return moves ? ashlar_free_on(allocator, ptr, streams[b->next]) : ashlar_free(allocator, ptr);
}

/* The device gets further at some moment of a step, or not: in the warm-up as often as may be. */
static void sync_sometimes(void) {
    const bool is_due = made.is_ready ? made.syncs && draw(60) == 0 : made.is_prompt_at_first;
    for (int i = 0; i < STREAMS && is_due; i++) {
        if (!made.is_ready || draw(2) == 0) {
            wait_for(streams[i]);
        }
    }
}

static ashlar_status run_made(size_t length, bool works) {
    ashlar_status status = ASHLAR_OK;
    for (size_t k = 0; k < made.event_count && status == ASHLAR_OK; k++) {
        const made_event *e = &made.events[k];
        sync_sometimes();
        if (length >= made.blocks[e->block].min_length) {
            status = e->is_take ? take_made(e->block, length, works) : give_made(e->block, works);
        }
    }
    return status;
}

static ashlar_status made_step(void *user, size_t length) {
    CHECK(user == &made);
    return run_made(length, true);
}

static ashlar_status made_dry_run(void *user, size_t length) {
    CHECK(user == &made);
    return run_made(length, false);
}

/* ---- the judge ---- */

static size_t number_of(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? (size_t)strtoull(text, NULL, 10) : otherwise;
}

typedef struct verdict {
    size_t drawn, shown, steady, broken;
} verdict;

static void run_later(const ashlar_warmup_options *o, size_t length) {
    CHECK(ashlar_step_begin(allocator, o->stream, ashlar_warmup_key(o, length)) == ASHLAR_OK);
    CHECK(run_made(length, true) == ASHLAR_OK);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    if (made.syncs && draw(6) == 0) {
        wait_for(streams[draw(STREAMS)]);
    }
    if (made.syncs && draw(12) == 0) {
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    }
}

/* Steps in several orders: drawn, the same again and again, two by turns, up and down. */
static void run_orders(const ashlar_warmup_options *o) {
    const size_t count = o->max_length;
    for (size_t i = 0; i < 3 * count; i++) {
        run_later(o, 1 + draw(count));
    }
    const size_t one = 1 + draw(count), other = 1 + draw(count);
    for (size_t i = 0; i < 4; i++) {
        run_later(o, one);
    }
    for (size_t i = 0; i < 6; i++) {
        run_later(o, i % 2 == 0 ? one : other);
    }
    for (size_t i = 1; i <= count; i++) {
        run_later(o, i);
    }
    for (size_t i = count; i > 0; i--) {
        run_later(o, i);
    }
}

static ashlar_warmup_options options_of(void) {
    return (ashlar_warmup_options){.stream = streams[0],
                                   .min_length = 1,
                                   .max_length = made.length_count,
                                   .length_bucket_count = made.bucket_count,
                                   .key = 7,
                                   .without_plan = made.without_plan,
                                   .step = draw(2) == 0 || made.without_dry_run ? made_step : NULL,
                                   .dry_run = made.without_dry_run ? NULL : made_dry_run,
                                   .user = &made};
}

static void judge(verdict *v) {
    ashlar_warmup_report report;
    unsigned char *weights[WEIGHTS];
    for (size_t i = 0; i < WEIGHTS; i++) {
        weights[i] = take(made_bytes(), streams[draw(STREAMS)]);
    }
    give(weights[1]);
    give(weights[3]);
    const ashlar_warmup_options o = options_of();
    const ashlar_status status = ashlar_allocator_warmup(allocator, &o, &report);
    CHECK(status == ASHLAR_OK);
    v->drawn++;
    if (status == ASHLAR_OK && !report.is_steady && number_of("ASHLAR_STEADY_SAY", 0)) {
        printf("# ASHLAR_SEED=%llu: %s\n", (unsigned long long)made.seed, report.unsteady_because);
    }
    if (status == ASHLAR_OK && report.is_steady) {
        v->steady++;
        const uint64_t calls = counts_now().memory, recorded = plans().steps_recorded;
        const size_t reserved = stats_now().reserved_bytes;
        made.is_ready = true;
        run_orders(&o);
        const bool is_broken = counts_now().memory != calls ||
                               stats_now().reserved_bytes != reserved ||
                               plans().steps_recorded != recorded;
        v->broken += is_broken;
        if (is_broken) {
            printf("# ASHLAR_SEED=%llu: %d%d%d%d%d: %zu calls, %zu bytes, %zu recorded\n",
                   (unsigned long long)made.seed, made.without_plan, made.without_dry_run,
                   made.is_eager, made.without_virtual, made.has_small_cache,
                   (size_t)(counts_now().memory - calls), stats_now().reserved_bytes - reserved,
                   (size_t)(plans().steps_recorded - recorded));
        }
    }
    for (size_t i = 0; i < WEIGHTS; i++) {
        give(i == 1 || i == 3 ? NULL : weights[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
}

CASE(what_is_called_steady_takes_no_memory_in_any_order_of_lengths) {
    verdict v = {0};
    const size_t count = number_of("ASHLAR_STEADY_PROGRAMS", PROGRAMS);
    const size_t first = number_of("ASHLAR_SEED", 1);
    for (size_t seed = first; seed < first + count; seed++) {
        make_program(seed);
        char spec[96];
        (void)snprintf(spec, sizeof spec, "memory=2GiB,seed=%d%s%s", (int)(seed % 1000),
                       made.is_eager ? "" : ",mode=adversarial",
                       made.without_virtual ? ",vmm=off" : "");
        REQUIRE(set_up_cached(spec, made.has_small_cache ? 512 * KIB : CACHE_AUTO));
        judge(&v);
        CHECK(atomic_load(&payload_bad_count) == 0);
        tear_down();
    }
    printf("# %zu programs, %zu called steady, %zu of them were not\n", v.drawn, v.steady,
           v.broken);
    CHECK_ZU(v.broken, 0);
    /* 90 % of all programs are; of those drawn, up to 3 standard deviations fewer may be. */
    const double missing = 0.9 * (double)v.drawn - (double)v.steady;
    CHECK(missing <= 0 || missing * missing <= 3 * 3 * 0.9 * 0.1 * (double)v.drawn);
}

/* ---- what is not called steady ---- */

/* Two blocks a step; what becomes of the first one. */
static void make_simple(fate first, bool without_dry_run) {
    made = (made_program){.length_count = 4, .block_count = 2, .without_plan = true};
    made.without_dry_run = without_dry_run;
    for (size_t i = 0; i < made.block_count; i++) {
        made.blocks[i] = (made_block){.base = 3 * MIB, .slope = 1 * MIB, .next = 1};
        made.blocks[i].fate = i == 0 ? first : AT_HOME;
        made.blocks[i].begin = i;
        made.blocks[i].span = 10;
        made.blocks[i].period = 11;
        made.blocks[i].times = 1;
    }
    make_events();
}

static const char *doubt_of(ashlar_warmup_options o) {
    ashlar_warmup_report report = {.is_steady = true};
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK(report.is_steady == (report.unsteady_because == NULL));
    return report.is_steady ? "" : report.unsteady_because;
}

CASE(a_length_that_has_not_run_is_in_doubt_unless_a_plan_serves_it) {
    REQUIRE(set_up_cached("memory=1GiB", CACHE_AUTO));
    make_simple(AT_HOME, true);
    CHECK_HAS(doubt_of(options_of()), "not every length has run");
    made.without_plan = false;
    CHECK(doubt_of(options_of())[0] == '\0');
    make_simple(MOVED, true); /* which its plan knows of */
    made.without_plan = false;
    CHECK(doubt_of(options_of())[0] == '\0');
    made.without_plan = true;
    CHECK_HAS(doubt_of(options_of()), "not every length has run");
    made.bucket_count = made.length_count; /* every length has run */
    CHECK(doubt_of(options_of())[0] == '\0');
}

CASE(without_caches_blocks_of_several_streams_are_in_doubt) {
    REQUIRE(set_up_cached("memory=1GiB", 0));
    make_simple(AT_HOME, false);
    CHECK(doubt_of(options_of())[0] == '\0');
    make_simple(MOVED, false);
    CHECK_HAS(doubt_of(options_of()), "several streams");
}

CASE(a_guard_mode_is_in_doubt) {
    ashlar_config config;
    ashlar_config_init(&config);
    config.guard = ASHLAR_GUARD_FILL;
    REQUIRE(set_up_device("memory=1GiB"));
    REQUIRE(ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK);
    make_simple(AT_HOME, false);
    CHECK_HAS(doubt_of(options_of()), "guard");
    ashlar_allocator_destroy(allocator);
}

/* The step's block lies in the zone of a stream that ended, which cannot wait for it to come home:
 * whether it is there when the next step begins depends on the device. */
CASE(a_pass_that_borrows_from_a_stream_that_ended_proves_nothing) {
    ashlar_stream doomed = NULL;
    REQUIRE(set_up_cached("memory=16MiB,mode=adversarial,seed=3", CACHE_AUTO));
    REQUIRE(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
    unsigned char *kept = take(4096, doomed);
    ashlar_stream_destroy(device, doomed);
    unsigned char *rest = take(14 * MIB, streams[0]);
    make_simple(AT_HOME, false);
    made.block_count = made.length_count = 1;
    made.event_count = 0;
    made.blocks[0].base = made.blocks[0].slope = 500 * KIB + 1;
    made.blocks[0].stream = 1;
    make_events();
    ashlar_warmup_options o = options_of();
    o.step = NULL;
    CHECK_HAS(doubt_of(o), "another stream");
    give(kept);
    give(rest);
}

/* ---- how the promise is kept ---- */

CASE(a_step_waits_in_stream_for_blocks_that_the_last_one_left_away) {
    REQUIRE(set_up_cached("memory=1GiB,mode=adversarial,seed=3", CACHE_AUTO));
    make_simple(MOVED, false);
    const ashlar_warmup_options o = options_of();
    CHECK(doubt_of(o)[0] == '\0');
    run_later(&o, 2);
    CHECK_ZU(stats_now().shared_bytes, 5 * MIB);
    const uint64_t memory_calls = counts_now().memory;
    const size_t waits = CALLS(stream_wait_event);
    CHECK(ashlar_step_begin(allocator, o.stream, o.key) == ASHLAR_OK);
    CHECK_ZU(CALLS(stream_wait_event), waits + 1);
    CHECK_ZU(stats_now().shared_bytes, 0);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK_ZU(counts_now().memory, memory_calls);
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
}

CASE(without_plans_later_steps_are_recorded_only_if_that_is_asked_for) {
    REQUIRE(set_up_cached("memory=1GiB", CACHE_AUTO));
    make_simple(AT_HOME, false);
    const ashlar_warmup_options o = options_of();
    CHECK(doubt_of(o)[0] == '\0');
    run_later(&o, 4);
    run_later(&o, 4);
    CHECK(plans().steps_recorded == 0 && plans().steps_declined == 0 && plans().plan_count == 0);
    ashlar_plan_record_next(allocator, o.key);
    run_later(&o, 4);
    run_later(&o, 3);
    CHECK(plans().steps_recorded == 1 && plans().steps_replayed == 1);
}

RUN_CASES()
