#!/bin/sh
#
# shell_preload.sh - libashlar-preload.so with programs that know nothing of it, on the CUDA of
# tests/cuda: with the shared and the static runtime, and with the driver alone.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

about_preload

adversarial=mode=adversarial,seed=
quota=67108864 # bytes

# Run a program with the library. What it prints on stderr is in $scratch/stderr.
with() { # PROGRAM... WHAT
    env LD_PRELOAD="$preload" "$@" 2>"$scratch/stderr"
    status=$?
    cat "$scratch/stderr"
    return "$status"
}

takes_no_more() { # PROGRAM...: after its first step
    with "$@" loop | tee "$scratch/out"
    grep -x 'driver allocations: [1-9][0-9]* at first, 0 later' "$scratch/out"
}

trains_without_more() { # WHAT PROGRAM...: also where work is late, but for the mixed way
    what=$1
    shift
    for soft in '' ${adversarial}1 ${adversarial}2 waits=on,${adversarial}1; do
        ASHLAR_SOFT=$soft with "$@" "$what" | tee "$scratch/out"
        case $what,$soft in
        train-mixed,*mode=*) grep -x 'driver allocations: [1-9] at first, [0-4] later' "$scratch/out" ;;
        *) grep -x 'driver allocations: [1-9] at first, 0 later' "$scratch/out" ;;
        esac || return
    done
}

takes_more() { # PROGRAM...: so that the case above could fail
    "$@" loop | tee "$scratch/out"
    grep -x 'driver allocations: [1-9][0-9]* at first, [1-9][0-9]* later' "$scratch/out"
}

is_never_overwritten() { # PROGRAM...
    for seed in 1 2 3 4 5; do
        ASHLAR_SOFT=memory=128MiB,$adversarial$seed with "$@" race || return
    done
}

reports() { # WORDS PROGRAM...
    words=$1
    shift
    ASHLAR_PRELOAD=report with "$@" loop || return
    [ "$(grep -c '^ashlar-preload: ' "$scratch/stderr")" -eq 1 ] || complain 'not one line' || return
    # A sum below zero would have more digits.
    grep -E 'at most [1-9][0-9]{2,7} bytes live, [1-9][0-9]{2,7} reserved;' "$scratch/stderr" ||
        complain 'no such sums' || return
    grep -F "$words" "$scratch/stderr"
}

tells_of_ipc() { # PROGRAM...
    for conf in '' vmm=off; do
        ASHLAR_CONF=$conf ASHLAR_PRELOAD=report with "$@" refuse-export || return
        [ "$(grep -c 'ASHLAR_PRELOAD=ipc' "$scratch/stderr")" -eq 1 ] || return
    done
}

is_silent() { # PROGRAM...
    with "$@" loop && [ ! -s "$scratch/stderr" ]
}

is_off() { # ASHLAR_PRELOAD PROGRAM...
    value=$1
    shift
    ASHLAR_PRELOAD=$value with "$@" loop | tee "$scratch/out"
    grep -x 'driver allocations: [1-9][0-9]* at first, [1-9][0-9]* later' "$scratch/out"
}

leaves_alone() { # SETTING PROGRAM...
    setting=$1
    shift
    with env "$setting" "$@" loop >"$scratch/out" || return
    grep -x 'driver allocations: [1-9][0-9]* at first, [1-9][0-9]* later' "$scratch/out"
}

# With a library that holds programs to a quota, before ours or behind it. What it finds behind itself
# is the driver's (libcuda) or the next library's (next).
within_a_quota() { # LIBRARIES BEHIND PROGRAM...
    libraries=$1 behind=$2
    shift 2
    for words in on ipc; do
        ASHLAR_SOFT=memory=256MiB ASHLAR_PRELOAD=$words QUOTA=$quota QUOTA_BEHIND=$behind \
            timeout 60 env LD_PRELOAD="$libraries" "$@" quota || return
    done
}

serves_within_a_quota() { # LIBRARIES BEHIND PROGRAM...
    libraries=$1 behind=$2
    shift 2
    QUOTA=$quota QUOTA_BEHIND=$behind env LD_PRELOAD="$libraries" "$@" loop >"$scratch/out" 2>&1
    cat "$scratch/out"
    ! grep -F 'ld.so' "$scratch/out" && grep -x 'driver allocations: [1-9][0-9]* at first, 0 later' "$scratch/out"
}

