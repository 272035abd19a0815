"""house_build.py - what a build folder says: who calls whom, which test links what."""

import json
import os
import re
import subprocess

from house_tree import TOPS, Finding

OURS = re.compile(r"ashlar")  # what the preload library takes over, cudaMalloc() say, is no call
AT_ONCE = 200  # objects that one nm reads
LINK = re.compile(r"^build ([^\n: ]+)[^\n:]*: (?:\w+_LINKER|SHSYM) ([^\n]*)", re.M)


class Build:
    def __init__(self, tree, folder):
        self.tree = tree
        self.folder = os.path.abspath(folder)
        self.sources = dict(self.read_commands())  # by object, both absolute
        self.missing = [path for path in self.objects() if not os.path.exists(path)]

    def read_commands(self):
        with open(os.path.join(self.folder, "compile_commands.json"), encoding="utf-8") as file:
            for command in json.load(file):
                folder = command["directory"]
                yield (os.path.normpath(os.path.join(folder, command["output"])),
                       self.place(os.path.normpath(os.path.join(folder, command["file"]))))

    def place(self, path):
        """A source from the project's root; one that the build made stands where it was made."""
        for root in self.folder, self.tree.root:
            if path.startswith(root + os.sep):
                return os.path.relpath(path, root)
        return path

    def objects(self):
        """Those of product code."""
        return [path for path, source in self.sources.items() if source.split("/")[0] in TOPS]

    def stale(self):
        """Objects older than their source."""
        for path in self.objects():
            source = os.path.join(self.tree.root, self.sources[path])
            if (path not in self.missing and os.path.exists(source)
                    and os.path.getmtime(path) < os.path.getmtime(source)):
                yield path

    def symbols(self):
        """(source, symbol, whether it is defined there) of all objects."""
        paths = [path for path in self.objects() if path not in self.missing]
        for first in range(0, len(paths), AT_ONCE):
            done = subprocess.run(["nm", "-g", "-P", "-A", *paths[first:first + AT_ONCE]],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
            for line in done.stdout.decode(errors="replace").splitlines():
                path, _, rest = line.rpartition(": ")
                name, kind = rest.split()[:2]
                if OURS.match(name):
                    yield self.sources[os.path.normpath(path)], name, kind not in "Uwv"

    def calls(self):
        """{(caller, callee): symbols} of files. A source may be in several objects."""
        owners, uses = {}, set()
        for source, name, is_defined in self.symbols():
            if is_defined:
                owners.setdefault(name, set()).add(source)
            else:
                uses.add((source, name))
        found = {}
        for source, name in sorted(uses):
            owner = self.choose(source, owners.get(name, ()))
            if owner is not None and owner != source:
                found.setdefault((source, owner), []).append(name)
        return found

    def choose(self, source, owners):
        """Which of those who define a symbol is meant: itself, its own room, or the lowest one."""
        def distance(owner):
            floor = self.tree.floor(owner)
            return (owner != source, self.tree.room(owner) != self.tree.room(source),
                    len(self.tree.rooms) if floor is None else floor, owner)
        return min(owners, key=distance, default=None)


def find_circles(calls):
    """The sets of files that reach each other, largest first (Kosaraju)."""
    after, before = {}, {}
    for caller, callee in calls:
        for table, one, other in (after, caller, callee), (before, callee, caller):
            table.setdefault(one, []).append(other)
            table.setdefault(other, [])
    order, seen = [], set()
    for file in after:
        order += walk(after, file, seen)
    circles, seen = [], set()
    for file in reversed(order):
        circle = walk(before, file, seen)
        if len(circle) > 1:
            circles.append(sorted(circle))
    return sorted(circles, key=lambda circle: (-len(circle), circle))


def walk(edges, start, seen):
    """What is reached from a file and was not seen, each behind all that it reaches."""
    if start in seen:
        return []
    seen.add(start)
    order, path = [], [(start, iter(edges[start]))]
    while path:
        file, rest = path[-1]
        following = next((other for other in rest if other not in seen), None)
        if following is None:
            order.append(file)
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(edges[following])))
    return order


