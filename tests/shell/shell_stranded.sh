#!/bin/sh
#
# shell_stranded.sh - what libashlar-preload.so gives of a device that is full of holes: at least
# 95 % of what the driver alone gives the same program, and all that it says is free.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

about_preload
program=$programs/stranded_driver

# Write a line for each request: NAME BYTES PROMISED.
runs_alone() {
    ASHLAR_SOFT=memory=4GiB "$program" names at-once >"$scratch/alone" && [ -s "$scratch/alone" ]
}

runs() { # FILE SOFT WORD...
    file=$scratch/$1 soft=$2
    shift 2
    env LD_PRELOAD="$preload" ASHLAR_SOFT="memory=4GiB$soft" "$program" "$@" >"$file" ||
        { cat "$file" && return 1; }
}

# No line of FILE whose name is like NAME says less than SHARE (95 %) of that of the driver alone.
gives_enough() { # FILE NAME [SHARE]
    awk -v name="^($2)\$" -v share="${3-0.95}" '
        FNR == NR { alone[$1] = $2; next }
        { rows++ }
        $1 ~ name && $2 < share * alone[$1] {
            printf "%s: %d MiB, and %d of the driver\n", $1, $2 / 1048576, alone[$1] / 1048576
            bad++
        }
        END { exit bad > 0 || rows == 0 || rows != FNR || rows != NR - FNR }
    ' "$scratch/alone" "$scratch/$1"
}

# As much as was said to be free was given in the rows named WHAT, to a MiB; and the promise is no
# less than 95 % of what was given in one block. Smaller ones may fit where handles are half free.
keeps_its_promise() { # FILE WHAT
    awk -v what="-$2\$" '
        $1 !~ what { next }
        { rows++ }
        $2 <= $3 - 1048576 || ($1 ~ /-one$/ && $3 < 0.95 * $2) {
            printf "%s: %d MiB said to be free, %d given\n", $1, $3 / 1048576, $2 / 1048576
            bad++
        }
        END { exit bad > 0 || rows == 0 }
    ' "$scratch/$1"
}

strands_in_large_handles() { # so that the cases below could fail
    ASHLAR_CONF=handle=64MiB runs large '' names at-once && ! gives_enough large '.*'
}

needs_preload stranded "$program"

check 'the_driver_alone_runs_the_program' runs_alone
check 'the_driver_alone_keeps_its_promise' keeps_its_promise alone one
check 'memory_is_stranded_in_large_handles' strands_in_large_handles

for way in at-once on-streams; do
    check "${way}_runs" runs "$way" '' names "$way"
    check "${way}_when_work_is_late_runs" runs "$way-late" ,mode=adversarial,seed=3 procs "$way"
    for late in '' -late; do
        check "$way${late}_gives_what_lies_between_blocks" gives_enough "$way$late" '[0-9].*'
        check "$way${late}_gives_what_lies_between_blocks_of_drawn_sizes" \
            gives_enough "$way$late" 'to64.*'
        # Each of these begins and ends inside a handle of 2 MiB.
        check "$way${late}_gives_four_fifths_of_what_lies_between_blocks_of_2_to_8_MiB" \
            gives_enough "$way$late" 'to8.*' 0.80
        check "$way${late}_promises_what_it_gives_in_small_blocks" keeps_its_promise "$way$late" 2
        check "$way${late}_promises_what_it_gives_in_one" keeps_its_promise "$way$late" one
    done
    check "${way}_without_virtual_memory_runs" runs "$way-segments" ,vmm=off names "$way"
    check "${way}_without_virtual_memory_fills_a_device" gives_enough "$way-segments" '.*-filled'
    check "${way}_without_virtual_memory_promises_what_it_gives" \
        keeps_its_promise "$way-segments" 2
done
check_report
