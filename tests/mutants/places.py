"""places.py - where a source can be changed, and into what: the mutants of one translation unit.

A place wraps or parts its text so that the change is chosen at run time, and the operands stand there
once, whatever is nested in them. What is not mutated: assertions, declarations, what the compiler
wants as a constant, and what macros make, except those that are transparent (syntax.py); nor what
nobody could notice: an order that says 2 for 1, and room for two where calloc() is asked for one.
"""

import re

from syntax import TRANSPARENT, WORD, find_span

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OPPOSITES = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
COPIES = "({ const __auto_type l_ = (", "); const __auto_type r_ = ("
SWAPS = {"+": "-", "-": "+", "&": "|", "|": "&", "<<": ">>", ">>": "<<"}
ASSERTIONS = re.compile(r"ASHLAR_(ASSERT|CHECK|OWNS|TABLE|MAY_TOUCH|PREFETCH)|_Static_assert")
ORDER = re.compile(r"int \(const void \*, const void \*[,)]")
HALVED = re.compile(r"\(high - low\)")  # a search in unequal parts finds the same
LITERALS = {"IntegerLiteral", "CharacterLiteral", "FloatingLiteral"}
SKIPPED = {"ConstantExpr", "StaticAssertDecl", "EnumDecl", "RecordDecl", "TypedefDecl",
           "ParmVarDecl", "UnaryExprOrTypeTraitExpr", "OffsetOfExpr", "GenericSelectionExpr",
           "GCCAsmStmt", "ChooseExpr", "ImplicitValueInitExpr"}
WRAPPERS = {"ImplicitCastExpr", "ParenExpr", "FullExpr"}
DROPPED = {"CallExpr", "AtomicExpr", "BinaryOperator", "CompoundAssignOperator", "UnaryOperator",
           "CStyleCastExpr", "ConditionalOperator", "BreakStmt", "ContinueStmt"}
MADE_BY_MACROS = {"ParenExpr", "StmtExpr", "DoStmt"}
STATEMENTS = {"ASHLAR_FAIL_IF", "ASHLAR_TRY", "ASHLAR_IGNORE"}


class Place:
    """One change: at a line of `path`, in `function`, what stood `before` and what is `after`."""

    def __init__(self, path, line, function, before, after):
        self.path, self.line, self.function = path, line, function
        self.before, self.after = before, after
        self.number = 0
        self.index = 0  # among equal ones of the function, from 1

    def key(self):
        """What it is called in the list of equivalents; it outlives edits elsewhere."""
        return "%s %s: %s -> %s" % (self.path, self.function, self.before, self.after)


class Group:
    """The changes of one node, which share edits: (begin, end, text), where the text replaces what
    lies between, or is put in where there is nothing. "@0@" in it asks for the first change."""

    def __init__(self, span, places, edits):
        self.span, self.places, self.templates = span, places, edits

    def edits(self):
        for begin, end, text in self.templates:
            for index, place in enumerate(self.places):
                text = text.replace("@%d@" % index, "ASHLAR_MUTANT(%du)" % place.number)
            yield begin, end, text


