/*
 * libcuda_host.c - page-locked host memory where a program names it as a device would, copies and
 * fills that wait, and callbacks.
 */
#include "libcuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/soft/soft_state.h"

enum { ALREADY_REGISTERED = 712, NOT_REGISTERED = 713 }; /* CUDA_ERROR_HOST_MEMORY_... */

/* Host memory of the program's that it has locked. */
typedef struct registered {
    struct registered *next;
    uintptr_t base;
    size_t bytes;
} registered;

static pthread_mutex_t registered_lock = PTHREAD_MUTEX_INITIALIZER;
static registered *all_registered;

static registered **find_registered(uintptr_t ptr, size_t bytes) {
    registered **link = &all_registered;
    while (*link != NULL &&
           (ptr >= (*link)->base + (*link)->bytes || ptr + bytes <= (*link)->base)) {
        link = &(*link)->next;
    }
    return link;
}

bool ashlar_fake_find_host(cu_ptr ptr, cu_ptr *base, size_t *bytes) {
    if (ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT) != CU_SUCCESS) {
        return false;
    }
    const soft_range *taken =
        ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks, (uintptr_t)ptr, 1);
    const soft_range range = taken == NULL ? (soft_range){0, 0} : *taken;
    (void)ashlar__soft_leave(CU_SUCCESS);
    pthread_mutex_lock(&registered_lock);
    const registered *found = taken != NULL ? NULL : *find_registered((uintptr_t)ptr, 1);
    *base = found == NULL ? range.base : found->base;
    *bytes = found == NULL ? range.bytes : found->bytes;
    pthread_mutex_unlock(&registered_lock);
    return *bytes > 0;
}

bool ashlar_fake_is_host(cu_ptr ptr, size_t bytes) {
    cu_ptr base;
    size_t found_bytes;
    return ashlar_fake_find_host(ptr, &base, &found_bytes) && ptr + bytes <= base + found_bytes;
}

cu_result ashlar_fake_mem_host_register(void *ptr, size_t bytes, unsigned int flags) {
    cu_device unused;
    const cu_result result = ashlar_fake_ctx_get_device(&unused);
    registered *made = result != CU_SUCCESS ? NULL : calloc(1, sizeof *made);
    if (ptr == NULL || bytes == 0 || made == NULL) {
        free(made);
        return result == CU_SUCCESS ? CU_INVALID_VALUE : result;
    }
    (void)flags; /* no difference here */
    *made = (registered){.base = (uintptr_t)ptr, .bytes = bytes};
    pthread_mutex_lock(&registered_lock);
    const bool is_new = *find_registered(made->base, bytes) == NULL;
    if (is_new) {
        made->next = all_registered;
        all_registered = made;
    }
    pthread_mutex_unlock(&registered_lock);
    if (!is_new) {
        free(made);
    }
    return is_new ? CU_SUCCESS : ALREADY_REGISTERED;
}

cu_result ashlar_fake_mem_host_unregister(void *ptr) {
    pthread_mutex_lock(&registered_lock);
    registered **link = find_registered((uintptr_t)ptr, 1), *gone = *link;
    const bool is_one = gone != NULL && gone->base == (uintptr_t)ptr;
    if (is_one) {
        *link = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&registered_lock);
    return is_one ? CU_SUCCESS : NOT_REGISTERED;
}

/* A device has the host's addresses. */
cu_result ashlar_fake_mem_host_get_device_pointer(cu_ptr *ptr, void *host, unsigned int flags) {
    if (ptr == NULL || flags != 0 || !ashlar_fake_is_host((uintptr_t)host, 1)) {
        return CU_INVALID_VALUE;
    }
    *ptr = (uintptr_t)host;
    return CU_SUCCESS;
}

/* ---- work on page-locked memory, which the software device's own refuses ---- */

/* A copy, or with src NULL a fill. */
typedef struct host_work {
    void *dst;
    const void *src;
    size_t bytes;
    unsigned char value, staged[]; /* of pageable memory: what it held at the call */
} host_work;

static void run_work(void *user_data) {
    host_work *work = user_data;
    if (work->src == NULL) {
        memset(work->dst, work->value, work->bytes);
    } else {
        memmove(work->dst, work->src, work->bytes);
    }
    free(work);
}

