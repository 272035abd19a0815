/*
 * test_thread_orders.c - programs of two threads, each run once for every schedule with at most two
 * preemptions; larger programs, drawn by seed, under random priorities.
 *
 * A program is text, "FIRST0 | FIRST1 | CALLS0 | CALLS1": the calls of each thread, and before them
 * what the thread does alone. A thread's blocks are a pile, and both share a heap of blocks that
 * were given away. With a stream S, 0 or 1:
 *   A S  take a small block for S    B S  a large one    C S  one that no cache keeps
 *   F    free the newest             O S  S waits for its stream; ashlar_free_on(S)
 *   R S  S waits for its stream; ashlar_record_stream(S)
 *   G    give the newest away        X    free the newest of those given away
 *   T    ashlar_allocator_trim(0)    S    statistics    K    ashlar_allocator_check()
 *   D S  ashlar_stream_destroy()     [ ]  ashlar_step_begin(), ashlar_step_end()
 *   E    the thread's end, too, is a part of the schedule
 * Each schedule runs twice: with stores that are seen at once, and with stores that are delayed.
 * Small and large blocks are filled on their stream, and read before they go; the software device
 * does nothing before it must. At the end all is freed, and all memory has to come back.
 *
 * Large programs run by PCT (Burckhardt et al., ASPLOS 2010): n threads of k points in all have
 * random priorities, which change at d - 1 random points. One run finds a fault that needs d points
 * in a certain order with a probability of at least 1 / (n k^(d-1)).
 */
#include "tests/check.h"
#include "tests/orders/scheduler.h"

#include <ctype.h>
#include <signal.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

#include "allocator/base/random.h"
#include "allocator/base/threads.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
    STREAMS = 2,
    PILE = 64,
    TEXT = 400,
    USED_BYTES = 64,
    READS_MAX = 512,
    BOUND = 1,        /* preemptions in each run of the tests, ... */
    BOUND_ALL = 2,    /* ... with --all */
    DEPTH = 3,        /* d */
    DRAWN_CALLS = 24, /* of each thread of a drawn program */
    DRAWN_PROGRAMS = 12,
    DRAWN_RUNS = 20, /* of each of them */
};

/* Of coverage by clang, whose counters threads change without order. */
extern int __llvm_profile_write_file(void) __attribute__((weak));

