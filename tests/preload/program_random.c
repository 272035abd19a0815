/*
 * program_random.c - a program of drawn requests: memory by every call that gives it, work that
 * writes and reads it, streams, contexts, captures, graphs and pools that come and go. It knows
 * nothing of ashlar; tests/random_programs.py compares it alone with itself under the preload.
 *
 *     program_random SEED COUNT WORD...
 *
 * COUNT acts are done. Words:
 *
 *   any          sizes that are no whole pages, too
 *   plain        no memory in the order of streams
 *   devices      two
 *   no-captures  no graphs, either
 *   no-contexts  none but the devices' own
 *   on           past a request that is refused
 *
 * Prints a line for each act, and at the end what it needed. Ends with one of the END_... of
 * program_random.h.
 */
#include "program_random.h"

#include <pthread.h>
#include <stdarg.h>

program p;

/* ---- results ---- */

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%llu [%d]: ", (unsigned long long)p.number, p.thread);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    p.done++;
}

static void finish(int status) {
    (void)fflush(stdout);
    _Exit(status);
}

void must(cu_result result, const char *what) {
    if (result != CU_SUCCESS) {
        printf("%llu: error %u: %s\n", (unsigned long long)p.number, result, what);
        finish(END_ERROR);
    }
}

bool served(cu_result result, const char *what) {
    if (result != CU_OUT_OF_MEMORY) {
        must(result, what);
        return true;
    }
    printf("%llu: refused: %s\n", (unsigned long long)p.number, what);
    p.refused++;
    if (!p.goes_on) {
        finish(END_REFUSED);
    }
    return false;
}

/* Two for each context's memory of any stream, and two for each stream that was given some. */
void count_zones(void) {
    int zones = 0;
    for (int c = 0; c < CONTEXTS; c++) {
        zones += p.contexts[c].handle != NULL ? 2 : 0;
        for (int s = 0; s < STREAMS; s++) {
            zones += p.contexts[c].streams[s].has_allocated ? 2 : 0;
        }
    }
    for (int i = 0; i < BLOCKS; i++) { /* of streams that ended, at most so many */
        zones += p.blocks[i].ptr != 0 && p.blocks[i].kind == ON_STREAM && p.blocks[i].after != NULL;
    }
    p.zones = zones > p.zones ? zones : p.zones;
}

/* ---- what may be done now ---- */

bool may_call_unsafe(void) {
    if (!p.g.is_capturing || (p.thread == 1 && p.is_relaxed)) {
        return true;
    }
    return p.g.mode == CU_CAPTURE_RELAXED ||
           (p.g.mode == CU_CAPTURE_THREAD_LOCAL && p.g.thread != p.thread);
}

bool is_captured(int c, int s) {
    return p.g.is_capturing && p.g.context == c && p.g.stream == s;
}

bool may_queue(int s) {
    return !is_captured(p.now, s) && (s != 0 || !p.g.is_capturing || p.g.context != p.now ||
                                      !p.contexts[p.now].streams[p.g.stream].is_blocking);
}

int pick_stream(uint64_t number) {
    const int first = (int)(number % STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        if (p.contexts[p.now].streams[(first + i) % STREAMS].is_there) {
            return (first + i) % STREAMS;
        }
    }
    return 0;
}

block *pick_block(uint64_t number) {
    const int first = (int)(number % BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        block *b = &p.blocks[(first + i) % BLOCKS];
        if (b->ptr != 0 && b->context == p.now) {
            return b;
        }
    }
    return NULL;
}

/* ---- acts ---- */

static uint64_t next_random(uint64_t *state) {
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Acts by how often they come. */
static const struct {
    void (*act)(const draw *d);
    unsigned share;
} acts[] = {
    {act_alloc, 30},  {act_free, 24},  {act_work, 40},   {act_wait, 6},   {act_wait_all, 3},
    {act_event, 3},   {act_stream, 4}, {act_context, 3}, {act_create, 4}, {act_release, 4},
    {act_info, 2},    {act_pool, 2},   {act_begin, 4},   {act_end, 6},    {act_launch, 5},
    {act_destroy, 4}, {act_module, 2},
};

typedef void act_fn(const draw *d);

static act_fn *choose_act(const draw *d) {
    unsigned total = 0;
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        total += acts[i].share;
    }
    unsigned at = (unsigned)(d->kind % total);
    size_t i = 0;
    for (; at >= acts[i].share; i++) {
        at -= acts[i].share;
    }
    return acts[i].act;
}

/* The context of an act, most often the first. */
static void choose_context(uint64_t number) {
    p.now = number % 2 == 0 ? 0 : (int)(number / 2 % CONTEXTS);
    if (p.contexts[p.now].handle == NULL) {
        p.now = 0;
    }
    MUST(p.cu.set_current(p.contexts[p.now].handle));
}

/* ---- two threads by turns ---- */

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static act_fn *turn; /* what the second thread does now; NULL: it is the first one's turn */
static const draw *turn_draw;
static bool is_over;

static void take_turn(act_fn *act, const draw *d) {
    choose_context(d->where);
    act(d);
}

static void *run_second(void *unused) {
    pthread_mutex_lock(&turn_lock);
    if (p.is_relaxed) {
        unsigned int mode = CU_CAPTURE_RELAXED;
        MUST(p.cu.exchange_mode(&mode));
    }
    for (;;) {
        while (turn == NULL && !is_over) {
            pthread_cond_wait(&turn_changed, &turn_lock);
        }
        if (is_over) {
            break;
        }
        take_turn(turn, turn_draw);
        turn = NULL;
        pthread_cond_broadcast(&turn_changed);
    }
    pthread_mutex_unlock(&turn_lock);
    return unused;
}

