/* fuzz_rmm_csv.c - any bytes as a log of RMM, against what rmm_csv.h promises of its events. */
#include "tests/fuzz/fuzz.h"

#include "bench/replay/replay.h"

const char fuzz_claim[] = "every_log_is_refused_or_its_events_keep_their_invariants";

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static const char *const samples[] = {
    HEADER "1,0,allocate,0x10,5,0\n1,0,free,0x10,5,0\n",
    HEADER "1,15:47:02.84,allocate,7f0a,256,0\n2,0,allocate,7f10,512,2\n1,0,free,7f0a,256,2\n",
    HEADER "0x7,0,allocate,(nil),0,(nil)\n7,0,allocate failure,0x0,99,1\n7,0,allocate,16,1,2\n",
    "\xef\xbb\xbf\n" HEADER "1,0,allocate,0x10,5,0",
    "\xef\xbb\xbfSize , Stream,Action,Pointer,More,Thread\r\n\r\n8,0x2,allocate,a0,,1\r\n",
    HEADER "1,0,allocate,18446744073709551615,18446744073709551615,18446744073709551615",
    HEADER "1,0,allocate,0x10,5,0\n1,0,allocate,0x10,5,0\n",
    HEADER "1,0,allocate,0x10,5,0\n1,0,free,0x10,5,0\n1,0,free,0x10,5,0\n",
    HEADER "1,0,free,0x10,5,0\n",
    HEADER "1,0,free,0x10,0,0\n1,0,free,(nil),5,0\n",
    HEADER,
    "Thread,Action,Pointer,Size\n",
};
enum { SAMPLE_COUNT = sizeof samples / sizeof samples[0] };

size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap) {
    const size_t bytes = i < SAMPLE_COUNT ? strlen(samples[i]) : 0;
    if (i >= SAMPLE_COUNT || bytes > cap) {
        return 0;
    }
    memcpy(out, samples[i], bytes);
    return bytes;
}

/* ---- what is promised ---- */

/* Blocks are numbered by their allocations, and freed once. */
static void check_blocks(const ashlar_rmm_log *log) {
    bool *is_live = calloc(log->event_count, sizeof *is_live);
    size_t blocks = 0;
    FUZZ_CHECK(is_live != NULL);
    for (size_t i = 0; i < log->closed_count; i++) {
        const ashlar_rmm_event *e = &log->events[i];
        FUZZ_CHECK(i < log->event_count || e->action == ASHLAR_RMM_FREE);
        switch (e->action) {
        case ASHLAR_RMM_ALLOCATE:
            FUZZ_CHECK(e->block == blocks && e->bytes > 0);
            is_live[blocks++] = true;
            break;
        case ASHLAR_RMM_FREE:
            FUZZ_CHECK(e->block < blocks && is_live[e->block]);
            is_live[e->block] = false;
            break;
        case ASHLAR_RMM_STEP:
        case ASHLAR_RMM_NOTHING:
            break;
        }
    }
    FUZZ_CHECK(blocks == log->block_count);
    for (size_t i = 0; i < blocks; i++) {
        FUZZ_CHECK(!is_live[i]);
    }
    free(is_live);
}

/* Threads and streams are numbered in the order in which they come; stream 0 is always there. */
static void check_order(const ashlar_rmm_log *log) {
    size_t threads = 0, streams = 1, line = 1, nothings = 0;
    for (size_t i = 0; i < log->event_count; i++) {
        const ashlar_rmm_event *e = &log->events[i];
        FUZZ_CHECK(e->thread <= threads && e->stream <= streams && e->line > line);
        threads += e->thread == threads;
        streams += e->stream == streams;
        nothings += e->action == ASHLAR_RMM_NOTHING;
        line = e->line;
    }
    FUZZ_CHECK(threads == log->thread_count && streams == log->stream_count);
    FUZZ_CHECK(log->recorded_failures <= nothings);
}

static bool is_blank(const uint8_t *line, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

/*
 * The same log with one more column, which is ignored, and blank lines behind it.
 * *lines: how many are not blank.
 */
static char *widen(const uint8_t *data, size_t bytes, size_t *out_bytes, size_t *lines) {
    static const char more[] = ",x", behind[] = "\n \t\r\n\n";
    char *out = malloc(3 * bytes + sizeof more + sizeof behind);
    FUZZ_CHECK(out != NULL);
    const size_t mark_bytes = bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    size_t used = mark_bytes; /* the byte order mark is no part of its line */
    memcpy(out, data, mark_bytes);
    *lines = 0;
    for (size_t at = mark_bytes, end; at < bytes; at = end + 1) {
        const uint8_t *stop = memchr(data + at, '\n', bytes - at);
        end = stop == NULL ? bytes : (size_t)(stop - data);
        memcpy(out + used, data + at, end - at);
        used += end - at;
        if (!is_blank(data + at, end - at)) {
            memcpy(out + used, more, sizeof more - 1);
            used += sizeof more - 1;
            ++*lines;
        }
        if (stop != NULL) {
            out[used++] = '\n';
        }
    }
    memcpy(out + used, behind, sizeof behind - 1);
    *out_bytes = used + sizeof behind - 1;
    return out;
}

static void check_same(const ashlar_rmm_log *a, const ashlar_rmm_log *b) {
    FUZZ_CHECK(a->event_count == b->event_count && a->block_count == b->block_count);
    FUZZ_CHECK(a->thread_count == b->thread_count && a->stream_count == b->stream_count);
    FUZZ_CHECK(a->recorded_failures == b->recorded_failures);
    for (size_t i = 0; i < a->event_count; i++) {
        const ashlar_rmm_event *e = &a->events[i], *f = &b->events[i];
        FUZZ_CHECK(e->action == f->action && e->line == f->line && e->thread == f->thread);
        FUZZ_CHECK(e->stream == f->stream && e->block == f->block && e->bytes == f->bytes);
    }
}

/* ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    size_t wide_bytes, lines;
    ashlar_rmm_log *log = NULL, *wide_log = NULL;
    char *wide = widen(data, bytes, &wide_bytes, &lines);
    const ashlar_status status = ashlar__rmm_log_parse("stone", (const char *)data, bytes, &log);
    if (status == ASHLAR_OK) {
        FUZZ_CHECK(log->event_count > 0 && log->event_count == lines - 1);
        check_blocks(log);
        check_order(log);
    } else {
        FUZZ_CHECK(status == ASHLAR_EFORMAT && log == NULL);
        FUZZ_CHECK(strncmp(ashlar_error_detail(), "stone:", 6) == 0);
    }
    FUZZ_CHECK(ashlar__rmm_log_parse("stone", wide, wide_bytes, &wide_log) == status);
    if (status == ASHLAR_OK) {
        check_same(log, wide_log);
    }
    ashlar__rmm_log_free(wide_log);
    ashlar__rmm_log_free(log);
    free(wide);
    return 0;
}
