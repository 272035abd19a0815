/*
 * test_device_orders.c - small programs on two streams, each run once for every order in which the
 * device may execute what the program and the allocator queue.
 *
 * device_program.h has the calls. At the end of a program each block that is left is read and
 * freed, and the host waits for the device. A scene "steps" runs it three times as a step:
 * recorded, and twice on its plan.
 *
 * A fault is a block that does not read as it was written, memory that is live twice, a request
 * that fails although memory is there, a check of the allocator's that fails, or anything that CUDA
 * leaves undefined (strict=on).
 */
#include "tests/orders/choices.h"
#include "tests/orders/device_program.h"

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "tests/allocator/soft/soft_probe.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
    USED_BYTES = 64,
    READS_MAX = 64,
    LENGTH = 4,          /* all programs so long are searched, ... */
    DRAWN = 6,           /* ... and programs drawn by seed are so long: ... */
    DRAWN_PROGRAMS = 40, /* ... so many, or with --all ten times as many, or --seconds */
    ORDERS_MAX = 2000, /* of one program in one scene, with --all a hundred times as many; what has
                        * more is counted as cut */
};

typedef struct scene {
    const char *name, *device;
    size_t block_bytes;
    size_t room_bytes; /* a request must be served if live blocks and it are no more than that */
    bool is_stepped;
} scene;

static const scene scenes[] = {
    {"empty", "memory=64MiB", 4 * KIB, 64 * MIB, false},
    {"empty-large", "memory=64MiB,recycle=on", 2 * MIB, 64 * MIB, false},
    {"full", "memory=4MiB", 2 * MIB, 4 * MIB, false},
    {"full-small", "memory=2MiB,recycle=on", 4 * KIB, 4 * KIB, false},
    {"steps", "memory=64MiB", 4 * KIB, 64 * MIB, true},
    {"steps-full", "memory=4MiB", 2 * MIB, 0, true},
};
enum { SCENES = sizeof scenes / sizeof scenes[0] };

/* ---- one run ---- */

static uint64_t cut_count; /* programs in scenes with too many orders */
static bool has_found;     /* a fault: it is printed, and the search is over */
static const scene *playing;
static const program *running;
static bool is_searching; /* else the device does nothing before it must, oldest stream first */
static ashlar_device *device;
static ashlar_driver *driver;
static ashlar_allocator *allocator;
static ashlar_stream streams[STREAMS]; /* NULL: not made */
static unsigned char *reads;           /* [READS_MAX, USED_BYTES], page-locked */
static unsigned char wanted[READS_MAX];
static size_t read_count;

typedef struct held_block {
    unsigned char *ptr; /* NULL: freed, or refused */
    int home;
    bool is_stranded;
    unsigned char stamp;
} held_block;

static held_block blocks[BLOCKS];
static int block_count;

static size_t choose_for_device(size_t ways) {
    return is_searching ? choose(ways) : 0;
}

static void found(const char *what) {
    if (!has_found) {
        has_found = true;
        is_searching = false;
        printf("# FOUND: %s\n# again: --scene %s --program \"", what, playing->name);
        print_program(running);
        printf("\" --order \"");
        choices_print();
        printf("\"\n");
    }
}

#define EXPECT(expr) ((expr) ? (void)0 : found(#expr))

static void end_badly(int signal) {
    found(signal == SIGABRT ? "the process is aborted" : "the process crashes");
    printf("not ok 1 - ended by signal %d\n1..1\n", signal);
    fflush(stdout);
    _exit(1);
}

/* Bytes at a block's beginning are filled, and copied to page-locked memory, each copy to a place
 * of its own: looked at when all is over. */
static void queue_fill(const held_block *block) {
    EXPECT(ashlar_fill(device, block->ptr, block->stamp, USED_BYTES, streams[block->home]) ==
           ASHLAR_OK);
}

static void queue_read(const held_block *block, int stream) {
    EXPECT(read_count < READS_MAX);
    if (read_count < READS_MAX) {
        wanted[read_count] = block->stamp;
        EXPECT(ashlar_copy_to_host(device, reads + USED_BYTES * read_count, block->ptr, USED_BYTES,
                                   streams[stream]) == ASHLAR_OK);
        read_count++;
    }
}

static void check_reads(void) {
    for (size_t i = 0; i < read_count * USED_BYTES; i++) {
        EXPECT(reads[i] == wanted[i / USED_BYTES]); /* a block reads as it was written */
    }
}

static void order_streams(int from, int to) {
    ashlar_event event = NULL;
    EXPECT(ashlar_event_create(device, &event) == ASHLAR_OK);
    EXPECT(ashlar_event_record(device, event, streams[from]) == ASHLAR_OK);
    EXPECT(ashlar_stream_wait(device, streams[to], event) == ASHLAR_OK);
    ashlar_event_destroy(device, event);
}

