/* fuzz_corpus.c - any bytes as text files, cut into records, against a second cutting. */
#include "tests/fuzz/fuzz.h"

#include "rnn/data/corpus.h"

const char fuzz_claim[] = "every_file_is_refused_or_cut_at_the_borders_of_its_format";

/*
 * An input is two bytes and the text. Bit 0 of the first: two files, the second byte says where
 * the text is cut in two. Bit 1: the first file is given again, which must change nothing.
 */
enum { IN_TWO = 1, AGAIN = 2, HEAD_BYTES = 2 };

static const char *const samples[] = {
    "0 one\ntwo\n\nthree\n \t\n\nfour",
    "0 one\r\ntwo\r\n%\r\nthree\r\n",
    "1@one\n%\n\n \n%\ntwo\n\nthree\n%\n",
    "3\x80 a\n\nb\n\n c \n\n\n d\n\n e",
    "0 \n\n \t\n",
    "0 %\n%\r\n%\n",
    "0 % \n%%\n\r\n\r\r\n%",
};

FUZZ_SEEDS(samples)

/* ---- the second cutting: all lines first, then runs of lines between borders ---- */

typedef struct text_line {
    const uint8_t *start;
    size_t bytes; /* without its end */
    bool is_blank;
    bool is_percent;
} text_line;

typedef struct records {
    ashlar_record *items; /* pointing into the input */
    size_t count;
} records;

static size_t list_lines(const uint8_t *text, size_t bytes, text_line *lines) {
    size_t count = 0;
    for (size_t at = 0, stop; at < bytes; at = stop + 1) {
        for (stop = at; stop < bytes && text[stop] != '\n'; stop++) {
        }
        text_line *line = &lines[count++];
        *line = (text_line){.start = text + at, .bytes = stop - at, .is_blank = true};
        if (stop < bytes && stop > at && text[stop - 1] == '\r') {
            line->bytes--;
        }
        for (size_t i = 0; i < line->bytes; i++) {
            line->is_blank &= line->start[i] == ' ' || line->start[i] == '\t';
        }
        line->is_percent = line->bytes == 1 && line->start[0] == '%';
    }
    return count;
}

/* Adds to `out`, which has room. False: a file that must be refused. */
static bool cut(const uint8_t *text, size_t bytes, records *out) {
    const size_t before = out->count;
    text_line *lines = calloc(bytes + 1, sizeof *lines);
    FUZZ_CHECK(lines != NULL);
    const size_t count = list_lines(text, bytes, lines);
    bool is_fortune = false;
    for (size_t i = 0; i < count; i++) {
        is_fortune |= lines[i].is_percent;
    }
    for (size_t i = 0, end; i < count; i = end + 1) {
        bool has_text = false;
        for (end = i; end < count && !(is_fortune ? lines[end].is_percent : lines[end].is_blank);
             end++) {
            has_text |= !lines[end].is_blank;
        }
        if (has_text) {
            const text_line *last = &lines[end - 1];
            out->items[out->count++] = (ashlar_record){
                lines[i].start, (size_t)(last->start + last->bytes - lines[i].start)};
        }
    }
    free(lines);
    return out->count > before && memchr(text, 0, bytes) == NULL;
}

/* ---- */

static void check_same(const ashlar_corpus *corpus, const records *want, size_t file_count) {
    size_t bytes = 0;
    FUZZ_CHECK(ashlar__corpus_count(corpus) == want->count);
    for (size_t i = 0; i < want->count; i++) {
        const ashlar_record record = ashlar__corpus_record(corpus, i);
        FUZZ_CHECK(record.count == want->items[i].count && record.count > 0);
        FUZZ_CHECK(memcmp(record.bytes, want->items[i].bytes, record.count) == 0);
        bytes += record.count;
    }
    FUZZ_CHECK(ashlar__corpus_bytes(corpus) == bytes);
    FUZZ_CHECK(ashlar__corpus_file_count(corpus) == file_count);
    FUZZ_CHECK(ashlar__corpus_skipped_count(corpus) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < HEAD_BYTES) {
        return 0;
    }
    const unsigned flags = data[0];
    const uint8_t *text = data + HEAD_BYTES;
    const size_t text_bytes = bytes - HEAD_BYTES;
    const size_t first = (flags & IN_TWO) != 0 ? text_bytes * data[1] / 256 : text_bytes;
    char paths[2][FUZZ_PATH_BYTES];
    const int fds[2] = {fuzz_open_bytes(text, first, paths[0]),
                        fuzz_open_bytes(text + first, text_bytes - first, paths[1])};
    const char *names[3] = {paths[0]};
    size_t name_count = 1;
    records want = {.items = calloc(text_bytes + 1, sizeof *want.items)};
    FUZZ_CHECK(want.items != NULL);
    bool is_good = cut(text, first, &want);
    if ((flags & IN_TWO) != 0) {
        names[name_count++] = paths[1];
        is_good = cut(text + first, text_bytes - first, &want) && is_good;
    }
    const size_t file_count = name_count;
    if ((flags & AGAIN) != 0) {
        names[name_count++] = paths[0];
    }
    ashlar_corpus *corpus = NULL;
    const ashlar_status status = ashlar__corpus_open(names, name_count, &corpus);
    FUZZ_CHECK(status == (is_good ? ASHLAR_OK : ASHLAR_EFORMAT));
    if (is_good) {
        check_same(corpus, &want, file_count);
    }
    ashlar__corpus_destroy(corpus);
    free(want.items);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return 0;
}
