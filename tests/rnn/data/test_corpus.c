/*
 * test_corpus.c - which files a corpus reads and where it cuts them.
 */
#include "rnn/data/corpus.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/host.h"

static char folder[] = "/tmp/ashlar-corpus-XXXXXX";

/* A path in the test's folder; of the last 32 calls only. */
static const char *in_folder(const char *name) {
    static char paths[32][256];
    static int next;
    char *path = paths[next++ % 32];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *make_file(const char *name, const char *text, size_t bytes) {
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(text, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(99); /* not a finding about the corpus */
    }
    return path;
}

static const char *make_text(const char *name, const char *text) {
    return make_file(name, text, strlen(text));
}

static const char *make_folder(const char *name) {
    const char *path = in_folder(name);
    if (mkdir(path, 0700) != 0) {
        perror(path);
        exit(99);
    }
    return path;
}

static bool is_record(const ashlar_corpus *corpus, size_t i, const char *text) {
    if (i >= ashlar__corpus_count(corpus)) {
        return false;
    }
    const ashlar_record record = ashlar__corpus_record(corpus, i);
    return record.count == strlen(text) && memcmp(record.bytes, text, record.count) == 0;
}

/* Open one path; the records, joined by '|', are `want`. */
static void check_records(const char *path, const char *want) {
    ashlar_corpus *corpus;
    char got[512] = "";
    REQUIRE(ashlar__corpus_open(&path, 1, &corpus) == ASHLAR_OK);
    size_t bytes = 0;
    for (size_t i = 0; i < ashlar__corpus_count(corpus); i++) {
        const ashlar_record record = ashlar__corpus_record(corpus, i);
        const size_t used = strlen(got);
        (void)snprintf(got + used, sizeof got - used, "%s%.*s", i > 0 ? "|" : "", (int)record.count,
                       (const char *)record.bytes);
        bytes += record.count;
    }
    CHECK(strcmp(got, want) == 0);
    CHECK_ZU(ashlar__corpus_bytes(corpus), bytes);
    CHECK_ZU(ashlar__corpus_file_count(corpus), 1);
    CHECK_ZU(ashlar__corpus_skipped_count(corpus), 0);
    ashlar__corpus_destroy(corpus);
}

CASE(paragraphs_end_at_blank_lines) {
    check_records(make_text("p1", "one\n two\n\n\n \t\nthree\n"), "one\n two|three");
    check_records(make_text("p2", "\n\nonly"), "only");
    check_records(make_text("p3", "100%\n%%\n % \n"), "100%\n%%\n % ");
}

CASE(a_line_of_a_percent_sign_makes_a_fortune_file) {
    check_records(make_text("f1", "a\n\nb\n%\nc\n%\n"), "a\n\nb|c");
    check_records(make_text("f2", "%\n%\n\n%\na"), "a");
    check_records(make_text("f3", "\n  art\n\n%\nx\n"), "\n  art\n|x");
    check_records(make_text("f4", "a\n%"), "a");
}

CASE(carriage_returns_belong_to_the_line_end) {
    check_records(make_text("c1", "a\r\nb\r\n\r\nc\r\n"), "a\r\nb|c");
    check_records(make_text("c2", "a\r\n%\r\nb\r\n"), "a|b");
    check_records(make_text("c3", "a\rb\n\nc"), "a\rb|c");
}

CASE(a_folder_is_read_in_name_order_once_per_file) {
    const char *path = make_folder("d");
    (void)make_text("d/b", "second\n");
    (void)make_text("d/a", "first\n");
    (void)make_text("d/c.txt", "third\n\nfourth\n");
    (void)make_text("d/.hidden", "hidden\n");
    (void)make_file("d/binary", "x\0y", 3);
    (void)make_text("d/blank", "\n\n");
    (void)make_folder("d/inner");
    (void)make_text("d/inner/deep", "deep\n");
    CHECK(symlink("b", in_folder("d/aa-link-to-b")) == 0);
    CHECK(link(in_folder("d/a"), in_folder("d/z-hard-link")) == 0);
    CHECK(symlink("nowhere", in_folder("d/dangling")) == 0);
    CHECK(mkfifo(in_folder("d/pipe"), 0600) == 0);
    const char *const paths[] = {path, path};
    ashlar_corpus *corpus;
    REQUIRE(ashlar__corpus_open(paths, 2, &corpus) == ASHLAR_OK);
    CHECK_ZU(ashlar__corpus_count(corpus), 4);
    CHECK(is_record(corpus, 0, "first"));
    CHECK(is_record(corpus, 1, "second"));
    CHECK(is_record(corpus, 2, "third"));
    CHECK(is_record(corpus, 3, "fourth"));
    CHECK_ZU(ashlar__corpus_file_count(corpus), 3);
    CHECK_ZU(ashlar__corpus_skipped_count(corpus), 2);
    CHECK_ZU(ashlar__corpus_bytes(corpus), strlen("firstsecondthirdfourth"));
    ashlar__corpus_destroy(corpus);
}

/* The open fails so and says `path` and `part`. */
static void check_refused(const char *path, ashlar_status status, const char *part) {
    ashlar_corpus *const untouched = (ashlar_corpus *)folder;
    ashlar_corpus *corpus = untouched;
    CHECK(ashlar__corpus_open(&path, 1, &corpus) == status);
    CHECK(corpus == untouched);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK_HAS(ashlar_error_detail(), part);
}

CASE(what_holds_no_text_is_refused_by_name) {
    ashlar_corpus *corpus;
    CHECK(ashlar__corpus_open(NULL, 0, &corpus) == ASHLAR_EINVAL);
    check_refused(in_folder("missing"), ASHLAR_EIO, "No such file");
    check_refused(make_text("empty", ""), ASHLAR_EFORMAT, "no text");
    check_refused(make_text("white", " \n\n"), ASHLAR_EFORMAT, "no text");
    check_refused(make_file("nul", "text\0\n", 6), ASHLAR_EFORMAT, "byte 0");
    check_refused(make_folder("none"), ASHLAR_EFORMAT, "no text in the folder");
    (void)make_file("none/binary", "\0", 1);
    check_refused(in_folder("none"), ASHLAR_EFORMAT, "no text in the folder");
    check_refused("/dev/null", ASHLAR_EFORMAT, "neither a file nor a folder");
}

CASE(a_file_that_may_not_be_read_is_refused) {
    const char *path = make_text("locked", "text\n");
    SKIP_IF(geteuid() == 0, "the superuser may read every file");
    CHECK(chmod(path, 0) == 0);
    check_refused(path, ASHLAR_EIO, "Permission denied");
}

CASE(no_host_memory_at_any_call_leaks_nothing) {
    const char *const paths[] = {make_folder("oom"), make_text("oom-file", "x\n\ny\n")};
    (void)make_text("oom/1", "a\n\nb\n");
    (void)make_text("oom/2", "c\n%\nd\n");
    ashlar_corpus *corpus = NULL;
    FOR_HOST_FAILURES(n, status, ashlar__corpus_open(paths, 2, &corpus)) {
        CHECK((status == ASHLAR_OK) == (corpus != NULL));
    }
    CHECK(n > 5);
    ashlar__corpus_destroy(corpus);
}

int main(void) {
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 99;
    }
    check_run_cases();
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) {
        return 99;
    }
    return check_report();
}
