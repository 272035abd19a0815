/*
 * test_peers.c - that whatever is measured really hands out blocks.
 */
#include "bench/peers/peer.h"

#include <stdlib.h>

#include "tests/check.h"
#include "allocator/base/random.h"
#include "allocator/soft/soft.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static ashlar_device *device;
static ashlar_stream stream;

static bool set_up(void) {
    return ashlar__soft_configure("memory=16GiB") == ASHLAR_OK &&
           ashlar_device_open("soft", &device) == ASHLAR_OK &&
           ashlar_stream_create(device, &stream) == ASHLAR_OK;
}

static void tear_down(void) {
    ashlar_stream_destroy(device, stream);
    ashlar_device_close(device);
}

static void *begin(const ashlar_peer *peer) {
    void *self = NULL;
    CHECK(peer->create == NULL || peer->create(device, &self) == ASHLAR_OK);
    CHECK(peer->enter == NULL || peer->enter(self, 0) == ASHLAR_OK);
    return self;
}

static void end(const ashlar_peer *peer, void *self) {
    if (peer->leave != NULL) {
        peer->leave(self);
    }
    if (peer->destroy != NULL) {
        peer->destroy(self);
    }
}

typedef struct taken {
    uintptr_t address;
    size_t bytes;
} taken;

static int by_address(const void *a, const void *b) {
    const taken *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

enum { BLOCKS = 300 };

static void check_apart(const taken *blocks) {
    taken sorted[BLOCKS];
    memcpy(sorted, blocks, sizeof sorted);
    qsort(sorted, BLOCKS, sizeof sorted[0], by_address);
    size_t overlaps = 0;
    for (size_t i = 0; i + 1 < BLOCKS; i++) {
        overlaps += sorted[i].address + sorted[i].bytes > sorted[i + 1].address;
    }
    CHECK_ZU(overlaps, 0);
}

/* Small and large sizes, replaced at random; after each turn no two live blocks overlap. */
static void check_blocks(const ashlar_peer *peer) {
    taken blocks[BLOCKS] = {{0, 0}};
    ashlar_random random;
    ashlar__random_init(&random, 1);
    void *self = begin(peer);
    for (int turn = 0; turn < 5; turn++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            if (blocks[i].bytes != 0 && ashlar__random_below(&random, 2) == 0) {
                continue;
            }
            if (blocks[i].bytes != 0) {
                peer->give(self, (void *)blocks[i].address);
            }
            const size_t bytes = 1 + ashlar__random_below(&random, i % 10 == 0 ? 8 * MIB : 8 * KIB);
            blocks[i] = (taken){(uintptr_t)peer->take(self, bytes, stream), bytes};
            REQUIRE(blocks[i].address != 0);
        }
        check_apart(blocks);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        peer->give(self, (void *)blocks[i].address);
    }
    end(peer, self);
}

CASE_WITH(no_subject_hands_out_a_byte_twice, set_up()) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    for (size_t i = 0; i < count; i++) {
        if (peers[i] != &ashlar__peer_none) {
            check_blocks(peers[i]);
        }
    }
    tear_down();
}

CASE(subjects_on_the_device_know_what_they_hold) {
    const ashlar_peer *peers[] = {&ashlar__peer_ashlar, ashlar__peer_find("cub")};
    REQUIRE(set_up());
    for (size_t i = 0; i < 2; i++) {
        if (peers[i] == NULL) {
            continue; /* CUB */
        }
        ashlar_peer_usage usage = {0};
        void *self = begin(peers[i]);
        void *one = peers[i]->take(self, MIB, stream), *two = peers[i]->take(self, MIB, stream);
        peers[i]->give(self, one);
        peers[i]->give(self, two);
        peers[i]->usage(self, &usage);
        CHECK(usage.reserved_peak_bytes >= 2 * MIB && usage.reserved_peak_bytes <= 16 * MIB);
        CHECK(usage.live_peak_bytes == (i == 0 ? 2 * MIB : 0)); /* CUB does not know */
        end(peers[i], self);
    }
    tear_down();
}

RUN_CASES()
