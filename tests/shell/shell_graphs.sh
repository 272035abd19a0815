#!/bin/sh
#
# shell_graphs.sh - steps that are one launch, from the outside: three calls of the driver, and to the
# bit the losses and the weights of steps that are queued call by call.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

data=$scratch/data.txt
write_text "$data"

text() { # NAME OPTION...
    name=$1
    shift
    timeout 120 "$train" --data "$data" --device soft --steps 20 --layers 2 --hidden 24 --batch 4 \
        --max-length 48 --seed 7 --json "$scratch/$name.json" --save "$scratch/$name.safetensors" \
        --losses "$scratch/$name.losses" --sample 0 "$@" </dev/null
}

same_bits() { # NAME NAME
    cmp "$scratch/$1.losses" "$scratch/$2.losses" &&
        cmp "$scratch/$1.safetensors" "$scratch/$2.safetensors"
}

holds() { # PYTHON-EXPRESSION over r, the report of the steps that are launched
    json_holds "$scratch/launched.json" "$1"
}

is_launched() { # OPTION...
    text queued --quiet --pad "$@" && text launched --quiet --graphs "$@" || return
    same_bits queued launched || return
    holds 'r["driver_calls_per_step"] <= 3 and r["driver_calls_after_warmup"] == 0 and
        r["steps_launched"] == 20 and r["steps_padded_eager"] == 0 and
        r["graphs_refused_because"] == "" and r["plan_misses"] == 0 and r["steady"]'
}

check 'an_lstm_is_launched' is_launched
check 'a_gru_is' is_launched --cell gru
check 'in_several_pieces' is_launched --accumulate 2
check 'with_all_of_these' is_launched --bptt 11 --accumulate 2 --recompute 4 \
    --dropout 0.2 --loss-scale 256

# With a range for each length nothing is padded, and what goes by device memory changes nothing.
without_padding() {
    text plain --quiet --dropout 0.2 &&
        text launched --quiet --dropout 0.2 --graphs --buckets 48 &&
        same_bits plain launched && holds 'r["steps_launched"] == 20'
}
check 'without_padding_they_are_the_bits_of_every_training' without_padding

in_another_order() {
    text queued --quiet --pad &&
        (ASHLAR_SOFT=mode=adversarial,seed=3 && export ASHLAR_SOFT && text launched --quiet --graphs) &&
        same_bits queued launched
}
check 'in_any_order_of_the_device_s_work' in_another_order

goes_on() {
    text whole --quiet --graphs && text half --quiet --graphs --steps 9 &&
        text rest --quiet --graphs --resume "$scratch/half.safetensors" &&
        cmp "$scratch/whole.safetensors" "$scratch/rest.safetensors"
}
check 'a_resumed_training_has_the_same_end' goes_on

# --- what cannot be ---

says_why() {
    text launched --graphs --no-plan >"$scratch/stdout" || return
    grep -e '20 steps were queued call by call; the last reason: .*there is no plan' \
        "$scratch/stdout" || complain 'no reason is shown' || return
    holds 'r["steps_launched"] == 0 and r["steps_padded_eager"] == 20 and r["graphs_refused"] == 1 and
        "there is no plan" in r["graphs_refused_because"]'
}
check 'without_a_plan_it_says_why_not' says_why

tells() {
    text launched --graphs >"$scratch/stdout" &&
        grep -e '^A step was 3[.]00 driver calls on average, ' "$scratch/stdout" &&
        grep -e '^20 steps were one launch each' "$scratch/stdout"
}
check 'the_words_tell_the_calls_of_a_step' tells
check_report
