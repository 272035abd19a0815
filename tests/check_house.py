"""check_house.py - hold the product code to its layout in rooms.

    python3 tests/check_house.py [--build FOLDER] [--root FOLDER] [--tap]

A file includes its own room and lower ones; the trainer's rooms include public headers of the
library; no circle of calls has more than three files; a room has at most 30 .c files; a file opens
with a sentence on what it owns. Prints a line for each finding, with what to do about it. Status: 0, 1 where there is one. Calls are read from the objects of a build
folder of Meson's.
"""

import argparse
import glob
import os
import re
import subprocess
import sys

MOST_SOURCES = 30  # .c files of a room
MOST_IN_CIRCLE = 3
FEWEST_WORDS = 4   # of an opening sentence
TOPS = ("allocator", "arena", "rnn", "bench")
OF_MANY = {"tests/allocator/world/": "allocator/step"}  # tests of many rooms: the highest of them

# Bottom up: each room stands on those above it in this list.
ROOMS = [
    ("allocator/base", "text, files, host memory, status, tags, random numbers, JSON, clock"),
    ("allocator/driver", "the table of driver functions, libcuda"),
    ("allocator/soft", "the software device"),
    ("allocator/device", "the device object: memory, streams, events, copies"),
    ("allocator/trace", "the trace and its log, NVTX, the leak monitor"),
    ("allocator/heap", "ranges, blocks, bins, stream state"),
    ("allocator/pack", "packing of offsets"),
    ("allocator/guard", "guard modes and leaks"),
    ("allocator/plan", "recording, slots, replay"),
    ("allocator/core", "the fast path, the ladder of a miss, frees, modes, limits"),
    ("allocator/step", "steps, plans of steps, warm-up"),
    ("allocator/dropin", "allocators under other interfaces: preload, PyTorch, CuPy"),
    ("arena/compute", "what computes on the CPU for all: threads, conversions"),
    ("arena/product", "matrix products, for each instruction set"),
    ("arena/layout", "where tensors lie in an arena"),
    ("arena/reduce", "gradients summed over devices"),
    ("arena/optimizer", "updates of the weights"),
    ("arena/checkpoint", "weights in files"),
    ("rnn/layer", "cells and operations, on the CPU"),
    ("rnn/cuda", "the same on CUDA devices"),
    ("rnn/engine", "models as lists of operations, walks over them"),
    ("rnn/data", "corpora and batches"),
    ("rnn/model", "the text model"),
    ("rnn/train", "the training loop"),
    ("rnn/programs", "ashlar-train and ashlar-sample"),
    ("bench/harness", "measuring, statistics, results"),
    ("bench/replay", "traces replayed"),
    ("bench/peers", "the allocators that are compared"),
    ("bench/arena", "the arena's benchmark"),
    ("bench/rnn", "the layers' benchmark"),
    ("bench/programs", "ashlar-bench and ashlar-replay"),
]


# Users of the library like any other: of it they include public headers, and of these rooms all.
USERS = ("rnn/data/", "rnn/model/", "rnn/train/", "rnn/programs/")
OPEN_TO_USERS = ("include/", "allocator/base/", *USERS)

NAMES = [name for name, _ in ROOMS]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)
OPENING = re.compile(r"(?:/\*|//)(.*?)(?:\n \*\n|\*/|\n\n|\n#)", re.S)


def find_sources(root):
    for top in (*TOPS, "include", "tests"):
        for ending in "c", "h", "cpp", "hpp", "cu":
            for path in glob.glob("%s/%s/**/*.%s" % (root, top, ending), recursive=True):
                yield os.path.relpath(path, root)


def floor_of(path):
    """The number of its room or of the room that it tests; -1: a public header; None: a helper."""
    for folder, room in OF_MANY.items():
        if path.startswith(folder):
            return NAMES.index(room)
    parts = path.removeprefix("tests/").split("/")
    room = "/".join(parts[:2])
    return -1 if parts[0] == "include" else NAMES.index(room) if room in NAMES else None


def check_rooms(texts):
    counts = dict.fromkeys(NAMES, 0)
    for path in texts:
        if path.startswith(TOPS):
            if floor_of(path) is None:
                yield "%s: lies in no room. Add its folder to ROOMS in tests/check_house.py" % path
            elif path.endswith(".c"):
                counts[NAMES[floor_of(path)]] += 1
    for room, count in counts.items():
        if not 1 <= count <= MOST_SOURCES:
            yield "%s: has %d .c files. Split it or join files: 1 to %d" % (
                room, count, MOST_SOURCES)


