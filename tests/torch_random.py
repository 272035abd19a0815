"""Random programs by PyTorch's own allocator, and by its rules as ashlar-replay has them.

    torch_random.py BUILD [--seeds N] [--first SEED] [--events N]

Each program allocates, frees, uses blocks on other streams, empties the cache and runs out of
memory, on the stand-ins for CUDA's driver and runtime (tests/cuda). The snapshot that PyTorch then
writes is replayed: its segments and the places of its blocks have to be those that were recorded.
Status: 0, 1, or 77 where PyTorch is missing.
"""

import argparse
import os
import pathlib
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile

SETTINGS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:40,max_non_split_rounding_mb:24",
    "roundup_power2_divisions:[1:1,4:4,16:8,>:2]",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9",
    "large_segment_size_mb:16,max_split_size_mb:16,roundup_power2_divisions:4",
]
MEMORY_MIB = 2048
MODES = ["eager", "adversarial"]  # whether work is done at once, or when the host waits for it
SOURCE = pathlib.Path(__file__).resolve().parent.parent


class Program:
    def __init__(self, torch, seed, events, has_pools):
        self.torch, self.draw, self.events = torch, random.Random(seed), events
        self.has_pools = has_pools
        self.streams = [torch.cuda.Stream() for _ in range(3)] + [torch.cuda.default_stream()]
        self.live, self.held, self.pool = [], 0, None
        # Sizes come back, as they do in training.
        self.palette = [self.size() for _ in range(self.draw.randint(3, 40))]
        self.most = self.draw.choice([0.4, 0.8, 1.1]) * (MEMORY_MIB << 20)

    def size(self):
        low, high = self.draw.choice([(0, 20), (9, 20), (20, 23.3), (20, 27), (23, 28)])
        return int(2 ** self.draw.uniform(low, high))

    def allocate(self):
        draw, torch = self.draw, self.torch
        size = draw.choice(self.palette) if draw.random() < 0.7 else self.size()
        stream = self.streams[min(draw.randrange(12), 3)]
        try:
            with torch.cuda.stream(stream):
                if self.pool is not None and draw.random() < 0.3:
                    with torch.cuda.use_mem_pool(self.pool):
                        block = torch.empty(size, dtype=torch.uint8, device="cuda")
                else:
                    block = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            for _ in range(len(self.live) // 4):
                self.free()
            return
        if draw.random() < 0.1:
            other = draw.choice(self.streams)
            with torch.cuda.stream(other):
                block[:1].copy_(block[-1:])
            block.record_stream(other)
        self.live.append(block)
        self.held += size

    def free(self):
        i = self.draw.randrange(len(self.live))
        self.live[i], self.live[-1] = self.live[-1], self.live[i]
        self.held -= self.live.pop().numel()

    def run(self):
        draw = self.draw
        for _ in range(self.events * 2 // 3):  # an allocation is one event, a free two
            rare = draw.random()
            if rare < 0.0003:
                self.torch.cuda.empty_cache()
            elif rare < 0.002:
                self.torch.cuda.synchronize()
            elif rare < 0.0023 and self.has_pools:
                self.pool = None if self.pool is not None else self.torch.cuda.MemPool()
            elif self.live and draw.random() < 0.3 + 0.4 * self.held / self.most:
                self.free()
            else:
                self.allocate()


def seeds_of(mode, asked):
    return [seed for seed in range(asked.first, asked.first + asked.seeds)
            if MODES[seed % len(MODES)] == mode]


def begin(torch, settings):
    """Start CUDA with those of the settings that this version has; where it is none, the share of
    the device is set by a call. Returns them, and whether events tell their pools."""
    used = os.environ["PYTORCH_CUDA_ALLOC_CONF"]
    try:
        torch.cuda.init()
    except RuntimeError as wrong:
        name = re.search(r"Unrecognized CachingAllocator option: (\w+)", str(wrong))
        if not name:
            raise
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = re.sub(rf",?{name[1]}:[^,]*", "", used).strip(",")
        os.execv(sys.executable, [sys.executable, *sys.argv])  # it cannot be started twice
    share = re.search(r"per_process_memory_fraction:([\d.]+)", settings)
    if share and share[0] not in used:
        torch.cuda.set_per_process_memory_fraction(float(share[1]))
        used = f"{used},{share[0]}"
    torch.cuda.memory._record_memory_history(stacks="python")
    torch.empty(1, device="cuda")
    has_pools = "pool_id" in torch.cuda.memory._snapshot()["device_traces"][0][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return used, has_pools


def record(settings, mode, folder, seeds, events):
    """In a process of its own: snapshots of all programs of the mode. Every second one begins with
    what the one before left."""
    import torch
    if not torch.cuda.is_available():
        print("torch_random: PyTorch sees no GPU")
        return 77
    left, (used, has_pools) = [], begin(torch, settings)
    for seed in seeds:
        number = seed * len(SETTINGS) + SETTINGS.index(settings)
        if seed // 2 % 2 == 0:
            left.clear()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        # PyTorch 2.15 itself crashes where a pool of expandable segments has run out of memory.
        program = Program(torch, number, events, has_pools and "expandable" not in settings)
        torch.cuda.memory._record_memory_history(context="all", stacks="python",
                                                 max_entries=10 * events)
        program.run()
        snapshot = torch.cuda.memory._snapshot()
        snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = used
        with open(f"{folder}/{seed}.pickle", "wb") as file:
            pickle.dump(snapshot, file)
        torch.cuda.memory._record_memory_history(enabled=None)
        left = program.live[: len(program.live) // 2]
        del program
    return 0


def stand_ins(build, mode):
    cuda = f"{build}/tests/cuda"
    names = ["libcudart_12.so", "libcudart.so.13", "libcudart_rest.so"]
    return dict(os.environ, LD_LIBRARY_PATH=cuda, PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR",
                TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC="0",  # NVML is not there
                LD_PRELOAD=":".join(f"{cuda}/{name}" for name in names),
                ASHLAR_SOFT=f"memory={MEMORY_MIB}MiB,mode={mode},touch=off")


def converted(folder, seed):
    """The event file of a snapshot, which goes."""
    pickled, events = f"{folder}/{seed}.pickle", f"{folder}/{seed}.events"
    subprocess.run([sys.executable, SOURCE / "tools/snapshot_events.py", pickled, events],
                   check=True)
    os.remove(pickled)
    return events


def compare(build, settings, mode, asked, kept):
    """All programs of a setting; returns how many there were and how many were not equal."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, __file__, build, "--seeds", str(asked.seeds), "--first",
             str(asked.first), "--events", str(asked.events), "--record", settings, mode, folder],
            env=dict(stand_ins(build, mode), PYTORCH_CUDA_ALLOC_CONF=settings))
        if ran.returncode != 0:
            print(f"{settings}, {mode}: no programs, status {ran.returncode}")
            sys.exit(77 if ran.returncode == 77 else 1)
        count = failed = 0
        for seed in seeds_of(mode, asked):
            events = converted(folder, seed)
            count += 1
            for memory in MEMORY_MIB << 20, 0:  # 0: not known, as of a snapshot alone
                told = subprocess.run([f"{build}/tests/torch_equal", str(memory), events],
                                      stdout=subprocess.PIPE, text=True)
                if told.returncode != 0:
                    break
            if told.returncode != 0:
                failed += 1
                print(f"device of {memory} bytes: {told.stdout}", end="", flush=True)
                if kept:
                    shutil.copy(events, f"{kept}/{SETTINGS.index(settings)}-{mode}-{seed}.events")
            os.remove(events)
    return count, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="seed")
    parser.add_argument("--events", type=int, default=20000, help="of each program, about")
    parser.add_argument("--keep", help="folder for what was not equal")
    parser.add_argument("--only", type=int, help="index of one setting")
    parser.add_argument("--record", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.record:
        return record(*asked.record, seeds_of(asked.record[1], asked), asked.events)
    count = failed = 0
    for settings in SETTINGS if asked.only is None else [SETTINGS[asked.only]]:
        for mode in MODES:
            more, worse = compare(asked.build, settings, mode, asked, asked.keep)
            count, failed = count + more, failed + worse
            print(f"{settings or 'defaults'}, {mode}: {more - worse} of {more} equal", flush=True)
    print(f"{count - failed} of {count} programs were equal")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
