/*
 * config.h - the options of an allocator: plain fields, and one line of text that sets them.
 *
 * A program fills the fields; whoever runs the program can change them in the environment:
 *     ASHLAR_CONF=limit=20GiB,seal=error
 *
 * A program with more rights than its caller (setuid) ignores every variable of ashlar's.
 */
#ifndef ASHLAR_CONFIG_H
#define ASHLAR_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* What happens when memory is taken from the driver after ashlar_allocator_seal(). */
typedef enum ashlar_seal_policy {
    ASHLAR_SEAL_COUNT, /* counted */
    ASHLAR_SEAL_WARN,  /* counted and warned about */
    ASHLAR_SEAL_ERROR, /* refused: the allocation fails */
} ashlar_seal_policy;

/*
 * How stray accesses are found. This is for debugging: there are no thread caches, and most calls
 * make driver calls. Blocks of a captured graph's pool are not guarded before
 * ashlar_graph_pool_release(). A free that would have to queue work on a stream under capture fails
 * with ASHLAR_EINVAL, as does, with FILL, a request for a captured stream that has no pool.
 *
 * FILL   Behind every block lies a red zone of 512 to 1023 bytes, filled when the block is taken
 *        and compared when it is freed. A freed block is filled with 0xFF (no number in any
 *        floating-point type), kept from reuse for a while (at most 64 blocks and 1/16 of the
 *        device's memory; larger blocks are not kept), and compared before it is reused. Fills and
 *        comparisons are queued in stream order, and the host does not wait for them. Once damage
 *        is found, the next ashlar_free(), ashlar_free_on() or ashlar_allocator_check() returns
 *        ASHLAR_EDAMAGE, once for each finding, and the callback of ashlar_allocator_set_report()
 *        is called. ashlar_allocator_destroy() makes all remaining comparisons, also of the red
 *        zones of live blocks, and only calls the callback.
 *        Cost: a fill and an event at ashlar_alloc(); at ashlar_free() a copy of the red zone to
 *        the host, a host function and a fill; for a block that leaves the quarantine, a copy and a
 *        host function for each 256 KiB. The stream stops during host functions. Each stream takes
 *        256 KiB of page-locked memory. A block for a per-thread default stream is compared on the
 *        legacy default stream, which waits for all blocking streams.
 */
typedef enum ashlar_guard {
    ASHLAR_GUARD_OFF,
    ASHLAR_GUARD_FILL, /* freed memory is filled, red zones are compared at free */
} ashlar_guard;

/*
 * zero=on: no owner of a block can read data that an earlier owner left in it, whether that was
 * another part of the program, another tenant of its process or, in memory fresh from the driver,
 * another process. Each allocation queues a fill of the whole block with zeros on its stream,
 * wherever the block comes from: thread caches, plans, graph pools (the graph then contains the
 * fill, and each launch clears the block), new memory. A block for all streams, as cudaMalloc()
 * gives it, is cleared before the call returns. Not cleared: freed memory that nobody gets, and
 * page-locked host memory (ashlar_allocator_create_host()).
 * Cost: every call takes the lock, as with a trace; a driver call and a fill at each allocation, in
 * steps on their plans too.
 */

/*
 * nvtx=on: NVIDIA's tools see blocks rather than the memory that they lie in. Each piece of memory
 * taken from the driver becomes a heap of NVTX's memory extension. Each live block becomes a region
 * of that heap, as large as was requested and named after its tag (ashlar_tag_name()); a block over
 * several pieces is a region in each. compute-sanitizer then reports an access between blocks, or
 * to a freed one. A free is reported to the tool when it is called, so launch kernels one at a time
 * (CUDA_LAUNCH_BLOCKING=1): otherwise work queued before the free looks like a use after it. Not
 * for page-locked memory, nor with a guard, whose own accesses would be reported: ASHLAR_EINVAL. A
 * build without NVTX's headers: ASHLAR_ENOTSUP. Not yet run under a tool of NVIDIA's. Cost: every
 * call takes the lock, as with a trace; a call or two of the tool's for each block.
 */

/*
 * share=on: memory comes in segments that NCCL can register (attach in ashlar/reduce.h): each is
 * one handle of the driver's that was made to be shared, by a file descriptor and, where the device
 * and its driver have them, by a fabric handle and with network cards (GPUDirect RDMA). Of these
 * two, what the driver refuses is not asked for again. A block lies in one segment
 * (ashlar_allocator_segment()). New memory that is taken for a block above 16 MiB, or for a
 * multiple of 2 MiB (as the regions of an arena then are), is a segment for that block alone. Not
 * with vmm=off: ASHLAR_EINVAL; on a device without virtual memory management or file descriptors:
 * ASHLAR_ENOTSUP.
 * Cost: memory of freed blocks cannot be mapped elsewhere in pieces. So it is best to make one
 * allocator with share=on for an arena and other long-lived blocks, and another one without it for
 * the rest: what one leaves idle, the other gets. Drivers of series 525 have been slow with such
 * handles (PyTorch pull request 130890).
 */

#define ASHLAR_CONFIG_BYTES_MIN ((uint64_t)2 << 20)  /* the least limit: one handle */
#define ASHLAR_CONFIG_BYTES_MAX ((uint64_t)64 << 40) /* the most that an option in bytes may be */
#define ASHLAR_CONFIG_EVENTS_MAX ((uint64_t)1 << 26)
#define ASHLAR_CACHE_NONE UINT64_MAX /* of cache_bytes: no thread caches */