def check_includes(texts):
    for path, text in texts.items():
        floor = floor_of(path)
        for written in INCLUDE.findall(text):
            target = "include/" + written if "include/" + written in texts else written
            if target not in texts or floor is None:
                continue
            if target.startswith("tests/") and not path.startswith("tests/"):
                yield "%s: product code includes %s. Move what it needs into its room" % (
                    path, target)
            elif floor_of(target) is not None and floor_of(target) > floor:
                yield "%s: includes %s of a higher room. Pass what is needed, or move a file" % (
                    path, target)
            elif path.startswith(USERS) and not target.startswith(OPEN_TO_USERS):
                yield "%s: includes %s. Use <ashlar/...>, or make public what is needed" % (
                    path, target)


def check_openings(texts):
    for path, text in texts.items():
        name = os.path.basename(path)
        match = OPENING.match(text)
        words = re.sub(r"\n(?: \*|//)", " ", match[1]).split() if match else []
        if words[:2] != [name, "-"] or len(words) < 2 + FEWEST_WORDS:
            yield "%s: open it with /* %s - a sentence on what it owns. */" % (path, name)


def read_calls(root, build):
    """source -> the sources of ours that define what it needs."""
    defined, needed = {}, {}
    for top in TOPS:
        for name in glob.glob("%s/%s/**/*.o" % (build, top), recursive=True):
            # lib<room>.a.p/<folder>_<file>.c.o
            source = "%s/%s" % (top, os.path.basename(name)[:-2].replace("_", "/", 1))
            if not os.path.exists("%s/%s" % (root, source)):
                continue
            for line in subprocess.run(["nm", name], check=True, stdout=subprocess.PIPE,
                                       encoding="utf-8").stdout.splitlines():
                kind, symbol = line.split()[-2:]
                if kind == "U":
                    needed.setdefault(source, set()).add(symbol)
                elif kind in "TDBR":
                    defined[symbol] = source
    return {source: {defined[s] for s in symbols if s in defined} - {source}
            for source, symbols in needed.items()}


def find_circles(calls):
    """The strongly connected parts of more than one file (Tarjan's)."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(source):
        number[source] = lowest[source] = len(number)
        stack.append(source)
        for target in sorted(calls.get(source, ())):
            if target not in number:
                visit(target)
            if target in stack:
                lowest[source] = min(lowest[source], lowest[target])
        if lowest[source] == number[source]:
            at = stack.index(source)
            found.append(stack[at:])
            del stack[at:]

    for source in sorted(calls):
        if source not in number:
            visit(source)
    return [circle for circle in found if len(circle) > 1]


def check_circles(calls):
    for circle in find_circles(calls):
        if len(circle) > MOST_IN_CIRCLE:
            yield "%s: call each other in a circle. Part what they share from what differs" % (
                ", ".join(sorted(circle)))


def main():
    parser = argparse.ArgumentParser(description="Hold the product code to its layout in rooms.")
    parser.add_argument("--build", metavar="FOLDER", help="a build folder, for calls")
    parser.add_argument("--root", metavar="FOLDER", help="the project's; default: this script's",
                        default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--tap", action="store_true", help="a case for each check, for meson test")
    given = parser.parse_args()
    texts = {}
    for path in sorted(find_sources(given.root)):
        with open(os.path.join(given.root, path), encoding="utf-8") as file:
            texts[path] = file.read()
    checks = {"every_source_has_a_room": check_rooms(texts), "includes_go_down":
              check_includes(texts), "files_open_with_what_they_own": check_openings(texts)}
    if given.build:
        calls = read_calls(given.root, given.build)
        checks["the_build_has_objects"] = [] if calls else ["no object in " + given.build]
        checks["no_circle_of_calls_is_large"] = check_circles(calls)
    bad = 0
    for count, (name, found) in enumerate(checks.items(), 1):
        findings = list(found)
        bad += len(findings)
        for finding in findings:
            print(("# " if given.tap else "") + finding + ".")
        if given.tap:
            print("%sok %d - %s" % ("not " if findings else "", count, name))
    print("1..%d" % len(checks) if given.tap else "%d files: %d findings" % (len(texts), bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
