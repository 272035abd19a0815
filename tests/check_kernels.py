"""check_kernels.py - hold docs/kernels.md to what ptxas says of our kernels, and images to what nvcc
has: check_kernels.py NVCC [IMAGE.fatbin ...]

Compiles for sm_80. With the compiler that the page names, its table must be what is found; with
another one, no kernel may spill or have a smaller occupancy. The page says how the share of the
bandwidth is computed. --write makes the table anew. Status: 0, 1, 77 where NVCC does not compile.
"""

import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "kernels.md")
SOURCES = ["arena/optimizer/optimizer_cuda.cu", "rnn/layer/ops_cuda.cu"]
HEAD = ["| kernel | threads | registers | shared, bytes | blocks on a multiprocessor | bytes of a "
        "turn | expected share of bandwidth | occupancy |",
        "|---|---|---|---|---|---|---|---|"]
# A multiprocessor of sm_80: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications".
WARPS, BLOCKS, REGISTERS, SHARED, SHARED_OF_SYSTEM = 64, 32, 65536, 164 << 10, 1 << 10
# An A100 of 40 GB: NVIDIA's A100 whitepaper. The latency of memory in cycles: arXiv:2402.13499.
MULTIPROCESSORS, HZ, BYTES_PER_S, LANES, LATENCY = 108, 1.41e9, 1555e9, 64, 466
ACCESS = re.compile(r"(?:@!?%\w+ )?(ld|st)((?:\.[a-z]\w*)*?)(?:\.v([24]))?\.[busf](8|16|32|64)\s")


def constants():
    """Threads of a block, as the headers have them."""
    found = {}
    for folder in "arena", "rnn":
        for place, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if name.endswith(".h"):
                    with open(os.path.join(place, name)) as file:
                        found.update(re.findall(r"(ASHLAR_\w+_THREADS)[ =]+(\d+)", file.read()))
    return {name: int(value) for name, value in found.items()}


def threads_of(source, kernel, known):
    if source.startswith("rnn"):
        return known["ASHLAR_OPS_THREADS"]
    return known["ASHLAR_DECIDE_THREADS" if kernel == "decide" else "ASHLAR_CHUNK_THREADS"]


