#!/bin/sh
#
# shell_interrupt.sh - a training that a signal ends: after a step, with everything saved and
# reported, so that it can go on as though nothing had happened.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

data=$scratch/data.txt
write_text "$data"
losses=$scratch/losses
report=$scratch/report.json
file=$scratch/stopped.safetensors

# With &, the job is the training itself. A shell lets its background jobs ignore SIGINT.
become() { # OPTION...
    exec env --default-signal=INT "$train" --data "$data" --device soft --layers 2 --hidden 12 --embedding 6 --batch 8 \
        --max-length 48 --seed 3 --sample 0 --quiet "$@" </dev/null
}

small() { # OPTION...
    (become "$@")
}

# Without an end in sight.
starts() { # OPTION...
    rm -f "$losses" "$report" "$file"
    become --steps 100000 --losses "$losses" --json "$report" --save "$file" "$@" \
        2>"$scratch/stderr" &
    job=$!
    until [ -s "$losses" ]; do
        kill -0 "$job" || return
        sleep 0.1
    done
}

steps_done() {
    wc -l <"$losses"
}

ended_well() { # STATUS SIGNAL
    status=$?
    cat "$scratch/stderr"
    [ "$status" -eq "$1" ] || complain "status $status, want $1" || return
    grep -x "ashlar-train: $2 ended the training after step $(steps_done) of 100000; go on with --resume $file" \
        "$scratch/stderr" || return
    json_holds "$report" "r['steps'] == $(steps_done) and r['driver_calls_after_warmup'] == 0"
}

# The same steps, without a break and with the one at the signal.
goes_on_as_if_nothing_had_been() { # OPTION...
    last=$(($(steps_done) + 3))
    small --steps "$last" --save "$scratch/one" "$@" &&
        small --steps "$last" --resume "$file" --save "$scratch/two" "$@" &&
        cmp "$scratch/one" "$scratch/two"
}

ends_at_sigterm() { # OPTION...
    starts "$@" || return
    kill -TERM "$job"
    wait "$job"
    ended_well 143 SIGTERM && goes_on_as_if_nothing_had_been "$@"
}

# Nothing is saved then, and that is said.
ends_at_once_the_second_time() {
    starts --batch 256 --hidden 256 || return # steps of a good part of a second
    kill -TERM "$job"
    sleep 0.1
    kill -TERM "$job"
    wait "$job"
    [ $? -eq 143 ] && [ ! -e "$file" ] && [ ! -s "$scratch/stderr" ]
}

says_what_is_lost() {
    rm "$losses"
    become --steps 100000 --losses "$losses" 2>"$scratch/stderr" &
    job=$!
    until [ -s "$losses" ]; do sleep 0.1; done
    kill -TERM "$job"
    wait "$job"
    [ $? -eq 143 ] && grep 'it is lost, since there was no --save' "$scratch/stderr"
}

check 'sigterm_ends_a_training_after_a_step' ends_at_sigterm
check 'a_second_signal_ends_it_at_once' ends_at_once_the_second_time
check 'without_a_file_it_is_told_what_is_lost' says_what_is_lost
check_report