static const struct {
    const char *text;
    const char *device;
} programs[] = {
    {"A0F | A1F | A0FA0F | A1FA1F", "memory=64MiB"},     /* streams of their own */
    {"A0F | A0F | A0FC0F | A0FC0F", "memory=64MiB"},     /* one stream */
    {"B0GB0G | A1F | B0F | XX", "memory=64MiB"},         /* the other's blocks, sent home */
    {"A0GA0G | A1GA1G | XXA0F | XXA1F", "memory=64MiB"}, /* both ways */
    {"A0FC0F | A1 | A0FC0F | T", "memory=64MiB"},        /* a claim, and hits and misses */
    {"A0F | A1FB1F | A0FA0F | STA1F", "memory=64MiB"},   /* statistics */
    {"A0F | A1A1 | A0FC0F | R0FO0", "memory=64MiB"},     /* shared blocks */
    {"A0F | A1F | C0FA0F | C0FA0F", "memory=64MiB"},     /* the stream goes to the other */
    {"A0FB0 | A1GA1G | A0FXXA0F | D1", "memory=64MiB"},  /* a stream ends */
    {"A0FB0F | A0FA0F | C0FA0F | A0E", "memory=64MiB"},  /* a thread ends */
    {"A0G | A1G | XE | XE", "memory=64MiB"},             /* both do, with what they send */
    {"B0G | B1G | XE | XE", "memory=64MiB"},             /* the same at once */
    {"A0GA1G | A1F | A1FA0F | XX", "memory=64MiB"},      /* what is sent to two streams */
    {"A0F | A1F | [A0F] | A1FC1F", "memory=64MiB"},      /* a step is recorded */
    {"[A0F][A0F] | A1F | [A0F] | TA1F", "memory=64MiB"}, /* and replayed */
    {"[A0][F] | A1F | [A0G]A0F | XT", "memory=64MiB"},   /* with what outlives it */
    {"B0F | B1F | B0F | B1B1FF", "memory=4MiB"},         /* memory is short */
    {" | | A0F | A1F", "memory=64MiB"},                  /* the first call of all */
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

/* ---- a run as a list of choices, and the search through all such lists ---- */

/* A run asks choose() whenever it could go on in several ways, and must depend on nothing else.
 * choices_next() makes the list of the next run, depth first, until every list has been run. */
enum { CHOICES_MAX = 4096 };

typedef struct choices {
    uint16_t made[CHOICES_MAX], ways[CHOICES_MAX]; /* [i]: way ways[i] > made[i] was taken */
    size_t count;                                  /* made in this run so far */
    size_t planned;                                /* of them, those that repeat an earlier run */
    bool is_lost; /* a run asked for more than CHOICES_MAX, or did not repeat what came before */
} choices;

static choices run_choices;

static size_t choose(size_t ways) {
    choices *c = &run_choices;
    if (c->count == CHOICES_MAX || (c->count < c->planned && c->made[c->count] >= ways)) {
        c->is_lost = true;
        return 0;
    }
    const bool repeats = c->count < c->planned;
    c->is_lost |= repeats && c->ways[c->count] != 0 && c->ways[c->count] != ways;
    c->made[c->count] = repeats ? c->made[c->count] : 0;
    c->ways[c->count] = (uint16_t)ways;
    return c->made[c->count++];
}

/* False: all have been run. */
static bool choices_next(void) {
    choices *c = &run_choices;
    while (c->count > 0 && c->made[c->count - 1] + 1 == c->ways[c->count - 1]) {
        c->count--;
    }
    if (c->count == 0) {
        return false;
    }
    c->made[c->count - 1]++;
    c->planned = c->count;
    c->count = 0;
    return true;
}

static void choices_restart(void) {
    run_choices.count = run_choices.planned = 0;
    run_choices.is_lost = false;
}

/* As text: numbers with commas between them, without the last zeros. */
static void choices_print(void) {
    size_t count = run_choices.count;
    while (count > 0 && run_choices.made[count - 1] == 0) {
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        printf("%s%u", i > 0 ? "," : "", run_choices.made[i]);
    }
}

/* ---- the command line, and what is printed at the end ---- */

static struct orders_options {
    bool is_all;       /* --all: the whole search */
    double seconds;    /* --seconds N: for what is drawn; 0: a fixed number */
    uint64_t seed;     /* --seed S */
    const char *one;   /* --program TEXT: this one only, ... */
    const char *scene; /* --scene NAME: ... there, ... */
    const char *order; /* --order LIST: ... and in this order only; NULL: in every one */
} orders_options = {.seed = 1};

static uint64_t program_count, order_count;

static bool orders_read_options(int argc, char **argv) {
    struct orders_options *o = &orders_options;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        const char **text = strcmp(argv[i], "--program") == 0 ? &o->one
                            : strcmp(argv[i], "--scene") == 0 ? &o->scene
                            : strcmp(argv[i], "--order") == 0 ? &o->order
                                                              : NULL;
        if (strcmp(argv[i], "--all") == 0) {
            o->is_all = true;
            continue;
        }
        if (value != NULL && text != NULL) {
            *text = value;
        } else if (value != NULL && strcmp(argv[i], "--seconds") == 0) {
            o->seconds = strtod(value, NULL);
        } else if (value != NULL && strcmp(argv[i], "--seed") == 0) {
            o->seed = strtoull(value, NULL, 10);
        } else {
            printf("usage: %s [--all] [--seconds N] [--seed S]\n"
                   "       [--program TEXT [--scene NAME] [--order LIST]]\n",
                   argv[0]);
            return false;
        }
        i++;
    }
    return true;
}

static double cpu_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int orders_report(void) {
    const int status = check_report();
    printf("# orders: %llu programs, %llu orders, seed %llu; %.1f s of CPU\n",
           (unsigned long long)program_count, (unsigned long long)order_count,
           (unsigned long long)orders_options.seed, cpu_seconds());
    return status;
}

/* ---- the world of one run ---- */

typedef struct held_block {
    unsigned char *ptr;
    size_t bytes;
    int home;
    unsigned char stamp;
} held_block;

typedef struct pile {
    held_block blocks[PILE];
    size_t count;
} pile;

