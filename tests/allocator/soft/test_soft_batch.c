/*
 * test_soft_batch.c - batched copies of the software device, and the kernels that it has not.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"

enum { COPIES = 8 };

/* A batch of one-byte copies from `src` to `dst`, which a case may spoil before it is queued. */
typedef struct batch {
    cu_ptr dsts[COPIES], srcs[COPIES];
    size_t sizes[COPIES], count;
    cu_copy_attributes attributes;
    size_t start, attribute_count, failed;
    cu_stream stream;
} batch;

static cu_ptr src, dst; /* of the case, 1 KiB each */

static batch new_batch(cu_stream stream) {
    batch b = {.count = COPIES,
               .attributes = {.order = CU_COPY_STREAM_ORDER},
               .attribute_count = 1,
               .failed = 99,
               .stream = stream};
    src = alloc(1024);
    dst = alloc(1024);
    for (size_t i = 0; i < COPIES; i++) {
        bytes_at(src)[i] = (unsigned char)(i + 1);
        b.srcs[i] = src + i;
        b.dsts[i] = dst + 2 * i;
        b.sizes[i] = 1;
    }
    return b;
}

static cu_result queue_batch(batch *b) {
    return soft->memcpy_batch_async(b->dsts, b->srcs, b->sizes, b->count, &b->attributes, &b->start,
                                    b->attribute_count, &b->failed, b->stream);
}

CASE_OF_SEEDS(a_batch_copies_each_range_in_stream_order) {
    s = new_stream(CU_STREAM_BLOCKING);
    batch b = new_batch(s);
    CHECK(soft->memset_d8_async(src + 3, 77, 1, s) == CU_SUCCESS);
    CHECK(queue_batch(&b) == CU_SUCCESS);
    CHECK_ZU(b.failed, SIZE_MAX);
    memset(b.sizes, 0xFF, sizeof b.sizes); /* the lists have been read */
    CHECK(soft->memset_d8_async(src, 0, COPIES, s) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(dst + 4, 55, 1, s) == CU_SUCCESS);
    CHECK(bytes_at(dst)[0] == 0);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(memcmp(bytes_at(dst), "\1\0\2\0\67\0\115\0\5\0\6\0\7\0\10\0", 2 * COPIES) == 0);
}

/* Two that depend on each other are the program's mistake, and are seen to be one. */
CASE(copies_of_a_batch_have_no_order) {
    int first_won = 0, second_won = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        batch b = new_batch(new_stream(CU_STREAM_UNORDERED));
        b.dsts[1] = b.dsts[0];
        CHECK(queue_batch(&b) == CU_SUCCESS);
        CHECK(soft->stream_synchronize(b.stream) == CU_SUCCESS);
        first_won += bytes_at(dst)[0] == 1;
        second_won += bytes_at(dst)[0] == 2;
    }
    CHECK(first_won > 0 && second_won > 0 && first_won + second_won == SEEDS);
}

CASE_WITH(a_batch_that_is_wrong_is_refused_whole, set_up("memory=64MiB")) {
    const batch good = new_batch(new_stream(CU_STREAM_UNORDERED));
    batch bad[10];
    for (int i = 0; i < 10; i++) {
        bad[i] = good;
    }
    bad[0].count = 0;
    bad[1].start = 1;
    bad[2].attribute_count = 0;
    bad[3].attribute_count = 2;
    bad[4].attributes.order = 0;
    bad[5].attributes.flags = 1;
    bad[6].stream = NULL;
    bad[7].sizes[7] = 0;
    bad[8].dsts[7] = (cu_ptr)(uintptr_t)&good;
    bad[9].srcs[7] = (cu_ptr)(uintptr_t)&good;
    for (int i = 0; i < 10; i++) {
        CHECK(queue_batch(&bad[i]) == CU_INVALID_VALUE);
        CHECK_ZU(bad[i].failed, i < 7 ? 99 : 7);
    }
    batch b = good;
    for (int missing = 0; missing < 6; missing++) {
        CHECK(soft->memcpy_batch_async(
                  missing == 0 ? NULL : b.dsts, missing == 1 ? NULL : b.srcs,
                  missing == 2 ? NULL : b.sizes, 1, missing == 3 ? NULL : &b.attributes,
                  missing == 4 ? NULL : &b.start, 1, missing == 5 ? NULL : &b.failed,
                  b.stream) == CU_INVALID_VALUE);
    }
    b.stream = (cu_stream)77;
    CHECK(queue_batch(&b) == CU_INVALID_HANDLE);
    CHECK(bytes_at(dst)[0] == 0);
}

CASE_WITH(a_batch_cannot_be_captured, set_up("memory=16MiB")) {
    batch b = new_batch(new_stream(CU_STREAM_UNORDERED));
    begin(b.stream, CU_CAPTURE_RELAXED);
    CHECK(queue_batch(&b) == CU_STREAM_CAPTURE_UNSUPPORTED);
    check_spoilt(b.stream);
    CHECK(bytes_at(dst)[0] == 0);
}

CASE_WITH(a_device_may_be_without_batches, set_up("memory=16MiB,batch=off")) {
    batch b = new_batch(new_stream(CU_STREAM_UNORDERED));
    CHECK(queue_batch(&b) == CU_NOT_SUPPORTED);
    CHECK(bytes_at(dst)[0] == 0);
}

CASE_WITH(there_are_no_kernels, set_up("memory=16MiB")) {
    cu_module module = NULL;
    cu_function function = NULL;
    CHECK(soft->module_load_data(&module, "") == CU_NOT_SUPPORTED);
    CHECK(soft->module_get_function(&function, module, "a") == CU_NOT_SUPPORTED);
    CHECK(soft->launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CU_NOT_SUPPORTED);
    CHECK(soft->module_unload(module) == CU_NOT_SUPPORTED);
    CHECK(module == NULL && function == NULL);
}

RUN_CASES()
