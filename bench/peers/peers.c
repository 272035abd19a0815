#include "bench/peers/peer.h"

#include <string.h>

#include "bench/peers/peer_loaded.h"

static size_t add(const ashlar_peer *out[], size_t count, const ashlar_peer *peer) {
    if (peer != NULL) {
        out[count++] = peer;
    }
    return count;
}

size_t ashlar__peers(const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    size_t count = 0;
    count = add(out, count, ashlar__peer_ashlar());
    count = add(out, count, ashlar__peer_floor());
    count = add(out, count, ashlar__peer_cub());
    count = add(out, count, ashlar__peer_jemalloc());
    count = add(out, count, ashlar__peer_glibc());
    count = add(out, count, ashlar__peer_driver());
    count = add(out, count, ashlar__peer_cuda_async());
    for (size_t i = 0; i < ASHLAR_PEERS_LOADED_MAX; i++) {
        count = add(out, count, ashlar__peer_loaded(i));
    }
    count = add(out, count, ashlar__peer_plan());
    return add(out, count, ashlar__peer_none());
}

const ashlar_peer *ashlar__peer_find(const char *name) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(peers[i]->name, name) == 0) {
            return peers[i];
        }
    }
    return NULL;
}
