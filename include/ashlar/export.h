/* export.h - attributes of public functions, and their linkage (extern "C"). */
#ifndef ASHLAR_EXPORT_H
#define ASHLAR_EXPORT_H

#if defined(__GNUC__)
#define ASHLAR_API __attribute__((visibility("default")))
#define ASHLAR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define ASHLAR_API
#define ASHLAR_MUST_CHECK
#endif

#if defined(__cplusplus)
#define ASHLAR_BEGIN_DECLS extern "C" {
#define ASHLAR_END_DECLS }
#else
#define ASHLAR_BEGIN_DECLS
#define ASHLAR_END_DECLS
#endif

#endif /* ASHLAR_EXPORT_H */
