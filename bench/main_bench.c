/* ashlar-bench: measure ashlar beside its alternatives. */
#include <string.h>

#include "bench_alloc.h"
#include "options.h"
#include "program.h"

static const char program[] = "ashlar-bench";

static int run_command(int argc, char **argv) {
    ashlar_bench_config config = {0};
    const char *device_name = NULL;
    bool wants_help = false;
    const ashlar_option options[] = {
        {"smoke", NULL, ASHLAR_OPTION_FLAG, &config.is_smoke, 0, 0, "a few rounds, to see it run"},
        {"json", "FILE", ASHLAR_OPTION_TEXT, &config.json, 0, 0, "write the rows there"},
        {"device", "NAME", ASHLAR_OPTION_TEXT, &device_name, 0, 0,
         "auto, soft, soft:N, cuda, cuda:N"},
        {"help", NULL, ASHLAR_OPTION_FLAG, &wants_help, 0, 0, "print this"},
    };
    const size_t option_count = sizeof options / sizeof options[0];
    /* The one group there is so far may be left out. */
    if (argc > 1 && strcmp(argv[1], "alloc") == 0) {
        argc--;
        argv++;
    }
    if (ashlar_options_parse(options, option_count, argc, argv) != ASHLAR_OK) {
        return ashlar_program_fail(program, ASHLAR_EXIT_USAGE);
    }
    if (wants_help) {
        printf("Usage: %s [alloc] [OPTION]...\nWhat one malloc + free pair costs on the host.\n\n",
               program);
        ashlar_options_print(stdout, options, option_count);
        return 0;
    }
    ashlar_device *device = NULL;
    const ashlar_status opened = ashlar_device_open(device_name, &device);
    if (opened != ASHLAR_OK) {
        return ashlar_program_fail(program, opened == ASHLAR_EINVAL ? ASHLAR_EXIT_USAGE
                                                                    : ASHLAR_EXIT_FAILED);
    }
    const ashlar_status status = ashlar_bench_alloc(device, &config);
    ashlar_device_close(device);
    return status == ASHLAR_OK ? 0 : ashlar_program_fail(program, ASHLAR_EXIT_FAILED);
}

int main(int argc, char **argv) {
    ashlar_program_init();
    return ashlar_program_finish(program, run_command(argc, argv));
}
