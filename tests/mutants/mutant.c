/* mutant.c - which mutant is chosen; put behind check_level.c, which every program links. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char unmarked[ASHLAR_MUTANT_COUNT];
unsigned char *ashlar__mutant_marks = unmarked;
unsigned ashlar__mutant_chosen;

__attribute__((constructor(101))) static void choose_mutant(void) {
    const char *chosen = getenv("ASHLAR_MUTANT"), *marks = getenv("ASHLAR_MUTANT_MARKS");
    ashlar__mutant_chosen = chosen != NULL ? (unsigned)strtoul(chosen, NULL, 10) : 0;
    const int fd = marks != NULL ? open(marks, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *shared = mmap(NULL, sizeof unmarked, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ashlar__mutant_marks = shared != MAP_FAILED ? shared : unmarked;
        (void)close(fd);
    }
}
