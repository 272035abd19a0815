"""Print what ninja must build for the tests of a selection: test_targets.py BUILD [SELECTION...]

SELECTION is as for `meson test`: --suite NAME takes the tests of that suite alone, --no-suite NAME
leaves those out. `ninja` without a target builds much that a selection does not run.
"""

import json
import os
import sys


def read(build, name):
    with open(os.path.join(build, "meson-info", name)) as file:
        return json.load(file)


def parse(words):
    """The suites that are wanted (none: all), and those that are not; other options are not ours."""
    wanted, unwanted = set(), set()
    for word, name in zip(words, words[1:]):
        if word == "--suite":
            wanted.add(name)
        elif word == "--no-suite":
            unwanted.add(name)
    return wanted, unwanted


def main(build, *selection):
    wanted, unwanted = parse(selection)
    files = {target["id"]: target["filename"] for target in read(build, "intro-targets.json")}
    root = read(build, "meson-info.json")["directories"]["build"]
    outputs = set()
    for test in read(build, "intro-tests.json"):
        suites = {name.split(":")[-1] for name in test["suite"]}
        if (not wanted or suites & wanted) and not suites & unwanted:
            outputs.update(name for target in test["depends"] for name in files[target])
    print("\n".join(sorted(os.path.relpath(name, root) for name in outputs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
