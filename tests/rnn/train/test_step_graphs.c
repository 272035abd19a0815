/*
 * test_step_graphs.c - which captured steps are kept, and how two steps are told apart.
 */
#include "tests/check.h"

#include "allocator/base/host.h"
#include "rnn/train/step_fixed.h"

static ashlar_step_graphs graphs;

static void put(size_t length, size_t buffer) {
    ashlar_step_graph *place = ashlar__step_graphs_place(&graphs);
    ashlar__step_graph_drop(place);
    place->length = length;
    place->buffer = buffer;
    place->used_at = ++graphs.uses;
}

CASE(a_graph_is_found_by_length_and_buffer) {
    REQUIRE(ashlar__step_graphs_init(&graphs, 3) == ASHLAR_OK);
    CHECK(ashlar__step_graphs_find(&graphs, 8, 0) == NULL);
    put(8, 0);
    put(8, 1);
    const ashlar_step_graph *found = ashlar__step_graphs_find(&graphs, 8, 1);
    CHECK(found != NULL && found->length == 8 && found->buffer == 1);
    CHECK(ashlar__step_graphs_find(&graphs, 8, 0) != found);
    CHECK(ashlar__step_graphs_find(&graphs, 9, 0) == NULL);
    ashlar__step_graphs_finish(&graphs);
}

CASE(the_one_used_longest_ago_makes_way) {
    REQUIRE(ashlar__step_graphs_init(&graphs, 3) == ASHLAR_OK);
    put(1, 0);
    put(2, 0);
    put(3, 0);
    CHECK(ashlar__step_graphs_place(&graphs)->length == 1);
    CHECK(ashlar__step_graphs_find(&graphs, 1, 0) != NULL);
    CHECK(ashlar__step_graphs_place(&graphs)->length == 2);
    put(4, 0); /* in the place of 2 */
    CHECK(ashlar__step_graphs_find(&graphs, 2, 0) == NULL);
    CHECK(ashlar__step_graphs_find(&graphs, 3, 0) != NULL);
    CHECK(ashlar__step_graphs_place(&graphs)->length == 1);
    ashlar__step_graph_drop(ashlar__step_graphs_find(&graphs, 4, 0));
    CHECK(ashlar__step_graphs_place(&graphs)->length == 0); /* a free place first */
    ashlar__step_graphs_finish(&graphs);
    ashlar__step_graphs_finish(&graphs);
}

CASE(without_host_memory_there_are_none) {
    ashlar__host_fail_at(1);
    CHECK(ashlar__step_graphs_init(&graphs, 3) == ASHLAR_EHOSTMEM);
    ashlar__host_fail_at(0);
    CHECK(graphs.most == 0);
    ashlar__step_graphs_finish(&graphs);
}

CASE(the_first_fact_that_differs_is_named) {
    ashlar_identity a = {0}, b = {0};
    int here;
    CHECK(ashlar__identity_difference(&a, &b) == NULL);
    ashlar__identity_add_size(&a, "a size", 4);
    CHECK_HAS(ashlar__identity_difference(&a, &b), "kind of step");
    ashlar__identity_add_size(&b, a.facts[0].what, 4);
    ashlar__identity_add_real(&a, "a number", 0.5);
    ashlar__identity_add_real(&b, a.facts[1].what, 0.5);
    ashlar__identity_add_address(&a, "an address", &here);
    ashlar__identity_add_address(&b, a.facts[2].what, &here);
    CHECK(ashlar__identity_difference(&a, &b) == NULL);
    b.facts[2].value++;
    CHECK_HAS(ashlar__identity_difference(&a, &b), "an address");
    b.facts[1].value ^= 1;
    CHECK_HAS(ashlar__identity_difference(&b, &a), "a number");
    b.facts[0].value = 5;
    CHECK_HAS(ashlar__identity_difference(&a, &b), "a size");
}

RUN_CASES()
