/* pattern_check.c - comparing device memory with a byte value in a host function on a stream, and
 * reporting what was found. */
#include "allocator/guard/pattern_check.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/allocator.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

struct ashlar_check_stream {
    ashlar_check_stream *next;
    const void *key;        /* NULL: the stream is forgotten. Lock: the allocator's */
    unsigned char *staging; /* page-locked, ASHLAR_STAGING_BYTES; const */
    size_t waiting;         /* checks that are queued and not yet compared. Lock: the checker's */
};

/* Lock: the checker's guards every field except those marked const. */
struct ashlar_pattern_check {
    ashlar_pattern_check *next, *prev;
    ashlar_checker *checker;      /* const */
    ashlar_check_stream *on;      /* const */
    ashlar_check_subject subject; /* const, except for its bytes: see cut_short() */
    size_t at;                    /* bytes compared */
    size_t damaged;               /* the first byte that differs; SIZE_MAX: none so far */
};

void ashlar__checker_init(ashlar_checker *checker, ashlar_driver_client *client) {
    *checker = (ashlar_checker){.client = client};
    ashlar__lock_init(&checker->lock, ASHLAR_RANK_PATTERN_CHECK);
}

/* Invariant of a pending check: it has bytes left to compare, and damage only in compared ones. */
static bool is_pending(const ashlar_pattern_check *check) {
    return check->at < check->subject.bytes &&
           (check->damaged < check->at || check->damaged == SIZE_MAX);
}

static void free_checks(ashlar_pattern_check *list) {
    while (list != NULL) {
        ashlar_pattern_check *next = list->next;
        ashlar__host_free(list);
        list = next;
    }
}

void ashlar__checker_finish(ashlar_checker *checker) {
    const bool is_entered = ashlar__device_enter(checker->client->device) == ASHLAR_OK;
    while (checker->check_streams != NULL) {
        ashlar_check_stream *next = checker->check_streams->next;
        if (is_entered) {
            (void)ASHLAR_CALL(checker->client, mem_free_host, (checker->check_streams->staging));
        }
        ashlar__host_free(checker->check_streams);
        checker->check_streams = next;
    }
    if (is_entered) {
        ashlar__device_leave(checker->client->device);
    }
    free_checks(checker->queued);
    free_checks(checker->found);
    ashlar__lock_finish(&checker->lock);
}

static ashlar_status refuse(const ashlar_checker *checker, const char *what, cu_result result) {
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__driver_error(checker->client->device->driver, what, result);
}

/* ---- queueing ---- */

/* The stream's entry, or an unused one that a forgotten stream left behind; NULL: there is none. */
static ashlar_check_stream *find_stream(ashlar_checker *checker, const void *key) {
    ashlar_check_stream *left = NULL, *at = checker->check_streams;
    ashlar__lock_acquire(&checker->lock);
    while (at != NULL && at->key != key) {
        left = at->key == NULL && at->waiting == 0 ? at : left;
        at = at->next;
    }
    ashlar__lock_release(&checker->lock);
    return at != NULL ? at : left;
}

static ashlar_status need_stream(ashlar_checker *checker, const void *key,
                                 ashlar_check_stream **out) {
    ASHLAR_CHECK2(key != NULL);
    ashlar_check_stream *check_stream = find_stream(checker, key);
    if (check_stream == NULL) {
        void *staging = NULL;
        check_stream = ashlar__host_calloc(1, sizeof *check_stream);
        if (check_stream == NULL) {
            return ashlar__fail(ASHLAR_EHOSTMEM,
                                "guard: no host memory to check a stream's blocks");
        }
        const cu_result result =
            ASHLAR_CALL(checker->client, mem_host_alloc, (&staging, ASHLAR_STAGING_BYTES, 0));
        if (result != CU_SUCCESS) {
            ashlar__host_free(check_stream);
            return refuse(checker, "cuMemHostAlloc", result);
        }
        check_stream->staging = staging;
        check_stream->next = checker->check_streams;
        checker->check_streams = check_stream;
    }
    check_stream->key = key;
    *out = check_stream;
    return ASHLAR_OK;
}

void ashlar__checker_forget(ashlar_checker *checker, const void *key) {
    for (ashlar_check_stream *at = checker->check_streams; at != NULL; at = at->next) {
        at->key = at->key == key ? NULL : at->key;
    }
}

static void link_queued(ashlar_pattern_check *check) {
    ashlar_checker *checker = check->checker;
    ashlar__lock_acquire(&checker->lock);
    check->on->waiting++;
    ASHLAR_CHECK2(is_pending(check) && check->prev == NULL);
    check->next = checker->queued;
    if (check->next != NULL) {
        ASHLAR_CHECK2(check->next->prev == NULL);
        check->next->prev = check;
    }
    checker->queued = check;
    ashlar__lock_release(&checker->lock);
}

/* All bytes of a check are compared: move the check to the findings, or free it if it found no
 * damage. */
static void settle_locked(ashlar_pattern_check *check) {
    ashlar_checker *checker = check->checker;
    ASHLAR_OWNS(&checker->lock);
    ASHLAR_CHECK2(check->at == check->subject.bytes && check->on->waiting > 0);
    check->on->waiting--;
    *(check->prev != NULL ? &check->prev->next : &checker->queued) = check->next;
    if (check->next != NULL) {
        check->next->prev = check->prev;
    }
    if (check->damaged == SIZE_MAX) {
        ashlar__host_free(check);
        return;
    }
    ASHLAR_CHECK2(check->damaged < check->at);
    ashlar_pattern_check **end = &checker->found;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    check->next = NULL;
    *end = check;
}

