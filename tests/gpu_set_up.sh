#!/bin/sh
#
# gpu_set_up.sh - build, and run tests/gpu.sh: gpu_set_up.sh [--build FOLDER] [--pack FILE | OPTION...]
#
# Machines with a GPU often have no network and are not to be changed: nothing is installed.

set -u
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P) || exit 1
# shellcheck source=tools/set_up.sh
. "$here/tools/set_up.sh"

# A sign is enough to build for; tests/gpu.sh then asks the driver.
has_gpu() {
    nvidia-smi -L 2>/dev/null | grep -q GPU && return
    for sign in /dev/nvidia[0-9]* /dev/nvidiactl /dev/dxg; do
        [ ! -e "$sign" ] || return 0
    done
    case $(IFS=: && for path in ${LD_LIBRARY_PATH:-}; do echo "$path"/libcuda.so*; done) in
    *libcuda.so.1*) ;;
    *) return 1 ;;
    esac
}

# A Meson that Python has as a module is one too. pkg-config finds only what can be done without. Where
# a part does not build here (a compiler that CUDA does not know), the others are run all the same.
set_up_offline() {
    if ! has meson && python3 -c 'import mesonbuild.mesonmain' 2>/dev/null; then
        mkdir -p "$builds/tools" || exit 1
        printf '#!/bin/sh\nexec python3 -m mesonbuild.mesonmain "$@"\n' >"$builds/tools/meson"
        chmod +x "$builds/tools/meson"
        PATH=$builds/tools:$PATH
    fi
    find_missing ''
    case $tools in *' pkg-config')
        tools=${tools% pkg-config} libraries=" pkg-config$libraries"
        ;;
    esac
    [ -z "$tools" ] || die "gpu: missing (as Debian names it):$tools; nothing is installed here:" \
        "install them, or bring a build of this version and say gpu --build FOLDER"
    [ -z "$libraries" ] || say "going on without:$libraries"
    build_release -k 0 || [ -x "$folder/bench/ashlar-bench" ] || exit
}

# CUDA's libraries may be there as Python packages alone, as PyTorch brings them; behind others.
use_python_cuda() {
    for folder in $(python3 -c 'import glob, nvidia
for root in nvidia.__path__: print(*glob.glob(root + "/*/lib"))' 2>/dev/null); do
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
        C_INCLUDE_PATH=${C_INCLUDE_PATH:+$C_INCLUDE_PATH:}${folder%/lib}/include
        export LD_LIBRARY_PATH C_INCLUDE_PATH
    done
}

ASHLAR_RUN_BEGAN=$(date +%s)
export ASHLAR_RUN_BEGAN
case " $* " in
*' --dry '* | *' --list '* | *' --pack '*) needs_gpu='' ;;
*) needs_gpu=1 ;;
esac
if [ -n "$needs_gpu" ] && ! has_gpu; then
    say 'gpu: there is no GPU here (no nvidia-smi, no /dev/nvidia*), so nothing was run'
    exit 77
fi
use_python_cuda
has nvcc || PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin
case ${1-} in
--build)
    [ $# -gt 1 ] || die 'gpu: --build needs a folder'
    folder=$2
    shift 2
    ;;
--build=*)
    folder=${1#*=}
    shift
    ;;
*)
    mkdir -p "$builds" || exit 1
    set_up_offline
    ;;
esac
if [ "${1-}" = --pack ]; then
    [ $# -eq 2 ] || die 'gpu: --pack needs a file, and nothing else'
    exec "$here/tests/gpu_pack.sh" "$folder" "$2"
fi
exec "$here/tests/gpu.sh" "$folder" "$@"
