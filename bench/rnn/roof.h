/* roof.h - measures the two limits that the machine sets to a step of a network, on the threads
 * that compute: multiply-adds in registers, and reads of a buffer (internal). */
#ifndef ASHLAR_ROOF_H
#define ASHLAR_ROOF_H

#include <stddef.h>

typedef enum ashlar_roof {
    ASHLAR_ROOF_FMA,  /* fp32 multiply-adds, in the instruction set that the layers use */
    ASHLAR_ROOF_READ, /* bytes of a buffer; each thread reads a part of its own, again and again */
    ASHLAR_ROOF_COUNT
} ashlar_roof;

/* Reach a limit for some milliseconds, on all workers (workers.h). Returns what is done per second:
 * additions plus multiplications, or bytes.
 *
 * buffer  [bytes], only for READ: whole lines of 64 bytes; a buffer that fits the caches is read
 *         from there */
double ashlar__roof_run(ashlar_roof roof, const void *buffer, size_t bytes);

/* The loops for one instruction set (instruction_set.h); meson.build compiles roof_loops.c for each
 * set. Both return a number that depends on all that they did, so no work can be left out. */
typedef struct ashlar_roof_loops {
    float (*multiply)(size_t rounds, float factor); /* `products` multiply-adds in each round */
    float (*read)(const void *buffer, size_t bytes);
    size_t products;
} ashlar_roof_loops;
extern const ashlar_roof_loops ashlar__roof_loops_baseline, ashlar__roof_loops_avx2,
    ashlar__roof_loops_avx512, ashlar__roof_loops_neon;

#endif /* ASHLAR_ROOF_H */
