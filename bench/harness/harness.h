/* harness.h - what every benchmark is made of: threads, rounds, rows, the document of a run
 * (internal). */
#ifndef ASHLAR_HARNESS_H
#define ASHLAR_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <ashlar/device.h>
#include <ashlar/base.h>

#include "allocator/base/json.h"
#include "rnn/programs/options.h"

/*
 * Threads that live as long as a measurement and start their work together.
 *
 * The caller's thread waits while they work, so that even a measurement on one thread runs in a
 * process with two. In a process with a single thread glibc takes faster paths without atomic
 * operations, which a CUDA process, always multi-threaded, never gets.
 */

typedef struct ashlar_thread_team ashlar_thread_team;

/* The work of thread `thread`, numbered from 0. */
typedef ashlar_status (*ashlar_thread_team_work)(void *arg, size_t thread);

/*
 * Start `threads` >= 1 threads, which wait for work.
 *
 * Ownership: the caller ends *out with ashlar__thread_team_destroy().
 * Errors:    ASHLAR_EHOSTMEM (no host memory, or the system starts no more threads).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__thread_team_create(size_t threads,
                                                           ashlar_thread_team **out);
void ashlar__thread_team_destroy(ashlar_thread_team *team); /* NULL is allowed */

/*
 * Run work(arg, i) on every thread i at once, and wait until all have returned.
 *
 * wall_ns   from the start of the first thread to the end of the last one
 * Threads:  one caller at a time.
 * Errors:   the failure of the lowest-numbered thread that failed, with its detail; *wall_ns is
 *           unchanged then.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__thread_team_run(ashlar_thread_team *team,
                                                        ashlar_thread_team_work work, void *arg,
                                                        double *wall_ns);

/*
 * Rounds in which all subjects (what is measured, such as allocators) take turns, and medians.
 */

enum { ASHLAR_ROUNDS_MAX = 101, ASHLAR_ROUNDS_FIGURES = 5, ASHLAR_ROUNDS_SUBJECTS = 32 };

typedef struct ashlar_rounds {
    size_t most, least; /* limits of the number of rounds, 1 .. ASHLAR_ROUNDS_MAX */
    double while_s;     /* seconds to go on for, within these limits */
    double round_s;     /* seconds of a subject's turn, which repeats a shorter operation */
    bool is_smoke;      /* one round, cold and without repeats */
    size_t slow_rounds; /* how many rounds a very slow subject takes part in; 0: all */
    /* Run a subject's operation `repeats` times. figures: the measured figures to keep; the first
     * one is seconds per operation. */
    ashlar_status (*run)(void *context, size_t subject, size_t repeats,
                         double figures[static ASHLAR_ROUNDS_FIGURES]);
    void *context; /* the first argument of `run` */
} ashlar_rounds;

/* The results of one subject's turns. */
typedef struct ashlar_turns {
    size_t repeats;                                           /* operations in each turn */
    size_t rounds;                                            /* rounds that it took part in */
    double figures[ASHLAR_ROUNDS_FIGURES][ASHLAR_ROUNDS_MAX]; /* each figure of each round */
} ashlar_turns;

/*
 * Run `count` subjects, at most ASHLAR_ROUNDS_SUBJECTS, in rounds. Each round has an order of its
 * own: a subject finds the processor's caches as the one before it left them, perhaps full of that
 * one's writes, so no subject may always follow the same one. Before the rounds each subject runs
 * twice, cold and warm, unless it is a smoke run. The figures of these runs are not kept, but the
 * warm one tells how many repeats fill a turn.
 *
 * turns   [count], out
 *
 * Errors: those of `run`.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rounds_run(const ashlar_rounds *rounds, size_t count,
                                                   ashlar_turns *turns);

/* The shortest time between two readings of the clock. */
double ashlar__clock_cost_ns(void);

/* The median of `count` > 0 numbers: the middle one, or the mean of the middle two. Sorts them. */
double ashlar__median(double *numbers, size_t count);

/* The median of a figure over a subject's rounds. Sorts them. */
double ashlar__turns_median(ashlar_turns *turns, size_t figure);

