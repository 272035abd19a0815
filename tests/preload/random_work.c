/* random_work.c - acts of program_random that queue work, wait for it, and make and end streams and
 * contexts. */
#include "program_random.h"

/* ---- what is written ---- */

/* A kernel: it finds one value at each stamp, and writes another. A software device's addresses are
 * the host's. */
typedef struct job {
    cu_ptr ptr;
    size_t bytes;
    int expected, written; /* NOWHERE: whatever is there */
} job;

#define STAMP_BYTES ((size_t)16)
#define STAMPS_APART (64 * KIB)

static _Atomic int overwritten_count;

int overwritten(void) {
    return overwritten_count;
}

static void stamp(unsigned char *at, size_t bytes, const job *j) {
    for (size_t i = 0; i < bytes; i++) {
        if (j->expected != NOWHERE && at[i] != j->expected) {
            if (overwritten_count++ == 0) {
                fprintf(stderr, "overwritten: block of %zu bytes at %#llx: %d instead of %d\n",
                        j->bytes, j->ptr, at[i], j->expected);
            }
            break;
        }
    }
    memset(at, j->written, bytes);
}

static void run_job(void *data) {
    const job *j = data;
    unsigned char *first = (unsigned char *)(uintptr_t)j->ptr;
    size_t at = 0;
    for (; at + STAMP_BYTES < j->bytes; at += STAMPS_APART) {
        stamp(first + at, STAMP_BYTES, j);
    }
    at = at > STAMPS_APART ? at - STAMPS_APART + STAMP_BYTES : at == 0 ? 0 : STAMP_BYTES;
    const size_t tail = j->bytes - at < STAMP_BYTES ? j->bytes - at : STAMP_BYTES;
    stamp(first + j->bytes - tail, tail, j);
}

void order(block *b, int to) {
    const context *here = &p.contexts[b->context];
    if (b->after != NULL) {
        MUST(p.cu.stream_wait_event(here->streams[to].handle, b->after, 0));
    } else if (b->on != NOWHERE && b->on != to) {
        cu_event event = NULL;
        MUST(p.cu.event_create(&event, CU_EVENT_NO_TIMING));
        MUST(p.cu.event_record(event, here->streams[b->on].handle));
        MUST(p.cu.stream_wait_event(here->streams[to].handle, event, 0));
        MUST(p.cu.event_destroy(event));
    }
    b->after = NULL;
    b->on = to;
}

/* A block of a graph keeps its value, and has one only once the graph was launched. */
void use_block(block *b, int on) {
    const bool is_kept = b->is_in_graph && b->graph_value != NOWHERE;
    const int value = is_kept ? b->graph_value : (int)(p.number % 251);
    job *j = malloc(sizeof *j); /* for as long as a graph may run it: to the end */
    if (j == NULL) {
        exit(END_ERROR);
    }
    *j = (job){b->ptr, b->bytes, b->is_in_graph ? b->graph_value : b->value, value};
    *(b->is_in_graph ? &b->graph_value : &b->value) = value;
    MUST(p.cu.launch_host(p.contexts[b->context].streams[on].handle, run_job, j));
    b->on = on;
}

void work_on(block *b, int on, bool fills) {
    if (is_captured(p.now, on)) {
        /* What was queued before the capture, on this stream alone, comes before its graph. */
        if (b->after == NULL && (b->on == NOWHERE || b->on == on)) {
            say("capture work on %d, stream %d", (int)(b - p.blocks), on);
            b->graph_value = b->is_in_graph ? b->graph_value : b->value;
            b->is_in_graph = true;
            use_block(b, on);
        }
        return;
    }
    if (b->is_in_graph || !may_queue(on) || (b->on != NOWHERE && !may_queue(b->on))) {
        return;
    }
    say("work on %d, stream %d", (int)(b - p.blocks), on);
    order(b, on);
    if (fills && b->bytes <= 2 * MIB) {
        b->value = (int)(p.number % 251);
        MUST(p.cu.fill(b->ptr, (unsigned char)b->value, b->bytes,
                       p.contexts[p.now].streams[on].handle));
    } else {
        use_block(b, on);
    }
}

void act_work(const draw *d) {
    block *b = pick_block(d->a);
    if (b != NULL) {
        work_on(b, pick_stream(d->b), d->c % 3 == 0);
    }
}

/* ---- waiting ---- */

/* A hasty program waits seldom, so that work of many acts is outstanding. */
static bool is_in_haste(uint64_t number) {
    return p.is_hasty && number % 8 != 0;
}