/* Captures would run it more than once. */
static cu_result queue(const host_work *model, bool is_staged, cu_stream stream) {
    unsigned int status = CU_CAPTURE_NONE;
    cu_result result = ashlar__soft_stream_is_capturing(stream, &status);
    if (result != CU_SUCCESS || status != CU_CAPTURE_NONE) {
        return result == CU_SUCCESS ? CU_NOT_SUPPORTED : result;
    }
    host_work *work = calloc(1, sizeof *work + (is_staged ? model->bytes : 0));
    if (work == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    *work = *model;
    if (is_staged) {
        memcpy(work->staged, model->src, model->bytes);
        work->src = work->staged;
    }
    result = ashlar__soft_launch_host_func(stream, run_work, work);
    if (result != CU_SUCCESS) {
        free(work);
    }
    return result;
}

static void *at(cu_ptr ptr) {
    return (void *)(uintptr_t)ptr;
}

cu_result ashlar_fake_memset_d8_async(cu_ptr dst, unsigned char value, size_t bytes,
                                      cu_stream stream) {
    const host_work work = {.dst = at(dst), .bytes = bytes, .value = value};
    return ashlar_fake_is_host(dst, bytes)
               ? queue(&work, false, stream)
               : ashlar__soft_memset_d8_async(dst, value, bytes, stream);
}

cu_result ashlar_fake_memcpy_htod_async(cu_ptr dst, const void *src, size_t bytes,
                                        cu_stream stream) {
    const host_work work = {.dst = at(dst), .src = src, .bytes = bytes};
    return ashlar_fake_is_host(dst, bytes)
               ? queue(&work, !ashlar_fake_is_host((uintptr_t)src, bytes), stream)
               : ashlar__soft_memcpy_htod_async(dst, src, bytes, stream);
}

cu_result ashlar_fake_memcpy_dtoh_async(void *dst, cu_ptr src, size_t bytes, cu_stream stream) {
    const host_work work = {.dst = dst, .src = at(src), .bytes = bytes};
    if (!ashlar_fake_is_host(src, bytes)) {
        return ashlar__soft_memcpy_dtoh_async(dst, src, bytes, stream);
    }
    return queue(&work, false, stream);
}

cu_result ashlar_fake_memcpy_dtod_async(cu_ptr dst, cu_ptr src, size_t bytes, cu_stream stream) {
    const host_work work = {.dst = at(dst), .src = at(src), .bytes = bytes};
    return ashlar_fake_is_host(dst, bytes) || ashlar_fake_is_host(src, bytes)
               ? queue(&work, false, stream)
               : ashlar__soft_memcpy_dtod_async(dst, src, bytes, stream);
}

/* ---- "synchronous" calls, which wait for no more than "API synchronization behavior" says ---- */

static cu_result wait_after(cu_result result) {
    return result == CU_SUCCESS ? ashlar__soft_stream_synchronize(NULL) : result;
}

/* Pageable bytes are staged once the stream is done; they need not have arrived on return. */
static cu_result copy_staged(cu_ptr dst, const void *src, size_t bytes) {
    void *staged = malloc(bytes + 1);
    if (staged == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    memcpy(staged, src, bytes);
    cu_result result = ashlar_fake_memcpy_htod_async(dst, staged, bytes, NULL);
    if (result == CU_SUCCESS) {
        result = ashlar__soft_launch_host_func(NULL, free, staged);
    }
    if (result != CU_SUCCESS) {
        free(staged);
    }
    return result;
}

cu_result ashlar_fake_memcpy_htod(cu_ptr dst, const void *src, size_t bytes) {
    if (src == NULL || ashlar_fake_is_host((uintptr_t)src, bytes)) {
        return wait_after(ashlar_fake_memcpy_htod_async(dst, src, bytes, NULL));
    }
    const cu_result result = ashlar__soft_stream_synchronize(NULL);
    return result == CU_SUCCESS ? copy_staged(dst, src, bytes) : result;
}

cu_result ashlar_fake_memcpy_dtoh(void *dst, cu_ptr src, size_t bytes) {
    return wait_after(ashlar_fake_memcpy_dtoh_async(dst, src, bytes, NULL));
}

cu_result ashlar_fake_memcpy_dtod(cu_ptr dst, cu_ptr src, size_t bytes) {
    return ashlar_fake_memcpy_dtod_async(dst, src, bytes, NULL);
}

cu_result ashlar_fake_memset_d8(cu_ptr dst, unsigned char value, size_t bytes) {
    const cu_result result = ashlar_fake_memset_d8_async(dst, value, bytes, NULL);
    return ashlar_fake_is_host(dst, bytes) ? wait_after(result) : result;
}

/* ---- callbacks ---- */

typedef struct callback_work {
    cu_stream_callback callback;
    cu_stream stream;
    void *user_data;
} callback_work;

static void run_callback(void *user_data) {
    callback_work *work = user_data;
    work->callback(work->stream, CU_SUCCESS, work->user_data);
    free(work);
}

cu_result ashlar_fake_stream_add_callback(cu_stream stream, cu_stream_callback callback,
                                          void *user_data, unsigned int flags) {
    callback_work *work = flags != 0 || callback == NULL ? NULL : calloc(1, sizeof *work);
    if (work == NULL) {
        return CU_INVALID_VALUE;
    }
    *work = (callback_work){callback, stream, user_data};
    const cu_result result = ashlar__soft_launch_host_func(stream, run_callback, work);
    if (result != CU_SUCCESS) {
        free(work);
    }
    return result;
}
