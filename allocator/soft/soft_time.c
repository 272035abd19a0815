/*
 * soft_time.c - the software device's virtual time (time=on): what each call and each piece of work
 * costs, on the clocks of threads, streams and devices.
 *
 * All times are ns since the devices were configured. They follow from the calls alone, never from
 * when work really ran, so they are the same in eager and in adversarial mode:
 *
 *   a call           host += cost of the function; `host` is a clock of the calling thread
 *   work             start = max(tail of its stream, host, earliest by the legacy stream's order)
 *                    tail = start + duration
 *   a copy           between host and device: start = max(the same, end of the device's last copy
 *                    in this direction), for it has one copy engine for each
 *   a record         time of the event = tail, or later by the legacy stream's order
 *   a wait           tail = max(tail, time of the event)
 *   a host wait      host = max(host, what it waits for)
 *
 * But for its two copy engines, which serve copies as they are queued, a device runs any number of
 * streams at once at full speed, so all time lost is lost by order alone.
 */
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

/* How long work takes on the device: estimates for a data-centre GPU on PCIe 4. A copy or a fill
 * takes START_NS, and time for its bytes at the rate of their path; HOST_BYTES_PER_US is
 * copy_rate's default. */
enum {
    QUERY_NS = 1000,
    START_NS = 2000,
    HOST_BYTES_PER_US = 25000,
    PEER_BYTES_PER_US = 100000,
    COPY_BYTES_PER_US = 600000, /* within a device: each byte is read and written */
    FILL_BYTES_PER_US = 1200000
};

/* What a call costs the host: estimates. A call for physical memory costs the same for small and
 * large handles. */
static uint64_t call_ns(ashlar_driver_fn fn) {
    switch (fn) {
    case ASHLAR_DRIVER_FN_stream_destroy:
    case ASHLAR_DRIVER_FN_mem_map:
        return 10000;
    case ASHLAR_DRIVER_FN_stream_create:
    case ASHLAR_DRIVER_FN_mem_get_info:
    case ASHLAR_DRIVER_FN_mem_address_reserve:
    case ASHLAR_DRIVER_FN_mem_address_free:
        return 20000;
    case ASHLAR_DRIVER_FN_mem_release:
    case ASHLAR_DRIVER_FN_mem_create:
        return 30000;
    case ASHLAR_DRIVER_FN_mem_unmap:
    case ASHLAR_DRIVER_FN_mem_set_access:
        return 40000;
    case ASHLAR_DRIVER_FN_mem_host_alloc:
    case ASHLAR_DRIVER_FN_mem_free_host:
        return 400000;
    default:
        break;
    }
    switch (ashlar__driver_fn_kind(fn)) {
    case ASHLAR_DRIVER_MEMORY:
        return 100000;
    case ASHLAR_DRIVER_WAIT:
        return 3000;
    case ASHLAR_DRIVER_WORK:
        return ashlar__soft_state.config.launch_ns;
    case ASHLAR_DRIVER_ORDER:
        return QUERY_NS;
    default:
        return 100;
    }
}

static _Thread_local struct {
    uint64_t generation; /* the state's generation when `ns` was set */
    uint64_t ns;
} host_clock;

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static bool is_on(void) {
    return ashlar__soft_state.config.has_time;
}

uint64_t ashlar__soft_time_host(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_state *state = &ashlar__soft_state;
    if (host_clock.generation != state->generation) {
        host_clock.generation = state->generation;
        host_clock.ns = state->host_ns;
    }
    return host_clock.ns;
}

void ashlar__soft_time_advance(uint64_t ns) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (is_on() && ns > ashlar__soft_time_host()) {
        host_clock.ns = ns;
        ashlar__soft_state.host_ns = later(ashlar__soft_state.host_ns, ns);
    }
}

void ashlar__soft_time_charge(ashlar_driver_fn fn) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const bool is_query = fn == ASHLAR_DRIVER_FN_event_query || fn == ASHLAR_DRIVER_FN_stream_query;
    if (is_on() && fn < ASHLAR_DRIVER_FN_COUNT &&
        (ashlar__soft_state.config.has_costs || is_query)) {
        const uint64_t begin_ns = ashlar__soft_time_host();
        ashlar__soft_time_advance(begin_ns + call_ns(fn));
        ashlar__soft_trace_call(fn, begin_ns, begin_ns + call_ns(fn));
    }
}

bool ashlar__soft_virtual_ns(uint64_t *ns) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const bool has_time = is_on();
    *ns = has_time ? ashlar__soft_time_host() : 0;
    ashlar__lock_release(&ashlar__soft_state.lock);
    return has_time;
}

