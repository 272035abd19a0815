/*
 * torch_graphs.c - the memory of each pool id that PyTorch has named: its graph pools, one for each
 * stream, and the captures that use them.
 *
 * PyTorch names the memory of a graph by a device and a pool id, and graphs with the same name
 * share it. It says when a capture begins and ends, and when a graph is gone; and it passes a
 * filter that accepts the capture's streams, which are known only when memory is taken for them.
 * Memory of graphs that are gone is reused only after a wait for the device, since their last
 * launches may still run. In a forked child nothing happens.
 */
#include "allocator/dropin/torch.h"

#include <ashlar/allocator.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/threads.h"
#include "allocator/core/core.h"
#include "allocator/dropin/devices.h"

/* The memory of one stream of a capture. A later capture may use it for another stream. */
typedef struct stream_pool {
    struct stream_pool *next;
    ashlar_graph_pool *pool;
    ashlar_stream stream; /* the latest stream that it served */
    bool is_serving;      /* requests on `stream` are served from it now */
    bool is_taken;        /* by a stream of the capture under way: the capture's other streams run
                           * beside it, and need other pools */
} stream_pool;

typedef struct graph_memory {
    struct graph_memory *next;
    ashlar_allocator *allocator;
    int device;
    ashlar_torch_pool_id id;
    size_t graph_count;         /* graphs whose capture has ended, and that are not gone */
    bool is_open;               /* a capture is under way, or its end was not reported */
    bool is_counted;            /* the driver's capture_count includes the capture, from its begin
                                 * on; each pool of it counts once more */
    ashlar_torch_filter filter; /* of the capture, while is_open */
    stream_pool *pools;
} graph_memory;

_Atomic size_t ashlar__torch_capture_count;

static ashlar_lock lock = ASHLAR_LOCK(ASHLAR_LEVEL_TORCH_GRAPHS);
static graph_memory *memories; /* guarded by `lock` */

/* ---- the memory of one id ---- */

static graph_memory **find_locked(int device, ashlar_torch_pool_id id) {
    ASHLAR_OWNS(&lock);
    graph_memory **link = &memories;
    while (*link != NULL && ((*link)->device != device || (*link)->id.first != id.first ||
                             (*link)->id.second != id.second)) {
        link = &(*link)->next;
    }
    return link;
}

static void uncount_locked(graph_memory *m) {
    ASHLAR_OWNS(&lock);
    if (m->is_counted) {
        m->is_counted = false;
        ashlar__driver_end_capture(m->allocator->device->driver);
    }
}

static bool is_serving_locked(const graph_memory *m) {
    ASHLAR_OWNS(&lock);
    for (const stream_pool *p = m->pools; p != NULL; p = p->next) {
        if (p->is_serving) {
            return true;
        }
    }
    return false;
}

static void pause_locked(stream_pool *p) {
    ASHLAR_OWNS(&lock);
    if (p->is_serving) {
        p->is_serving = false;
        ashlar_graph_pool_end(p->pool);
    }
}

static void close_locked(graph_memory *m) {
    ASHLAR_OWNS(&lock);
    if (!m->is_open) {
        return;
    }
    for (stream_pool *p = m->pools; p != NULL; p = p->next) {
        pause_locked(p);
        p->is_taken = false;
    }
    uncount_locked(m);
    ashlar__torch_filter_end(&m->filter);
    m->is_open = false;
    atomic_fetch_sub(&ashlar__torch_capture_count, 1);
}

/* ---- calls from PyTorch ---- */

static ashlar_status open_locked(graph_memory **link, int device, ashlar_torch_pool_id id,
                                 ashlar_allocator *a) {
    ASHLAR_OWNS(&lock);
    if (*link == NULL) {
        *link = ashlar__host_calloc(1, sizeof **link);
        if (*link == NULL) {
            return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a graph's record");
        }
        **link = (graph_memory){.allocator = a, .device = device, .id = id};
    }
    close_locked(*link);
    return ASHLAR_OK;
}

ashlar_status ashlar__torch_capture_begin(int device, ashlar_torch_pool_id id,
                                          const ashlar_torch_filter *filter) {
    ashlar_allocator *a;
    ASHLAR_TRY(ashlar__dropin_allocator(device, &a));
    ashlar__lock_acquire(&lock);
    graph_memory **link = find_locked(device, id);
    const ashlar_status status = open_locked(link, device, id, a);
    if (status == ASHLAR_OK) {
        graph_memory *m = *link;
        ashlar__torch_filter_copy(&m->filter, filter);
        m->is_open = true;
        m->is_counted = true;
        ashlar__driver_begin_capture(a->device->driver);
        atomic_fetch_add(&ashlar__torch_capture_count, 1);
    }
    ashlar__lock_release(&lock);
    return status;
}

void ashlar_torch_begin_graph(signed char device, ashlar_torch_pool_id id,
                              const ashlar_torch_filter *filter) {
    if (ashlar__torch_capture_begin(device, id, filter) != ASHLAR_OK) {
        ashlar__dropin_report("capture");
        ashlar__throw(ashlar_error_detail());
    }
}

void ashlar_torch_end_graph(signed char device, ashlar_torch_pool_id id) {
    if (ashlar__dropin_is_forked()) {
        return;
    }
    ashlar__lock_acquire(&lock);
    graph_memory **link = find_locked(device, id);
    if (*link != NULL) {
        close_locked(*link);
        (*link)->graph_count++;
    }
    ashlar__lock_release(&lock);
}

