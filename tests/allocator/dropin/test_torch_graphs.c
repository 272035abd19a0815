/* test_torch_graphs.c - graphs as PyTorch captures them: ids, filters, and memory that comes back.
 */
#include "allocator/dropin/torch.h"

#include "tests/allocator/core/graph_pool_fixture.h"
#include "tests/allocator/dropin/dropin_fixture.h"

#include <pthread.h>

static const ashlar_torch_pool_id ID = {3, 0}, OTHER_ID = {3, 1};

/* ---- filters, laid out as libstdc++ does: std::function<bool(cudaStream_t)> ---- */

typedef struct accepted {
    bool streams[STREAMS];
    bool is_default_too; /* the legacy default stream */
} accepted;

static atomic_int filter_count; /* copies that have not been ended */

static bool manage(void *to, const void *from, int operation) {
    if (operation == 2) {
        memcpy(to, from, sizeof(void *));
        atomic_fetch_add(&filter_count, 1);
    } else if (operation == 3) {
        atomic_fetch_sub(&filter_count, 1);
    } else {
        CHECK(false);
    }
    return false;
}

static bool invoke(const void *functor, ashlar_stream *stream) {
    const accepted *a;
    memcpy(&a, functor, sizeof(void *));
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i] == *stream) {
            return a->streams[i];
        }
    }
    return *stream == NULL && a->is_default_too;
}

static void graph_begin(ashlar_torch_pool_id id, accepted *a) {
    const ashlar_torch_filter filter = {{a}, manage, invoke};
    ashlar_torch_begin_graph(0, id, &filter);
}

static void graph_end(ashlar_torch_pool_id id) {
    ashlar_torch_end_graph(0, id);
}

static unsigned char *torch_take(size_t bytes, ashlar_stream stream) {
    unsigned char *block = ashlar_torch_alloc(bytes, 0, stream);
    CHECK(block != NULL);
    return block;
}

static void torch_give(void *block) {
    ashlar_torch_free(block, 0, 0, NULL);
}

/* A graph on one stream with a block that it frees, and one that it keeps. */
static cu_graph_exec capture_one(ashlar_torch_pool_id id, int stream, payload *passing,
                                 payload *kept) {
    accepted only = {{0}, false};
    only.streams[stream] = true;
    graph_begin(id, &only);
    capture_begin(streams[stream]);
    *passing = (payload){torch_take(BIG, streams[stream]), BIG, 9};
    use_in_graph(streams[stream], passing);
    torch_give(passing->ptr);
    *kept = (payload){torch_take(BIG, streams[stream]), BIG, 5};
    use_in_graph(streams[stream], kept);
    const cu_graph_exec exec = capture_end(streams[stream]);
    graph_end(id);
    return exec;
}

/* As PyTorch destroys a graph. Every case ends with no memory of graphs. */
static void graph_drop(ashlar_torch_pool_id id, cu_graph_exec exec) {
    drop_graph(exec);
    ashlar_torch_release_graph(0, id);
}

static bool begin_case(void) {
    ashlar_torch_memory_fraction(1, 0);
    atomic_store(&payload_bad_count, 0);
    return true;
}

