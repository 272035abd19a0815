/* simulation.c - simulates a program of several streams in virtual time, and counts its time, the
 * memory that its blocks need, and the waits that an allocator adds. */
#include "bench/streams/simulation.h"

#include <stdio.h>

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"

/* The memory that the blocks of one stream need. */
typedef struct need {
    size_t bytes, peak_bytes;
    size_t away_count; /* blocks given back that further streams may still use */
    struct {
        size_t bytes;
        uint64_t end_ns;
    } away[ASHLAR_SIM_AWAY_MAX]; /* [away_count] */
} need;

typedef struct waits {
    uint64_t streams, host;
} waits;

struct ashlar_sim {
    const ashlar_sim_program *program;
    const ashlar_streams_subject *subject;
    void *self;
    ashlar_device *device;
    bool is_proved;
    ashlar_event event; /* for hand-overs */
    ashlar_stream streams[ASHLAR_SIM_STREAMS_MAX];
    ashlar_event ends[ASHLAR_SIM_STREAMS_MAX][ASHLAR_SIM_LAG_MAX]; /* of step % LAG_MAX */
    size_t steps[ASHLAR_SIM_STREAMS_MAX];
    need needs[ASHLAR_SIM_STREAMS_MAX];
    size_t step_count;
    waits own; /* the program's own */
    /* Values when ASHLAR_SIM_SETTLE steps of each stream were queued: the end of all work, the
     * steps, and the allocator's waits. */
    uint64_t settled_ns;
    size_t settled_steps;
    waits settled;
};

static ashlar_status read_figures(soft_figures *out) {
    return ashlar__soft_get_figures(0, out);
}

/* The time when all work of device and host requested so far is over. */
static uint64_t end_of(const soft_figures *f) {
    const uint64_t host_ns = ashlar__soft_host_ns();
    return f->end_ns > host_ns ? f->end_ns : host_ns;
}

/* Stop counting blocks whose uses are over at the host's present time. */
static void settle_need(need *n) {
    const uint64_t now_ns = ashlar__soft_host_ns();
    size_t kept = 0;
    for (size_t i = 0; i < n->away_count; i++) {
        if (n->away[i].end_ns > now_ns) {
            n->away[kept++] = n->away[i];
        } else {
            n->bytes -= n->away[i].bytes;
        }
    }
    n->away_count = kept;
}

static void add_need(need *n, size_t bytes) {
    settle_need(n);
    n->bytes += bytes;
    n->peak_bytes = n->bytes > n->peak_bytes ? n->bytes : n->peak_bytes;
}

static ashlar_status drop_need(need *n, const ashlar_sim_block *block) {
    if (block->uses == 0) {
        n->bytes -= block->bytes;
        return ASHLAR_OK;
    }
    settle_need(n);
    ASHLAR_FAIL_IF(n->away_count == ASHLAR_SIM_AWAY_MAX, ASHLAR_EINVAL,
                   "streams: more than %d blocks of a stream are away", (int)ASHLAR_SIM_AWAY_MAX);
    n->away[n->away_count].bytes = block->bytes;
    n->away[n->away_count++].end_ns = block->use_end_ns;
    return ASHLAR_OK;
}

ashlar_status ashlar__sim_take(ashlar_sim *s, size_t bytes, size_t stream, ashlar_sim_block *out) {
    bool is_ordered = true;
    add_need(&s->needs[stream], bytes);
    void *ptr = s->subject->take(s->self, bytes, s->streams[stream]);
    ASHLAR_FAIL_IF(ptr == NULL, ASHLAR_ENOMEM, "%s: no %zu bytes", s->subject->name, bytes);
    if (s->is_proved) {
        ASHLAR_TRY(
            ashlar__soft_clock_own(ashlar__ptr_in(ptr), bytes, s->streams[stream], &is_ordered));
    }
    *out = (ashlar_sim_block){.ptr = ptr, .bytes = bytes, .owner = stream};
    return is_ordered ? ASHLAR_OK
                      : ashlar__fail(ASHLAR_EFORMAT, "%s: a block is handed out too early",
                                     s->subject->name);
}

