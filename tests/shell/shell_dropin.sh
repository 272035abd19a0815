#!/bin/sh
#
# shell_dropin.sh - libashlar-torch.so as it is found by name and loaded late, into Python and into
# C++, with nothing but its own.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

torch=$(find "$ASHLAR_BUILD" -name 'libashlar-torch.so' -type f)
sources=$ASHLAR_SOURCE/tests/dropin

ASHLAR_DEVICE=soft ASHLAR_SOFT=devices=2,memory=64MiB
export ASHLAR_DEVICE ASHLAR_SOFT
unset ASHLAR_CONF ASHLAR_REPORT ASHLAR_PEERS

exported() {
    nm -D --defined-only "$torch" | awk '{ print $3 }' | sed 's/@.*//'
}

exports_its_own() {
    others=$(exported | grep -vE '^ashlar_(torch|cupy)_[a-z_]+$')
    [ -z "$others" ] || complain "exports $others" || return
    [ "$(exported | wc -l)" -ge 11 ]
}

needs_only_the_c_library() {
    needed=$(readelf -d "$torch" | grep NEEDED)
    others=$(echo "$needed" | grep -vE '\[(libc|libm|libdl|libpthread|ld-linux.*)\.so')
    [ -z "$others" ] || complain "brings $others" || return
    echo "$needed" | grep -F '[libc.so'
}

works_from_python() {
    # shellcheck disable=SC2046 # words
    python3 "$sources/check_torch.py" "$torch" $(exported)
}

# What is said on stderr, and when: a leak, an error, and nothing.
speaks() { # WORDS REPORT CONF
    ASHLAR_REPORT=$2 ASHLAR_CONF=$3 python3 -c '
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.ashlar_torch_alloc.restype = ctypes.c_void_p
lib.ashlar_torch_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
assert lib.ashlar_torch_alloc(1234, 0, None)
assert not lib.ashlar_torch_alloc(1 << 40, 0, None)
' "$torch" 2>"$scratch/said" || return
    cat "$scratch/said"
    if [ -z "$1" ]; then
        [ ! -s "$scratch/said" ]
        return
    fi
    for word in $1; do
        grep -qF "$word" "$scratch/said" || complain "did not say $word" || return
    done
}

cpp() {
    c++ -std=c++11 -Wall -Wextra -Werror "$@"
}

passes_cpp() {
    cpp "$sources/catch.cpp" -o "$scratch/catch" -ldl && "$scratch/catch" "$torch"
}

# PyTorch has the error's type in libc10.so, or, as 2.11, in each library that throws it.
throws_what_pytorch_does() { # [-DC10_INLINE]
    cpp "$@" -fPIC -shared -Wl,-soname,libc10.so "$sources/c10.cpp" -o "$scratch/libc10.so" &&
        echo 'void run_out() { throw c10::OutOfMemoryError({"", "", 0}, ""); }' |
        cpp "$@" -fPIC -shared -Wl,-soname,libc10_cuda.so -include "$sources/c10.hpp" -x c++ - \
            -o "$scratch/libc10_cuda.so" -L"$scratch" -lc10 &&
        cpp "$@" -DC10 "$sources/catch.cpp" -o "$scratch/catch_c10" -L"$scratch" \
            -Wl,--no-as-needed -lc10_cuda -lc10 -ldl &&
        LD_LIBRARY_PATH=$scratch "$scratch/catch_c10" "$torch"
}

check 'the_library_exports_its_own_names_only' exports_its_own
check 'it_brings_no_other_library' needs_only_the_c_library
if command -v python3 >/dev/null; then
    check 'every_function_works_from_python_with_8_threads_on_2_devices' works_from_python
    check 'it_says_nothing_by_itself' speaks '' '' ''
    check 'it_reports_what_fails_when_asked' speaks '1099511627776' on ''
    check 'it_reports_leaks_when_asked' speaks '1234 leak:' '' 'leaks=on'
    check 'it_says_nothing_when_told_so' speaks '' off 'leaks=on'
else
    skip 'every_function_works_from_python' 'no python3'
fi
if command -v c++ >/dev/null; then
    check 'exceptions_and_functions_pass_between_it_and_cpp' passes_cpp
    check 'out_of_memory_is_pytorchs_own_exception' throws_what_pytorch_does
else
    skip 'exceptions_and_functions_pass_between_it_and_cpp' 'no C++ compiler'
fi
check_report