# On a libcuda.so.1 whose functions are another's.
on_a_forwarder() { # PROGRAM... WHAT
    env LD_LIBRARY_PATH="$programs/forwards" FORWARDS_TO="$LD_LIBRARY_PATH/libcuda.so.1" "$@"
}

takes_no_more_on_a_forwarder() { # PROGRAM...
    on_a_forwarder LD_PRELOAD="$preload" "$@" loop >"$scratch/out" || return
    cat "$scratch/out"
    grep -x 'driver allocations: [1-9][0-9]* at first, 0 later' "$scratch/out"
}

# What a plugin frees that the program took.
plugin_frees() { # WANTED ARGUMENT...
    wanted=$1
    shift
    with "$programs/program_plugin" "$programs/libplugin.so" "$@" >"$scratch/out"
    cat "$scratch/out"
    [ "$(grep -c "$wanted" "$scratch/out")" -eq 2 ]
}

# A program that finds ashlar's functions by dlsym(), or does not.
has_steps() { # ARGUMENT...
    ASHLAR_SOFT=memory=64MiB,${soft:-strict=on} with "$programs/steps_driver" "$@" \
        >"$scratch/out" || return
    cat "$scratch/out"
    [ "$(grep -cx 'driver calls after the warm-up: 0' "$scratch/out")" -eq 4 ]
}

has_steps_in_every_mode() { # ARGUMENT...
    for soft in strict=on ${adversarial}1 recycle=on,${adversarial}2 vmm=off; do
        has_steps "$@" || return
    done
}

has_no_steps() { # SETTING...
    env "$@" "$programs/steps_driver" names steps >"$scratch/out" || return
    cat "$scratch/out"
    grep -x 'no steps' "$scratch/out"
}

has_its_own_ashlar() { # SETTING...
    LD_LIBRARY_PATH=$ASHLAR_BUILD:$LD_LIBRARY_PATH env "$@" "$programs/linked_driver" names
}

leaves_well() { # PROGRAM...
    ASHLAR_PRELOAD=report with "$@" leave | tee "$scratch/out"
    grep -x 'at exit: 0' "$scratch/out" && grep '^ashlar-preload: 1 allocations' "$scratch/stderr"
}

in_every_mode() { # WHAT PROGRAM...
    what=$1
    shift
    with "$@" "$what" &&
        ASHLAR_SOFT=${adversarial}7 with "$@" "$what" &&
        ASHLAR_SOFT=vmm=off with "$@" "$what" &&
        ASHLAR_CONF=guard=fill with "$@" "$what"
}

changes_nothing_elsewhere() { # a program without CUDA
    env LD_PRELOAD="$preload" python3 -c 'import ctypes, socket; ctypes.CDLL(None).dlsym' &&
        env LD_PRELOAD="$preload" python3 -c '
import ctypes
try:
    ctypes.CDLL(None).cuMemAlloc_v2
except AttributeError:
    raise SystemExit(0)
raise SystemExit("a driver is found where there is none")'
}

# What is wrong, the driver says itself.
answers_as_the_driver() { # SETTING...
    set -- env ASHLAR_SOFT=strict=off,memory=64MiB "$@"
    for scope in '' global; do
        "$@" "$programs/program_wrong" $scope >"$scratch/alone" || return
        "$@" LD_PRELOAD="$preload" "$programs/program_wrong" $scope >"$scratch/with" || return
        diff "$scratch/alone" "$scratch/with" || return
    done
}

# Eleven calls are right and ours; the driver gets the others, and those where it has no context.
counts_what_it_serves() {
    ASHLAR_PRELOAD=report ASHLAR_SOFT=strict=off,memory=64MiB with "$programs/program_wrong" || return
    grep '^ashlar-preload: 11 allocations, .* 86 went to the driver$' "$scratch/stderr"
}

if [ ! -f "$preload" ]; then
    skip 'libashlar_preload' 'it is not built for this processor'
    check_report
fi

