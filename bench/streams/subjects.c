/* subjects.c - ashlar and the other allocators as subjects of the benchmark of streams. */
#include "bench/streams/subject.h"

#include <ashlar/allocator.h>

#include "bench/peers/peer.h"

static ashlar_status record(void *self, void *ptr, ashlar_stream stream) {
    return ashlar_record_stream(self, ptr, stream);
}

static ashlar_status give_on(void *self, void *ptr, ashlar_stream stream) {
    return ashlar_free_on(self, ptr, stream);
}

static ashlar_streams_subject of_peer(const ashlar_peer *peer) {
    return (ashlar_streams_subject){.name = peer->name,
                                    .create = peer->create,
                                    .destroy = peer->destroy,
                                    .take = peer->take,
                                    .give = peer->give};
}

bool ashlar__streams_subject(size_t i, ashlar_streams_subject *out) {
    const ashlar_peer *cub = ashlar__peer_find("cub");
    if (i == 0) {
        *out = of_peer(&ashlar__peer_ashlar);
        out->record = record;
        out->give_on = give_on;
    } else if (i == 1 && cub != NULL) {
        *out = of_peer(cub);
    } else if (i == (cub != NULL ? 2 : 1)) {
        *out = ashlar__streams_per_stream;
    } else {
        return false;
    }
    return true;
}
