#!/bin/sh
#
# shell_examples.sh - the programs of examples/: each is built by the command in its opening
# comment, against ashlar as it is installed, and says what it is there to show.

# shellcheck source=tests/shell/tap.sh
. "$(dirname "$0")/tap.sh"

root=$scratch/root
cp "$ASHLAR_SOURCE"/examples/* "$scratch"
cd "$scratch" || exit 1

install_files() {
    DESTDIR=$root meson install -C "$ASHLAR_BUILD" --no-rebuild || return
    config=$(find "$root" -name ashlar.pc)
    prefix=$root$(sed -n 's/^prefix=//p' "$config")
    mkdir -p pkgconfig && sed "s|^prefix=.*|prefix=$prefix|" "$config" >pkgconfig/ashlar.pc
}

# The commands in an opening comment, as they are printed there.
commands() { # FILE
    sed -n -e '/\*\//q' -e 's/^ \*     //p' "$1"
}

runs() { # FILE WANTED-LINE...: extended regular expressions, each for a whole line
    file=$1
    shift
    commands "$file" >"$scratch/commands"
    grep -q . "$scratch/commands" || complain 'no command in the comment' || return
    sh -e "$scratch/commands" >"$scratch/out" 2>&1
    status=$?
    cat "$scratch/out"
    [ "$status" -eq 0 ] || return
    for line in "$@"; do
        grep -qxE "$line" "$scratch/out" || complain "lacks the line $line" || return
    done
}

are_short() {
    for file in *.c; do
        most=60
        [ "$file" != tagger.c ] || most=200
        [ "$(wc -l <"$file")" -le "$most" ] || complain "$file has more than $most lines" || return
    done
}

prefetches_late() {
    for seed in 1 2 3; do
        ASHLAR_SOFT=mode=adversarial,seed=$seed ./prefetch | grep -F '64 of 64' || return
    done
}

# What the example is there to show, without the line that it is about.
prefetches_wrong() {
    sed '/ashlar_record_stream(/d' prefetch.c >wrong.c &&
        commands prefetch.c | grep '^cc ' | sed 's/prefetch/wrong/g; s/ &&.*//' >commands &&
        sh -e commands || return
    for seed in 1 2 3; do
        ASHLAR_SOFT=mode=adversarial,seed=$seed ./wrong | grep -vF '64 of 64' && return
    done
    complain 'it is right without ashlar_record_stream()'
}

# Of processor time, so that other programs hardly matter; twice the words take twice of it.
takes_linear_time() {
    ./tagger | awk '/words take/ { print; good = $11 > $4 && $11 < 3 * $4 } END { exit !good }'
}

# An LSTM's weights as safetensors.torch.save_file() writes a state_dict().
write_weights() { # FILE
    python3 - "$1" <<'PYTHON'
import json, random, struct, sys
random.seed(3)
shapes = {}
for layer, width in ((0, 8), (1, 64)):
    shapes.update({f"bias_hh_l{layer}": [256], f"bias_ih_l{layer}": [256],
                   f"weight_hh_l{layer}": [256, 64], f"weight_ih_l{layer}": [256, width]})
header, data = {}, b""
for name, shape in shapes.items():
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = struct.pack(f"<{count}f", *(random.uniform(-0.2, 0.2) for _ in range(count)))
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
    data += values
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
PYTHON
}

# Step by step, a few steps at once, and all in one batch.
streams_as_in_one_batch() {
    write_weights lstm.safetensors || return
    for weights in '' lstm.safetensors; do
        for steps in 1 8 120; do
            # shellcheck disable=SC2086 # without a file there is no argument
            ./streaming $steps $weights || return
        done >out || return
        cat out
        [ "$(wc -l <out)" -eq 3 ] && [ "$(sort -u out | wc -l)" -eq 1 ] ||
            complain 'the checksums differ' || return
        cp out "out.${weights:-drawn}"
    done
    ! cmp out.drawn out.lstm.safetensors || complain 'the file changes nothing'
}

says_as_built_by_meson() { # NAME
    "$ASHLAR_BUILD/examples/example_$1" >built && "./$1" | diff - built
}

