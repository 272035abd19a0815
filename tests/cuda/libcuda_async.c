/*
 * libcuda_async.c - cuMemAllocAsync: a pool that keeps what is freed, for the same stream at once,
 * for others when the work before the free is over.
 */
#include "libcuda.h"

#include <pthread.h>
#include <stdlib.h>

#include "soft_state.h"

/* One allocation of the pool. Lock: pool_lock. */
typedef struct piece {
    struct piece *next;
    cu_ptr ptr;
    size_t bytes;
    cu_device ordinal;
    cu_stream stream; /* free: freed there */
    cu_event freed;   /* NULL: in use */
} piece;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static piece *pieces;

static bool may_serve(const piece *p, size_t bytes, cu_device ordinal, cu_stream stream) {
    return p->freed != NULL && p->ordinal == ordinal && p->bytes >= bytes &&
           p->bytes / 2 <= bytes &&
           ((p->stream == stream && stream != NULL) ||
            ashlar_soft_event_query(p->freed) == CU_SUCCESS);
}

/* Give a piece that is free back to the device, which waits for it. */
static void drop(piece **link) {
    piece *gone = *link;
    *link = gone->next;
    (void)ashlar_soft_event_destroy(gone->freed);
    (void)ashlar_soft_mem_free(gone->ptr);
    free(gone);
}

static void trim(void) {
    for (piece **link = &pieces; *link != NULL;) {
        if ((*link)->freed != NULL) {
            drop(link);
        } else {
            link = &(*link)->next;
        }
    }
}

static cu_result take_new(size_t bytes, cu_device ordinal, cu_ptr *ptr) {
    piece *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    cu_result result = ashlar_fake_mem_alloc(&made->ptr, bytes);
    if (result == CU_OUT_OF_MEMORY) {
        trim();
        result = ashlar_fake_mem_alloc(&made->ptr, bytes);
    }
    if (result != CU_SUCCESS) {
        free(made);
        return result;
    }
    made->bytes = bytes;
    made->ordinal = ordinal;
    made->next = pieces;
    pieces = made;
    *ptr = made->ptr;
    return CU_SUCCESS;
}

static cu_result alloc_locked(cu_ptr *ptr, size_t bytes, cu_stream stream) {
    cu_device ordinal;
    const cu_result result = ashlar_fake_ctx_get_device(&ordinal);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : CU_INVALID_VALUE;
    }
    for (piece *p = pieces; p != NULL; p = p->next) {
        if (may_serve(p, bytes, ordinal, stream)) {
            (void)ashlar_soft_event_destroy(p->freed);
            p->freed = NULL;
            *ptr = p->ptr;
            return CU_SUCCESS;
        }
    }
    return take_new(bytes, ordinal, ptr);
}

cu_result ashlar_fake_mem_alloc_async(cu_ptr *ptr, size_t bytes, cu_stream stream) {
    pthread_mutex_lock(&pool_lock);
    const cu_result result = alloc_locked(ptr, bytes, stream);
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
    cu_result result = ashlar_soft_event_create(&freed, CU_EVENT_NO_TIMING);
    if (result == CU_SUCCESS) {
        result = ashlar_soft_event_record(freed, stream);
    }
    if (result == CU_SUCCESS) {
        p->stream = stream;
        p->freed = freed;
    } else if (freed != NULL) {
        (void)ashlar_soft_event_destroy(freed);
    }
    return result;
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

cu_result ashlar_fake_mem_free_async_ptsz(cu_ptr ptr, cu_stream stream) {
    return ashlar_fake_mem_free_async(ptr, per_thread(stream));
}

/* There is one pool, and it keeps what it has until it is trimmed. */
cu_result ashlar_fake_default_pool(cu_pool *pool, cu_device device) {
    (void)device;
    *pool = (cu_pool)(void *)&pieces;
    return CU_SUCCESS;
}

cu_result ashlar_fake_pool_trim_to(cu_pool pool, size_t bytes) {
    (void)pool;
    (void)bytes;
    pthread_mutex_lock(&pool_lock);
    trim();
    pthread_mutex_unlock(&pool_lock);
    return CU_SUCCESS;
}

cu_result ashlar_fake_pool_set_attribute(cu_pool pool, unsigned int attribute, void *value) {
    (void)pool;
    (void)attribute;
    return value == NULL ? CU_INVALID_VALUE : CU_SUCCESS;
}
