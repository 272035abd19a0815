/*
 * convert.h - values of one element type as values of another (internal).
 */
#ifndef ASHLAR_CONVERT_H
#define ASHLAR_CONVERT_H

#include <stddef.h>

#include <ashlar/dtype.h>

/*
 * Write `count` values of type `from` at `in` as type `to` at `out`, rounded to nearest; F64
 * becomes F16 or BF16 by way of F32. Of one type, every bit is kept. Neither need be aligned; they
 * do not overlap. Requires valid types.
 */
void ashlar__convert(ashlar_dtype to, void *out, ashlar_dtype from, const void *in, size_t count);

#endif /* ASHLAR_CONVERT_H */
