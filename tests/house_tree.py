"""house_tree.py - the project's sources, each with its room: what check_house.py looks at."""

import os
import re

TOPS = ("allocator", "arena", "rnn", "bench")
TESTS_OF_MANY = {"allocator/world": "allocator/step"}  # folder of tests: the highest room it tests
EXTENSIONS = (".c", ".h", ".cpp", ".hpp", ".cu")
COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)


def blank_comments(text):
    """The text with spaces for its comments; what is left keeps its line and column."""
    def blank(match):
        found = match.group()
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found
    return COMMENT_OR_TEXT.sub(blank, text)


def line_of(text, place):
    return text.count("\n", 0, place) + 1


class Finding:
    """One thing that is wrong, where, and what to do about it."""

    def __init__(self, path, line, wrong, remedy):
        self.path, self.line, self.wrong, self.remedy = path, line, wrong, remedy

    def __str__(self):
        return "%s:%d: %s. %s." % (self.path, self.line, self.wrong, self.remedy)


class Tree:
    """The sources below a folder. Paths are relative to it; rooms are numbered bottom up."""

    def __init__(self, root, rooms):
        self.root = os.path.abspath(root)
        self.rooms = [name for name, _ in rooms]
        self.texts = {}
        self.codes = {}
        self.files = sorted(self.walk())
        self.known = set(self.files)

    def walk(self):
        for top in (*TOPS, "include", "tests"):
            for folder, _, names in os.walk(os.path.join(self.root, top)):
                for name in names:
                    if name.endswith(EXTENSIONS):
                        yield os.path.relpath(os.path.join(folder, name), self.root)

    def text(self, path):
        if path not in self.texts:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                self.texts[path] = file.read()
        return self.texts[path]

    def code(self, path):
        """The text without its comments, line for line."""
        if path not in self.codes:
            self.codes[path] = blank_comments(self.text(path))
        return self.codes[path]

    def product(self):
        return [path for path in self.files if path.split("/")[0] in TOPS]

    def floor(self, path):
        """The number of its room, of the room that it tests, -1 for a public header, else None."""
        parts = path.split("/")
        if parts[0] == "include":
            return -1
        if parts[0] == "tests":
            parts = parts[1:]
            of_many = TESTS_OF_MANY.get("/".join(parts[:2]))
            parts = [*of_many.split("/"), parts[-1]] if of_many else parts
        for length in range(len(parts) - 1, 0, -1):
            room = "/".join(parts[:length])
            if room in self.rooms:
                return self.rooms.index(room)
        return None

    def room(self, path):
        floor = self.floor(path)
        return "include" if floor == -1 else None if floor is None else self.rooms[floor]
