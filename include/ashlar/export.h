/*
 * export.h - attributes of public functions, and their linkage (extern "C").
 *
 * STRUCTURES OF OPTIONS. In all of ashlar's structures that a program fills in, 0 is the default,
 * so that a field which is left out does what its comment says of 0. "Never" and "none" have names
 * of their own. A field that must be given is refused at 0. A structure of options at NULL stands
 * for one that is all 0.
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
