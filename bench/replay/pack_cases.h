/*
 * pack_cases.h - packing problems made from a seed: the same on every machine (internal).
 */
#ifndef ASHLAR_PACK_CASES_H
#define ASHLAR_PACK_CASES_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/pack.h>

/*
 * Like the allocations of training steps: parameters and optimizer state that live throughout,
 * activations that backward frees in reverse, a few of them later, gradients until the end of a
 * step, short-lived workspaces; several steps, whose lengths differ.
 *
 * buffers   [count], in the order of their beginnings; sizes are multiples of 512 B
 */
void ashlar__pack_case_training(uint64_t seed, ashlar_pack_buffer *buffers, size_t count);

/*
 * A rectangle of `capacity` bytes over `time` units of time, cut into pieces, in random order: it
 * can be packed into `capacity` bytes without any gap. Every third cut is a pinwheel: five pieces,
 * of which no straight line through all of them separates any.
 *
 * capacity, time   large against count; sizes are multiples of `unit`, which divides capacity
 * offsets          [count] of that plan
 */
void ashlar__pack_case_perfect(uint64_t seed, size_t capacity, size_t unit, uint64_t time,
                               ashlar_pack_buffer *buffers, size_t *offsets, size_t count);

#endif /* ASHLAR_PACK_CASES_H */
