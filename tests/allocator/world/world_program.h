/*
 * world_program.h - programs of acts, and the settings that they run in: each act stands by itself,
 * so that any of them can be left out.
 *
 * An act whose turn comes when it would be illegal (its block is not live, its stream is captured)
 * does nothing. So every list of acts is a legal program.
 */
#ifndef ASHLAR_WORLD_PROGRAM_H
#define ASHLAR_WORLD_PROGRAM_H

#include "tests/allocator/core/cache_option.h"
#include "tests/allocator/world/world_shadow.h"

enum {
    PLACES = 2,  /* devices */
    STORES = 3,  /* allocators: 0 and 1 on the first device, 2 on the second */
    THREADS = 3, /* that take turns */
    LANE_LEGACY = 0,
    LANE_OF_THREAD = 1, /* each thread's own default stream */
    LANE_MADE = LANE_OF_THREAD + THREADS,
    LANES_DRAWN = LANE_MADE + 5, /* every other one not ordered with the legacy stream */
    LANE_FORK = LANES_DRAWN,     /* takes part in captures only; not ordered with it either */
    LANES,
    NO_LANE = -1,
    KEYS = 4,
    STEP_ITEMS = 20,
    FREE_SLOTS = 64,
    SLOTS = FREE_SLOTS + KEYS * STEP_ITEMS,
    ACTS_MAX = 4096,
};

/* name, share of what is drawn outside of steps that repeat, what performs it */
#define WORLD_ACT_MAP(X)                 \
    X(ALLOC, 340, act_alloc)             \
    X(FREE, 230, act_free)               \
    X(FREE_MANY, 10, act_free_many)      \
    X(USE, 40, act_use)                  \
    X(MOVE, 60, act_move)                \
    X(READ, 60, act_read)                \
    X(MARK, 20, act_mark)                \
    X(WAIT, 30, act_wait)                \
    X(WAIT_ALL, 6, act_wait_all)         \
    X(QUERY, 12, act_query)              \
    X(ORDER, 10, act_order)              \
    X(END_STREAM, 20, act_end_stream)    \
    X(STEP_BEGIN, 10, act_step_begin)    \
    X(STEP_END, 14, act_step_end)        \
    X(PLAN_BUILD, 3, act_plan_build)     \
    X(PLAN_DROP, 3, act_plan_drop)       \
    X(RECORD_NEXT, 5, act_record_next)   \
    X(PLAN_OPTIONS, 3, act_plan_options) \
    X(TRIM, 12, act_trim)                \
    X(LIMIT, 10, act_limit)              \
    X(RESERVE, 5, act_reserve)           \
    X(SEAL, 6, act_seal)                 \
    X(WATCH, 2, act_watch)               \
    X(GRAPH, 8, act_graph)               \
    X(GRAPH_LAUNCH, 10, act_launch)      \
    X(GRAPH_RELEASE, 5, act_release)     \
    X(CAPTURE, 6, act_capture)           \
    X(CAPTURE_FORK, 8, act_capture_fork) \
    X(CAPTURE_END, 20, act_capture_end)  \
    X(STUCK, 8, act_stuck)               \
    X(WARMUP, 4, act_warmup)             \
    X(WARM_STEP, 4, act_warm_step)       \
    X(ILLEGAL, 20, act_illegal)          \
    X(CHECK, 10, act_check)              \
    X(END_THREAD, 6, act_nothing)        \
    X(CLOSE, 0, act_close)

#define WORLD_ACT_ENUM(name, share, perform) ACT_##name,
typedef enum act_kind { WORLD_ACT_MAP(WORLD_ACT_ENUM) ACT_COUNT } act_kind;

static const unsigned act_shares[ACT_COUNT] = {
#define X(name, share, perform) share,
    WORLD_ACT_MAP(X)
#undef X
};

typedef struct act {
    uint8_t kind, thread, store;
    uint8_t lane, other; /* of the store's device */
    uint8_t key, tag;
    uint8_t slot;
    uint16_t choice;
    uint32_t bytes;
} act;

/* What is fixed for all of a program. */
typedef struct setting {
    bool is_adversarial; /* work may be late; else it runs at once */
    bool overlaps;       /* and it runs on other threads, not when the host waits */
    bool waits;          /* the device waits wherever it may */
    bool has_vmm, recycles, zeroes, reclaims;
    bool goes_abroad;     /* some calls are made in the other device's context */
    bool shares;          /* store 1 has memory that other processes can use */
    bool has_law;         /* of availability: memory that is free is served (world_available.h) */
    int guard;            /* ashlar_guard */
    int thread_count;     /* 1 .. THREADS */
    int store_count;      /* 1 .. STORES */
    uint32_t memory_mib;  /* of each device */
    uint32_t handle_mib;  /* of the allocators */
    uint64_t cache_bytes; /* of ashlar_config */
} setting;

typedef struct world_program {
    uint64_t seed;
    setting set;
    size_t count;
    act acts[ACTS_MAX];
} world_program;

/* What a caller may fix of every program. */
typedef struct world_wish {
    int mode;     /* -1: drawn, of the first two; 0: eager, 1: adversarial, 2: overlap */
    int threads;  /* 0: drawn */
    bool has_law; /* of availability */
} world_wish;

#endif /* ASHLAR_WORLD_PROGRAM_H */
