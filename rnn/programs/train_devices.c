/* train_devices.c - runs ashlar-train with a rank for each device, each on a thread of its own. */
#include "rnn/programs/train_devices.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"
#include "rnn/product/blas.h"
#include "rnn/programs/program.h"
#include "rnn/programs/train_ranks.h"

/* One rank. */
typedef struct lane {
    pthread_t thread;
    const char *program;
    ashlar_train_command command; /* a copy, with the rank */
    char device[32];
    ashlar_train_run_fn *run;
    int exit_status;
} lane;

/* "soft" or "cuda": the kind of the device that the command names. */
static ashlar_status find_kind(const char *program, const char *given, const char **kind) {
    const char *named = given != NULL ? given : secure_getenv("ASHLAR_DEVICE");
    ashlar_device *device;
    ashlar_device_info info;
    ASHLAR_FAIL_IF(named != NULL && strchr(named, ':') != NULL, ASHLAR_EINVAL,
                   "--devices: %.40s is one device; name its kind, soft or cuda", named);
    if (ashlar__program_open_device(program, named, &device) != 0) {
        return ASHLAR_ENODEVICE; /* it has said why */
    }
    ashlar_device_get_info(device, &info);
    ashlar_device_close(device);
    *kind = info.kind == ASHLAR_DEVICE_CUDA ? "cuda" : "soft";
    return ASHLAR_OK;
}

static void leave(lane *l) {
    ashlar_ranks_close(l->command.train.ranks, l->exit_status != 0);
    l->command.train.ranks = NULL;
}

static void *run_lane(void *of) {
    lane *l = of;
    ashlar_device *device = NULL;
    const ashlar_status status = ashlar_device_open(l->device, &device);
    l->exit_status = status == ASHLAR_OK ? l->run(&l->command, device)
                                         : ashlar__program_fail(l->program, status);
    leave(l);
    return NULL;
}

/* Start a rank's thread, with all signals blocked: they are for the first thread. */
static bool start(lane *l) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool is_started = pthread_create(&l->thread, NULL, run_lane, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return is_started;
}

/* Run all ranks. One whose thread cannot be started counts as failed. */
static int run_all(lane *lanes, size_t count) {
    bool is_started[ASHLAR_RANKS_THREADS_MOST] = {false};
    for (size_t i = 1; i < count; i++) {
        is_started[i] = start(&lanes[i]);
        if (!is_started[i]) {
            fprintf(stderr, "%s: --devices: the system refuses a thread\n", lanes[i].program);
            lanes[i].exit_status = ASHLAR_EXIT_FAILED;
            leave(&lanes[i]);
        }
    }
    (void)run_lane(&lanes[0]);
    int exit_status = lanes[0].exit_status;
    for (size_t i = 1; i < count; i++) {
        if (is_started[i]) {
            (void)pthread_join(lanes[i].thread, NULL);
        }
        exit_status = exit_status == 0 ? lanes[i].exit_status : exit_status;
    }
    return exit_status;
}

/* Check that the last device is there, before any is trained on. */
static ashlar_status check_last(const char *kind, size_t devices) {
    const bool is_soft = strcmp(kind, "soft") == 0;
    char name[32], why[256];
    ashlar_device *device = NULL;
    (void)snprintf(name, sizeof name, "%s:%zu", kind, devices - 1);
    const ashlar_status status = ashlar_device_open(name, &device);
    if (status != ASHLAR_OK) {
        (void)snprintf(why, sizeof why, "%s", ashlar_error_detail());
        return ashlar__fail(status == ASHLAR_ENODEVICE ? ASHLAR_EINVAL : status, "--devices: %s%s",
                            why, is_soft ? "; set ASHLAR_SOFT=devices=N" : "");
    }
    ashlar_device_close(device);
    return ASHLAR_OK;
}

static ashlar_status open_lanes(const char *program, ashlar_train_command *c,
                                ashlar_train_run_fn *run, lane *lanes) {
    const char *kind = "soft";
    ashlar_ranks *ranks[ASHLAR_RANKS_THREADS_MOST];
    ASHLAR_TRY(find_kind(program, c->device, &kind));
    ASHLAR_TRY(check_last(kind, c->devices));
    ASHLAR_TRY(ashlar_ranks_open_threads(c->devices, (uint32_t)c->timeout_s * 1000, ranks));
    for (size_t i = 0; i < c->devices; i++) {
        lane *l = &lanes[i];
        *l = (lane){.program = program, .command = *c, .run = run};
        l->command.train.ranks = ranks[i];
        l->command.device = l->device;
        (void)snprintf(l->device, sizeof l->device, "%s:%zu", kind, i);
    }
    return ASHLAR_OK;
}

int ashlar__train_devices_run(const char *program, ashlar_train_command *c, bool are_threads_given,
                              ashlar_train_run_fn *run) {
    static lane lanes[ASHLAR_RANKS_THREADS_MOST]; /* once in a process */
    const ashlar_status status = open_lanes(program, c, run, lanes);
    if (status != ASHLAR_OK) {
        return status == ASHLAR_ENODEVICE ? ashlar__program_exit_status(status)
                                          : ashlar__program_fail(program, status);
    }
    const size_t each = are_threads_given ? c->threads : c->threads / c->devices;
    ashlar__blas_set_threads(each > 0 ? (int)each : 1);
    for (size_t i = 0; i < c->devices; i++) {
        const ashlar_status checked = ashlar__train_ranks_prepare(&lanes[i].command);
        if (checked != ASHLAR_OK) { /* it fails for all alike; no thread has begun */
            const int failed = ashlar__program_fail(program, checked);
            for (size_t k = 0; k < c->devices; k++) {
                ashlar_ranks_close(lanes[k].command.train.ranks, false);
            }
            return failed;
        }
    }
    const int exit_status = run_all(lanes, c->devices);
    c->is_stopped = lanes[0].command.is_stopped;
    return exit_status;
}
