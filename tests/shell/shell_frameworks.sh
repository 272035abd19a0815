#!/bin/sh
#
# shell_frameworks.sh - PyTorch and CuPy themselves ask of the drop-in library what they ask of an
# allocator, where Python has them and they see a device.

# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"
only_in_all

library=$ASHLAR_BUILD/allocator/dropin/libashlar-torch.so

asks() { # FRAMEWORK SCRIPT
    if [ ! -e "$library" ]; then
        skip "$1_gets_what_it_asks_for" 'libashlar-torch.so is not built'
        return
    fi
    python3 "$ASHLAR_SOURCE/tests/$2" "$library" >"$scratch/said" 2>&1
    status=$?
    if [ "$status" -eq 77 ]; then
        skip "$1_gets_what_it_asks_for" "$(tail -n 1 "$scratch/said")"
    else
        check "$1_gets_what_it_asks_for" said "$status"
    fi
}

said() { # STATUS
    cat "$scratch/said"
    return "$1"
}

asks pytorch torch_calls.py
asks cupy cupy_calls.py
check_report
