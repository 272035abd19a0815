# fuzzers.sh - build the fuzz targets, for fuzz.sh and long.sh. Sourced after tools/set_up.sh.
# shellcheck shell=sh disable=SC2154 # here and builds are tools/set_up.sh's

check_seconds() { # COMMAND NUMBER
    case $2 in
    '' | *[!0-9]* | 0*)
        say "test $1: '$2' is no number of seconds from 1"
        exit 2
        ;;
    esac
}

# The corpus lies beside the build, since configuring anew removes that. Names are left in $names.
build_fuzzers() {
    set_up fuzz
    [ ! -e "$builds/fuzz/meson-private" ] || die "$builds/fuzz was not made by ./run: move it away"
    names='' programs=''
    for source in "$here"/tests/fuzz/fuzz_*.c; do
        source=${source##*/fuzz_}
        names="$names ${source%.c}"
        programs="$programs tests/fuzz/fuzz_${source%.c} tests/fuzz/replay_${source%.c}"
    done
    mkdir -p "$builds/fuzz"
    own=${CC-}
    export CC=clang
    configure fuzz/build --native-file "$here/tests/native/asan.ini" -Dwerror=false \
        "-Dc_args=${CFLAGS:-} -fsanitize=fuzzer-no-link" || exit 1
    # shellcheck disable=SC2086 # words
    build fuzz/build $programs || exit 1
    CC=$own
    [ -n "$own" ] || unset CC
}