/* A figure's spread: the middle half of its rounds lies between *low and *high. Sorts them. */
void ashlar__turns_spread(ashlar_turns *turns, size_t figure, double *low, double *high);

/*
 * Rows of results. A form describes their columns. Rows are printed as a table, written as JSON,
 * and compared with targets.
 */

enum { ASHLAR_ROWS_COLUMNS_MAX = 24 };

/* The contents of a column. A NaN means "not known": "-" in the table, null in the JSON. */
typedef enum ashlar_rows_kind {
    ASHLAR_ROWS_TEXT,
    ASHLAR_ROWS_NUMBER,
    ASHLAR_ROWS_OPTIONAL, /* a number that the JSON leaves out if it is not known */
    ASHLAR_ROWS_BOOL,     /* optional, too; in the JSON, 0 is false and any other number true */
} ashlar_rows_kind;

typedef struct ashlar_rows_column {
    const char *key;     /* the member's name in the JSON; NULL: it has none */
    const char *heading; /* the heading in the table; NULL: it has no such column */
    ashlar_rows_kind kind;
    int width, digits; /* of numbers in the table: characters; digits after the point */
    double scale;      /* the table's number / the JSON's; 0: they are the same */
} ashlar_rows_column;

/* A bound on a subject's figure, or on its ratio to the same figure of another subject. */
typedef struct ashlar_rows_target {
    const char *what;
    const char *subject; /* NULL: any */
    size_t column;
    double limit;
    bool is_at_least;     /* true: `limit` is the least; false: the most */
    const char *base;     /* the other subject; NULL: compare the figure itself */
    size_t threads;       /* the row's number of threads; 0: any */
    const char *names[2]; /* the row's first two texts must be these; NULL: any */
    const char *except;   /* neither of the two may be this; NULL: no exception */
} ashlar_rows_target;

/*
 * The columns before `subject` are a row's label; a number there is a number of threads. Rows with
 * the same label are compared with each other.
 */
typedef struct ashlar_rows_form {
    const ashlar_rows_column *columns;
    size_t column_count; /* 1 .. ASHLAR_ROWS_COLUMNS_MAX */
    size_t subject;      /* the column with a row's subject */
    const ashlar_rows_target *targets;
    size_t target_count;
} ashlar_rows_form;

typedef union ashlar_rows_cell {
    const char *text; /* not copied: it must outlive the rows */
    double number;
} ashlar_rows_cell;

typedef struct ashlar_row {
    ashlar_rows_cell cells[ASHLAR_ROWS_COLUMNS_MAX]; /* by column */
} ashlar_row;

/* Zeros, but for `form`, mean no rows. The caller ends the struct with ashlar__rows_finish(). */
typedef struct ashlar_rows {
    const ashlar_rows_form *form;
    ashlar_row *items;
    size_t count, capacity;
    void (*on_print)(void *context); /* called when rows are complete and printed; may be NULL */
    void *context;
} ashlar_rows;

/* Append a copy of the row. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rows_add(ashlar_rows *rows, const ashlar_row *row);
void ashlar__rows_finish(ashlar_rows *rows);

/* The row of subject `subject` that has the label of `like`, but on `threads` threads (0: the same
 * number). NULL: there is none. */
const ashlar_row *ashlar__rows_find(const ashlar_rows *rows, const ashlar_row *like,
                                    const char *subject, size_t threads);

/* In rows from `first` on, set `column` to the ratio of column `of` to that of subject `base`. */
void ashlar__rows_fill_ratios(ashlar_rows *rows, size_t first, size_t column, size_t of,
                              const char *base);

/* Print the table's head, its rows from index `first` on, or each target that can be judged. */
void ashlar__rows_print_head(FILE *out, const ashlar_rows *rows);
void ashlar__rows_print(FILE *out, const ashlar_rows *rows, size_t first);
void ashlar__rows_print_targets(FILE *out, const ashlar_rows *rows);

/* Put one row's members into the writer's open object, or all rows as an array of objects. */
void ashlar__rows_put_members(ashlar_json_writer *w, const ashlar_rows_form *form,
                              const ashlar_row *row);
