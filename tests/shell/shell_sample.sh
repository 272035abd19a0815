#!/bin/sh
#
# shell_sample.sh - writing text from the outside: no length of it takes memory, whatever the cell;
# the same seed writes the same text; options, their limits and their errors.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

sample=$(dirname "$train")/ashlar-sample
data=$scratch/data.txt
write_text "$data"
model=$scratch/model.safetensors
json=$scratch/report.json

trains() { # OPTION...
    timeout 120 "$train" --data "$data" --device soft --steps 20 --layers 2 --hidden 32 --batch 4 \
        --max-length 64 --learning-rate 0.01 --quiet --save "$model" "$@" </dev/null
}

text() { # FILE OPTION...
    text_file=$1
    shift
    timeout 120 "$sample" --model "$model" --device soft --bytes 300 "$@" >"$text_file" </dev/null
}

# --- memory ---------------------------------------------------------------------------------------

stays_constant() { # OPTION...: of a training
    trains "$@" || return
    text "$scratch/long" --bytes 20000 --json "$json" --top-k 40 --top-p 0.95 || return
    [ "$(wc -c <"$scratch/long")" -ge 20000 ] || complain 'the text is too short' || return
    json_holds "$json" 'r["bytes"] == 20000 and r["bytes_per_s"] > 0 and
        0 < r["live_start_bytes"] == r["live_end_bytes"] <= r["reserved_end_bytes"] and
        r["reserved_end_bytes"] == r["reserved_start_bytes"] and
        r["allocations_after_start"] == 20000 and r["driver_calls_after_start"] == 0 and
        r["wait_calls_after_start"] == 20000'
}

leaves_nothing() {
    (ASHLAR_CONF=leaks=on && export ASHLAR_CONF && text "$scratch/text" --json "$json") \
        2>"$scratch/stderr" || return
    cat "$scratch/stderr"
    [ ! -s "$scratch/stderr" ]
}

check 'no_text_of_a_gru_takes_memory' stays_constant --cell gru
check 'none_of_an_lstm' stays_constant
check 'no_block_is_left_at_the_end' leaves_nothing

# --- which text -----------------------------------------------------------------------------------

same() { # OPTION... -- OPTION...
    first=
    while [ "$1" != -- ]; do
        first="$first $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # words
    text "$scratch/a" $first && text "$scratch/b" "$@" && cmp "$scratch/a" "$scratch/b"
}

other() { # as same
    ! same "$@" && [ -s "$scratch/a" ] && [ -s "$scratch/b" ]
}

check 'a_seed_writes_the_same_text_again' same --seed 5 -- --seed 5
check 'another_seed_writes_another' other --seed 5 -- --seed 6
check 'reporting_changes_no_byte' same --seed 5 -- --seed 5 --json "$json"
check 'temperature_0_needs_no_seed' same --temperature 0 --seed 5 -- --temperature 0 --seed 6
check 'every_symbol_may_be_kept' same --seed 5 -- --seed 5 --top-k 256 --top-p 1
check 'fewer_symbols_write_another_text' \
    other --seed 5 --temperature 1 -- --seed 5 --temperature 1 --top-k 2
check 'temperature_changes_the_text' other --seed 5 -- --seed 5 --temperature 1.5

begins() { # with the words that it was primed with
    text "$scratch/a" --prime Stone || return
    [ "$(head -c 5 "$scratch/a")" = Stone ] || complain 'it does not begin so' || return
    bytes=$(wc -c <"$scratch/a")
    [ "$bytes" -ge 305 ] || complain "$bytes bytes"
}

# Texts of one after the other, and of all at once: the same bytes.
draws_together() { # OPTION...
    : >"$scratch/one_by_one"
    for seed in 5 6 7; do
        [ "$seed" = 5 ] || printf '%%\n' >>"$scratch/one_by_one"
        text "$scratch/a" --seed "$seed" --prime And "$@" || return
        cat "$scratch/a" >>"$scratch/one_by_one"
    done
    text "$scratch/b" --seed 5 --count 3 --prime And --json "$json" "$@" || return
    cmp "$scratch/one_by_one" "$scratch/b" || return
    json_holds "$json" 'r["bytes"] == 900 and r["config"]["count"] == 3 and
        r["wait_calls_after_start"] == 300 and r["driver_calls_after_start"] == 0'
}

takes_any_byte() { # but 0, which no argument can have
    text "$scratch/a" --prime "$(printf 'a\001\377')" --json "$json" || return
    printf 'a\001\377' >"$scratch/b"
    head -c 3 "$scratch/a" | cmp - "$scratch/b" || return
    json_holds "$json" 'r["config"]["prime_bytes"] == 3'
}

reads_bf16() {
    text "$scratch/a" --bf16 --json "$json" && json_holds "$json" 'r["config"]["bf16"] is True' &&
        text "$scratch/a" --json "$json" && json_holds "$json" 'r["config"]["bf16"] is False'
}

check 'a_text_begins_with_its_prime' begins
check 'texts_drawn_together_are_those_drawn_alone' draws_together
check 'with_weights_in_bf16_too' draws_together --bf16
check 'the_report_says_what_was_read' reads_bf16
check 'a_prime_decides_what_follows' other --temperature 0 -- --temperature 0 --prime 'and '
check 'a_file_primes_with_any_byte' takes_any_byte
: >"$scratch/empty"

# --- the command line -----------------------------------------------------------------------------

refuses() { # STATUS WORDS OPTION...
    status=$1 words=$2
    shift 2
    ends_with "$status" "$words" timeout 60 "$sample" "$@"
}

bad() { # OPTION VALUE
    refuses 2 "$1: \"$2\" from" --model "$model" "$1" "$2"
}

helps() {
    "$sample" --help >"$scratch/help" 2>&1 || return
    wide=$(awk 'length > 80' "$scratch/help")
    [ -z "$wide" ] || complain "wider than 80 columns: $wide" || return
    for option in --model --bytes --temperature --top-k --top-p --prime --seed \
        --count --bf16 --device --json -h, --version; do
        grep -q -e "^  $option " "$scratch/help" || complain "lacks $option" || return
    done
}

unharmed() { # the model
    again=$scratch/./model.safetensors
    cp "$model" "$scratch/copy" &&
        refuses 2 "--json --model $again" --model "$model" --json "$again" &&
        cmp "$model" "$scratch/copy"
}

ends_early() { # with its reader, however long the text would be
    (
        timeout 60 "$sample" --model "$model" --bytes 1000000000000 2>"$scratch/stderr"
        echo $? >"$scratch/status"
    ) | head -c 10 >/dev/null
    [ "$(cat "$scratch/status")" -eq 1 ] || complain "status $(cat "$scratch/status")" || return
    [ "$(wc -l <"$scratch/stderr")" -eq 1 ] && grep 'could not be written' "$scratch/stderr"
}

check 'the_help_has_every_option' helps
check 'a_model_must_be_named' refuses 2 '--model --save'
check 'a_negative_temperature_is_refused' bad --temperature -0.1
check 'one_above_100_is_refused' bad --temperature 101
check 'a_share_of_0_is_refused' bad --top-p 0
check 'a_report_over_the_model_is_refused' unharmed
check 'a_report_into_a_missing_folder_is_refused_at_once' refuses 1 "$scratch/absent" \
    --model "$model" --bytes 1000000000000 --json "$scratch/absent/report.json"
check 'a_text_ends_with_its_reader' ends_early
check_report
