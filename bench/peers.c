#include "peer.h"

#include <string.h>

size_t ashlar_peers(const ashlar_peer *out[ASHLAR_PEERS_MAX]) {
    const ashlar_peer *all[ASHLAR_PEERS_MAX] = {
        ashlar_peer_ashlar(), ashlar_peer_floor(),  ashlar_peer_cub(),  ashlar_peer_jemalloc(),
        ashlar_peer_glibc(),  ashlar_peer_driver(), ashlar_peer_plan(), ashlar_peer_none(),
    };
    size_t count = 0;
    for (size_t i = 0; i < ASHLAR_PEERS_MAX; i++) {
        if (all[i] != NULL) {
            out[count++] = all[i];
        }
    }
    return count;
}

const ashlar_peer *ashlar_peer_find(const char *name) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar_peers(peers);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(peers[i]->name, name) == 0) {
            return peers[i];
        }
    }
    return NULL;
}
