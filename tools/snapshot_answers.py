"""snapshot_answers.py - what snapshots of PyTorch's memory say in the lines of their program.

    python3 tools/snapshot_answers.py [--diff] [--junit FILE] [--assert LIMIT]... SNAPSHOT...

It answers who holds the memory at the peak, what grows from step to step, and why memory ran out; with
--diff, what the second snapshot has more or less than the first. ashlar-replay runs it, and reads from
stdout the event file of snapshot_events.py (none with --diff) and these records:

    text     LINE       to print
    answers  JSON       an array with an object for each device
    failed   LINE       of an assertion that does not hold, and the source line to blame

Bytes are as requested. Memory is live until the program asks to free it: what streams have yet to
finish does not count, so that every run of a program gives the same figures.
"""

import argparse
import bisect
import collections
import json
import re
import sys
from xml.etree import ElementTree

import snapshot_events

ROWS, SIZES, OOMS = 10, 4, 8  # shown to people: of a list, of a line in --diff, of failed requests
BORDERS = 300  # more steps are thinned out
NOT_OWN = re.compile(r'(site|dist)-packages/|/torch/|/lib/python3|torchinductor_|<frozen|<eval_with_key>')
NODES = r'(\w*(?:Backward|AccumulateGrad)\w*?)(?:_apply\w*)?\b', r'at::_ops::(\w+)'  # in functions of C++
BLOCKS = {'alloc', 'free_requested', 'free_completed'}
LIMIT = re.compile(r'\s*(peak|grown|reserved|live)\s*<=\s*(?:(\d+(?:\.\d+)?)(B|KiB|MiB|GiB|TiB)|0)\s*')
NO_HISTORY = 'no history; call torch.cuda.memory._record_memory_history() before the training'
UNITS = 'B', 'KiB', 'MiB', 'GiB', 'TiB'


def size_text(size):
    unit = 0
    while abs(size) >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f'{size:.{int(unit > 0)}f} {UNITS[unit]}'


def signed_text(size):
    return '+' * (size > 0) + size_text(size)


def frame_of(stack):
    """(file, line, function) of the program's innermost frame; without Python's frames, ('', 0, what
    autograd or PyTorch does). Of a file's folders only the last: others differ between machines."""
    python = [frame for frame in stack if frame[0].endswith('.py') or frame[0].startswith('<')]
    for file, line, name in [f for f in python if not NOT_OWN.search(f[0])] or python:
        return '/'.join(file.split('/')[-2:]).lstrip('/'), line, name
    for pattern in NODES:
        for found in filter(None, (re.search(pattern, name) for _, _, name in stack)):
            return '', 0, found[1]
    return '', 0, stack[0][2].split('(')[0] if stack else 'no stack'


def label_of(frame):
    file, number, name = frame
    return f'{file}:{number} ({name[:100]})' if file else name[:100]


def shares_of(blocks):
    """Of pairs (what, bytes): what, bytes and blocks, most bytes first."""
    sums = collections.defaultdict(lambda: [0, 0])
    for what, size in blocks:
        sums[what][0] += size
        sums[what][1] += 1
    return sorted(((what, *held) for what, held in sums.items()), key=lambda row: (-row[1], row[0]))


def table(columns, rows):
    return {'columns': columns.split(), 'rows': rows}


