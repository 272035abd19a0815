/*
 * test_bench_pack.c - that packing is measured on the problem it says, and how that is told. What
 * it takes is not judged.
 */
#include "bench/replay/bench_pack.h"

#include "tests/check.h"
#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/host.h"
#include "tests/text.h"

CASE(the_problem_is_packed_and_the_gap_is_that_of_the_plan) {
    ashlar_packing packing = {0};
    CHECK(ashlar__bench_pack(0, 1, &packing) == ASHLAR_OK);
    CHECK_ZU(packing.count, 20000);
    CHECK(packing.seconds > 0 && packing.result.bound_bytes > 0);
    CHECK(packing.result.plan_bytes % 512 == 0);
    CHECK(packing.result.plan_bytes >= packing.result.bound_bytes);
    const double ratio = 1 + ashlar__packing_gap(&packing);
    CHECK_NEAR(ratio * (double)packing.result.bound_bytes, (double)packing.result.plan_bytes, 0,
               1e-12);
    packing.result.bound_bytes = 0;
    CHECK(ashlar__packing_gap(&packing) == 0);
}

static ashlar_packing packing_of(double seconds, size_t plan_bytes) {
    return (ashlar_packing){
        .case_name = "some",
        .count = 3,
        .seconds = seconds,
        .result = {.plan_bytes = plan_bytes, .bound_bytes = 1000, .strategy = "one"}};
}

static const char *text_of(void (*print)(FILE *, const ashlar_packing *),
                           const ashlar_packing *packing) {
    print(text_begin(), packing);
    return text_end();
}

static ashlar_status pack(const char *file, ashlar_packing *out) {
    const ashlar_pack_job job = {.path = file, .capacity_bytes = 150, .seconds = 1};
    return ashlar__bench_pack_file(&job, out);
}

/* Two that are live together, and a third one. */
static void write_problem(void) {
    static const char text[] = "id,lower,upper,size\na,0,2,100\nb,1,3,50\nc,2,4,100\n";
    write_bytes(text, sizeof text - 1);
}

CASE(a_file_is_packed_into_its_capacity) {
    ashlar_packing packing = {0};
    write_problem();
    CHECK(pack(path, &packing) == ASHLAR_OK);
    CHECK_ZU(packing.count, 3);
    CHECK_ZU(packing.capacity_bytes, 150);
    CHECK(packing.result.plan_bytes == 150 && packing.result.bound_bytes == 150);
    CHECK_HAS(text_of(ashlar__bench_pack_print, &packing), ": fits\n");
    packing.capacity_bytes = 149;
    CHECK_HAS(text_of(ashlar__bench_pack_print, &packing), ", capacity 149: does not fit\n");
}

CASE(a_file_that_is_no_problem_is_an_error) {
    ashlar_packing packing = {.count = 7};
    write_bytes("id,lower\n", 9);
    CHECK(pack(path, &packing) == ASHLAR_EFORMAT);
    CHECK(pack("/nowhere/at.csv", &packing) == ASHLAR_EIO);
    CHECK_ZU(packing.count, 7);
}

CASE(without_host_memory_no_file_is_packed) {
    ashlar_packing packing = {.count = 7};
    write_problem();
    FOR_HOST_FAILURES(n, status, pack(path, &packing)) {
        CHECK_ZU(packing.count, status == ASHLAR_OK ? 3 : 7);
    }
    CHECK(n > 3);
}

static void check_json(const ashlar_packing *packing, const char *end) {
    const ashlar_row row = ashlar__packing_row(packing);
    ashlar_json_writer w;
    const char *text = NULL;
    size_t bytes = 0;
    ashlar__json_writer_init(&w, 0);
    ashlar__json_open_object(&w);
    ashlar__rows_put_members(&w, &ashlar__packing_form, &row);
    ashlar__json_close_object(&w);
    REQUIRE(ashlar__json_writer_text(&w, &text, &bytes) == ASHLAR_OK);
    CHECK_HAS(text, "{\"case\":\"some\",\"subject\":\"ashlar\",\"buffers\":3,\"seconds\":0.25,"
                    "\"plan_bytes\":1500,\"bound_bytes\":1000,\"gap\":0.5,\"optimal\":false,");
    CHECK_HAS(text, end);
    ashlar__json_writer_finish(&w);
}

CASE(json_has_the_figures) {
    ashlar_packing packing = packing_of(0.25, 1500);
    check_json(&packing, "\"capacity_bytes\":null,\"fits\":true,\"strategy\":\"one\"}");
    packing.capacity_bytes = 1500;
    check_json(&packing, "\"capacity_bytes\":1500,\"fits\":true,\"strategy\":\"one\"}");
    packing.capacity_bytes = 1499;
    check_json(&packing, "\"capacity_bytes\":1499,\"fits\":false,\"strategy\":\"one\"}");
}

RUN_CASES_IN_FOLDER()
