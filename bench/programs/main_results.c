/* main_results.c - the words `machine` and `report` of ashlar-bench. */
#include "bench/programs/main_results.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/harness/machine.h"
#include "bench/peers/peer.h"
#include "rnn/programs/options.h"
#include "bench/harness/results.h"
#include "rnn/programs/program.h"

bool ashlar__results_are_meant(int argc, char **argv) {
    return argc > 1 && (strcmp(argv[1], "machine") == 0 || strcmp(argv[1], "report") == 0);
}

void ashlar__results_print_help(void) {
    printf(
        "\nmachine --json FILE: processor, device and versions. Takes --device, --date, --commit\n"
        "(what to write there) and --smoke. report FOLDER: charts and a README.md from the\n"
        "machine.json, GROUP.json and GROUP.txt (the table as printed) there.\n");
}

/* List the peers whose version is known; returns how many. */
static size_t list_parts(ashlar_machine_part parts[static ASHLAR_PEERS_MAX]) {
    const ashlar_peer *peers[ASHLAR_PEERS_MAX];
    const size_t count = ashlar__peers(peers);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (peers[i]->version != NULL) {
            parts[used++] = (ashlar_machine_part){peers[i]->name, peers[i]->version};
        }
    }
    return used;
}

static ashlar_status write_machine(int argc, char **argv) {
    ashlar_machine_part parts[ASHLAR_PEERS_MAX];
    ashlar_machine_config config = {.parts = parts, .part_count = list_parts(parts)};
    const char *device_name = NULL, *path = NULL;
    const ashlar_option options[] = {
        {"json", "FILE", ASHLAR_OPTION_TEXT, &path, 0, 0, ""},
        {"device", "NAME", ASHLAR_OPTION_TEXT, &device_name, 0, 0, ""},
        {"date", "TEXT", ASHLAR_OPTION_TEXT, &config.date, 0, 0, ""},
        {"commit", "TEXT", ASHLAR_OPTION_TEXT, &config.commit, 0, 0, ""},
        {"smoke", NULL, ASHLAR_OPTION_FLAG, &config.is_smoke, 0, 0, ""},
    };
    ashlar_device *device = NULL;
    ashlar_status status =
        ashlar__options_parse(options, sizeof options / sizeof options[0], argc, argv);
    if (status == ASHLAR_OK && path == NULL) {
        status = ashlar__fail(ASHLAR_EINVAL, "machine: --json FILE is missing");
    }
    if (status == ASHLAR_OK) {
        status = ashlar_device_open(device_name, &device);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__machine_write(&config, device, path);
        ashlar_device_close(device);
    }
    return status;
}

static ashlar_status write_report(int argc, char **argv) {
    return argc == 2 && argv[1][0] != '-'
               ? ashlar__results_page_write(argv[1])
               : ashlar__fail(ASHLAR_EINVAL, "report: takes one folder, and nothing else");
}

int ashlar__results_exit_status(const char *program, ashlar_status status) {
    return status == ASHLAR_OK
               ? 0
               : ashlar__program_fail(program, status == ASHLAR_EINVAL ? ASHLAR_EXIT_USAGE
                                                                       : ASHLAR_EXIT_FAILED);
}

int ashlar__results_run(const char *program, int argc, char **argv) {
    return ashlar__results_exit_status(program, strcmp(argv[0], "machine") == 0
                                                    ? write_machine(argc, argv)
                                                    : write_report(argc, argv));
}
