/*
 * test_ranks_team.c - ranks that are threads of one process, each with a software device: what
 * every collective gives, and that a rank that differs, does not come or has failed ends the others
 * and touches no memory of theirs.
 */
#include "tests/check.h"

#include <pthread.h>
#include <unistd.h>

#include <ashlar/ashlar.h>

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/soft/soft.h"
#include "arena/compute/convert.h"
#include "arena/reduce/ranks_beside.h"
#include "arena/reduce/ranks_impl.h"

enum { RANKS = 4, ELEMENTS = 12 * 1000, TURNS = 400 };

/* A rank's thread. Each counts its own mistakes. */
typedef struct member {
    pthread_t thread;
    ashlar_ranks *ranks;
    size_t rank, count;
    ashlar_ranks_order order;
    ashlar_device *device;
    ashlar_stream stream;
    const ashlar_collectives *table;
    char *data; /* [ELEMENTS] doubles, page-locked: a late access faults */
    size_t wrong;
    ashlar_status status;
    char detail[ASHLAR_RANKS_FAILURE_BYTES];
    bool reports;
} member;

typedef void act(member *m);

static member members[RANKS];
static act *acting;

static void note(member *m, bool is_right, const char *what) {
    if (!is_right) {
        printf("# rank %zu of %zu: %s: %s\n", m->rank, m->count, what, ashlar_error_detail());
    }
    m->wrong += !is_right;
}
#define NOTE(m, condition) note((m), (condition), #condition)

static void *run_member(void *of) {
    member *m = of;
    char name[32];
    (void)snprintf(name, sizeof name, "soft:%zu", m->rank);
    NOTE(m, ashlar_device_open(name, &m->device) == ASHLAR_OK);
    NOTE(m, ashlar_stream_create(m->device, &m->stream) == ASHLAR_OK);
    void *data = NULL;
    NOTE(m, ashlar_device_host_alloc(m->device, ELEMENTS * sizeof(double), &data) == ASHLAR_OK);
    m->data = data;
    NOTE(m, ashlar_ranks_collectives(m->ranks, m->device, m->order, &m->table) == ASHLAR_OK);
    acting(m);
    m->status = ashlar_ranks_check(m->ranks);
    (void)snprintf(m->detail, sizeof m->detail, "%s",
                   m->status == ASHLAR_OK ? "" : ashlar_error_detail());
    m->reports = ashlar_ranks_reports(m->ranks);
    ashlar_device_host_free(m->device, m->data); /* before it leaves, as programs do */
    ashlar_ranks_drop_collectives(m->ranks, m->status != ASHLAR_OK);
    ashlar_stream_destroy(m->device, m->stream);
    ashlar_device_close(m->device);
    ashlar_ranks_close(m->ranks, m->status != ASHLAR_OK);
    return NULL;
}

