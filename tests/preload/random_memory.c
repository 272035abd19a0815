/* random_memory.c - acts of program_random that take memory and free it. */
#include "program_random.h"

/* What the driver's memory is counted in; and how much a program has at a time, at most. */
#define PAGE (2 * MIB)
#define LIVE_MAX (96 * MIB)

void count_live(cu_device device, size_t bytes, bool is_more) {
    size_t *live = &p.live_bytes[device];
    *live = is_more ? *live + bytes : *live - bytes;
    p.peak_bytes[device] = *live > p.peak_bytes[device] ? *live : p.peak_bytes[device];
}

static size_t draw_bytes(uint64_t number) {
    const uint64_t way = number % 8, more = number / 8;
    if (way < 2) {
        return (size_t)(more % (512 * KIB)) + 1;
    }
    return p.has_any_sizes ? (size_t)(more % (12 * MIB)) + 1
                           : (size_t)(more % (way == 7 ? 12 : 4) + 1) * PAGE;
}

static block *free_place(void) {
    for (int i = 0; i < BLOCKS; i++) {
        if (p.blocks[i].ptr == 0) {
            return &p.blocks[i];
        }
    }
    return NULL;
}

static const char *const kinds[] = {"alloc", "alloc-pitch", "alloc-managed", "alloc-async",
                                    "alloc-from-pool"};
_Static_assert(sizeof kinds / sizeof kinds[0] == BLOCK_KINDS, "one for each");

static cu_result take(block *b, cu_stream stream) {
    size_t pitch;
    switch (b->kind) {
    case PLAIN:
        return p.cu.mem_alloc(&b->ptr, b->bytes);
    case PITCHED: /* whose rows the driver makes longer */
        return p.cu.mem_alloc_pitch(&b->ptr, &pitch, 512, (b->bytes + 511) / 512, 4);
    case MANAGED:
        return p.cu.mem_alloc_managed(&b->ptr, b->bytes, 1);
    case ON_STREAM:
        return p.cu.mem_alloc_async(&b->ptr, b->bytes, stream);
    default:
        return p.cu.mem_alloc_from_pool(&b->ptr, b->bytes, p.own_pool, stream);
    }
}

/* Kinds by how often they come. */
static block_kind draw_kind(uint64_t number) {
    static const block_kind often[] = {PLAIN,     PLAIN,     PLAIN,     PLAIN,   ON_STREAM,
                                       ON_STREAM, ON_STREAM, FROM_POOL, PITCHED, MANAGED};
    const block_kind kind = often[number % (sizeof often / sizeof often[0])];
    if (p.is_plain && kind >= ON_STREAM) {
        return PLAIN;
    }
    const bool has_pool = p.own_pool != NULL && p.contexts[p.now].device == 0;
    return kind == FROM_POOL && !has_pool ? ON_STREAM : kind;
}

/* In a capture a block that its stream gives is the graph's, too. */
void act_alloc(const draw *d) {
    context *here = &p.contexts[p.now];
    block *b = free_place();
    const size_t bytes = draw_bytes(d->a);
    const int on = pick_stream(d->c);
    const bool is_in_graph = is_captured(p.now, on);
    if (b == NULL || !may_call_unsafe() || p.live_bytes[here->device] + bytes > LIVE_MAX) {
        return;
    }
    *b = (block){.bytes = bytes,
                 .kind = draw_kind(d->b),
                 .context = p.now,
                 .value = NOWHERE,
                 .graph_value = NOWHERE};
    const bool is_on_stream = b->kind >= ON_STREAM;
    if (is_on_stream && !is_in_graph && !may_queue(on)) {
        *b = (block){0};
        return;
    }
    say("%s %zu KiB, context %d stream %d", kinds[b->kind], bytes / KIB, p.now,
        is_on_stream ? on : NOWHERE);
    if (!SERVED(take(b, here->streams[on].handle))) {
        *b = (block){0};
        return;
    }
    b->on = is_on_stream ? on : NOWHERE;
    b->is_in_graph = is_on_stream && is_in_graph;
    here->streams[on].has_allocated |= is_on_stream;
    count_live(here->device, bytes, true);
    count_zones();
    if (d->c / STREAMS % 2 == 0) {
        work_on(b, pick_stream(d->b / 10), d->a % 3 == 0);
    }
}

