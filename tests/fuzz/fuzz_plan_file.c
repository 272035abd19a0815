/* fuzz_plan_file.c - any bytes as a file of plans, against what plan_image.h promises of it. */
#include "tests/fuzz/fuzz.h"

#include <ashlar/allocator.h>

#include "allocator/step/plan_image.h"

const char fuzz_claim[] = "every_file_is_refused_or_its_plans_keep_their_invariants";

#define MUCH                                                                               \
    "ashlar-plan,2\nfingerprint,lstm 2x512, \xc3\xa9\nplans,512,3,3\n"                     \
    "key,18446744073709551615,1,0,2,2,4\npart,2,1536,1536\npart,0,0,0\n"                   \
    "alloc,1000,0,0,0,2,0\nalloc,512,7,0,0,4,1024\nalloc,300,1,1,0\nalloc,700,0,0,0,4,0\n" \
    "key,7,1,1,4294967295,1,2\npart,1,1024,512\nalloc,1,0,0,0,1,512\nalloc,1,0,0,0,2,0\n"  \
    "key,7,1,2,1,0,0\n"
#define LITTLE                                                                      \
    "ashlar-plan,2\nfingerprint,\nplans,512,1,1\nkey,0,1,0,1,1,1\npart,0,512,512\n" \
    "alloc,512,0,0,0,1,0\n"

static const char *const samples[] = {MUCH, LITTLE, "ashlar-plan,2\nfingerprint,\n"};

/* With its sum behind it. Returns the bytes of all; `out` has room. */
static size_t seal(const uint8_t *body, size_t bytes, char *out) {
    char sum[ASHLAR_NUMBER_BYTES];
    memcpy(out, body, bytes);
    ashlar__plan_write_sum(ashlar__plan_sum(ASHLAR_PLAN_SUM_OF_NOTHING, out, bytes), sum);
    return bytes + (size_t)sprintf(out + bytes, "end,%s\n", sum);
}

FUZZ_SEEDS(samples)

/* ---- what is promised ---- */

static bool meet(const ashlar_slot *slots, uint32_t i, uint32_t k) {
    return k < slots[i].end && i < slots[k].end; /* slot i is live from i on */
}

static void check_slots(const ashlar_image_key *key) {
    const ashlar_recording *r = &key->recording;
    const ashlar_plan *plan = key->plan;
    for (uint32_t i = 0; i < r->count; i++) {
        const ashlar_recorded *a = &r->allocs[i];
        const ashlar_slot *slot = &plan->slots[i];
        const bool is_planned = a->end != ASHLAR_NOT_PLANNED;
        FUZZ_CHECK(a->bytes > 0 && a->stream_idx < r->stream_count && a->tag < ASHLAR_TAG_COUNT);
        FUZZ_CHECK(!is_planned || (a->end > i && a->end <= r->count));
        FUZZ_CHECK(slot->tag == a->tag && slot->stream_idx == a->stream_idx);
        FUZZ_CHECK(is_planned ? slot->bytes >= a->bytes : slot->bytes == 0);
        if (!is_planned) {
            continue;
        }
        FUZZ_CHECK(plan->offsets[i] % 512 == 0 && slot->bytes - a->bytes < 512);
        FUZZ_CHECK(plan->offsets[i] <=
                   plan->stream_plans[slot->stream_idx].plan_bytes - slot->bytes);
        for (uint32_t k = 0; k < i; k++) {
            const ashlar_slot *other = &plan->slots[k];
            FUZZ_CHECK(other->bytes == 0 || other->stream_idx != slot->stream_idx ||
                       !meet(plan->slots, i, k) ||
                       plan->offsets[i] + slot->bytes <= plan->offsets[k] ||
                       plan->offsets[k] + other->bytes <= plan->offsets[i]);
        }
    }
}

static void check_key(const ashlar_plan_image *image, const ashlar_image_key *key) {
    FUZZ_CHECK(key->stream < image->stream_count && key->step_count > 0);
    FUZZ_CHECK(key->plan->count == key->recording.count);
    FUZZ_CHECK(key->plan->stream_count == key->recording.stream_count);
    FUZZ_CHECK(key->recording.stream_count <= ASHLAR_PLAN_STREAMS_MAX);
    for (uint32_t stream_idx = 0; stream_idx < key->plan->stream_count; stream_idx++) {
        const ashlar_stream_plan *p = &key->plan->stream_plans[stream_idx];
        FUZZ_CHECK(key->streams[stream_idx] < image->stream_count);
        FUZZ_CHECK(p->bound_bytes <= p->plan_bytes && p->stream_state == NULL);
        FUZZ_CHECK(p->bound_bytes == key->recording.peaks[stream_idx]);
        for (uint32_t other = 0; other < stream_idx; other++) {
            FUZZ_CHECK(key->streams[other] != key->streams[stream_idx]);
        }
    }
    check_slots(key);
}

static void check_image(const ashlar_plan_image *image) {
    FUZZ_CHECK(image->key_count > 0 && image->stream_count > 0);
    FUZZ_CHECK(ashlar__plan_check_fingerprint(image->fingerprint) == ASHLAR_OK);
    for (uint32_t i = 0; i < image->key_count; i++) {
        check_key(image, &image->keys[i]);
        for (uint32_t k = 0; k < i; k++) {
            FUZZ_CHECK(image->keys[k].key != image->keys[i].key ||
                       image->keys[k].stream != image->keys[i].stream);
        }
    }
}

/* ---- */

static ashlar_status try_text(const char *text, size_t bytes) {
    ashlar_plan_image image = {0};
    const ashlar_status status = ashlar__plan_image_parse("stone", text, bytes, &image);
    if (status == ASHLAR_OK) {
        check_image(&image);
    } else {
        FUZZ_CHECK(status == ASHLAR_EFORMAT || status == ASHLAR_ENOTSUP);
        FUZZ_CHECK(strncmp(ashlar_error_detail(), "stone:", 6) == 0);
        FUZZ_CHECK(image.keys == NULL && image.fingerprint == NULL);
    }
    ashlar__plan_image_finish(&image);
    return status;
}

/* As it is, which its sum nearly always refuses, and with the sum that it should have. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = malloc(bytes + 64);
    FUZZ_CHECK(text != NULL);
    if (bytes > 0) {
        memcpy(text, data, bytes);
        (void)try_text(text, bytes);
    }
    const size_t sealed = bytes > 0 ? seal(data, bytes, text) : 0;
    if (sealed > 0 && try_text(text, sealed) == ASHLAR_OK) {
        text[sealed - 2] ^= 1; /* a digit of the sum */
        FUZZ_CHECK(try_text(text, sealed) == ASHLAR_EFORMAT);
    }
    free(text);
    return 0;
}
