/* plan_write.c - writing a file of plans, the checksum, and the check of a fingerprint; the format
 * is in plan_image.h. */
#include "allocator/step/plan_image.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/plan_file.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/host.h"
#include "allocator/heap/size_class.h"

void ashlar__plan_image_finish(ashlar_plan_image *image) {
    for (uint32_t i = 0; image->keys != NULL && i < image->key_count; i++) {
        ashlar__recording_finish(&image->keys[i].recording);
        ashlar__plan_free(image->keys[i].plan);
    }
    ashlar__host_free(image->keys);
    ashlar__host_free(image->fingerprint);
    *image = (ashlar_plan_image){0};
}

ashlar_status ashlar__plan_check_fingerprint(const char *fingerprint) {
    const size_t bytes = strlen(fingerprint);
    if (bytes > ASHLAR_PLAN_FINGERPRINT_MAX) {
        return ashlar__fail(ASHLAR_EINVAL, "fingerprint: %zu bytes; give at most %d", bytes,
                            ASHLAR_PLAN_FINGERPRINT_MAX);
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)fingerprint[i] < ' ' || fingerprint[i] == 0x7f) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "fingerprint: a control character at byte %zu; give one line", i);
        }
    }
    return ASHLAR_OK;
}

uint64_t ashlar__plan_sum(uint64_t sum, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

void ashlar__plan_write_sum(uint64_t sum, char out[static ASHLAR_NUMBER_BYTES]) {
    (void)snprintf(out, ASHLAR_NUMBER_BYTES, "%016" PRIx64, sum);
}

/* ---- rows ---- */

typedef struct writer {
    ashlar_file_buffer *file;
    uint64_t sum; /* the checksum of all text written so far */
} writer;

static void put(writer *w, const char *text, size_t bytes) {
    w->sum = ashlar__plan_sum(w->sum, text, bytes);
    ashlar__file_buffer_put(w->file, text, bytes);
}

ASHLAR_PRINTF(2, 3) static void print(writer *w, const char *format, ...) {
    char text[ASHLAR_FILE_BUFFER_PRINT_BYTES];
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ASHLAR_ASSERT(bytes >= 0 && (size_t)bytes < sizeof text);
    put(w, text, (size_t)bytes);
}

static void write_alloc(writer *w, const ashlar_recorded *a, size_t offset) {
    const int marks = (a->is_landing ? ASHLAR_PLAN_FILE_LANDING : 0) |
                      (a->is_shared ? ASHLAR_PLAN_FILE_SHARED : 0) |
                      (a->is_refused ? ASHLAR_PLAN_FILE_REFUSED : 0);
    ASHLAR_CHECK2(a->bytes > 0 && a->tag < ASHLAR_TAG_COUNT);
    if (a->end == ASHLAR_NOT_PLANNED) {
        print(w, "alloc,%zu,%u,%u,%d\n", a->bytes, a->tag, a->stream_idx, marks);
    } else {
        ASHLAR_CHECK2(offset % ASHLAR_BLOCK_ALIGN == 0);
        print(w, "alloc,%zu,%u,%u,%d,%" PRIu32 ",%zu\n", a->bytes, a->tag, a->stream_idx, marks,
              a->end, offset);
    }
}

static void write_key(writer *w, const ashlar_image_key *key) {
    const ashlar_recording *r = &key->recording;
    ASHLAR_CHECK2(key->plan->count == r->count && key->plan->stream_count == r->stream_count);
    ASHLAR_CHECK2(key->step_count > 0);
    print(w, "key,%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 "\n",
          key->key, key->number_count, key->stream, key->step_count, r->stream_count, r->count);
    for (uint32_t stream_idx = 0; stream_idx < r->stream_count; stream_idx++) {
        const ashlar_stream_plan *p = &key->plan->stream_plans[stream_idx];
        print(w, "part,%" PRIu32 ",%zu,%zu\n", key->streams[stream_idx], p->plan_bytes,
              p->bound_bytes);
    }
    for (uint32_t i = 0; i < r->count; i++) {
        ASHLAR_CHECK2(r->allocs[i].stream_idx < r->stream_count);
        ASHLAR_CHECK2(r->allocs[i].end > i &&
                      (r->allocs[i].end <= r->count || r->allocs[i].end == ASHLAR_NOT_PLANNED));
        write_alloc(w, &r->allocs[i], key->plan->offsets[i]);
    }
}

ashlar_status ashlar__plan_image_write(const ashlar_plan_image *image, const char *path) {
    writer w = {.sum = ASHLAR_PLAN_SUM_OF_NOTHING};
    ASHLAR_CHECK2(image->key_count > 0 && image->key_count <= ASHLAR_PLAN_FILE_KEYS_MAX);
    ASHLAR_CHECK2(strlen(image->fingerprint) <= ASHLAR_PLAN_FINGERPRINT_MAX);
    const ashlar_status status = ashlar__file_buffer_create(path, &w.file);
    if (status != ASHLAR_OK) {
        return status;
    }
    print(&w, "%s,%d\nfingerprint,", ASHLAR_PLAN_FILE_NAME, ASHLAR_PLAN_FILE_VERSION);
    put(&w, image->fingerprint, strlen(image->fingerprint));
    print(&w, "\nplans,%zu,%" PRIu32 ",%" PRIu32 "\n", (size_t)ASHLAR_BLOCK_ALIGN,
          image->stream_count, image->key_count);
    for (uint32_t i = 0; i < image->key_count; i++) {
        ASHLAR_CHECK2(image->keys[i].stream < image->stream_count);
        write_key(&w, &image->keys[i]);
    }
    char sum[ASHLAR_NUMBER_BYTES];
    ashlar__plan_write_sum(w.sum, sum);
    print(&w, "end,%s\n", sum);
    return ashlar__file_buffer_commit(w.file);
}