static const char *playing = "", *device_line = "";
static int thread_count;
static char parts[2 * SCHEDULER_TASKS][TEXT]; /* what each thread does first, then its calls */
static ashlar_device *device;
static ashlar_driver *driver;
static ashlar_allocator *allocator;
static ashlar_stream streams[STREAMS];
static bool has_stream[STREAMS];
static pile piles[SCHEDULER_TASKS], given;
static unsigned char *reads; /* [READS_MAX, USED_BYTES], page-locked */
static unsigned char wanted[READS_MAX];
static size_t read_count;
static unsigned char stamps;
static size_t odd_count;
static char drawn_order[64]; /* of a drawn program: its seed */

void scheduler_found(const char *format, ...) {
    va_list args;
    printf("# FOUND: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n# again: --scene %s --program \"%s\" --order \"", device_line, playing);
    if (drawn_order[0] != '\0') {
        printf("%s", drawn_order);
    } else {
        choices_print();
    }
    printf("\"\nnot ok 1 - no schedule breaks a program\n1..1\n");
    printf("# orders: %llu programs, %llu orders, seed %llu\n", (unsigned long long)program_count,
           (unsigned long long)order_count, (unsigned long long)orders_options.seed);
    fflush(stdout);
    _exit(1);
}

static void end_badly(int signal) {
    scheduler_found("the process is ended by signal %d", signal);
}

#define EXPECT(expr) ((expr) ? (void)0 : scheduler_found("line %d: %s", __LINE__, #expr))

static void order_streams(int from, int to) {
    ashlar_event event = NULL;
    EXPECT(ashlar_event_create(device, &event) == ASHLAR_OK);
    EXPECT(ashlar_event_record(device, event, streams[from]) == ASHLAR_OK);
    EXPECT(ashlar_stream_wait(device, streams[to], event) == ASHLAR_OK);
    ashlar_event_destroy(device, event);
}

static void queue_read(const held_block *block, int stream) {
    EXPECT(read_count < READS_MAX);
    if (has_stream[stream]) {
        unsigned char *into = reads + USED_BYTES * read_count;
        wanted[read_count++] = block->stamp;
        EXPECT(ashlar_copy_to_host(device, into, block->ptr, USED_BYTES, streams[stream]) ==
               ASHLAR_OK);
    }
}

static void expect_apart(const pile *p, const unsigned char *ptr, size_t bytes) {
    for (const held_block *b = p->blocks; b < p->blocks + p->count; b++) {
        EXPECT(ptr + bytes <= b->ptr || b->ptr + b->bytes <= ptr); /* handed out twice */
    }
}

static void take(pile *own, size_t bytes, int stream) {
    void *ptr = NULL;
    const ashlar_status status = ashlar_alloc(allocator, bytes, streams[stream], &ptr);
    EXPECT(status == ASHLAR_OK ||
           (status == ASHLAR_ENOMEM && strcmp(device_line, "memory=4MiB") == 0));
    if (ptr != NULL) {
        for (int i = 0; i < thread_count; i++) {
            expect_apart(&piles[i], ptr, bytes);
        }
        expect_apart(&given, ptr, bytes);
        EXPECT(own->count < PILE);
        held_block *block = &own->blocks[own->count++];
        *block = (held_block){ptr, bytes, stream, ++stamps};
        EXPECT(ashlar_fill(device, ptr, block->stamp, USED_BYTES, streams[stream]) == ASHLAR_OK);
    }
}

/* Take it off the pile at once: the other thread may come to the pile before the next line. */
static held_block pop(pile *p, int read_on) {
    const held_block block = p->blocks[--p->count];
    queue_read(&block, read_on < 0 ? block.home : read_on);
    return block;
}

static void pass_on(pile *own, int stream, bool frees) {
    held_block *block = &own->blocks[own->count - 1];
    if (block->home != stream && has_stream[stream] && has_stream[block->home]) {
        order_streams(block->home, stream);
        if (frees) {
            const held_block last = pop(own, stream);
            EXPECT(ashlar_free_on(allocator, last.ptr, streams[stream]) == ASHLAR_OK);
        } else {
            EXPECT(ashlar_record_stream(allocator, block->ptr, streams[stream]) == ASHLAR_OK);
            queue_read(block, stream);
        }
    }
}