static void check_clean(void) {
    ashlar_torch_reset();
    CHECK(atomic_load(&filter_count) == 0 && captures_now() == 0);
    CHECK(atomic_load(&ashlar__torch_capture_count) == 0);
    CHECK(atomic_load(&payload_bad_count) == 0);
    CHECK(bytes_of(0).live == 0 && bytes_of(0).reserved == 0);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

/* ---- the capture's memory ---- */

CASE(a_graph_keeps_its_memory_until_it_is_gone) {
    payload passing, kept;
    REQUIRE(begin_case());
    const cu_graph_exec exec = capture_one(ID, 0, &passing, &kept);
    CHECK(kept.ptr == passing.ptr); /* within a capture it is had again */
    for (int i = 0; i < STREAMS; i++) {
        unsigned char *block = torch_take(BIG, streams[i]);
        CHECK(block != passing.ptr);
        queue_write(streams[i], block, BIG, 1);
        launch_graph(exec, streams[(i + 1) % STREAMS]);
        queue_verify(streams[i], block, BIG, 1);
        wait_for(streams[(i + 1) % STREAMS]);
        wait_for(streams[i]);
        torch_give(block);
    }
    torch_give(kept.ptr);
    ashlar_torch_reset();
    CHECK(bytes_of(0).reserved >= BIG); /* the graph may be launched again */
    launch_graph(exec, streams[2]);
    wait_for(streams[2]);
    graph_drop(ID, exec);
    check_clean();
}

CASE(only_streams_that_the_filter_accepts_have_it) {
    accepted first = {{true, true}, true};
    REQUIRE(begin_case());
    graph_begin(ID, &first);
    unsigned char *block = torch_take(BIG, streams[0]);
    unsigned char *other = torch_take(BIG, streams[2]);
    torch_give(block);
    torch_give(other);
    CHECK(torch_take(BIG, streams[2]) == other);
    unsigned char *beside = torch_take(BIG, streams[1]); /* not ordered after the first stream */
    CHECK(beside != block && beside != other);
    CHECK(torch_take(BIG, streams[0]) == block);
    void *none = torch_take(BIG, NULL); /* cannot be captured, whatever the filter says */
    CHECK(captures_now() == 3);
    graph_end(ID);
    CHECK(captures_now() == 0);
    torch_give(block);
    torch_give(other);
    torch_give(beside);
    torch_give(none);
    ashlar_torch_release_graph(0, ID);
    check_clean();
}

CASE(graphs_of_one_id_share_memory_and_others_do_not) {
    payload passing, kept[4];
    cu_graph_exec execs[4];
    REQUIRE(begin_case());
    execs[0] = capture_one(ID, 0, &passing, &kept[0]);
    torch_give(kept[0].ptr);
    const uint64_t reserved = bytes_of(0).reserved;
    execs[1] = capture_one(ID, 0, &passing, &kept[1]);
    CHECK(passing.ptr == kept[0].ptr);
    torch_give(kept[1].ptr);
    execs[2] = capture_one(ID, 1, &passing, &kept[2]); /* on another stream */
    CHECK(passing.ptr == kept[0].ptr);
    torch_give(kept[2].ptr);
    CHECK(bytes_of(0).reserved == reserved);
    execs[3] = capture_one(OTHER_ID, 0, &passing, &kept[3]);
    CHECK(passing.ptr != kept[0].ptr);
    torch_give(kept[3].ptr);
    for (int i = 0; i < 12; i++) {
        launch_graph(execs[i % 3], streams[2]);
        launch_graph(execs[3], streams[3]);
    }
    wait_for(streams[2]);
    wait_for(streams[3]);
    for (int i = 0; i < 4; i++) {
        graph_drop(i < 3 ? ID : OTHER_ID, execs[i]);
    }
    check_clean();
}

/* What one branch of a capture has freed, another one beside it must not get. */
CASE(branches_of_a_capture_share_nothing_even_when_one_has_ended) {
    accepted streams_of_it = {{true, true}, false};
    REQUIRE(begin_case());
    graph_begin(ID, &streams_of_it);
    unsigned char *block = torch_take(BIG, streams[0]);
    torch_give(block);
    streams_of_it.streams[0] = false;
    unsigned char *other = torch_take(BIG, streams[0]); /* ordinary memory */
    CHECK(other != block);
    unsigned char *beside = torch_take(BIG, streams[1]);
    CHECK(beside != block);
    streams_of_it.streams[0] = true;
    CHECK(torch_take(BIG, streams[0]) == block);
    graph_end(ID);
    torch_give(block);
    torch_give(other);
    torch_give(beside);
    ashlar_torch_release_graph(0, ID);
    check_clean();
}

/* ---- captures that fail ---- */

/* PyTorch tells no end of it, but its filter does not know the stream any more. */
CASE(a_capture_that_has_failed_holds_nothing_up) {
    accepted only = {{true}, false};
    REQUIRE(begin_case());
    graph_begin(ID, &only);
    unsigned char *block = torch_take(BIG, streams[0]);
    torch_give(block);
    only.streams[0] = false;
    CHECK(captures_now() > 0);
    unsigned char *ordinary = torch_take(BIG, streams[0]);
    CHECK(ordinary != block);
    CHECK(captures_now() == 0);
    torch_give(ordinary);
    graph_begin(ID, &only); /* the next one */
    CHECK(atomic_load(&filter_count) == 1);
    only.streams[0] = true;
    CHECK(torch_take(BIG, streams[0]) == block);
    graph_end(ID);
    graph_end(ID); /* once more is no harm, nor is one that never began */
    graph_end(OTHER_ID);
    torch_give(block);
    for (int i = 0; i < 3; i++) {
        ashlar_torch_release_graph(0, ID);
    }
    ashlar_torch_release_graph(0, OTHER_ID);
    check_clean();
}

CASE(an_id_is_another_one_on_another_device) {
    const ashlar_torch_pool_id first_differs = {4, 0};
    accepted one = {{true}, false}, two = {{false, true}, false};
    const ashlar_torch_filter filter = {{&one}, manage, invoke}, other = {{&two}, manage, invoke};
    REQUIRE(begin_case());
    CHECK(ashlar__torch_capture_begin(0, ID, &filter) == ASHLAR_OK);
    CHECK(ashlar__torch_capture_begin(0, first_differs, &other) == ASHLAR_OK);
    CHECK(ashlar__torch_capture_begin(1, ID, &filter) == ASHLAR_OK);
    unsigned char *block = torch_take(BIG, streams[0]), *beside = torch_take(BIG, streams[1]);
    torch_give(block);
    torch_give(beside);
    ashlar_torch_end_graph(1, ID);
    ashlar_torch_release_graph(1, ID);
    ashlar_torch_reset();                        /* keeps what these have */
    CHECK(torch_take(BIG, streams[0]) == block); /* whose capture goes on */
    CHECK(torch_take(BIG, streams[1]) == beside);
    torch_give(block);
    torch_give(beside);
    ashlar_torch_end_graph(0, ID);
    ashlar_torch_release_graph(0, ID);
    CHECK(torch_take(BIG, streams[1]) == beside);
    torch_give(beside);
    ashlar_torch_end_graph(0, first_differs);
    ashlar_torch_release_graph(0, first_differs);
    check_clean();
}

CASE(without_host_memory_nothing_begins) {
    accepted only = {{true}, false};
    const ashlar_torch_filter filter = {{&only}, manage, invoke};
    REQUIRE(begin_case());
    unsigned long fails = 0;
    ashlar_status status = ASHLAR_EHOSTMEM;
    while (status == ASHLAR_EHOSTMEM && fails < 20) {
        ashlar__host_fail_at(++fails);
        status = ashlar__torch_capture_begin(0, ID, &filter);
        void *block = NULL;
        if (status == ASHLAR_OK) {
            block = ashlar_torch_alloc(BIG, 0, streams[0]);
            status = block == NULL ? ASHLAR_EHOSTMEM : ASHLAR_OK;
            ashlar_torch_end_graph(0, ID);
            ashlar_torch_release_graph(0, ID);
        }
        ashlar__host_fail_at(0);
        torch_give(block);
    }
    CHECK(status == ASHLAR_OK && fails > 3);
    check_clean();
}

/* ---- memory that comes back ---- */

CASE(memory_of_a_graph_that_is_gone_serves_a_request_that_would_fail) {
    payload passing, kept;
    REQUIRE(begin_case());
    ashlar_torch_memory_fraction((double)BIG / (double)MEMORY, 0);
    const cu_graph_exec exec = capture_one(ID, 0, &passing, &kept);
    torch_give(kept.ptr);
    CHECK(ashlar_torch_alloc(BIG, 0, streams[1]) == NULL);
    launch_graph(exec, streams[0]); /* still runs when the graph is gone */
    graph_drop(ID, exec);
    accepted only = {{false, false, true}, false};
    graph_begin(OTHER_ID, &only); /* waiting for the device would spoil it */
    CHECK(ashlar_torch_alloc(BIG, 0, streams[1]) == NULL);
    CHECK_HAS(ashlar_torch_error(), "4194304 bytes asked for");
    graph_end(OTHER_ID);
    ashlar_torch_release_graph(0, OTHER_ID);
    unsigned char *block = torch_take(BIG, streams[1]);
    queue_write(streams[1], block, BIG, 1);
    wait_for(streams[1]);
    wait_for(streams[0]);
    queue_verify(streams[1], block, BIG, 1);
    wait_for(streams[1]);
    torch_give(block);
    check_clean();
}

CASE(results_outlive_their_graph) {
    payload passing, kept;
    REQUIRE(begin_case());
    const cu_graph_exec exec = capture_one(ID, 0, &passing, &kept);
    launch_graph(exec, streams[1]);
    graph_drop(ID, exec);
    ashlar_torch_reset();
    unsigned char *block = torch_take(BIG, streams[2]);
    queue_write(streams[2], block, BIG, 1);
    queue_verify(streams[1], kept.ptr, BIG, 5);
    wait_for(streams[1]);
    wait_for(streams[2]);
    torch_give(block);
    torch_give(kept.ptr);
    check_clean();
}

/* ---- threads ---- */

typedef struct capturing_thread {
    int number;
    bool is_right;
} capturing_thread;

/* With an id and a stream of its own, again and again. */
static void *capture_often(void *argument) {
    capturing_thread *t = argument;
    accepted only = {{0}, false};
    only.streams[t->number] = true;
    const ashlar_torch_pool_id id = {7, (uint64_t)t->number};
    const ashlar_torch_filter filter = {{&only}, manage, invoke};
    t->is_right = true;
    for (int i = 0; i < 200; i++) {
        void *block = ashlar_torch_alloc(BIG / 8, 0, streams[t->number]);
        t->is_right = t->is_right && block != NULL;
        t->is_right = t->is_right && ashlar__torch_capture_begin(0, id, &filter) == ASHLAR_OK;
        void *inside = ashlar_torch_alloc(BIG / 8, 0, streams[t->number]);
        t->is_right = t->is_right && inside != NULL && inside != block;
        ashlar_torch_free(block, 0, 0, NULL);
        ashlar_torch_end_graph(0, id);
        ashlar_torch_free(inside, 0, 0, NULL);
        ashlar_torch_release_graph(0, id);
    }
    return NULL;
}

CASE(threads_capture_beside_each_other) {
    pthread_t threads[STREAMS];
    capturing_thread told[STREAMS];
    REQUIRE(begin_case());
    for (int i = 0; i < STREAMS; i++) {
        told[i].number = i;
        REQUIRE(pthread_create(&threads[i], NULL, capture_often, &told[i]) == 0);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0 && told[i].is_right);
    }
    check_clean();
}

int main(void) {
    return run_on_devices(open_devices());
}
