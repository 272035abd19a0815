#!/bin/sh
#
# shell_rmm.sh - rmm_adaptor.hpp compiles as C++17 and C++20 with and without what it looks for, and
# does what RMM asks of a memory resource. rmm_like/ declares what is used of RMM; RMM itself is
# tried where ASHLAR_RMM_FLAGS has the words by which a program is compiled and linked with it.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

strict='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'
sources=$ASHLAR_SOURCE/tests/dropin

# CUDA's toolkit has libcu++, whose concepts are the real ones.
if [ -n "${CUDA_PATH:-}" ]; then
    cuda=$CUDA_PATH
elif command -v nvcc >/dev/null; then
    cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
else
    cuda=''
fi

works() { # FLAG...
    # shellcheck disable=SC2086 # words
    c++ $strict -I"$ASHLAR_SOURCE/include" "$@" "$sources/rmm_user.cpp" -o "$scratch/user" \
        -L"$ASHLAR_BUILD" -lashlar && LD_LIBRARY_PATH=$ASHLAR_BUILD "$scratch/user"
}

works_with_rmm() {
    # shellcheck disable=SC2086 # words
    c++ $strict -I"$ASHLAR_SOURCE/include" "$sources/rmm_real.cpp" -o "$scratch/real" \
        -L"$ASHLAR_BUILD" -lashlar $ASHLAR_RMM_FLAGS &&
        LD_LIBRARY_PATH=$ASHLAR_BUILD "$scratch/real"
}

if ! command -v c++ >/dev/null; then
    skip 'an_rmm_resource_works' 'no C++ compiler'
    check_report
fi
for standard in 17 20; do
    check "it_works_by_itself_in_cpp_$standard" works -std=c++$standard
    check "it_works_with_rmms_classes_in_cpp_$standard" works -std=c++$standard \
        -I"$sources/rmm_like"
    if [ -f "$cuda/include/cccl/cuda/memory_resource" ]; then
        check "it_is_what_libcupp_calls_a_resource_in_cpp_$standard" works -std=c++$standard \
            -isystem "$cuda/include/cccl" -isystem "$cuda/include" \
            -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
    else
        skip "it_is_what_libcupp_calls_a_resource_in_cpp_$standard" 'no libcu++ of a CUDA toolkit'
    fi
done
if [ -n "${ASHLAR_RMM_FLAGS:-}" ]; then
    check 'it_works_under_rmm_itself' works_with_rmm
else
    skip 'it_works_under_rmm_itself' 'ASHLAR_RMM_FLAGS does not say how to compile with RMM'
fi
check_report
