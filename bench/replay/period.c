/* period.c - finds the distance at which a sequence of numbers nearly repeats itself. */
#include "bench/replay/period.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "allocator/base/host.h"
#include "bench/replay/number_map.h"

#define NONE SIZE_MAX

enum {
    RUN = 4,      /* numbers in a run, which are compared together; a power of two */
    LEADERS = 8,  /* candidates taken from each length of runs */
    LENGTHS = 62, /* most lengths of runs: each is twice the last, and fits into size_t */
    DRIFT_MAX = 8,
    DRIFT_SHARE = 16, /* a repetition may differ in length by 1/16 of the period, and by at
                       * most DRIFT_MAX */
    REPEATS_MIN = 16, /* runs that must repeat; fewer prove nothing */
};

/* Invariants: runs[i] < run_count;  length == count - RUN + 1. */
typedef struct finder {
    size_t count;  /* numbers in the sequence */
    size_t prefix; /* the first `prefix` numbers need not repeat */
    size_t length; /* entries of runs[] that are set */
    size_t run_count;
    size_t *runs;                 /* [count]: by position, which run of RUN numbers begins there */
    size_t *wide;                 /* [count]: the same for longer runs */
    size_t *last;                 /* [count]: by run, the last position seen; NONE: not seen */
    size_t *uses;                 /* [count]: by run, how often it occurs */
    double *votes;                /* [count]: by distance, the votes for it */
    double chance[DRIFT_MAX + 1]; /* by drift: share of runs that would repeat by chance */
    size_t lags[LENGTHS * LEADERS]; /* candidates: for each length of runs, most votes first */
    size_t lag_count;
} finder;

/* How well a candidate period fits. Invariant: if anything repeats, begin + period <= end. */
typedef struct trial {
    size_t begin, end; /* positions of the stretch that repeats, including its first period */
    size_t repeats;    /* runs in the stretch that repeat */
    double share;      /* `repeats` / the runs of the stretch after its first period */
    double score;      /* as in period.h */
    bool counts;       /* whether it meets the conditions of period.h */
} trial;

/* Replace runs of `width` numbers by runs of twice as many, each made of the runs at i and at i +
 * width, and renumber them. *run_count: the number of different runs. */
static ashlar_status widen(size_t *runs, size_t length, size_t width, size_t *run_count) {
    ashlar_number_map map = {0};
    ashlar_status status = ASHLAR_OK;
    *run_count = 0;
    for (size_t i = 0; status == ASHLAR_OK && i + width < length; i++) {
        size_t *value = NULL;
        status = ashlar__number_map_find(&map, runs[i], runs[i + width], &value);
        if (status == ASHLAR_OK) {
            if (*value == ASHLAR_NUMBER_NONE) {
                *value = (*run_count)++;
            }
            runs[i] = *value; /* in place: later steps read only entries after i */
        }
    }
    ashlar__number_map_finish(&map);
    return status;
}

static size_t drift_of(size_t period) {
    const size_t drift = period / DRIFT_SHARE;
    return drift < DRIFT_MAX ? drift : DRIFT_MAX;
}

static void count_uses(finder *f, const size_t *runs, size_t length) {
    memset(f->uses, 0, f->count * sizeof *f->uses);
    for (size_t i = 0; i < length; i++) {
        f->uses[runs[i]]++;
    }
}

/* chance[d]: the probability that a run is among 2 d + 1 runs drawn at random. */
static void find_chances(finder *f) {
    count_uses(f, f->runs, f->length);
    for (size_t drift = 0; drift <= DRIFT_MAX; drift++) {
        for (size_t run = 0; run < f->run_count; run++) {
            const double share = (double)f->uses[run] / (double)f->length;
            f->chance[drift] += share * (1 - pow(1 - share, 2 * (double)drift + 1));
        }
    }
}

static void add_lag(finder *f, size_t lag) {
    for (size_t i = 0; i < f->lag_count; i++) {
        if (f->lags[i] == lag) {
            return;
        }
    }
    f->lags[f->lag_count++] = lag;
}

