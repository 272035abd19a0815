/*
 * test_barrier_litmus.c - the asymmetric lock of cache.h on machines that reorder: every execution
 * of a small program of its owner and its claimer, on x86's store buffers and on a weaker machine.
 *
 * A thread is a list of instructions, and an execution an order in which they take effect. One may
 * take effect before an earlier one of its thread unless
 *   both are on the same variable, or one is a fence;
 *   the earlier is a load with acquire, or the later a store with release;
 *   the later is a store that depends on the earlier, a load, by a branch (a load may be guessed);
 *   on x86: unless the earlier is a store and the later a load.
 * An effect is seen by all at once, as on x86 and ARMv8. membarrier(2) is a fence of the claimer,
 * and one of the owner at a place of its program that nobody chooses: all of the owner's
 * instructions up to some place have taken effect then, and none behind it.
 */
#include "tests/check.h"

#include <stdint.h>

enum { LONGEST = 16 };
enum { BUSY, ATTENTION, DATA, NOTHING, VARIABLES };
typedef enum kind { LOAD, STORE, FENCE, MEMBARRIER } kind;
typedef enum order { RELAXED, ACQUIRE, RELEASE } order;

typedef struct instruction {
    kind kind;
    int variable, value; /* STORE: value; LOAD: value < 0, or the one that is waited for */
    order order;
    int unless; /* not done if the load there gave other than 0; -1: always done */
} instruction;

typedef struct machine {
    const instruction *code[2]; /* [0]: the owner, [1]: the claimer */
    int length[2];
    bool is_x86;
    unsigned done[2];    /* bits: instructions that have taken effect */
    int got[2][LONGEST]; /* [thread][instruction]: what a load gave */
    int memory[VARIABLES];
    long executions, violations;
} machine;

/* Whether instruction j of a thread, if it has not taken effect, keeps a later one, i, from it. */
static bool keeps_back(const machine *m, const instruction *code, int j, int i) {
    const instruction *a = &code[j], *b = &code[i];
    const bool is_fence = a->kind >= FENCE || b->kind >= FENCE;
    const bool may_pass = a->kind == STORE && b->kind == LOAD;
    return is_fence || a->variable == b->variable || (m->is_x86 && !may_pass) ||
           (a->kind == LOAD && a->order == ACQUIRE) || (b->kind == STORE && b->order == RELEASE) ||
           (b->kind == STORE && b->unless == j);
}

static bool is_prefix(unsigned done) {
    return (done & (done + 1)) == 0;
}

static bool can_run(const machine *m, int thread, int i) {
    const instruction *code = m->code[thread], *in = &code[i];
    if ((m->done[thread] >> i & 1) != 0 ||
        (in->kind == LOAD && in->value >= 0 && m->memory[in->variable] != in->value) ||
        (in->kind == MEMBARRIER && !is_prefix(m->done[1 - thread]))) {
        return false;
    }
    for (int j = 0; j < i; j++) {
        if ((m->done[thread] >> j & 1) == 0 && keeps_back(m, code, j, i)) {
            return false;
        }
    }
    return true;
}

/* The claimer reads the data twice. The owner makes it odd, and even again: no odd number may be
 * read, and no change between the two. */
static void judge(machine *m) {
    const int length = m->length[1];
    int reads[2], count = 0;
    for (int i = 0; i < length; i++) {
        if (m->code[1][i].kind == LOAD && m->code[1][i].variable == DATA) {
            reads[count++] = m->got[1][i];
        }
    }
    m->executions++;
    m->violations += reads[0] % 2 != 0 || reads[0] != reads[1];
}

static void run_all(machine *m) {
    bool is_over = true;
    for (int thread = 0; thread < 2; thread++) {
        for (int i = 0; i < m->length[thread]; i++) {
            if (!can_run(m, thread, i)) {
                continue;
            }
            is_over = false;
            const machine before = *m;
            const instruction *in = &m->code[thread][i];
            const bool is_left_out = in->unless >= 0 && m->got[thread][in->unless] != 0;
            m->done[thread] |= 1u << i;
            if (in->kind == LOAD) {
                m->got[thread][i] = m->memory[in->variable];
            } else if (in->kind == STORE && !is_left_out) {
                m->memory[in->variable] = in->value;
            }
            run_all(m);
            const long executions = m->executions, violations = m->violations;
            *m = before;
            m->executions = executions;
            m->violations = violations;
        }
    }
    if (is_over && m->done[1] == (1u << m->length[1]) - 1) {
        judge(m);
    }
}

