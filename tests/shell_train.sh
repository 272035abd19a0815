#!/bin/sh
#
# shell_train.sh - a small training from the outside: its report, its repeatability, its silence.

# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"

data=$scratch/data.txt
write_text "$data"

small() { # JSON OPTION...
    report=$1
    shift
    timeout 120 "$train" --data "$data" --device soft --steps 12 --layers 1 --hidden 32 \
        --batch 4 --max-length 64 --json "$report" "$@" </dev/null
}

# The value of a key of the report, numbers with all the digits they were written with.
value() { # JSON KEY
    python3 - "$1" "$2" <<'END'
import json, sys
value = json.load(open(sys.argv[1]), parse_float=str)[sys.argv[2]]
print(str(value).lower() if isinstance(value, bool) else value)
END
}

is() { # KEY WANTED
    got=$(value "$scratch/a.json" "$1")
    [ "$got" = "$2" ] || complain "$1 is '$got', want '$2'"
}

names_software() {
    value "$scratch/a.json" device | grep -x 'soft:[0-9]*'
}

is_above() { # KEY BOUND
    got=$(value "$scratch/a.json" "$1")
    echo "$1 is '$got', want more than $2"
    case $got in *[!0-9.eE+-]* | '') return 1 ;; esac # nan, inf, a string
    awk -v got="$got" -v bound="$2" 'BEGIN { exit !(got + 0 > bound + 0) }'
}

is_json() {
    python3 -m json.tool "$1" >/dev/null
}

same() { # KEY FILE FILE
    one=$(value "$2" "$1") two=$(value "$3" "$1")
    echo "$1: '$one' and '$two'"
    [ -n "$one" ] && [ "$one" = "$two" ]
}

other() { # as same
    ! same "$@" && [ -n "$one" ] && [ -n "$two" ]
}

peak_fits_what_is_reserved() {
    is_above bytes_live_peak 0 || return
    is_above bytes_reserved_peak "$(($(value "$scratch/a.json" bytes_live_peak) - 1))"
}

says_nothing() {
    small "$scratch/quiet.json" --seed 7 --quiet >"$scratch/stdout" || return
    cat "$scratch/stdout"
    [ ! -s "$scratch/stdout" ] && [ -s "$scratch/quiet.json" ]
}

check 'a_small_training_succeeds' small "$scratch/a.json" --seed 7
check 'the_report_is_json' is_json "$scratch/a.json"
check 'the_report_names_the_software_device' names_software
check 'every_step_was_taken' is steps 12
check 'the_maximum_length_is_reported' is max_length 64
check 'several_lengths_were_seen' is_above lengths_distinct 1
check 'the_first_loss_is_a_number' is_above loss_first 0
check 'the_last_loss_is_a_number' is_above loss_last 0
check 'the_speed_is_a_number' is_above tokens_per_s 0
check 'there_are_parameters' is_above parameters 32
check 'set_up_calls_the_driver' is_above driver_calls_setup 0
check 'the_calls_of_warm_up_are_counted' is_above driver_calls_warmup -1
check 'no_step_after_warm_up_calls_the_driver' is driver_calls_after_warmup 0
check 'the_weights_are_contiguous' is weights_contiguous true
check 'the_peak_of_live_bytes_fits_the_reserved' peak_fits_what_is_reserved

check 'the_same_seed_runs_again' small "$scratch/b.json" --seed 7
check 'the_same_seed_gives_the_same_first_loss' same loss_first "$scratch/a.json" "$scratch/b.json"
check 'the_same_seed_gives_the_same_last_loss' same loss_last "$scratch/a.json" "$scratch/b.json"
check 'another_seed_runs' small "$scratch/c.json" --seed 8
check 'another_seed_gives_another_first_loss' other loss_first "$scratch/a.json" "$scratch/c.json"
check 'quiet_prints_nothing' says_nothing
check 'quiet_changes_no_number' same loss_last "$scratch/a.json" "$scratch/quiet.json"
check_report