void act_wait(const draw *d) {
    const int on = pick_stream(d->a);
    const cu_stream handle = p.contexts[p.now].streams[on].handle;
    if (!may_queue(on) || !may_call_unsafe() || is_in_haste(d->c)) {
        return;
    }
    if (d->b % 4 == 0) {
        const cu_result result = p.cu.stream_query(handle);
        MUST(result == CU_NOT_READY ? CU_SUCCESS : result);
        return;
    }
    say("wait for stream %d of context %d", on, p.now);
    MUST(p.cu.stream_synchronize(handle));
}

void act_wait_all(const draw *d) {
    if ((p.g.is_capturing && p.g.context == p.now) || !may_call_unsafe() || is_in_haste(d->c)) {
        return;
    }
    say("wait for context %d", p.now);
    MUST(p.cu.synchronize());
}

void act_event(const draw *d) {
    const int on = pick_stream(d->a), other = pick_stream(d->b);
    const own_stream *streams = p.contexts[p.now].streams;
    cu_event event = NULL;
    if (!may_queue(on) || !may_queue(other) || !may_call_unsafe() || is_in_haste(d->where)) {
        return;
    }
    say("event on stream %d", on);
    MUST(p.cu.event_create(&event, CU_EVENT_NO_TIMING));
    MUST(p.cu.event_record(event, streams[on].handle));
    if (d->c % 3 == 0) {
        MUST(p.cu.event_synchronize(event));
    } else if (d->c % 3 == 1) {
        MUST(p.cu.stream_wait_event(streams[other].handle, event, 0));
    } else {
        const cu_result result = p.cu.event_query(event);
        MUST(result == CU_NOT_READY ? CU_SUCCESS : result);
    }
    MUST(p.cu.event_destroy(event));
}

/* ---- streams and contexts ---- */

/* What it has not done yet is before an event, which stays to the end. */
void end_stream(int number) {
    own_stream *ended = &p.contexts[p.now].streams[number];
    cu_event event = NULL;
    for (int i = 0; i < BLOCKS; i++) {
        block *b = &p.blocks[i];
        if (b->ptr != 0 && b->context == p.now && b->on == number) {
            if (event == NULL) {
                MUST(p.cu.event_create(&event, CU_EVENT_NO_TIMING));
                MUST(p.cu.event_record(event, ended->handle));
            }
            b->on = NOWHERE;
            b->after = event;
        }
    }
    say("end stream %d of context %d", number, p.now);
    MUST(p.cu.stream_destroy(ended->handle));
    *ended = (own_stream){0};
}

void act_stream(const draw *d) {
    const int number = 1 + (int)(d->a % (STREAMS - 1));
    own_stream *s = &p.contexts[p.now].streams[number];
    if (!may_call_unsafe() || is_captured(p.now, number)) {
        return;
    }
    if (s->is_there) {
        end_stream(number);
        return;
    }
    s->is_there = true;
    s->is_blocking = d->b % 3 == 0;
    say("make %sblocking stream %d of context %d", s->is_blocking ? "" : "non-", number, p.now);
    MUST(p.cu.stream_create(&s->handle, s->is_blocking ? CU_STREAM_BLOCKING : CU_STREAM_UNORDERED));
}

static void end_context(int number) {
    context *c = &p.contexts[number];
    say("end context %d", number);
    MUST(p.cu.set_current(c->handle));
    MUST(p.cu.ctx_destroy(c->handle));
    for (int i = 0; i < BLOCKS; i++) {
        if (p.blocks[i].ptr != 0 && p.blocks[i].context == number) {
            count_live(c->device, p.blocks[i].bytes, false);
            p.blocks[i] = (block){0};
        }
    }
    memset(p.modules[number], 0, sizeof p.modules[number]);
    *c = (context){0};
}

/* Of those behind the primary ones. */
void act_context(const draw *d) {
    const int number = p.device_count + (int)(d->a % (uint64_t)(CONTEXTS - p.device_count));
    context *c = &p.contexts[number];
    if (p.has_no_contexts || p.g.is_capturing ||
        (c->handle != NULL && p.g.exec != NULL && p.g.context == number)) {
        return;
    }
    if (c->handle != NULL) {
        end_context(number);
        return;
    }
    say("make context %d", number);
    *c = (context){.is_made = true};
    if (SERVED(p.cu.ctx_create(&c->handle, 0, 0))) {
        c->streams[0].is_there = c->streams[0].is_blocking = true;
    } else {
        *c = (context){0};
    }
}
