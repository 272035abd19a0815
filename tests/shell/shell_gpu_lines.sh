#!/bin/sh
# shellcheck disable=SC2016 # stand-ins have words of their own
#
# shell_gpu_lines.sh - every line of the Python scripts that are for a GPU is run here: modules stand
# in for PyTorch and CuPy, and fail in each way that the scripts have lines for. torch_calls.py is
# run with PyTorch itself, where python3 has it.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

tests=$ASHLAR_SOURCE/tests
cuda=$ASHLAR_BUILD/tests/cuda
library=$ASHLAR_BUILD/allocator/dropin/libashlar-torch.so
ASHLAR_CUDNN=$ASHLAR_BUILD/tests/libfake_cudnn.so ASHLAR_CUBLAS=$ASHLAR_BUILD/tests/libfake_cublas.so
export ASHLAR_CUDNN ASHLAR_CUBLAS
unset ASHLAR_CONF ASHLAR_REPORT PYTHONPATH

# One run more of a script, which may fail.
runs() { # SCRIPT ARGUMENT...
    script=$1
    shift
    LD_LIBRARY_PATH=$cuda PYTHONPATH=$modules \
        LD_PRELOAD=$cuda/libcudart_12.so:$cuda/libcudart.so.13:$cuda/libcudart_rest.so \
        python3 "$tests/lines.py" "$scratch/$script" "$tests/$script" "$@" >>"$scratch/said" 2>&1
}

# The lines that no run has reached are a failure.
reaches_all() { # SCRIPT
    python3 "$tests/lines.py" "$scratch/$1" "$tests/$1" && return
    cat "$scratch/said"
    return 1
}

asks_cupy() {
    runs cupy_calls.py "$library"
    for change in 'raise ImportError("there is none")' 'runtime.getDeviceCount = lambda: 0' '
def refuse(): raise CUDARuntimeError(100)
runtime.getDeviceCount = refuse' '
MemoryPointer.memset_async = lambda *_: None
take = MemoryPool._take
MemoryPool._take = lambda pool, size: take(pool, size if size > 20 << 20 else 0)'; do
        STAND_IN_CUPY=$change runs cupy_calls.py "$library"
    done
    reaches_all cupy_calls.py
}

# Each training is a process of its own, which is run here, too.
trains_with_pytorch() {
    runs torch_lstm.py "$library" "$scratch/torch.json" 20
    runs torch_lstm.py --train '' 20
    runs torch_lstm.py --train "$library" 20
    for change in 'raise ImportError("there is none")' \
        'torch.cuda.is_available.return_value = False' 'loss = lambda: 1.5 + ours() * 1e-5' \
        'loss = lambda: 1 / 0' '
import ashlar_torch
told = []
ashlar_torch.stats = lambda: told.append(0) or MagicMock(reserved=len(told), reserved_peak=0)'; do
        STAND_IN_TORCH=$change runs torch_lstm.py "$library" "$scratch/torch.json" 20
    done
    reaches_all torch_lstm.py
}

steps_beside_pytorch() {
    runs torch_step.py "$train" "$scratch/step.json" smoke
    runs torch_step.py --torch smoke bf16
    runs torch_step.py /bin/false "$scratch/step.json" smoke
    for change in 'raise ImportError("there is none")' 'loss = lambda: 1.5' 'loss = lambda: 1 / 0'; do
        STAND_IN_TORCH=$change runs torch_step.py "$train" "$scratch/step.json" smoke
    done
    reaches_all torch_step.py
}

# A stand-in fails in each case.
asks_pytorch() {
    for mode in --all --pool; do
        modules='' runs torch_calls.py "$mode" "$library"
        modules=$tests/gpu/stand_in runs torch_calls.py "$mode" "$library"
    done
    modules='' runs torch_calls.py "$library"
    modules=$tests/gpu/stand_in runs torch_calls.py "$library"
    STAND_IN_TORCH='raise ImportError("there is none")' modules=$tests/gpu/stand_in \
        runs torch_calls.py "$library"
    reaches_all torch_calls.py
}

modules=$tests/gpu/stand_in
for file in "$library" "$cuda/libcudart_rest.so"; do
    if [ ! -e "$file" ]; then
        skip 'every_line_is_run' "$(basename "$file") is not built"
        check_report
        exit
    fi
done
check 'every_line_about_cupy_is_run' asks_cupy
check 'every_line_of_a_training_with_pytorch_is_run' trains_with_pytorch
check 'every_line_of_a_step_beside_pytorch_is_run' steps_beside_pytorch
if python3 -c 'import torch' 2>/dev/null; then
    check 'every_line_about_pytorch_is_run' asks_pytorch
else
    skip 'every_line_about_pytorch_is_run' 'python3 has no PyTorch'
fi
check_report