static void take(int stream) {
    const size_t bytes = playing->block_bytes;
    held_block *block = &blocks[block_count++];
    void *ptr = NULL;
    size_t live = 0;
    const ashlar_status status = ashlar_alloc(allocator, bytes, streams[stream], &ptr);
    for (const held_block *b = blocks; b < block; b++) {
        live += b->ptr != NULL ? bytes : 0;
        EXPECT(ptr == NULL || b->ptr == NULL || (unsigned char *)ptr + bytes <= b->ptr ||
               b->ptr + bytes <= (unsigned char *)ptr); /* live twice */
    }
    EXPECT(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
    EXPECT(status == ASHLAR_OK || live + bytes > playing->room_bytes); /* memory is there */
    *block = (held_block){ptr, stream, false,
                          (unsigned char)(read_count * BLOCKS + (size_t)block_count)};
    if (ptr != NULL) {
        queue_fill(block);
    }
}

static void give(held_block *block) {
    if (!block->is_stranded) {
        queue_read(block, block->home);
    }
    EXPECT(ashlar_free(allocator, block->ptr) == ASHLAR_OK);
    block->ptr = NULL;
}

static void end_stream(int stream) {
    for (held_block *b = blocks; b < blocks + block_count; b++) {
        if (b->ptr != NULL && b->home == stream && !b->is_stranded) {
            queue_read(b, stream);
            b->is_stranded = true;
        }
    }
    ashlar_stream_destroy(device, streams[stream]);
    streams[stream] = NULL;
}

static void pass_on(call c, held_block *block) {
    order_streams(block->home, c.stream);
    if (c.kind == 'L') {
        EXPECT(ashlar_record_stream(allocator, block->ptr, streams[c.stream]) == ASHLAR_OK);
    }
    queue_read(block, c.stream);
    if (c.kind == 'O') {
        EXPECT(ashlar_free_on(allocator, block->ptr, streams[c.stream]) == ASHLAR_OK);
        block->ptr = NULL;
    }
}

static void make_call(call c) {
    held_block *block = &blocks[c.block];
    const bool needs_block = strchr("FOL", c.kind) != NULL;
    if (needs_block && block->ptr == NULL) {
        return; /* its allocation was refused */
    }
    if (c.kind != 'F' && streams[c.stream] == NULL) {
        EXPECT(ashlar_stream_create(device, &streams[c.stream]) == ASHLAR_OK);
    }
    if (c.kind == 'A') {
        take(c.stream);
    } else if (c.kind == 'F') {
        give(block);
    } else if (needs_block) {
        pass_on(c, block);
    } else if (c.kind == 'W') {
        order_streams(1 - c.stream, c.stream);
    } else if (c.kind == 'Y') {
        EXPECT(ashlar_stream_synchronize(device, streams[c.stream]) == ASHLAR_OK);
    } else if (c.kind == 'D') {
        end_stream(c.stream);
    }
}

static void play(void) {
    block_count = 0;
    memset(blocks, 0, sizeof blocks);
    for (size_t i = 0; i < running->length; i++) {
        make_call(running->calls[i]);
    }
    for (held_block *b = blocks; b < blocks + block_count; b++) {
        if (b->ptr != NULL) {
            give(b);
        }
    }
}

static void wait_for_device(void) {
    EXPECT(ashlar__device_enter(device) == ASHLAR_OK);
    EXPECT(driver->table.ctx_synchronize() == CU_SUCCESS);
    ashlar__device_leave(device);
}

static void play_as_steps(void) {
    for (int i = 0; i < 3; i++) {
        is_searching = i > 0 && !has_found;
        if (streams[0] == NULL) {
            EXPECT(ashlar_stream_create(device, &streams[0]) == ASHLAR_OK);
        }
        EXPECT(ashlar_step_begin(allocator, streams[0], 1) == ASHLAR_OK);
        play();
        const ashlar_status status = ashlar_step_end(allocator); /* a plan may not fit */
        EXPECT(status == ASHLAR_OK || (status == ASHLAR_ENOMEM && playing->room_bytes == 0));
        if (i == 0) {
            wait_for_device();
        }
    }
}

static void run_once(void) {
    order_count++;
    read_count = 0;
    memset(reads, 0, READS_MAX * USED_BYTES);
    EXPECT(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    if (playing->is_stepped) {
        const ashlar_plan_options options = {.search_ms =
                                                 ASHLAR_PLAN_SEARCH_NONE}; /* and no wait */
        EXPECT(ashlar_plan_set_options(allocator, &options) == ASHLAR_OK);
        play_as_steps();
    } else {
        is_searching = true;
        play();
    }
    wait_for_device();
    is_searching = false;
    check_reads();
    EXPECT(ashlar_allocator_check(allocator) == ASHLAR_OK);
    EXPECT(!run_choices.is_lost); /* the same choices led elsewhere */
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i] != NULL) {
            ashlar_stream_destroy(device, streams[i]);
            streams[i] = NULL;
        }
    }
    ashlar_allocator_destroy(allocator);
}

/* ---- the search ---- */