/*
 * One row per option: type, field, key, kind, lowest, highest, default, words, description.
 *
 *   kind   BYTES     digits and a unit B, KiB, MiB, GiB or TiB; 0 needs no unit
 *          COUNT     digits
 *          FRACTION  a decimal number above the lowest, up to the highest
 *          CHOICE    one of the words; word i stands for value i
 *   words  CHOICE: the words; BYTES: the name of the default, which is 0 in the field. If this name
 *          is not "0", a 0 in the text is UINT64_MAX in the field, and means none
 *
 * In a field, 0 stands for the default.
 */
#define ASHLAR_CONFIG_MAP(X)                                                                      \
    X(uint64_t, limit_bytes, "limit", BYTES, ASHLAR_CONFIG_BYTES_MIN, ASHLAR_CONFIG_BYTES_MAX, 0, \
      "0", "most memory taken from the driver; 0: as much as the device has")                     \
    X(double, limit_fraction, "fraction", FRACTION, 0, 1, 1, NULL,                                \
      "the same as a part of the device's memory; the smaller of the two binds")                  \
    X(uint64_t, reserve_bytes, "reserve", BYTES, 0, ASHLAR_CONFIG_BYTES_MAX, 0, NULL,             \
      "memory taken when the allocator is made")                                                  \
    X(uint64_t, cache_bytes, "cache", BYTES, 0, ASHLAR_CONFIG_BYTES_MAX, 0, "auto",               \
      "most that one thread's cache holds; 0: no thread caches")                                  \
    X(uint64_t, trace_events, "trace", COUNT, 0, ASHLAR_CONFIG_EVENTS_MAX, 0, NULL,               \
      "how many events the trace holds; 0: no trace")                                             \
    X(ashlar_seal_policy, seal, "seal", CHOICE, 0, ASHLAR_SEAL_ERROR, ASHLAR_SEAL_COUNT,          \
      "count|warn|error", "what a driver allocation after sealing is")                            \
    X(ashlar_guard, guard, "guard", CHOICE, 0, ASHLAR_GUARD_FILL, ASHLAR_GUARD_OFF, "off|fill",   \
      "what is done to freed memory to find stray accesses")                                      \
    X(bool, without_virtual_memory, "vmm", CHOICE, 0, 1, false, "on|off",                         \
      "virtual memory management where there is any; off: plain segments")                        \
    X(bool, report_leaks, "leaks", CHOICE, 0, 1, false, "off|on",                                 \
      "a report of the live blocks when the allocator, or the process, ends")                     \
    X(bool, zero_blocks, "zero", CHOICE, 0, 1, false, "off|on",                                   \
      "clear each block, in its stream's order, before it is handed out")                         \
    X(uint64_t, handle_bytes, "handle", BYTES, UINT64_C(2) << 20, UINT64_C(1) << 30,              \
      UINT64_C(2) << 20, NULL, "memory that is mapped and moved as one; rounded up to 2^n")       \
    X(bool, tells_nvtx, "nvtx", CHOICE, 0, 1, false, "off|on",                                    \
      "tell compute-sanitizer and others that listen to NVTX of each block")                      \
    X(bool, shares_memory, "share", CHOICE, 0, 1, false, "off|on",                                \
      "memory that other processes, NCCL and network cards can use")

/* One field for each row: uint64_t limit_bytes; and so on. */
#define ASHLAR_CONFIG_FIELD(type, field, key, kind, low, high, initial, words, text) type field;
typedef struct ashlar_config {
    ASHLAR_CONFIG_MAP(ASHLAR_CONFIG_FIELD)
} ashlar_config;
#undef ASHLAR_CONFIG_FIELD

#define ASHLAR_CONFIG_ONE(...) +1
enum { ASHLAR_CONFIG_COUNT = ASHLAR_CONFIG_MAP(ASHLAR_CONFIG_ONE) }; /* number of options */
#undef ASHLAR_CONFIG_ONE

/* Set all options to their defaults. Threads: any. */
ASHLAR_API void ashlar_config_init(ashlar_config *out);

/*
 * Set the options that `text` names, as in "key=value,key=value". Options that it does not name
 * keep their values.
 *
 * source   where the text comes from, for messages; not NULL
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (an unknown key, a key given twice, a value outside its range; the
 *          detail names source, key, value and the allowed values). *config is then unchanged.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_config_parse(ashlar_config *config,
                                                               const char *text,
                                                               const char *source);

/*
 * Do the same with the text of ASHLAR_CONF in the environment, if that is set.
 *
 * Threads: any, while no thread changes the environment. Errors: as for ashlar_config_parse().
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_config_read_env(ashlar_config *config);

/*
 * Check that each field is 0 or in its range, after a program has filled in the fields.
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (the detail names the field, its value and the allowed values).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_config_check(const ashlar_config *config);

/*
 * Write all options as one line, which ashlar_config_parse() reads back as the same options.
 *
 * buffer   has room for `bytes` bytes; may be NULL if `bytes` is 0: then only *needed is written
 * needed   gets the size of the line in bytes, with its terminator; may be NULL
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (a field outside its range; the buffer is too small: the detail gives the
 *          bytes needed).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_config_format(const ashlar_config *config,
                                                                char *buffer, size_t bytes,
                                                                size_t *needed);

/* One option, for a page of help. */
typedef struct ashlar_config_option {
    const char *key;   /* static */
    const char *text;  /* static; a description in words */
    char initial[32];  /* the default, written as a value in ASHLAR_CONF */
    char allowed[128]; /* the allowed values in words: "0 to 64TiB, with a unit ..." */
} ashlar_config_option;

/*
 * Describe option i.
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (i is not below ASHLAR_CONFIG_COUNT).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_config_describe(size_t i,
                                                                  ashlar_config_option *out);

ASHLAR_END_DECLS

#endif /* ASHLAR_CONFIG_H */
