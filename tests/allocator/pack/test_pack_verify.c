/* test_pack_verify.c - that a right plan passes, and that every kind of wrong one is named. */

#include "tests/check.h"
#include "allocator/base/host.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { MANY = 60 };

static ashlar_pack_buffer buffers[MANY];
static size_t offsets[MANY];

static ashlar_status verify(size_t count, size_t alignment, size_t *bytes) {
    return ashlar_pack_verify(buffers, count, alignment, offsets, bytes);
}

/* It fails with `want`, says `text`, and leaves the bytes alone. */
static bool refuses(size_t count, size_t alignment, ashlar_status want, const char *text) {
    size_t bytes = 77;
    const ashlar_status got = verify(count, alignment, &bytes);
    CHECK_HAS(ashlar_error_detail(), text);
    return got == want && bytes == 77;
}

static void set(size_t i, size_t bytes, uint64_t begin, uint64_t end, size_t offset) {
    buffers[i] = (ashlar_pack_buffer){bytes, begin, end};
    offsets[i] = offset;
}

CASE(right_plans_pass) {
    size_t bytes;
    CHECK(ashlar_pack_verify(NULL, 0, 1, NULL, &bytes) == ASHLAR_OK && bytes == 0);
    set(0, 100, 0, 10, 0);
    set(1, 50, 0, 5, 100);
    set(2, 50, 5, 10, 100); /* at the same place, later */
    set(3, 10, 10, 11, 60);
    CHECK(verify(4, 1, &bytes) == ASHLAR_OK && bytes == 150);
    CHECK(verify(4, 0, &bytes) == ASHLAR_OK && bytes == 150);
    offsets[1] = offsets[2] = 128;
    offsets[3] = 64;
    CHECK(verify(4, 64, &bytes) == ASHLAR_OK && bytes == 192);
}

CASE(an_overlap_is_named) {
    set(0, 100, 0, 10, 0);
    set(1, 50, 3, 5, 99);
    CHECK(refuses(2, 1, ASHLAR_EFORMAT, "buffers 0 and 1 overlap"));
    set(1, 100, 9, 11, 0); /* the very same bytes */
    CHECK(refuses(2, 1, ASHLAR_EFORMAT, "overlap"));
    set(1, 10, 9, 11, 50); /* within */
    CHECK(refuses(2, 1, ASHLAR_EFORMAT, "takes bytes 0 to 100 and 1 begins at 50"));
    set(2, 10, 0, 1, 200); /* one above both hides nothing */
    CHECK(refuses(3, 1, ASHLAR_EFORMAT, "buffers 0 and 1 overlap"));
}

CASE(bad_offsets_and_arguments_are_named) {
    set(0, 100, 0, 10, 64);
    set(1, 100, 0, 10, 300);
    CHECK(refuses(2, 8, ASHLAR_EFORMAT, "offset 300 of buffer 1 is no multiple of 8"));
    CHECK(refuses(2, 6, ASHLAR_EINVAL, "alignment of 6"));
    offsets[1] = SIZE_MAX - 98;
    CHECK(refuses(2, 1, ASHLAR_EOVERFLOW, "buffer 1 of 100 bytes"));
    offsets[1] = SIZE_MAX & ~(size_t)63;
    buffers[1].bytes = 1;
    CHECK(refuses(2, 64, ASHLAR_EOVERFLOW, "ends beyond"));
    set(1, 0, 0, 10, 300);
    CHECK(refuses(2, 1, ASHLAR_EINVAL, "buffer 1"));
    set(1, 1, 10, 10, 300);
    CHECK(refuses(2, 1, ASHLAR_EINVAL, "buffer 1"));
    CHECK(refuses((size_t)1 << 31, 1, ASHLAR_EOVERFLOW, "2147483648 buffers"));
}

CASE(it_agrees_with_looking_at_every_pair) {
    size_t right = 0, wrong = 0;
    for (int round = 0; round < 20000; round++) {
        const size_t count = pack_draw(1, round % 2 == 0 ? 6 : 20);
        size_t bytes = 0, highest = 0;
        draw_buffers(buffers, count, 12, 9);
        for (size_t i = 0; i < count; i++) {
            offsets[i] = pack_draw(0, 8 * count);
            const size_t end = offsets[i] + buffers[i].bytes;
            highest = end > highest ? end : highest;
        }
        const bool is_right = is_plan(buffers, count, 1, offsets);
        REQUIRE(verify(count, 1, &bytes) == (is_right ? ASHLAR_OK : ASHLAR_EFORMAT));
        CHECK(!is_right || bytes == highest);
        right += is_right;
        wrong += !is_right;
    }
    CHECK(right > 2000 && wrong > 2000);
}

CASE(a_moved_buffer_is_found_in_a_plan_without_gaps) {
    size_t bytes;
    for (size_t i = 0; i < MANY; i++) { /* five high, each stack in its own time */
        set(i, 16, i / 5 * 10, i / 5 * 10 + 10, i % 5 * 16);
    }
    REQUIRE(verify(MANY, 16, &bytes) == ASHLAR_OK && bytes == 80);
    for (size_t i = 0; i < MANY; i++) {
        const size_t offset = offsets[i];
        offsets[i] = i % 5 == 4 ? offset - 8 : offset + 8;
        CHECK(refuses(MANY, 8, ASHLAR_EFORMAT, "overlap"));
        offsets[i] = offset;
        buffers[i].end += i + 5 < MANY;
        CHECK(i + 5 >= MANY || refuses(MANY, 16, ASHLAR_EFORMAT, "overlap"));
        buffers[i].end -= i + 5 < MANY;
    }
}

CASE(without_host_memory_nothing_is_claimed) {
    size_t bytes = 77;
    set(0, 100, 0, 10, 0);
    FOR_HOST_FAILURES(n, status, verify(1, 1, &bytes)) {
        CHECK_ZU(bytes, status == ASHLAR_OK ? 100 : 77);
    }
    CHECK_ZU(n, 4);
}

RUN_CASES()
