/* subjects.c - the allocators that are compared on streams: ashlar, CUB's, and a reference with a
 * pool for each stream, in PyTorch's manner. */
#include <string.h>

#include <ashlar/allocator.h>

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "bench/peers/peer.h"
#include "bench/streams/simulation.h"

/* Requests up to SMALL share segments of SMALL_SEGMENT, those up to MIDDLE segments of
 * LARGE_SEGMENT; larger ones have segments of their own. */
#define SMALL ((size_t)1 << 20)
#define SMALL_SEGMENT ((size_t)2 << 20)
#define MIDDLE ((size_t)10 << 20)
#define LARGE_SEGMENT ((size_t)20 << 20)

enum { GRAIN = 512, USES_MAX = 4 };

typedef enum block_state {
    FREE,
    LIVE,
    IN_USE /* given back, but queued work uses it */
} block_state;

/* Blocks of a segment are neighbours in the list of all blocks. */
typedef struct block {
    struct block *prev, *next;
    char *ptr;
    size_t bytes;
    bool is_first; /* the first block of its segment */
    bool is_small; /* its segment is for small requests */
    block_state state;
    ashlar_stream stream;
    size_t use_count;
    ashlar_stream streams[USES_MAX]; /* [use_count], further streams that use it */
    ashlar_event events[USES_MAX];   /* [use_count] while IN_USE */
} block;

typedef struct pools {
    ashlar_device *device;
    block *first;
} pools;

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static void unlink_block(pools *p, block *b) {
    *(b->prev != NULL ? &b->prev->next : &p->first) = b->next;
    if (b->next != NULL) {
        b->next->prev = b->prev;
    }
    ashlar__host_free(b);
}

static void link_after(pools *p, block *where, block *b) {
    b->prev = where;
    b->next = where != NULL ? where->next : p->first;
    *(where != NULL ? &where->next : &p->first) = b;
    if (b->next != NULL) {
        b->next->prev = b;
    }
}

/* Join a free block with the next one if that is free and of the same segment. */
static void join_next(pools *p, block *b) {
    if (b->next != NULL && b->state == FREE && b->next->state == FREE && !b->next->is_first) {
        b->bytes += b->next->bytes;
        unlink_block(p, b->next);
    }
}

static void set_free(pools *p, block *b) {
    b->state = FREE;
    join_next(p, b);
    if (b->prev != NULL && !b->is_first) {
        join_next(p, b->prev);
    }
}

/* Whether the further streams are done with the block; with must_wait the host waits for them. */
static bool is_done(pools *p, block *b, bool must_wait) {
    while (b->use_count > 0) {
        const ashlar_event event = b->events[b->use_count - 1];
        bool is_over = true;
        if (must_wait ? ashlar_event_synchronize(p->device, event) != ASHLAR_OK
                      : ashlar_event_query(p->device, event, &is_over) != ASHLAR_OK || !is_over) {
            return false;
        }
        ashlar_event_destroy(p->device, event);
        b->use_count--;
    }
    return true;
}

/* Free blocks whose uses are over. Joining deletes the second of two blocks, so the search goes on
 * from the joined one. */
static void collect(pools *p, bool must_wait) {
    for (block *b = p->first, *next; b != NULL; b = next) {
        next = b->next;
        if (b->state == IN_USE && is_done(p, b, must_wait)) {
            next = next != NULL && next->state == FREE && !next->is_first ? next->next : next;
            set_free(p, b);
        }
    }
}

static void return_segment(pools *p, block *b) {
    (void)ASHLAR_DRIVER_CALL(p->device->driver, mem_free, (ashlar__ptr_in(b->ptr)));
    unlink_block(p, b);
}

/* Return every unused segment to the driver, after a wait for blocks that only queued work uses. */
static void return_cached(pools *p) {
    collect(p, true);
    for (block *b = p->first, *next; b != NULL; b = next) {
        next = b->next;
        if (b->state == FREE && b->is_first && (next == NULL || next->is_first)) {
            return_segment(p, b);
        }
    }
}

static block *find_free(pools *p, size_t bytes, ashlar_stream stream) {
    block *best = NULL;
    for (block *b = p->first; b != NULL; b = b->next) {
        if (b->state == FREE && b->stream == stream && b->is_small == (bytes <= SMALL) &&
            b->bytes >= bytes && (best == NULL || b->bytes < best->bytes)) {
            best = b;
        }
    }
    return best;
}

