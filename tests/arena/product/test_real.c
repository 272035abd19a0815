/*
 * test_real.c - the float functions under the LSTM and the other operations.
 */
#include "arena/product/real.h"

#include <float.h>

#include "tests/allocator/trace/numbers_fixture.h"

typedef struct function {
    const char *name;
    float (*got)(float);
    double (*want)(double);
    double ulps;
    double floor; /* an absolute error that is allowed besides */
} function;

static double error_in_ulps(float got, double want) {
    int exponent;
    frexp(want, &exponent);
    const double ulp = ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
    return fabs((double)got - want) / ulp;
}

/* Every exponent, both signs, some thousands of mantissas each. */
static void check_function(const function *f) {
    double worst = 0;
    float worst_at = 0;
    int bad = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1021) {
        const uint32_t pattern = (uint32_t)bits;
        float x;
        memcpy(&x, &pattern, sizeof x);
        const float got = f->got(x);
        const double want = f->want((double)x);
        if (isnan(x)) {
            bad += !isnan(got);
        } else if (want > (double)FLT_MAX) {
            bad += !(isinf(got) && got > 0);
        } else if (!(fabs((double)got - want) <= f->floor)) {
            const double error = error_in_ulps(got, want);
            bad += !(error <= f->ulps);
            worst_at = error > worst ? x : worst_at;
            worst = fmax(worst, error);
        }
    }
    CHECK(bad == 0);
    printf("# %s: worst %.2f ulp, at %a\n", f->name, worst, (double)worst_at);
}

CASE(float_functions_are_within_a_few_ulps_everywhere) {
    static const function functions[] = {
        {"exp", real_exp, exp, 2, 0},
        {"sigmoid", real_sigmoid, sigmoid, 4, 0x1p-125},
        {"tanh", real_tanh, tanh, 4, 0},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        check_function(&functions[i]);
    }
}

CASE(float_functions_are_exact_at_the_ends) {
    CHECK(real_exp(0) == 1 && real_exp(-INFINITY) == 0 && isinf(real_exp(INFINITY)));
    CHECK(real_sigmoid(0) == 0.5f && real_sigmoid(INFINITY) == 1);
    CHECK(real_sigmoid(-INFINITY) >= 0 && real_sigmoid(-INFINITY) <= 0x1p-125f);
    CHECK(real_tanh(0) == 0 && real_tanh(INFINITY) == 1 && real_tanh(-INFINITY) == -1);
}

RUN_CASES()
