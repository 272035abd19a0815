"""house_figures.py - the figures of check_house.py --figures: sizes and assertions by room."""

import os
import re
import subprocess

from house_macros import DIRECTIVE, closing
from house_tree import EXTENSIONS, TOPS, line_of

LONGEST = 40  # lines between a function's braces
OTHER_ASSERTIONS = {"_Static_assert", "static_assert", "ASHLAR_OWNS", "ASHLAR_TABLE_IS_FULL"}
HEADER_OF_CHECKS = "check_level.h"
# A function's body opens at the end of a line that does not begin with a space, or alone on one.
BODY = re.compile(
    r"^(?![\s#}/*])(?:[^\n;={]|\n(?=[ \t]))*\)[^\n;={]*\{[ \t]*$(.*?)^\}", re.M | re.S)
HEADLINE = ("room", ".c", "files", "lines", "no asserts", "asserts", "/ 1000", "long fns")
FORM = "%-22s %5s %6s %7s %11s %8s %7s %9s"


class Figures:
    """Sums over files."""

    def __init__(self):
        self.sources = self.files = self.lines = self.assertions = self.assertion_lines = 0
        self.assertable_lines = self.long_functions = 0

    def add(self, other):
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def row(self, name):
        share = 1000 * self.assertions / self.assertable_lines if self.assertable_lines else 0
        return FORM % (name, self.sources, self.files, self.lines,
                       self.lines - self.assertion_lines, self.assertions, "%.1f" % share,
                       self.long_functions)


def find_macros(tree):
    """The names of the project's assertions."""
    names = set(OTHER_ASSERTIONS)
    for path in tree.files:
        if os.path.basename(path) == HEADER_OF_CHECKS:
            names |= set(re.findall(r"#\s*define\s+(ASHLAR_\w+)\(", tree.code(path)))
    return names


def find_assertions(code, names):
    """(first line, last line) of each; `code` is without directives, which define them."""
    for match in re.finditer(r"\b(?:%s)\s*\(" % "|".join(sorted(names)), code):
        yield line_of(code, match.start()), line_of(code, closing(code, match.end() - 1))


def measure(tree, path, names):
    code = DIRECTIVE.sub(lambda match: "\n" * match.group().count("\n"), tree.code(path))
    found = list(find_assertions(code, names))
    figures = Figures()
    figures.files = 1
    figures.sources = path.endswith(".c")
    figures.lines = tree.text(path).count("\n")
    figures.assertions = len(found)
    figures.assertion_lines = len({line for first, last in found
                                   for line in range(first, last + 1)})
    figures.assertable_lines = figures.lines if path.endswith((".c", ".h")) else 0
    figures.long_functions = sum(body.count("\n") - 1 > LONGEST for body in BODY.findall(code))
    return figures


def tracked_files(tree):
    """What git knows; all that is there where it knows nothing."""
    done = subprocess.run(["git", "-C", tree.root, "ls-files"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    names = set(done.stdout.decode().splitlines())
    return [path for path in tree.files if path in names] or tree.files


def print_rooms(tree, figures):
    """A line for each room, then for each folder at the top."""
    sums = {}
    for path, found in figures.items():
        for name in tree.room(path) or "(no room)", path.split("/")[0] + "/":
            sums.setdefault(name, Figures()).add(found)
    print(FORM % HEADLINE)
    for name in (*tree.rooms, "(no room)", *(top + "/" for top in (*TOPS, "include"))):
        if name in sums:
            print(sums[name].row(name))


def print_figures(tree, circles):
    names = find_macros(tree)
    paths = [path for path in tracked_files(tree) if path.endswith(EXTENSIONS)]
    figures = {path: measure(tree, path, names) for path in paths}
    product, tests = Figures(), Figures()
    for path, found in figures.items():
        (tests if path.startswith("tests/") else product).add(found)
    print_rooms(tree, {path: figures[path] for path in paths if not path.startswith("tests/")})
    print()
    print("product: %d files, %d without include/; %d lines, %d without assertions" %
          (product.files, sum(path.split("/")[0] in TOPS for path in paths), product.lines,
           product.lines - product.assertion_lines))
    print("tests: %d files, %d lines" % (tests.files, tests.lines))
    if circles is not None:
        print("largest circle: %s" % (", ".join(circles[0]) + " (%d files)" % len(circles[0])
                                      if circles else "none"))