class Answers:
    """About one device. `most` and `at_peak` have bytes by (line, size) and (line, None): at most, and
    at the peak of all; `by_line`, `by_note` and `by_size` are the shares of that, `growth` of a step.
    A line is the text for it; `frames` tells the file, number and function of each."""

    def __init__(self, name, device, history):
        self.name, self.device = name, device
        self.memory = history.devices.get(device, snapshot_events.Memory())
        self.is_recorded = any(memory.events for memory in history.devices.values())
        frames = [frame_of(stack) for stack in history.stacks] + [('', 0, 'before the history')]
        self.line_of = [label_of(frame) for frame in frames]
        self.frames = dict(zip(self.line_of, frames))
        self.borders, self.steps_by = self.find_steps()
        self.stride = len(self.borders) // BORDERS + 1
        self.borders = self.borders[::self.stride]
        self.steps = max(len(self.borders) - 1, 0) * self.stride
        blocks = self.walk()
        later = [name for at, stage, name in self.memory.annotations
                 if stage == 'START' and at == len(self.memory.events)]  # behind all events
        self.is_idle = self.peak == 0 or any(later.count(name) >= 3 for name in {*later})
        self.growth = sorted(self.find_growth(), key=lambda row: (-row[1], row[0]))
        self.grown = sum(row[1] for row in self.growth)
        self.by_line = shares_of((line, size) for line, size, _ in blocks)
        self.by_note = shares_of((note, size) for _, size, note in blocks)
        self.by_size = shares_of((size, size) for _, size, _ in blocks)
        self.at_peak = collections.Counter({(line, None): size for line, size, _ in self.by_line})
        for line, size, _ in blocks:
            self.at_peak[line, size] += size

    def find_steps(self):
        """The events at which steps begin, and what tells: an annotation or, without any, a line. Of
        those that come again the one that comes least often: others are parts of steps."""
        marks = collections.defaultdict(list)
        for at, stage, name in self.memory.annotations:
            if stage == 'START' and at < len(self.memory.events) and at not in marks[name][-1:]:
                marks[name].append(at)
        often = [(len(at), at, f'annotation {name}') for name, at in marks.items() if len(at) >= 3]
        return min(often)[1:] if often else self.find_period()

    def find_period(self):
        """The same, by a line that allocates at equal distances nearly all the time."""
        allocations = [i for i, event in enumerate(self.memory.events) if event[0] == 'alloc']
        marks = collections.defaultdict(list)
        for ordinal, i in enumerate(allocations):
            marks[self.line_of[self.memory.events[i][4]]].append(ordinal)
        for line, at in sorted(marks.items(), key=lambda mark: (len(mark[1]), mark[1])):
            gaps = sorted(b - a for a, b in zip(at, at[1:]))
            gap = gaps[len(gaps) // 2] if len(gaps) >= 2 else 0
            regular = sum(gap - gap // 5 <= g <= gap + gap // 4 for g in gaps)
            is_nearly_all = at[-1] - at[0] + gap >= 0.7 * len(allocations)
            if gap > 1 and 4 * regular >= 3 * len(gaps) and is_nearly_all:
                return [allocations[n] for n in at], f'every {gap} allocations, at {line}'
        return [], ''

    def walk(self):
        """Go through the history in the program's order; what is live before it is allocated first.
        Returns line, size and annotation of each block that is live at the peak."""
        line_of, begin, borders = self.line_of, [], iter(self.borders)
        lines = {line: [0, 0] for line in self.frames}  # bytes now, and at most
        sites = collections.defaultdict(lambda: [0, 0])  # of lines and sizes, the same
        held, gone = {}, []  # live blocks; those that were live at the peak and no longer are
        waiting = {}  # sizes of blocks that streams have yet
        memory = snapshot_events.Memory()
        live = reserved = peak = completed = peak_at = completed_at = 0
        self.samples, self.ooms, self.oom_count = [], [], 0
        for segment, blocks in self.memory.first:
            memory.add(segment)
            reserved += segment[1]
            for at, _, size, state, stack in blocks:
                if state == 'active':
                    begin.append(('alloc', at, size, 0, stack or -1, '', ''))
                elif state == 'pending':
                    waiting[at] = size
        pending = completed = sum(waiting.values())
        reserved_peak, border = reserved, next(borders, None)
        events = enumerate(begin + self.memory.events, -len(begin))
        for i, (action, at, size, stream, stack, pool, note) in events:
            if i == border:
                border = next(borders, None)
                self.samples.append([line[0] for line in lines.values()])
            if action in BLOCKS:
                old = held.pop(at, None)
                if old:
                    since, _, _, old_size, line, site = old
                    live -= old_size
                    line[0] -= old_size
                    site[0] -= old_size
                    if since < peak_at:
                        gone.append(old)
                if action == 'alloc':
                    pending -= waiting.pop(at, 0)  # where the history leaves its completion out
                    label = line_of[stack]
                    line, site = lines[label], sites[label, size]
                    held[at] = i, note, label, size, line, site
                    live += size
                    for sums in line, site:
                        sums[0] += size
                        if sums[0] > sums[1]:
                            sums[1] = sums[0]
                    if live > peak:
                        peak, peak_at = live, i + 1
                        gone.clear()
                    if live + pending > completed:
                        completed, completed_at = live + pending, i + 1
                elif old and action == 'free_requested':
                    waiting[at] = old_size
                    pending += old_size
                elif not old and action == 'free_completed':
                    pending -= waiting.pop(at, 0)
            elif action in snapshot_events.TAKES:
                memory.take(at, size, stream, pool, action == 'segment_map')
                reserved += size
                reserved_peak = max(reserved_peak, reserved)
            elif action in snapshot_events.GIVES:
                memory.give(at, size)
                reserved -= size
            elif action == 'oom':  # `at` is what was free on the device
                self.oom_count += 1
                if self.oom_count <= OOMS:
                    blocks = [*((at, block[3]) for at, block in held.items()), *waiting.items()]
                    hole = largest_hole(memory.segments, sorted(blocks))
                    self.ooms.append((line_of[stack], i, size, live, reserved, at, hole))
        self.live, self.peak, self.peak_at, self.reserved = live, peak, max(peak_at, 0), reserved
        self.reserved_peak, self.completed = reserved_peak, completed
        self.completed_at = max(completed_at, 0)
        self.most = {key: most for key, (_, most) in sites.items() if key[1] > 0}
        self.most.update(((line, None), most) for line, (_, most) in lines.items())
        note_at = self.annotations()
        return [(line, size, note or note_at(i)) for i, note, line, size, *_ in
                (*gone, *held.values()) if i < peak_at]

    def annotations(self):
        """A function that tells the innermost annotation around an event."""
        opened, begins, names = ['none'], [], ['none']
        for at, stage, name in self.memory.annotations:
            if stage == 'START':
                opened.append(name)
            elif opened[-1] == name and len(opened) > 1:
                opened.pop()
            begins.append(at)
            names.append(opened[-1])
        return lambda i: names[bisect.bisect(begins, i)]

    def find_growth(self):
        """What lines have more at each border of a third of the steps than at any of the third before:
        what comes once, or goes up and down, does not grow. Bytes a step, at least."""
        count = len(self.borders)
        begins = [-(-third * count // 3) for third in range(4)]
        for line, live in zip(self.frames, zip(*self.samples)):
            thirds = [live[a:b] for a, b in zip(begins, begins[1:])]
            each = [-(-(min(b) - min(a)) // (len(a) * self.stride)) if min(b) > max(a) else 0
                    for a, b in zip(thirds, thirds[1:])]
            if min(each) > 0:
                yield line, min(each), 1

    def text(self):
        until = f'; {size_text(self.completed)} until streams are done' * (self.completed != self.peak)
        peak = f"at most {size_text(self.peak)} live, in the program's order{until}"
        yield f'{self.name}, device {self.device}: {peak}'
        for title, rows in (('line', self.by_line), ('annotation', self.by_note), ('size', self.by_size)):
            if rows and (title != 'annotation' or rows[0][0] != 'none' or len(rows) > 1):
                yield f'  at the peak, by {title}:'
                yield from text_of_rows(rows, self.peak)
        if self.memory.missing:
            yield (f'  {self.memory.missing} events are missing from the history, or do not fit to the '
                   f"others: figures may differ from the program's")
        if not self.is_recorded:
            yield f'  {NO_HISTORY}'
        elif not self.borders and not self.is_idle:
            yield '  no steps found: no annotation comes 3 times, and no line at equal distances'
        elif self.grown == 0:
            over = f'over {self.steps} steps ({self.steps_by})' if self.borders else 'while it is idle'
            yield f'  nothing grows {over}'
        else:
            grown = size_text(self.grown)
            yield f'  each of {self.steps} steps ({self.steps_by}) leaves {grown} more, by line:'
            yield from text_of_rows(self.growth, self.grown)
        for oom in self.ooms:
            yield from text_of_oom(*oom)
        if self.oom_count > len(self.ooms):
            yield f'  out of memory {self.oom_count - len(self.ooms)} times more'

    def json(self):
        return {
            'device': self.device, 'live_peak_bytes': self.peak, 'peak_after_events': self.peak_at,
            'completed_peak_bytes': self.completed, 'completed_peak_after_events': self.completed_at,
            'live_bytes': self.live, 'reserved_peak_bytes': self.reserved_peak,
            'reserved_bytes': self.reserved, 'steps': self.steps, 'steps_by': self.steps_by,
            'grown_bytes': self.grown, 'growth_by_line': table('line bytes blocks', self.growth),
            'peak_by_line': table('line bytes blocks', self.by_line),
            'peak_by_annotation': table('annotation bytes blocks', self.by_note),
            'peak_by_size': table('block_bytes bytes blocks', self.by_size),
            'out_of_memory_count': self.oom_count,
            'out_of_memory': table('line event request_bytes live_bytes reserved_bytes device_free_bytes '
                                   'hole_bytes', self.ooms),
        }  # fmt: skip


def text_of_rows(rows, total):
    if len(rows) > ROWS + 1:
        rest = rows[ROWS:]
        rows = rows[:ROWS] + [(f'{len(rest)} more', sum(r[1] for r in rest), sum(r[2] for r in rest))]
    for what, size, count in rows:
        what = what if isinstance(what, str) else f'{size_text(what)} each'
        yield f'    {size_text(size):>10} {100 * size / total:5.1f} % {count:7}  {what:.200}'


def text_of_oom(line, event, request, live, reserved, free, hole):
    """What would have served a failed request: less of it or, if all that is live had fitted with it,
    memory in one piece."""
    less, missing = request - max(free, hole), live + request - reserved - free
    yield (f'  out of memory at event {event}, in {line}: {size_text(request)} were asked for, with '
           f'{size_text(live)} live of {size_text(reserved)} reserved, {size_text(free)} free on the device, '
           f'the largest hole {size_text(hole)}')
    yield (f'    {size_text(less)} less would have been served; ' if less > 0 else
           '    there is a place for it, of another stream or pool, or beyond a limit; ') + (
           f'no allocator has room for all of it: {size_text(missing)} are missing' if missing > 0 else
           'there is room for all of it, but not in one piece: see the table for others')  # fmt: skip


def largest_hole(segments, blocks):
    """The largest range of a segment without a block in it."""
    grain, hole = snapshot_events.GRAIN, 0
    for begin, size, *_ in segments:
        inside = blocks[bisect.bisect(blocks, (begin,)):bisect.bisect(blocks, (begin + size,))]
        ends = [begin] + [at - -size // grain * grain for at, size in inside]
        hole = max(hole, *(b - a for a, b in zip(ends, [at for at, _ in inside] + [begin + size])))
    return hole


class Diff:
    """What the second of two answers has more or less of each line and size, when that has most. The
    lines of a function that has as many of them in both are the same ones, wherever they have moved."""

    def __init__(self, old, new):
        self.old, self.new, functions, before = old, new, ({}, {}), {}
        for side, answers in zip(functions, (old, new)):
            for file, number, name in sorted({answers.frames[line] for line, _ in answers.most}):
                side.setdefault((file, name), []).append(label_of((file, number, name)))
        for function, lines in functions[1].items():
            known = functions[0].get(function, ())
            before.update(zip(lines, known if len(known) == len(lines) else lines))
        most, at_peak = ({(before[line], size): value for (line, size), value in of.items() if value}
                         for of in (new.most, new.at_peak))  # fmt: skip
        now, changes = {line: new_line for new_line, line in before.items()}, collections.defaultdict(list)
        for line, size in {**old.most, **most}:
            a, b = old.most.get((line, size), 0), most.get((line, size), 0)
            if a != b:
                at = old.at_peak[line, size], at_peak.get((line, size), 0)
                changes[line].append((size is not None, -abs(b - a), -(size or 0), size, a, b, *at))
        ordered = sorted((sorted(rows, key=lambda row: row[:3]), line) for line, rows in changes.items())
        self.rows = [(now.get(line, line), *row[3:]) for rows, line in ordered for row in rows]

    def text(self):
        old, new = self.old, self.new
        yield (f'{old.name}, device {old.device}, has at most {size_text(old.peak)} live, {new.name}, '
               f'device {new.device}, has {size_text(new.peak)} ({signed_text(new.peak - old.peak)})')
        if not self.rows:
            yield '  no line differs'
            return
        yield '  by line, when each has most (in brackets: at the peak), and its sizes:'
        lines = sizes = 0
        for label, size, a, b, at_a, at_b in self.rows:
            lines, sizes = (lines + 1, 0) if size is None else (lines, sizes + 1)
            if lines <= ROWS and sizes <= SIZES:
                what = label if size is None else f'    {size_text(size)} each: {b // size}, were {a // size}'
                yield f'    {signed_text(b - a):>11} ({signed_text(at_b - at_a):>11})  {what}'
        if lines > ROWS:
            yield f'    and {lines - ROWS} lines more'

    def json(self):
        return {'schema': 'ashlar-diff/1', 'trace_a': self.old.name, 'trace_b': self.new.name,
                'device_a': self.old.device, 'device_b': self.new.device,
                'live_peak_bytes_a': self.old.peak, 'live_peak_bytes_b': self.new.peak,
                'changes': table('line block_bytes most_bytes_a most_bytes_b at_peak_bytes_a at_peak_bytes_b',
                                 self.rows)}  # fmt: skip


def blame(kind, answers, diff):
    """The line that grows most; for what does not grow, that which has grown most since the first of two
    snapshots or, without one, holds most at the peak. Nobody can look up what has no file."""
    if kind != 'grown' and diff:
        for label, size, a, b, *_ in diff.rows:
            if size is None and b > a:
                return f'{label} has {size_text(b - a)} more than in {diff.old.name}'
    shares = answers.growth if kind == 'grown' else answers.by_line
    for line, size, _ in [row for row in shares if answers.frames[row[0]][0]] or shares:
        return f'{line} {"grows by" if kind == "grown" else "holds"} {size_text(size)}'
    return 'no line holds it'


def failure(limit, answers, diff):
    """Why an assertion does not hold; None: it does."""
    kind, number, unit = LIMIT.fullmatch(limit).groups()
    most = int(float(number or 0) * (1 << 10 * UNITS.index(unit or 'B')))
    value = {'peak': answers.peak, 'grown': answers.grown, 'reserved': answers.reserved_peak,
             'live': answers.live}[kind]  # fmt: skip
    if kind != 'live' and not answers.is_recorded:
        return NO_HISTORY
    if kind == 'grown' and not answers.borders and not answers.is_idle:
        return 'no steps found; record 3 or more, or mark them by record_function()'
    if value > most:
        return (f'{size_text(value)}{" a step" * (kind == "grown")}, {size_text(value - most)} too much; '
                f'{blame(kind, answers, diff)}')
    return None


def answer(options, histories):
    """The lines of all records."""
    record = lambda word, text: f'{word}\t{snapshot_events.text_of(text)}\n'
    yield from ('ashlar-events/1\n',) if options.diff else histories[0].records()
    suite, objects = ElementTree.Element('testsuite', name='ashlar-replay'), []
    used = [[d for d, memory in history.devices.items() if memory.first or memory.events] or [0]
            for history in histories]
    if max(map(len, used)) > 1:  # else the one is compared with the other, as of two ranks
        used = [sorted({*used[0], *used[-1]})] * len(used)
    for devices in zip(*used):
        both = [Answers(*of) for of in zip(options.snapshots, devices, histories)]
        diff = Diff(*both) if len(both) > 1 else None
        yield from (record('text', line) for line in (diff or both[-1]).text())
        objects.append((diff or both[-1]).json())
        for limit in options.limits:
            name, wrong = f'{both[-1].name}, device {both[-1].device}', failure(limit, both[-1], diff)
            case = ElementTree.SubElement(
                suite, 'testcase', classname=snapshot_events.printable(name), name=limit)
            if wrong:
                ElementTree.SubElement(case, 'failure', message=snapshot_events.printable(wrong))
                yield record('failed', f'{name}: {limit}: {wrong}')
    yield record('answers', json.dumps(objects))
    if options.junit:
        suite.set('tests', str(len(suite)))
        suite.set('failures', str(len(suite.findall('testcase/failure'))))
        ElementTree.ElementTree(suite).write(options.junit, 'utf-8', xml_declaration=True)


def main(arguments):
    parser = argparse.ArgumentParser(prog='snapshot_answers.py')
    parser.add_argument('--diff', action='store_true')
    parser.add_argument('--junit')
    parser.add_argument('--assert', action='append', default=[], dest='limits')
    parser.add_argument('snapshots', nargs='+')
    options = parser.parse_args(arguments)
    for limit in options.limits:
        if not LIMIT.fullmatch(limit):
            snapshot_events.say('--assert', f'"{limit:.80}"; give peak, grown, reserved or live, then <= and '
                                            'a size with a unit B, KiB, MiB, GiB or TiB, as peak<=22GiB')
            return 2
    return snapshot_events.run(options.snapshots,
                               lambda *histories: snapshot_events.write(answer(options, histories)))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
