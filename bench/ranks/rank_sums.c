/* rank_sums.c - the command `ashlar-bench sums`: times sums over all ranks in pieces of several
 * sizes. */
#include "bench/ranks/rank_sums.h"

#include <ashlar/allocator.h>
#include <ashlar/ranks.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/json.h"
#include "bench/harness/rounds.h"
#include "rnn/programs/options.h"
#include "rnn/programs/program.h"
#include "rnn/programs/ranks_start.h"

enum { ROUNDS = 15, SMOKE_ROUNDS = 1 };
static const size_t range_bytes = (size_t)16 << 20, smoke_bytes = (size_t)1 << 20;

static const struct piece {
    const char *name;
    size_t bytes;
} pieces[] = {{"64 KiB", (size_t)64 << 10},
              {"256 KiB", (size_t)256 << 10},
              {"1 MiB", (size_t)1 << 20},
              {"4 MiB", (size_t)4 << 20},
              {"16 MiB", (size_t)16 << 20}};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

const char *ashlar__rank_sums_bucket(size_t i) {
    return i < PIECES ? pieces[i].name : NULL;
}

typedef struct sums {
    ashlar_ranks *ranks;
    ashlar_device *device;
    ashlar_stream stream;
    ashlar_allocator *allocator;
    void *range; /* [bytes] zeros, which remain zeros when added up */
    size_t bytes, rounds;
    uint64_t step; /* of the next sum */
} sums;

static ashlar_status open_all(sums *s) {
    ASHLAR_FAIL_IF(ashlar_ranks_started() < 2, ASHLAR_EINVAL,
                   "sums: needs several ranks; start it as mpirun -n 2 ashlar-bench sums");
    ASHLAR_TRY(ashlar__ranks_start("ashlar-bench", 0, &s->ranks));
    ASHLAR_TRY(ashlar_device_open("soft", &s->device));
    ASHLAR_TRY(ashlar_stream_create(s->device, &s->stream));
    ASHLAR_TRY(ashlar_allocator_create(s->device, &s->allocator));
    ASHLAR_TRY(ashlar_alloc(s->allocator, s->bytes, s->stream, &s->range));
    return ashlar_fill(s->device, s->range, 0, s->bytes, s->stream);
}

/* Print a failure first: leaving the other ranks with one ends this process, too. */
static void close_all(sums *s, ashlar_status status) {
    if (status != ASHLAR_OK && s->ranks != NULL && ashlar_ranks_reports(s->ranks)) {
        (void)ashlar__program_fail("ashlar-bench", status);
    }
    ashlar_ranks_close(s->ranks, status != ASHLAR_OK);
    if (s->range != NULL) { /* cannot fail: this allocator gave the block */
        ASHLAR_IGNORE(ashlar_free(s->allocator, s->range));
    }
    ashlar_allocator_destroy(s->allocator);
    if (s->stream != NULL) {
        ashlar_stream_destroy(s->device, s->stream);
    }
    ashlar_device_close(s->device);
}

static ashlar_status run_once(sums *s, const ashlar_collectives *c, size_t piece_bytes,
                              double *seconds) {
    ashlar_ranks_mark(s->ranks, s->step++, 0);
    const double begin_s = ashlar__clock_s();
    for (size_t at = 0; at < s->bytes; at += piece_bytes) {
        const size_t left = s->bytes - at, bytes = left < piece_bytes ? left : piece_bytes;
        ASHLAR_TRY(c->all_reduce(c->context, (char *)s->range + at, bytes / sizeof(float),
                                 ASHLAR_F32, s->stream));
    }
    ASHLAR_TRY(ashlar_stream_synchronize(s->device, s->stream));
    *seconds = ashlar__clock_s() - begin_s;
    return ashlar_ranks_check(s->ranks);
}

static ashlar_status measure(sums *s, const ashlar_collectives *c, size_t piece_bytes,
                             double *median_s) {
    double seconds[ROUNDS], cold_s;
    ASHLAR_TRY(run_once(s, c, piece_bytes, &cold_s));
    for (size_t i = 0; i < s->rounds; i++) {
        ASHLAR_TRY(run_once(s, c, piece_bytes, &seconds[i]));
    }
    *median_s = ashlar__median(seconds, s->rounds);
    return ASHLAR_OK;
}

static ashlar_status measure_order(sums *s, ashlar_ranks_order order, const char *subject,
                                   ashlar_json_writer *w) {
    const ashlar_collectives *c = NULL;
    ASHLAR_TRY(ashlar_ranks_collectives(s->ranks, s->device, order, &c));
    for (size_t i = 0; i < PIECES; i++) {
        double median_s;
        ASHLAR_TRY(measure(s, c, pieces[i].bytes, &median_s));
        ashlar__json_open_object(w);
        ashlar__json_add_string(w, "subject", subject);
        ashlar__json_add_string(w, "bucket", pieces[i].name);
        ashlar__json_add_double(w, "ms_step", 1e3 * median_s);
        ashlar__json_close_object(w);
        if (pieces[i].bytes >= s->bytes) {
            break; /* larger ones are all the same */
        }
    }
    return ASHLAR_OK;
}

static ashlar_status measure_all(sums *s, ashlar_json_writer *w) {
    static const char *const subjects[] = {
        [ASHLAR_RANKS_FASTEST] = "ashlar", [ASHLAR_RANKS_TREE] = "reproducible"};
    ASHLAR_TABLE_IS_FULL(subjects, ASHLAR_RANKS_ORDER_COUNT);
    ASHLAR_TRY(open_all(s));
    ashlar__json_put_key(w, "rows");
    ashlar__json_open_array(w);
    for (unsigned i = 0; i < ASHLAR_RANKS_ORDER_COUNT; i++) {
        ASHLAR_TRY(measure_order(s, (ashlar_ranks_order)i, subjects[i], w));
    }
    ashlar__json_close_array(w);
    ashlar__json_close_object(w);
    return ASHLAR_OK;
}

ashlar_status ashlar__rank_sums(int argc, char **argv) {
    sums s = {.bytes = range_bytes, .rounds = ROUNDS};
    ashlar_json_writer w;
    bool is_smoke = false;
    const char *path = NULL;
    const ashlar_option options[] = {
        {"json", "FILE", ASHLAR_OPTION_TEXT, &path, 0, 0, ""},
        {"smoke", NULL, ASHLAR_OPTION_FLAG, &is_smoke, 0, 0, ""},
    };
    ASHLAR_TRY(ashlar__options_parse(options, sizeof options / sizeof options[0], argc, argv));
    ASHLAR_FAIL_IF(path == NULL, ASHLAR_EINVAL, "sums: --json FILE is missing");
    if (is_smoke) {
        s.bytes = smoke_bytes;
        s.rounds = SMOKE_ROUNDS;
    }
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_document(&w, "ashlar-bench/1");
    ashlar_status status = measure_all(&s, &w);
    if (status == ASHLAR_OK && ashlar_ranks_rank(s.ranks) == 0) {
        status = ashlar__json_writer_end(&w, path);
    } else {
        ashlar__json_writer_finish(&w);
    }
    close_all(&s, status);
    return status;
}