class Finder:
    def __init__(self, text):
        self.text = text
        self.groups = []
        self.function = ""
        self.returns_bool = False
        self.is_order = False  # as qsort() wants one: only the sign of what it returns counts
        self.choosing = set()  # comparisons whose equal operands are known not to matter
        self.unseen = set()    # literals of which one more is the same to everybody

    # ---- what is found ----

    def add(self, span, afters, edits):
        before = " ".join(self.text.text[span.begin:span.end].split())
        line = self.text.text.count("\n", 0, span.begin) + 1
        places = [Place(self.text.path, line, self.function, before, after) for after in afters]
        self.groups.append(Group(span, places, edits))

    def wrap(self, span, after, opening, closing):
        self.add(span, [after], [(span.begin, span.begin, opening), (span.end, span.end, closing)])

    def part(self, span, sides, afters, *texts):
        """Around both operands and in place of the operator."""
        opening, between, closing = texts
        self.add(span, afters, [(span.begin, span.begin, opening),
                                (sides[0].end, sides[1].begin, between),
                                (span.end, span.end, closing)])

    # ---- the walk ----

    def visit_function(self, node):
        self.function = node["name"]
        self.returns_bool = re.match(r"(_Bool|bool) \(", node["type"]["qualType"]) is not None
        self.is_order = ORDER.match(node["type"]["qualType"]) is not None
        for child in node.get("inner", []):
            if child["kind"] == "CompoundStmt":
                self.visit(child)

    def visit(self, node):
        kind = node.get("kind", "")
        if kind in SKIPPED or kind.endswith("Attr") or not kind:
            return
        if kind == "VarDecl" and node.get("storageClass") in ("static", "extern"):
            return
        span = find_span(node, self.text)
        if span is not None and span.macro is not None and not self.is_transparent(span):
            self.visit_macro(node, span)
            return
        handler = getattr(self, "on_" + kind, None)
        if handler is None:
            self.visit_children(node)
        else:
            handler(node, span)

    def visit_children(self, node):
        for child in node.get("inner", []):
            self.visit(child)

    def is_transparent(self, span):
        return self.macro_of(span) in TRANSPARENT

    def macro_of(self, span):
        return WORD.match(self.text.text, span.macro)[0]

    def visit_macro(self, node, span):
        """true and false are macros; nothing else in one is changed."""
        name = self.text.text[span.begin:span.end]
        if name in ("true", "false") and node["kind"] in (*LITERALS, "ImplicitCastExpr"):
            other = "false" if name == "true" else "true"
            self.wrap(span, other, "(", " ^ @0@)")

    # ---- statements ----

    def on_CompoundStmt(self, node, _):
        children = node.get("inner", [])
        spans = [find_span(child, self.text) for child in children if child["kind"] == "DeclStmt"]
        declaring = {span.macro for span in spans if span is not None and span.macro is not None}
        for child in children:
            self.drop(child, declaring)
            self.visit(child)

    def drop(self, node, declaring):
        """`declaring` macros are declarations, too, whose names the next statements use."""
        kind = node.get("kind")
        span = find_span(node, self.text)
        if kind == "ReturnStmt" and not node.get("inner"):
            kind = "BreakStmt"
        if span is None or kind not in DROPPED and (
                span.macro is None or kind not in MADE_BY_MACROS):
            return
        text = self.text
        if span.macro is not None and (span.macro in declaring
                                       or ASSERTIONS.match(text.text, span.macro)):
            return
        if kind == "CStyleCastExpr" and "CallExpr" not in (
                child.get("kind") for child in node.get("inner", [])) and span.macro is None:
            return  # (void)x says that x is not used
        end = text.code.find(";", span.end)
        if end < 0 or text.code[span.end:end].strip():
            return
        whole = type(span)(span.begin, end + 1)
        self.wrap(whole, "nothing", "if (!@0@) { ", " }")

    def on_IfStmt(self, node, span):
        body = node["inner"][1]
        if body["kind"] == "CompoundStmt" and len(body.get("inner", [])) == 1:
            body = body["inner"][0]
        if body["kind"] == "ReturnStmt":
            self.note_unequal(node["inner"][0], body)
        if len(node["inner"]) == 2 and body.get("opcode") == "=":
            self.note_choice(node["inner"][0], body["inner"])
        self.condition(node["inner"][0], span)
        for child in node["inner"][1:]:
            self.visit(child)

    def on_WhileStmt(self, node, _):
        self.condition(node["inner"][0])
        self.visit_children({"inner": node["inner"][1:]})

    def on_DoStmt(self, node, _):
        self.visit(node["inner"][0])
        self.condition(node["inner"][1])

    def on_ForStmt(self, node, _):
        begin, _, condition, step, body = node["inner"]
        self.visit(begin)
        if condition.get("kind"):
            self.condition(condition)
        self.visit(step)
        self.visit(body)

    def on_CaseStmt(self, node, _):
        self.visit_children({"inner": node["inner"][1:]})

    def on_ReturnStmt(self, node, _):
        if self.returns_bool and node.get("inner"):
            self.condition(node["inner"][0])
        else:
            if self.is_order:
                self.note_unseen(node["inner"][0])
            self.visit_children(node)

    # ---- conditions ----

    def note_choice(self, condition, chosen):
        """Of two that are equal it does not matter which is chosen: < and <= do the same."""
        def words_of(nodes):
            spans = [find_span(node, self.text) for node in nodes]
            return sorted("".join(self.text.text[span.begin:span.end].split())
                          for span in spans if span is not None)
        condition = strip(condition)
        if condition.get("opcode") in COMPARISONS:
            words = words_of(condition["inner"])
            if len(words) == 2 and words == words_of(chosen):
                self.choosing.add(condition["id"])

    def on_ConditionalOperator(self, node, _):
        self.note_unequal(*node["inner"][:2])
        self.note_choice(node["inner"][0], node["inner"][1:])
        self.condition(node["inner"][0])
        self.visit_children({"inner": node["inner"][1:]})

    def condition(self, node, whole=None):
        """An operand whose truth alone matters."""
        inner = node
        while inner.get("kind") in WRAPPERS:
            inner = inner["inner"][0]
        kind, operator = inner.get("kind"), inner.get("opcode")
        span = find_span(node, self.text)
        if kind == "UnaryOperator" and operator == "!" and span and span.macro is None:
            self.condition(inner["inner"][0])
            return
        is_split = kind == "BinaryOperator" and operator in (*OPPOSITES, "&&", "||")
        if whole is not None and whole.macro is not None:
            span = self.first_argument(whole)
            is_split = False
        elif span is not None and span.macro is not None and self.macro_of(span) in STATEMENTS:
            span = None
        if span is not None and not is_split and kind not in LITERALS:
            self.wrap(span, "its opposite", "(!!(", ") ^ @0@)")
        self.visit(node)

    def first_argument(self, whole):
        """Of ASHLAR_FAIL_IF: the condition, whose own macros hide where it ends."""
        code = self.text.code
        if self.macro_of(whole) != "ASHLAR_FAIL_IF":
            return None
        begin = code.index("(", whole.macro) + 1
        depth = 0
        for at in range(begin, whole.end):
            depth += (code[at] in "([{") - (code[at] in ")]}")
            if code[at] == "," and depth == 0:
                return type(whole)(begin, at)
        return None

    # ---- operators ----

    def operands(self, node, span):
        """The two, if the text between them is the operator alone."""
        sides = [find_span(child, self.text) for child in node["inner"]]
        if span is None or None in sides:
            return None
        between = self.text.code[sides[0].end:sides[1].begin]
        return sides if between.strip() == node["opcode"] else None

    def on_BinaryOperator(self, node, span):
        operator = node["opcode"]
        sides = self.operands(node, span)
        if sides is None:
            self.visit_children(node)
            return
        is_short = operator in ("&&", "||")
        if is_short:
            other = "||" if operator == "&&" else "&&"
            self.part(span, sides, ["%s becomes %s" % (operator, other)],
                      "({ const _Bool m_ = @0@; m_ ^ ((m_ ^ !!(", ")) %s (m_ ^ !!(" % operator,
                      "))); })")
        elif operator in ("==", "!="):
            self.wrap(span, "%s becomes %s" % (operator, OPPOSITES[operator]), "((", ") ^ @0@)")
        elif operator in COMPARISONS and not has_bits(node):
            others = [OPPOSITES[operator]]
            if node["id"] not in self.choosing:
                others.insert(0, COMPARISONS[operator])
            tries = "".join("@%d@ ? l_ %s r_ : " % each for each in enumerate(others))
            self.part(span, sides, ["%s becomes %s" % (operator, other) for other in others],
                      *COPIES, "); %sl_ %s r_; })" % (tries, operator))
        elif operator in SWAPS and is_number(node["inner"][1]) and not has_bits(node):
            other = SWAPS[operator]
            self.part(span, sides, ["%s becomes %s" % (operator, other)],
                      *COPIES, "); @0@ ? l_ %s r_ : l_ %s r_; })" % (other, operator))
        is_halving = operator == "/" and HALVED.fullmatch(self.text.text, sides[0].begin,
                                                          sides[0].end)
        for child in node["inner"][:1] if is_halving else node["inner"]:
            (self.condition if is_short else self.visit)(child)

    def on_CompoundAssignOperator(self, node, span):
        sides = self.operands(node, span)
        if sides is not None and node["opcode"] in ("+=", "-=") and is_number(node["inner"][1]):
            other = "-=" if node["opcode"] == "+=" else "+="
            self.wrap(sides[1], "%s becomes %s" % (node["opcode"], other),
                      "({ const __auto_type r_ = (", "); @0@ ? -r_ : r_; })")
        self.visit_children(node)

    # ---- operands ----

    def on_InitListExpr(self, node, span):
        if span is None or self.text.code[span.begin:span.end] != "{0}":  # says that all is zero
            self.visit_children(node)

    def on_ImplicitCastExpr(self, node, _):
        if node.get("castKind") != "NullToPointer":
            self.visit_children(node)

    def on_CallExpr(self, node, _):
        span = find_span(node["inner"][0], self.text)
        name = self.text.text[span.begin:span.end] if span is not None else ""
        if name.endswith("calloc"):
            self.note_unseen(node["inner"][1])
        if not name.startswith(("__builtin", "__atomic")):  # some want constants
            self.visit_children(node)

    def on_IntegerLiteral(self, node, span):
        if span is not None and span.macro is None and node["id"] not in self.unseen:
            self.wrap(span, "one more", "(", " + @0@)")

    on_CharacterLiteral = on_FloatingLiteral = on_IntegerLiteral

    def note_unequal(self, condition, chosen):
        """Where operands differ, < and <= of them are the same."""
        condition = strip(condition)
        if condition.get("opcode") == "!=":
            texts = self.texts_of(condition)
            self.choosing.update(node["id"] for node in walk(chosen)
                                 if node.get("opcode") in COMPARISONS and texts is not None
                                 and self.texts_of(node) == texts)

    def texts_of(self, node):
        spans = [find_span(child, self.text) for child in node["inner"]]
        return None if None in spans else [self.text.text[span.begin:span.end] for span in spans]

    def note_unseen(self, node):
        """A literal 1 or -1 that is the value, or one that a condition chooses."""
        node = strip(node)
        if node["kind"] == "ConditionalOperator":
            for child in node["inner"][1:]:
                self.note_unseen(child)
        elif node["kind"] == "UnaryOperator" and node["opcode"] == "-":
            self.note_unseen(node["inner"][0])
        elif node["kind"] == "IntegerLiteral" and node["value"] == "1":
            self.unseen.add(node["id"])

    def on_DeclRefExpr(self, node, span):
        found = node.get("referencedDecl", {})
        if (found.get("kind") != "EnumConstantDecl" or span is None
                or self.text.text[span.begin:span.end] != found["name"]):
            return
        if found["name"].startswith("memory_order_"):
            if found["name"] != "memory_order_relaxed":
                self.wrap(span, "memory_order_relaxed", "(", " * !@0@)")
        else:
            self.wrap(span, "one more", "(", " + @0@)")


