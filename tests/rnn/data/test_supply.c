/*
 * test_supply.c - every item comes once an epoch, with others of its length, in an order that the
 * seed alone decides.
 */
#include "rnn/data/supply.h"

#include "tests/check.h"
#include "allocator/base/host.h"

enum { ITEMS = 60, BATCH = 4, WINDOW = 3, PER_EPOCH = ITEMS / BATCH };

static ashlar_supply_item items[ITEMS];

static ashlar_supply *open_supply(uint64_t seed) {
    ashlar_supply *supply = NULL;
    for (size_t i = 0; i < ITEMS; i++) {
        items[i] = (ashlar_supply_item){1000 + i, 1 + i * 7 % 10};
    }
    CHECK(ashlar_supply_create(items, ITEMS, BATCH, WINDOW, seed, &supply) == ASHLAR_OK);
    memset(items, 0, sizeof items); /* they were copied */
    return supply;
}

CASE(each_item_comes_once_an_epoch) {
    ashlar_supply *supply = open_supply(1);
    for (size_t epoch = 1; epoch <= 3; epoch++) {
        size_t seen[ITEMS] = {0};
        for (size_t i = 0; i < PER_EPOCH; i++) { /* 5 windows of 3 batches: none is cut */
            const ashlar_supply_item *batch = ashlar_supply_next(supply);
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
        CHECK_NEAR(ashlar_supply_epochs(supply), (double)epoch, 1e-12, 0);
    }
    ashlar_supply_destroy(supply);
}

/* The batches of a window, put side by side by their longest, go from the longest to the shortest.
 */
CASE(lengths_within_a_batch_are_similar) {
    ashlar_supply *supply = open_supply(2);
    size_t orders = 0;
    for (size_t window = 0; window < 20; window++) {
        size_t first[WINDOW], last[WINDOW];
        for (size_t i = 0; i < WINDOW; i++) {
            const ashlar_supply_item *batch = ashlar_supply_next(supply);
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
    ashlar_supply_destroy(supply);
}

CASE(the_seed_decides_the_order) {
    ashlar_supply *a = open_supply(3), *b = open_supply(3), *other = open_supply(4);
    size_t differ = 0;
    for (size_t i = 0; i < 40; i++) {
        const ashlar_supply_item *x = ashlar_supply_next(a), *y = ashlar_supply_next(b);
        const ashlar_supply_item *z = ashlar_supply_next(other);
        for (size_t j = 0; j < BATCH; j++) {
            CHECK_ZU(x[j].number, y[j].number);
            differ += x[j].number != z[j].number;
        }
    }
    CHECK(differ > 100);
    ashlar_supply_destroy(a);
    ashlar_supply_destroy(b);
    ashlar_supply_destroy(other);
}

CASE(a_supply_that_was_passed_over_goes_on_as_if_handed_out) {
    ashlar_supply *a = open_supply(5), *b = open_supply(5);
    for (size_t i = 0; i < 23; i++) {
        (void)ashlar_supply_next(a);
    }
    ashlar_supply_skip(b, 23);
    const ashlar_random x = ashlar_supply_random(a), y = ashlar_supply_random(b);
    CHECK(memcmp(&x, &y, sizeof x) == 0);
    CHECK(ashlar_supply_epochs(a) == ashlar_supply_epochs(b));
    for (size_t i = 0; i < 10; i++) {
        CHECK(memcmp(ashlar_supply_next(a), ashlar_supply_next(b), BATCH * sizeof items[0]) == 0);
    }
    ashlar_supply_destroy(a);
    ashlar_supply_destroy(b);
}

CASE(fewer_items_than_a_batch_repeat) {
    const ashlar_supply_item two[] = {{7, 1}, {8, 2}};
    ashlar_supply *supply = NULL;
    REQUIRE(ashlar_supply_create(two, 2, 5, 1, 1, &supply) == ASHLAR_OK);
    const ashlar_supply_item *batch = ashlar_supply_next(supply);
    size_t sevens = 0;
    for (size_t i = 0; i < 5; i++) {
        CHECK(batch[i].number == 7 || batch[i].number == 8);
        sevens += batch[i].number == 7;
    }
    CHECK(sevens == 2 || sevens == 3);
    CHECK_NEAR(ashlar_supply_epochs(supply), 2.5, 0, 0);
    ashlar_supply_destroy(supply);
}

CASE(what_cannot_be_supplied_is_refused) {
    const ashlar_supply_item one[] = {{7, 1}};
    ashlar_supply *supply = NULL;
    CHECK(ashlar_supply_create(one, 0, 1, 1, 1, &supply) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "the number of items is 0");
    CHECK(ashlar_supply_create(one, 1, 0, 1, 1, &supply) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "batch is 0");
    CHECK(ashlar_supply_create(one, 1, 1, 0, 1, &supply) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "window is 0");
    CHECK(ashlar_supply_create(one, 1, (size_t)1 << 40, (size_t)1 << 40, 1, &supply) ==
          ASHLAR_EOVERFLOW);
    size_t failures = 0;
    for (unsigned long n = 1; supply == NULL && n < 20; n++) {
        ashlar_host_fail_at(n);
        const ashlar_status status = ashlar_supply_create(one, 1, 2, 2, 1, &supply);
        ashlar_host_fail_at(0);
        CHECK(status == (supply == NULL ? ASHLAR_EHOSTMEM : ASHLAR_OK));
        failures += status != ASHLAR_OK;
    }
    CHECK_ZU(failures, 5);
    ashlar_supply_destroy(supply);
    ashlar_supply_destroy(NULL);
}

RUN_CASES()
