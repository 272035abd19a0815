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

FUZZ_SEEDS(samples)

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    ashlar_rmm_log *log = NULL;
    const ashlar_status status = ashlar__rmm_log_parse("stone", (const char *)data, bytes, &log);
    if (status == ASHLAR_OK) {
        FUZZ_CHECK(log->event_count > 0);
        check_blocks(log);
        check_order(log);
    } else {
        FUZZ_CHECK(status == ASHLAR_EFORMAT && log == NULL);
        FUZZ_CHECK(strncmp(ashlar_error_detail(), "stone:", 6) == 0);
    }
    ashlar__rmm_log_free(log);
    return 0;
}