all_of() { # WAY PROGRAM...
    way=$1
    shift
    if [ ! -x "$1" ]; then
        skip "$way" 'there are no CUDA headers to build it with'
        return
    fi
    check "${way}_alone_asks_the_driver_again_and_again" takes_more "$@"
    check "${way}_takes_nothing_from_the_driver_after_the_first_step" takes_no_more "$@"
    for what in train train-on-streams train-mixed; do
        check "${way}_takes_nothing_after_the_first_step_${what}" trains_without_more "$what" "$@"
    done
    check "${way}_may_free_while_another_stream_still_writes" is_never_overwritten "$@"
    for what in threads capture reset pool default-pool fork-before; do
        check "${way}_does_well_${what}" with "$@" "$what"
        check "${way}_does_well_when_work_is_late_${what}" \
            env ASHLAR_SOFT=${adversarial}3 LD_PRELOAD="$preload" "$@" "$what"
    done
    check "${way}_has_two_devices" env ASHLAR_SOFT=devices=2 LD_PRELOAD="$preload" "$@" devices
    # It names a stream that is gone, to see the error.
    check "${way}_is_told_what_is_free" \
        env ASHLAR_SOFT=memory=256MiB,strict=off LD_PRELOAD="$preload" "$@" info
    check "${way}_waits_before_memory_is_out" \
        env ASHLAR_SOFT=memory=64MiB,${adversarial}2 LD_PRELOAD="$preload" "$@" full
    for soft in '' ${adversarial}5; do
        check "${way}_spoils_no_capture_of_another_thread_$soft" \
            env ASHLAR_SOFT=$soft LD_PRELOAD="$preload" "$@" capture-beside
    done
    check "${way}_leaves_to_the_driver_what_it_wants_itself" \
        env ASHLAR_SOFT=memory=64MiB,${adversarial}2 LD_PRELOAD="$preload" "$@" share
    check "${way}_forks_with_a_device" with "$@" fork
    check "${way}_exports_memory_when_that_is_left_to_the_driver" \
        env ASHLAR_PRELOAD=ipc LD_PRELOAD="$preload" "$@" export
    check "${way}_is_told_that_ours_cannot_be_exported" tells_of_ipc "$@"
    check "${way}_frees_at_its_end" leaves_well "$@"
    check "${way}_is_reported_on_request" reports 'went to the driver' "$@"
    check "${way}_is_not_reported_otherwise" is_silent "$@"
    check "${way}_is_left_alone_when_it_is_off" is_off off "$@"
    check "${way}_is_left_alone_with_options_that_are_none" leaves_alone ASHLAR_CONF=none "$@"
    check "${way}_loops_in_every_mode" in_every_mode loop "$@"
    for behind in libcuda next; do
        check "${way}_keeps_to_a_quota_behind_ours_$behind" \
            within_a_quota "$preload $programs/libquota.so" $behind "$@"
        check "${way}_keeps_to_a_quota_before_ours_$behind" \
            within_a_quota "$programs/libquota.so $preload" $behind "$@"
    done
    check "${way}_takes_no_more_within_a_quota" \
        serves_within_a_quota "$preload $programs/libquota.so" libcuda "$@"
}

all_of driver_procs "$programs/program_driver" procs
all_of driver_names "$programs/program_driver" names
all_of driver_per_thread "$programs/program_driver" per-thread
all_of driver_contexts "$programs/program_driver" contexts
all_of shared "$programs/program_shared"
all_of static "$programs/program_static"

for way in procs names per-thread; do
    check "driver_${way}_takes_no_more_on_a_forwarder" \
        takes_no_more_on_a_forwarder "$programs/program_driver" "$way"
done
check 'a_plugin_frees_what_the_program_took' plugin_frees ': 0, again: 1'
# It calls the driver itself, which refuses.
check 'a_plugin_that_is_bound_to_its_own_libraries_does_not' plugin_frees ': 1, again: 0' deep

for way in procs names; do
    check "driver_${way}_has_steps_by_functions_that_it_looks_up" has_steps_in_every_mode "$way" steps
done
check 'there_are_no_steps_without_the_library' has_no_steps
check 'a_program_linked_with_ashlar_has_its_own_functions' has_its_own_ashlar LD_PRELOAD="$preload"

for setting in ASHLAR_PRELOAD=on ASHLAR_PRELOAD=off ASHLAR_PRELOAD=ipc \
    ASHLAR_DEVICE=soft LD_LIBRARY_PATH="$LD_LIBRARY_PATH/cuda11"; do
    check "wrong_calls_are_answered_as_the_driver_does_${setting##*/}" answers_as_the_driver "$setting"
done
check 'wrong_calls_are_counted_as_the_drivers' counts_what_it_serves
check 'the_runtimes_of_cuda_12_and_13_get_the_versions_they_ask_for' \
    env LD_LIBRARY_PATH="$programs/asks" LD_PRELOAD="$preload" "$programs/asks/check_asks"
check 'it_changes_nothing_elsewhere' changes_nothing_elsewhere
check_report
