#include "peer.h"

ashlar_peer ashlar_peer_jemalloc(void) {
    return (ashlar_peer){.name = NULL};
}
