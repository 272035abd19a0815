#!/bin/sh
#
# shell_bench_all.sh - one call measures every group, and leaves a folder that says what, where and
# where we lose. No timing is judged.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

unset MALLOC_PERTURB_ # as in shell_bench.sh

all=$ASHLAR_SOURCE/bench/all.sh
bench=$ASHLAR_BUILD/bench/ashlar-bench
report=$ASHLAR_SOURCE/bench/report.py
folder=$scratch/results
groups=$("$bench" --help | sed -n '1s/.*\[\([a-z|]*\)\].*/\1/p' | tr '|' ' ')

smoke_run() {
    "$all" "$bench" --smoke --device=soft --peer "$ASHLAR_BUILD/tests/stone.so" --out "$folder" \
        >"$scratch/printed" || return
    for group in alloc plan arena; do
        case " $groups " in *" $group "*) ;; *) complain "no group $group" || return ;; esac
    done
    grep -q '^== alloc ==$' "$scratch/printed" && grep -q ' x floor ' "$scratch/printed"
}

folder_is_complete() {
    for group in $groups; do
        sed -n "/^== $group ==\$/,/^== /{/^== /!p;}" "$scratch/printed" |
            sed '/^results, and a page/d' | diff -B "$folder/$group.txt" - || return
        python3 "$ASHLAR_SOURCE/tests/check_page.py" "$folder/report.html" \
            "d['groups']['$group'] == load('$folder/$group.json') and
            d['printed']['$group'] == open('$folder/$group.txt').read()" || return
    done
    python3 "$ASHLAR_SOURCE/tests/check_page.py" "$folder/report.html" "d['machine']['smoke'] and
        'stone' in {row['subject'] for row in d['groups']['alloc']['rows']}"
}

machine_is_named() {
    json_holds "$folder/machine.json" \
        'r["smoke"] is True and r["cores"] > 0 and len(r["date"]) == 10 and "device" in r'
}

# The same files make the same page.
report_is_deterministic() {
    cp -r "$folder" "$scratch/again"
    rm "$scratch/again/report.html"
    "$report" "$scratch/again" && diff -r "$folder" "$scratch/again" &&
        "$report" "$folder" --html "$scratch/other.html" &&
        cmp "$scratch/other.html" "$folder/report.html"
}

# A folder without results, and a file that is no JSON.
report_names_what_is_wrong() {
    mkdir "$scratch/empty" && echo '{}' >"$scratch/empty/machine.json" || return
    ends_with 1 'no results' "$report" "$scratch/empty" || return
    echo '{"rows": ' >"$scratch/empty/plan.json"
    ends_with 1 'empty' "$report" "$scratch/empty" && [ ! -e "$scratch/empty/report.html" ]
}

# A program that measures little, and of arenas does WORDS instead.
stand_in() { # NAME WORDS
    cat >"$scratch/$1" <<END
#!/bin/sh
case \$1 in
arena) $2 ;;
alloc) [ "\$2" = --pairs ] || set -- "\$@" --workload random ;;
plan) set -- "\$@" --workload rnn_step/1 ;;
rnn) set -- "\$@" --workload lstm_T20_B8_H64_L2 ;;
esac
exec "$bench" "\$@"
END
    chmod +x "$scratch/$1"
}

# The others are there, and the page says what is not, without the places of this machine.
measures_what_it_can() {
    stand_in partly "echo 'ashlar-bench: $scratch/no stones in $ASHLAR_SOURCE/a/b' >&2; exit 1"
    "$all" "$scratch/partly" --out="$scratch/part" --smoke --device soft >/dev/null \
        2>"$scratch/stderr"
    [ $? -eq 1 ] && grep -q 'no stones' "$scratch/stderr" && [ -e "$scratch/part/plan.json" ] &&
        [ ! -e "$scratch/part/arena.txt" ] && [ ! -e "$scratch/part/arena.json" ] &&
        python3 "$ASHLAR_SOURCE/tests/check_page.py" "$scratch/part/report.html" \
            "d['ran'] == 'arena: could not: ashlar-bench: no stones in a/b\\n'"
}

refuses_a_bad_peer_first() {
    ends_with 2 '"free"' "$all" "$bench" --smoke --device soft --out "$scratch/none" \
        --peer "$ASHLAR_BUILD/tests/half.so" && [ ! -e "$scratch/none" ]
}

check 'a_smoke_run_measures_every_group' smoke_run
check 'the_folder_is_complete' folder_is_complete
check 'the_machine_is_named' machine_is_named
check 'what_cannot_be_measured_is_told' measures_what_it_can
check 'the_same_files_make_the_same_page' report_is_deterministic
check 'what_is_no_result_is_named' report_names_what_is_wrong
check 'a_bad_peer_is_refused_before_anything_is_measured' refuses_a_bad_peer_first
check_report
