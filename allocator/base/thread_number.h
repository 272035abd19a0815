/*
 * thread_number.h - a small number for each thread, from 1, never used again (internal).
 */
#ifndef ASHLAR_THREAD_NUMBER_H
#define ASHLAR_THREAD_NUMBER_H

#include <stdint.h>

/* The calling thread's, given at its first call. */
uint32_t ashlar__thread_number(void);

#endif /* ASHLAR_THREAD_NUMBER_H */
