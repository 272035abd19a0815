/*
 * throw.h - a C++ exception out of C, for a caller that takes no other word for a failure
 * (internal to the drop-in libraries).
 */
#ifndef ASHLAR_DROPIN_THROW_H
#define ASHLAR_DROPIN_THROW_H

#include <stddef.h>

#include <ashlar/status.h>

/*
 * Throw a std::runtime_error that says what ashlar_error_detail() does about a request for `bytes`
 * on a device; its text begins with "CUDA out of memory. Tried to allocate" for ASHLAR_ENOMEM.
 *
 * Returns only where the process has not loaded GNU's C++ library, so that there is nobody who
 * could catch it. Nothing of the caller's is undone: it must hold nothing.
 */
void ashlar__dropin_throw(ashlar_status status, size_t bytes, int device);

/* The same with a text of the caller's. */
void ashlar__dropin_throw_text(const char *text);

#endif /* ASHLAR_DROPIN_THROW_H */
