"""Say which conditions the tests have shown to matter, by room: mcdc.py BUILD PROFILES LIST

BUILD was made by tests/native/mcdc.ini, its tests were run, and left their profiles in the folder
PROFILES. MC/DC, by clang: a condition of a decision (operands of && and ||) counts as covered where
two runs differ in it and in the outcome, and in nothing else that was evaluated. Assertions are not
compiled in (measured.h), and what the compiler folds to a constant does not count. Prints a table,
and writes what is not covered to LIST: place, source, and the outcomes that were seen.
"""

import glob
import json
import os
import re
import subprocess
import sys

from check_house import ROOMS

MEASURED = ("allocator", "arena")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FORM = "%-22s %15s %7s %15s %7s %15s %7s"
HEADLINE = ("room", "lines", "%", "branches", "%", "MC/DC pairs", "%")


def find_objects(build):
    return [name for top in MEASURED for name in sorted(
        glob.glob("%s/%s/**/*.o" % (build, top), recursive=True))]


def merge(profiles, out):
    names = glob.glob(profiles + "/*.profraw")
    if not names:
        sys.exit("mcdc.py: no test left a profile in " + profiles)
    subprocess.run(["llvm-profdata-19", "merge", "-sparse", "-o", out, *names], check=True)


def ask_llvm_cov(command, merged, objects, *options):
    words = ["llvm-cov-19", command, objects[0], "-instr-profile=" + merged, *options]
    for name in objects[1:]:
        words += ["-object", name]
    words += [os.path.join(ROOT, top) for top in MEASURED]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.decode()


class Condition:
    """One operand of a decision, in whichever files its function was compiled."""

    def __init__(self, path, line, column):
        self.path, self.line, self.column = path, line, column
        self.is_covered = self.is_folded = False
        self.seen = set()


def read_conditions(shown):
    """The conditions of `llvm-cov show -show-mcdc`; inline functions are shown many times."""
    conditions, path, places, vectors = {}, None, {}, []
    decision = re.compile(r"\s*\|---> MC/DC Decision Region \((\d+:\d+)\)")
    place = re.compile(r"\s*\|\s+Condition (C\d+) --> \((\d+):(\d+)\)")
    vector = re.compile(r"\s*\|\s+\d+ \{ (.*?)\s*= (\S)\s*\}")
    pair = re.compile(r"\s*\|\s+(C\d+)-Pair: (covered|not covered|constant folded)")
    for line in shown.splitlines():
        if line.startswith("/") and line.endswith(":"):
            path = os.path.relpath(line[:-1], ROOT)
        elif decision.match(line):
            start, places, vectors = decision.match(line)[1], {}, []
        elif place.match(line):
            name, row, column = place.match(line).groups()
            key = path, start, name
            places[name] = conditions.setdefault(key, Condition(path, int(row), int(column)))
        elif vector.match(line):
            values, outcome = vector.match(line).groups()
            vectors.append(re.sub(r"[ ,]", "", values) + "=" + outcome)
        elif pair.match(line):
            name, verdict = pair.match(line).groups()
            places[name].is_covered |= verdict == "covered"
            places[name].is_folded |= verdict == "constant folded"
            places[name].seen.update(vectors)
    return [found for found in conditions.values() if not found.is_folded]


def room_of(path):
    return "/".join(path.split("/")[:2])


def add_up(summary, conditions):
    """Of each room: covered and all, of lines, branches and conditions."""
    sums = {}
    for file in summary["data"][0]["files"]:
        path = os.path.relpath(file["filename"], ROOT)
        row = sums.setdefault(room_of(path), [0] * 6)
        for at, what in (0, "lines"), (2, "branches"):
            row[at] += file["summary"][what]["covered"]
            row[at + 1] += file["summary"][what]["count"]
    for condition in conditions:
        row = sums[room_of(condition.path)]
        row[4] += condition.is_covered
        row[5] += 1
    return sums


def format_row(name, row):
    cells = []
    for covered, count in zip(row[::2], row[1::2]):
        cells += ["%d/%d" % (covered, count), "%.1f" % (100 * covered / count) if count else "-"]
    return FORM % (name, *cells)


def print_table(sums):
    print(FORM % HEADLINE)
    for name, _ in ROOMS:
        if name in sums:
            print(format_row(name, sums[name]))


def write_list(conditions, name):
    texts = {}
    with open(name, "w", encoding="utf-8") as out:
        for found in sorted(conditions, key=lambda c: (c.path, c.line, c.column)):
            if found.is_covered:
                continue
            if found.path not in texts:
                with open(os.path.join(ROOT, found.path), encoding="utf-8") as file:
                    texts[found.path] = file.read().splitlines()
            text = texts[found.path][found.line - 1][found.column - 1:]
            print("%s:%d:%d: %s   [%s]" % (found.path, found.line, found.column, text.strip(),
                                           " ".join(sorted(found.seen)) or "never"), file=out)


def main(build, profiles, name):
    build, merged = os.path.abspath(build), os.path.join(profiles, "merged")
    merge(profiles, merged)
    objects = find_objects(build)
    summary = json.loads(ask_llvm_cov("export", merged, objects, "-summary-only"))
    conditions = read_conditions(ask_llvm_cov("show", merged, objects, "-show-mcdc"))
    sums = add_up(summary, conditions)
    write_list(conditions, name)
    print_table(sums)
    print("not covered: " + name)
    print(format_row("total", [sum(column) for column in zip(*sums.values())]))


if __name__ == "__main__":
    main(*sys.argv[1:4])
