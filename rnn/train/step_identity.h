/* step_identity.h - what the calls of a step depend on, besides what it reads in device memory:
 * two steps of the same identity queue the same calls with the same arguments (internal).
 *
 * Threads: one at a time per identity. */
#ifndef ASHLAR_STEP_IDENTITY_H
#define ASHLAR_STEP_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/rnn.h>

enum { ASHLAR_IDENTITY_MAX = 64 };

typedef struct ashlar_identity {
    size_t count;
    struct {
        const char *what; /* a constant text that says what changed if the value did */
        uint64_t value;
    } facts[ASHLAR_IDENTITY_MAX];
} ashlar_identity;

/* Add a fact. Identities are compared fact by fact, in the order in which they were added. */
void ashlar__identity_add_size(ashlar_identity *identity, const char *what, uint64_t value);
void ashlar__identity_add_real(ashlar_identity *identity, const char *what, double value);
void ashlar__identity_add_address(ashlar_identity *identity, const char *what, const void *ptr);

/* Add a stack of layers: which it is, and all that describes it. */
void ashlar__identity_add_rnn(ashlar_identity *identity, const ashlar_rnn *rnn);

/* The `what` of the first fact that differs; NULL: all facts are equal. */
const char *ashlar__identity_difference(const ashlar_identity *a, const ashlar_identity *b);

#endif /* ASHLAR_STEP_IDENTITY_H */
