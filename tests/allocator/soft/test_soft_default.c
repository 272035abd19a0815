/* test_soft_default.c - the software device's default streams, and the identity of streams. */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"
#include "tests/thread.h"

#define PER_THREAD ((cu_stream)(uintptr_t)CU_STREAM_PER_THREAD)

static unsigned long long id_of(cu_stream stream) {
    unsigned long long id = 0;
    CHECK(soft->stream_get_id(stream, &id) == CU_SUCCESS);
    return id;
}

/* What another thread does with its default stream; then it ends. */
typedef struct visit {
    int device;
    unsigned long long id;
    const char *letter;
    cu_event event;
    bool ok;
} visit;

static void *visit_run(void *user_data) {
    visit *me = user_data;
    me->ok =
        make_current(me->device) && soft->stream_get_id(PER_THREAD, &me->id) == CU_SUCCESS &&
        soft->launch_host_func(PER_THREAD, note, (void *)(uintptr_t)me->letter) == CU_SUCCESS &&
        (me->event == NULL || soft->event_record(me->event, PER_THREAD) == CU_SUCCESS);
    return NULL;
}

static unsigned long long visit_from(int device, const char *letter, cu_event event) {
    visit other = {.device = device, .letter = letter, .event = event};
    run_thread(visit_run, &other);
    CHECK(other.ok);
    return other.id;
}

CASE_WITH(ids_outlive_handles, set_up_streams("devices=2,memory=16MiB")) {
    const unsigned long long id = id_of(s), legacy = id_of(NULL);
    CHECK(id != legacy);
    CHECK(id_of(s) == id);
    CHECK(id_of((cu_stream)1) == legacy);
    CHECK(soft->stream_destroy(s) == CU_SUCCESS);
    CHECK(new_stream(CU_STREAM_UNORDERED) == s); /* the handle again, and another stream */
    CHECK(id_of(s) != id);
    unsigned long long unused = 9;
    CHECK(soft->stream_get_id((cu_stream)99, &unused) == CU_INVALID_HANDLE);
    CHECK(soft->stream_get_id(s, NULL) == CU_INVALID_VALUE);
    REQUIRE(make_current(1));
    CHECK(id_of(NULL) != legacy);
    REQUIRE(set_up("memory=16MiB"));
    CHECK(id_of(NULL) > id);
}

CASE(each_thread_and_device_has_a_default_stream_of_its_own) {
    REQUIRE(set_up("devices=2,memory=16MiB"));
    const unsigned long long id = id_of(PER_THREAD);
    CHECK(id != id_of(NULL));
    CHECK(id_of(PER_THREAD) == id);
    const unsigned long long other = visit_from(0, "x", NULL), next = visit_from(0, "x", NULL);
    CHECK(other != id && next != id && next != other);
    REQUIRE(make_current(1));
    CHECK(id_of(PER_THREAD) != id);
    REQUIRE(make_current(0));
    CHECK(id_of(PER_THREAD) == id);
    CHECK(soft->stream_destroy(PER_THREAD) == CU_INVALID_HANDLE);
    for (int retains = 4; retains > 0; retains--) {
        CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    }
    REQUIRE(make_current(0));
    s = new_stream(CU_STREAM_UNORDERED); /* takes the handle over */
    CHECK(id_of(PER_THREAD) != id && id_of(PER_THREAD) != id_of(s));
    CHECK(soft->stream_destroy(s) == CU_SUCCESS);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
}

CASE(the_per_thread_stream_is_ordered_as_a_blocking_one) {
    bool any_order = false;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        queue(PER_THREAD, "a");
        queue(s, "x");
        queue(NULL, "b");
        queue(PER_THREAD, "c");
        CHECK(soft->ctx_synchronize() == CU_SUCCESS);
        CHECK(ran_before('a', 'b') && ran_before('b', 'c'));
        any_order |= ran_before('x', 'a');
    }
    CHECK(any_order);
}

RUN_CASES()
