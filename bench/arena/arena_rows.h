/*
 * arena_rows.h - the results of `ashlar-bench arena`: counting, table, JSON, targets (internal).
 */
#ifndef ASHLAR_ARENA_ROWS_H
#define ASHLAR_ARENA_ROWS_H

#include <stdio.h>

#include <ashlar/status.h>

/*
 * Every operation, and how its bytes are counted. `accesses` are those of 4 bytes for each element,
 * each read and each write one of them, without padding, tables and copies on the way; `arrays` is
 * how many arrays of the elements they go to, which is the memory that a copy beside it uses.
 *
 *   adamw        reads the gradients for the norm; reads p, g, m, v and writes p, m, v
 *   zero         writes the gradients
 *   norm         reads the gradients
 *   flatten      reads scattered parameters, writes the arena's
 *   replicate    reads parameters, writes another copy of them on the same device
 *   checkpoint   reads parameters, writes them to a file, durably
 *
 * A copy beside it is counted the same way, as 2 accesses. It may well be slower than adamw: lines
 * that a copy writes are first read unasked, and adamw reads its own anyway.
 *
 * Name, text, accesses, arrays, whether the workers share it (else it is one thread's).
 */
#define ASHLAR_ARENA_OPERATION_MAP(X)      \
    X(ADAMW, "adamw", 8, 4, true)          \
    X(ZERO, "zero", 1, 1, false)           \
    X(NORM, "norm", 1, 1, true)            \
    X(FLATTEN, "flatten", 2, 2, false)     \
    X(REPLICATE, "replicate", 2, 2, false) \
    X(CHECKPOINT, "checkpoint", 2, 2, false)

#define ASHLAR_ARENA_OPERATION_ENUM(name, text, accesses, arrays, shared) \
    ASHLAR_ARENA_OPERATION_##name,
typedef enum ashlar_arena_operation {
    ASHLAR_ARENA_OPERATION_MAP(ASHLAR_ARENA_OPERATION_ENUM) ASHLAR_ARENA_OPERATION_COUNT
} ashlar_arena_operation;

const char *ashlar__arena_operation_name(ashlar_arena_operation operation);

typedef struct ashlar_arena_row {
    const char *case_name;
    ashlar_arena_operation operation;
    size_t subject;            /* 0: arena, 1: per_tensor, 2: lists_of_36 */
    double ns;                 /* median of the rounds, of one operation */
    double bytes;              /* that it reads and writes, counted as above */
    double copy_bytes_per_s;   /* of a plain loop in the same rounds; reads and writes count */
    double memcpy_bytes_per_s; /* the same of memcpy */
} ashlar_arena_row;

/* Starts as zeros. */
typedef struct ashlar_arena_rows {
    ashlar_arena_row *items;
    size_t count, capacity;
} ashlar_arena_rows;

/* Errors: ASHLAR_EHOSTMEM. The row's texts are not copied. */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_rows_add(ashlar_arena_rows *rows,
                                                       const ashlar_arena_row *row);
void ashlar__arena_rows_finish(ashlar_arena_rows *rows);

/* The table's head, and its rows from `first` on with their ratios to the copies and the arena. */
void ashlar__arena_rows_print_head(FILE *out);
void ashlar__arena_rows_print(FILE *out, const ashlar_arena_rows *rows, size_t first);

/* Each target that the rows can tell of, and whether it is met. */
void ashlar__arena_rows_print_targets(FILE *out, const ashlar_arena_rows *rows);

/*
 * Write all rows as one JSON array, whole or not at all: {case, operation, subject, ns,
 * bytes_per_s, copy_bytes_per_s, over_arena}; the last is the ratio of ns to the arena's. Errors:
 * ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_rows_write(const char *path,
                                                         const ashlar_arena_rows *rows);

#endif /* ASHLAR_ARENA_ROWS_H */