check 'ashlar_is_installed' install_files
PKG_CONFIG_PATH=$scratch/pkgconfig
LD_LIBRARY_PATH=$(PKG_CONFIG_PATH=$scratch/pkgconfig pkg-config --variable=libdir ashlar)
ASHLAR_DEVICE=soft
export PKG_CONFIG_PATH LD_LIBRARY_PATH ASHLAR_DEVICE

check 'no_example_is_long' are_short
check 'hello_shows_the_statistics' runs hello.c \
    '0 bytes live, 1000000 at the peak'
check 'prefetch_is_right' runs prefetch.c '64 of 64 batches are right; [0-9]+ MiB .*'
check 'prefetch_is_right_when_work_is_late' prefetches_late
check 'and_is_wrong_without_the_line_that_it_is_about' prefetches_wrong
check 'out_of_memory_reclaims_and_reports' runs out_of_memory.c \
    '6 MiB are wanted: gave back 8 MiB' 'The batch has its memory\.' \
    'ASHLAR_ENOMEM:' '.*limit.*'
check 'warmup_proves_what_it_prints' runs warmup.c \
    'A step of any length from 1 to 100 takes no more memory: guaranteed\.' \
    '1000 steps: 0 driver calls, [0-9]+ bytes reserved\.'
check 'adding_learns_and_calls_no_driver' runs adding.c \
    'loss first [0-9.]+ last 0\.000[0-9]*, 0 driver calls'
check 'classifier_learns_from_ragged_sequences' runs classifier.c \
    'loss first 0\.[67][0-9]* last 0\.[01][0-9]*, 0 driver calls'
check 'tied_language_model_learns_with_dropout' runs tied_language_model.c \
    'loss first [34]\.[0-9]* last 0\.[0-3][0-9]*, 0 driver calls'
check 'new_head_leaves_out_what_is_frozen' runs new_head.c \
    '5 operations a step, 8 to train the base, too' \
    'loss first 2\.[45][0-9]* last [01]\.[0-9]+, 0 driver calls'
check 'ctc_learns_by_a_loss_of_its_own' runs ctc.c \
    'loss first [4-9]\.[0-9]+ last 0\.00[0-9]+, 0 driver calls'
check 'seq2seq_says_backwards_what_it_reads' runs seq2seq.c \
    'loss 0\.00[0-9]+, 0 driver calls, alone it is right'
check 'tagger_learns_from_letters_and_its_own_tags' runs tagger.c \
    'loss first 3\.[0-9]+ last 0\.[0-9]+, 0 driver calls' \
    '3[12][0-9]{2} of the last 3296 tags are right' \
    '32 words take .* ms of processor time, 64 take .* ms'
check 'it_takes_time_that_is_linear_in_the_words' takes_linear_time
check 'streaming_calls_no_driver' runs streaming.c 'checksum -?[0-9.]+, 0 driver calls'
check 'a_stream_gets_the_outputs_of_one_batch' streams_as_in_one_batch
for name in hello out_of_memory prefetch streaming warmup; do
    check "meson_builds_${name}_as_well" says_as_built_by_meson "$name"
done

# A module in the place of PyTorch's, which prints what it is told; then PyTorch itself.
fake_torch() {
    mkdir -p "$scratch/fake/torch/cuda" && touch "$scratch/fake/torch/_C.py" \
        "$scratch/fake/torch/cuda/__init__.py" || return
    echo 'from . import _C' >"$scratch/fake/torch/__init__.py" || return
    cat >"$scratch/fake/torch/cuda/memory.py" <<'PYTHON'
class Hooks:
    def __getattr__(self, name):
        return lambda address: print(name, "has an address" if address else "has none")

class CUDAPluggableAllocator:
    def __init__(self, *names):
        print(*names)

    def allocator(self):
        return Hooks()

def change_current_allocator(allocator):
    print("changed")
PYTHON
}

