/* away.h - device memory whose contents are in page-locked memory for a while: copies there and
 * back on two streams of their own, ordered by events (internal). */
#ifndef ASHLAR_AWAY_H
#define ASHLAR_AWAY_H

#include <ashlar/device.h>

#include "allocator/base/error.h"

/* What that takes. All 0 but `device`, and what is needed, before ashlar__away_take(). */
typedef struct ashlar_away {
    ashlar_device *device;
    size_t needed_bytes, needed_events; /* by all of its users so far */
    ashlar_stream out, back;            /* copies; NULL: not needed yet */
    ashlar_event now;                   /* recorded and waited for at once */
    ashlar_event *events;               /* [event_count] of places */
    size_t event_count, bytes;
    char *host;           /* [bytes] page-locked */
    uint64_t event_calls; /* so far: calls that record events or have a stream wait for them */
} ashlar_away;

/* Device memory, and where its contents go. */
typedef struct ashlar_away_place {
    char *device, *host;
    size_t bytes;
    ashlar_event event; /* of the place */
} ashlar_away_place;

/* Note what somebody needs; take what all of them do, or give it back. _take waits for copies if it
 * takes anew, and is not for a stream that is captured then. Errors: ASHLAR_ENOMEM, ASHLAR_EDRIVER,
 * ASHLAR_EHOSTMEM. */
void ashlar__away_need(ashlar_away *away, size_t bytes, size_t events);
ASHLAR_MUST_CHECK ashlar_status ashlar__away_take(ashlar_away *away);
void ashlar__away_finish(ashlar_away *away);

/* Calls for an event, which are counted. */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_record(ashlar_away *away, ashlar_event event,
                                                    ashlar_stream stream);
ASHLAR_MUST_CHECK ashlar_status ashlar__away_wait(ashlar_away *away, ashlar_stream stream,
                                                  ashlar_event event);

/* Queue a copy behind what is queued on `stream` now; the place's event follows it. */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_send(ashlar_away *away, const ashlar_away_place *place,
                                                  ashlar_stream stream);
/* Let copies back begin behind what is queued on `stream` now. */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_follow(ashlar_away *away, ashlar_stream stream);
/* Queue the copy back, if it `waits` behind what the place's event says, which says then when it is
 * over. */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_fetch(ashlar_away *away,
                                                   const ashlar_away_place *place, bool waits);
/* Have `stream` wait for all copies: at the end, and after a failure `status`, since their memory
 * is given back there. Returns that failure, with its detail, or its own. */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_join(ashlar_away *away, ashlar_stream stream,
                                                  ashlar_status status);

#endif /* ASHLAR_AWAY_H */