void ashlar__rows_put(ashlar_json_writer *w, const ashlar_rows *rows);

/*
 * The description of a benchmark of ashlar-bench, the request to it, and its run.
 *
 * To add a benchmark, define an ashlar_benchmark, and add a row to the table of
 * bench/programs/main_bench.c. bench/rnn/bench_rnn.c is an example.
 */

/* The options of a run. Zeros ask for everything. */
typedef struct ashlar_bench_request {
    bool is_smoke;                /* a few short rounds, only to see that the benchmark runs */
    size_t threads;               /* 0: the benchmark's own choice */
    size_t pairs;                 /* pairs of malloc and free to run untimed; 0: measure */
    ashlar_option_list workloads; /* each NAME, or NAME/VARIANT; none: all */
    ashlar_option_list subjects;  /* none: the usual ones */
    ashlar_option_list peers;     /* shared objects that are further subjects */
    FILE *out;                    /* receives all printed text */
    const char *device, *json;    /* device NULL: the default one; json NULL: no file */
} ashlar_bench_request;

/* A workload's names. */
typedef struct ashlar_bench_name {
    const char *name, *variant; /* variant: "" or NULL if there is none */
} ashlar_bench_name;

typedef struct ashlar_benchmark {
    const char *name;  /* the word for it on the command line of ashlar-bench */
    const char *takes; /* the options that it accepts, as "--smoke, --json"; NULL: all */
    const ashlar_rows_form *form;
    const ashlar_rows_form *more; /* form of a second array in the JSON; NULL: none */
    const char *more_key;
    /* The i-th workload; false: there are fewer. The i-th subject; NULL: there are fewer. */
    bool (*workload)(size_t i, ashlar_bench_name *out);
    const char *(*subject)(size_t i);
    /* Measure the requested workloads, print each row as soon as it is known, and add it. */
    ashlar_status (*run)(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more);
    /* Puts members in front of "rows"; may be NULL. */
    void (*put_head)(ashlar_json_writer *w);
} ashlar_benchmark;

/* Whether a list of names asks for `name`. An empty list asks for all. */
bool ashlar__bench_wants(const ashlar_option_list *list, ashlar_bench_name name);

/* Check the names in a request. Errors: ASHLAR_EINVAL (no such workload or subject; the detail
 * lists the valid names). */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_check(const ashlar_benchmark *benchmark,
                                                        const ashlar_bench_request *request);

/*
 * Run a benchmark on the requested device, print its targets, and write the JSON. A file is written
 * anew whenever rows are complete, so that a run that fails or is ended leaves those; if none were,
 * it is unchanged.
 *
 * Errors: those of its `run`, ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__benchmark_run(const ashlar_benchmark *benchmark,
                                                      const ashlar_bench_request *request);

/* machine.json, beside the raw results: the machine and the versions that were measured. */

enum { ASHLAR_MACHINE_TEXT_BYTES = 256 };

/* Another library that is measured, and the version that this build uses. */
typedef struct ashlar_machine_part {
    const char *name;
    const char *version;
} ashlar_machine_part;

typedef struct ashlar_machine_config {
    const char *commit; /* NULL: not known, and left out */
    bool is_smoke;
    const ashlar_machine_part *parts;
    size_t part_count;
} ashlar_machine_config;

/*
 * Write {date, commit, smoke, processor, cores, memory_gib, system, compiler, glibc, device,
 * device_gib, driver, products, and each part's version under its name}. Unknown values are left
 * out. The machine's name and file paths are left out on purpose, since results are published.
 *
 * Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__machine_write(const ashlar_machine_config *config,
                                                      const ashlar_device *device,
                                                      const char *path);

/* The processor's name from /proc/cpuinfo, or "unknown". */
void ashlar__machine_processor(char name[static ASHLAR_MACHINE_TEXT_BYTES]);

/* Bytes of this process's memory that belongs to no file, after malloc() has given back its free
 * memory. A software device's memory belongs to a file. NaN: not known. */
double ashlar__machine_host_bytes(void);

#endif /* ASHLAR_HARNESS_H */
