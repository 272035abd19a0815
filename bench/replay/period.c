/* period.c - finds the distance at which a sequence of numbers nearly repeats itself. */
#include "bench/replay/period.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "bench/replay/number_map.h"

#define NONE SIZE_MAX

enum {
    RUN = 4,      /* how many numbers are compared at once; a power of two */
    LEADERS = 8,  /* candidates for each length of runs */
    LENGTHS = 62, /* of runs: each twice the last, within size_t */
    DRIFT_MAX = 8,
    DRIFT_SHARE = 16,
    REPEATS_MIN = 16, /* of runs: less is no evidence */
};

/* Invariants: runs[i] < run_count;  length == numbers' count - RUN + 1. */
typedef struct finder {
    size_t count; /* of the numbers */
    size_t prefix;
    size_t length; /* of runs */
    size_t run_count;
    size_t *runs;  /* [count]: the number of the run of RUN numbers that begins there */
    size_t *wide;  /* [count]: the same for longer runs */
    size_t *last;  /* [count]: by run, where it was last */
    size_t *uses;  /* [count]: by run, how often it occurs */
    double *votes; /* [count]: by distance */
    double chance[DRIFT_MAX + 1];
    size_t lags[LENGTHS * LEADERS]; /* candidates; of runs of one length by falling votes */
    size_t lag_count;
} finder;

/* A candidate. Invariant: begin + period <= end where anything repeats. */
typedef struct trial {
    size_t begin, end; /* of the numbers: what repeats, the first period included */
    size_t repeats;    /* runs in it that do */
    double share;      /* of its runs but for the first period's */
    double score;
    bool counts;
} trial;

/* ---- runs ---- */

/* Make runs twice as long from pairs `width` apart; *run_count: how many different ones. */
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
            runs[i] = *value; /* what is read later lies behind */
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

/* chance[d]: that a run is among 2 d + 1 runs drawn at random. */
static void find_chances(finder *f) {
    count_uses(f, f->runs, f->length);
    for (size_t drift = 0; drift <= DRIFT_MAX; drift++) {
        for (size_t run = 0; run < f->run_count; run++) {
            const double share = (double)f->uses[run] / (double)f->length;
            f->chance[drift] += share * (1 - pow(1 - share, 2 * (double)drift + 1));
        }
    }
}

/* ---- candidates ---- */

static void add_lag(finder *f, size_t lag) {
    for (size_t i = 0; i < f->lag_count; i++) {
        if (f->lags[i] == lag) {
            return;
        }
    }
    f->lags[f->lag_count++] = lag;
}

/*
 * Add the distances at which runs in `wide` come again. Each different run has one vote, so that
 * the runs of a step's many layers do not outvote those that occur once in a step.
 */
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
        size_t best = 0; /* no distance: no votes */
        for (size_t lag = 1; lag < length; lag++) {
            best = f->votes[lag] > f->votes[best] ? lag : best;
        }
        if (best == 0) { /* nothing comes again */
            return;
        }
        add_lag(f, best);
        f->votes[best] = 0;
    }
}

static ashlar_status find_lags(finder *f) {
    size_t length = f->length, run_count = f->run_count;
    ashlar_status status = ASHLAR_OK;
    memcpy(f->wide, f->runs, length * sizeof *f->wide);
    for (size_t width = RUN; status == ASHLAR_OK; width *= 2) {
        add_leaders(f, length, run_count);
        if (width >= length) {
            break;
        }
        status = widen(f->wide, length, width, &run_count);
        length -= width;
    }
    return status;
}

/* ---- one candidate ---- */

/* The stretch with the largest surplus of repeats so far, and the one growing now. */
typedef struct stretch {
    size_t begin, end, repeats;
    size_t surplus, best_surplus;
    size_t grown_begin, grown_repeats, gap;
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

/* links is NULL, or as in ashlar_period. */
static stretch compare(const finder *f, size_t period, size_t *links) {
    const size_t drift = drift_of(period);
    stretch s = {.begin = period, .end = period, .grown_begin = period};
    size_t lag = period, seen = 0; /* runs before `seen` are in last[] */
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

/* Two standard deviations of the score: a change touches RUN runs. */
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
         i++) { /* of those within a drift of each other, the one with most votes */
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

/* ---- the whole ---- */

static ashlar_status find(finder *f, ashlar_period *p) {
    trial chosen = {0};
    ashlar_status status = ASHLAR_OK;
    size_t length = f->count;
    for (size_t width = 1; status == ASHLAR_OK && width < RUN; width *= 2) {
        status = widen(f->runs, length, width, &f->run_count);
        length -= width;
    }
    if (status == ASHLAR_OK) {
        find_chances(f);
        status = find_lags(f);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
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

static ashlar_status reserve(finder *f) {
    f->runs = ashlar__host_calloc(f->count, sizeof *f->runs);
    f->wide = ashlar__host_calloc(f->count, sizeof *f->wide);
    f->last = ashlar__host_calloc(f->count, sizeof *f->last);
    f->uses = ashlar__host_calloc(f->count, sizeof *f->uses);
    f->votes = ashlar__host_calloc(f->count, sizeof *f->votes);
    return f->runs != NULL && f->wide != NULL && f->last != NULL && f->uses != NULL &&
                   f->votes != NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to find the period of %zu numbers",
                              f->count);
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
    ashlar__host_free(f.last);
    ashlar__host_free(f.uses);
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
