/* instruction_set.c - chooses the instruction set of compiled loops: the best one that the
 * processor runs, or a lesser one that ASHLAR_ISA names. */
#include "arena/compute/instruction_set.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"

#define NAME(set, bytes, registers) [ASHLAR_SET_##set] = #set,
static const char *const names[] = {ASHLAR_SET_MAP(NAME)};
ASHLAR_TABLE_IS_FULL(names, ASHLAR_SET_COUNT);

static struct {
    pthread_once_t once;
    ashlar_instruction_set most;   /* that the processor can run */
    ashlar_instruction_set wanted; /* ASHLAR_SET_COUNT: ASHLAR_ISA names no set */
    char given[32];                /* the start of ASHLAR_ISA's text; "": it is not set */
} choice = {.once = PTHREAD_ONCE_INIT};

static ashlar_instruction_set ask_processor(void) {
#if defined __x86_64__
    const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
        __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    return !has_avx2 ? ASHLAR_SET_baseline : has_avx512 ? ASHLAR_SET_avx512 : ASHLAR_SET_avx2;
#else
    return ASHLAR_SET_baseline;
#endif
}

static void choose(void) {
    choice.most = ask_processor();
    const char *given = secure_getenv("ASHLAR_ISA");
    choice.wanted = given == NULL ? choice.most : ASHLAR_SET_baseline;
    while (given != NULL && choice.wanted < ASHLAR_SET_COUNT &&
           strcmp(given, names[choice.wanted]) != 0) {
        choice.wanted++;
    }
    snprintf(choice.given, sizeof choice.given, "%s", given != NULL ? given : "");
}

ashlar_instruction_set ashlar__instruction_set(void) {
    (void)pthread_once(&choice.once, choose);
    return choice.wanted < choice.most ? choice.wanted : choice.most;
}

ashlar_status ashlar__instruction_set_check(void) {
    const ashlar_instruction_set used = ashlar__instruction_set();
    if (used == choice.wanted) {
        return ASHLAR_OK;
    }
    return ashlar__fail(ASHLAR_EINVAL, "ASHLAR_ISA=%s: this processor runs baseline%s%s",
                        choice.given, choice.most >= ASHLAR_SET_avx2 ? ", avx2" : "",
                        choice.most >= ASHLAR_SET_avx512 ? ", avx512" : "");
}