helper_tells_all() {
    fake_torch && PYTHONPATH=$scratch/fake:$helper "$python" -c '
import ashlar_torch
import torch
ashlar_torch.use()
print(ashlar_torch.stats())
told = torch._C._cuda_memoryStats(0)
print("statistics:", told["allocated_bytes"]["all"]["peak"], told["num_ooms"])
' >"$scratch/out" || return
    cat "$scratch/out"
    for line in '/.*/libashlar-torch\.so ashlar_torch_alloc_or_throw ashlar_torch_free' changed \
        'set_record_stream_fn has an address' 'set_reset_fn has an address' \
        'set_memory_fraction_fn has an address' 'set_base_alloc_fn has an address' \
        'set_begin_allocate_to_pool has an address' 'set_release_pool has an address' \
        'set_end_allocate_to_pool_fn has an address' \
        'Stats\(live=0, live_peak=0, reserved=0, reserved_peak=0, .*failed_count=0\)' \
        'statistics: 0 0'; do
        grep -qxE "$line" "$scratch/out" || complain "lacks the line $line" || return
    done
}

ends_well() { # STATUS SAID
    cat "$2"
    return "$1"
}

trains_pytorch() {
    cat "$scratch/out"
    [ "$1" -eq 0 ] && grep -xE 'loss [4-9]\.[0-9]+, then [0-2]\.[0-9]+; .*' "$scratch/out"
}

for name in classifier tied_language_model new_head ctc seq2seq tagger; do
    "${ASHLAR_TORCH_PYTHON:-python3}" "$ASHLAR_SOURCE/tests/torch_examples.py" "$name" "./$name" \
        >"$scratch/compared" 2>&1
    status=$?
    if [ "$status" -eq 77 ]; then
        skip "${name}_has_the_losses_of_pytorch" 'there is no PyTorch'
    else
        check "${name}_has_the_losses_of_pytorch" ends_well "$status" "$scratch/compared"
    fi
done

# In the installed tree the library is below $root, and the helper does not know that.
ASHLAR_TORCH=$LD_LIBRARY_PATH/libashlar-torch.so
export ASHLAR_TORCH
python=$(command -v python3)
helper=$(dirname "$(find "$root" -name ashlar_torch.py)")
if [ -e "$helper/ashlar_torch.py" ] && [ -e "$ASHLAR_TORCH" ]; then
    check 'the_helper_for_python_knows_where_the_library_was_to_be' \
        grep -E '^INSTALLED = "/.*/libashlar-torch\.so"' "$helper/ashlar_torch.py"
    check 'it_gives_pytorch_every_function' helper_tells_all
    PYTHONPATH=$helper "$python" torch_training.py >"$scratch/out" 2>&1
    status=$?
    if [ "$status" -eq 77 ] || grep -qE "No module named .torch'?" "$scratch/out"; then
        skip 'pytorch_trains_on_it' 'there is no PyTorch that sees a GPU'
    else
        check 'pytorch_trains_on_it' trains_pytorch "$status"
    fi
else
    skip 'the_helper_for_python' 'there was no Python when this was built'
fi

# The CUDA of tests/cuda, which stands on the software device.
cuda=$ASHLAR_BUILD/tests/cuda
preload=$LD_LIBRARY_PATH/libashlar-preload.so
if [ -e "$cuda/libcudart.so.13" ] && [ -n "${ASHLAR_CUDA_INCLUDE-}" ] && [ -e "$preload" ]; then
    mkdir -p "$scratch/cuda/lib64" && ln -s "$ASHLAR_CUDA_INCLUDE" "$scratch/cuda/include" &&
        ln -s "$cuda/libcudart.so.13" "$scratch/cuda/lib64/libcudart.so"
    CUDA_PATH=$scratch/cuda CPATH=$ASHLAR_CUDA_INCLUDE LIBRARY_PATH=$cuda
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$cuda
    export CUDA_PATH CPATH LIBRARY_PATH LD_LIBRARY_PATH
    unset ASHLAR_DEVICE
    check 'a_cuda_program_runs_unchanged_with_either' runs cudamalloc_loop.c \
        '500 of 500 steps are right; [0-9.]+ ms a step' \
        'ashlar-preload: 4000 allocations, [1-9] of them took memory .* 0 went to the driver'
else
    skip 'a_cuda_program_runs_unchanged' 'there are no CUDA headers to build it with'
fi
check_report
