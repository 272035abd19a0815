#!/bin/sh
#
# shell_hosts.sh - a training of two machines, under each MPI that the build has: two network
# namespaces of this one, joined by a cable that can be cut. Skipped where they cannot be made.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

# shellcheck source=tests/shell/ranks.sh
. "$(dirname "$0")/ranks.sh"

# No shared memory, which both machines have here.
UCX_TLS=tcp,self
export UCX_TLS

first=ashlar-$$-a second=ashlar-$$-b net=10.213.7 cable=as$$

clear_hosts() {
    for host in "$first" "$second"; do
        ip netns pids "$host" 2>/dev/null | xargs -r kill -9 2>/dev/null
    done
    true
}

take_apart() {
    clear_hosts
    for host in "$first" "$second"; do
        ip netns del "$host" 2>/dev/null
    done
    true
}

# Whether the other machine answers, by refusing.
reaches() { # HOST ADDRESS
    ip netns exec "$1" timeout 2 python3 -c '
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9))
except ConnectionRefusedError:
    sys.exit(0)
sys.exit(1)' "$2" 2>/dev/null
}

is_up() { # HOST END
    ip -n "$1" link show "$cable$2" | grep -q 'state UP'
}

# Up is up only when each end has noticed, and reaches the other.
cable() { # up | down
    ip -n "$first" link set "${cable}a" "$1" || return
    [ "$1" = up ] || return 0
    tries=0
    until is_up "$first" a && is_up "$second" b && reaches "$first" "$net.2" &&
        reaches "$second" "$net.1"; do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || complain 'the cable stays down' || return
        sleep 0.1
    done
}

put_together() {
    ip netns add "$first" && ip netns add "$second" &&
        ip link add "${cable}a" netns "$first" type veth peer name "${cable}b" netns "$second" &&
        ip -n "$first" address add "$net.1/24" dev "${cable}a" &&
        ip -n "$second" address add "$net.2/24" dev "${cable}b" &&
        ip -n "$first" link set lo up && ip -n "$second" link set lo up &&
        ip -n "$second" link set "${cable}b" up && cable up
}

trap 'take_apart; rm -rf "$scratch"' EXIT
if ! put_together >"$scratch/log" 2>&1; then
    echo "1..0 # SKIP no network namespaces here: $(head -n 1 "$scratch/log")"
    exit
fi

# What the launchers take for ssh: an address and a command.
cat >"$scratch/remote" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do
    shift
done
case \$1 in $net.1) host=$first ;; *) host=$second ;; esac
shift
exec ip netns exec "\$host" unshare --uts sh -c "hostname \$host; \$*"
END
chmod +x "$scratch/remote"

# A rank on each machine; the launcher itself is on the first.
on_both() { # PROGRAM ARGUMENT...
    case $mpi in
    -openmpi)
        set -- --mca plm_rsh_agent "$scratch/remote" --mca oob_tcp_if_include "$net.0/24" \
            --mca btl tcp,self --mca btl_tcp_if_include "$net.0/24" \
            --host "$net.1:1,$net.2:1" -n 2 "$@"
        ;;
    *)
        set -- -launcher ssh -launcher-exec "$scratch/remote" -hosts "$net.1,$net.2" -n 2 "$@"
        ;;
    esac
    timeout -k 10 120 ip netns exec "$first" unshare --uts \
        sh -c "hostname $first; exec \"\$@\"" sh "$launcher" "$@" </dev/null
}

text() { # FILE LAUNCHER, which env is for none; with $options
    # shellcheck disable=SC2086 # options are words
    "$2" "$train" --data "$scratch/text" --device soft --layers 2 --hidden 16 --batch 16 \
        --max-length 32 --sample 0 --quiet --reproducible --save "$1" $options
}

train_long() { # begin, and wait for some steps and a checkpoint
    rm -f "$scratch"/saved*
    : >"$scratch/losses"
    cable up || return
    options="--steps 1000000 --timeout 2 --save-every 20 --losses $scratch/losses"
    text "$scratch/saved" on_both >"$scratch/out" 2>&1 &
    job=$!
    until [ "$(wc -l <"$scratch/losses")" -gt 45 ]; do
        if ! kill -0 "$job" 2>/dev/null; then
            cat "$scratch/out"
            complain "it never came to step 45" || return
        fi
        sleep 0.05
    done
}

# Whether a rank runs on the machine; the launchers' own processes may wait for minutes for TCP.
has_rank() { # HOST
    for process in $(ip netns pids "$1"); do
        [ "$(cat "/proc/$process/comm" 2>/dev/null)" = ashlar-train ] && return
    done
    return 1
}

# The ranks end soon, a line tells of one, and the rest is done on one machine.
ends_and_goes_on() {
    before=$(date +%s)
    for host in "$first" "$second"; do
        while has_rank "$host"; do
            [ $(($(date +%s) - before)) -le 15 ] || complain "$host goes on" || return
            sleep 0.1
        done
    done
    clear_hosts
    wait "$job" && complain "it ended well" && return 1
    cat "$scratch/out"
    # MPICH's launcher may be the first to know of a machine that is gone, and ends the other's rank.
    grep -Eq 'ashlar-train: rank [01] |process manager error' "$scratch/out" ||
        complain "no line" || return
    [ "$(find "$scratch" -name 'saved*' | wc -l)" -eq 1 ] || complain "half a file" || return
    options="--steps $(($(wc -l <"$scratch/losses") + 5)) --resume $scratch/saved"
    text "$scratch/on" env
}

two_machines_train_as_one() { # STEPS
    options="--steps $1"
    text "$scratch/one" env && text "$scratch/two" on_both && cmp "$scratch/one" "$scratch/two"
}

a_cut_cable_ends_both() {
    train_long && cable down && ends_and_goes_on
}

a_lost_machine_ends_the_other() {
    train_long || return
    ip netns pids "$second" | xargs -r kill -9
    ends_and_goes_on
}

# 20 ms on the way; or, where the system cannot delay, 4 Mbit/s one way.
slow_down() {
    for how in 'netem delay 20ms' 'tbf rate 4mbit burst 16kb latency 400ms'; do
        # shellcheck disable=SC2086 # options are words
        ip netns exec "$first" tc qdisc add dev "${cable}a" root $how 2>>"$scratch/log" && return
    done
    false
}

# The bits are the same.
a_slow_cable_changes_nothing() {
    two_machines_train_as_one 10
    status=$?
    ip netns exec "$first" tc qdisc del dev "${cable}a" root
    return "$status"
}

write_text "$scratch/text"
found=0
for mpi in $ASHLAR_MPIS; do
    name=${mpi#-}
    if ! launcher_of "$mpi"; then
        skip "$name" "its launcher, mpirun.$name, is not installed"
        continue
    fi
    found=1
    check "$name: two machines have the bits of one" two_machines_train_as_one 40
    check "$name: a cable that is cut ends both" a_cut_cable_ends_both
    check "$name: a machine that is lost ends the other" a_lost_machine_ends_the_other
    : >"$scratch/log"
    if slow_down; then
        check "$name: a slow cable changes nothing" a_slow_cable_changes_nothing
    else
        skip "$name: a slow cable" "none can be slowed down here: $(head -n 1 "$scratch/log")"
    fi
done
[ "$found" = 1 ] || skip 'two machines' 'this build has no MPI'

check_report
