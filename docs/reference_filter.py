"""reference_filter.py - a public header as doxygen reads it: reference_filter.py HEADER

The headers' comments are for those who read the headers: they begin with /* and set out parameters
and rules in columns. doxygen takes only comments that begin with two stars, and would run columns
together. So this prints the header with

  - two stars for the comment that opens the file, for each that stands before a declaration
    or a field; "/**<" for one behind a structure's field or an enum's value
  - the words of Ownership, Threads, Stream, Errors and Cost each as a paragraph with that heading
  - columns and indented text as they are; elsewhere what doxygen would take for a command escaped
  - a comment before several declarations given to each of them
"""

import re
import sys

COMMENT = re.compile(r"^/\*(?!\*)(.*?)\*/[ \t]*$", re.M | re.S)
INNER = re.compile(r"^( +)/\*(?!\*)(.*?)\*/[ \t]*$", re.M | re.S)
FIELD = re.compile(r"^( +\S.*?[;,{]?) */\*(?![*<])(.*?)\*/[ \t]*$", re.M | re.S)
LABEL = re.compile(r"(Ownership|Threads|Stream|Errors|Cost): +")
SECTION = re.compile(r"^ *-{4} .* -{4} *$")


def escape(text):
    """What is no command for doxygen; and "1 .. 4" in words, since it takes dots for a sentence's
    end. A line that begins with a plain quotation mark is lost in its manual pages."""
    named = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
    text = re.sub(r"[@\\<>#%&$]", lambda m: named.get(m[0], "\\" + m[0]), text)
    text = re.sub(r'"([^"]*)"', r"&ldquo;\1&rdquo;", text)
    text = re.sub(r"(?<=\w) ?\.\. ?(?=[\w*(])", " to ", text)
    return re.sub(r"(?<=\w) ?\.\.(?=$|[,;) ])", " or more", text)


def plain_lines(body):
    lines = [re.sub(r"^ *\* ?", "", line) if i else line.strip()
             for i, line in enumerate(body.split("\n"))]
    return [line.rstrip() for line in lines]


def split_labels(lines):
    """One label to a line, at its beginning."""
    for line in lines:
        yield from re.split(r"(?<=\S) +(?=(?:Ownership|Threads|Stream|Errors|Cost): )", line)


def is_column(line):
    return line.startswith("  ") or re.search(r"\S {2,}\S", line) is not None


def paragraphs(lines):
    """(kind, lines) for each paragraph; kinds are text, columns and a label's name."""
    kind, group = None, []
    for line in list(split_labels(lines)) + [""]:
        label = LABEL.match(line)
        if group and (not line or label):
            yield kind, group
            group = []
        if label:
            kind, group = label[1], [line[label.end():]]
        elif line:
            if not group:
                kind = "text"
            if kind in ("text", "columns") and is_column(line) and kind != "columns":
                if group:
                    yield kind, group
                kind, group = "columns", []
            group.append(line)


def convert(body):
    lines = plain_lines(body)
    while lines and not lines[0]:
        lines.pop(0)
    out = []
    for kind, group in paragraphs(lines):
        if kind == "columns":
            out += ["@verbatim"] + group + ["@endverbatim"]
        elif kind == "text":
            out += [escape(line) for line in group]
        else:
            out += ["@par " + kind] + [escape(line.strip()) for line in group]
        out.append("")
    return "\n".join(out).replace("/*", "/ *").rstrip()


def count_declarations(text):
    """How many functions are declared up to the next blank line at the margin; where that is."""
    end = re.search(r"\n\n(?=\S)|\Z", text)
    part = text[:end.start()]
    return len(re.findall(r"^ASHLAR_API|^static inline", part, re.M)), end.start()


def convert_file(name, text):
    out, at, is_first = [], 0, True
    for match in COMMENT.finditer(text):
        if match.start() < at or SECTION.match(match[1]):
            continue
        out.append(text[at:match.start()])
        at = match.end()
        head = "@file %s\n" % name if is_first else ""
        body = convert(match[1])
        if is_first:
            body = re.sub(r"\A%s - " % re.escape(name), "@brief ", body)
        is_first = False
        out.append("/** %s%s\n*/" % (head, body))
        count, length = count_declarations(text[at:])
        if not head and count > 1:
            out += ["\n/**@{*/", text[at:at + length], "\n/**@}*/"]
            at += length
    out.append(text[at:])
    text = INNER.sub(lambda m: "%s/** %s */" % (m[1], convert(m[2])), "".join(out))
    return FIELD.sub(lambda m: "%s /**< %s */" % (m[1], " ".join(
        escape(line.strip()) for line in plain_lines(m[2]))), text)


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        sys.stdout.write(convert_file(path.rsplit("/", 1)[-1], file.read()))


if __name__ == "__main__":
    main()