void free_block(block *b, int stream) {
    say("free %d on stream %d", (int)(b - p.blocks), b->kind < ON_STREAM ? NOWHERE : stream);
    if (b->kind < ON_STREAM) {
        MUST(p.cu.mem_free(b->ptr)); /* whatever is still queued */
    } else {
        order(b, stream);
        MUST(p.cu.mem_free_async(b->ptr, p.contexts[b->context].streams[stream].handle));
    }
    count_live(p.contexts[b->context].device, b->bytes, false);
    *b = (block){0};
}

void act_free(const draw *d) {
    block *b = pick_block(d->a);
    if (b != NULL && !b->is_in_graph && d->b / 4 % 3 == 0) {
        work_on(b, pick_stream(d->c / STREAMS), false);
    }
    if (b == NULL || b->is_in_graph || !may_call_unsafe()) {
        return;
    }
    const int on = d->b % 4 == 0 || b->on == NOWHERE ? pick_stream(d->c) : b->on;
    if (b->kind >= ON_STREAM && (!may_queue(on) || (b->on != NOWHERE && !may_queue(b->on)))) {
        return;
    }
    free_block(b, on);
}

/* On any device, whichever is current. */
void act_create(const draw *d) {
    const cu_device device = (cu_device)(d->a % (uint64_t)p.device_count);
    const size_t bytes = (size_t)(d->b % 6 + 1) * PAGE;
    const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED,
                              .location = {CU_LOCATION_DEVICE, device}};
    physical *h = &p.handles[d->c % HANDLES];
    if (h->handle != 0 || !may_call_unsafe() || p.live_bytes[device] + bytes > LIVE_MAX) {
        return;
    }
    say("create %zu MiB on device %d in context %d", bytes / MIB, device, p.now);
    if (SERVED(p.cu.mem_create(&h->handle, bytes, &prop, 0))) {
        h->bytes = bytes;
        h->device = device;
        count_live(device, bytes, true);
    } else {
        h->handle = 0;
    }
}

void release_handle(physical *h) {
    say("release %d", (int)(h - p.handles));
    MUST(p.cu.mem_release(h->handle));
    count_live(h->device, h->bytes, false);
    *h = (physical){0};
}

void act_release(const draw *d) {
    physical *h = &p.handles[d->a % HANDLES];
    if (h->handle != 0 && may_call_unsafe()) {
        release_handle(h);
    }
}

/* The line is compared with that of the program alone: what is free there is free. Either figure
 * may be left out, if the driver allows that. */
void act_info(const draw *d) {
    size_t free_bytes = 0, total_bytes = 0;
    if (!may_call_unsafe()) {
        return;
    }
    if (d->a % 4 == 0) {
        const cu_result results[] = {p.cu.mem_get_info(NULL, &total_bytes),
                                     p.cu.mem_get_info(&free_bytes, NULL),
                                     p.cu.mem_get_info(NULL, NULL)};
        say("info by halves: %u %u %u", results[0], results[1], results[2]);
    } else {
        MUST(p.cu.mem_get_info(&free_bytes, &total_bytes));
        say("info: %zu MiB free of %zu", free_bytes / MIB, total_bytes / MIB);
    }
}

void act_pool(const draw *d) {
    const cu_mem_prop props = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
    void *pool = NULL;
    if (p.is_plain || !may_call_unsafe()) {
        return;
    }
    if (p.own_pool == NULL) {
        say("make a pool");
        MUST(p.cu.pool_create(&p.own_pool, &props)); /* whose properties begin alike */
    }
    MUST(p.cu.pool_default(&pool, 0));
    switch (d->a % 4) {
    case 0:
        say("trim the %s pool", d->b % 2 == 0 ? "own" : "default");
        MUST(p.cu.pool_trim(d->b % 2 == 0 ? p.own_pool : pool, 0));
        break;
    case 1:
        say("set the own pool");
        MUST(p.cu.pool_set(0, p.own_pool));
        break;
    default:
        say("set the default pool");
        MUST(p.cu.pool_set(0, pool));
        break;
    }
}
