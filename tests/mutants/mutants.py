"""Say how many small mistakes the tests would notice: mutants.py FOLDER [N [SEED [PATH]]]

A mutant is a source of the allocator or the arena with one operator, constant or condition changed,
or one call left out. N of them (200), drawn by SEED (1) from the files whose names begin with PATH
(all), are tried one after the other in a copy of the sources in FOLDER: what the change reaches is
built anew, and run are the tests of its room, and where these pass all unit tests of its part. One
whose tests all pass has survived; whether a program could see it at all is for the reader to say.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COPIED = ("allocator", "arena", "rnn", "bench", "docs", "examples", "include", "tests", "tools")
MUTATED = ("allocator/", "arena/")
LIMIT_S = 120  # what a test may take
MOST_MEMORY = 32 << 30  # KiB of addresses: a device has many
sys.path.insert(0, os.path.dirname(HERE))
from run_suite import find_tests, judge  # noqa: E402
from test_targets import read  # noqa: E402

COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n\\]|\\.)*""",
    re.S | re.M)
ASSERTION = re.compile(r"\b(?:ASHLAR_(?:ASSERT|CHECK|OWNS|TABLE|DEBUG)\w*|_Static_assert)\s*\(")
SWAPS = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
         " && ": " || ", " || ": " && ", " + ": " - ", " - ": " + ", " += ": " -= ",
         " -= ": " += ", " | ": " & ", " & ": " | ", " << ": " >> ", " >> ": " << "}