/* Add the LEADERS distances at which most runs of `wide` recur. Each different run has about one
 * vote, split among its recurrences: otherwise the runs of a step's many layers would outvote the
 * runs that occur once in a step. */
static void add_leaders(finder *f, size_t length, size_t run_count) {
    count_uses(f, f->wide, length);
    memset(f->last, 0xff, run_count * sizeof *f->last); /* NONE */
    for (size_t i = 0; i < length; i++) {
        f->votes[i] = 0;
    }
    for (size_t i = 0; i < length; i++) {
        size_t *last = &f->last[f->wide[i]];
        if (*last != NONE) {
            f->votes[i - *last] += 1 / (double)f->uses[f->wide[i]];
        }
        *last = i;
    }
    for (int n = 0; n < LEADERS; n++) {
        size_t best = 0; /* votes[0] is 0: no run recurs at distance 0 */
        for (size_t lag = 1; lag < length; lag++) {
            best = f->votes[lag] > f->votes[best] ? lag : best;
        }
        if (best == 0) { /* no votes are left */
            return;
        }
        add_lag(f, best);
        f->votes[best] = 0;
    }
}

static ashlar_status find_lags(finder *f) {
    size_t length = f->length, run_count = f->run_count;
    memcpy(f->wide, f->runs, length * sizeof *f->wide);
    add_leaders(f, length, run_count);
    for (size_t width = RUN; width < length; width *= 2) {
        ASHLAR_TRY(widen(f->wide, length, width, &run_count));
        length -= width;
        add_leaders(f, length, run_count);
    }
    return ASHLAR_OK;
}

/* The best stretch so far, and the one that is growing. The surplus of a stretch is the number of
 * its runs that repeat minus the number that do not. */
typedef struct stretch {
    size_t begin, end, repeats;             /* of the best one: positions, and runs that repeat */
    size_t surplus, best_surplus;           /* of the growing stretch; of the best one */
    size_t grown_begin, grown_repeats, gap; /* of the growing stretch; gap: runs since a repeat */
} stretch;

static void grow(stretch *s, size_t i, bool repeats, size_t period) {
    s->gap = repeats ? 0 : s->gap + 1;
    if (repeats) {
        s->surplus++;
        s->grown_repeats++;
    } else if (s->surplus <= 1 || s->gap > period / 2 + 2 * RUN) {
        s->surplus = 0;
        s->grown_repeats = 0;
        s->grown_begin = i + 1;
    } else {
        s->surplus--;
    }
    if (s->surplus > s->best_surplus) {
        s->best_surplus = s->surplus;
        s->begin = s->grown_begin;
        s->end = i + 1;
        s->repeats = s->grown_repeats;
    }
}

/* Find the stretch that repeats at `period`. `links` is NULL, or filled as in ashlar_period. */
static stretch compare(const finder *f, size_t period, size_t *links) {
    const size_t drift = drift_of(period);
    stretch s = {.begin = period, .end = period, .grown_begin = period};
    size_t lag = period, seen = 0; /* last[] covers the positions before `seen` */
    memset(f->last, 0xff, f->run_count * sizeof *f->last);
    for (size_t i = period; i < f->count; i++) {
        bool repeats = false;
        if (i < f->length) {
            for (; seen <= i - (period - drift); seen++) {
                f->last[f->runs[seen]] = seen;
            }
            const size_t last = f->last[f->runs[i]];
            repeats = f->runs[i - lag] == f->runs[i];
            if (!repeats && last != NONE && i - last <= period + drift) {
                lag = i - last;
                repeats = true;
            }
            grow(&s, i, repeats, period);
        }
        if (links != NULL) {
            links[i] = i - lag;
        }
    }
    return s;
}

static trial try_lag(const finder *f, size_t period) {
    const stretch s = compare(f, period, NULL);
    const double chance = f->chance[drift_of(period)];
    trial t = {.begin = s.begin - period, .end = s.end + RUN - 1, .repeats = s.repeats};
    if (s.end == s.begin || chance >= 1) {
        return t;
    }
    t.share = (double)s.repeats / (double)(s.end - s.begin);
    t.score = fmax(0, (t.share - chance) / (1 - chance));
    const size_t left_out = t.begin < f->prefix ? t.begin : f->prefix;
    const size_t extent = t.end - t.begin;
    t.counts = t.score >= 0.5 && t.repeats >= REPEATS_MIN &&
               extent + drift_of(period) >= 2 * period && 3 * extent >= 2 * (f->count - left_out);
    return t;
}

