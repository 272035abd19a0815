"""snapshot_events.py - turns a snapshot of PyTorch's memory into ashlar's event file.

    python3 tools/snapshot_events.py SNAPSHOT.pickle[.gz] [EVENTS]

SNAPSHOT is what torch.cuda.memory._dump_snapshot() writes, or what torch.cuda.memory._snapshot() or
torch.cuda.memory_snapshot() returns, written by pickle.dump(), of PyTorch 2.1 to 2.15. EVENTS is
stdout if it is not given: text in UTF-8, a record a line, fields between TABs; in texts \\ TAB and
newline are \\\\ \\t \\n.

    ashlar-events/1
    setting  NAME VALUE               of the allocator; roundup_power2_divisions as roundup.1 roundup.2 ...
    setting  history_missing N        so many events do not fit to others or to segments: some are missing
    segment  DEVICE ADDRESS SIZE STREAM small|large POOL:POOL EXPANDABLE     where the history begins
    block    DEVICE ADDRESS SIZE REQUESTED active|pending|inactive           all of these segments
    event    DEVICE ACTION ADDRESS SIZE STREAM STACK POOL:POOL               in order, device by device

ACTION is PyTorch's word. ADDRESS of an oom is what the device had free. Events with the same STACK
have the same one; 0 is none. A snapshot has the segments of the end only: those of the beginning are
found by undoing the history, event by event.

Pickles run code where they name a class. Here every class is refused, and the reading is done by a
process of its own, with limits of memory and time, so that one line says why a file is no snapshot.
"""

import bisect
import contextlib
import gc
import gzip
import os
import pickle
import resource
import sys

MOST = (1 << 64) - 1  # where GPUs of Intel are, addresses have all bits
GRAIN = 512  # PyTorch: sizes of blocks are multiples;
SMALL = 1 << 20  # up to here, requests are served from segments of the small pool;
SMALL_SEGMENT = 2 << 20  # these have this size. Of the others no rest up to SMALL is split off,
LARGE_SEGMENT = 20 << 20  # and where they are expandable, they grow by this size.
MOST_SKEW = 1000  # microseconds by which the clocks of two processors may differ
STATES = {'active_allocated': 'active', 'active_pending_free': 'pending',
          'active_awaiting_free': 'pending', 'inactive': 'inactive'}
TAKES, GIVES = {'segment_alloc', 'segment_map'}, {'segment_free', 'segment_unmap'}
ACTIONS = {'alloc', 'free_requested', 'free_completed', 'oom', 'snapshot', 'annotate'} | TAKES | GIVES
BROKEN = TypeError, ValueError, LookupError, AttributeError  # of what PyTorch would not write
ESCAPES = {0: '?', ord('\t'): '\\t', ord('\n'): '\\n', ord('\\'): '\\\\'}


class Refused(Exception):
    """The file is no snapshot; the text says why."""


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise Refused(f'it asks for {module}.{name}, and a snapshot has no classes; nothing was run')


@contextlib.contextmanager
def reading(where):
    """Say where there is what PyTorch would not write."""
    try:
        yield
    except BROKEN as wrong:
        why = f'{type(wrong).__name__}: {wrong}'
        raise Refused(f'{where} is not as PyTorch writes it ({why})') from None


def text_of(value):
    return value.translate(ESCAPES)


def number_of(record, key, default=None):
    value = record.get(key, default)
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f'"{key}" is no number from 0 to 2^64 - 1')
    return value


def pool_of(pair):
    pool = dict(zip('ab', pair or (0, 0)))
    return f'{number_of(pool, "a")}:{number_of(pool, "b")}'


