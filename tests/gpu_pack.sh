#!/bin/sh
#
# gpu_pack.sh - what `./run gpu --build build` needs on a machine without a compiler or network, in
# one file: scripts, and of a build its programs, stripped.
#
# usage: tests/gpu_pack.sh BUILD FILE.tar.gz
#
# Unpacked, it is the folder ashlar-gpu. More than 60 MiB are refused.

set -u

here=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
if [ $# -ne 2 ]; then
    echo 'usage: gpu_pack.sh BUILD FILE.tar.gz' >&2
    exit 2
fi
build=$(cd "$1" && pwd -P) || exit 1
file=$2
most=$((60 * 1024 * 1024))
if [ ! -x "$build/bench/ashlar-bench" ]; then
    echo "gpu_pack.sh: $build has no bench/ashlar-bench: it is no build of ashlar" >&2
    exit 1
fi
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
root=$scratch/ashlar-gpu

copy() { # FROM TO FILE...: those that are there, by their names below FROM
    from=$1 to=$2
    shift 2
    for name in "$@"; do
        [ -e "$from/$name" ] || continue
        mkdir -p "$to/$(dirname "$name")" && cp -RL "$from/$name" "$to/$name" || exit 1
    done
}

copy "$here" "$root" run docs tools/set_up.sh tests/gpu_set_up.sh tests/gpu.sh tests/run_suite.py tests/count_cases.py \
    tests/torch_lstm.py tests/torch_calls.py tests/torch_step.py tests/cupy_calls.py tests/gpu \
    allocator/dropin/ashlar_torch.py bench/all.sh bench/report.py bench/without_paths.sh \
    tools/viewer.html LICENSE

# Shared libraries go by each name that a program may look for.
for name in $(cd "$build" && find . -name '*.so*' ! -path '*.p' ! -path '*.p/*' ! -path './gpu/*'); do
    copy "$build" "$root/build" "$name"
done
copy "$build" "$root/build" meson-info/meson-info.json meson-info/intro-tests.json \
    bench/ashlar-bench rnn/ashlar-train tests/gpu/probe
for name in "$build"/tests/test_gpu_* "$build"/tests/preload/*_driver \
    "$build"/tests/preload/*_shared "$build"/tests/preload/*_static; do
    [ ! -f "$name" ] || copy "$build" "$root/build" "${name#"$build"/}"
done

# Other libraries that they need, but for those that every machine has its own of.
for name in $(ldd "$build/bench/ashlar-bench" "$build/rnn/ashlar-train" \
    "$build/tests/preload/toolkit_shared" 2>/dev/null |
    sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u); do
    case ${name##*/} in
    libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libashlar*) ;;
    *) copy "${name%/*}" "$root/build/lib" "${name##*/}" ;;
    esac
done
find "$root/build" -type f ! -name '*.json' -exec strip {} + 2>/dev/null

tar -czf "$file" -C "$scratch" ashlar-gpu || exit 1
bytes=$(wc -c <"$file")
if [ "$bytes" -gt "$most" ]; then
    rm -f "$file"
    echo "gpu_pack.sh: $bytes bytes are too many to carry ($most at most)" >&2
    exit 1
fi
printf '%s: %s bytes\n' "$file" "$bytes"
