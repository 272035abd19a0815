"""house_openings.py - whether a file opens with a sentence on what it owns."""

import os
import re

from house_tree import Finding

FEWEST_WORDS = 4
OPENING = re.compile(r"\s*(/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)", re.S)
NAMED = re.compile(r"(\S+) - (.*)", re.S)


def read_opening(text):
    """The words of the first comment, up to an empty line; None where something else is first."""
    match = OPENING.match(text)
    if not match:
        return None
    lines = [re.sub(r"^\s*(/\*+|\*/|\*|//)|\*/\s*$", "", line).strip()
             for line in match.group(1).splitlines()]
    return "\n".join(lines).strip().split("\n\n")[0].replace("\n", " ")


def check_openings(tree):
    for path in tree.files:
        name = os.path.basename(path)
        remedy = "Open it with /* %s - a sentence on what it owns. */" % name
        opening = read_opening(tree.text(path))
        match = NAMED.match(opening or "")
        if opening is None:
            yield Finding(path, 1, "opens without a comment", remedy)
        elif not match:
            yield Finding(path, 1, "its first comment does not begin with its name", remedy)
        elif match.group(1) != name:
            yield Finding(path, 1, "calls itself %s in its first comment" % match.group(1), remedy)
        elif len(re.split(r"\.(?:\s|$)", match.group(2))[0].split()) < FEWEST_WORDS:
            yield Finding(path, 1, "its first comment has no sentence", remedy)
