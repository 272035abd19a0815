/*
 * soft_strict.h - strict=on: what CUDA leaves undefined ends the process (internal to the software
 * device).
 */
#ifndef ASHLAR_SOFT_STRICT_H
#define ASHLAR_SOFT_STRICT_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/compiler.h"
#include "allocator/driver/driver.h"
#include "allocator/soft/soft_index.h"

/* The call asks for something that CUDA leaves undefined. With strict=on: print one line, which
 * begins with the name of the call, and end the process. Else return `result`. Lock: not needed. */
cu_result ashlar__soft_undefined(cu_result result, const char *format, ...) ASHLAR_PRINTF(2, 3);

/* The same, for a handle of that kind that names nothing. */
cu_result ashlar__soft_undefined_handle(cu_result result, const soft_handles *handles,
                                        soft_kind kind, uintptr_t handle);

/* These addresses are to lose their memory: undefined, if work that may still run is known to use
 * them. That is a copy or a fill that has not run or, by the virtual clock, not ended, and
 * with clocks=on each use that the host has not seen finished. */
void ashlar__soft_strict_let_go(uintptr_t base, size_t bytes);

#endif /* ASHLAR_SOFT_STRICT_H */
