#!/bin/sh
#
# shell_checkpoint.sh - checkpoints from the outside: read and written by others, gone on with, and
# left by a killed training.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

sample=$ASHLAR_BUILD/rnn/ashlar-sample
data=$scratch/data.txt
write_text "$data"

small() { # OPTION...
    timeout 120 "$train" --data "$data" --device soft --layers 2 --hidden 12 --embedding 6 \
        --batch 7 --max-length 48 --seed 3 --quiet "$@" </dev/null
}

other() { # COMMAND...: another program's view, from the public description alone
    python3 "$ASHLAR_SOURCE/tests/check_checkpoint.py" "$@"
}

# --- others ---------------------------------------------------------------------------------------

file=$scratch/training.safetensors

writes_text() { # MODEL
    timeout 60 "$sample" --model "$1" --bytes 300 --seed 5 </dev/null
}

# The same text from the same values in another order and at odd addresses.
a_foreign_file_is_read() { # TYPE
    other forge "$file" "$scratch/foreign" "$1" && other metadata "$scratch/foreign" 'len(m) >= 3' &&
        writes_text "$file" >"$scratch/a" && writes_text "$scratch/foreign" >"$scratch/b" &&
        [ "$(wc -c <"$scratch/a")" -ge 300 ] && cmp "$scratch/a" "$scratch/b"
}

refuses_to_resume_a_foreign_file() {
    small --steps 40 --resume "$scratch/foreign" 2>"$scratch/stderr"
    [ $? -eq 1 ] && cat "$scratch/stderr" && grep -F "$scratch/foreign" "$scratch/stderr" |
        grep 'ashlar-train --save'
}

# Sizes from the shapes alone, names by --map.
a_state_dict_is_read() {
    other state_dict "$file" "$scratch/dict" || return
    timeout 60 "$sample" --model "$scratch/dict" --bytes 300 --seed 5 --map module.head.=- \
        --map module.= </dev/null >"$scratch/b" && writes_text "$file" | cmp - "$scratch/b" || return
    ! writes_text "$scratch/dict" 2>"$scratch/stderr" && cat "$scratch/stderr" &&
        grep "no matrix 'lstm.weight_hh_l0', nor one of gru" "$scratch/stderr"
}

# A rate of nearly 0 leaves the weights as they began; another width begins layers anew.
weights_begin_a_training() {
    small --steps 1 --learning-rate 1e-12 --weight-decay 0 --dtype f64 --save "$scratch/begun" \
        --init "$scratch/dict" --map module.= && writes_text "$scratch/begun" >"$scratch/a" &&
        writes_text "$file" | cmp - "$scratch/a" || return
    timeout 60 "$train" --data "$data" --device soft --layers 1 --hidden 12 --embedding 5 --steps 1 \
        --sample 0 --init "$scratch/dict" --map module.= >"$scratch/stdout" &&
        grep -F -e --init "$scratch/stdout" && [ "$(grep -c -F -e --init "$scratch/stdout")" -eq 3 ] &&
        grep "dict: 5 tensors, 0 of them converted" "$scratch/stdout" &&
        grep "not of this model: 'module.lstm.weight_ih_l1' and 4 more$" "$scratch/stdout" &&
        grep "another shape: 'module.embedding.weight' and 1 more; begun anew" "$scratch/stdout"
}

refuses_to_begin() { # STATUS WORD OPTION...
    want=$1
    word=$2
    shift 2
    small --steps 1 "$@" 2>"$scratch/stderr"
    [ $? -eq "$want" ] && cat "$scratch/stderr" && [ "$(wc -l <"$scratch/stderr")" -eq 1 ] &&
        grep -qF -e "$word" "$scratch/stderr"
}

check 'a_training_is_saved' small --steps 20 --save "$file"
check 'a_file_of_another_writer_is_read' a_foreign_file_is_read F32
check 'weights_alone_cannot_be_resumed' refuses_to_resume_a_foreign_file
check 'a_state_dict_of_pytorch_is_read' a_state_dict_is_read
check 'weights_of_another_program_begin_a_training' weights_begin_a_training
check 'none_that_fits_is_refused' refuses_to_begin 1 "has none of this model's tensors" \
    --init "$scratch/dict"
check 'init_and_resume_are_refused' refuses_to_begin 2 'leave out one of them' --init "$file" \
    --resume "$file"
check 'a_map_of_no_file_is_refused' refuses_to_begin 2 'name it with --init' --map a=b
check 'a_map_of_one_name_is_refused' refuses_to_begin 2 'no OLD=NEW' --init "$file" --map a

# --- the loss on what was held out ----------------------------------------------------------------

others_compute_the_held_out_loss() { # OPTION...
    small --steps 30 --held-out 20 --json "$scratch/report" --save "$scratch/tested" "$@" &&
        json_holds "$scratch/report" 'r["held_out_driver_calls"] == 0 and
            r["driver_calls_after_warmup"] == 0' &&
        other held_out "$scratch/tested" "$scratch/report" "$data" 20 48
}

check 'others_compute_the_held_out_loss' others_compute_the_held_out_loss
check 'also_of_one_in_parts_and_pieces' others_compute_the_held_out_loss --batch 8 --accumulate 2 \
    --bptt 20 --stride 30 --dropout 0.2

