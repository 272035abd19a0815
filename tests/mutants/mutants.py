"""Say how many small mistakes the tests would notice: mutants.py FOLDER [N [SEED [PATH]]]

A mutant is the library with one operator, constant, condition, call or assignment changed. N of
them (200), drawn by SEED (1) from the files whose names begin with PATH (all), are run in FOLDER
against the tests that reach the change, the quick ones first; one whose tests all pass has survived.
All are in one build, which the environment makes choose (mutant.h). Those that change nothing that
a program can see are listed in tests/equivalent_mutants.txt, and not drawn. Changes of a memory
order are not drawn either: this processor does not reorder by them, so only TSan could tell.
"""

import concurrent.futures
import json
import os
import random
import sys
import time

import trial
from build import ROOT, SELECTION, Build
from test_targets import parse

EQUIVALENT = os.path.join(ROOT, "tests", "equivalent_mutants.txt")
TIMES = 5          # as long as without a mutant a test may take,
MORE_SECONDS = 10  # and so much longer
OWN = 20           # times as long as another may a test of the room take to go first
FIRST_LIMIT = 600


def read_equivalent():
    """key and number -> reason. A line has the key, " #", the number; the next one the reason."""
    found, key = {}, None
    with open(EQUIVALENT, encoding="utf-8") as file:
        for line in file:
            if line.startswith(" ") and key:
                found[key] = found.get(key, "") + line.strip()
            elif line.strip() and not line.startswith("#"):
                key = line.strip()
    return found


def name_of(place):
    return "%s #%d" % (place.key(), place.index)


def find_tests(build):
    with open(build.build + "/meson-info/intro-tests.json", encoding="utf-8") as file:
        tests = [trial.Test(entry) for entry in json.load(file)]
    wanted, unwanted = parse(SELECTION)
    return [test for test in tests if test.suites & wanted and not test.suites & unwanted]


def learn(build, tests, pool, rooms):
    """Which changes each test reaches, and how long it takes; kept for the next run."""
    kept = build.folder + "/reached.json"
    if os.path.exists(kept) and os.path.getmtime(kept) > os.path.getmtime(build.folder + "/places"):
        with open(kept, encoding="utf-8") as file:
            known = json.load(file)
        for test in tests:
            test.seconds, numbers, test.why, leaks = known[test.name]
            test.reached = frozenset(numbers)
            test.environment["LSAN_OPTIONS"] = leaks
        return
    print("%d mutants, %d tests: which reaches which" % (len(build.places), len(tests)), flush=True)
    list(pool.map(lambda test: learn_one(build, test, rooms), tests))
    with open(kept, "w", encoding="utf-8") as file:
        json.dump({test.name: (test.seconds, sorted(test.reached), test.why,
                               test.environment["LSAN_OPTIONS"]) for test in tests}, file)


def learn_one(build, test, rooms):
    """A child of a program with threads has leaks by its nature, which the sanitizer may report."""
    marks = "%s/marks-%s" % (build.folder, test.name)
    with open(marks, "wb") as file:
        file.truncate(len(build.places) + 1)
    for leaks in "detect_leaks=1", "detect_leaks=0":
        test.environment["LSAN_OPTIONS"] = leaks
        result, test.seconds = trial.run(test, FIRST_LIMIT, rooms, ASHLAR_MUTANT_MARKS=marks)
        if result != "failed":
            break
    with open(marks, "rb") as file:
        test.reached = frozenset(k for k, mark in enumerate(file.read()) if mark)
    os.remove(marks)
    test.why = "" if result == "passed" else result


def cost(test, place):
    """A test of the room is the likeliest to tell, and so is worth some seconds."""
    room = os.path.join(ROOT, "tests", os.path.dirname(place.path))
    is_own = os.path.exists("%s/test_%s.c" % (room, test.name))
    return test.seconds / (OWN if is_own else 1)


def try_mutant(place, tests, rooms):
    """(verdict, the test that told)"""
    able = [test for test in tests if place.number in test.reached and not test.why]
    for test in sorted(able, key=lambda test: cost(test, place)):
        result, _ = trial.run(test, TIMES * test.seconds + MORE_SECONDS, rooms,
                              ASHLAR_MUTANT=str(place.number))
        if result not in ("passed", "skipped"):  # nobody looks at what is skipped
            return result, test.name
    return "survived" if able else "not reached", ""


def draw(build, count, seed, path):
    equivalent = read_equivalent()
    able = [place for place in build.places if place.path.startswith(path)
            and place.after != "memory_order_relaxed" and name_of(place) not in equivalent]
    able.sort(key=name_of)
    known = {name_of(place) for place in build.places}
    for key in equivalent:
        if key not in known:
            print("equivalent_mutants.txt: there is no " + key)
    return random.Random(seed).sample(able, min(count, len(able))), len(able)


def tell(place, verdict, test):
    print("%-11s %s:%d: %s%s" % (verdict, place.path, place.line, name_of(place).split(" ", 1)[1],
                                 " [%s]" % test if test else ""), flush=True)


def main(folder, count=200, seed=1, path=""):
    os.nice(max(10 - os.nice(0), 0))
    begin = time.monotonic()
    build = Build(folder)
    build.make()
    rooms = trial.Rooms(build.folder)
    tests = find_tests(build)
    workers = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        learn(build, tests, pool, rooms)
        for test in tests:
            if test.why not in ("", "skipped"):
                print("not used: %s, which %s without a mutant" % (test.name, test.why))
        drawn, among = draw(build, int(count), int(seed), path)
        verdicts = {}

        def judge(place):
            verdicts[place] = verdict = try_mutant(place, tests, rooms)
            tell(place, *verdict)
        list(pool.map(judge, drawn))
    print_result(drawn, verdicts, among, seed, time.monotonic() - begin)


def print_result(drawn, verdicts, among, seed, seconds):
    counts = {}
    for verdict, _ in verdicts.values():
        counts[verdict] = counts.get(verdict, 0) + 1
    print("\nsurvivors:")
    for place in drawn:
        if verdicts[place][0] in ("survived", "not reached"):
            tell(place, *verdicts[place])
    killed, late = counts.get("failed", 0), counts.get("time-out", 0)
    print("%d mutants of %d, seed %s, in %d s: %d killed, %d timed out, %d survived, "
          "%d not reached: %.1f %%" % (
              len(drawn), among, seed, seconds, killed, late, counts.get("survived", 0),
              counts.get("not reached", 0), 100 * (killed + late) / max(len(drawn), 1)))


if __name__ == "__main__":
    main(*sys.argv[1:5])
