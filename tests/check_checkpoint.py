#!/usr/bin/env python3
"""Checkpoints as others read and write them, for shell_checkpoint.sh.

  check_checkpoint.py forge FILE OUT DTYPE     write FILE's parameters anew, as another writer would
  check_checkpoint.py state_dict FILE OUT      the same as PyTorch has them, in a wrapper
  check_checkpoint.py held_out FILE REPORT TEXT N LENGTH   REPORT's held-out loss is FILE's on TEXT
  check_checkpoint.py metadata FILE EXPRESSION         Python's EXPRESSION over the metadata, as m

Written from the format's public description alone (https://github.com/huggingface/safetensors,
"Format"): nothing of it is shared with ashlar. Plain Python, no packages.
"""
import json
import math
import struct
import sys

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def no_duplicates(pairs):
    assert len(dict(pairs)) == len(pairs), "a key is there twice"
    return dict(pairs)


def read(path):
    """Metadata, and {name: (dtype, shape, bytes)}; whatever the description forbids fails."""
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    assert length <= 100_000_000 and 8 + length <= len(data), length
    header = data[8 : 8 + length]
    assert header[:1] == b"{", header[:10]
    header = json.loads(header.decode("utf-8"), object_pairs_hook=no_duplicates)
    buffer = data[8 + length :]
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(text, str) for text in metadata.values()), metadata
    tensors, spans = {}, []
    for name, about in header.items():
        assert set(about) == {"dtype", "shape", "data_offsets"}, about
        begin, end = about["data_offsets"]
        size = SIZES[about["dtype"]] * math.prod(about["shape"])
        assert end - begin == size, about
        tensors[name] = (about["dtype"], about["shape"], buffer[begin:end])
        spans.append((begin, end))
    at = 0
    for begin, end in sorted(spans):
        assert begin == at, "a hole or an overlap"
        at = end
    assert at == len(buffer), "bytes that no tensor has"
    return metadata, tensors


def values(tensor):
    dtype, _, data = tensor
    if dtype == "BF16":
        halves = struct.unpack("<%dH" % (len(data) // 2), data)
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    letter = {"F64": "d", "F32": "f", "F16": "e"}[dtype]
    return list(struct.unpack("<%d%s" % (len(data) // SIZES[dtype], letter), data))


def pack(numbers, dtype):
    if dtype == "BF16":  # cut off, not rounded: any values will do
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    return struct.pack("<%d%s" % (len(numbers), {"F64": "d", "F32": "f", "F16": "e"}[dtype]), *numbers)


def state_dict(path, out):
    """No metadata, a prefix, and what is no weight."""
    _, tensors = read(path)
    header, buffer = {}, b""
    tensors = {"module." + n: t for n, t in tensors.items() if not n.startswith("optimizer.")}
    tensors["module.head.batches"] = ("I64", [], struct.pack("<q", 12))
    for name, (dtype, shape, data) in tensors.items():
        span = [len(buffer), len(buffer) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        buffer += data
    header = json.dumps(header).encode()
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + buffer)


def forge(path, out, dtype):
    """Other order, other types, no optimizer's state, a header of any length, unaligned data."""
    metadata, tensors = read(path)
    header, buffer = {}, b""
    for name in sorted(tensors, reverse=True):
        if not name.startswith("optimizer."):
            data = pack(values(tensors[name]), dtype)
            span = [len(buffer), len(buffer) + len(data)]
            header[name] = {"data_offsets": span, "shape": tensors[name][1], "dtype": dtype}
            buffer += data
    keys = ("ashlar.layers", "ashlar.hidden", "ashlar.embedding", "ashlar.cell")
    header["__metadata__"] = {key: metadata[key] for key in keys if key in metadata}
    header = json.dumps(header, indent=1).encode()
    header += b" " * (len(header) % 2 == 0)  # so that the data begins at an odd byte
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + buffer)


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def dot(row, x):
    return sum(a * b for a, b in zip(row, x))


def lstm(tensors, symbols):
    """torch.nn.LSTM as its documentation has it, one sequence: gates i f g o, two biases."""
    def matrix(name):
        _, (rows, cols), _ = tensors[name]
        flat = values(tensors[name])
        return [flat[r * cols : (r + 1) * cols] for r in range(rows)]

    table = matrix("embedding.weight")
    xs = [table[symbol] for symbol in symbols]
    layer = 0
    while "lstm.weight_ih_l%d" % layer in tensors:
        w, r = matrix("lstm.weight_ih_l%d" % layer), matrix("lstm.weight_hh_l%d" % layer)
        bias = [a + b for a, b in zip(values(tensors["lstm.bias_ih_l%d" % layer]),
                                      values(tensors["lstm.bias_hh_l%d" % layer]))]
        size = len(r[0])
        h, c, ys = [0.0] * size, [0.0] * size, []
        for x in xs:
            gates = [dot(w[k], x) + dot(r[k], h) + bias[k] for k in range(4 * size)]
            i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
            c = [sigmoid(f[k]) * c[k] + sigmoid(i[k]) * math.tanh(g[k]) for k in range(size)]
            h = [sigmoid(o[k]) * math.tanh(c[k]) for k in range(size)]
            ys.append(h)
        xs = ys
        layer += 1
    assert layer >= 2, "no stack"
    return xs


def nats(tensors, symbols):
    """What symbol after symbol costs, by a softmax of a linear layer on the LSTM's outputs."""
    _, (rows, cols), _ = tensors["linear.weight"]
    flat, bias = values(tensors["linear.weight"]), values(tensors["linear.bias"])
    total = 0.0
    for y, target in zip(lstm(tensors, symbols[:-1]), symbols[1:]):
        logits = [dot(flat[r * cols : (r + 1) * cols], y) + bias[r] for r in range(rows)]
        most = max(logits)
        total += most + math.log(sum(math.exp(x - most) for x in logits)) - logits[target]
    return total


def check_held_out(path, report, text, every, length):
    """Every so many records, each between two marks, cut into pieces that begin without memory."""
    tensors, report = read(path)[1], json.load(open(report))
    records = open(text, "rb").read().removesuffix(b"\n%\n").split(b"\n%\n")
    total, symbols, held = 0.0, 0, records[every - 1 :: every]
    for record in held:
        marked = [0, *record, 0]
        for first in range(0, len(marked) - 1, length):
            piece = marked[first : first + length + 1]
            total += nats(tensors, piece)
            symbols += len(piece) - 1
    want = {"held_out_records": len(held), "held_out_symbols": symbols,
            "held_out_loss": total / symbols,
            "held_out_bits_per_byte": total / math.log(2) / sum(map(len, held))}
    print({key: (report[key], value) for key, value in want.items()})
    assert len(held) > 1 and all(math.isclose(report[k], v, rel_tol=1e-5) for k, v in want.items())


def main(command, *words):
    if command == "forge":
        forge(*words)
    elif command == "state_dict":
        state_dict(*words)
    elif command == "held_out":
        check_held_out(*words[:3], *map(int, words[3:]))
    elif command == "metadata":
        m = read(words[0])[0]
        print(m)
        assert eval("(" + words[1] + ")", {"m": m})


main(*sys.argv[1:])
