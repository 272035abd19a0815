"""check_house.py - hold the product code to its layout in rooms.

    python3 tests/check_house.py [--build FOLDER] [--root FOLDER] [--tap | --figures]

A file includes its own room and lower ones, and calls no higher one; no circle of calls has more
than three files; a room has at most 30 .c files; a file opens with a sentence on what it owns; a
room's tests link that room and lower ones; a table that an enum indexes has all its rows. Prints a
line for each finding, with what to do about it. Status: 0, 1 where there is one.

Calls and links are read from a build folder, Meson's with its objects. --figures prints sizes and
assertions by room instead of checking.
"""

import argparse
import os
import sys

from house_build import (
    Build, check_calls, check_circles, check_links, check_objects, find_circles)
from house_figures import print_figures
from house_includes import check_includes, check_rooms
from house_openings import check_openings
from house_tables import check_tables
from house_tree import Tree

MOST_SOURCES = 30  # .c files of a room
MOST_IN_CIRCLE = 3

# Bottom up: each room stands on those above it in this list.
ROOMS = [
    ("allocator/base", "text, files, host memory, status, tags, random numbers, JSON, clock"),
    ("allocator/driver", "the table of driver functions, libcuda"),
    ("allocator/soft", "the software device"),
    ("allocator/device", "the device object: memory, streams, events, copies"),
    ("allocator/trace", "the trace, its writers, snapshots"),
    ("allocator/heap", "ranges, blocks, bins, stream state"),
    ("allocator/pack", "packing of offsets"),
    ("allocator/guard", "guard modes and leaks"),
    ("allocator/plan", "recording, slots, replay"),
    ("allocator/core", "the fast path, the ladder of a miss, frees, limits"),
    ("allocator/step", "steps, plans of steps, warm-up"),
    ("allocator/dropin", "allocators under other interfaces: preload, PyTorch, CuPy"),
    ("arena/compute", "what computes on the CPU for all: threads, conversions"),
    ("arena/layout", "where tensors lie in an arena"),
    ("arena/reduce", "gradients summed over devices"),
    ("arena/optimizer", "updates of the weights"),
    ("arena/checkpoint", "weights in files"),
    ("rnn/product", "matrix products, for each instruction set"),
    ("rnn/layer", "cells and their back ends"),
    ("rnn/data", "corpora and batches"),
    ("rnn/model", "embedding, layers, loss"),
    ("rnn/train", "the training loop"),
    ("rnn/programs", "ashlar-train and ashlar-sample"),
    ("bench/harness", "measuring, statistics, results"),
    ("bench/replay", "traces replayed"),
    ("bench/peers", "the allocators that are compared"),
    ("bench/arena", "the arena's benchmark"),
    ("bench/rnn", "the layers' benchmark"),
    ("bench/programs", "ashlar-bench and ashlar-replay"),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description="Hold the product code to its layout in rooms.")
    parser.add_argument("--build", metavar="FOLDER", help="a build folder, for calls and links")
    parser.add_argument("--root", metavar="FOLDER", help="the project's; default: this script's",
                        default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--tap", action="store_true", help="a case for each check, for meson test")
    parser.add_argument("--figures", action="store_true", help="print sizes, do not check")
    return parser.parse_args()


def run_checks(tree, build):
    """What each check holds the project to, and its findings."""
    yield "every_source_has_a_room", check_rooms(tree, MOST_SOURCES)
    yield "includes_go_down", check_includes(tree)
    yield "files_open_with_what_they_own", check_openings(tree)
    yield "tables_have_all_their_rows", check_tables(tree)
    if build:
        calls = build.calls()
        yield "the_build_has_objects", check_objects(build)
        yield "calls_go_down", check_calls(tree, calls)
        yield "no_circle_of_calls_is_large", check_circles(tree, calls, MOST_IN_CIRCLE)
        yield "tests_link_what_is_below", check_links(build)


def describe(build):
    """What was looked at besides the sources."""
    if build is None:
        return "calls and links not looked at: give --build FOLDER"
    text = "%d objects" % (len(build.objects()) - len(build.missing))
    stale = len(list(build.stale()))
    if build.missing or stale:
        text += " (%d not built, %d older than their sources: run ninja -C %s)" % (
            len(build.missing), stale, os.path.relpath(build.folder))
    return text


def print_findings(tree, build):
    """All of them, those on one file together."""
    findings = [finding for _, found in run_checks(tree, build) for finding in found]
    for finding in sorted(findings, key=lambda f: (f.path, f.line, f.wrong)):
        print(finding)
    print("%d rooms, %d files, %s: %d findings" %
          (len(tree.rooms), len(tree.files), describe(build), len(findings)))
    return 1 if findings else 0


def print_tap(tree, build):
    """A case for each check."""
    print("# " + describe(build))
    count = bad = 0
    for name, found in run_checks(tree, build):
        findings = list(found)
        count += 1
        bad += bool(findings)
        for finding in findings:
            print("# %s" % finding)
        print("%sok %d - %s" % ("not " if findings else "", count, name))
    print("1..%d" % count)
    return 1 if bad else 0


def main():
    arguments = parse_arguments()
    tree = Tree(arguments.root, ROOMS)
    build = Build(tree, arguments.build) if arguments.build else None
    if arguments.figures:
        print_figures(tree, find_circles(build.calls()) if build else None)
        return 0
    return (print_tap if arguments.tap else print_findings)(tree, build)


if __name__ == "__main__":
    sys.exit(main())
