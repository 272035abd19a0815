/* element.c - chooses the instruction set of compiled loops: the best one that the processor
 * runs, or a lesser one that ASHLAR_ISA names; converts values from one element type to another. */
#include "arena/compute/element.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "arena/compute/convert.h"

#define NAME(set, bytes, registers) [ASHLAR_SET_##set] = #set,
static const char *const names[] = {ASHLAR_SET_MAP(NAME)};
ASHLAR_TABLE_IS_FULL(names, ASHLAR_SET_COUNT);

static struct {
    pthread_once_t once;
    bool can_run[ASHLAR_SET_COUNT]; /* whether this processor has the set */
    ashlar_instruction_set used;
    bool is_refused; /* ASHLAR_ISA names no set, or one that this processor cannot run */
    char given[32];  /* the start of ASHLAR_ISA's text; "": it is not set */
} choice = {.once = PTHREAD_ONCE_INIT};

static void ask_processor(bool *can_run) {
    can_run[ASHLAR_SET_baseline] = true;
#if defined __x86_64__
    can_run[ASHLAR_SET_avx2] =
        __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    can_run[ASHLAR_SET_avx512] =
        can_run[ASHLAR_SET_avx2] && __builtin_cpu_supports("avx512f") != 0 &&
        __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
        __builtin_cpu_supports("avx512vl") != 0;
#elif defined __aarch64__
    can_run[ASHLAR_SET_neon] = true; /* every processor of this kind has it */
#endif
}

static void choose(void) {
    ask_processor(choice.can_run);
    const char *given = secure_getenv("ASHLAR_ISA");
    choice.is_refused = given != NULL;
    for (int set = 0; set < ASHLAR_SET_COUNT; set++) {
        if (choice.can_run[set] && (given == NULL || choice.is_refused)) {
            choice.used = (ashlar_instruction_set)set;
            choice.is_refused = given != NULL && strcmp(given, names[set]) != 0;
        }
    }
    snprintf(choice.given, sizeof choice.given, "%s", given != NULL ? given : "");
}

ashlar_instruction_set ashlar__instruction_set(void) {
    (void)pthread_once(&choice.once, choose);
    return choice.used;
}

ashlar_status ashlar__instruction_set_check(void) {
    (void)pthread_once(&choice.once, choose);
    if (!choice.is_refused) {
        return ASHLAR_OK;
    }
    char list[64] = "";
    for (int set = 0; set < ASHLAR_SET_COUNT; set++) {
        const size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s",
                 choice.can_run[set] && set > 0 ? ", " : "", choice.can_run[set] ? names[set] : "");
    }
    return ashlar__fail(ASHLAR_EINVAL, "ASHLAR_ISA=%s: this processor runs %s", choice.given, list);
}

_Static_assert(ASHLAR_DTYPE_COUNT == 4, "F64, F32 and two of 16 bits");

/* The value at `in`: a double holds every value of each type exactly. */
static double read_value(ashlar_dtype dtype, const void *in) {
    uint16_t half;
    float single;
    double wide;
    if (dtype == ASHLAR_F64) {
        memcpy(&wide, in, sizeof wide);
        return wide;
    }
    if (dtype == ASHLAR_F32) {
        memcpy(&single, in, sizeof single);
        return (double)single;
    }
    memcpy(&half, in, sizeof half);
    return (double)(dtype == ASHLAR_F16 ? ashlar__float_from_f16(half)
                                        : ashlar__float_from_bf16(half));
}

/* A float on the way to 16 bits. If it is not exact, its last bit is set and the others are those
 * of the value cut off, so that the rounding to 16 bits falls as if from the value itself. */
static float round_to_odd(double value) {
    const float nearest = (float)value;
    const bool is_larger = fabs((double)nearest) > fabs(value);
    const bool is_exact = !(fabs((double)nearest) < fabs(value) || is_larger); /* NaN, too */
    return is_exact ? nearest
                    : ashlar__float_from_bits((ashlar__float_bits(nearest) - is_larger) | 1u);
}

static void write_value(ashlar_dtype dtype, void *out, double value) {
    const float single = dtype == ASHLAR_F32 ? (float)value : round_to_odd(value);
    const uint16_t half =
        dtype == ASHLAR_F16 ? ashlar__f16_from_float(single) : ashlar__bf16_from_float(single);
    memcpy(out,
           dtype == ASHLAR_F64   ? (const void *)&value
           : dtype == ASHLAR_F32 ? (const void *)&single
                                 : &half,
           ashlar_dtype_bytes(dtype));
}

void ashlar__convert(ashlar_dtype to, void *out, ashlar_dtype from, const void *in, size_t count) {
    const size_t to_bytes = ashlar_dtype_bytes(to), from_bytes = ashlar_dtype_bytes(from);
    ASHLAR_ASSERT(to_bytes != 0 && from_bytes != 0);
    ASHLAR_CHECK2((const char *)out >= (const char *)in + count * from_bytes ||
                  (const char *)in >= (const char *)out + count * to_bytes || count == 0);
    if (to == from) {
        memcpy(out, in, count * to_bytes); /* keeps signalling NaNs, which arithmetic would quiet */
        return;
    }
    for (size_t i = 0; i < count; i++) {
        write_value(to, (char *)out + i * to_bytes,
                    read_value(from, (const char *)in + i * from_bytes));
    }
}