OPERATOR = re.compile("|".join(re.escape(word) for word in sorted(SWAPS, key=len, reverse=True)))
NUMBER = re.compile(r"(?<![\w.\[])\d+(?![\w.])")
CONDITION = re.compile(r"\b(?:if|while) \(")
CALL = re.compile(r"^ +(?:\(void\))?\w+\([^;{}]*\);$", re.M)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def closing(code, place):
    """Where the parenthesis at `place` closes."""
    depth = 0
    for at in range(place, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return at
    return len(code)


def bodies(text):
    """The text of a file with spaces for all but the bodies of functions, without assertions."""
    code = COMMENT_OR_TEXT.sub(blank, text)
    for match in ASSERTION.finditer(code):
        end = closing(code, match.end() - 1) + 1
        code = code[:match.start()] + re.sub(r"[^\n]", " ", code[match.start():end]) + code[end:]
    return re.sub(r"^(?![ }]).*$|^}.*$|^ [^\n]*\\$", blank, code, flags=re.M)


def find_mutants(text):
    """(begin, end, what stands there then) of each."""
    code = bodies(text)
    for match in OPERATOR.finditer(code):
        yield match.start(), match.end(), SWAPS[match.group()]
    for match in NUMBER.finditer(code):
        yield match.start(), match.end(), str(int(match.group()) + 1)
    for match in CONDITION.finditer(code):
        end = closing(code, match.end() - 1)
        yield match.end(), end, "!(%s)" % text[match.end():end]
    for match in CALL.finditer(code):
        yield match.start(), match.end(), "    ;"


class Build:
    def __init__(self, folder):
        self.source, self.build = folder + "/source", folder + "/build"
        self.log = folder + "/log"

    def make(self):
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.rmtree(self.build, ignore_errors=True)
        os.makedirs(self.source)
        for top in COPIED:
            shutil.copytree(ROOT + "/" + top, self.source + "/" + top, symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__", "results"))
        for name in os.listdir(ROOT):
            if os.path.isfile(ROOT + "/" + name):
                shutil.copy2(ROOT + "/" + name, self.source)
        # A variable that a mutant leaves unset has a value; an index beyond an array is a fault.
        flags = "-w -fsanitize=bounds -fsanitize-trap=bounds -ftrivial-auto-var-init=pattern"
        if not self.run("meson", "setup", "--native-file", HERE + "/../native/mutants.ini",
                        "-Dwerror=false", self.build, self.source, env={"CFLAGS": flags}):
            sys.exit("mutants.py: cannot be configured (%s)" % self.log)
        self.tests = list(find_tests(self.build, "unit"))
        files = {t["id"]: t["filename"] for t in read(self.build, "intro-targets.json")}
        self.needs = {test["name"]: [os.path.relpath(name, self.build) for need in test["depends"]
                                     for name in files[need]]
                      for test in read(self.build, "intro-tests.json")}

    def run(self, *words, env=None):
        with open(self.log, "wb") as out:
            return subprocess.run(words, stdout=out, stderr=out, env={**os.environ, **(env or {})},
                                  check=False).returncode == 0

    def choose(self, path):
        """The tests of its room, and the others of its part."""
        rooms = os.listdir(os.path.join(ROOT, "tests", os.path.dirname(path)))
        own = [test for test in self.tests if "test_%s.c" % test["name"] in rooms]
        part = "/tests/" + path.split("/")[0]
        known = {name[5:-2] for folder, _, names in os.walk(ROOT + part) for name in names}
        return own, [test for test in self.tests if test["name"] in known and test not in own]

    def find_failing(self, tests):
        """The first test that fails; "the build" where it does not build; else None."""
        needs = sorted({name for test in tests for name in self.needs[test["name"]]})
        if tests and not self.run("ninja", "-C", self.build, *needs):
            return "the build"
        return next((test["name"] for test in tests if not passes(test)), None)


def passes(test):
    script = "ulimit -v %d -c 0; exec \"$@\"" % MOST_MEMORY
    child = subprocess.Popen(["sh", "-c", script, "sh", *test["cmd"]], cwd=test["workdir"],
                             env={**os.environ, **test["env"]}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             start_new_session=True)
    try:
        output = child.communicate(timeout=LIMIT_S)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    return judge(child.returncode, output)[1] == 0


def draw(count, seed, prefix):
    found = []
    for top in MUTATED:
        for folder, _, names in os.walk(ROOT + "/" + top):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if name.endswith(".c") and path.startswith(prefix):
                    with open(ROOT + "/" + path, encoding="utf-8") as file:
                        found += [(path, *mutant) for mutant in find_mutants(file.read())]
    found.sort()
    return random.Random(seed).sample(found, min(count, len(found))), len(found)


def judge_mutant(build, path, begin, end, after):
    """The verdict on one, whose source is put back."""
    with open(ROOT + "/" + path, encoding="utf-8") as file:
        text = file.read()
    own, others = build.choose(path)
    with open(build.source + "/" + path, "w", encoding="utf-8") as file:
        file.write(text[:begin] + after + text[end:])
    failing = build.find_failing(own) or build.find_failing(others)
    with open(build.source + "/" + path, "w", encoding="utf-8") as file:
        file.write(text)
    verdict = "noticed by " + failing if failing else "SURVIVED"
    print("%s:%d: %s -> %s: %s" % (path, text.count("\n", 0, begin) + 1, text[begin:end].strip(),
                                   after.strip(), verdict), flush=True)
    return failing


def main(folder, count=200, seed=1, prefix=""):
    start = time.monotonic()
    build = Build(os.path.abspath(folder))
    build.make()
    drawn, among = draw(int(count), int(seed), prefix)
    for path in sorted({mutant[0] for mutant in drawn}):
        failing = build.find_failing([*build.choose(path)[0], *build.choose(path)[1]])
        if failing:
            sys.exit("mutants.py: without a mutant %s fails (%s)" % (failing, build.log))
    failed = [judge_mutant(build, *mutant) for mutant in drawn]
    tried = [name for name in failed if name != "the build"]
    print("%d mutants of %d, seed %s, in %d s: %d do not build, %d of %d noticed" % (
        len(drawn), among, seed, time.monotonic() - start, len(failed) - len(tried),
        sum(name is not None for name in tried), len(tried)))


if __name__ == "__main__":
    main(*sys.argv[1:5])