def blocks_of(threads, registers, shared):
    """Registers are given to a warp in 256s, shared memory to a block in 128s."""
    warps = -(-threads // 32)
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // warps
    by_shared = SHARED // (-(-shared // 128) * 128 + SHARED_OF_SYSTEM)
    return min(BLOCKS, WARPS // warps, by_registers, by_shared)


def compile_one(nvcc, source):
    """What ptxas says, and the PTX; or None."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, "-cubin", "-arch=sm_80", "-std=c++17", "-fmad=false", "-Xptxas", "-v", "--keep",
             "--keep-dir", folder, "-I", os.path.join(ROOT, "include"), "-I", ROOT, "-o",
             os.path.join(folder, "a.cubin"), os.path.join(ROOT, source)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return None, None
        name = os.path.splitext(os.path.basename(source))[0] + ".ptx"
        with open(os.path.join(folder, name)) as file:
            return done.stdout, file.read()


def turns_of(body):
    """The innermost loops of a kernel, as lists of instructions; all of it if it has none."""
    lines = [line.strip() for line in body.split("\n")]
    lines = [line for line in lines if line and line[0] not in ".{}(/"]
    labels, loops = {}, []
    for i, line in enumerate(lines):
        if line.startswith("$") and line.endswith(":"):
            labels[line[:-1]] = i
        jump = re.search(r"\bbra(?:\.uni)?\s+(\$\w+);", line)
        if jump and jump[1] in labels:
            loops.append((labels[jump[1]], i))
    inner = [(begin, end) for begin, end in loops if not any(
        (begin, end) != other and begin <= other[0] and other[1] <= end for other in loops)]
    return [[line for line in lines[begin:end + 1] if not line.startswith("$")]
            for begin, end in inner] + [[line for line in lines if not line.startswith("$")]]


def moved(turn):
    """Bytes that a thread loads and stores, and whether that is numbers in vectors."""
    loads = stores = 0
    is_wide = any(re.search(r"\bld(\.global)?\.v[24]\.f(32|64)", line) for line in turn)
    for line in turn:
        access = ACCESS.match(line)
        if access and not re.search(r"\.(param|shared|local|const)", access[2]):
            size = int(access[4]) // 8 * int(access[3] or 1)
            loads, stores = (loads + size, stores) if access[1] == "ld" else (loads, stores + size)
    return loads, stores, is_wide


def bandwidth_of(body, threads):
    """Bytes of the slowest turn, and its share; of turns with vectors, the longest."""
    *loops, whole = turns_of(body)
    turns = [turn for turn in loops if moved(turn)[0] > 0] or [whole]
    wide = [turn for turn in turns if moved(turn)[2]]
    choose = max if wide else min
    turn = choose(wide or turns, key=lambda turn: sum(moved(turn)[:2]) / len(turn))
    loads, stores, _ = moved(turn)
    wanted = BYTES_PER_S / MULTIPROCESSORS / HZ  # bytes of a cycle of a multiprocessor
    share = min(1, threads * loads / LATENCY / wanted,
                LANES * (loads + stores) / len(turn) / wanted)
    return loads + stores, f"{100 * share:.0f} %"


def measure(nvcc):
    """Rows by kernel, and the kernels that spill."""
    rows, spilling, known = {}, [], constants()
    for source in SOURCES:
        text, ptx = compile_one(nvcc, source)
        if text is None:
            return None, None
        bodies = {part.split("(")[0]: part for part in ptx.split(".visible .entry ")[1:]}
        for part in re.split(r"Compiling entry function '", text)[1:]:
            kernel = re.sub(r"^ashlar_kernel_", "", part.split("'")[0])
            registers = int(re.search(r"Used (\d+) registers", part)[1])
            shared = int((re.search(r"(\d+) bytes smem", part) or ["0", "0"])[1])
            threads = threads_of(source, kernel, known)
            blocks = blocks_of(threads, registers, shared)
            share = 100 * blocks * -(-threads // 32) // WARPS
            rows[kernel] = [threads, registers, shared, blocks,
                            *bandwidth_of(bodies[part.split("'")[0]], blocks * threads),
                            f"{share} %"]
            if re.search(r"[1-9]\d* bytes spill", part):
                spilling.append(kernel)
    return rows, spilling


def version_of(nvcc):
    text = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True).stdout
    return re.search(r"V(\d+\.\d+\.\d+)", text)[1]


# Ampere, Hopper, and Blackwell in data centres and elsewhere: what the kernels' image has code for.
CODES = 80, 90, 100, 120


def has_code(path):
    """Which architectures an image has machine code for; and whether it has PTX for 8.0."""
    with open(path, "rb") as file:
        image = file.read()
    head = struct.unpack_from("<IHH", image)[2]
    codes, has_ptx = set(), False
    while head < len(image):  # kind, attributes, bytes of this head and of what follows, ..., code
        kind, _, bytes_, rest = struct.unpack_from("<HHIQ", image, head)
        code = struct.unpack_from("<I", image, head + 28)[0]
        codes |= {code} if kind == 2 else set()
        has_ptx |= kind == 1 and code == 80
        head += bytes_ + rest
    return codes, has_ptx


def find_lacks(nvcc, images):
    """Architectures that nvcc could have made code for, and an image has none for."""
    text = subprocess.run([nvcc, "--list-gpu-code"], stdout=subprocess.PIPE, text=True).stdout
    known = {code for code in CODES if f"sm_{code}" in text.split()}
    for path in images:
        codes, has_ptx = has_code(path)
        if not has_ptx or not known <= codes:
            yield f"{os.path.basename(path)} lacks {sorted(known - codes)}, PTX: {has_ptx}"


def find_faults(rows, spilling, page, version):
    told = {cells[0]: cells[1:] for cells in (
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in page.splitlines() if line.startswith("| `"))}
    for kernel in spilling:
        yield f"{kernel} spills registers"
    found = {f"`{kernel}`": [str(cell) for cell in cells] for kernel, cells in rows.items()}
    if set(found) != set(told):
        yield f"not both on the page and compiled: {sorted(set(found) ^ set(told))}"
    for kernel in sorted(set(found) & set(told)):
        if f"nvcc {version}" in page and found[kernel] != told[kernel]:
            yield f"{kernel}: the page says {told[kernel]}, ptxas {found[kernel]}"
        elif int(found[kernel][-1].split()[0]) < int(told[kernel][-1].split()[0]):
            yield f"{kernel}: an occupancy of {found[kernel][-1]}, the page says {told[kernel][-1]}"


def main(nvcc, images, writes):
    rows, spilling = measure(nvcc)
    if rows is None:
        print("1..0 # SKIP nvcc does not compile here")
        return 77
    with open(PAGE) as file:
        page = file.read()
    if writes:
        table = HEAD + [f"| `{kernel}` | " + " | ".join(map(str, cells)) + " |"
                        for kernel, cells in sorted(rows.items())]
        page = re.sub(r"\| kernel.*\n(\|.*\n)*", "\n".join(table) + "\n", page)
        page = re.sub(r"nvcc [\d.]+\d", f"nvcc {version_of(nvcc)}", page)
        with open(PAGE, "w") as file:
            file.write(page)
    faults = list(find_faults(rows, spilling, page, version_of(nvcc)))
    for fault in faults:
        print(f"# {fault}")
    print("not " * bool(faults) + "ok 1 - the_page_says_what_ptxas_says")
    lacks = list(find_lacks(nvcc, images))
    for lack in lacks:
        print(f"# {lack}")
    print("not " * bool(lacks) + "ok 2 - images_have_code_for_what_nvcc_knows\n1..2")
    return 1 if faults or lacks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], [name for name in sys.argv[2:] if name != "--write"],
                  "--write" in sys.argv))
