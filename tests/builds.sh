#!/bin/sh
#
# builds.sh - build and test: builds.sh [BUILD...]
#
# Each build is a file of Meson's settings in tests/native/, and shows what no other does:
#   strict   the release build, gcc's warnings, and every test; the shell suite only here, since it
#            tests what is installed and the programs
#   asan     every test of the libraries by the sanitizers, and by the walks of debug level 3; not
#            those that judge how many bytes there are
#   tsan     races, of what has threads
#   clang    another compiler's warnings on the libraries and programs, its numbers (arena, rnn) and
#            its atomics (threads)
#   builtin  what takes the place of an optional part; hardly optimised, so that it is quick
#   quick    the unit tests of the libraries, in the build that is made fastest
#   waits    the unit tests on devices whose calls wait where CUDA's may
#   overlap  the same on devices that work beside the program
#   aarch64  the numbers and the threads on a 64-bit ARM, by QEMU
#   mcdc     what tests/mcdc.sh measures
# Without a name: strict asan tsan, which ask for no more than a compiler, Meson and Python, without
# suite seldom; what else a test can use is used where it is. `all` installs that, leaves nothing
# out, and adds clang and builtin; `slow` adds the rest, and the tests that are skipped elsewhere
# because they take minutes.

set -u
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P) || exit 1
# shellcheck source=tools/set_up.sh
. "$here/tools/set_up.sh"

tally() { # PASSED FAILED SKIPPED
    echo "$*" >>"$builds/tally"
}

# Build and run its tests. TARGETS: `tests`, what the selected ones need, and more by name, or none
# for all. SELECTION: words for `meson test`.
test_build() { # NAME TARGETS SELECTION [SHOWN [--cross-file]]
    name=$1 targets=$2 selection=$3 shown=${4:-$1}
    if ! configure "$name" "${5---native-file}" "$here/tests/native/$name.ini" ||
        ! build_tests; then
        tally 0 1 0
        echo "$name     does not build"
        return
    fi
    log=$folder/meson-logs/testlog.json
    jobs=$(($(nproc 2>/dev/null || echo 2) + 1)) # some wait more than they compute
    # The sanitizers' fixed shadow and a kernel's widest address randomisation do not agree.
    runner=''
    case $name in asan | tsan) setarch -R true 2>/dev/null && runner='setarch -R' ;; esac
    rm -f "$log" # Meson leaves the old one where it runs nothing
    # Else Meson has malloc() fill tables of a whole device's pages; ASan fills and poisons, too.
    # shellcheck disable=SC2086 # words
    MALLOC_PERTURB_=0 $runner meson test -C "$folder" --no-rebuild --num-processes "$jobs" \
        $selection >"$folder.log" 2>&1 </dev/null
    python3 "$here/tests/count_cases.py" "$shown" "$log" $? "$folder.log" "$builds/tally" ||
        tally 0 1 0
}

build_tests() { # of $name: $targets for $selection
    case $targets in tests*)
        build "$name" build.ninja || return # else its lists of tests may be those of an older tree
        # shellcheck disable=SC2086 # words
        needed=$(python3 "$here/tests/test_targets.py" "$folder" $selection) || return
        targets="$needed ${targets#tests}"
        ;;
    esac
    # shellcheck disable=SC2086 # words
    build "$name" $targets
}

test_on() { # KEY=VALUE SHOWN: all software devices have that
    export ASHLAR_SOFT_DEFAULTS="strict=on,$1"
    test_build builtin tests '--suite unit --no-suite stress -t 4' "$2"
    unset ASHLAR_SOFT_DEFAULTS
}

skip() { # NAME WHAT
    tally 0 0 1
    echo "$1  skipped: $2 is not installed"
}

test_one() { # NAME
    case $1 in
    strict) test_build strict '' "$left_out" ;;
    asan)
        test_build asan tests \
            "--no-suite shell --no-suite house --no-suite figures -t 4 $left_out"
        ;;
    tsan) test_build tsan tests '--suite threads -t 4' ;;
    clang)
        programs='rnn/ashlar-train rnn/ashlar-sample bench/ashlar-bench bench/ashlar-replay'
        if compiles_c clang; then
            test_build clang "tests $programs" \
                '--suite arena --suite rnn --suite threads --no-suite stress'
        else
            skip clang clang
        fi
        ;;
    builtin)
        test_build builtin tests \
            '--suite arena --suite rnn --suite bench --no-suite stress --no-suite sets'
        ;;
    quick) test_build builtin tests '--suite unit --no-suite stress' ;;
    mcdc) test_build mcdc tests '--suite unit --suite whole -t 10' ;;
    waits) test_on waits=on waits ;;
    overlap) test_on mode=overlap overlap ;;
    aarch64)
        if compiles_c aarch64-linux-gnu-gcc && has qemu-aarch64; then
            test_build aarch64 tests \
                '--suite arena --suite rnn --suite threads --no-suite stress --no-suite native -t 8' \
                '' --cross-file
        else
            skip aarch64 'gcc-aarch64-linux-gnu or qemu-user'
        fi
        ;;
    *)
        say "test: there is no build '$1'; use strict asan tsan clang builtin," \
            'quick, waits, overlap, aarch64, all or slow'
        exit 2
        ;;
    esac
}

wanted='' left_out=''
case ${1-} in
'') left_out='--no-suite seldom' && set -- strict asan tsan ;;
all) wanted='all' && set -- strict asan tsan clang builtin ;;
slow)
    export ASHLAR_TEST_SLOW=1
    wanted='all slow'
    set -- strict asan tsan clang builtin waits overlap aarch64
    ;;
esac
set_up "$wanted"
: >"$builds/tally"
for build_name in "$@"; do
    test_one "$build_name"
done
awk '{ p += $1; f += $2; s += $3 }
    END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f != 0 || p == 0 }' \
    "$builds/tally"