static void run(size_t count, ashlar_ranks_order order, uint32_t timeout_ms, act *what) {
    ashlar_ranks *ranks[RANKS];
    acting = what;
    REQUIRE(ashlar__soft_configure("devices=4,memory=16MiB") == ASHLAR_OK);
    REQUIRE(ashlar_ranks_open_threads(count, timeout_ms, ranks) == ASHLAR_OK);
    for (size_t i = 0; i < count; i++) {
        members[i] = (member){.ranks = ranks[i], .rank = i, .count = count, .order = order};
        CHECK(ashlar_ranks_rank(ranks[i]) == i && ashlar_ranks_count(ranks[i]) == count);
        REQUIRE(pthread_create(&members[i].thread, NULL, run_member, &members[i]) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(pthread_join(members[i].thread, NULL) == 0);
        CHECK_ZU(members[i].wrong, 0);
    }
}

/* ---- what they give ---- */

/* Small whole numbers, whose sums are exact in every type. */
static double number_of(size_t rank, size_t i) {
    return (double)((rank + 1) * (1 + i % 7));
}

static void fill(member *m, ashlar_dtype dtype) {
    NOTE(m, ashlar_stream_synchronize(m->device, m->stream) == ASHLAR_OK);
    for (size_t i = 0; i < ELEMENTS; i++) {
        const double value = number_of(m->rank, i);
        ashlar__convert(dtype, m->data + i * ashlar_dtype_bytes(dtype), ASHLAR_F64, &value, 1);
    }
}

/* from: the rank whose numbers these are; `count`: the sums of all; above it: those of the owner.
 */
static void expect(member *m, ashlar_dtype dtype, size_t first, size_t end, size_t from) {
    size_t wrong = 0;
    NOTE(m, ashlar_stream_synchronize(m->device, m->stream) == ASHLAR_OK);
    for (size_t i = first; i < end; i++) {
        double value = 0, wanted = 0;
        ashlar__convert(ASHLAR_F64, &value, dtype, m->data + i * ashlar_dtype_bytes(dtype), 1);
        for (size_t rank = 0; rank < m->count; rank++) {
            const size_t owner = i / (ELEMENTS / m->count);
            const size_t wants = from > m->count ? owner : from;
            wanted += wants == m->count || wants == rank ? number_of(rank, i) : 0;
        }
        wrong += value < wanted || value > wanted;
    }
    NOTE(m, wrong == 0);
}

static void do_all(member *m) {
    const ashlar_collectives *c = m->table;
    const size_t shard = ELEMENTS / m->count;
    for (int i = 0; i < ASHLAR_DTYPE_COUNT; i++) {
        const ashlar_dtype dtype = (ashlar_dtype)i;
        fill(m, dtype);
        NOTE(m, c->broadcast(c->context, m->data, ELEMENTS, dtype, m->count - 1, m->stream) ==
                    ASHLAR_OK);
        expect(m, dtype, 0, ELEMENTS, m->count - 1);
        fill(m, dtype);
        NOTE(m, c->all_reduce(c->context, m->data, ELEMENTS, dtype, m->stream) == ASHLAR_OK);
        expect(m, dtype, 0, ELEMENTS, m->count);
        for (size_t root = 0; root < m->count; root++) {
            fill(m, dtype);
            NOTE(m,
                 c->reduce(c->context, m->data, ELEMENTS - 1, dtype, root, m->stream) == ASHLAR_OK);
            expect(m, dtype, 0, m->rank == root ? ELEMENTS - 1 : 0, m->count);
        }
        fill(m, dtype);
        NOTE(m, c->reduce_scatter(c->context, m->data, ELEMENTS, dtype, m->stream) == ASHLAR_OK);
        expect(m, dtype, m->rank * shard, (m->rank + 1) * shard, m->count);
        fill(m, dtype);
        NOTE(m, c->all_gather(c->context, m->data, ELEMENTS, dtype, m->stream) == ASHLAR_OK);
        expect(m, dtype, 0, ELEMENTS, m->count + 1);
    }
    NOTE(m, ashlar_ranks_reports(m->ranks));
}

CASE(every_collective_gives_what_it_should) {
    for (size_t count = 1; count <= RANKS; count++) {
        run(count, ASHLAR_RANKS_FASTEST, 0, do_all);
        if (count != 3) {
            run(count, ASHLAR_RANKS_TREE, 0, do_all);
        }
    }
}

/* Sums of any length beside the stream, each rank at its own pace. */
static void do_many(member *m) {
    uint64_t random = 5, pace = m->rank;
    const ashlar_collectives *c = m->table;
    fill(m, ASHLAR_F32);
    NOTE(m, ashlar__ranks_beside_open(m->ranks) == ASHLAR_OK);
    ashlar__ranks_beside_begin(m->ranks);
    for (size_t at = 0, turn = 0; turn < TURNS && at < ELEMENTS; turn++) {
        size_t length = 1 + (size_t)ashlar__random_step_below(&random, 60);
        length = length < ELEMENTS - at ? length : ELEMENTS - at;
        NOTE(m, c->all_reduce(c->context, (float *)(void *)m->data + at, length, ASHLAR_F32,
                              m->stream) == ASHLAR_OK);
        at += length;
        if (ashlar__random_step_below(&pace, 8) == 0) {
            (void)usleep(100);
        }
    }
    NOTE(m, ashlar__ranks_beside_end(m->ranks, m->stream) == ASHLAR_OK);
    expect(m, ASHLAR_F32, 0, TURNS, m->count);
    ashlar__ranks_beside_close(m->ranks);
}

CASE(ranks_go_at_their_own_pace) {
    run(RANKS, ASHLAR_RANKS_FASTEST, 0, do_many);
    run(RANKS, ASHLAR_RANKS_TREE, 0, do_many);
}

/* ---- what fails ---- */

static void check_failure(size_t teller, const char *words) {
    size_t told = 0;
    for (size_t i = 0; i < members[0].count; i++) {
        CHECK(members[i].status == ASHLAR_EIO);
        told += members[i].reports;
    }
    CHECK_ZU(told, 1);
    CHECK(members[teller].reports);
    CHECK_HAS(members[teller].detail, words);
}

/* Rank 1 sums up one element less. */
static void differ(member *m) {
    const ashlar_collectives *c = m->table;
    ashlar_ranks_mark(m->ranks, 3, 0);
    NOTE(m, c->all_reduce(c->context, m->data, m->rank == 1 ? 9 : 10, ASHLAR_F32, m->stream) ==
                ASHLAR_OK);
    NOTE(m, ashlar_stream_synchronize(m->device, m->stream) == ASHLAR_OK);
}

CASE(a_rank_that_differs_is_named) {
    run(3, ASHLAR_RANKS_FASTEST, 0, differ);
    check_failure(0, "rank 1 has diverged: it is at bucket 0 of step 3");
}

static void be_late(member *m) {
    const ashlar_collectives *c = m->table;
    if (m->rank == 2) {
        (void)usleep(500000);
    }
    NOTE(m, c->all_reduce(c->context, m->data, 10, ASHLAR_F32, m->stream) == ASHLAR_OK);
    NOTE(m, ashlar_stream_synchronize(m->device, m->stream) == ASHLAR_OK);
}

CASE(a_rank_that_does_not_come_is_named) {
    run(3, ASHLAR_RANKS_FASTEST, 100, be_late);
    check_failure(0, "rank 2 did not come to bucket 0 of step 0");
}

/* A rank fails for a reason of its own; the others wait for it in a sum. */
static void fail_alone(member *m) {
    const ashlar_collectives *c = m->table;
    if (m->rank == 1) {
        (void)ashlar__ranks_fail(m->ranks, "rank 1: no memory for this");
        return;
    }
    NOTE(m, c->all_reduce(c->context, m->data, ELEMENTS, ASHLAR_F32, m->stream) == ASHLAR_OK);
    NOTE(m, ashlar_stream_synchronize(m->device, m->stream) == ASHLAR_OK);
}

CASE(a_rank_that_has_failed_ends_the_others) {
    run(RANKS, ASHLAR_RANKS_FASTEST, 0, fail_alone);
    check_failure(1, "no memory for this");
    CHECK_HAS(members[0].detail, "another rank has failed");
}

/* One gives up in the middle of sums, and frees its memory at once: sanitizers look. */
static void give_up_early(member *m) {
    const ashlar_collectives *c = m->table;
    uint64_t random = m->rank;
    for (size_t turn = 0; turn < TURNS && ashlar_ranks_check(m->ranks) == ASHLAR_OK; turn++) {
        (void)c->all_reduce(c->context, m->data, ELEMENTS, ASHLAR_F32, m->stream);
        if (m->rank == 1 && turn > 2 && ashlar__random_step_below(&random, 4) == 0) {
            (void)ashlar__ranks_fail(m->ranks, "rank 1: enough");
        }
    }
}

CASE(nobody_touches_the_memory_of_a_rank_that_gave_up) {
    for (size_t i = 0; i < 20; i++) {
        run(3, ASHLAR_RANKS_FASTEST, 0, give_up_early);
        check_failure(1, "enough");
    }
}

CASE(a_team_that_cannot_be_is_refused) {
    ashlar_ranks *ranks[RANKS];
    CHECK_FAILS(ashlar_ranks_open_threads(0, 0, ranks), ASHLAR_EINVAL, "give 1 to 64");
    CHECK_FAILS(ashlar_ranks_open_threads(65, 0, ranks), ASHLAR_EINVAL, "give 1 to 64");
    FOR_HOST_FAILURES(n, status, ashlar_ranks_open_threads(RANKS, 0, ranks)) {
        for (size_t i = 0; i < RANKS; i++) {
            CHECK((ranks[i] != NULL) == (status == ASHLAR_OK));
        }
    }
    for (size_t i = 0; i < RANKS; i++) {
        ashlar_ranks_close(ranks[i], false);
    }
}

RUN_CASES()