/* ashlar__cache_enter(), a use, ashlar__cache_leave(), twice. The owner stores 0 on either way. */
static const instruction owner[] = {
    {STORE, BUSY, 1, RELAXED, -1},      {LOAD, ATTENTION, -1, ACQUIRE, -1},
    {STORE, DATA, 1, RELAXED, 1},       {STORE, DATA, 2, RELAXED, 1},
    {STORE, BUSY, 0, RELEASE, -1},      {STORE, BUSY, 1, RELAXED, -1},
    {LOAD, ATTENTION, -1, ACQUIRE, -1}, {STORE, DATA, 3, RELAXED, 6},
    {STORE, DATA, 4, RELAXED, 6},       {STORE, BUSY, 0, RELEASE, -1},
};
enum { OWNER = sizeof owner / sizeof owner[0] };

/* ashlar__caches_claim_locked(), a use, ashlar__caches_release_locked(). */
static const instruction claimer[] = {
    {STORE, ATTENTION, 1, RELEASE, -1}, {MEMBARRIER, 0, 0, RELAXED, -1},
    {LOAD, BUSY, 0, ACQUIRE, -1},       {LOAD, DATA, -1, RELAXED, -1},
    {LOAD, DATA, -1, RELAXED, -1},      {STORE, ATTENTION, 0, RELEASE, -1},
};
enum { CLAIMER = sizeof claimer / sizeof claimer[0] };

typedef struct change {
    int thread, at;
    instruction instead;
} change;

/* The executions that break the lock, with these changes to it. */
static long violations_with(bool is_x86, size_t count, const change *changes) {
    instruction code[2][LONGEST];
    memcpy(code[0], owner, sizeof owner);
    memcpy(code[1], claimer, sizeof claimer);
    for (size_t i = 0; i < count; i++) {
        code[changes[i].thread][changes[i].at] = changes[i].instead;
    }
    machine m = {{code[0], code[1]}, {OWNER, CLAIMER}, is_x86, {0}, {{0}}, {0}, 0, 0};
    run_all(&m);
    printf("# %s: %ld executions, %ld violations\n", is_x86 ? "x86" : "weaker", m.executions,
           m.violations);
    CHECK(m.executions > 0);
    return m.violations;
}

CASE(with_the_barrier_owner_and_claimer_exclude_each_other) {
    CHECK(violations_with(true, 0, NULL) == 0);
    CHECK(violations_with(false, 0, NULL) == 0);
}

CASE(without_it_or_with_a_fence_of_the_claimer_alone_they_do_not) {
    static const change none = {1, 1, {LOAD, NOTHING, -1, RELAXED, -1}};
    static const change own = {1, 1, {FENCE, 0, 0, RELAXED, -1}};
    CHECK(violations_with(true, 1, &none) > 0);
    CHECK(violations_with(true, 1, &own) > 0);
}

CASE(a_barrier_before_the_claim_is_none) {
    static const change swap[] = {{1, 0, {MEMBARRIER, 0, 0, RELAXED, -1}},
                                  {1, 1, {STORE, ATTENTION, 1, RELEASE, -1}}};
    CHECK(violations_with(true, 2, swap) > 0);
}

CASE(an_owner_that_looks_before_it_says_that_it_enters_is_not_shut_out) {
    static const change swap[] = {{0, 0, {LOAD, ATTENTION, -1, ACQUIRE, -1}},
                                  {0, 1, {STORE, BUSY, 1, RELAXED, -1}},
                                  {0, 2, {STORE, DATA, 1, RELAXED, 0}},
                                  {0, 3, {STORE, DATA, 2, RELAXED, 0}}};
    CHECK(violations_with(true, 4, swap) > 0);
}

CASE(a_claimer_that_does_not_wait_meets_the_owner) {
    static const change no_wait = {1, 2, {LOAD, BUSY, -1, ACQUIRE, -1}};
    CHECK(violations_with(true, 1, &no_wait) > 0);
}

/* x86 keeps these orders by itself. */
CASE(the_releases_and_the_claimers_acquire_are_needed_on_a_weaker_machine) {
    static const change weaker[] = {
        {0, 4, {STORE, BUSY, 0, RELAXED, -1}},
        {1, 2, {LOAD, BUSY, 0, RELAXED, -1}},
        {1, 5, {STORE, ATTENTION, 0, RELAXED, -1}},
    };
    for (size_t i = 0; i < sizeof weaker / sizeof weaker[0]; i++) {
        CHECK(violations_with(true, 1, &weaker[i]) == 0);
        CHECK(violations_with(false, 1, &weaker[i]) > 0);
    }
}

RUN_CASES()
