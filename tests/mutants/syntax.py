"""syntax.py - clang's syntax tree of a source, and where its nodes lie in the text."""

import json
import os
import re
import subprocess

# Macros that evaluate what they are given once, as it stands there.
TRANSPARENT = {"ASHLAR_FAIL_IF", "ASHLAR_LIKELY", "ASHLAR_TRY", "ASHLAR_IGNORE"}
WORD = re.compile(r"[A-Za-z_]\w*")


def parse(command, folder):
    """The declarations of a translation unit. clang names a file once and leaves it out after."""
    current, full, bit_fields = [""], {}, set()

    def complete(found):
        if "offset" in found:
            name = found.get("file", "")
            if name and name not in full:
                full[name] = os.path.normpath(os.path.join(folder, name))
            current[0] = found["file"] = full.get(name, current[0])
        elif found.get("isBitfield"):
            bit_fields.add(found["id"])
        elif found.get("referencedMemberDecl") in bit_fields:
            found["isBitfield"] = True
        return found

    words = ["clang-19", "-Xclang", "-ast-dump=json", "-fsyntax-only", "-w", *command]
    # ccache, where it stands for the compiler, would have it read what is preprocessed already.
    dump = subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE,
                          env={**os.environ, "CCACHE_DISABLE": "1"}).stdout
    return json.loads(dump, object_hook=complete)["inner"]


class Text:
    """A source, and where nodes lie in it: bytes [begin, end)."""

    def __init__(self, path):
        with open(path, encoding="latin-1", newline="") as file:  # a byte is a character
            self.text = file.read()
        self.path = path
        self.code = blank(self.text)

    def macro_end(self, begin):
        """Behind a macro's name and, if it has some, its arguments."""
        end = WORD.match(self.code, begin).end()
        behind = re.compile(r"\s*\(").match(self.code, end)
        return self.closing(behind.end() - 1) + 1 if behind else end

    def closing(self, place):
        depth = 0
        for at in range(place, len(self.code)):
            depth += (self.code[at] in "([{") - (self.code[at] in ")]}")
            if depth == 0:
                return at
        raise ValueError("no end of the parenthesis at %d of %s" % (place, self.path))


def blank(text):
    """Spaces for comments and what is quoted, so that parentheses can be counted."""
    form = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
    return form.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


class Span:
    """Where a node lies; `macro` is the offset of the macro that it is a part of, or None."""

    def __init__(self, begin, end, macro=None):
        self.begin, self.end, self.macro = begin, end, macro


def find_span(node, text):
    """None where it has no place in this file, or only a part of one."""
    places = node.get("range", {})
    ends = [find_place(places.get(which, {}), text) for which in ("begin", "end")]
    if None in ends:
        return None
    (begin, first_end, first), (last_begin, end, last) = ends
    if first != last and (last_begin < begin or end < first_end and first is not None):
        return None  # an end is in a macro within another one's arguments
    if begin >= end:
        return None
    return Span(begin, end, first if first == last else None)


def find_place(place, text):
    """(begin, end, macro) of one end of a node's range."""
    if "offset" in place:
        if place["file"] != text.path:
            return None
        return place["offset"], place["offset"] + place["tokLen"], None
    if "expansionLoc" not in place or place["expansionLoc"].get("file") != text.path:
        return None
    outer, inner = place["expansionLoc"], place["spellingLoc"]
    name = WORD.match(text.text, outer["offset"])
    if name is None:
        return None
    macro_end = text.macro_end(outer["offset"])
    if (outer.get("isMacroArgExpansion") and name[0] in TRANSPARENT
            and inner.get("file") == text.path):
        if outer["offset"] < inner["offset"] < macro_end:
            return inner["offset"], inner["offset"] + inner["tokLen"], None
    return outer["offset"], macro_end, outer["offset"]
