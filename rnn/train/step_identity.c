/* step_identity.c - lists what a step's calls depend on, and compares two lists. */
#include "rnn/train/step_identity.h"

#include <string.h>

#include "allocator/base/check_level.h"

void ashlar__identity_add_size(ashlar_identity *id, const char *what, uint64_t value) {
    ASHLAR_ASSERT(id->count < ASHLAR_IDENTITY_MAX);
    id->facts[id->count].what = what;
    id->facts[id->count++].value = value;
}

void ashlar__identity_add_real(ashlar_identity *id, const char *what, double value) {
    uint64_t bits;
    _Static_assert(sizeof bits == sizeof value, "a double is one fact");
    memcpy(&bits, &value, sizeof bits);
    ashlar__identity_add_size(id, what, bits);
}

void ashlar__identity_add_address(ashlar_identity *id, const char *what, const void *ptr) {
    ashlar__identity_add_size(id, what, (uintptr_t)ptr);
}

void ashlar__identity_add_rnn(ashlar_identity *id, const ashlar_rnn *rnn) {
    static const char what[] = "the description of the layers";
    const ashlar_rnn_config *c = &ashlar_rnn_layout_of(rnn)->config;
    ashlar__identity_add_address(id, what, rnn);
    ashlar__identity_add_size(id, what, c->input);
    ashlar__identity_add_size(id, what, c->hidden);
    ashlar__identity_add_size(id, what, c->layers);
    ashlar__identity_add_size(id, what, c->dtype);
    ashlar__identity_add_size(id, what, c->cell);
    ashlar__identity_add_size(id, what, c->bias);
    ashlar__identity_add_size(id, what, c->directions);
    ashlar__identity_add_size(id, what, c->projection);
    ashlar__identity_add_size(id, what, c->math);
    ashlar__identity_add_size(id, what, c->algorithm);
    ashlar__identity_add_real(id, "--dropout", c->dropout);
}

const char *ashlar__identity_difference(const ashlar_identity *a, const ashlar_identity *b) {
    const size_t count = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < count; i++) {
        if (a->facts[i].value != b->facts[i].value || a->facts[i].what != b->facts[i].what) {
            return a->facts[i].what;
        }
    }
    return a->count == b->count ? NULL : "the kind of step";
}
