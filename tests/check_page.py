#!/usr/bin/env python3
"""What a page of --html holds: check_page.py PAGE EXPRESSION.

The page must be tools/viewer.html with one JSON document inside, to the byte, and the viewer must
lead nowhere. Then the expression must hold, in which d is the document, page the text of the file,
load(F) a JSON file, and rows(T) a table's rows as dictionaries.
"""

import json
import pathlib
import re
import sys

VIEWER = pathlib.Path(__file__).resolve().parents[1] / 'tools' / 'viewer.html'
PLACE = '<script id=data type="application/json">'
LEADS_OUT = re.compile(r'\bsrc=|\bhref=|@import|url\(|<link|<iframe|'
                       r'fetch\(|XMLHttpRequest|WebSocket|https?:(?!//www\.w3\.org/2000/svg)')


def load(path):
    return json.loads(pathlib.Path(path).read_text(encoding='utf-8'))


def rows(table):
    return [dict(zip(table['columns'], row)) for row in table['rows']]


def main():
    path, expression = sys.argv[1:]
    viewer = VIEWER.read_text(encoding='ascii')
    assert viewer.count(PLACE + '</script>') == 1 and not LEADS_OUT.search(viewer)
    page = pathlib.Path(path).read_bytes().decode()
    before, after = (part for part in viewer.split(PLACE))
    assert page.startswith(before + PLACE) and page.endswith(after), 'this is not the viewer'
    inside = page[len(before + PLACE):len(page) - len(after)]
    assert '<' not in inside, 'the document could end its script'
    d = json.loads(inside)
    names = {'d': d, 'page': page, 'load': load, 'rows': rows}
    if not eval('(' + expression + ')', names):
        print({key: str(value)[:300] for key, value in d.items()})
        sys.exit('the expression is false')


main()