static size_t piece_bytes(size_t at, size_t bytes) {
    ASHLAR_CHECK2(at < bytes);
    return bytes - at < ASHLAR_STAGING_BYTES ? bytes - at : ASHLAR_STAGING_BYTES;
}

static size_t first_difference(const unsigned char *bytes, size_t count, unsigned char want) {
    size_t i = 0;
    while (i < count && bytes[i] == want) {
        i++;
    }
    return i;
}

/* The host function that compares a piece. It runs once for each piece, in stream order. */
static void compare_piece(void *user_data) {
    ashlar_pattern_check *check = user_data;
    ashlar_checker *checker = check->checker;
    ashlar__lock_acquire(&checker->lock);
    ASHLAR_CHECK2(is_pending(check));
    const size_t count = piece_bytes(check->at, check->subject.bytes);
    const size_t same = first_difference(check->on->staging, count, check->subject.want);
    if (same < count && check->damaged == SIZE_MAX) {
        check->damaged = check->at + same;
    }
    check->at += count;
    if (check->at == check->subject.bytes) {
        settle_locked(check);
    }
    ashlar__lock_release(&checker->lock);
}

/* The driver has refused a piece: compare only the `bytes` before it. */
static void cut_short(ashlar_pattern_check *check, size_t bytes) {
    ashlar_checker *checker = check->checker;
    ashlar__lock_acquire(&checker->lock);
    ASHLAR_CHECK2(check->at <= bytes && bytes < check->subject.bytes);
    check->on->waiting++; /* the copy of this check may still be queued, so no other stream may
                             get the buffer */
    check->subject.bytes = bytes;
    if (check->at == bytes) {
        settle_locked(check);
    }
    ashlar__lock_release(&checker->lock);
}

ashlar_status ashlar__checker_queue(ashlar_checker *checker, const void *key, ashlar_stream stream,
                                    const ashlar_check_subject *subject) {
    ASHLAR_CHECK2(subject->bytes > 0);
    ashlar_check_stream *check_stream = NULL;
    ashlar_status status = need_stream(checker, key, &check_stream);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_pattern_check *check = ashlar__host_calloc(1, sizeof *check);
    if (check == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "guard: no host memory to check a block");
    }
    *check = (ashlar_pattern_check){
        .checker = checker, .on = check_stream, .subject = *subject, .damaged = SIZE_MAX};
    link_queued(check);
    /* Once its last piece is queued, the check may be freed at any time. */
    const cu_ptr start = subject->block + subject->offset;
    for (size_t at = 0; at < subject->bytes;) {
        const size_t count = piece_bytes(at, subject->bytes);
        status = refuse(checker, "cuMemcpyDtoHAsync",
                        ASHLAR_CALL(checker->client, memcpy_dtoh_async,
                                    (check_stream->staging, start + at, count, stream)));
        if (status == ASHLAR_OK) {
            status = refuse(
                checker, "cuLaunchHostFunc",
                ASHLAR_CALL(checker->client, launch_host_func, (stream, compare_piece, check)));
        }
        if (status != ASHLAR_OK) {
            cut_short(check, at);
            return status;
        }
        at += count;
    }
    return ASHLAR_OK;
}

/* ---- findings ---- */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void ashlar__call_site_write(ashlar_call_site place, char out[static ASHLAR_CALL_SITE_BYTES]) {
    const uintptr_t at = (uintptr_t)place.address;
    char function[ASHLAR_CALL_SITE_BYTES / 2] = "";
    Dl_info info = {0};
    (void)dladdr(place.address, &info);
    if (info.dli_fname == NULL) { /* no library has the address */
        (void)snprintf(out, ASHLAR_CALL_SITE_BYTES, "thread %llu at %p",
                       (unsigned long long)place.thread, place.address);
        return;
    }
    if (info.dli_sname != NULL) {
        (void)snprintf(function, sizeof function, " (%s+0x%zx)", info.dli_sname,
                       (size_t)(at - (uintptr_t)info.dli_saddr));
    }
    (void)snprintf(out, ASHLAR_CALL_SITE_BYTES, "thread %llu at %p in %s+0x%zx%s",
                   (unsigned long long)place.thread, place.address, last_part(info.dli_fname),
                   (size_t)(at - (uintptr_t)info.dli_fbase), function);
}

static ashlar_status report(const ashlar_pattern_check *check) {
    const ashlar_check_subject *s = &check->subject;
    const size_t offset = s->offset + check->damaged;
    char place[ASHLAR_CALL_SITE_BYTES];
    if (s->is_freed) {
        ashlar__call_site_write(s->freed, place);
        return ashlar__fail(ASHLAR_EDAMAGE,
                            "%p: written to after it was freed, first at offset %zu; a block of "
                            "%zu bytes (%s, stream %p), freed by %s",
                            ashlar__ptr_out(s->block), offset, s->requested,
                            ashlar_tag_name((ashlar_tag)s->tag), (void *)s->stream, place);
    }
    return ashlar__fail(ASHLAR_EDAMAGE,
                        "%p: written to behind its end, first at offset %zu; a block of %zu bytes "
                        "(%s, stream %p)",
                        ashlar__ptr_out(s->block), offset, s->requested,
                        ashlar_tag_name((ashlar_tag)s->tag), (void *)s->stream);
}

ashlar_status ashlar__checker_take(ashlar_checker *checker) {
    ashlar__lock_acquire(&checker->lock);
    ashlar_pattern_check *check = checker->found;
    if (check != NULL) {
        checker->found = check->next;
    }
    ashlar__lock_release(&checker->lock);
    if (check == NULL) {
        return ASHLAR_OK;
    }
    const ashlar_status status = report(check);
    ashlar__host_free(check);
    return status;
}
