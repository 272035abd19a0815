#!/usr/bin/env python3
"""What a page of ashlar-train --html holds: check_page.py PAGE EXPRESSION.

Reads the page and fails if an element is not closed, if two have one id, or if anything in it leads
out of it. Then the expression must hold, in which
    page      the text of the file
    data      id -> value of each <data id=...>
    text      what is read, all in one line
    rows      id of a table -> its rows, each a list of the cells' texts
    calls     id of a row of the comparison -> driver calls in each step
    ms        the same -> milliseconds of a step
    taken     the same -> bytes taken from the device
    boxes     of the picture of a step: attributes of each, with numbers left, width, bottom, height
    lines     class of a line -> its points, the longest of that class
    contrasts by day, and by night: pairs of colours of text and what it stands on -> contrast
    load(F)   a JSON file
"""

import html.parser
import json
import re
import sys

VOID = {'meta'}
LEADS_OUT = re.compile(r'https?:|\bsrc=|\bhref=|@import|url\(|<script|<link|<iframe|\bon[a-z]+=')


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.stack, self.ids, self.text = [], set(), []
        self.data, self.rows, self.calls, self.ms, self.taken = {}, {}, {}, {}, {}
        self.boxes, self.lines = [], {}
        self.table = self.row = None

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if tag not in VOID:
            self.stack.append(tag)
        if 'id' in a:
            assert a['id'] not in self.ids, f'two of id {a["id"]}'
            self.ids.add(a['id'])
        self.element(tag, a)

    def handle_startendtag(self, tag, attributes):
        self.element(tag, dict(attributes))

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, f'</{tag}> closes {self.stack[-1:]}'
        self.stack.pop()

    def handle_data(self, text):
        if 'style' in self.stack:
            return
        self.text.append(text)
        if self.table and {'td', 'th'} & set(self.stack):
            self.rows[self.table][-1][-1] += text

    def element(self, tag, a):
        if tag == 'table':
            self.table = a.get('id')
            self.rows[self.table] = []
        elif tag == 'tr':
            self.rows[self.table].append([])
            self.row = a.get('id')
        elif tag in ('td', 'th'):
            self.rows[self.table][-1].append('')
        elif tag == 'data' and 'id' in a:
            self.data[a['id']] = float(a['value'])
        elif tag == 'data' and a.get('class') == 'ms':
            self.ms[self.row] = float(a['value'])
        elif tag == 'data' and a.get('class') == 'bytes':
            self.taken[self.row] = int(a['value'])
        elif tag == 'data':
            self.calls.setdefault(self.row, []).append(int(a['value']))
        elif tag == 'polyline':
            points = [tuple(map(float, p.split(','))) for p in a['points'].split()]
            self.lines[a['class']] = max(self.lines.get(a['class'], []), points, key=len)
        elif 'box' in a.get('class', '').split():
            a.update((k, float(v)) for k, v in re.findall(r'([a-z]+):([\d.]+)%', a['style']))
            self.boxes.append(a)


def share_a_place(a, b):
    """Whether two boxes overlap by more than rounding, in per cent."""
    def overlap(start, size):
        return min(a[start] + a[size], b[start] + b[size]) - max(a[start], b[start]) > 0.02
    return overlap('left', 'width') and overlap('bottom', 'height')


def luminance(colour):
    """As WCAG has it, of #rgb or #rrggbb."""
    digits = colour[1:] if len(colour) == 7 else ''.join(c + c for c in colour[1:])
    parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(a, b):
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def contrasts_of(page):
    found = []
    for roots in re.findall(r':root{([^}]*)}', page):
        v = dict(re.findall(r'--([a-z]+):(#[0-9a-f]+)', roots))
        found.append({(text, back): contrast(v[text], v[back])
                      for text in ('ink', 'soft', 'main', 'other') for back in ('bg', 'band')})
    kinds = re.findall(r'\.(t\d+){background:(#[0-9a-f]+);color:(#[0-9a-f]+)}', page)
    for i, (kind, back, text) in enumerate(kinds):
        found[2 * i // len(kinds)][kind] = contrast(text, back)
    return found


def main():
    page = open(sys.argv[1], encoding='utf-8').read()
    parser = Page()
    parser.feed(page)
    parser.close()
    assert not parser.stack, f'left open: {parser.stack}'
    assert not LEADS_OUT.search(page), LEADS_OUT.search(page)
    names = dict(vars(parser), page=page, load=lambda file: json.load(open(file, encoding='utf-8')))
    names['text'] = ' '.join(''.join(parser.text).split())
    names['contrasts'] = contrasts_of(page)
    names['overlaps'] = [(a['aria-label'], b['aria-label']) for i, a in enumerate(parser.boxes)
                         for b in parser.boxes[:i] if share_a_place(a, b)]
    if not eval(f'({sys.argv[2]})', names):  # of the test's own
        shown = {k: names[k] for k in ('data', 'calls', 'ms', 'taken', 'rows', 'overlaps', 'contrasts')}
        sys.exit(f'does not hold: {sys.argv[2]}\n{shown}\n{names["text"]}')


main()
