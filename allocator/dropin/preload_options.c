/* preload_options.c - the words of ASHLAR_PRELOAD, and the report at the end of the process. */
#include "allocator/dropin/preload.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/parse.h"
#include "allocator/dropin/devices.h"

enum { LINE_BYTES = ASHLAR_DETAIL_BYTES + 256 };

void ashlar__preload_say(const char *format, ...) {
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ASHLAR_CHECK2(length > 0);
    const size_t bytes = length < LINE_BYTES ? (size_t)length : sizeof line;
    line[sizeof line - 1] = '\n'; /* of a line that was cut */
    const ssize_t written = write(STDERR_FILENO, line, bytes);
    (void)written; /* nobody to tell */
}

/* ---- options ---- */

static ashlar_preload_options options;

/* Read "trace=FILE". */
static bool read_trace(ashlar_piece word) {
    const ashlar_piece key = ashlar__piece_cut(&word, '=');
    if (!ashlar__piece_is(key, "trace") || word.bytes == 0 || word.bytes >= sizeof options.trace) {
        return false;
    }
    memcpy(options.trace, word.text, word.bytes);
    options.trace[word.bytes] = '\0';
    return true;
}

static void read_word(ashlar_piece word) {
    char shown[ASHLAR_SHOWN_BYTES];
    if (ashlar__piece_is(word, "off")) {
        options.is_off = true;
    } else if (ashlar__piece_is(word, "report")) {
        options.reports = true;
    } else if (ashlar__piece_is(word, "ipc")) {
        options.leaves_plain = true;
    } else if (ashlar__piece_is(word, "unsafe")) {
        options.is_unsafe = true;
    } else if (!ashlar__piece_is(word, "on") && !read_trace(word)) {
        options.is_off = true;
        ashlar__preload_say("ashlar-preload: ASHLAR_PRELOAD: \"%s\" is none of on, off, report, "
                            "trace=FILE, ipc, unsafe; taken for off\n",
                            ashlar__piece_show(word, shown));
    }
}

static void read_options(void) {
    const char *text = secure_getenv("ASHLAR_PRELOAD");
    ashlar_piece rest = ashlar__piece_of(text == NULL ? "" : text);
    while (rest.bytes > 0) {
        read_word(ashlar__piece_cut(&rest, ','));
    }
    if (options.trace[0] != '\0') {
        ashlar__dropin_on_made(ashlar__preload_trace_begin);
    }
}

const ashlar_preload_options *ashlar__preload_options_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_options);
    return &options;
}

/* ---- the report ---- */

typedef struct totals {
    uint64_t allocations, mapped, live_peak_bytes, reserved_peak_bytes;
} totals;

static _Atomic uint64_t passed;
static totals given_up; /* of devices that were reset and contexts that ended */

void ashlar__preload_note_passed(void) {
    atomic_fetch_add_explicit(&passed, 1, memory_order_relaxed);
}

void ashlar__preload_note_refusal(void) {
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    if (options.reports && !atomic_flag_test_and_set(&is_told)) {
        ashlar__preload_say("ashlar-preload: left to the driver: %s\n", ashlar_error_detail());
    }
}

void ashlar__preload_note_unexported(void) {
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    if (options.reports && !atomic_flag_test_and_set(&is_told)) {
        ashlar__preload_say("ashlar-preload: cuIpcGetMemHandle cannot export this memory; "
                            "ASHLAR_PRELOAD=ipc leaves cudaMalloc() to the driver, which can\n");
    }
}

static void add(totals *sum, const ashlar_frees *frees) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(frees->allocator, &stats);
    sum->allocations += stats.alloc_count;
    sum->mapped += stats.served_mapped;
    sum->live_peak_bytes += stats.live_peak_bytes;
    sum->reserved_peak_bytes += stats.reserved_peak_bytes;
}

void ashlar__preload_note_end(const ashlar_frees *frees) {
    add(&given_up, frees);
    ashlar__preload_trace_end(frees->allocator);
}

static void print_report(void) {
    totals sum = given_up;
    int place = 0;
    for (const ashlar_frees *f = ashlar__frees_each(&place); f != NULL;
         f = ashlar__frees_each(&place)) {
        add(&sum, f);
    }
    ashlar__preload_say("ashlar-preload: %llu allocations, %llu of them took memory from the "
                        "driver; at most %llu bytes live, %llu reserved; %llu went to the driver\n",
                        (unsigned long long)sum.allocations, (unsigned long long)sum.mapped,
                        (unsigned long long)sum.live_peak_bytes,
                        (unsigned long long)sum.reserved_peak_bytes,
                        (unsigned long long)atomic_load(&passed));
}

/* Runs when the process ends, after its own handlers. No driver call: the driver may be gone. */
__attribute__((destructor)) static void end_process(void) {
    int place = 0;
    if (options.is_off || ashlar__dropin_is_forked()) {
        return;
    }
    for (const ashlar_frees *f = ashlar__frees_each(&place); f != NULL;
         f = ashlar__frees_each(&place)) {
        ashlar__preload_trace_snapshot(f->allocator);
    }
    if (options.reports) {
        print_report();
    }
}
