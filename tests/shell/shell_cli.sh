#!/bin/sh
#
# shell_cli.sh - what ashlar-train says to bad input: one line on stderr that names the thing,
# status 2 for usage (options, environment), 1 for the rest, and no file left behind.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

data=$scratch/data.txt
json=$scratch/out.json
save=$scratch/weights.safetensors
write_text "$data"
: >"$scratch/empty.txt"

# Run ashlar-train with a small model; expect STATUS and one line with each of WORDS (a list).
refuses() { # STATUS WORDS OPTION...
    status=$1 words=$2
    shift 2
    timeout 60 "$train" --layers 1 --hidden 16 --batch 2 --max-length 32 --steps 2 \
        --json "$json" --save "$save" "$@" >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
    got=$?
    cat "$scratch/stderr"
    left=$(find "$scratch" -name '*.json*' -o -name '*.safetensors*')
    rm -f "$json" "$save"
    [ "$got" -eq "$status" ] || complain "status $got, want $status" || return
    [ "$(wc -l <"$scratch/stderr")" -eq 1 ] || complain "not one line on stderr" || return
    for word in $words; do
        grep -qiF -e "$word" "$scratch/stderr" || complain "stderr lacks '$word'" || return
    done
    [ -z "$left" ] || complain "left behind: $left"
}

refuses_environment() { # VARIABLE=VALUE STATUS WORDS OPTION...
    setting=$1
    shift
    (export "${setting?}" && refuses "$@")
}

# The control: the same command line without the fault is accepted, so it is the fault that the
# cases below find.
accepts() {
    timeout 60 "$train" --layers 1 --hidden 16 --batch 2 --max-length 32 --steps 2 \
        --json "$json" --save "$save" --data "$data" && [ -s "$json" ] && [ -s "$save" ]
    got=$?
    rm -f "$json" "$save"
    return $got
}

helps() {
    "$train" --help >"$scratch/help" 2>"$scratch/stderr" || return
    cat "$scratch/stderr"
    [ ! -s "$scratch/stderr" ] || return
    lines=$(wc -l <"$scratch/help")
    [ "$lines" -ge 12 ] && [ "$lines" -le 66 ] || complain "$lines lines" || return
    wide=$(awk 'length > 80' "$scratch/help")
    [ -z "$wide" ] || complain "wider than 80 columns: $wide" || return
    for option in --data --steps --cell --layers --projection --dropout --hidden --embedding \
        --batch --max-length --accumulate --bptt --recompute --memory --seed --optimizer \
        --learning-rate --no-bias-decay --momentum --nesterov --loss-scale --schedule --warmup-steps --rate-floor --rate-every \
        --rate-factor --clip --buckets --no-plan --device --json --save --save-every \
        --fit --vary --version --resume --losses --snapshot --sample --verify --algorithm --tf32 --html --quiet --help; do
        grep -q -e "$option" "$scratch/help" || complain "lacks $option" || return
    done
}

absent=$scratch/absent
check 'a_cell_that_there_is_not_is_refused' \
    refuses 2 'none of lstm, gru, tanh, relu' --data "$data" --cell LSTMP
check 'a_projection_of_another_cell_is_refused' \
    refuses 2 '--projection: 3' --data "$data" --cell gru --projection 3
check 'to_drop_everything_is_refused' refuses 2 '--dropout' --data "$data" --dropout 1
check 'to_drop_between_no_layers_is_refused' refuses 2 '--dropout and --layers 1' --data "$data" \
    --layers 1 --dropout 0.5
check 'the_same_options_without_a_fault_are_accepted' accepts
check 'a_missing_data_file_is_named' refuses 1 "$absent" --data "$absent"
check 'one_file_for_json_and_save_is_refused' \
    refuses 2 "$scratch/both" --data "$data" --json "$scratch/both" --save "$scratch/both"
check 'json_over_the_text_is_refused' refuses 2 "$data" --data "$data" --json "$data"
check 'json_into_a_missing_folder_is_refused_at_once' \
    refuses 1 "$absent/out.json" --data "$data" --json "$absent/out.json" --steps 1000000
check 'resuming_a_missing_file_is_refused' \
    refuses 1 "$absent" --data "$data" --resume "$absent"
check 'resuming_what_is_no_training_is_refused' refuses 1 "$data" --data "$data" --resume "$data"
check 'a_batch_that_is_no_number_is_usage' refuses 2 '--batch 8x' --data "$data" --batch 8x
check 'a_batch_that_cannot_be_divided_is_usage' \
    refuses 2 '--accumulate: 3 does not divide the 2' --data "$data" --accumulate 3
check 'to_recompute_a_word_is_usage' refuses 2 'neither auto' --data "$data" --recompute much
check 'a_learning_rate_that_is_not_finite_is_usage' \
    refuses 2 '--learning-rate' --data "$data" --learning-rate nan
check 'an_option_without_its_value_is_named' refuses 2 '--seed' --data "$data" --seed
check 'a_stray_word_is_named' refuses 2 'stray' --data "$data" stray
check 'an_unknown_device_is_named' refuses 2 'abacus' --data "$data" --device abacus
check 'a_bad_ASHLAR_DEVICE_is_named' \
    refuses_environment ASHLAR_DEVICE=abacus 2 'ASHLAR_DEVICE abacus' --data "$data"