def find_line(tree, path, name):
    """Where a source names a symbol; 1: by a macro."""
    if path not in tree.known:
        return 1
    for number, line in enumerate(tree.code(path).splitlines(), 1):
        if re.search(r"\b%s\b" % re.escape(name), line):
            return number
    return 1


def check_objects(build):
    if len(build.missing) == len(build.objects()):
        yield Finding(os.path.relpath(build.folder), 1, "no object of this build is there",
                      "Run ninja -C %s first" % os.path.relpath(build.folder))


def check_calls(tree, calls):
    """No call goes up."""
    for (caller, callee), names in sorted(calls.items()):
        low, high = tree.floor(caller), tree.floor(callee)
        if low is None or high is None or high <= low:
            continue
        for name in names:
            yield Finding(
                caller, find_line(tree, caller, name), "%s calls %s of the higher %s (%s)" %
                (tree.room(caller), name, tree.room(callee), callee),
                "Pass what is needed as an argument, call a hook that the higher room sets, or "
                "move one of the two functions")


def check_circles(tree, calls, most_files):
    for circle in find_circles(calls):
        if len(circle) <= most_files:
            continue
        inside = {(a, b): names for (a, b), names in calls.items() if {a, b} <= set(circle)}
        (caller, callee), names = min(inside.items(), key=lambda call: (len(call[1]), call[0]))
        yield Finding(
            caller, find_line(tree, caller, names[0]), "a circle of %d files: %s" %
            (len(circle), ", ".join(circle)),
            "Cut it where least crosses: here %s is needed of %s; move that, or pass it in" %
            (", ".join(names), callee))


class Links:
    """What each program and library of a build is made of, from its build.ninja."""

    def __init__(self, build):
        self.build = build
        with open(os.path.join(build.folder, "build.ninja"), encoding="utf-8") as file:
            text = file.read()
        self.inputs = {self.name(match.group(1)): [self.name(word) for word in
                                                   match.group(2).split() if word.strip("|")]
                       for match in LINK.finditer(text)}

    def name(self, word):
        return os.path.normpath(os.path.join(self.build.folder, word))

    def highest(self, path, seen):
        """The source of the highest room in an object or library; None: nothing of a room."""
        tree = self.build.tree
        if path in seen:
            return None
        seen.add(path)
        source = self.build.sources.get(path)
        if source is not None:
            is_ours = source.split("/")[0] in TOPS and tree.floor(source) is not None
            return source if is_ours else None
        found = [self.highest(word, seen) for word in self.inputs.get(path, ())]
        return max(filter(None, found), key=tree.floor, default=None)

    def tests(self):
        """(source of the highest room, inputs) of each that is made of a room's tests."""
        tree = self.build.tree
        for inputs in self.inputs.values():
            sources = [self.build.sources[word] for word in inputs if word in self.build.sources]
            tests = [source for source in sources
                     if source.startswith("tests/") and tree.floor(source) is not None]
            if tests:
                yield max(tests, key=tree.floor), inputs


def check_links(build):
    """A room's tests link that room and lower ones."""
    tree, links = build.tree, Links(build)
    for test, inputs in links.tests():
        tops = {path: links.highest(path, set()) for path in inputs}
        above = sorted(path for path, top in tops.items()
                       if top is not None and tree.floor(top) > tree.floor(test))
        if above:
            top = max((tops[path] for path in above), key=tree.floor)
            yield Finding(
                test, 1, "a test of %s links %s, which hold higher rooms: %s of %s" %
                (tree.room(test), " ".join(os.path.relpath(path, build.folder) for path in above),
                 top, tree.room(top)),
                "Give it the dependency of its own room in tests/meson.build, or move the test")
