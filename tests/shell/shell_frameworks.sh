#!/bin/sh
#
# shell_frameworks.sh - PyTorch and CuPy themselves ask of the drop-in library what they ask of an
# allocator, where Python has them and they see a device.

# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"
only_in_slow

asks() { # FRAMEWORK LIBRARY SCRIPT ARGUMENT...
    framework=$1 library=$2 script=$3
    shift 3
    if [ ! -e "$library" ]; then
        skip "${framework}_gets_what_it_asks_for" "$(basename "$library") is not built"
        return
    fi
    python3 "$ASHLAR_SOURCE/tests/$script" "$library" "$@" >"$scratch/said" 2>&1
    status=$?
    if [ "$status" -eq 77 ]; then
        skip "${framework}_gets_what_it_asks_for" "$(tail -n 1 "$scratch/said")"
    else
        check "${framework}_gets_what_it_asks_for" said "$status"
    fi
}

said() { # STATUS
    cat "$scratch/said"
    return "$1"
}

dropin=$ASHLAR_BUILD/allocator/dropin
asks pytorch "$dropin/libashlar-torch.so" torch_calls.py
asks cupy "$dropin/libashlar-torch.so" cupy_calls.py
check_report
