/* test_soft_graph.c - launching what was captured, in both modes of the software device. */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"

CASE_WITH(a_graph_runs_as_often_as_it_is_launched, set_up_streams("memory=16MiB")) {
    t = new_stream(CU_STREAM_BLOCKING);
    unsigned char host[8] = {0}, from[8] = {7, 7, 7, 7, 7, 7, 7, 7};
    const cu_ptr ptr = alloc(16);
    forget();
    begin(s, CU_CAPTURE_RELAXED);
    CHECK(soft->memset_d8_async(ptr, 1, 8, s) == CU_SUCCESS);
    CHECK(soft->memcpy_htod_async(ptr + 1, from, 2, s) == CU_SUCCESS);
    CHECK(soft->memcpy_dtod_async(ptr + 3, ptr + 1, 1, s) == CU_SUCCESS);
    CHECK(soft->memcpy_dtoh_async(host, ptr, 8, s) == CU_SUCCESS);
    queue(s, "a");
    const cu_graph_exec exec = end(s);
    CHECK(ran_count == 0 && host[0] == 0);
    CHECK(soft->graph_launch(exec, s) == CU_SUCCESS);
    CHECK(memcmp(host, "\1\7\7\7\1\1\1\1", 8) == 0);
    from[0] = 9; /* pageable memory is read at each launch */
    CHECK(soft->graph_launch(exec, t) == CU_SUCCESS);
    CHECK(soft->graph_launch(exec, NULL) == CU_SUCCESS);
    CHECK(memcmp(host, "\1\11\7\11\1\1\1\1", 8) == 0);
    CHECK(strcmp(ran, "aaa") == 0);
    CHECK(soft->graph_exec_destroy(exec) == CU_SUCCESS);
    CHECK(soft->graph_launch(exec, s) == CU_INVALID_VALUE);
    CHECK(soft->graph_exec_destroy(exec) == CU_INVALID_VALUE);
}

CASE_WITH(wrong_arguments_are_refused, set_up_streams("memory=16MiB")) {
    cu_graph graph;
    cu_graph_exec exec = NULL;
    begin(s, CU_CAPTURE_GLOBAL);
    REQUIRE(soft->stream_end_capture(s, &graph) == CU_SUCCESS);
    CHECK(soft->graph_instantiate(&exec, graph, 1) == CU_NOT_SUPPORTED);
    CHECK(soft->graph_instantiate(NULL, graph, 0) == CU_INVALID_VALUE);
    CHECK(soft->graph_instantiate(&exec, (cu_graph)(void *)s, 0) == CU_INVALID_VALUE);
    CHECK(exec == NULL);
    REQUIRE(soft->graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(soft->graph_launch((cu_graph_exec)(void *)graph, s) == CU_INVALID_VALUE);
    CHECK(soft->graph_launch(exec, (cu_stream)99) == CU_INVALID_HANDLE);
    CHECK(soft->graph_exec_destroy((cu_graph_exec)(void *)graph) == CU_INVALID_VALUE);
    CHECK(soft->graph_destroy((cu_graph)(void *)exec) == CU_INVALID_VALUE);
}

CASE_OF_SEEDS(a_launch_is_in_the_order_of_its_stream) {
    begin(s, CU_CAPTURE_GLOBAL);
    queue(s, "b");
    CHECK(follow(t, s) == CU_SUCCESS);
    queue(t, "c");
    queue(s, "d");
    CHECK(follow(s, t) == CU_SUCCESS);
    queue(s, "e");
    const cu_graph_exec exec = end(s);
    queue(t, "a");
    CHECK(soft->graph_launch(exec, t) == CU_SUCCESS);
    queue(t, "f");
    CHECK(ran_count == 0);
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK_ZU(ran_count, 6);
    CHECK(ran_before('a', 'b') && ran_before('e', 'f'));
    CHECK(ran_before('b', 'c') && ran_before('b', 'd')); /* the edges of the graph */
    CHECK(ran_before('c', 'e') && ran_before('d', 'e'));
    CHECK(soft->graph_exec_destroy(exec) == CU_SUCCESS);
}

/* Branches that nothing orders go both ways. */
CASE(branches_of_a_graph_interleave) {
    bool c_first = false, d_first = false, parted = false;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        begin(s, CU_CAPTURE_GLOBAL);
        queue(s, "a");
        CHECK(follow(t, s) == CU_SUCCESS);
        queue(t, "c");
        queue(t, "C");
        queue(s, "d");
        queue(s, "D");
        CHECK(follow(s, t) == CU_SUCCESS);
        CHECK(soft->graph_launch(end(s), s) == CU_SUCCESS);
        CHECK(soft->ctx_synchronize() == CU_SUCCESS);
        CHECK_ZU(ran_count, 5);
        CHECK(ran_before('c', 'C') && ran_before('d', 'D'));
        c_first |= ran_before('C', 'd');
        d_first |= ran_before('D', 'c');
        parted |= ran_before('c', 'd') && ran_before('d', 'C');
    }
    CHECK(c_first && d_first && parted);
}

CASE_OF_SEEDS(launches_of_one_graph_follow_each_other_on_any_stream) {
    const cu_stream u = new_stream(CU_STREAM_UNORDERED);
    begin(u, CU_CAPTURE_GLOBAL);
    queue(u, "b");
    const cu_graph_exec exec = end(u);
    queue(s, "a");
    CHECK(soft->graph_launch(exec, s) == CU_SUCCESS);
    CHECK(soft->graph_launch(exec, t) == CU_SUCCESS);
    CHECK(soft->graph_exec_destroy(exec) == CU_SUCCESS); /* they still run */
    queue(t, "c");
    queue(u, "x");
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK(strcmp(ran, "abbc") == 0); /* the second launch wants the first; nobody wants x */
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK_ZU(ran_count, 5);
}

CASE_WITH(a_launch_can_be_captured, set_up_streams("memory=16MiB")) {
    begin(s, CU_CAPTURE_GLOBAL);
    queue(s, "a");
    queue(s, "b");
    const cu_graph_exec inner = end(s);
    begin(s, CU_CAPTURE_GLOBAL);
    CHECK(soft->graph_launch(inner, s) == CU_SUCCESS);
    queue(s, "c");
    CHECK(soft->graph_launch(inner, s) == CU_SUCCESS);
    const cu_graph_exec outer = end(s);
    CHECK(soft->graph_exec_destroy(inner) == CU_SUCCESS);
    CHECK(ran_count == 0);
    CHECK(soft->graph_launch(outer, s) == CU_SUCCESS);
    CHECK(strcmp(ran, "abcab") == 0);
}

/* "ab", each on a stream of its own. */
static cu_graph_exec capture_two(void) {
    begin(s, CU_CAPTURE_GLOBAL);
    queue(s, "a");
    CHECK(follow(t, s) == CU_SUCCESS);
    queue(t, "b");
    CHECK(follow(s, t) == CU_SUCCESS);
    return end(s);
}

CASE_WITH(a_launch_is_captured_whole_or_spoils_the_capture, set_up_adversarial(3)) {
    const cu_graph_exec exec = capture_two();
    begin(s, CU_CAPTURE_GLOBAL);
    HOST_FAILS_AT(2, CHECK(soft->graph_launch(exec, s) == CU_OUT_OF_MEMORY));
    check_spoilt(s);
}

RUN_CASES()
