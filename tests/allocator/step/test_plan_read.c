/*
 * test_plan_read.c - that a file of plans which was changed, cut, or written by hand and wrongly,
 * is refused by its line, and that nothing is as if it had been tried.
 */
#include "tests/allocator/step/plan_file_fixture.h"

CASE_WITH(every_changed_byte_is_refused, set_up_plans()) {
    write_sealed(SMALL_BODY);
    const size_t bytes = read_text(text);
    long loaded = 0, bad = 0;
    for (size_t at = 0; at < bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            text[at] ^= (char)(1 << bit);
            write_bytes(text, bytes);
            text[at] ^= (char)(1 << bit);
            const ashlar_status status = load();
            loaded += status == ASHLAR_OK;
            bad += status != ASHLAR_EFORMAT && status != ASHLAR_ENOTSUP;
            bad += strncmp(ashlar_error_detail(), path, strlen(path)) != 0;
        }
    }
    CHECK(loaded == 0 && bad == 0);
    CHECK(allocator->planner.keys == NULL && allocator->planner.memories == NULL);
    write_bytes(text, bytes);
    CHECK(load() == ASHLAR_OK);
}

CASE_WITH(every_cut_and_every_addition_is_refused, set_up_plans()) {
    write_sealed(SMALL_BODY);
    const size_t bytes = read_text(text);
    for (size_t cut = 0; cut < bytes; cut++) {
        write_bytes(text, cut);
        check_refused(ASHLAR_EFORMAT, "cut off");
    }
    text[bytes] = 'x';
    write_bytes(text, bytes + 1);
    check_refused(ASHLAR_EFORMAT, ":11: more lines behind the end");
}

/* The lines of SMALL_BODY with one of them replaced. */
static void write_with_line(int line, const char *instead) {
    static char body[4096];
    size_t used = 0;
    int number = 0;
    for (const char *at = SMALL_BODY; *at != '\0';) {
        const size_t bytes = strcspn(at, "\n");
        const bool is_it = ++number == line;
        used += (size_t)snprintf(body + used, sizeof body - used, "%.*s\n",
                                 (int)(is_it ? strlen(instead) : bytes), is_it ? instead : at);
        at += bytes + 1;
    }
    write_sealed(body);
}

CASE(every_wrong_line_is_named) {
    static const struct {
        int line;
        const char *instead, *stream_idx;
        ashlar_status status;
    } cases[] = {
        {1, "ashlar-plan,1", ":1: version 1", ASHLAR_ENOTSUP},
        {1, "ashlar-plan,3", ":1: version 3", ASHLAR_ENOTSUP},
        {1, "ashlar-plan,0", ":1: version 0", ASHLAR_ENOTSUP},
        {1, "ashlar-plan,one", ":1: the version", ASHLAR_EFORMAT},
        {1, "ashlar-plan", ":1: the version", ASHLAR_EFORMAT},
        {1, "id,lower,upper,size", ":1: 'id,lower", ASHLAR_EFORMAT},
        {2, "finger,a", ":2: 'finger", ASHLAR_EFORMAT},
        {2, "fingerprint,a\tb", ":2: the fingerprint", ASHLAR_EFORMAT},
        {3, "plans,256,1,1", ":3: slots aligned to 256", ASHLAR_ENOTSUP},
        {3, "plans,0,1,1", ":3: ALIGNMENT", ASHLAR_EFORMAT},
        {3, "plans,512,0,1", ":3: STREAMS", ASHLAR_EFORMAT},
        {3, "plans,512,4294967296,1", ":3: STREAMS", ASHLAR_EFORMAT},
        {3, "plans,512,1,0", ":3: KEYS", ASHLAR_EFORMAT},
        {3, "plans,512,1,99", ":3: the file is cut off", ASHLAR_EFORMAT},
        {3, "plans,512,1,65537", ":3: KEYS", ASHLAR_EFORMAT},
        {3, "plans,512,1,2", ":10: 'end,", ASHLAR_EFORMAT},
        {3, "plans,512,1", ":3: 2 numbers in place of 3", ASHLAR_EFORMAT},
        {3, "plans,512,1,1,", ":3: 4 numbers in place of 3", ASHLAR_EFORMAT},
        {4, "key,7,1,1,1,1,4", ":4: STREAM", ASHLAR_EFORMAT},
        {4, "key,18446744073709551616,1,0,1,1,4", ":4: KEY", ASHLAR_EFORMAT},
        {4, "key,-7,1,0,1,1,4", ":4: KEY is '-7'", ASHLAR_EFORMAT},
        {4, "key,7,0,0,1,1,4", ":4: NUMBERS", ASHLAR_EFORMAT},
        {4, "key,7,1,0,0,1,4", ":4: STEPS", ASHLAR_EFORMAT},
        {4, "key,7,1,0,4294967296,1,4", ":4: STEPS", ASHLAR_EFORMAT},
        {4, "key,7,1,0,1,129,4", ":4: PARTS is '129', not 0 .. 128", ASHLAR_EFORMAT},
        {4, "key,7,1,0,1,0,4", ":4: PARTS is '0', not 1 .. 128", ASHLAR_EFORMAT},
        {4, "key,7,1,0,1,2,4", ":6: 'alloc,1000", ASHLAR_EFORMAT},
        {4, "key,7,1,0,1,1,999999", ":4: the file is cut off", ASHLAR_EFORMAT},
        {4, "key,7,1,0,1,1,1073741825", ":4: ALLOCS", ASHLAR_EFORMAT},
        {4, "key,7,1,0,1,1,5", ":10: 'end,", ASHLAR_EFORMAT},
        {4, "key,7,1,0,1,1,3", ":7: END", ASHLAR_EFORMAT},
        {5, "part,1,1536,1536", ":5: STREAM", ASHLAR_EFORMAT},
        {5, "part,0,2048,1536", "PLAN,PEAK are 2048,1536", ASHLAR_EFORMAT},
        {5, "part,0,1536,2048", "PLAN,PEAK are 1536,2048", ASHLAR_EFORMAT},
        {6, "alloc,0,0,0,0,2,0", ":6: BYTES", ASHLAR_EFORMAT},
        {6, "alloc,1000,8,0,0,2,0", ":6: TAG", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,1,0,2,0", ":6: PART", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,4,2,0", ":6: MARKS", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,2,2,0", "buffers 0 and 2 overlap", ASHLAR_EFORMAT}, /* shared: held */
        {6, "alloc,1000,0,0,0,0,0", ":6: END", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,0,5,0", ":6: END", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,0,2,x", ":6: OFFSET", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,0,2", ":6: 5 numbers in place of 6", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,0,2,256", "no multiple of 512", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,0,2,512", ":9: key 7: pack: buffers", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,0,2,18446744073709551104", "beyond size_t", ASHLAR_EFORMAT},
        {6, "alloc,18446744073709551615,0,0,0,2,0", "18446744073709551615 bytes", ASHLAR_EFORMAT},
        {6, "alloc,1000,0,0,0,4,0", "overlap", ASHLAR_EFORMAT},
        {7, "alloc,512,7,0,0,1,1024", ":7: END", ASHLAR_EFORMAT},
        {8, "other,300,1,0", ":8: 'other", ASHLAR_EFORMAT},
        {8, "alloc,300,1,0,8", ":8: MARKS", ASHLAR_EFORMAT},
        {8, "alloc,300,1", ":8: 2 numbers in place of 6", ASHLAR_EFORMAT},
    };
    REQUIRE(set_up_plans());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_with_line(cases[i].line, cases[i].instead);
        check_refused(cases[i].status, cases[i].stream_idx);
    }
    write_with_line(0, "");
    CHECK(load() == ASHLAR_OK);
}

