/* test_rmm_plan.c - that a step of a log becomes the recording of what it allocates on a stream. */
#include "tests/allocator/step/plan_file_fixture.h"

#include "bench/replay/rmm_plan.h"

#define HEADER "Thread,Action,Pointer,Size,Stream\n"
#define HEAD(allocs) "ashlar-plan,1\nfingerprint,\nplans,512,1,1\nkey,7,0,1,1," allocs "\n"

/* An event a line, from 0; streams 0 and 1. */
static const char sample[] = HEADER "1,allocate,0x10,100,0\n"  /*  0: before the step */
                                    "1,allocate,0x20,600,0\n"  /*  1 */
                                    "1,allocate,0x30,700,5\n"  /*  2: the other stream's */
                                    "1,allocate failure,0x0,99,0\n"
                                    "1,free,0x10,100,0\n"      /*  4 */
                                    "1,allocate,0x40,900,0\n"  /*  5 */
                                    "1,free,0x20,600,0\n"      /*  6 */
                                    "1,allocate,0x20,50,0\n"   /*  7: the address again */
                                    "1,free,0x40,900,5\n"      /*  8: on the other stream */
                                    "1,free,0x30,700,0\n"      /*  9: the other stream's block */
                                    "1,free,0x20,50,0\n"       /* 10 */
                                    "1,allocate,0x50,5,0\n"    /* 11: outlives the step */
                                    "1,free,0x50,5,0\n";

static ashlar_rmm_log *log_of_sample(void) {
    ashlar_rmm_log *log = NULL;
    CHECK(ashlar_rmm_log_parse("sample", sample, sizeof sample - 1, &log) == ASHLAR_OK);
    return log;
}

/* The file of the plan that events [first, end) give begins so; the offsets are the packer's. */
static void check_rows(const ashlar_rmm_log *log, size_t stream, size_t first, size_t end,
                       const char *head, const char *const rows[]) {
    REQUIRE(set_up_plans());
    REQUIRE(ashlar_plan_record_rmm(allocator, streams[2], 7, log, stream, first, end) == ASHLAR_OK);
    REQUIRE(ashlar_plan_save(allocator, path, NULL) == ASHLAR_OK);
    (void)read_text(text);
    CHECK(strncmp(text, head, strlen(head)) == 0);
    const char *at = strstr(text, "\nalloc,");
    for (size_t i = 0; rows[i] != NULL; i++) {
        CHECK(at != NULL && strncmp(at + 1, rows[i], strlen(rows[i])) == 0);
        at = at != NULL ? strchr(at + 1, '\n') : NULL;
    }
    CHECK(at != NULL || rows[0] == NULL);
    CHECK(at == NULL || strncmp(at, "\nend,", 5) == 0);
    tear_down();
}

CASE(a_step_is_what_is_allocated_in_it) {
    ashlar_rmm_log *log = log_of_sample();
    REQUIRE(log != NULL);
    check_rows(log, 0, 1, 12, HEAD("4"),
               (const char *const[]){"alloc,600,0,0,2,", "alloc,900,0,0\n", "alloc,50,0,0,3,",
                                     "alloc,5,0,0\n", NULL});
    check_rows(log, 0, 0, 13, HEAD("5"),
               (const char *const[]){"alloc,100,0,0,2,", "alloc,600,0,0,3,", "alloc,900,0,0\n",
                                     "alloc,50,0,0,4,", "alloc,5,0,0,5,", NULL});
    check_rows(log, 1, 0, 13, HEAD("1"), (const char *const[]){"alloc,700,0,0\n", NULL});
    /* What was there before, and is freed in it, is no part of it. */
    check_rows(log, 0, 3, 5, HEAD("0"), (const char *const[]){NULL});
    check_rows(log, 0, 8, 11, HEAD("0"), (const char *const[]){NULL});
    check_rows(log, 0, 4, 6, HEAD("1"), (const char *const[]){"alloc,900,0,0\n", NULL});
    check_rows(log, 0, 13, 13, HEAD("0"), (const char *const[]){NULL});
    ashlar_rmm_log_free(log);
}

CASE(what_the_log_has_not_is_refused) {
    ashlar_rmm_log *log = log_of_sample();
    REQUIRE(log != NULL && set_up_plans());
    CHECK(ashlar_plan_record_rmm(allocator, streams[0], 7, log, 0, 0, 14) == ASHLAR_EINVAL);
    CHECK(ashlar_plan_record_rmm(allocator, streams[0], 7, log, 0, 5, 4) == ASHLAR_EINVAL);
    CHECK(ashlar_plan_record_rmm(allocator, streams[0], 7, log, 2, 0, 13) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "sample: events 0 to 13 of stream 2; it has 13 events");
    for (unsigned long n = 1; n <= 4; n++) {
        ashlar_host_fail_at(n);
        CHECK(ashlar_plan_record_rmm(allocator, streams[0], 7, log, 0, 0, 13) == ASHLAR_EHOSTMEM);
        ashlar_host_fail_at(0);
        CHECK(allocator->planner.keys == NULL);
    }
    CHECK(ashlar_plan_record_rmm(allocator, streams[0], 7, log, 0, 0, 13) == ASHLAR_OK);
    CHECK_ZU(plans().slot_count, 4);
    tear_down();
    ashlar_rmm_log_free(log);
}

RUN_CASES_IN_FOLDER()
