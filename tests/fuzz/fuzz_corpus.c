/* fuzz_corpus.c - any bytes as text files, cut into records that lie in them in their order. */
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

/* Where the record lies in the text behind the last one; no border is inside it. */
static const uint8_t *find_record(const uint8_t *text, const uint8_t *end, ashlar_record record) {
    FUZZ_CHECK(record.count > 0 && memchr(record.bytes, 0, record.count) == NULL);
    const uint8_t *at = memmem(text, (size_t)(end - text), record.bytes, record.count);
    FUZZ_CHECK(at != NULL);
    FUZZ_CHECK(memmem(record.bytes, record.count, "\n%\n", 3) == NULL);
    return at + record.count;
}

static void check_records(const ashlar_corpus *corpus, const uint8_t *text, size_t bytes) {
    const uint8_t *at = text;
    size_t sum = 0;
    FUZZ_CHECK(ashlar__corpus_count(corpus) > 0);
    for (size_t i = 0; i < ashlar__corpus_count(corpus); i++) {
        const ashlar_record record = ashlar__corpus_record(corpus, i);
        at = find_record(at, text + bytes, record);
        sum += record.count;
    }
    FUZZ_CHECK(ashlar__corpus_bytes(corpus) == sum);
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
    if ((flags & IN_TWO) != 0) {
        names[name_count++] = paths[1];
    }
    const size_t file_count = name_count;
    if ((flags & AGAIN) != 0) {
        names[name_count++] = paths[0];
    }
    ashlar_corpus *corpus = NULL;
    const ashlar_status status = ashlar__corpus_open(names, name_count, &corpus);
    FUZZ_CHECK(status == (corpus != NULL ? ASHLAR_OK : ASHLAR_EFORMAT));
    if (corpus != NULL) {
        check_records(corpus, text, text_bytes);
        FUZZ_CHECK(ashlar__corpus_file_count(corpus) == file_count);
    }
    ashlar__corpus_destroy(corpus);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return 0;
}