# --- going on -------------------------------------------------------------------------------------

goes_on() { # OPTION...: for all of the trainings
    small --steps 40 --losses "$scratch/all" --save "$scratch/whole" "$@" &&
        small --steps 20 --losses "$scratch/head" --save "$scratch/half" "$@" &&
        small --steps 40 --losses "$scratch/tail" --save "$scratch/end" --resume "$scratch/half" \
            --json "$scratch/report" "$@" || return
    [ "$(wc -l <"$scratch/all")" -eq 40 ] && [ "$(wc -l <"$scratch/tail")" -eq 20 ] || return
    cat "$scratch/head" "$scratch/tail" | cmp - "$scratch/all" &&
        cmp "$scratch/end" "$scratch/whole" &&
        json_holds "$scratch/report" 'r["steps"] == 20 and r["resumed"] == 20 and
            r["driver_calls_after_warmup"] == 0 and r["epochs"] > 0.5'
}

goes_on_in_adversarial_mode() {
    (ASHLAR_SOFT=mode=adversarial,seed=4 && export ASHLAR_SOFT && goes_on --threads 1)
}

# Text of an odd number of pieces, of which forty steps are several epochs.
goes_on_over_epochs() {
    head -n 61 "$data" >"$scratch/odd.txt" && data=$scratch/odd.txt && goes_on --threads 1 &&
        json_holds "$scratch/report" 'r["sequences"] % 2 == 1 and r["epochs"] > 2'
    got=$?
    data=$scratch/data.txt
    return "$got"
}

check 'steps_go_on_when_an_epoch_ends_in_between' goes_on_over_epochs
check 'also_in_adversarial_mode' goes_on_in_adversarial_mode
check 'forty_steps_are_twenty_and_twenty_more' goes_on --threads 1

# Only the data and the number of steps are said again.
goes_on_by_the_file_alone() { # DATA OPTION...
    text=$1
    shift
    set -- --device soft --data "$text" --quiet --batch 6 --hidden 10 --seed 5 --clip 0.5 "$@"
    "$train" "$@" --steps 8 --save "$scratch/whole" && "$train" "$@" --steps 4 \
        --save "$scratch/part" && "$train" --device soft --data "$text" --quiet --steps 8 \
        --resume "$scratch/part" --save "$scratch/end" && cmp "$scratch/end" "$scratch/whole"
}

check 'the_file_has_the_options_of_its_training' goes_on_by_the_file_alone "$data" --layers 2 \
    --cell gru --dropout 0.25 --embedding 7 --max-length 40 --stride 20 --accumulate 2 --bptt 16 \
    --recompute 4 --optimizer sgd --learning-rate 0.05 --weight-decay 0.01 --no-bias-decay \
    --momentum 0.5 --nesterov --schedule step --rate-every 3 --rate-factor 0.5 --warmup-steps 2

refuses() { # WORD OPTION...
    word=$1
    shift
    small --resume "$scratch/half" --steps 30 "$@" 2>"$scratch/stderr"
    got=$?
    cat "$scratch/stderr"
    [ "$got" -eq "${status:-1}" ] && [ "$(wc -l <"$scratch/stderr")" -eq 1 ] &&
        grep -F "$scratch/half" "$scratch/stderr" | grep -qF -e "$word"
}

printf 'Another text.\n' >"$scratch/other.txt"
check 'another_text_is_refused' refuses 'ashlar.text' --data "$scratch/other.txt"
status=2 check 'no_more_steps_are_refused' refuses '--steps' --steps 20

# --- killed ---------------------------------------------------------------------------------------

# Not through timeout(1), which would be killed in the training's place. Sets $child.
start() { # OPTION...
    "$train" --data "$data" --device soft --layers 2 --hidden 12 --embedding 6 --batch 7 \
        --max-length 48 --seed 3 --quiet --steps 120 --save "$scratch/killed" --save-every 1 \
        "$@" </dev/null 2>"$scratch/stderr" &
    child=$!
}

# Kill it while it saves after every step, resume it, and so on; then let it end. The pauses only
# spread the moments: none of them is judged.
is_killed_again_and_again() {
    start
    kills=0
    got=128
    for pause in 0.05 0.27 0.13 0.35 0.21 0.29 0.09 0.33; do
        sleep "$pause"
        kill -9 "$child"
        wait "$child"
        got=$?
        [ "$got" -ge 128 ] || break # it has ended before
        kills=$((kills + 1))
        left=$(find "$scratch" -name 'killed.*.tmp' | wc -l)
        [ "$left" -le "$kills" ] || complain "$left temporaries of $kills kills" || return
        if [ -e "$scratch/killed" ]; then
            start --resume "$scratch/killed"
        else
            start
        fi
    done
    if [ "$got" -ge 128 ]; then
        wait "$child"
        got=$?
    fi
    echo "$kills kills, status $got"
    # Killed between its last save and its end, it has no step left.
    [ "$got" -eq 0 ] || grep 'done already' "$scratch/stderr" || return
    [ "$kills" -ge 1 ] || complain 'it was too fast to be killed' || return
    small --steps 120 --save "$scratch/whole" && cmp "$scratch/killed" "$scratch/whole"
}

check 'a_training_that_is_killed_again_and_again_ends_as_any_other' is_killed_again_and_again
check_report
