/*
 * export.h - attributes of public functions, and their linkage (extern "C").
 *
 * STRUCTURES OF OPTIONS AND OF RESULTS. In all of ashlar's structures that a program fills in, 0 is
 * the default, so that a field which is left out does what its comment says of 0. "Never" and
 * "none" have names of their own. A field that must be given is refused at 0.
 *
 * Later versions add fields at the end of such structures. So the library has to know which fields
 * a program's structure has: each function that takes a structure is an inline function, which
 * passes sizeof to a function of the library, the same name with _sized. A program that cannot use
 * these headers (by Python's ctypes, say) calls the latter.
 *
 *   the program is older   fields that it does not have are 0, and are not written
 *   the program is newer   fields that the library does not know must be 0, or the call is refused
 *                          (ASHLAR_EINVAL); in results they are 0
 *
 * Structures that stand in arrays (such as ashlar_pack_buffer), that the library hands out or keeps
 * the address of, or passes to a callback, never change: a new need gets a new function.
 */
#ifndef ASHLAR_EXPORT_H
#define ASHLAR_EXPORT_H

#if defined(__GNUC__)
#define ASHLAR_API __attribute__((visibility("default")))
#define ASHLAR_MUST_CHECK __attribute__((warn_unused_result))
/* Follows ASHLAR_API if a later version drops the function: ASHLAR_DEPRECATED("use ... instead") */
#define ASHLAR_DEPRECATED(instead) __attribute__((deprecated(instead)))
#else
#define ASHLAR_API
#define ASHLAR_MUST_CHECK
#define ASHLAR_DEPRECATED(instead)
#endif

#if defined(__cplusplus)
#define ASHLAR_BEGIN_DECLS extern "C" {
#define ASHLAR_END_DECLS }
#else
#define ASHLAR_BEGIN_DECLS
#define ASHLAR_END_DECLS
#endif

#endif /* ASHLAR_EXPORT_H */
