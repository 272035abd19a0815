"""house_includes.py - which file includes which, and whether it may: downwards only."""

import os
import re

from house_tree import TOPS, Finding, line_of

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.M)
FULL_PATH = "Includes carry the path from the project's root"


class Includes:
    """The includes of a tree: [(line, what is written, the file that it is or None)] by path."""

    def __init__(self, tree):
        self.tree = tree
        self.by_name = {}
        for path in tree.files:
            self.by_name.setdefault(os.path.basename(path), []).append(path)
        self.of = {path: list(self.read(path)) for path in tree.files}

    def read(self, path):
        for match in INCLUDE.finditer(self.tree.code(path)):
            target = self.find(path, match.group(2))
            if target or match.group(1) == '"':  # <...> is the system's or another library's
                yield line_of(self.tree.text(path), match.start()), match.group(2), target

    def find(self, path, written):
        """A public header, a path from the root, or a helper that lies directly in tests/."""
        folders = ["include/", "", "tests/"]
        if self.tree.floor(path) is None:
            folders.append(os.path.dirname(path) + "/")  # helpers of the tests find their own
        for folder in folders:
            if folder + written in self.tree.known:
                return folder + written
        return None

    def reached(self, path, seen):
        """What a helper of the tests, which has no room of its own, brings along."""
        for _, _, target in self.of[path]:
            if target is None or target in seen:
                continue
            seen.add(target)
            if self.tree.floor(target) is None and target.startswith("tests/"):
                yield from self.reached(target, seen)
            else:
                yield target


def judge(includes, path, line, written, target):
    """The finding on one include, if it is one."""
    tree = includes.tree
    if target is None:
        same_name = includes.by_name.get(os.path.basename(written), [])
        if not same_name:
            return None  # another library's, or made by the build
        return Finding(path, line, 'includes "%s", which is no file' % written,
                       '%s: write "%s"' % (FULL_PATH, '" or "'.join(same_name)))
    floor = tree.floor(path)
    is_test = path.startswith("tests/")
    if target.startswith("tests/") and not is_test:
        return Finding(path, line, "product code includes %s" % target,
                       "Move what it needs into its own room or a lower one")
    if floor is None:
        return None  # a helper of all tests; those who include it are judged
    via = ""
    highest = target
    if tree.floor(target) is None:
        helped = list(includes.reached(target, {target}))
        highest = max(helped, key=tree.floor, default=None)
        via = " by way of " + target
    if highest is None or tree.floor(highest) <= floor:
        return None
    return Finding(
        path, line, "%s of %s includes %s of the higher %s%s" %
        ("a test" if is_test else "a file", tree.room(path), highest, tree.room(highest), via),
        "Move this test to tests/%s" % tree.room(highest) if is_test else
        "Pass what is needed as an argument, call back through a hook that the higher room sets, "
        "or move one of the two files")


def check_includes(tree):
    includes = Includes(tree)
    for path in tree.files:
        for line, written, target in includes.of[path]:
            finding = judge(includes, path, line, written, target)
            if finding:
                yield finding


def check_rooms(tree, most_sources):
    """Every source has a room, every room has sources, and not too many."""
    sources = {room: [] for room in tree.rooms}
    for path in tree.files:
        parts = path.split("/")
        tested = parts[1] if parts[0] == "tests" else parts[0]
        if tree.floor(path) is None and tested in TOPS:
            yield Finding(path, 1, "lies in no room",
                          "Move it into one, or add its folder to ROOMS in tests/check_house.py")
        elif parts[0] in TOPS:
            sources[tree.room(path)].append(path)
    for room, paths in sources.items():
        count = sum(path.endswith(".c") for path in paths)
        if not paths:
            yield Finding(room, 1, "this room has no sources",
                          "Take it out of ROOMS in tests/check_house.py")
        if count > most_sources:
            yield Finding(room, 1, "this room has %d .c files" % count,
                          "Split it by subject, or join files of one subject: at most %d" %
                          most_sources)