static void open_scene(const scene *s) {
    char line[128];
    playing = s;
    (void)snprintf(line, sizeof line, "%s,mode=adversarial", s->device);
    EXPECT(ashlar__soft_configure(line) == ASHLAR_OK);
    EXPECT(ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    EXPECT(ashlar_device_open("soft", &device) == ASHLAR_OK);
    void *ptr = NULL;
    EXPECT(ashlar_device_host_alloc(device, READS_MAX * USED_BYTES, &ptr) == ASHLAR_OK);
    reads = ptr;
}

static uint64_t orders_max(void) {
    return orders_options.is_all ? 100 * ORDERS_MAX : ORDERS_MAX;
}

static void close_scene(void) {
    ashlar_device_host_free(device, reads);
    ashlar_device_close(device);
}

/* A device for each program, since its table of handles may only grow. */
static void search_orders(const program *p, const scene *s) {
    running = p;
    open_scene(s);
    const uint64_t before = order_count;
    choices_restart();
    do {
        run_once();
    } while (!has_found && choices_next() && order_count - before < orders_max());
    cut_count += order_count - before == orders_max();
    close_scene();
}

static void search_scenes(const program *p) {
    program_count++;
    for (size_t i = 0; i < SCENES && !has_found; i++) {
        search_orders(p, &scenes[i]);
    }
}

static void search_longer(program *p, const sketch *s, size_t length) {
    call next[CALLS_MAX];
    const size_t count = calls_after(s, next);
    for (size_t i = 0; i < count && !has_found; i++) {
        sketch after = *s;
        sketch_add(&after, next[i]);
        p->calls[p->length++] = next[i];
        if (may_end_with(next[i])) {
            search_scenes(p);
        }
        if (p->length < length) {
            search_longer(p, &after, length);
        }
        p->length--;
    }
}

static void search_all(size_t length) {
    program p = {.length = 0};
    const sketch nothing = {.block_count = 0};
    search_longer(&p, &nothing, length);
    CHECK(!has_found);
}

static void search_drawn(uint64_t *state) {
    program p = {.length = 0};
    sketch s = {.block_count = 0};
    while (p.length < DRAWN) {
        call next[CALLS_MAX];
        const size_t count = calls_after(&s, next);
        const call c = next[ashlar__random_step_below(state, count)];
        sketch_add(&s, c);
        p.calls[p.length++] = c;
    }
    program_count++;
    search_orders(&p, &scenes[ashlar__random_step_below(state, SCENES)]);
}

static void run_given(void) {
    program p;
    REQUIRE(read_program(orders_options.one, &p));
    for (size_t i = 0; i < SCENES; i++) {
        if (orders_options.scene != NULL && strcmp(orders_options.scene, scenes[i].name) != 0) {
            continue;
        }
        if (orders_options.order == NULL) {
            search_orders(&p, &scenes[i]);
            continue;
        }
        running = &p;
        open_scene(&scenes[i]);
        choices_read(orders_options.order);
        run_once();
        close_scene();
    }
    program_count = 1;
    CHECK(!has_found && order_count > 0);
}

CASE(in_every_order_of_the_device_short_programs_keep_their_contents) {
    SKIP_IF(orders_options.one != NULL, "one program is given");
    search_all(LENGTH);
    printf("# all programs of up to %d calls: %llu, in %d scenes; %llu orders, %llu cut at %llu\n",
           LENGTH, (unsigned long long)program_count, (int)SCENES, (unsigned long long)order_count,
           (unsigned long long)cut_count, (unsigned long long)orders_max());
}

CASE(in_every_order_of_the_device_drawn_programs_keep_their_contents) {
    SKIP_IF(orders_options.one != NULL, "one program is given");
    uint64_t state = orders_options.seed;
    const uint64_t programs = program_count, orders = order_count;
    const uint64_t count = orders_options.is_all ? 10 * DRAWN_PROGRAMS : DRAWN_PROGRAMS;
    const double end = cpu_seconds() + orders_options.seconds;
    cut_count = 0;
    while (!has_found &&
           (orders_options.seconds > 0 ? cpu_seconds() < end : program_count < programs + count)) {
        search_drawn(&state);
    }
    CHECK(!has_found);
    printf("# drawn programs of %d calls: %llu, %llu orders, %llu cut at %llu\n", DRAWN,
           (unsigned long long)(program_count - programs),
           (unsigned long long)(order_count - orders), (unsigned long long)cut_count,
           (unsigned long long)orders_max());
}

CASE(the_given_program_keeps_its_contents) {
    SKIP_IF(orders_options.one == NULL, "no program is given");
    run_given();
}

int main(int argc, char **argv) {
    if (!orders_read_options(argc, argv)) {
        return 2;
    }
    (void)signal(SIGABRT, end_badly);
    (void)signal(SIGSEGV, end_badly);
    ashlar__soft_choose_by(choose_for_device);
    check_run_cases();
    return orders_report();
}
