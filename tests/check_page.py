#!/usr/bin/env python3
"""check_page.py PAGE.html REPORT.json WAYS: the page of a training is whole, fetches nothing, and has
the report's figures."""

import html.parser
import json
import re
import sys

FIGURES = ("driver_calls_after_warmup", "step_reserved_bytes", "reserved_peak_bytes", "loss_last",
           "tokens_per_s")
VOID = {"meta", "path", "polyline", "br"}
OPTIONAL_END = {"th", "td", "p"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.figures, self.rows, self.boxes, self.faults = [], {}, {}, [], []
        self.row = None

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action") or (name == "style" and "url(" in value):
                self.faults.append(f"<{tag} {name}={value}> fetches something")
        if tag in ("script", "link", "img", "iframe", "object", "base"):
            self.faults.append(f"<{tag}>")
        if tag == "data" and "id" in a:
            self.figures[a["id"]] = float(a["value"])
        if tag == "data" and self.row is not None:
            self.rows[self.row].append(float(a["value"]))
        if tag == "tr":
            self.row = a.get("id")
            if self.row is not None:
                self.rows[self.row] = []
        if "box" in a.get("class", "").split():
            self.boxes.append(a)
        if a.get("role") == "img" and not a.get("aria-label"):
            self.faults.append(f"<{tag}> has no name")
        if tag not in VOID and tag not in OPTIONAL_END:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if tag in OPTIONAL_END:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")


def main():
    path, report_path, ways = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    page = Page()
    page.feed(text)
    faults = page.faults + [f"<{tag}> stays open" for tag in page.open]
    if re.search(r"https?:|@import|url\(", text):
        faults.append("something leaves the page")

    def find(tree, key):
        if isinstance(tree, dict):
            return tree[key] if key in tree else next(
                (v for v in (find(t, key) for t in tree.values()) if v is not None), None)
        return None

    for key in FIGURES:
        if page.figures.get(key) != find(report, key):
            faults.append(f"{key}: {page.figures.get(key)} on the page, {find(report, key)} in the report")
    if len(page.rows) != ways:
        faults.append(f"{len(page.rows)} ways are compared, not {ways}")
    driver, ours = page.rows.get("way-0", []), page.rows.get("way-3", [])
    if len(driver) != 2 or driver[0] < 2 or driver[1] <= 0:
        faults.append(f"a driver call per allocation: {driver}")
    if len(ours) != 2 or ours[0] != 0 or ours[1] <= 0:
        faults.append(f"a warm-up and a plan: {ours}")
    if driver and len(page.boxes) < 4:
        faults.append(f"{len(page.boxes)} boxes")
    for box in page.boxes:
        if not re.search(r"(B|iB), held from event \d+ to \d+ of \d+$", box["aria-label"]):
            faults.append(f"a box says {box['aria-label']}")
    print("\n".join(faults))
    return 1 if faults else 0


sys.exit(main())
