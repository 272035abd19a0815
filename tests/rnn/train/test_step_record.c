/*
 * test_step_record.c - what steps take, by hooks, and trainings whose buffers come from elsewhere.
 */
#include "tests/rnn/train/train_fixture.h"

#include "rnn/train/step_record.h"

static ashlar_step_record *record;

static void forget_record(void) {
    close_trainer();
    ashlar__step_record_destroy(record);
    record = NULL;
}

/* Train with a record. */
static bool train_recorded(ashlar_train_config config) {
    forget_record();
    if (!check_at_end(forget_record) || ashlar__step_record_create(NULL, &record) != ASHLAR_OK) {
        return false;
    }
    config.hooks = ashlar__step_record_hooks(record);
    return train_once(&config) == ASHLAR_OK;
}

/* Boxes that are held at the same moment share no address; live bytes and peak follow from them. */
static void check_boxes(const ashlar_step_boxes *b) {
    uint64_t most = 0;
    CHECK(b->count > 4 && b->left_out == 0 && b->moments == 2 * b->count);
    for (size_t i = 0; i < b->count; i++) {
        const ashlar_step_box *x = &b->list[i];
        uint64_t live = 0;
        CHECK(x->taken < x->given && x->given < b->moments && x->name[0] != '\0' && x->bytes > 0);
        for (size_t j = 0; j < b->count; j++) {
            const ashlar_step_box *y = &b->list[j];
            live += y->taken <= x->taken && x->taken < y->given ? y->bytes : 0;
            CHECK(i == j || x->given < y->taken || y->given < x->taken ||
                  x->address + x->bytes <= y->address || y->address + y->bytes <= x->address);
        }
        most = live > most ? live : most;
    }
    CHECK_ZU(b->peak_bytes, most);
    CHECK_ZU(b->live_bytes, 0);
}

CASE_WITH(the_largest_step_and_what_each_step_held_are_kept, open_text("memory=256MiB")) {
    size_t count = 0;
    REQUIRE(train_recorded(small_config(12)));
    const ashlar_step_boxes *b = ashlar__step_record_largest(record);
    check_boxes(b);
    CHECK(b->backward > 0 && b->backward < b->moments);
    CHECK(b->peak_bytes <= report.step_bytes && b->peak_bytes > report.step_bytes / 2);
    const ashlar_step_held *held = ashlar__step_record_held(record, &count);
    CHECK_ZU(count, 12);
    for (size_t i = 0; i < count; i++) {
        CHECK_ZU(held[i].step, i + 1);
        CHECK(held[i].live_bytes <= report.stats.live_peak_bytes);
        CHECK_ZU(held[i].reserved_bytes, report.stats.reserved_bytes); /* proven by the warm-up */
    }
}

static void *ptrs[ASHLAR_STEP_BOXES + 9];

static void take_box(const ashlar_buffer_hooks *hooks, size_t i) {
    const ashlar_buffer_request request = {"one", 1, ASHLAR_TAG_USER, false};
    CHECK(hooks->take(hooks->context, &request, allocator, streams[1], &ptrs[i]) == ASHLAR_OK);
}

CASE_WITH(boxes_that_find_no_room_are_merged_or_counted, set_up("memory=64MiB")) {
    REQUIRE(check_at_end(forget_record) && ashlar__step_record_create(NULL, &record) == ASHLAR_OK);
    const ashlar_buffer_hooks *hooks = ashlar__step_record_hooks(record);
    for (size_t i = 0; i < ASHLAR_STEP_BOXES + 9; i++) {
        take_box(hooks, i);
    }
    for (size_t i = 0; i < 3; i++) { /* the same place again */
        CHECK(hooks->give(hooks->context, allocator, ptrs[7]) == ASHLAR_OK);
        take_box(hooks, 7);
    }
    for (size_t i = 0; i < ASHLAR_STEP_BOXES + 9; i++) {
        CHECK(hooks->give(hooks->context, allocator, ptrs[i]) == ASHLAR_OK);
    }
    const ashlar_step_boxes *b = ashlar__step_record_largest(record);
    CHECK_ZU(b->count, ASHLAR_STEP_BOXES);
    CHECK_ZU(b->merged, 3);
    CHECK_ZU(b->left_out, 9);
    CHECK_ZU(b->peak_bytes, ASHLAR_STEP_BOXES);
    CHECK_ZU(b->live_bytes, 0);
    CHECK_ZU(b->list[7].given, ASHLAR_STEP_BOXES + 6 + 7);
}

CASE_WITH(without_a_warm_up_steps_call_the_driver, open_text("memory=256MiB")) {
    ashlar_train_config config = small_config(6);
    config.hidden = 256; /* more than the segment that holds the weights has left */
    REQUIRE(train_once(&config) == ASHLAR_OK);
    const double want = report.loss_last;
    config.without_warmup = true;
    REQUIRE(train_once(&config) == ASHLAR_OK);
    CHECK(report.training.management > 0);
    CHECK_ZU(report.warmup.work, 0);
    CHECK(!report.step_memory.is_planned && report.loss_last == want);
    config.pads = true;
    CHECK_FAILS(train_once(&config), ASHLAR_EINVAL, "need the warm-up");
}

RUN_CASES()
