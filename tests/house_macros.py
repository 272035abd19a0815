"""house_macros.py - C with its macros expanded, as far as tables and enums need it.

No preprocessor: both sides of an #if count, and what a header defines is known everywhere. A line
keeps its number.
"""

import re

DEFINE = re.compile(r"#\s*define\s+(\w+)(\([^)]*\))?\s*(.*)", re.S)
UNDEF = re.compile(r"#\s*undef\s+(\w+)")
WORD = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|([A-Za-z_]\w*)""")
BRACKET = re.compile(r"""[][(){},]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")
OPENING = re.compile(r"\s*\(")
DIRECTIVE = re.compile(r"^[ \t]*(#(?:[^\n\\]|\\.)*)", re.M | re.S)
DEEPEST = 40  # macros within macros


def closing(text, start):
    """Where the bracket that opens at `start` closes; the text's end if it does not."""
    depth = 0
    for match in BRACKET.finditer(text, start):
        depth += (match.group() in "([{") - (match.group() in ")]}")
        if depth == 0:
            return match.start()
    return len(text)


def split_list(text):
    """The parts between the commas that stand in no bracket; an empty last part does not count."""
    parts, start, depth = [], 0, 0
    for match in BRACKET.finditer(text):
        depth += (match.group() in "([{") - (match.group() in ")]}")
        if match.group() == "," and depth == 0:
            parts.append(text[start:match.start()].strip())
            start = match.end()
    return parts + [text[start:].strip()] if text[start:].strip() else parts


class Macros:
    def __init__(self, known=None):
        self.known = dict(known or {})

    def direct(self, line):
        """Take in a directive, whose continued lines are joined."""
        define, undef = DEFINE.match(line), UNDEF.match(line)
        if define:
            name, parameters, body = define.groups()
            names = None
            if parameters is not None:
                names = [p.strip() for p in parameters[1:-1].split(",") if p.strip()]
            self.known[name] = names, body.strip()
        elif undef:
            self.known.pop(undef.group(1), None)

    def expand(self, text, hidden=()):
        out, place = [], 0
        while True:
            match = WORD.search(text, place)
            if not match:
                return "".join(out) + text[place:]
            out.append(text[place:match.start()])
            new, place = self.expand_word(text, match, hidden)
            out.append(new)

    def expand_word(self, text, match, hidden):
        """What stands for a word, and where the text goes on."""
        name, place = match.group(2), match.end()
        if name is None or name not in self.known or name in hidden or len(hidden) > DEEPEST:
            return match.group(), place
        parameters, body = self.known[name]
        if parameters is None:
            return self.expand(body, (*hidden, name)), place
        opening = OPENING.match(text, place)
        if not opening:
            return match.group(), place
        end = closing(text, opening.end() - 1)
        arguments = split_list(text[opening.end():end])
        new = self.expand(substitute(parameters, body, arguments), (*hidden, name))
        return new + "\n" * text.count("\n", place, end), end + 1


def substitute(parameters, body, arguments):
    """A macro's body with its arguments in their places."""
    values = dict(zip(parameters, arguments))
    if parameters and parameters[-1] == "...":
        values["__VA_ARGS__"] = ", ".join(arguments[len(parameters) - 1:])
    body = re.sub(r"(?<!#)#\s*(\w+)", '""', body)

    def replace(match):
        value = values.get(match.group(2), match.group())
        return value.replace("\n", " ")
    return re.sub(r"\s*##\s*", "", WORD.sub(replace, body))


def read_macros(code, macros):
    """Take in the directives of a file, without its text."""
    for match in DIRECTIVE.finditer(code):
        macros.direct(re.sub(r"\\\n", " ", match.group(1)))


def expand_file(code, known):
    """A file's text, its directives blank."""
    macros = Macros(known)
    out, place = [], 0
    for match in DIRECTIVE.finditer(code):
        out.append(macros.expand(code[place:match.start()]))
        out.append("\n" * match.group().count("\n"))
        macros.direct(re.sub(r"\\\n", " ", match.group(1)))
        place = match.end()
    return "".join(out) + macros.expand(code[place:])
