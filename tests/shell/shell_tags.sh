#!/bin/sh
#
# shell_tags.sh - the tagger from the outside: its column files, what it learns, what it takes.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

make_tags=$ASHLAR_SOURCE/rnn/data/make_tags.sh
data=$scratch/tags.txt
report=$scratch/report.json

# A small tagger, trained; options of the caller's come last and decide.
trains() { # OPTION...
    timeout 120 "$train" --model tagger --data "$data" --device soft --steps 100 --batch 16 \
        --embedding 16 --hidden 32 --char-embedding 16 --char-hidden 24 --learning-rate 0.01 \
        --json "$report" "$@" </dev/null
}

learns() { # OPTION...
    trains --quiet "$@" && json_holds "$report" \
        'r["held_out_right"] > 0.95 * r["held_out_words"] > 1000 and
        r["driver_calls_after_warmup"] == 0 and r["held_out_driver_calls"] == 0 and
        r["plan_misses"] == 0 and r["weights_contiguous"]'
}

# --- the generator ---

makes_columns() {
    "$make_tags" 2000 7 >"$data" || return
    sentences=$(grep -c '^$' "$data")
    [ "$sentences" -eq 2000 ] || complain "$sentences sentences" || return
    ! grep -v '^$' "$data" | grep -qvE '^([a-z]+|[.?])	[A-Z]+$' || complain 'an odd line'
}
check 'the_generator_writes_words_tags_and_blank_lines' makes_columns

generator_refuses() {
    for words in '' 'x' '5 x' '-3'; do
        # shellcheck disable=SC2086 # several words
        "$make_tags" $words >"$scratch/out" 2>"$scratch/err"
        [ $? -eq 2 ] && [ -s "$scratch/err" ] && [ ! -s "$scratch/out" ] ||
            complain "'$words'" || return
    done
}
check 'it_refuses_what_is_no_number' generator_refuses

# --- training ---

check 'it_labels_what_it_has_not_seen' learns
check 'it_learns_with_labels_fed_back' learns --feed-labels

tells() { # TEXT...: what is printed has them
    trains >"$scratch/out" || return
    for text in "$@"; do
        grep -qF -e "$text" "$scratch/out" || complain "lacks '$text'" || return
    done
}
check 'it_tells_what_it_did_and_needed' tells 'in 2000 sentences, 200 of these for the test' \
    'nats per word' 'Needed: ' 'Measured: ' 'words with spellings' 'got the right label: 9' \
    'for memory, streams or attributes 0 times'

resumes() {
    trains --quiet --steps 30 --losses "$scratch/whole" &&
        trains --quiet --steps 20 --losses "$scratch/head" --save "$scratch/saved" &&
        trains --quiet --steps 30 --losses "$scratch/tail" --resume "$scratch/saved" &&
        cat "$scratch/head" "$scratch/tail" | cmp - "$scratch/whole"
}
check 'it_goes_on_with_a_file_as_if_it_had_not_stopped' resumes

# --- the reported case: 96 words, 25 sentences, 17 characters; 6.5 GB elsewhere ---

reported_case() {
    awk 'BEGIN {
        for (i = 0; i < 50; i++) {
            for (t = 0; t < 95; t++) {
                state = (state * 16807 + 11) % 2147483647
                printf "%s%d\tT%d\n", substr("aaaaaaaaaaa", 1, t % 12), state % 99999, t % 45
            }
            print "aaaaaaaaaaaaaaaaa\tT1\n"
        }
    }' >"$scratch/big.txt"
    timeout 200 "$train" --model tagger --data "$scratch/big.txt" --device soft --steps 1 \
        --batch 25 --embedding 200 --char-embedding 50 --char-hidden 100 --hidden 200 \
        --json "$report" --quiet "$@" && json_holds "$report" \
        'r["max_length"] == 96 and r["reserved_peak_bytes"] <= 1.05 * r["needed_bytes"] and
        r["reserved_peak_bytes"] < 400e6 and r["driver_calls_after_warmup"] == 0'
}
check 'the_reported_case_takes_what_it_needs_and_less_than_400_mb' reported_case

# --- what is refused ---

fails_with() { # STATUS TEXT OPTION...
    want=$1
    text=$2
    shift 2
    timeout 60 "$train" --model tagger --device soft --quiet "$@" >"$scratch/out" 2>&1 </dev/null
    got=$?
    cat "$scratch/out"
    [ "$got" -eq "$want" ] && [ "$(wc -l <"$scratch/out")" -eq 1 ] &&
        grep -qF -e "$text" "$scratch/out"
}

printf 'a\tX\nb\n' >"$scratch/no_tab"
check 'a_bad_line_is_named' fails_with 1 'no_tab:2: no TAB' --data "$scratch/no_tab"
printf 'a\tX\n\t\tX\n' >"$scratch/two_tabs"
check 'a_long_word_names_its_option' fails_with 1 '--max-word' --data "$data" --max-word 3
check 'a_sample_is_of_a_text' fails_with 2 '--sample: it is for --model text' --data "$data" \
    --sample 100
check 'an_unknown_model_is_refused' fails_with 2 'neither text nor tagger' --data "$data" \
    --model=poet

text_refuses() { # OPTION...
    timeout 60 "$train" --data "$data" --quiet "$@" >"$scratch/out" 2>&1 </dev/null
    [ $? -eq 2 ] && grep -qF -e "$1: it is for --model tagger only" "$scratch/out" ||
        complain "$(cat "$scratch/out")"
}
check 'a_text_has_no_labels_to_feed' text_refuses --feed-labels

check_report
