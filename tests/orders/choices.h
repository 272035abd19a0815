/*
 * choices.h - a run as a list of choices, and the search through all such lists.
 *
 * A run asks choose() whenever it could go on in several ways, and must depend on nothing else.
 * choices_next() makes the list of the next run, depth first, until every list has been run.
 */
#ifndef ASHLAR_CHOICES_H
#define ASHLAR_CHOICES_H

#include "tests/check.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { CHOICES_MAX = 4096 };

typedef struct choices {
    uint16_t made[CHOICES_MAX], ways[CHOICES_MAX]; /* [i]: way ways[i] > made[i] was taken */
    size_t count;                                  /* made in this run so far */
    size_t planned;                                /* of them, those that repeat an earlier run */
    bool is_lost; /* a run asked for more than CHOICES_MAX, or did not repeat what came before */
} choices;

static choices run_choices;

static inline size_t choose(size_t ways) {
    choices *c = &run_choices;
    if (c->count == CHOICES_MAX || (c->count < c->planned && c->made[c->count] >= ways)) {
        c->is_lost = true;
        return 0;
    }
    const bool repeats = c->count < c->planned;
    c->is_lost |= repeats && c->ways[c->count] != 0 && c->ways[c->count] != ways;
    c->made[c->count] = repeats ? c->made[c->count] : 0;
    c->ways[c->count] = (uint16_t)ways;
    return c->made[c->count++];
}

/* False: all have been run. */
static inline bool choices_next(void) {
    choices *c = &run_choices;
    while (c->count > 0 && c->made[c->count - 1] + 1 == c->ways[c->count - 1]) {
        c->count--;
    }
    if (c->count == 0) {
        return false;
    }
    c->made[c->count - 1]++;
    c->planned = c->count;
    c->count = 0;
    return true;
}

static inline void choices_restart(void) {
    run_choices.count = run_choices.planned = 0;
    run_choices.is_lost = false;
}

/* Choices as text: numbers with commas between them, without the last zeros. */
static inline void choices_read(const char *text) {
    choices_restart();
    for (char *end; *text != '\0' && run_choices.planned < CHOICES_MAX; text = end) {
        run_choices.ways[run_choices.planned] = 0; /* not known */
        run_choices.made[run_choices.planned++] = (uint16_t)strtoul(text, &end, 10);
        end += *end == ',';
    }
}

static inline void choices_print(void) {
    size_t count = run_choices.count;
    while (count > 0 && run_choices.made[count - 1] == 0) {
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        printf("%s%u", i > 0 ? "," : "", run_choices.made[i]);
    }
}

/* ---- the command line, and what is printed at the end ---- */

static struct orders_options {
    bool is_all;       /* --all: the whole search */
    double seconds;    /* --seconds N: for what is drawn; 0: a fixed number */
    uint64_t seed;     /* --seed S */
    const char *one;   /* --program TEXT: this one only, ... */
    const char *scene; /* --scene NAME: ... there, ... */
    const char *order; /* --order LIST: ... and in this order only; NULL: in every one */
} orders_options = {.seed = 1};

static uint64_t program_count, order_count;

static inline bool orders_read_options(int argc, char **argv) {
    struct orders_options *o = &orders_options;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        const char **text = strcmp(argv[i], "--program") == 0 ? &o->one
                            : strcmp(argv[i], "--scene") == 0 ? &o->scene
                            : strcmp(argv[i], "--order") == 0 ? &o->order
                                                              : NULL;
        if (strcmp(argv[i], "--all") == 0) {
            o->is_all = true;
            continue;
        }
        if (value != NULL && text != NULL) {
            *text = value;
        } else if (value != NULL && strcmp(argv[i], "--seconds") == 0) {
            o->seconds = strtod(value, NULL);
        } else if (value != NULL && strcmp(argv[i], "--seed") == 0) {
            o->seed = strtoull(value, NULL, 10);
        } else {
            printf("usage: %s [--all] [--seconds N] [--seed S]\n"
                   "       [--program TEXT [--scene NAME] [--order LIST]]\n",
                   argv[0]);
            return false;
        }
        i++;
    }
    return true;
}

static inline double cpu_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline int orders_report(void) {
    const int status = check_report();
    printf("# orders: %llu programs, %llu orders, seed %llu; %.1f s of CPU\n",
           (unsigned long long)program_count, (unsigned long long)order_count,
           (unsigned long long)orders_options.seed, cpu_seconds());
    return status;
}

#endif /* ASHLAR_CHOICES_H */
