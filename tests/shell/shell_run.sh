#!/bin/sh
#
# shell_run.sh - what `run` does where something is missing, on a machine made of stand-ins: the
# only programs on PATH are those listed here, and what apt-get is asked for is written down.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

tree=$scratch/tree
bin=$scratch/bin
shelf=$scratch/shelf           # what is not installed
asked=$scratch/asked           # what apt-get and sudo were asked for
configured=$scratch/configured # a line for each time that Meson configured
tested=$scratch/tested         # a line for each time that Meson tested
built=$scratch/built           # a line for each time that ninja built
python=$(python3 -c 'import sys; print(sys.executable)')
mkdir "$tree"

# What ninja's stand-in builds: it prints its arguments, and whether it was given the lock, which a
# long training must not hold.
cat >"$scratch/program" <<'END'
#!/bin/sh
printf '<%s>' train "$@"
[ ! -e /proc/self/fd/9 ] || echo locked
END
chmod +x "$scratch/program"

# Likewise what measures all: its arguments without the program's path.
cat >"$scratch/all" <<'END'
#!/bin/sh
program=${1##*/}
shift
printf '<%s>' all "$program" "$@"
[ ! -e /proc/self/fd/9 ] || echo locked
END
chmod +x "$scratch/all"

# Of a build of three tests: what Meson tells of them.
mkdir "$scratch/info"
echo '{"directories": {"build": "/b"}}' >"$scratch/info/meson-info.json"
cat >"$scratch/info/intro-targets.json" <<'END'
[{"id": "1", "filename": ["/b/tests/test_slab"]}, {"id": "2", "filename": ["/b/tests/test_race"]},
 {"id": "3", "filename": ["/b/tests/test_long"]}, {"id": "4", "filename": ["/b/libcuda.so.1"]}]
END
cat >"$scratch/info/intro-tests.json" <<'END'
[{"suite": ["ashlar:unit"], "depends": ["1"]},
 {"suite": ["ashlar:unit", "ashlar:threads"], "depends": ["2", "4"]},
 {"suite": ["ashlar:unit", "ashlar:stress"], "depends": ["3"]}]
END

stand_in() { # NAME SCRIPT
    rm -f "$bin/$1"
    printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}

# A machine with everything installed, for the user with this number.
machine() { # USER-NUMBER
    rm -rf "$bin" "$shelf" "$tree/build"
    mkdir "$bin" "$shelf"
    : >"$asked"
    : >"$configured"
    : >"$tested"
    : >"$built"
    mkdir -p "$tree/bench" "$tree/tests" "$tree/tools" && cp "$scratch/all" "$tree/bench/all.sh"
    cp "$ASHLAR_SOURCE/run" "$tree"
    cp "$ASHLAR_SOURCE/tools/set_up.sh" "$tree/tools"
    cp "$ASHLAR_SOURCE"/tests/*.sh "$ASHLAR_SOURCE/tests/count_cases.py" \
        "$ASHLAR_SOURCE/tests/test_targets.py" "$tree/tests"
    cp -R "$ASHLAR_SOURCE/tests/native" "$tree/tests"
    for tool in sh awk cat chmod cp dirname env find flock grep head mkdir nproc readlink rm; do
        ln -s "$(command -v $tool)" "$bin/$tool"
    done
    stand_in id "case \$1 in -un) echo user ;; *) echo $1 ;; esac"
    stand_in cc 'exit 0'
    stand_in pkg-config 'exit 0'
    stand_in dpkg-query 'exit 1'
    stand_in apt-get "echo apt-get \"\$*\" >>'$asked'
        case \" \$* \" in *' install '*) cp -P '$shelf'/* '$bin' ;; esac"
    stand_in python3 "exec '$python' \"\$@\""
    stand_in meson "case \$1 in
        --version) echo 1.0.1 ;;
        setup)
            echo \"CC=\$CC \$*\" >>'$configured'
            for word; do case \$word in */build/* | */build-run/*)
                mkdir -p \$word/rnn \$word/bench \$word/meson-logs && : >\$word/build.ninja
                mkdir -p \$word/meson-info && cp '$scratch'/info/* \$word/meson-info ;; esac; done ;;
        test)
            echo \"all=\${ASHLAR_TEST_SLOW-} \$*\" >>'$tested'
            cp '$scratch/testlog.json' \$3/meson-logs
            exit \$(cat '$scratch/status') ;;
        esac"
    stand_in ninja "echo \"\$*\" >>'$built'
        cp '$scratch/program' \$2/rnn/ashlar-train
        cp '$scratch/program' \$2/bench/ashlar-bench"
}

lacks() { # TOOL...
    for tool in "$@"; do
        mv "$bin/$tool" "$shelf/$tool"
    done
}

# Give the machine's `run` a folder as its training text.
text_is() { # FOLDER
    sed "s|^text=[^ ]*|text=$1|" "$ASHLAR_SOURCE/tools/set_up.sh" >"$tree/tools/set_up.sh"
}

runs() { # STATUS ARGUMENT...
    status=$1
    shift
    env -i PATH="$bin" /bin/sh "$tree/run" "$@" >"$scratch/stdout" 2>"$scratch/stderr"
    got=$?
    cat "$scratch/stdout" "$scratch/stderr"
    [ "$got" -eq "$status" ] || complain "status $got, want $status"
}

says() { # FILE WORD...
    file=$scratch/$1
    shift
    for word in "$@"; do
        grep -qF -e "$word" "$file" || complain "no '$word' in $file" || return
    done
}

prints_usage() {
    runs 0 && says stdout 'usage: ./run' && runs 0 help && says stdout 'usage: ./run' &&
        [ "$(wc -l <"$scratch/stdout")" -le 24 ]
}

refuses_unknown_word() {
    runs 2 frobnicate && says stderr frobnicate 'usage: ./run' && [ ! -s "$scratch/stdout" ]
}

passes_arguments() {
    machine 1000
    runs 0 train --data 'a b' --steps 3 || return
    [ "$(cat "$scratch/stdout")" = '<train><--data><a b><--steps><3>' ] && [ ! -s "$asked" ]
}

# Without a group, and with no other options than it has: all of them.
benches_everything() {
    machine 1000
    while read -r arguments; do
        # shellcheck disable=SC2086 # words
        runs 0 bench $arguments || return
        want="<all><ashlar-bench>$(printf '<%s>' $arguments)"
        [ -n "$arguments" ] || want='<all><ashlar-bench>'
        [ "$(cat "$scratch/stdout")" = "$want" ] || complain "want $want" || return
    done <<END

--smoke
--smoke --device soft --peer=a.so --peer b.so --out here
END
}

configures_once() {
    machine 1000
    runs 0 train --data x && runs 0 train --data x || return
    [ "$(wc -l <"$configured")" -eq 1 ] && [ ! -s "$scratch/stderr" ]
}

# A folder that somebody else configured stays as it is; ours is beside it.
leaves_a_folder_of_another() {
    machine 1000
    mkdir -p "$tree/build/release/rnn" && : >"$tree/build/release/build.ninja"
    runs 0 train --data x && [ "$(find "$tree/build/release" | wc -l)" -eq 3 ] &&
        [ -e "$tree/build/run-release/rnn/ashlar-train" ] || return
    rm "$tree/build/run-release/configured"
    runs 1 train --data x && says stderr 'run-release was not made by ./run: move it away'
}

adds_text() {
    machine 1000
    text_is "$scratch"
    runs 0 train --steps 3 || return
    [ "$(cat "$scratch/stdout")" = "<train><--data><$scratch><--steps><3>" ]
}

starts_ranks() {
    machine 1000
    # shellcheck disable=SC2016 # the stand-in's own $1
    stand_in mpirun 'echo "mpirun $1 $2 root=$OMPI_ALLOW_RUN_AS_ROOT"; shift 2; exec "$@"'
    lacks apt-get
    runs 1 train --ranks 2 --data x && says stderr libopenmpi-dev || return
    stand_in mpicc 'exit 0'
    runs 0 train --steps 3 --ranks 4 --data x || return
    says stdout 'mpirun -n 4 root=1' '<train><--steps><3><--data><x>' || return
    runs 0 train --data x --ranks=2 && says stdout 'mpirun -n 2 root=1' '<train><--data><x>' || return
    runs 2 train --ranks --data x && says stderr "'--data'" || return
    runs 2 train --data x --ranks && says stderr --ranks
}

installs_as_root() {
    machine 0
    lacks ninja
    runs 0 train --data x || return
    says stderr 'installing: ninja-build' && ! says asked sudo &&
        says asked 'install --no-install-recommends ninja-build'
}

names_what_a_user_cannot_install() {
    machine 1000
    lacks ninja cc
    runs 1 train --data x || return
    says stderr 'gcc libc6-dev' ninja-build 'apt-get install' && [ ! -s "$asked" ]
}

refuses_to_install() {
    machine 0
    lacks ninja
    runs 1 --no-install train --data x && says stderr ninja-build --no-install || return
    runs 1 --no-install test && says stderr ninja-build && [ ! -s "$asked" ] || return
    machine 0
    # shellcheck disable=SC2016 # the stand-in's own $2
    stand_in pkg-config 'case $2 in jemalloc) exit 1 ;; esac'
    runs 0 --no-install train --data x && says stderr 'without: libjemalloc-dev' && [ ! -s "$asked" ]
}

# One test program, as Meson's log has it.
ran() { # RESULT STATUS LINE...
    printf '{"name": "stone", "result": "%s", "returncode": %s, "stdout": "' "$1" "$2"
    shift 2
    printf '%s\\n' "$@"
    printf '"}\n'
}

# `run test` over one program: its status and its last line.
counts() { # LAST-LINE MESON-STATUS RAN...
    machine 1000
    want=$1 status=1
    echo "$2" >"$scratch/status"
    shift 2
    case $want in *' 0 failed'*) status=0 ;; esac
    { ran OK 0 'ok 1 - a' 1..1 && "$@"; } >"$scratch/testlog.json"
    runs "$status" test builtin || return
    [ "$(tail -n 1 "$scratch/stdout")" = "$want" ] || complain "want '$want'"
}

shows_failing_case() {
    counts '2 passed, 1 failed, 0 skipped' 1 \
        ran FAIL 1 'ok 1 - a' '# the reason' 'not ok 2 - b' 1..2 && says stdout '# the reason'
}

tests_every_build() {
    machine 1000
    stand_in clang 'exit 0'
    ran OK 0 'ok 1 - a' 1..1 >"$scratch/testlog.json"
    echo 0 >"$scratch/status"
    runs 0 test && [ "$(tail -n 1 "$scratch/stdout")" = '3 passed, 0 failed, 0 skipped' ] || return
    for _ in first second; do
        runs 0 test all || return
        [ "$(tail -n 1 "$scratch/stdout")" = '5 passed, 0 failed, 0 skipped' ] || return
    done
}

# Of the last case's builds, NAME was configured with its own settings, which have WORDS.
configured_with() { # NAME WORDS
    grep -e "/build/$1 " "$configured" | grep -e "--native-file $tree/tests/native/$1.ini" &&
        grep -xF -e "$2" "$tree/tests/native/$1.ini"
}

# The last case's build was told to make these: none are all.
built_of() { # NAME TARGET...
    name=$1
    shift
    grep -x -e "-C $tree/build/$name -j [0-9]*${*:+ $*}" "$built" || complain "$(cat "$built")"
}

tests_quickly() {
    tests_with quick || return
    configured_with builtin "auto_features = 'disabled'" &&
        built_of builtin libcuda.so.1 tests/test_race tests/test_slab &&
        [ "$(wc -l <"$configured")" -eq 1 ]
}

# Every build passes, on a machine with everything, but for what Python says.
tests_with() { # WORD
    machine 1000
    for tool in clang c++ cmake groff valgrind; do
        stand_in $tool 'exit 0'
    done
    ran OK 0 'ok 1 - a' 1..1 >"$scratch/testlog.json"
    echo 0 >"$scratch/status"
    # shellcheck disable=SC2086 # or none
    runs 0 test $1
}

refuses_unknown_build() {
    machine 1000
    runs 2 test frobnicate && says stderr frobnicate
}

stops_at_a_bad_compiler() {
    machine 1000
    env -i PATH="$bin" CC=no-such-compiler /bin/sh "$tree/run" train --data x 2>"$scratch/stderr"
    [ $? -eq 1 ] && says stderr 'CC=no-such-compiler'
}

machine 1000
check 'help_is_one_screen' prints_usage
check 'an_unknown_word_is_usage' refuses_unknown_word
check 'arguments_reach_the_program_whole' passes_arguments
check 'bench_measures_everything' benches_everything
check 'a_second_call_configures_nothing_and_says_nothing' configures_once
check 'a_folder_that_another_made_is_left_alone' leaves_a_folder_of_another
check 'train_without_data_gets_the_text' adds_text
check 'train_starts_as_many_ranks_as_it_is_told' starts_ranks
check 'root_installs_what_is_missing_and_names_it' installs_as_root
check 'a_user_without_sudo_is_told_what_to_install' names_what_a_user_cannot_install
check 'no_install_refuses_to_install' refuses_to_install
check 'a_CC_that_does_not_work_is_named' stops_at_a_bad_compiler

check 'cases_are_counted' \
    counts '2 passed, 0 failed, 1 skipped' 0 ran OK 0 'ok 1 - a' 'ok 2 - b # SKIP no GPU' 1..2
check 'a_failing_case_is_counted_and_shown' shows_failing_case
check 'an_unknown_build_is_usage' refuses_unknown_build
check 'test_makes_every_build_and_counts_afresh' tests_every_build
check 'quick_is_one_build_of_unit_tests' tests_quickly
check_report
