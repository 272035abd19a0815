#include "bench/peers/peer.h"

const ashlar_peer *ashlar__peer_jemalloc(void) {
    return NULL;
}