class Stacks:
    """Stacks, each once: tuples of (file, line, function), innermost first, of Python's frames if there
    are any. Snapshots share the dicts of frames: a few of their ids tell nearly all stacks apart."""

    def __init__(self):
        self.all, self.numbers, self.alike = [()], {(): 0}, {}

    def find(self, frames):
        alike = self.alike.setdefault((len(frames), *map(id, frames[::1 + len(frames) // 16])), [])
        for known, number in alike:
            if known == frames:
                return number
        stack = [(f['filename'], number_of(f, 'line', 0) % MOST, f['name']) for f in frames]  # -1: no line
        stack = tuple(f for f in stack if f[0].endswith('.py') or f[0].startswith('<')) or tuple(stack)
        number = self.numbers.setdefault(stack, len(self.all))
        alike.append((frames, number))
        self.all += [stack] * (number == len(self.all))
        return number


class Memory:
    """A device's segments, in order, and what is in use of them, at one time. A segment is (address,
    size, stream, kind, pool, is_expandable). A block in use is (size, requested, state, stack); of one
    that was freed only the request is known, and -size counts the events from its free to the end.
    When all is undone, `first` has the segments with their blocks, and `events` the history: (action,
    address, size, stream, stack, pool, note). An annotation is the number of the event behind it,
    "START" or "END", and its name."""

    def __init__(self):
        self.segments, self.live, self.missing = [], {}, 0
        self.first, self.events, self.annotations = [], [], []

    def find(self, address):
        i = bisect.bisect(self.segments, (address, MOST + 1))
        return self.segments[i - 1] if i > 0 and address < sum(self.segments[i - 1][:2]) else None

    def add(self, segment):
        """False: it is empty, or lies where another one does."""
        i = bisect.bisect(self.segments, segment[:1])
        behind = self.segments[i][0] if i < len(self.segments) else MOST
        is_free = segment[1] > 0 and sum(segment[:2]) <= behind and not self.find(segment[0])
        self.segments[i:i] = [segment] * is_free
        return is_free

    def take(self, address, size, stream, pool, is_expandable):
        """Add a range; pieces of an expandable segment that meet are one."""
        new, end = (address, size, stream, None, pool, is_expandable), address + size
        for near in self.find(address - 1), self.find(end):
            is_beside = near and end in (near[0], near[0] + near[1] + size)
            if is_beside and near[5] and is_expandable and near[2] == stream:
                self.segments.remove(near)
                new = min(near[0], new[0]), near[1] + new[1], *near[2:]
        return self.add(new)

    def give(self, address, size):
        """Remove a range of a segment; what lies before and behind it stays. False: there is none."""
        old, end = self.find(address), address + size
        if old is None or end > old[0] + old[1]:
            return False
        self.segments.remove(old)
        self.add((old[0], address - old[0], *old[2:]))
        self.add((end, old[0] + old[1] - end, *old[2:]))
        return True

    def layout(self, settings, later):
        """Yield each segment with all of its blocks. later: the allocations above SMALL from here on,
        in order: events to the end, and address. A block that is known by its request may be larger:
        it keeps a rest that is not split off. What lies behind it tells; if that is free, the first
        block that is allocated there before the free, as it begins where the free range does."""
        rounded, most_split = rounding(settings), settings.get('max_split_size', -1)
        blocks, loose = {segment[0]: [] for segment in self.segments}, {}
        for address, (size, *others) in sorted(self.live.items()):
            taken, segment = max(size, 0) or rounded(others[0]), self.find(address)
            if segment is None:  # no event tells of it
                behind = [s[0] for s in self.segments[bisect.bisect(self.segments, (address,)):][:1]]
                segment = address, min([address + taken, *behind]) - address, 0, None, '0:0', False
                self.missing += self.add(segment)
            blocks.setdefault(segment[0], []).append([address, taken, *others, -size])
        for i, (start, size, stream, kind, pool, is_expandable) in enumerate(self.segments):
            own, end = blocks[start], start + size
            if kind is None:
                is_small = max(b[1] for b in own) <= SMALL if own else \
                    size % LARGE_SEGMENT != 0 if is_expandable else size <= SMALL_SEGMENT
                kind = 'small' if is_small else 'large'
                self.segments[i] = start, size, stream, kind, pool, is_expandable
            for block, behind in zip(own, [b[0] for b in own[1:]] + [end]):
                rest = behind - block[0] - block[1]
                if rest < 0:
                    self.missing += 1
                    block[1] += rest
                elif block[5] >= 0 and rest > 0 and kind == 'large' and not is_expandable:
                    if rest <= SMALL or 0 < most_split <= block[1]:
                        block[1] += rest
                    else:
                        loose[block[0]] = block, behind
        starts = sorted(loose)
        for left, address in later if starts else ():
            i = bisect.bisect_right(starts, address) - 1
            if i >= 0 and address < loose[starts[i]][1]:
                block, _ = loose[starts.pop(i)]
                if left > block[5] and address > block[0] + block[1]:
                    block[1] = address - block[0]
        for segment in self.segments:
            at, filled = segment[0], []
            for block in blocks[at] + [[sum(segment[:2]), 0]]:
                filled += [(at, block[0] - at, 0, 'inactive', 0)] * (block[0] > at)
                filled.append(block[:5])
                at = block[0] + block[1]
            yield segment, filled[:-1]


def rounding(settings):
    """PyTorch's function from a request to the size of its block."""
    given = settings.get('roundup_power2_divisions') or {}
    divisions = [number_of(given, str(1 << i), 0) for i in range(16)]

    def rounded(size):
        log = max(size, 1).bit_length() - 1
        parts = divisions[min(max(log - 20, 0), 15)]
        step = 1 << (log - parts.bit_length() + 1) if parts > 1 and size > GRAIN * parts else GRAIN
        return max(GRAIN, -(-size // step) * step)

    return rounded


def setting_records(settings):
    for name, value in settings.items():
        if name == 'roundup_power2_divisions' and isinstance(value, dict):
            yield from setting_records({f'roundup.{key}': v for key, v in value.items()})
        elif isinstance(value, (str, float)) or isinstance(value, int) and -MOST <= value <= MOST:
            value = int(value) if isinstance(value, bool) else value
            yield f'setting\t{text_of(name)}\t{text_of(str(value))}'


def read_segment(record, memory, stacks):
    """Add a segment of the snapshot, and its blocks, to `memory`."""
    at, kind = number_of(record, 'address'), record.get('segment_type', 'large')
    segment = (at, number_of(record, 'total_size'), number_of(record, 'stream', 0), kind,
               pool_of(record.get('segment_pool_id')), record.get('is_expandable') is True)
    for block in record['blocks']:
        older = (block.get('history') or [{}])[0]  # of versions up to 2.1
        state, size = STATES[block['state']], number_of(block, 'size')
        if number_of(block, 'address', at) != at or size == 0:
            raise ValueError(f'no block begins at 0x{at:x}, where the one before it ends')
        if state != 'inactive':
            requested = number_of(block, 'requested_size', older.get('real_size', size))
            stack = stacks.find(block.get('frames', older.get('frames', ())))
            memory.live[at] = size, requested, state, stack
        at += size
    if kind not in ('small', 'large') or at != segment[0] + segment[1] or not memory.add(segment):
        raise ValueError('of no kind, not of the size of its blocks, or where another one lies')


def events_of(trace, stacks):
    """The events as Memory has them, and their times. Column by column: that is fast."""
    actions = [event['action'] for event in trace]
    addresses = [event['device_free' if event['action'] == 'oom' else 'addr'] for event in trace]
    sizes = [event['size'] for event in trace]
    streams, times = ([event.get(key, 0) for event in trace] for key in ('stream', 'time_us'))
    notes = [event.get('user_metadata') or '' for event in trace]
    pools = [event.get('pool_id') for event in trace]
    frames = [event.get('frames', ()) for event in trace]
    for numbers in (addresses, sizes, streams, times) if trace else ():
        if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > MOST:
            raise ValueError('a number out of range')
    if not ACTIONS.issuperset(actions) or not set(map(type, notes)) <= {str}:
        raise ValueError(f'action "{actions[0]}", which is not known, or metadata that is no text')
    pool_by_pair = {pair: pool_of(pair) for pair in set(pools)}
    by_id = {i: stacks.find(f) for i, f in {id(f): f for f in frames}.items()}
    return [*zip(actions, addresses, sizes, streams, [by_id[id(f)] for f in frames],
                 [pool_by_pair[pair] for pair in pools], notes)], times


def undo_history(memory, times):
    """Undo the events, the last one first. Those of blocks that do not fit to what comes later go: others
    are missing. Returns the allocations that Memory.layout() wants."""
    large, live, missing, begun, odd = [], memory.live, 0, set(), set()
    for left, (action, address, size, stream, _, pool, _) in enumerate(reversed(memory.events), 1):
        if action == 'alloc':
            is_known = live.pop(address, None) is not None
            if address in begun and not is_known:
                odd.add(len(memory.events) - left)
                continue
            missing += not is_known
            begun.add(address)
            if size > SMALL:
                large.append((left, address))
        elif action in ('free_completed', 'free_requested'):
            old = live.get(address, (-left, 0, 0, 0))
            if old[2] == 'active' or old[2] and action == 'free_completed':
                odd.add(len(memory.events) - left)
            else:
                begun.discard(address)
                live[address] = old[0], size, 'pending' if action == 'free_completed' else 'active', old[3]
        elif action in TAKES:
            missing += not memory.give(address, size)
        elif action in GIVES:
            missing += not memory.take(address, size, stream, pool, action == 'segment_unmap')
    memory.missing += missing + len(odd)
    for items in (memory.events, times) if odd else ():
        items[:] = [item for i, item in enumerate(items) if i not in odd]
    actions = {event[0] for event in memory.events}
    if 'free_completed' in actions and 'free_requested' not in actions:  # PyTorch left them out
        live.update((at, (*b[:2], 'active', b[3])) for at, b in live.items())
    return reversed(large)


class History:
    """What a snapshot tells: `settings`, `stacks`, and the memory of each device."""

    def __init__(self, snapshot):
        if isinstance(snapshot, list) and snapshot and isinstance(snapshot[0], dict) and 'blocks' in snapshot[0]:
            snapshot = {'segments': snapshot}  # of torch.cuda.memory_snapshot()
        if not isinstance(snapshot, dict) or not isinstance(snapshot.get('segments'), list):
            raise Refused('it has no "segments": torch.cuda.memory._dump_snapshot() writes them')
        stacks, self.devices, annotations = Stacks(), {}, {}
        with reading('it'):
            settings, traces = snapshot.get('allocator_settings', {}), snapshot.get('device_traces', [])
            self.settings = [*setting_records(settings)]
            for record in snapshot.get('external_annotations', []):
                device, stage, name = max(0, record['device']), str(record['stage']), str(record['name'])
                annotations.setdefault(device, []).append((number_of(record, 'time_us'), stage, name))
            for i, record in enumerate(snapshot['segments']):
                with reading(f'segment {i}'):
                    memory = self.devices.setdefault(number_of(record, 'device', 0), Memory())
                    read_segment(record, memory, stacks)
            most = max(annotations.values(), key=len, default=())  # they name the device that is current
            for device in sorted({*range(len(traces)), *self.devices, *annotations}):
                marks = sorted(annotations.get(device, most), key=lambda mark: mark[0])
                trace = traces[device] if device < len(traces) else []
                self.add(device, trace, marks, settings, stacks)
        self.stacks = stacks.all
        missing = sum(memory.missing for memory in self.devices.values())
        self.settings += [f'setting\thistory_missing\t{missing}'] * (missing > 0)

    def add(self, device, trace, annotations, settings, stacks):
        memory = self.devices.setdefault(device, Memory())
        try:
            memory.events, times = events_of(trace, stacks)
        except BROKEN:
            for i, event in enumerate(trace):
                with reading(f'event {i} of device {device}'):
                    events_of([event], stacks)
            raise
        trace.clear()
        if any(a > b + MOST_SKEW for a, b in zip(times, times[1:])):  # PyTorch's ring has got another size
            order = sorted(range(len(times)), key=times.__getitem__)
            memory.events, times = [memory.events[i] for i in order], [times[i] for i in order]
        memory.first = [*memory.layout(settings, undo_history(memory, times))]
        memory.annotations = [(bisect.bisect_left(times, time), *a) for time, *a in annotations]

    def records(self):
        """The lines of the event file."""
        yield 'ashlar-events/1\n'
        yield from (f'{record}\n' for record in self.settings)
        for device, memory in self.devices.items():
            for (at, size, stream, kind, pool, is_expandable), blocks in memory.first:
                yield f'segment\t{device}\t0x{at:x}\t{size}\t{stream}\t{kind}\t{pool}\t{is_expandable:d}\n'
                for at, size, requested, state, _ in blocks:
                    yield f'block\t{device}\t0x{at:x}\t{size}\t{requested}\t{state}\n'
        for device, memory in self.devices.items():
            for action, at, size, stream, stack, pool, _ in memory.events:
                if action not in ('snapshot', 'annotate'):
                    yield f'event\t{device}\t{action}\t0x{at:x}\t{size}\t{stream}\t{stack}\t{pool}\n'


def read(path):
    with open(path, 'rb') as plain:
        is_packed = plain.peek(2)[:2] == b'\x1f\x8b'
        file = gzip.open(plain) if is_packed else plain
        if file.peek(1)[:1] != b'\x80':
            raise Refused('packed by gzip, and no pickle; unpack it: zcat FILE | ashlar-replay /dev/stdin'
                          if is_packed else 'no pickle')
        return PlainUnpickler(file).load()


def set_limits(paths):
    """No more memory and time than any snapshots of this size take, and no file of a crash."""
    size = sum(os.stat(path).st_size for path in paths)
    of_machine = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    for what, most in ((resource.RLIMIT_AS, min(of_machine, (512 << 20) + 256 * size)),
                       (resource.RLIMIT_CPU, 20 + size // 50_000), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def printable(text):
    return ''.join(c if c.isprintable() else '?' for c in text)


def say(path, wrong):
    text = printable(' '.join(f'snapshot_events.py: {path}: {wrong}'.split()))[:400]
    os.write(2, text.encode('utf-8', 'replace') + b'\n')
    return 1


def work(paths, use):
    """Returns the exit status."""
    path, histories = paths[0], []
    try:
        set_limits(paths)
        gc.disable()  # nothing of a snapshot points back
        for path in paths:
            histories.append(History(read(path)))
        return use(*histories)
    except MemoryError:
        return say(path, 'it takes more memory than its size explains, or than there is')
    except (Refused, OSError) as wrong:
        return say(getattr(wrong, 'filename', None) or path, getattr(wrong, 'strerror', None) or wrong)
    except Exception as wrong:  # whatever a broken pickle makes of the unpickler
        return say(path, f'no pickle, or a broken one ({type(wrong).__name__}: {wrong})')


def run(paths, use):
    """Have a process of its own read snapshots and use() their histories. Returns its exit status."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(work(paths, use))
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return say(paths[0], f'reading it took more time than its size explains, or crashed: it was '
                             f'ended by signal {os.WTERMSIG(status)}')
    return os.WEXITSTATUS(status)


def write(lines, path=None):
    with open(path if path else sys.stdout.fileno(), 'w', encoding='utf-8', errors='replace') as file:
        file.writelines(lines)
    return 0


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0].startswith('-'):
        return say('usage', __doc__.split('\n\n')[1])
    return run(arguments[:1], lambda history: write(history.records(), *arguments[1:]))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