CASE_WITH(a_refusal_is_read, set_up_plans()) {
    write_with_line(8, "alloc,300,1,0,5");
    CHECK(load() == ASHLAR_OK);
    const ashlar_slot *slot = &allocator->planner.keys->plan->slots[2];
    CHECK(slot->is_refused && slot->unplanned == 300 && slot->bytes == 0);
}

CASE_WITH(a_key_or_a_part_that_is_there_twice_is_refused, set_up_plans()) {
    write_sealed("ashlar-plan,2\nfingerprint," PRINT "\nplans,512,2,2\n"
                 "key,1,1,0,1,1,1\npart,0,512,512\nalloc,1,0,0,0,1,0\n"
                 "key,1,1,0,1,1,1\npart,0,512,512\nalloc,1,0,0,0,1,0\n");
    check_refused(ASHLAR_EFORMAT, ":7: key 1 is there twice");
    write_sealed("ashlar-plan,2\nfingerprint," PRINT "\nplans,512,2,2\n"
                 "key,3,2,0,1,1,1\npart,0,512,512\nalloc,1,0,0,0,1,0\n"
                 "key,1,3,0,1,1,1\npart,0,512,512\nalloc,1,0,0,0,1,0\n");
    check_refused(ASHLAR_EFORMAT, ":7: key 1 is there twice");
    write_sealed("ashlar-plan,2\nfingerprint," PRINT "\nplans,512,2,1\n"
                 "key,1,1,0,1,2,2\npart,1,512,512\npart,1,512,512\n"
                 "alloc,1,0,0,0,1,0\nalloc,1,0,1,0,2,0\n");
    check_refused(ASHLAR_EFORMAT, ":6: a second part of stream 1");
    /* Neither is one number on two streams, nor one stream in two keys. */
    write_sealed("ashlar-plan,2\nfingerprint," PRINT "\nplans,512,2,3\n"
                 "key,1,1,0,1,1,1\npart,0,512,512\nalloc,1,0,0,0,1,0\n"
                 "key,1,1,1,1,1,1\npart,1,1024,1024\nalloc,1024,0,0,0,1,0\n"
                 "key,2,1,0,1,0,0\n");
    CHECK(load() == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 3);
    CHECK_ZU(plans().plan_bytes, 1536);
}

CASE_WITH(a_byte_0_in_the_fingerprint_is_refused, set_up_plans()) {
    write_sealed(SMALL_BODY);
    const size_t bytes = read_text(text);
    char *print = strstr(text, PRINT);
    REQUIRE(print != NULL);
    print[3] = '\0';
    write_bytes(text, bytes);
    check_refused(ASHLAR_EFORMAT, ":2: the fingerprint");
}

RUN_CASES_IN_FOLDER()
