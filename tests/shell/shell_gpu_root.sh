#!/bin/sh
#
# shell_gpu_root.sh - the two parts of `./run gpu` on a machine as those are that are lent for minutes:
# a packed build, Python, and neither network, compilers nor packages. The driver, cuDNN and cuBLAS
# are stand-ins that take a GPU's time.
#
# It is made by debootstrap, which needs root and a mirror.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

make_debian trixie --include=python3
rm -f "$root"/usr/bin/apt*
"$ASHLAR_SOURCE/run" gpu --build "$ASHLAR_BUILD" --pack "$scratch/pack.tar.gz" >/dev/null &&
    tar -xzf "$scratch/pack.tar.gz" -C "$root/root" || exit 1

# Its mounts end with it.
inside() { # SCRIPT
    unshare --mount --net sh -ec 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"
        exec chroot "$1" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root FAKE_SLOW=1 sh -ec "cd /root/ashlar-gpu && $2"' sh "$root" "$1"
}

ends_in_time() { # STATUS PART SECONDS
    begin=$(date +%s)
    inside "./run gpu --build build --dry --$2 $3 --archive /root/$2.tar.gz"
    got=$?
    took=$(($(date +%s) - begin))
    echo "it took $took s"
    [ "$got" -eq "$1" ] && [ "$took" -le "$3" ] || return
    rm -rf "$scratch/got" && mkdir "$scratch/got" &&
        tar -xzf "$root/root/$2.tar.gz" -C "$scratch/got" && ran=$scratch/got/gpu/ran.txt
}

runs_first() {
    ends_in_time 0 first 555 || return
    ! grep -v -e ': passed: ' -e '^pytorch_calls: could not: no PyTorch' \
        -e '^cupy_calls: could not: no CuPy' "$ran" && [ "$(wc -l <"$ran")" -gt 20 ]
}

runs_second() {
    ends_in_time 0 second 205 && grep '^bench_rnn: passed: ' "$ran"
}

ends_though_steps_hang() {
    printf '#!/bin/sh\ntrap "" TERM\nwhile :; do sleep 1000; done\n' \
        >"$root/root/ashlar-gpu/build/rnn/ashlar-train"
    ends_in_time 1 second 205 && grep -x 'graph_bits: FAILED: it took more than 90 s' "$ran" &&
        grep -x 'bench_rnn: could not: no time left' "$ran"
}

check 'the_first_part_runs_within_its_time' runs_first
check 'so_does_the_second' runs_second
check 'and_where_steps_hang' ends_though_steps_hang
check_report