def walk(node):
    yield node
    for child in node.get("inner", []):
        yield from walk(child)


def strip(node):
    while node.get("kind") in WRAPPERS:
        node = node["inner"][0]
    return node


def has_bits(node):
    """A bit-field has no type of its own to declare a copy by."""
    return any(strip(child).get("isBitfield") for child in node["inner"])


def is_number(node):
    made = node.get("type", {})
    return "*" not in made.get("desugaredQualType", made.get("qualType", "*"))


def find_unused(declarations, texts):
    """(path, name) of each static function that only assertions of level 3 call, which are not in
    the build, or functions that only they call."""
    spans = {path: [(found.start(), text.macro_end(found.start()))
                    for found in re.finditer(r"\bASHLAR_CHECK3\b", text.code)]
             for path, text in texts.items()}
    left = {(node["loc"]["file"], node["name"]): find_span(node, texts[node["loc"]["file"]])
            for node in declarations if node["kind"] == "FunctionDecl"
            and node.get("storageClass") == "static" and node["loc"].get("file") in texts
            and node["loc"]["file"].endswith(".c")}
    unused, before = set(), None
    while before != len(unused):
        before = len(unused)
        for (path, name), own in [item for item in left.items() if item[1] is not None]:
            places = [found.start() for found in re.finditer(r"\b%s\b" % name, texts[path].code)
                      if not own.begin <= found.start() < own.end]
            if places and all(any(begin <= at < end for begin, end in spans[path])
                              for at in places):
                unused.add((path, name))
                spans[path].append((own.begin, own.end))
    return unused


def find_groups(declarations, texts):
    """(path, key, changes) of each function that is defined in one of these texts; a function of a
    header has the same key in every unit."""
    unused = find_unused(declarations, texts)
    for node in declarations:
        place = node.get("loc", {})
        key = place.get("file"), place.get("offset")
        if (node["kind"] != "FunctionDecl" or key[0] not in texts or
                (key[0], node["name"]) in unused or
                not any(child["kind"] == "CompoundStmt" for child in node.get("inner", []))):
            continue
        finder = Finder(texts[key[0]])
        finder.visit_function(node)
        yield key[0], key, finder.groups


def rewrite(text, groups):
    """The text with all edits. At one place inner ones end first, and outer ones begin first."""
    edits = []
    for number, group in enumerate(groups):
        for begin, end, new in group.edits():
            closes, opens = begin == end == group.span.end, begin == end == group.span.begin
            order = (0, -number) if closes else (2, number) if opens else (1, 0)
            edits.append((begin, order, end, new))
    made, at = [], 0
    for begin, _, end, new in sorted(edits):
        made += [text[at:begin], new]
        at = end
    return "".join(made) + text[at:]
