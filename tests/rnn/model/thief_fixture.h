/*
 * thief_fixture.h - a back end that also gives away one of the step's buffers, for tests.
 */
#ifndef ASHLAR_THIEF_FIXTURE_H
#define ASHLAR_THIEF_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <stddef.h>

#include "rnn/layer/backend.h"

/* Which buffers of which pass there are to steal. */
typedef struct theft {
    ashlar_rnn_pass pass;
    size_t field;
} theft;

static const theft THEFTS[] = {
    {ASHLAR_RNN_FORWARD, offsetof(ashlar_rnn_buffers, work)},
    {ASHLAR_RNN_FORWARD, offsetof(ashlar_rnn_buffers, y)},
    {ASHLAR_RNN_FORWARD, offsetof(ashlar_rnn_buffers, x)},
    {ASHLAR_RNN_BACKWARD_DATA, offsetof(ashlar_rnn_buffers, dy)},
    {ASHLAR_RNN_BACKWARD_WEIGHTS, offsetof(ashlar_rnn_buffers, reserve)}};
enum { THEFT_COUNT = sizeof THEFTS / sizeof *THEFTS };

static const theft *thiefs; /* the next one's */

static inline ashlar_status thief_queue(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                        const ashlar_rnn_batch *batch,
                                        const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    if (pass == thiefs->pass) {
        void *ptr = NULL;
        memcpy(&ptr, (const char *)buffers + thiefs->field, sizeof ptr);
        CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    }
    return ashlar__rnn_backend_cpu.queue(rnn, pass, batch, buffers, stream);
}

#endif /* ASHLAR_THIEF_FIXTURE_H */