/* Two standard deviations of the score. One changed number affects RUN runs, so runs are not
 * independent: the variance is RUN times as large. */
static double tolerance(const finder *f, const trial *t, size_t period) {
    const double runs = (double)t->repeats / t->share;
    return 2 * sqrt(RUN * t->share * (1 - t->share) / runs) / (1 - f->chance[drift_of(period)]);
}

static void choose(const finder *f, ashlar_period *p, trial *chosen) {
    trial trials[LENGTHS * LEADERS];
    size_t best = NONE;
    for (size_t i = 0; i < f->lag_count; i++) {
        trials[i] = try_lag(f, f->lags[i]);
        if (trials[i].counts && (best == NONE || trials[i].score > trials[best].score)) {
            best = i;
        }
    }
    if (best == NONE) {
        return;
    }
    const double least = trials[best].score - tolerance(f, &trials[best], f->lags[best]);
    size_t smallest = NONE;
    for (size_t i = 0; i < f->lag_count;
         i++) { /* of lags within a drift of each other, the first one stays */
        if (trials[i].counts && trials[i].score >= least &&
            (smallest == NONE || f->lags[i] + drift_of(f->lags[i]) < f->lags[smallest])) {
            smallest = i;
        }
    }
    if (f->lags[smallest] > 1) { /* a number that follows itself is no period */
        p->period = f->lags[smallest];
        *chosen = trials[smallest];
    }
}

static ashlar_status find(finder *f, ashlar_period *p) {
    trial chosen = {0};
    size_t length = f->count;
    for (size_t width = 1; width < RUN; width *= 2) {
        ASHLAR_TRY(widen(f->runs, length, width, &f->run_count));
        length -= width;
    }
    find_chances(f);
    ASHLAR_TRY(find_lags(f));
    choose(f, p, &chosen);
    if (p->period != 0) {
        p->drift = drift_of(p->period);
        p->begin = chosen.begin;
        p->end = chosen.end;
        p->score = chosen.score;
        p->links = f->wide;
        f->wide = NULL;
        (void)compare(f, p->period, p->links);
    }
    return ASHLAR_OK;
}

/* `wide` has an allocation of its own, since it becomes the links of the result. */
static ashlar_status reserve(finder *f) {
    f->runs = ashlar__host_calloc(f->count, 3 * sizeof *f->runs);
    f->wide = ashlar__host_calloc(f->count, sizeof *f->wide);
    f->votes = ashlar__host_calloc(f->count, sizeof *f->votes);
    ASHLAR_FAIL_IF(f->runs == NULL || f->wide == NULL || f->votes == NULL, ASHLAR_EHOSTMEM,
                   "no host memory to find the period of %zu numbers", f->count);
    f->last = f->runs + f->count;
    f->uses = f->last + f->count;
    return ASHLAR_OK;
}

ashlar_status ashlar__period_find(const size_t *numbers, size_t count, size_t prefix,
                                  ashlar_period *out) {
    ashlar_period period = {0};
    if (count < 2 * RUN) {
        *out = period;
        return ASHLAR_OK;
    }
    finder f = {.count = count, .prefix = prefix, .length = count - RUN + 1};
    ashlar_status status = reserve(&f);
    if (status == ASHLAR_OK) {
        memcpy(f.runs, numbers, count * sizeof *numbers);
        status = find(&f, &period);
    }
    ashlar__host_free(f.runs);
    ashlar__host_free(f.wide);
    ashlar__host_free(f.votes);
    if (status == ASHLAR_OK) {
        *out = period;
    }
    return status;
}

void ashlar__period_finish(ashlar_period *period) {
    ashlar__host_free(period->links);
    *period = (ashlar_period){0};
}