bool ashlar__soft_time_is_past(uint64_t ns) {
    return !is_on() || ns <= ashlar__soft_time_host();
}

void ashlar__soft_time_see(uint64_t ns) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (!ashlar__soft_time_is_past(ns)) {
        ashlar__soft_state.host_wait_count++;
        ashlar__soft_state.host_wait_ns += ns - ashlar__soft_time_host();
        ashlar__soft_trace_call(ashlar__soft_call, ashlar__soft_time_host(), ns);
        ashlar__soft_time_advance(ns);
    }
}

/* ---- work ---- */

static uint64_t bytes_ns(size_t bytes, uint64_t bytes_per_us) {
    return START_NS + bytes * 1000 / bytes_per_us;
}

/* The end of the last copy in the direction of this one; NULL: it is no copy between host and
 * device. */
static uint64_t *copy_engine(soft_device *device, const soft_op *op) {
    const bool to_device = op->dst.place == SOFT_PLACE_DEVICE;
    return op->kind != SOFT_OP_COPY || to_device == (op->src.place == SOFT_PLACE_DEVICE)
               ? NULL
               : &device->of->copies_ns[to_device ? 0 : 1];
}

static uint64_t duration_of(const soft_op *op, bool is_by_engine) {
    const soft_config *config = &ashlar__soft_state.config;
    if (is_by_engine && config->copy_rate > 0) {
        return bytes_ns(op->bytes, config->copy_rate) - (config->has_costs ? 0 : START_NS);
    }
    if (op->kind == SOFT_OP_WORK || !config->has_costs) {
        return op->duration_ns; /* 0 unless a test has queued SOFT_OP_WORK */
    }
    switch (op->kind) {
    case SOFT_OP_HOST_FN:
        return ashlar__soft_state.config.kernel_ns;
    case SOFT_OP_COPY:
        return bytes_ns(op->bytes,
                        op->dst.place != SOFT_PLACE_DEVICE || op->src.place != SOFT_PLACE_DEVICE
                            ? HOST_BYTES_PER_US
                        : op->dst.device != op->src.device ? PEER_BYTES_PER_US
                                                           : COPY_BYTES_PER_US);
    case SOFT_OP_FILL:
        return bytes_ns(op->bytes, FILL_BYTES_PER_US);
    default:
        return 0;
    }
}

/* The earliest start of the stream's next op, by its own order and that with the legacy stream. */
static uint64_t order_ns(const soft_stream *stream) {
    const soft_device *device = stream->device;
    if (!stream->is_ordered) {
        return stream->tail_ns;
    }
    return later(stream->tail_ns,
                 stream == device->legacy ? device->blocking_ns : device->legacy->tail_ns);
}

void ashlar__soft_time_submit(soft_stream *stream, const soft_op *op) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (!is_on()) {
        return;
    }
    soft_device *device = stream->device;
    const uint64_t before = order_ns(stream);
    switch (op->kind) {
    case SOFT_OP_RECORD:
        stream->tail_ns = before;
        break;
    case SOFT_OP_WAIT: {
        const uint64_t begin = later(before, ashlar__soft_time_host());
        stream->tail_ns = later(before, op->awaits == NULL ? 0 : op->awaits->time_ns);
        if (stream->tail_ns > begin) {
            ashlar__soft_trace_work(stream, op, begin);
        }
        break;
    }
    default: {
        uint64_t *const engine = copy_engine(device, op);
        const uint64_t begin =
            later(later(before, ashlar__soft_time_host()), engine != NULL ? *engine : 0);
        stream->tail_ns = begin + duration_of(op, engine != NULL);
        if (engine != NULL) {
            *engine = stream->tail_ns;
        }
        ashlar__soft_trace_work(stream, op, begin);
        break;
    }
    }
    ASHLAR_CHECK2(stream->tail_ns >= before);
    if (op->point != NULL) {
        op->point->time_ns = stream->tail_ns;
    }
    device->end_ns = later(device->end_ns, stream->tail_ns);
    if (stream->is_ordered && stream != device->legacy) {
        device->blocking_ns = later(device->blocking_ns, stream->tail_ns);
    }
}

void ashlar__soft_time_count_wait(const soft_stream *stream, const soft_point *point) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (!is_on() || point == NULL) {
        return;
    }
    const uint64_t before = later(order_ns(stream), ashlar__soft_time_host());
    if (point->time_ns > before) {
        stream->device->wait_count++;
        stream->device->wait_ns += point->time_ns - before;
    }
}
