/*
 * replay_main.c - run a fuzz target without libFuzzer, so that every compiler and every build can.
 *
 *   replay_X                  a TAP case: its samples, damaged in many ways
 *   replay_X FILE...          try these inputs, as libFuzzer or the case above left them
 *   replay_X --seeds FOLDER   write the samples there, to start a corpus
 */
#include "tests/check.h"

#include <sys/wait.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"
#include "allocator/base/random.h"

enum {
    INPUT_BYTES = 1024,
    INPUT_COUNT = 20000,
    MUTATION_MAX = 4,
    LIMIT_MS = 1500, /* a sanitizer's build tries fewer inputs in it */
};

/* What the child is trying. Shared, so that the parent has it when the child is gone. */
typedef struct trial {
    size_t tried;
    size_t bytes;
    uint8_t data[INPUT_BYTES];
} trial;

static const char *program;
static uint64_t random_state = 1; /* the same inputs every time: exploring is libFuzzer's part */

static uint64_t draw(uint64_t below) {
    return ashlar__random_step_below(&random_state, below);
}

static unsigned count_seeds(void) {
    uint8_t ignored[INPUT_BYTES];
    unsigned count = 0;
    while (fuzz_seed(count, ignored, sizeof ignored) > 0) {
        count++;
    }
    return count;
}

/* Put bytes[0, count) into the input at `at`, as far as they fit. */
static void insert(trial *t, size_t at, const uint8_t *bytes, size_t count) {
    const size_t room = INPUT_BYTES - t->bytes;
    count = count < room ? count : room;
    memmove(t->data + at + count, t->data + at, t->bytes - at);
    memcpy(t->data + at, bytes, count);
    t->bytes += count;
}

static void mutate(trial *t, unsigned seed_count) {
    static const uint8_t edges[] = {0, 1, 9, '\n', ' ', '"', '-', '0', '9', '=', 0x7f, 0x80, 0xff};
    uint8_t other[INPUT_BYTES];
    const size_t at = t->bytes > 0 ? draw(t->bytes) : 0;
    const size_t most = t->bytes - at < 32 ? t->bytes - at : 32;
    const size_t length = most > 0 ? 1 + draw(most) : 0;
    size_t count;
    switch (t->bytes > 0 ? draw(6) : 5) {
    case 0:
        t->data[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        t->data[at] = edges[draw(sizeof edges)];
        break;
    case 2:
        memmove(t->data + at, t->data + at + length, t->bytes - at - length);
        t->bytes -= length;
        break;
    case 3:
        memcpy(other, t->data + at, length);
        insert(t, draw(t->bytes + 1), other, length);
        break;
    case 4:
        t->bytes = at;
        break;
    default: /* a piece of a sample */
        count = fuzz_seed((unsigned)draw(seed_count), other, sizeof other);
        most > 0 ? insert(t, at, other + count / 2, draw(count / 2 + 1))
                 : insert(t, at, other, count);
        break;
    }
}

static void make_input(trial *t, size_t number, unsigned seed_count) {
    const bool is_noise = number >= seed_count && draw(8) == 0;
    const unsigned seed = (unsigned)(number < seed_count ? number : draw(seed_count));
    t->bytes = is_noise ? draw(INPUT_BYTES) : fuzz_seed(seed, t->data, INPUT_BYTES);
    for (size_t i = 0; is_noise && i < t->bytes; i++) {
        t->data[i] = (uint8_t)draw(256);
    }
    for (uint64_t left = number < seed_count ? 0 : draw(MUTATION_MAX + 1); left > 0; left--) {
        mutate(t, seed_count);
    }
}

/* In a block of exactly its size, so that a sanitizer sees the byte behind it being read. */
static void try_bytes(const uint8_t *data, size_t bytes) {
    uint8_t *copy = malloc(bytes);
    FUZZ_CHECK(copy != NULL || bytes == 0);
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static long now_ms(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void try_many(trial *t) {
    const unsigned seed_count = count_seeds();
    const long start = now_ms();
    /* The samples and one more however slow it is: what is tried is no matter of the machine. */
    while (t->tried <= seed_count ||
           (t->tried < INPUT_COUNT && now_ms() - start < LIMIT_MS)) {
        make_input(t, t->tried, seed_count);
        try_bytes(t->data, t->bytes);
        t->tried++;
    }
}

static void keep_input(const trial *t) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s.crash", program);
    FILE *file = fopen(path, "wb");
    const bool is_kept = file != NULL && fwrite(t->data, 1, t->bytes, file) == t->bytes;
    if (file != NULL) {
        (void)fclose(file);
    }
    printf("# input %zu of seed 1, %zu bytes: %s %s\n", t->tried, t->bytes,
           is_kept ? "again with" : "cannot be written to", path);
}

/* In a child: a target says that something is wrong by dying. */
static void inputs_hold(void) {
    trial *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(t != MAP_FAILED);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        try_many(t);
        exit(0); /* not _exit(): leaks are looked for now */
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    if (status != 0) {
        keep_input(t);
    }
    CHECK(t->tried > count_seeds());
    printf("# %zu inputs\n", t->tried);
    (void)munmap(t, sizeof *t);
}

static int write_seeds(const char *folder) {
    uint8_t data[INPUT_BYTES];
    size_t bytes;
    for (unsigned i = 0; (bytes = fuzz_seed(i, data, sizeof data)) > 0; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/sample-%u", folder, i);
        FILE *file = fopen(path, "wb");
        if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

static int replay(const char *path) {
    enum { FILE_BYTES = 1 << 20 };
    static uint8_t data[FILE_BYTES];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    const size_t bytes = fread(data, 1, sizeof data, file);
    (void)fclose(file);
    try_bytes(data, bytes);
    printf("%s: %zu bytes, no defect\n", path, bytes);
    return 0;
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        return write_seeds(argv[2]);
    }
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        failed |= replay(argv[i]);
    }
    if (argc > 1) {
        return failed;
    }
    check_run(inputs_hold, fuzz_claim);
    return check_report();
}
