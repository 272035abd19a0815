/* convert.h - converts values from one element type to another (internal). */
#ifndef ASHLAR_CONVERT_H
#define ASHLAR_CONVERT_H

#include <stddef.h>

#include <ashlar/dtype.h>

/* Convert `count` values from type `from` at `in` to type `to` at `out`, rounded to nearest. F64 to
 * F16 or BF16 is rounded to F32 on the way. If the types are the same, every bit is kept. `in` and
 * `out` need not be aligned, and must not overlap. Both types must be valid. */
void ashlar__convert(ashlar_dtype to, void *out, ashlar_dtype from, const void *in, size_t count);

#endif /* ASHLAR_CONVERT_H */