check 'a_bad_ASHLAR_SOFT_is_named' \
    refuses_environment ASHLAR_SOFT=memory=lots 2 'ASHLAR_SOFT' --data "$data" --device soft
check 'more_memory_than_the_device_has_is_said' \
    refuses_environment ASHLAR_SOFT=memory=16MiB 1 'memory' --data "$data" --device soft \
    --layers 2 --hidden 1024

saves_nowhere() { # without the --save of `refuses`
    "$train" --data "$data" --steps 2 --save-every 1 2>"$scratch/stderr"
    [ $? -eq 2 ] && grep -q -e '--save-every: .*--save' "$scratch/stderr"
}
check 'saving_every_so_often_needs_a_file' saves_nowhere

# ---- what all programs have ----

sample=$ASHLAR_BUILD/rnn/ashlar-sample bench=$ASHLAR_BUILD/bench/ashlar-bench
replay=$ASHLAR_BUILD/bench/ashlar-replay
programs="$train $sample $bench $replay"

all_say_their_version() {
    version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" "$ASHLAR_SOURCE/meson.build")
    for program in $programs "$ASHLAR_SOURCE/run"; do
        [ "$("$program" --version)" = "${program##*/} (ashlar) $version" ] || complain "$program"
    done
}

# The same mistake, the same status; each line names the word.
all_refuse_alike() {
    for program in $programs; do
        for mistake in --no-such-option --json --device=abacus; do
            case $program$mistake in */ashlar-replay--device*) continue ;; esac
            set -- "$program" "$mistake"
            case $program in
            */ashlar-train) set -- "$@" --data "$data" ;;
            */ashlar-sample) set -- "$@" --model "$data" ;;
            esac
            [ "$mistake" != --json ] || set -- "$program" --json
            "$@" >/dev/null 2>"$scratch/stderr"
            [ $? -eq 2 ] && grep -q -e "${mistake#--device=}" "$scratch/stderr" ||
                complain "$*: $(cat "$scratch/stderr")" || return
        done
    done
}

reports_into_a_pipe() {
    mkfifo "$scratch/pipe" && cat "$scratch/pipe" >"$scratch/report" &
    while [ ! -p "$scratch/pipe" ]; do sleep 0.1; done
    "$replay" --pack "$scratch/two.csv" --json "$scratch/pipe" >/dev/null && wait &&
        [ -p "$scratch/pipe" ] && json_holds "$scratch/report" 'r["plan_bytes"] == 150'
}

completes() { # PROGRAM WORD...: what bash would offer for the last word
    program=$1
    shift
    "$program" --completion >"$scratch/completion" || return
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "$(complete -p "$1" | sed "s/.*-F \([^ ]*\).*/\1/")"; echo "${COMPREPLY[*]}"' - \
        "$scratch/completion" "${program##*/}" "$@"
}

completes_options() {
    [ "$(completes "$train" --ste)" = --steps ] && [ "$(completes "$train" --cell g)" = gru ] &&
        [ "$(completes "$train" --dtype = b)" = bf16 ] && [ -z "$(completes "$train" --steps 1)" ] &&
        [ "$(completes "$replay" --json "$scratch/two")" = "$scratch/two.csv" ] &&
        [ "$(completes "$bench" --vers)" = --version ]
}

printf 'id,lower,upper,size\n1,0,2,100\n2,1,3,50\n' >"$scratch/two.csv"
fits() {
    "$train" --data "$data" --fit 24MiB --vary length --json "$scratch/fit" --batch 8 \
        >"$scratch/stdout" || return
    length=$(sed -n 's/^--max-length \([0-9]*\) needs .* of 24.00 MiB; .*/\1/p' "$scratch/stdout")
    [ "$length" -gt 0 ] && grep -q 'cuDNN .* estimate' "$scratch/stdout" &&
        json_holds "$scratch/fit" "r['schema'] == 'ashlar-fit/1' and r['value'] == $length and
            r['need_bytes'] <= r['device_bytes'] == 24 << 20"
}
check 'a_size_that_is_none_is_usage' refuses 2 '--fit' --data "$data" --fit 24
check 'a_size_that_holds_nothing_is_told' \
    refuses 1 'not even --batch 1 runs in 2MiB' --data "$data" --hidden 512 --fit 2MiB
check 'no_training_is_no_training_to_fit' \
    refuses 1 'cannot read /nowhere' --data "$data" --fit 24MiB --resume /nowhere
check 'what_would_help_is_said_where_memory_runs_out' \
    refuses_environment ASHLAR_SOFT=memory=16MiB 1 'needs --memory auto' --data "$data" \
    --device soft --layers 2 --hidden 1024
check 'the_largest_length_that_fits_is_printed' fits
check 'every_program_says_its_version' all_say_their_version
check 'every_program_refuses_alike' all_refuse_alike
check 'a_report_goes_into_a_pipe' reports_into_a_pipe
check 'bash_completes_options_and_their_words' completes_options
check 'help_is_short_and_names_every_option' helps
check_report
