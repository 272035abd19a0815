#!/usr/bin/env python3
"""Write a page about a folder of results of ashlar-bench, where we lose first.

usage: bench/report.py FOLDER [--html FILE]      FILE: FOLDER/report.html

The page is tools/viewer.html with one document inside: machine.json as `machine`, every other
NAME.json as `groups`.NAME, the table as it was printed, NAME.txt, as `printed`.NAME, and ran.txt as
`ran`. The same files always make the same page.
"""

import json
import pathlib
import sys

PLACE = '<script id=data type="application/json">'


def document_of(folder):
    names = sorted(path for path in folder.glob("*.json") if path.name != "machine.json")
    if not names:
        sys.exit("report.py: %s has no results: no GROUP.json of ashlar-bench" % folder)
    document = {"schema": "ashlar-results/1"}
    if (folder / "machine.json").exists():
        document["machine"] = json.loads((folder / "machine.json").read_text())
    document["groups"] = {path.stem: json.loads(path.read_text()) for path in names}
    document["printed"] = {path.stem: path.with_suffix(".txt").read_text()
                           for path in names if path.with_suffix(".txt").exists()}
    if (folder / "ran.txt").exists():
        document["ran"] = (folder / "ran.txt").read_text()
    return document


def main(folder, page):
    viewer = pathlib.Path(__file__).parent.parent / "tools" / "viewer.html"
    before, after = viewer.read_text().split(PLACE)
    document = json.dumps(document_of(folder), indent=1).replace("<", "\\u003c")
    page.write_text(before + PLACE + document + after)


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "--html"):
        sys.exit(__doc__)
    try:
        main(pathlib.Path(words[0]), pathlib.Path(words[2] if len(words) == 3 else
                                                  words[0] + "/report.html"))
    except (OSError, ValueError) as error:
        sys.exit("report.py: %s: %s" % (words[0], error))