static void end_stream(int stream) {
    has_stream[stream] = false;
    ashlar_stream_destroy(device, streams[stream]);
}

static void make_call(pile *own, char kind, int stream) {
    ashlar_stats stats;
    pile *from = kind == 'X' ? &given : own;
    if (strchr("FXOGR", kind) != NULL && from->count == 0) {
        return;
    }
    if (strchr("AC", kind) != NULL) {
        take(own, kind == 'A' ? 4 * KIB : 600 * KIB + 512 * ++odd_count, stream);
    } else if (kind == 'B') {
        take(own, 2 * MIB, stream);
    } else if (kind == 'F') {
        EXPECT(ashlar_free(allocator, pop(own, -1).ptr) == ASHLAR_OK);
    } else if (kind == 'X') {
        scheduler_hear(&given);
        EXPECT(ashlar_free(allocator, given.blocks[--given.count].ptr) == ASHLAR_OK);
    } else if (kind == 'O' || kind == 'R') {
        pass_on(own, stream, kind == 'O');
    } else if (kind == 'G') {
        EXPECT(given.count < PILE);
        const held_block block = pop(own, -1);
        given.blocks[given.count++] = block;
        scheduler_tell(&given);
    } else if (kind == 'T') {
        EXPECT(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    } else if (kind == 'S') {
        ashlar_allocator_get_stats(allocator, &stats);
    } else if (kind == 'K') {
        EXPECT(ashlar_allocator_check(allocator) == ASHLAR_OK);
    } else if (kind == 'D') {
        end_stream(stream);
    } else if (kind == '[') {
        EXPECT(ashlar_step_begin(allocator, streams[0], 1) == ASHLAR_OK);
    } else if (kind == ']') {
        EXPECT(ashlar_step_end(allocator) == ASHLAR_OK);
    }
}

static void make_calls(pile *own, const char *text) {
    for (; *text != '\0'; text++) {
        if (!isspace((unsigned char)*text) && !isdigit((unsigned char)*text)) {
            make_call(own, *text, text[1] - '0');
        }
    }
}

static void prepare(int i) {
    make_calls(&piles[i], parts[i]);
}

static void body(int i) {
    make_calls(&piles[i], parts[thread_count + i]);
}

static bool ends(int i) {
    return strchr(parts[thread_count + i], 'E') != NULL;
}

/* ---- one run ---- */

static bool read_program(const char *text) {
    int count = 0;
    memset(parts, 0, sizeof parts);
    playing = text;
    for (const char *end = text; end != NULL && count < 2 * SCHEDULER_TASKS; text = end + 1) {
        end = strchr(text, '|');
        const size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        if (length >= TEXT) {
            return false;
        }
        memcpy(parts[count++], text, length);
        if (end == NULL) {
            break;
        }
    }
    thread_count = count / 2;
    return count >= 2 && count % 2 == 0;
}

static void open_device(const char *line) {
    char whole[128];
    void *ptr = NULL;
    device_line = line;
    (void)snprintf(whole, sizeof whole, "%s,mode=adversarial", line);
    EXPECT(ashlar__soft_configure(whole) == ASHLAR_OK);
    EXPECT(ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    EXPECT(ashlar_device_open("soft", &device) == ASHLAR_OK);
    EXPECT(ashlar_device_host_alloc(device, READS_MAX * USED_BYTES, &ptr) == ASHLAR_OK);
    reads = ptr;
}

static void close_device(void) {
    ashlar_device_host_free(device, reads);
    ashlar_device_close(device);
}

static void wait_for_device(void) {
    EXPECT(ashlar__device_enter(device) == ASHLAR_OK);
    EXPECT(driver->table.ctx_synchronize() == CU_SUCCESS);
    ashlar__device_leave(device);
}

static void give_all(pile *p) {
    while (p->count > 0) {
        EXPECT(ashlar_free(allocator, pop(p, -1).ptr) == ASHLAR_OK);
    }
    memset(p, 0, sizeof *p);
}

static void check_end(void) {
    ashlar_stats stats;
    for (int i = 0; i < thread_count; i++) {
        give_all(&piles[i]);
    }
    give_all(&given);
    wait_for_device();
    for (size_t i = 0; i < read_count * USED_BYTES; i++) {
        EXPECT(reads[i] == wanted[i / USED_BYTES]); /* a block reads as it was written */
    }
    EXPECT(ashlar_allocator_check(allocator) == ASHLAR_OK);
    EXPECT(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    ashlar_allocator_get_stats(allocator, &stats);
    EXPECT(stats.live_blocks == 0 && stats.live_bytes == 0 && stats.cached_bytes == 0);
    EXPECT(strchr(playing, '[') != NULL || stats.reserved_bytes == 0);
}

static void run_once(scheduler_choice *choice) {
    order_count++;
    read_count = odd_count = 0;
    stamps = 0;
    ashlar__soft_state.random = 1; /* else what the device does would depend on earlier runs */
    EXPECT(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    for (int i = 0; i < STREAMS; i++) {
        EXPECT(ashlar_stream_create(device, &streams[i]) == ASHLAR_OK);
        has_stream[i] = true;
    }
    scheduler_run(thread_count, prepare, body, ends, choice);
    check_end();
    for (int i = 0; i < STREAMS; i++) {
        if (has_stream[i]) {
            end_stream(i);
        }
    }
    ashlar_allocator_destroy(allocator);
}

/* ---- all schedules with few preemptions ---- */

static int preemptions_left;

static size_t choose_bounded(size_t count, bool can_stay, bool is_shared) {
    if (!can_stay) {
        return choose(count);
    }
    if (preemptions_left == 0 || !is_shared) {
        return 0;
    }
    const size_t way = choose(count);
    preemptions_left -= way != 0;
    return way;
}

static void search_one_way(int bound) {
    const uint64_t before = order_count;
    choices_restart();
    do {
        preemptions_left = bound;
        run_once(choose_bounded);
        if (scheduler_grew()) { /* there are more points to be preempted at: begin again */
            order_count = before;
            choices_restart();
            continue;
        }
        EXPECT(!run_choices.is_lost); /* the same choices led elsewhere */
    } while (order_count == before || choices_next());
}

static void search(const char *text, const char *line, int bound) {
    EXPECT(read_program(text));
    open_device(line);
    scheduler_forget();
    const uint64_t before = order_count;
    for (int delays = 0; delays < 2; delays++) {
        scheduler_delay_stores(delays);
        search_one_way(bound);
    }
    close_device();
    program_count++;
    printf("# %-36s %6llu schedules with up to %d preemptions, %llu points\n", text,
           (unsigned long long)(order_count - before), bound,
           (unsigned long long)scheduler_points());
    CHECK(order_count > before);
}

CASE(no_schedule_with_few_preemptions_breaks_a_program) {
    SKIP_IF(!ashlar__barrier_init(), "this kernel has no membarrier(2)");
    SKIP_IF(__llvm_profile_write_file != NULL, "counters of coverage are no part of a program");
    SKIP_IF(orders_options.one != NULL, "one program is given");
    for (size_t i = 0; i < PROGRAMS; i++) {
        search(programs[i].text, programs[i].device, orders_options.is_all ? BOUND_ALL : BOUND);
    }
}

/* ---- random priorities ---- */

static uint64_t random_state, change_at[DEPTH - 1];
static int priorities[SCHEDULER_TASKS];
static uint64_t shared_points, most_points; /* in a run, as far as it is known what is shared */

static size_t choose_by_priority(size_t count, bool can_stay, bool is_shared) {
    const bool is_point = can_stay && is_shared;
    shared_points += is_point;
    for (int i = 0; i < DEPTH - 1 && is_point; i++) {
        if (shared_points == change_at[i]) {
            priorities[scheduler_way(0)] = i; /* below all others */
        }
    }
    size_t best = 0;
    for (size_t way = 1; way < count; way++) {
        if (priorities[scheduler_way(way)] > priorities[scheduler_way(best)]) {
            best = way;
        }
    }
    return best;
}

static void draw_priorities(uint64_t points) {
    for (int i = 0; i < SCHEDULER_TASKS; i++) {
        const int other = (int)ashlar__random_step_below(&random_state, (uint64_t)i + 1);
        priorities[i] = priorities[other];
        priorities[other] = DEPTH + i;
    }
    for (int i = 0; i < DEPTH - 1; i++) {
        change_at[i] = 1 + ashlar__random_step_below(&random_state, points);
    }
}

static void draw_calls(char *text, size_t *length, size_t calls) {
    static const char *const kinds[] = {"A0", "A1", "B0", "B1", "C0", "C1", "F", "F", "F",
                                        "O0", "O1", "R0", "R1", "G",  "X",  "X", "T", "S"};
    for (size_t i = 0; i < calls; i++) {
        const char *kind =
            kinds[ashlar__random_step_below(&random_state, sizeof kinds / sizeof kinds[0])];
        *length += (size_t)snprintf(text + *length, TEXT - *length, "%s", kind);
    }
}

/* Three threads, and a few blocks of each before they begin. */
static void draw_program(char *text) {
    size_t length = 0;
    for (int i = 0; i < 2 * SCHEDULER_TASKS; i++) {
        draw_calls(text, &length, i < SCHEDULER_TASKS ? 4 : DRAWN_CALLS);
        const bool ends_too =
            i >= SCHEDULER_TASKS && ashlar__random_step_below(&random_state, 3) == 0;
        length += (size_t)snprintf(text + length, TEXT - length, "%s%s", ends_too ? "E" : "",
                                   i + 1 < 2 * SCHEDULER_TASKS ? "|" : "");
    }
}

static void run_drawn(uint64_t seed, uint64_t points) {
    random_state = seed;
    draw_priorities(points);
    scheduler_delay_stores(seed % 2 != 0);
    shared_points = 0;
    run_once(choose_by_priority);
    most_points = most_points < shared_points ? shared_points : most_points;
}

static void search_drawn(uint64_t seed) {
    static char text[2 * SCHEDULER_TASKS * TEXT];
    (void)snprintf(drawn_order, sizeof drawn_order, "pct:%llu", (unsigned long long)seed);
    random_state = seed;
    draw_program(text);
    EXPECT(read_program(text));
    open_device(ashlar__random_step_below(&random_state, 2) == 0 ? "memory=64MiB" : "memory=4MiB");
    shared_points = 0;
    scheduler_forget();
    for (uint64_t run = 0; run < DRAWN_RUNS; run++) {
        run_drawn(ashlar__random_mix(seed + run), shared_points + 1); /* as many as the last had */
    }
    close_device();
    drawn_order[0] = '\0';
    program_count++;
}

CASE(drawn_programs_stand_random_priorities) {
    SKIP_IF(!ashlar__barrier_init(), "this kernel has no membarrier(2)");
    SKIP_IF(__llvm_profile_write_file != NULL, "counters of coverage are no part of a program");
    SKIP_IF(orders_options.one != NULL, "one program is given");
    uint64_t seeds = orders_options.seed;
    const uint64_t before = program_count, orders = order_count;
    const uint64_t count = orders_options.is_all ? 50 * DRAWN_PROGRAMS : DRAWN_PROGRAMS;
    const double end = cpu_seconds() + orders_options.seconds;
    while (orders_options.seconds > 0 ? cpu_seconds() < end : program_count < before + count) {
        search_drawn(ashlar__random_step(&seeds));
    }
    printf(
        "# PCT: %llu programs, %llu schedules; n %d, k <= %llu, d %d: a run finds a fault of that "
        "depth with p >= %.1e\n",
        (unsigned long long)(program_count - before), (unsigned long long)(order_count - orders),
        SCHEDULER_TASKS, (unsigned long long)most_points, DEPTH,
        1 / (SCHEDULER_TASKS * pow((double)most_points, DEPTH - 1)));
    CHECK(order_count > orders);
}

CASE(the_given_program_stands) {
    SKIP_IF(orders_options.one == NULL, "no program is given");
    const struct orders_options *o = &orders_options;
    const char *line = o->scene != NULL ? o->scene : programs[0].device;
    unsigned long long seed = 0;
    if (o->order != NULL && sscanf(o->order, "pct:%llu", &seed) == 1) {
        search_drawn(seed);
        CHECK(order_count == DRAWN_RUNS);
    } else {
        search(o->one, line, BOUND_ALL);
    }
}

int main(int argc, char **argv) {
    if (!orders_read_options(argc, argv)) {
        return 2;
    }
    (void)signal(SIGABRT, end_badly);
    (void)signal(SIGSEGV, end_badly);
    check_run_cases();
    return orders_report();
}
