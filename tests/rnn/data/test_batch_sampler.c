/*
 * test_batch_sampler.c - every item comes once an epoch, with others of its length, in an order
 * that the seed alone decides.
 */
#include "rnn/data/batch_sampler.h"

#include "tests/check.h"
#include "allocator/base/host.h"

enum { ITEMS = 60, BATCH = 4, WINDOW = 3, PER_EPOCH = ITEMS / BATCH };

static ashlar_batch_sampler_item items[ITEMS];

static ashlar_batch_sampler *opened[3]; /* of the case */
static size_t opened_count;

static void close_all(void) {
    while (opened_count > 0) {
        ashlar__batch_sampler_destroy(opened[--opened_count]);
    }
}

static ashlar_batch_sampler *open_supply(uint64_t seed) {
    ashlar_batch_sampler *batch_sampler = NULL;
    for (size_t i = 0; i < ITEMS; i++) {
        items[i] = (ashlar_batch_sampler_item){1000 + i, 1 + i * 7 % 10};
    }
    CHECK(ashlar__batch_sampler_create(items, ITEMS, BATCH, WINDOW, seed, &batch_sampler) ==
          ASHLAR_OK);
    memset(items, 0, sizeof items); /* they were copied */
    opened[opened_count++] = batch_sampler;
    (void)check_at_end(close_all);
    return batch_sampler;
}

CASE(each_item_comes_once_an_epoch) {
    ashlar_batch_sampler *batch_sampler = open_supply(1);
    for (size_t epoch = 1; epoch <= 3; epoch++) {
        size_t seen[ITEMS] = {0};
        for (size_t i = 0; i < PER_EPOCH; i++) { /* 5 windows of 3 batches: none is cut */
            const ashlar_batch_sampler_item *batch = ashlar__batch_sampler_next(batch_sampler);
            for (size_t b = 0; b < BATCH; b++) {
                REQUIRE(batch[b].number >= 1000 && batch[b].number < 1000 + ITEMS);
                const size_t number = batch[b].number - 1000;
                seen[number]++;
                CHECK_ZU(batch[b].length, 1 + number * 7 % 10);
            }
        }
        for (size_t i = 0; i < ITEMS; i++) {
            CHECK_ZU(seen[i], 1);
        }
        CHECK_NEAR(ashlar__batch_sampler_epochs(batch_sampler), (double)epoch, 1e-12, 0);
    }
}

/* The batches of a window, put side by side by their longest, go from the longest to the shortest.
 */
CASE(lengths_within_a_batch_are_similar) {
    ashlar_batch_sampler *batch_sampler = open_supply(2);
    size_t orders = 0;
    for (size_t window = 0; window < 20; window++) {
        size_t first[WINDOW], last[WINDOW];
        for (size_t i = 0; i < WINDOW; i++) {
            const ashlar_batch_sampler_item *batch = ashlar__batch_sampler_next(batch_sampler);
            for (size_t b = 1; b < BATCH; b++) {
                CHECK(batch[b].length <= batch[b - 1].length);
            }
            first[i] = batch[0].length;
            last[i] = batch[BATCH - 1].length;
        }
        for (size_t i = 0; i < WINDOW; i++) {
            for (size_t j = 0; j < WINDOW; j++) {
                CHECK(i == j || last[i] >= first[j] || last[j] >= first[i]);
            }
        }
        orders += first[0] < first[1]; /* they do not always come longest first */
    }
    CHECK(orders > 2 && orders < 18);
}

CASE(fewer_items_than_a_batch_repeat) {
    const ashlar_batch_sampler_item two[] = {{7, 1}, {8, 2}};
    ashlar_batch_sampler *batch_sampler = NULL;
    REQUIRE(ashlar__batch_sampler_create(two, 2, 5, 1, 1, &batch_sampler) == ASHLAR_OK);
    const ashlar_batch_sampler_item *batch = ashlar__batch_sampler_next(batch_sampler);
    size_t sevens = 0;
    for (size_t i = 0; i < 5; i++) {
        CHECK(batch[i].number == 7 || batch[i].number == 8);
        sevens += batch[i].number == 7;
    }
    CHECK(sevens == 2 || sevens == 3);
    CHECK_NEAR(ashlar__batch_sampler_epochs(batch_sampler), 2.5, 0, 0);
    ashlar__batch_sampler_destroy(batch_sampler);
}

CASE(what_cannot_be_supplied_is_refused) {
    const ashlar_batch_sampler_item one[] = {{7, 1}};
    ashlar_batch_sampler *batch_sampler = NULL;
    CHECK_FAILS(ashlar__batch_sampler_create(one, 0, 1, 1, 1, &batch_sampler), ASHLAR_EINVAL,
                "the number of items is 0");
    CHECK_FAILS(ashlar__batch_sampler_create(one, 1, 0, 1, 1, &batch_sampler), ASHLAR_EINVAL,
                "batch is 0");
    CHECK_FAILS(ashlar__batch_sampler_create(one, 1, 1, 0, 1, &batch_sampler), ASHLAR_EINVAL,
                "window is 0");
    CHECK(ashlar__batch_sampler_create(one, 1, (size_t)1 << 40, (size_t)1 << 40, 1,
                                       &batch_sampler) == ASHLAR_EOVERFLOW);
    FOR_HOST_FAILURES(n, status, ashlar__batch_sampler_create(one, 1, 2, 2, 1, &batch_sampler)) {
        CHECK((status == ASHLAR_OK) == (batch_sampler != NULL));
    }
    CHECK_ZU(n, 6);
    ashlar__batch_sampler_destroy(batch_sampler);
    ashlar__batch_sampler_destroy(NULL);
}

RUN_CASES()