void ashlar_torch_release_graph(signed char device, ashlar_torch_pool_id id) {
    if (ashlar__dropin_is_forked()) {
        return;
    }
    ashlar__lock_acquire(&lock);
    graph_memory **link = find_locked(device, id);
    if (*link != NULL && (*link)->graph_count > 0) {
        (*link)->graph_count--;
    }
    ashlar__lock_release(&lock);
}

/* ---- requests ---- */

/* The pool that the stream had before; else one that no stream of this capture has; else NULL. */
static stream_pool *choose_locked(graph_memory *m, ashlar_stream stream) {
    ASHLAR_OWNS(&lock);
    stream_pool *any = NULL;
    for (stream_pool *p = m->pools; p != NULL; p = p->next) {
        if (p->stream == stream) {
            return p;
        }
        any = p->is_taken ? any : p;
    }
    return any;
}

static ashlar_status add_pool_locked(graph_memory *m, ashlar_stream stream) {
    ASHLAR_OWNS(&lock);
    stream_pool *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a graph's pool");
    }
    const ashlar_status status = ashlar_graph_pool_begin(m->allocator, stream, NULL, &made->pool);
    if (status != ASHLAR_OK) {
        ashlar__host_free(made);
        return status;
    }
    made->stream = stream;
    made->is_serving = made->is_taken = true;
    made->next = m->pools;
    m->pools = made;
    return ASHLAR_OK;
}

static ashlar_status serve_locked(graph_memory *m, ashlar_stream stream) {
    ASHLAR_OWNS(&lock);
    stream_pool *p = choose_locked(m, stream);
    if (p == NULL) {
        return add_pool_locked(m, stream);
    }
    if (!p->is_serving) {
        ASHLAR_TRY(ashlar_graph_pool_begin(m->allocator, stream, p->pool, &p->pool));
        p->stream = stream;
        p->is_serving = p->is_taken = true;
    }
    return ASHLAR_OK;
}

/* Stop serving a stream that the capture's filter does not accept any more: PyTorch reports late
 * that a capture has failed, and before 2.14 not at all. */
static void stop_serving_locked(graph_memory *m, ashlar_stream stream) {
    ASHLAR_OWNS(&lock);
    for (stream_pool *p = m->pools; p != NULL; p = p->next) {
        if (p->is_serving && p->stream == stream) {
            pause_locked(p);
            if (!is_serving_locked(m)) {
                uncount_locked(m);
            }
        }
    }
}

ashlar_status ashlar__torch_capture_enter_slow(int device, ashlar_stream stream) {
    graph_memory *wanted = NULL;
    ashlar_status status = ASHLAR_OK;
    if (ashlar__stream_named(stream) == NULL) {
        return ASHLAR_OK; /* the legacy default stream, which cannot be captured */
    }
    ashlar__lock_acquire(&lock);
    for (graph_memory *m = memories; m != NULL; m = m->next) {
        if (m->is_open && m->device == device) {
            if (wanted == NULL && ashlar__torch_filter_accepts(&m->filter, stream)) {
                wanted = m;
            } else {
                stop_serving_locked(m, stream);
            }
        }
    }
    if (wanted != NULL) {
        status = serve_locked(wanted, stream);
    }
    ashlar__lock_release(&lock);
    return status;
}

/* ---- memory of graphs that are gone ---- */

static bool is_gone_locked(const graph_memory *m, int device) {
    ASHLAR_OWNS(&lock);
    return m->device == device && !m->is_open && m->graph_count == 0;
}

/* Whether the device has memory of graphs that are gone, and no capture is under way that a wait
 * for the device could spoil. */
static bool may_give_back_locked(int device) {
    ASHLAR_OWNS(&lock);
    bool is_any = false;
    for (const graph_memory *m = memories; m != NULL; m = m->next) {
        if (m->is_counted || is_serving_locked(m)) {
            return false;
        }
        is_any = is_any || is_gone_locked(m, device);
    }
    return is_any;
}

/* Release all pools of a memory. Those after one that cannot be released are kept. */
static ashlar_status release_locked(graph_memory *m) {
    ASHLAR_OWNS(&lock);
    while (m->pools != NULL) {
        stream_pool *p = m->pools;
        ASHLAR_TRY(ashlar_graph_pool_release(p->pool, NULL));
        m->pools = p->next;
        ashlar__host_free(p);
    }
    return ASHLAR_OK;
}

static bool give_back_locked(int device) {
    bool is_any = false;
    ASHLAR_OWNS(&lock);
    graph_memory **link = &memories;
    while (*link != NULL) {
        graph_memory *m = *link;
        if (is_gone_locked(m, device) && release_locked(m) == ASHLAR_OK) {
            *link = m->next;
            ashlar__host_free(m);
            is_any = true;
        } else {
            link = &m->next;
        }
    }
    return is_any;
}

/* The lock is held during the wait, so that no capture begins meanwhile. */
bool ashlar__torch_graphs_give_back(ashlar_allocator *a, int device) {
    ashlar__lock_acquire(&lock);
    const bool is_back = may_give_back_locked(device) && ashlar__watch_settle(a) == ASHLAR_OK &&
                         give_back_locked(device);
    ashlar__lock_release(&lock);
    return is_back;
}