static block *take_segment(pools *p, size_t bytes, ashlar_stream stream) {
    const size_t size = bytes <= SMALL   ? SMALL_SEGMENT
                        : bytes < MIDDLE ? LARGE_SEGMENT
                                         : round_up(bytes, SMALL_SEGMENT);
    cu_ptr ptr = 0;
    block *b = ashlar__host_calloc(1, sizeof *b);
    if (b == NULL || ASHLAR_DRIVER_CALL(p->device->driver, mem_alloc, (&ptr, size)) != CU_SUCCESS) {
        ashlar__host_free(b);
        return NULL;
    }
    *b = (block){.ptr = ashlar__ptr_out(ptr),
                 .bytes = size,
                 .is_first = true,
                 .is_small = bytes <= SMALL,
                 .stream = stream};
    link_after(p, NULL, b);
    return b;
}

/* Split off the rest of a block: in a small segment any rest, in others only more than SMALL. */
static void split(pools *p, block *b, size_t bytes) {
    const size_t rest = b->bytes - bytes;
    block *made =
        rest >= (b->is_small ? GRAIN : SMALL + 1) ? ashlar__host_calloc(1, sizeof *made) : NULL;
    if (made != NULL) {
        *made = (block){
            .ptr = b->ptr + bytes, .bytes = rest, .is_small = b->is_small, .stream = b->stream};
        b->bytes = bytes;
        link_after(p, b, made);
    }
}

static ashlar_status create(ashlar_device *device, void **self) {
    pools *p;
    ASHLAR_HOST_NEW(p, 1, "per_stream: no host memory");
    p->device = device;
    *self = p;
    return ASHLAR_OK;
}

static void destroy(void *self) {
    pools *p = self;
    collect(p, true);
    while (p->first != NULL) {
        if (p->first->is_first) {
            (void)ASHLAR_DRIVER_CALL(p->device->driver, mem_free, (ashlar__ptr_in(p->first->ptr)));
        }
        unlink_block(p, p->first);
    }
    ashlar__host_free(p);
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    pools *p = self;
    const size_t size = round_up(bytes, GRAIN);
    collect(p, false);
    block *b = find_free(p, size, stream);
    b = b != NULL ? b : take_segment(p, size, stream);
    if (b == NULL) {
        return_cached(p);
        b = take_segment(p, size, stream);
        b = b != NULL ? b : find_free(p, size, stream);
    }
    if (b == NULL) {
        return NULL;
    }
    split(p, b, size);
    b->state = LIVE;
    return b->ptr;
}

static block *find_live(pools *p, const void *ptr) {
    block *b = p->first;
    while (b->ptr != ptr || b->state != LIVE) {
        b = b->next;
    }
    return b;
}

static void give(void *self, void *ptr) {
    pools *p = self;
    block *b = find_live(p, ptr);
    size_t count = 0;
    for (; count < b->use_count; count++) {
        if (ashlar_event_create(p->device, &b->events[count]) != ASHLAR_OK ||
            ashlar_event_record(p->device, b->events[count], b->streams[count]) != ASHLAR_OK) {
            return; /* the block is lost, which is safe */
        }
    }
    b->state = IN_USE;
    if (count == 0) {
        set_free(p, b);
    }
}

static ashlar_status record(void *self, void *ptr, ashlar_stream stream) {
    block *b = find_live(self, ptr);
    size_t i = 0;
    while (i < b->use_count && b->streams[i] != stream) {
        i++;
    }
    ASHLAR_FAIL_IF(i == USES_MAX, ASHLAR_EINVAL, "per_stream: more than %d streams", (int)USES_MAX);
    if (i == b->use_count && stream != b->stream) {
        b->streams[b->use_count++] = stream;
    }
    return ASHLAR_OK;
}

const ashlar_streams_subject ashlar__streams_per_stream = {
    .name = "per_stream",
    .create = create,
    .destroy = destroy,
    .take = take,
    .give = give,
    .record = record,
};

static ashlar_status record_ashlar(void *self, void *ptr, ashlar_stream stream) {
    return ashlar_record_stream(self, ptr, stream);
}

static ashlar_status give_ashlar_on(void *self, void *ptr, ashlar_stream stream) {
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
        out->record = record_ashlar;
        out->give_on = give_ashlar_on;
    } else if (i == 1 && cub != NULL) {
        *out = of_peer(cub);
    } else if (i == (cub != NULL ? 2 : 1)) {
        *out = ashlar__streams_per_stream;
    } else {
        return false;
    }
    return true;
}
