/*
 * fortify.h - has the C library check the bounds of its copies, where an optimising compiler knows
 * them (internal).
 *
 * Included by the compiler's command line, before all else: the C library's headers look at it.
 */
#ifndef ASHLAR_FORTIFY_H
#define ASHLAR_FORTIFY_H

#ifdef __OPTIMIZE__
#undef _FORTIFY_SOURCE /* some compilers bring a lower level */
#define _FORTIFY_SOURCE 3
#endif

#endif /* ASHLAR_FORTIFY_H */
