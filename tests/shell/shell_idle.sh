#!/bin/sh
#
# shell_idle.sh - free memory is served: programs that need no more than the device has once what
# they freed is given back, alone and with libashlar-preload.so.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

about_preload
program=$programs/program_idle
needs_preload idle "$program"

# CASE SOFT
while read -r name soft; do
    for mode in eager adversarial; do
        given=$soft,mode=$mode
        check "${name}_alone_$mode" env ASHLAR_SOFT="$given" "$program" "$name"
        check "${name}_$mode" env ASHLAR_SOFT="$given" LD_PRELOAD="$preload" "$program" "$name"
    done
done <<'END'
context-create overhead=16MiB,memory=80MiB
context-alloc memory=64MiB
context-alloc-async memory=64MiB
context-mem-create memory=64MiB
context-managed memory=64MiB
context-info memory=64MiB
context-ended memory=64MiB
context-turns memory=512MiB
pool-set memory=64MiB
capture-alloc-async memory=64MiB
other-device-mem-create memory=64MiB,devices=2
other-device-mem-create-both memory=64MiB,devices=2
graph-instantiate memory=64MiB,overhead=8MiB
graph-launch memory=64MiB,overhead=8MiB
graph-launch-late memory=64MiB,overhead=8MiB
module-load memory=64MiB,overhead=8MiB
capture-loop memory=22MiB
capture-loop-global memory=22MiB
capture-loop-stream memory=22MiB
capture-frees memory=64MiB
beside-thread-local memory=256MiB
beside-relaxed memory=256MiB
beside-relaxed-waiting memory=256MiB
beside-global memory=256MiB
END
check_report