static ashlar_status wait_for(ashlar_sim *s, size_t stream, size_t after) {
    ASHLAR_TRY(ashlar_event_record(s->device, s->event, s->streams[after]));
    return ashlar_stream_wait(s->device, s->streams[stream], s->event);
}

/* Tell the subject of the block's further streams; if it has no way to be told, make the block's
 * own stream wait for them. */
static ashlar_status tell_uses(ashlar_sim *s, const ashlar_sim_block *block) {
    for (size_t i = 0; i < s->program->streams; i++) {
        if ((block->uses >> i & 1) == 0) {
            continue;
        }
        ASHLAR_TRY(s->subject->record != NULL
                       ? s->subject->record(s->self, block->ptr, s->streams[i])
                       : wait_for(s, block->owner, i));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__sim_give(ashlar_sim *s, ashlar_sim_block *block) {
    if (block->ptr != NULL) {
        ASHLAR_TRY(drop_need(&s->needs[block->owner], block));
        ASHLAR_TRY(tell_uses(s, block));
        s->subject->give(s->self, block->ptr);
        *block = (ashlar_sim_block){0};
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__sim_give_on(ashlar_sim *s, ashlar_sim_block *block, size_t stream) {
    if (s->subject->give_on == NULL) {
        return ashlar__sim_give(s, block);
    }
    ASHLAR_TRY(drop_need(&s->needs[block->owner], block));
    ASHLAR_TRY(s->subject->give_on(s->self, block->ptr, s->streams[stream]));
    *block = (ashlar_sim_block){0};
    return ASHLAR_OK;
}

/* Count the launch as a driver call, since subjects may ask whether there was work. */
static ashlar_status launch(ashlar_sim *s, size_t stream, uint64_t ns) {
    (void)ashlar__driver_admit(s->device->driver, ASHLAR_DRIVER_FN_launch_kernel);
    return ashlar__soft_work(s->streams[stream], ns);
}

uint64_t ashlar__sim_kernel_ns(size_t bytes) {
    return bytes / ASHLAR_SIM_BYTES_PER_NS;
}

ashlar_status ashlar__sim_delay(ashlar_sim *s, size_t stream, uint64_t ns) {
    return launch(s, stream, ns);
}

ashlar_status ashlar__sim_kernel(ashlar_sim *s, size_t stream, ashlar_sim_block *const *blocks,
                                 size_t count) {
    size_t bytes = 0;
    uint64_t end_ns;
    for (size_t i = 0; i < count; i++) {
        bytes += blocks[i]->bytes;
    }
    ASHLAR_TRY(launch(s, stream, ashlar__sim_kernel_ns(bytes)));
    ASHLAR_TRY(ashlar__soft_stream_ns(s->streams[stream], &end_ns));
    for (size_t i = 0; i < count; i++) {
        ashlar_sim_block *b = blocks[i];
        if (b->ptr == NULL) {
            continue;
        }
        if (stream != b->owner) {
            b->uses |= 1U << stream;
            b->use_end_ns = end_ns > b->use_end_ns ? end_ns : b->use_end_ns;
        }
        if (s->is_proved) {
            ASHLAR_TRY(
                ashlar__soft_clock_use(ashlar__ptr_in(b->ptr), b->bytes, s->streams[stream]));
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__sim_follow(ashlar_sim *s, size_t stream, size_t after) {
    soft_figures before, now;
    ASHLAR_TRY(read_figures(&before));
    ASHLAR_TRY(wait_for(s, stream, after));
    ASHLAR_TRY(read_figures(&now));
    s->own.streams += now.wait_count - before.wait_count;
    return ASHLAR_OK;
}

ashlar_status ashlar__sim_begin_step(ashlar_sim *s, size_t stream, size_t lag) {
    const size_t step = s->steps[stream];
    soft_figures before, now;
    if (step < lag) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(read_figures(&before));
    ASHLAR_TRY(
        ashlar_event_synchronize(s->device, s->ends[stream][(step - lag) % ASHLAR_SIM_LAG_MAX]));
    ASHLAR_TRY(read_figures(&now));
    s->own.host += now.host_wait_count - before.host_wait_count;
    return ASHLAR_OK;
}

ashlar_status ashlar__sim_end_step(ashlar_sim *s, size_t stream) {
    const size_t step = s->steps[stream]++;
    soft_figures now;
    s->step_count++;
    if (s->step_count == ASHLAR_SIM_SETTLE * s->program->stepping) {
        ASHLAR_TRY(read_figures(&now));
        s->settled_ns = end_of(&now);
        s->settled = (waits){now.wait_count - s->own.streams, now.host_wait_count - s->own.host};
        s->settled_steps = s->step_count;
    }
    return ashlar_event_record(s->device, s->ends[stream][step % ASHLAR_SIM_LAG_MAX],
                               s->streams[stream]);
}

static ashlar_status make_streams(ashlar_sim *s) {
    ASHLAR_TRY(ashlar_event_create(s->device, &s->event));
    for (size_t i = 0; i < s->program->streams; i++) {
        ASHLAR_TRY(ashlar_stream_create(s->device, &s->streams[i]));
        for (size_t k = 0; k < ASHLAR_SIM_LAG_MAX; k++) {
            ASHLAR_TRY(ashlar_event_create(s->device, &s->ends[i][k]));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status measure(ashlar_sim *s, size_t steps, ashlar_sim_figures *out) {
    soft_figures f;
    const uint64_t begin_ns = ashlar__soft_host_ns();
    ASHLAR_TRY(s->program->run(s, s->program, steps));
    ASHLAR_TRY(read_figures(&f));
    const size_t counted = s->step_count - s->settled_steps;
    const uint64_t stream_waits = f.wait_count - s->own.streams - s->settled.streams;
    const uint64_t host_waits = f.host_wait_count - s->own.host - s->settled.host;
    *out = (ashlar_sim_figures){
        .ns = end_of(&f) - begin_ns,
        .settled_ns = end_of(&f) - s->settled_ns,
        .reserved_bytes = f.physical_peak_bytes,
        .waits_per_step = counted > 0 ? (double)stream_waits / (double)counted : 0,
        .host_waits_per_step = counted > 0 ? (double)host_waits / (double)counted : 0,
    };
    for (size_t i = 0; i < s->program->streams; i++) {
        out->need_bytes += s->needs[i].peak_bytes;
    }
    return ASHLAR_OK;
}

static ashlar_status run_on_device(ashlar_sim *s, size_t steps, ashlar_sim_figures *out) {
    ASHLAR_TRY(ashlar__device_enter(s->device));
    ashlar_status status = make_streams(s);
    ASHLAR_THEN(status, s->subject->create(s->device, &s->self));
    if (status == ASHLAR_OK) {
        status = measure(s, steps, out);
        s->subject->destroy(s->self);
    }
    for (size_t i = 0; i < ASHLAR_SIM_STREAMS_MAX; i++) {
        for (size_t k = 0; k < ASHLAR_SIM_LAG_MAX; k++) {
            ashlar_event_destroy(s->device, s->ends[i][k]);
        }
        ashlar_stream_destroy(s->device, s->streams[i]);
    }
    ashlar_event_destroy(s->device, s->event);
    ashlar__device_leave(s->device);
    return status;
}

ashlar_status ashlar__sim_run(const ashlar_sim_program *program,
                              const ashlar_streams_subject *subject, size_t steps,
                              size_t memory_bytes, bool is_proved, ashlar_sim_figures *out) {
    char line[80];
    (void)snprintf(line, sizeof line, "time=on,memory=%zuB,clocks=%s", memory_bytes,
                   is_proved ? "on" : "off");
    ASHLAR_TRY(ashlar__soft_configure(line));
    ashlar_sim *s;
    ASHLAR_HOST_NEW(s, 1, "streams: no host memory");
    *s = (ashlar_sim){.program = program, .subject = subject, .is_proved = is_proved};
    ashlar_status status = ashlar_device_open("soft", &s->device);
    if (status == ASHLAR_OK) {
        status = run_on_device(s, steps, out);
        ashlar_device_close(s->device);
    }
    ashlar__host_free(s);
    return status;
}
