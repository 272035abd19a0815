#!/bin/sh
#
# pytorch.sh - run tests/torch_calls.py by PyTorch itself on the stand-ins: pytorch.sh [VERSION...]
#
# One version at a time, in a folder that goes: with CUDA's libraries it has 5 to 8 GB.

set -u
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P) || exit 1
# shellcheck source=tools/set_up.sh
. "$here/tools/set_up.sh"

[ -z "$no_install" ] || die 'test pytorch: it would install PyTorch, which --no-install forbids'
[ $# -gt 0 ] || set -- 2.9.1 2.11.0 2.13.0 2.15.0
set_up ''
build_release bench/ashlar-bench allocator/dropin/libashlar-torch.so tests/cuda/libcuda.so.1 \
    tests/cuda/libcudart_12.so || exit 1
set_up_ended
failed=0
for version in "$@"; do
    home=$builds/pytorch said=$builds/pytorch.log
    rm -rf "$home"
    if quietly "$said" python3 -m venv "$home" &&
        quietly "$said" "$home/bin/pip" install --no-cache-dir numpy "torch==$version"; then
        PATH=$home/bin:$PATH "$here/tests/gpu.sh" "$folder" --dry --only pytorch_calls >"$said" 2>&1
        grep '^pytorch_calls: passed: ' "$said" || { cat "$said" && failed=1; }
    else
        failed=1
    fi
    rm -rf "$home"
done
exit "$failed"
