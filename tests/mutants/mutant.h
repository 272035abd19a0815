/*
 * mutant.h - one build with every mutant, of which the environment chooses one (mutants.py).
 *
 * Included before every file of the rewritten copy. Where a change is tried, ASHLAR_MUTANT(k) says
 * whether it is the chosen one, ASHLAR_MUTANT=k, and leaves a mark that place k was reached in the
 * file ASHLAR_MUTANT_MARKS, which outlives a process that is killed.
 */
#if !defined(ASHLAR_MUTANT) && defined(ASHLAR_DEBUG) /* else it is Meson that tries something */
#define ASHLAR_MUTANT(k) ashlar__mutant(k)

extern unsigned char *ashlar__mutant_marks;
extern unsigned ashlar__mutant_chosen;

/* tests/orders would take each mark for a place where threads meet, and try every order of them. */
__attribute__((disable_sanitizer_instrumentation)) static inline _Bool ashlar__mutant(unsigned k) {
    __atomic_store_n(&ashlar__mutant_marks[k], 1, __ATOMIC_RELAXED);
    return ashlar__mutant_chosen == k;
}

#endif /* ASHLAR_MUTANT */
