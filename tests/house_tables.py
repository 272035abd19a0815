"""house_tables.py - whether tables that an enum indexes have a row for each of its constants.

The rule: such a table is declared without a length, and ASHLAR_TABLE_IS_FULL(table, COUNT) stands
behind it. With a length, a last row that is missing would be zero, and nothing would say so. A row
that is missing in the middle is zero all the same, so rows that name their constant are counted
here. A table in a struct has the length of its type: its rows are counted, and that is enough.
"""

import re

from house_macros import Macros, closing, expand_file, read_macros, split_list
from house_tree import Finding, line_of

ENUM = re.compile(r"\benum\b\s*\w*\s*\{([^{}]*)\}")
# name[..][..] = { and (*const name[..])(..) = {
TABLE = re.compile(r"\b(\w+)\s*((?:\[[^\[\]]*\]\s*)+)(?:\)\s*\([^=;{}]*\)\s*)?=\s*\{")
ASSERTION = re.compile(r"\b(ASHLAR_TABLE_IS_FULL|_Static_assert|static_assert)\s*\(")
ROW = re.compile(r"\[([^\[\]]*)\]\s*=(?!=)")
BRACE_OR_ROW = re.compile(
    r"""[{,]\s*\[[^\[\]]*\]\s*=(?!=)|[{}]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")
IS_COUNT = re.compile(r"\w*COUNT\Z")
IS_ZERO = re.compile(r'(?:[\s{},]|\b0\b|""|\bfalse\b|\bNULL\b)*\Z')


class Enums:
    """The constants of all enums, by file and by name: a file's own come first."""

    def __init__(self):
        self.values = {}  # (path or None, name): number
        self.lists = {}   # (path or None, name): the names of its enum

    def read(self, path, text):
        for match in ENUM.finditer(text):
            names, last = [], -1
            for part in split_list(match.group(1)):
                name, _, value = (word.strip() for word in part.partition("="))
                last = self.number(path, value) if value else None if last is None else last + 1
                names.append(name)
                for where in path, None:
                    self.lists[where, name] = names
                    if last is not None:
                        self.values[where, name] = last

    def find(self, table, path, name):
        return table.get((path, name), table.get((None, name)))

    def number(self, path, text):
        """The value of an expression, None where it is not one of numbers and constants."""
        text = re.sub(r"\(\s*(?:int|unsigned|size_t)\s*\)", "", text)
        text = re.sub(r"(?<=\d)[uUlL]+\b", "", text)
        for name in set(re.findall(r"\b[A-Za-z_]\w*", text)):
            value = self.find(self.values, path, name)
            if value is None:
                return None
            text = re.sub(r"\b%s\b" % name, str(value), text)
        if not re.fullmatch(r"(?:\d+|[-+*()\s]|<<)+", text):
            return None
        try:
            return eval(text, {"__builtins__": {}})  # digits and operators only
        except (SyntaxError, TypeError):
            return None

    def constant(self, path, text):
        """The first constant that an expression names."""
        for name in re.findall(r"\b[A-Za-z_]\w*", text):
            if self.find(self.lists, path, name):
                return name
        return None

    def count(self, path, name):
        """How many rows a table has that the enum of a constant indexes."""
        names = self.find(self.lists, path, name)
        counts = [other for other in names if IS_COUNT.match(other)]
        values = [self.find(self.values, path, other) for other in counts[-1:] or names]
        if None in values:
            return None
        return values[-1] if counts else max(values) + 1

    def name_at(self, path, name, value):
        for other in self.find(self.lists, path, name):
            if self.find(self.values, path, other) == value:
                return other
        return str(value)


class Table:
    """One table: name, dimensions as written, text between its braces, line."""

    def __init__(self, path, text, match):
        self.path = path
        self.name = match.group(1)
        self.sizes = [size.strip() for size in re.findall(r"\[([^\[\]]*)\]", match.group(2))]
        self.start = match.end() - 1
        self.end = closing(text, self.start)
        self.body = text[self.start + 1:self.end]
        self.line = line_of(text, match.start(1))


def read_rows(enums, path, body):
    """The numbers of the rows between two braces, and the first constant that names one."""
    at, constant, indexes = 0, None, []
    for row in split_list(body):
        match = ROW.match(row)
        if match:
            constant = constant or enums.constant(path, match.group(1))
            at = enums.number(path, match.group(1))
            if at is None:
                return [], None
        indexes.append(at)
        at += 1
    return indexes, constant


def find_groups(text):
    """Where the braces open in which rows name their place, and what stands between them."""
    is_open, found = [], []
    for match in BRACE_OR_ROW.finditer(text):
        token = match.group()
        if token[0] == "{":
            is_open.append(match.start())
        elif token == "}":
            is_open = is_open[:-1]
        if token[-1] == "=" and is_open and is_open[-1] not in found:
            found.append(is_open[-1])
    for place in found:
        yield place, text[place + 1:closing(text, place)]


def asserted_count(text, table):
    """The length that an assertion behind the table states; '' if none is read, None without one."""
    for match in ASSERTION.finditer(text, table.end):
        inside = text[match.end():closing(text, match.end() - 1)]
        if not re.search(r"\b%s\b" % table.name, inside):
            continue
        if match.group(1) == "ASHLAR_TABLE_IS_FULL":
            return split_list(inside)[-1]
        count = re.search(r"==\s*(?:\(\w+\)\s*)?(\w+)", inside)
        return count.group(1) if count else ""
    return None


class TableCheck:
    def __init__(self, tree):
        self.tree = tree
        macros = Macros()
        headers_last = sorted(tree.files, key=lambda path: path.endswith(".h"))
        for path in headers_last:
            if not path.startswith("tests/"):
                read_macros(tree.code(path), macros)
        for name in "X", "ASHLAR_TABLE_IS_FULL", "NULL":
            macros.known.pop(name, None)
        self.texts = {path: expand_file(tree.code(path), macros.known)
                      for path in tree.files if not path.startswith("tests/")}
        self.enums = Enums()
        for _ in range(3):  # a constant may stand on those of files that come later
            for path, text in self.texts.items():
                self.enums.read(path, text)

    def missing(self, path, body, count):
        """The rows that are not there, by their names."""
        indexes, constant = read_rows(self.enums, path, body)
        if constant is None:
            return []
        if count is None:
            count = self.enums.count(path, constant)
        return [self.enums.name_at(path, constant, value)
                for value in range(count or 0) if value not in indexes]

    def check_length(self, table, is_named, counted):
        """A table whose rows an enum indexes has no length of its own, and an assertion on it."""
        size = table.sizes[0]
        constant = self.enums.find(self.enums.lists, table.path, size)
        is_counted = bool(IS_COUNT.match(size) and constant)
        is_zero = IS_ZERO.match(table.body) and not is_named
        if is_zero or not (is_counted or is_named):
            return
        count = size or counted or "ITS_COUNT"
        remedy = "Write %s[] and ASHLAR_TABLE_IS_FULL(%s, %s) behind it" % (
            table.name, table.name, count)
        if size:
            yield Finding(table.path, table.line, "table %s[%s] is zero in rows that are missing" %
                          (table.name, size), remedy)
        elif counted is None:
            yield Finding(table.path, table.line, "nothing asserts the length of table %s" %
                          table.name, remedy)

    def check_unnamed(self, table, is_named, count):
        """Rows that stand in the order of their constants can only be counted."""
        rows = len(split_list(table.body))
        if not is_named and count is not None and rows != count:
            yield Finding(table.path, table.line, "table %s has %d rows of %d" %
                          (table.name, rows, count), "Add what is missing, in its place")

    def check_inner(self, table):
        """Rows of rows: an inner length cannot be left out, so its rows are counted."""
        count = self.enums.number(table.path, table.sizes[1]) if len(table.sizes) > 1 else None
        if count is None or not IS_COUNT.match(table.sizes[1]):
            return
        for row in split_list(table.body):
            inner = row[row.find("{") + 1:row.rfind("}")]
            rows = split_list(inner)
            if "{" in row and not any(ROW.match(r) for r in rows) and len(rows) != count:
                yield Finding(table.path, table.line, "a row of table %s has %d columns of %d" %
                              (table.name, len(rows), count), "Add what is missing")

    def check_file(self, path, text):
        counts = {}
        for match in TABLE.finditer(text):
            table = Table(path, text, match)
            is_named = read_rows(self.enums, path, table.body)[1] is not None
            counted = asserted_count(text, table)
            if counted:
                counts[table.start] = self.enums.number(path, counted)
                yield from self.check_unnamed(table, is_named, counts[table.start])
            yield from self.check_length(table, is_named, counted)
            yield from self.check_inner(table)
        for place, body in find_groups(text):
            missing = self.missing(path, body, counts.get(place))
            if missing:
                yield Finding(path, line_of(text, place), "a table has no row for %s" %
                              ", ".join(missing), "Add it; write NULL or 0 where that is meant")

    def check(self):
        for path, text in self.texts.items():
            yield from self.check_file(path, text)


def check_tables(tree):
    yield from TableCheck(tree).check()
