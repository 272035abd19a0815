/*
 * libcuda_async.c - cuMemAllocAsync and memory pools: a pool keeps what is freed, for the same
 * stream at once, for others when the work before the free is over. What is beyond its release
 * threshold it gives back when the device has been waited for.
 */
#include "libcuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/soft/soft_state.h"

/* Attributes of a pool, and those that can be set: a uint64_t each; the others are 32 bits. */
enum { REUSE_FIRST = 1, REUSE_LAST = 3, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

/*
 * used <= reserved: the sums of its pieces in use, and of all. Lock: pool_lock, as for all of this.
 */
typedef struct CUmemPoolHandle_st {
    cu_device ordinal;
    uint64_t values[USED_HIGH + 1];
} pool;

/* CUmemPoolProps, as far as it is read. */
typedef struct pool_props {
    unsigned int type, handle_types;
    cu_mem_location location;
} pool_props;

static pool defaults[SOFT_DEVICES_MAX];
static pool *chosen[SOFT_DEVICES_MAX]; /* NULL: the default */

/* One allocation of a pool. */
typedef struct piece {
    struct piece *next;
    cu_ptr ptr;
    size_t bytes;
    pool *owner;
    const soft_device *context; /* it goes with it */
    cu_stream stream; /* free: freed there */
    cu_event freed;   /* NULL: in use */
} piece;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static piece *pieces;

/* ---- what pools have ---- */

static void count(pool *of, unsigned int attribute, uint64_t bytes) {
    uint64_t *value = &of->values[attribute];
    value[0] += bytes; /* modulo 2^64: it may be less than nothing */
    value[1] = value[1] > value[0] ? value[1] : value[0];
}

static const soft_device *current_context(void) {
    soft_device *device = NULL;
    return ashlar__soft_enter_context(ASHLAR_DRIVER_FN_COUNT, &device) != CU_SUCCESS ||
                   ashlar__soft_leave(CU_SUCCESS) != CU_SUCCESS
               ? NULL
               : device;
}

static bool may_serve(const piece *p, size_t bytes, const pool *of, cu_stream stream) {
    return p->freed != NULL && p->owner == of && p->context == current_context() &&
           p->bytes >= bytes && p->bytes / 2 <= bytes &&
           ((p->stream == stream && stream != NULL) ||
            ashlar__soft_event_query(p->freed) == CU_SUCCESS);
}

/* Give a piece that is free back to the device, which waits for it. */
static void drop(piece **link) {
    piece *gone = *link;
    *link = gone->next;
    count(gone->owner, RESERVED, 0 - (uint64_t)gone->bytes);
    (void)ashlar__soft_event_destroy(gone->freed);
    (void)ashlar__soft_mem_free(gone->ptr);
    free(gone);
}

static void trim(const pool *of, uint64_t kept_bytes) {
    for (piece **link = &pieces; *link != NULL;) {
        if ((*link)->freed != NULL && (*link)->owner == of && of->values[RESERVED] > kept_bytes) {
            drop(link);
        } else {
            link = &(*link)->next;
        }
    }
}

void ashlar_fake_pools_settle(cu_device device) {
    pthread_mutex_lock(&pool_lock);
    const pool *others = chosen[device];
    trim(&defaults[device], defaults[device].values[THRESHOLD]);
    if (others != NULL) {
        trim(others, others->values[THRESHOLD]);
    }
    pthread_mutex_unlock(&pool_lock);
}

/* What programs have set goes; what it has for contexts that they made stays. */
static void begin_anew(pool *of) {
    memset(of->values, 0, (THRESHOLD + 1) * sizeof of->values[0]);
    of->values[RESERVED_HIGH] = of->values[RESERVED];
    of->values[USED_HIGH] = of->values[USED];
}

/* No call of the device: it has forgotten them. */
void ashlar_fake_pools_forget(const soft_device *context) {
    pthread_mutex_lock(&pool_lock);
    for (piece **link = &pieces; *link != NULL;) {
        piece *p = *link;
        if (p->context == context) {
            *link = p->next;
            count(p->owner, RESERVED, 0 - (uint64_t)p->bytes);
            count(p->owner, USED, 0 - (uint64_t)(p->freed == NULL ? p->bytes : 0));
            free(p);
        } else {
            link = &p->next;
        }
    }
    if (context == context->of) {
        begin_anew(&defaults[context->ordinal]);
        chosen[context->ordinal] = NULL;
    }
    pthread_mutex_unlock(&pool_lock);
}

/* ---- allocating ---- */

static cu_result take_new(size_t bytes, pool *of, cu_ptr *ptr) {
    piece *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    cu_result result = ashlar_fake_mem_alloc(&made->ptr, bytes);
    if (result == CU_OUT_OF_MEMORY) {
        trim(of, 0);
        result = ashlar_fake_mem_alloc(&made->ptr, bytes);
    }
    if (result != CU_SUCCESS) {
        free(made);
        return result;
    }
    made->bytes = bytes;
    made->owner = of;
    made->context = current_context();
    made->next = pieces;
    pieces = made;
    count(of, RESERVED, bytes);
    count(of, USED, bytes);
    *ptr = made->ptr;
    return CU_SUCCESS;
}

static cu_result alloc_locked(cu_ptr *ptr, size_t bytes, pool *of, cu_stream stream) {
    if (ptr == NULL || bytes == 0) {
        return CU_INVALID_VALUE;
    }
    for (piece *p = pieces; p != NULL; p = p->next) {
        if (may_serve(p, bytes, of, stream)) {
            (void)ashlar__soft_event_destroy(p->freed);
            p->freed = NULL;
            count(of, USED, p->bytes);
            *ptr = p->ptr;
            return CU_SUCCESS;
        }
    }
    return take_new(bytes, of, ptr);
}

static pool *default_of(cu_device device) {
    defaults[device].ordinal = device;
    return &defaults[device];
}

static pool *chosen_of(cu_device device) {
    return chosen[device] != NULL ? chosen[device] : default_of(device);
}

cu_result ashlar_fake_mem_alloc_async(cu_ptr *ptr, size_t bytes, cu_stream stream) {
    cu_device ordinal;
    cu_context unused;
    cu_result result = ashlar_fake_ctx_get_device(&ordinal);
    result = result == CU_SUCCESS ? ashlar_fake_stream_get_ctx(stream, &unused) : result;
    if (result != CU_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&pool_lock);
    result = alloc_locked(ptr, bytes, chosen_of(ordinal), stream);
    pthread_mutex_unlock(&pool_lock);
    return result;
}

cu_result ashlar_fake_mem_alloc_from_pool_async(cu_ptr *ptr, size_t bytes, cu_pool of,
                                                cu_stream stream) {
    if (of == NULL) {
        return CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&pool_lock);
    const cu_result result = alloc_locked(ptr, bytes, of, stream);
    pthread_mutex_unlock(&pool_lock);
    return result;
}

static cu_result free_locked(cu_ptr ptr, cu_stream stream) {
    piece *p = pieces;
    while (p != NULL && p->ptr != ptr) {
        p = p->next;
    }
    if (p == NULL || p->freed != NULL) {
        return CU_INVALID_VALUE;
    }
    cu_event freed = NULL;
    cu_result result = ashlar__soft_event_create(&freed, CU_EVENT_NO_TIMING);
    if (result == CU_SUCCESS) {
        result = ashlar__soft_event_record(freed, stream);
    }
    if (result == CU_SUCCESS) {
        p->stream = stream;
        p->freed = freed;
        count(p->owner, USED, 0 - (uint64_t)p->bytes);
    } else if (freed != NULL) {
        (void)ashlar__soft_event_destroy(freed);
    }
    return result;
}

bool ashlar_fake_is_of_pool(cu_ptr ptr) {
    pthread_mutex_lock(&pool_lock);
    const piece *p = pieces;
    while (p != NULL && (ptr < p->ptr || ptr >= p->ptr + p->bytes)) {
        p = p->next;
    }
    pthread_mutex_unlock(&pool_lock);
    return p != NULL;
}

cu_result ashlar_fake_mem_free_async(cu_ptr ptr, cu_stream stream) {
    pthread_mutex_lock(&pool_lock);
    const cu_result result = free_locked(ptr, stream);
    pthread_mutex_unlock(&pool_lock);
    return result;
}

static cu_stream per_thread(cu_stream stream) {
    return stream == NULL ? (cu_stream)(uintptr_t)CU_STREAM_PER_THREAD : stream;
}

cu_result ashlar_fake_mem_alloc_async_ptsz(cu_ptr *ptr, size_t bytes, cu_stream stream) {
    return ashlar_fake_mem_alloc_async(ptr, bytes, per_thread(stream));
}

cu_result ashlar_fake_mem_alloc_from_pool_async_ptsz(cu_ptr *ptr, size_t bytes, cu_pool of,
                                                     cu_stream stream) {
    return ashlar_fake_mem_alloc_from_pool_async(ptr, bytes, of, per_thread(stream));
}

cu_result ashlar_fake_mem_free_async_ptsz(cu_ptr ptr, cu_stream stream) {
    return ashlar_fake_mem_free_async(ptr, per_thread(stream));
}

/* ---- pools ---- */

static bool is_device(cu_device device) {
    int count = 0;
    return ashlar_fake_device_get_count(&count) == CU_SUCCESS && device >= 0 && device < count;
}

cu_result ashlar_fake_default_pool(cu_pool *out, cu_device device) {
    if (out == NULL || !is_device(device)) {
        return out == NULL ? CU_INVALID_VALUE : CU_INVALID_DEVICE;
    }
    *out = default_of(device);
    return CU_SUCCESS;
}

cu_result ashlar_fake_get_pool(cu_pool *out, cu_device device) {
    if (out == NULL || !is_device(device)) {
        return out == NULL ? CU_INVALID_VALUE : CU_INVALID_DEVICE;
    }
    *out = chosen_of(device);
    return CU_SUCCESS;
}

cu_result ashlar_fake_set_pool(cu_device device, cu_pool of) {
    if (!is_device(device) || of == NULL || of->ordinal != device) {
        return CU_INVALID_VALUE;
    }
    chosen[device] = of;
    return CU_SUCCESS;
}

/* CUDA 13's names: of devices alone, and of memory that is pinned. */
static bool is_known_place(const cu_mem_location *location, unsigned int type) {
    return location != NULL && location->type == CU_LOCATION_DEVICE && type == CU_ALLOCATION_PINNED;
}

cu_result ashlar_fake_mem_default_pool(cu_pool *out, cu_mem_location *location, unsigned int type) {
    return is_known_place(location, type) ? ashlar_fake_default_pool(out, location->id)
                                          : CU_INVALID_VALUE;
}

cu_result ashlar_fake_mem_get_pool(cu_pool *out, cu_mem_location *location, unsigned int type) {
    return is_known_place(location, type) ? ashlar_fake_get_pool(out, location->id)
                                          : CU_INVALID_VALUE;
}

cu_result ashlar_fake_mem_set_pool(cu_mem_location *location, unsigned int type, cu_pool of) {
    return is_known_place(location, type) ? ashlar_fake_set_pool(location->id, of)
                                          : CU_INVALID_VALUE;
}

cu_result ashlar_fake_pool_create(cu_pool *out, const void *props) {
    const pool_props *wanted = props;
    pool *made = out == NULL || wanted == NULL || !is_device(wanted->location.id)
                     ? NULL
                     : calloc(1, sizeof *made);
    if (made == NULL) {
        return CU_INVALID_VALUE;
    }
    made->ordinal = wanted->location.id;
    *out = made;
    return CU_SUCCESS;
}

/* Pieces in use stay, and the pool with them. */
cu_result ashlar_fake_pool_destroy(cu_pool of) {
    if (of == NULL || of == &defaults[of->ordinal]) {
        return CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&pool_lock);
    trim(of, 0);
    if (chosen[of->ordinal] == of) {
        chosen[of->ordinal] = NULL;
    }
    const bool is_empty = of->values[RESERVED] == 0;
    pthread_mutex_unlock(&pool_lock);
    if (is_empty) {
        free(of);
    }
    return CU_SUCCESS;
}

cu_result ashlar_fake_pool_trim_to(cu_pool of, size_t bytes) {
    if (of == NULL) {
        return CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&pool_lock);
    trim(of, bytes);
    pthread_mutex_unlock(&pool_lock);
    return CU_SUCCESS;
}

/* What may be reused follows from the streams alone: the ways of reuse are taken note of. */
cu_result ashlar_fake_pool_set_attribute(cu_pool of, unsigned int attribute, void *value) {
    uint64_t wanted = 0;
    if (of == NULL || value == NULL || attribute < REUSE_FIRST || attribute > USED_HIGH) {
        return CU_INVALID_VALUE;
    }
    memcpy(&wanted, value, attribute <= REUSE_LAST ? sizeof(int) : sizeof wanted);
    const bool is_high = attribute == RESERVED_HIGH || attribute == USED_HIGH;
    if (attribute == RESERVED || attribute == USED || (is_high && wanted != 0)) {
        return CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&pool_lock);
    of->values[attribute] = is_high ? of->values[attribute - 1] : wanted; /* from now on */
    pthread_mutex_unlock(&pool_lock);
    return CU_SUCCESS;
}

cu_result ashlar_fake_pool_get_attribute(cu_pool of, unsigned int attribute, void *value) {
    if (of == NULL || value == NULL || attribute < REUSE_FIRST || attribute > USED_HIGH) {
        return CU_INVALID_VALUE;
    }
    pthread_mutex_lock(&pool_lock);
    memcpy(value, &of->values[attribute], attribute <= REUSE_LAST ? sizeof(int) : sizeof(uint64_t));
    pthread_mutex_unlock(&pool_lock);
    return CU_SUCCESS;
}