static void act_by(int thread, act_fn *act, const draw *d) {
    p.thread = thread;
    if (thread == 0) {
        take_turn(act, d);
        return;
    }
    pthread_mutex_lock(&turn_lock);
    turn = act;
    turn_draw = d;
    pthread_cond_broadcast(&turn_changed);
    while (turn != NULL) {
        pthread_cond_wait(&turn_changed, &turn_lock);
    }
    pthread_mutex_unlock(&turn_lock);
}

/* ---- from the beginning to the end ---- */

static void begin(size_t *free_bytes) {
    size_t total_bytes = 0;
    MUST(p.cu.init(0));
    for (int device = p.device_count; device-- > 0;) {
        context *c = &p.contexts[device];
        MUST(p.cu.retain(&c->handle, device));
        MUST(p.cu.set_current(c->handle));
        c->device = device;
        c->streams[0].is_there = c->streams[0].is_blocking = true;
        MUST(p.cu.mem_get_info(&free_bytes[device], &total_bytes));
    }
}

/* All blocks are looked at once more, and freed. */
static void free_all(void) {
    for (int i = 0; i < BLOCKS; i++) {
        block *b = &p.blocks[i];
        if (b->ptr != 0) {
            p.now = b->context;
            MUST(p.cu.set_current(p.contexts[p.now].handle));
            const int on = b->on == NOWHERE ? 0 : b->on;
            order(b, on);
            use_block(b, on);
            free_block(b, on);
        }
    }
    for (int i = 0; i < HANDLES; i++) {
        if (p.handles[i].handle != 0) {
            release_handle(&p.handles[i]);
        }
    }
}

static void end_contexts(void) {
    for (p.now = CONTEXTS; p.now-- > 0;) {
        context *c = &p.contexts[p.now];
        if (c->handle == NULL) {
            continue;
        }
        MUST(p.cu.set_current(c->handle));
        for (int s = 1; s < STREAMS; s++) {
            if (c->streams[s].is_there) {
                end_stream(s);
            }
        }
        for (int i = 0; i < MODULES; i++) {
            if (p.modules[p.now][i] != NULL) {
                MUST(p.cu.module_unload(p.modules[p.now][i]));
            }
        }
        MUST(p.cu.synchronize());
        if (c->is_made) {
            MUST(p.cu.ctx_destroy(c->handle));
            *c = (context){0};
        }
    }
}

/* With nothing left, all that was free at first can be had. */
static void take_all(const size_t *free_bytes) {
    p.goes_on = false;
    for (int device = 0; device < p.device_count; device++) {
        const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED,
                                  .location = {CU_LOCATION_DEVICE, device}};
        cu_mem_handle handle = 0;
        MUST(p.cu.set_current(p.contexts[device].handle));
        say("take all of device %d: %zu MiB", device, free_bytes[device] / MIB);
        (void)SERVED(p.cu.mem_create(&handle, free_bytes[device], &prop, 0));
        MUST(p.cu.mem_release(handle));
    }
}

static void end(const size_t *free_bytes) {
    static const draw none;
    void *pool = NULL;
    p.number++;
    act_by(p.g.is_capturing ? p.g.thread : 0, act_end, &none);
    act_by(0, act_destroy, &none);
    free_all();
    end_contexts();
    choose_context(0);
    MUST(p.cu.pool_default(&pool, 0));
    MUST(p.cu.pool_set(0, pool));
    if (p.own_pool != NULL) {
        MUST(p.cu.pool_destroy(p.own_pool));
    }
    take_all(free_bytes);
}

static void run(uint64_t seed, uint64_t count) {
    pthread_t second;
    size_t free_bytes[DEVICES] = {0};
    begin(free_bytes);
    MUST((cu_result)pthread_create(&second, NULL, run_second, NULL));
    for (p.number = 0; p.number < count; p.number++) {
        uint64_t state = seed * 0x2545F4914F6CDD1Du + p.number * 0x9FB21C651E98DF25u;
        const draw d = {next_random(&state), next_random(&state), next_random(&state),
                        next_random(&state), next_random(&state)};
        const int thread = next_random(&state) % 4 == 0;
        act_by(thread, choose_act(&d), &d);
    }
    end(free_bytes);
    pthread_mutex_lock(&turn_lock);
    is_over = true;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&turn_lock);
    (void)pthread_join(second, NULL);
}

int main(int argc, char **argv) {
    p.device_count = 1;
    for (int i = 3; i < argc; i++) {
        p.has_any_sizes |= strcmp(argv[i], "any") == 0;
        p.is_plain |= strcmp(argv[i], "plain") == 0;
        p.has_no_captures |= strcmp(argv[i], "no-captures") == 0;
        p.has_no_contexts |= strcmp(argv[i], "no-contexts") == 0;
        p.goes_on |= strcmp(argv[i], "on") == 0;
        p.device_count = strcmp(argv[i], "devices") == 0 ? DEVICES : p.device_count;
    }
    if (argc < 3 || !driver_calls_find(&p.cu)) {
        printf("usage: %s SEED COUNT WORD...\n", argv[0]);
        return END_USAGE;
    }
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    p.is_relaxed = seed % 2 == 0;
    p.is_hasty = seed / 2 % 2 == 0;
    run(seed, strtoull(argv[2], NULL, 10));
    const size_t peak = p.peak_bytes[0] > p.peak_bytes[1] ? p.peak_bytes[0] : p.peak_bytes[1];
    printf("done %zu, refused %zu, peak %zu MiB, zones %d\n", p.done, p.refused,
           (peak + 2 * MIB - 1) / (2 * MIB) * 2, p.zones); /* in whole pages */
    return overwritten() > 0 ? END_OVERWRITTEN : END_WELL;
}
