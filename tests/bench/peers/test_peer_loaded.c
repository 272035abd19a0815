/*
 * test_peer_loaded.c - subjects from shared objects: which are taken, and what they are told. The
 * objects lie in the folder ASHLAR_TEST_PEERS.
 */
#include "bench/peers/peer.h"

#include <stdlib.h>

#include "tests/allocator/core/allocator_fixture.h"
#include "allocator/base/error.h"
#include "tests/bench/peers/peer_path.h"

static size_t count_peers(void) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    return ashlar__peers(peers);
}

static void check_refused(const char *text, const char *word) {
    const size_t count = count_peers();
    CHECK_FAILS(ashlar__peer_load(text), ASHLAR_EINVAL, "--peer: ");
    CHECK_HAS(ashlar_error_detail(), word);
    CHECK_ZU(count_peers(), count);
}

CASE(what_is_no_peer_is_refused) {
    check_refused("/nowhere/stone.so", "/nowhere/stone.so");
    check_refused(path_of("."), "irectory");
    check_refused("/proc/self/status", "status: ");
    check_refused("libm.so.6", "no function \"alloc\"");
    check_refused("libc.so.6:malloc,frei", "no function \"frei\"");
}

CASE(text_that_names_no_file_is_refused) {
    check_refused("", "FILE.so:ALLOC,FREE");
    check_refused(":a,b", "FILE.so:ALLOC,FREE");
    check_refused("x.so:,b", "FILE.so:ALLOC,FREE");
    check_refused("x.so:a,", "FILE.so:ALLOC,FREE");
    check_refused("x.so:a,a_name_of_more_than_31_characters", "FILE.so:ALLOC,FREE");
    check_refused("/tmp/lib.so", "the file's name is the subject's");
    check_refused("/tmp/a_name_of_more_than_31_characters.so", "the file's name is the subject's");
    check_refused("/tmp/a|b.so", "the file's name is the subject's");
    check_refused("/tmp/<x>.so", "the file's name is the subject's");
}

CASE(a_name_that_is_taken_is_refused) {
    check_refused("/tmp/libfloor.so.1", "\"floor\" already");
    check_refused("none.so", "\"none\" already");
}

CASE(a_loaded_peer_is_a_subject) {
    const size_t count = count_peers();
    REQUIRE(set_up_device(""));
    CHECK(ashlar__peer_loaded(0) == NULL);
    REQUIRE(ashlar__peer_load(path_of("stone.so")) == ASHLAR_OK);
    CHECK_ZU(count_peers(), count + 1);
    const ashlar_peer *peer = ashlar__peer_find("stone");
    REQUIRE(peer != NULL && peer == ashlar__peer_loaded(0) && ashlar__peer_loaded(1) == NULL);
    CHECK(ashlar__peer_is_loaded(peer) && !ashlar__peer_is_loaded(&ashlar__peer_floor));
    CHECK(peer->give == NULL && peer->hides_calls);
    void *self = peer->origin;
    REQUIRE(peer->create(device, &self) == ASHLAR_OK);
    REQUIRE(peer->enter(self, 0) == ASHLAR_OK);
    unsigned char *one = peer->take(self, 100, streams[0]), *two = peer->take(self, 200, NULL);
    REQUIRE(one != NULL && two != NULL);
    memset(one, 1, 100);
    memset(two, 2, 200);
    CHECK(one[0] == 1 && one[99] == 1);
    peer->give_sized(self, two, 200, NULL); /* it ends the process where one of these is wrong */
    peer->give_sized(self, one, 100, streams[0]);
    peer->leave(self);
    check_refused(path_of("stone.so"), "\"stone\" already");
}

CASE(functions_of_other_names_are_found) {
    char text[PATH_BYTES + 32];
    (void)snprintf(text, sizeof text, "%s:half_take,half_give", path_of("half.so"));
    REQUIRE(ashlar__peer_load(text) == ASHLAR_OK);
    const ashlar_peer *peer = ashlar__peer_find("half");
    REQUIRE(peer != NULL && peer == ashlar__peer_loaded(1));
    REQUIRE(set_up_device(""));
    void *self = peer->origin;
    REQUIRE(peer->create(device, &self) == ASHLAR_OK);
    void *block = peer->take(self, 1, NULL);
    CHECK(block != NULL);
    peer->give_sized(self, block, 1, NULL);
}

RUN_CASES()
