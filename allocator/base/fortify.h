/*
 * fortify.h - has the C library check the bounds of its copies, where an optimising compiler knows
 * them (internal).
 *
 * The compiler's command line includes it before all else, so that the C library's headers see the
 * macro.
 */
#ifndef ASHLAR_FORTIFY_H
#define ASHLAR_FORTIFY_H

#ifdef __OPTIMIZE__
#undef _FORTIFY_SOURCE /* some compilers define a lower level themselves */
#define _FORTIFY_SOURCE 3
#endif

#endif /* ASHLAR_FORTIFY_H */
