/*
 * safetensors_fixture.h - a small checkpoint of every kind of tensor and metadata, for tests.
 */
#ifndef ASHLAR_SAFETENSORS_FIXTURE_H
#define ASHLAR_SAFETENSORS_FIXTURE_H

#include "tests/allocator/base/file_fixture.h"
#include "arena/checkpoint/safetensors.h"

static const float narrow[6] = {1, 2, 3, 4, 5, 6.5F};
static const float one = -1;
static const double wide[2] = {0.1, 1e300};

/* Narrow ones before the wide one: the writer has to reorder them. */
static const ashlar_safetensors_entry sample[] = {
    {"layer.0/W \"\xc3\xa4\"", ASHLAR_F32, 2, {2, 3}, narrow, 0},
    {"one", ASHLAR_F32, 0, {0}, &one, 0},
    {"none", ASHLAR_F32, 3, {4, 0, 2}, NULL, 0},
    {"wide", ASHLAR_F64, 1, {2}, wide, 0},
};
enum { SAMPLE_COUNT = sizeof sample / sizeof sample[0] };
static const ashlar_safetensors_pair pairs[] = {{"step", "12"}, {"note", "a\nb \xe2\x82\xac"}};

static inline ashlar_status write_sample(void) {
    return ashlar__safetensors_write(path, sample, SAMPLE_COUNT, pairs, 2);
}

#endif /* ASHLAR_SAFETENSORS_FIXTURE_H */
