"""check_kernels.py - hold docs/kernels.md to what ptxas says of our kernels and to their machine code,
and images to what nvcc has: check_kernels.py NVCC [IMAGE.fatbin ...]

Compiles for sm_90, and looks for spilled registers in the code for every architecture that images
have. nvdisasm counts instructions: beside NVCC, on the PATH, or from the Python package
nvidia-cuda-nvdisasm; without it, what depends on instructions is not compared. With the compiler
that the page names, its table must be what is found; with another one, no kernel may spill or have
a smaller occupancy. The page says how the share of the bandwidth is computed. --write makes the
table anew. Status: 0, 1, 77 where NVCC does not compile.
"""

import glob
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "kernels.md")
SOURCES = ["arena/optimizer/optimizer_cuda.cu", "rnn/layer/ops_cuda.cu"]
HEAD = ["| kernel | threads | registers | shared, bytes | blocks on a multiprocessor | occupancy | "
        "bytes of a turn | instructions of a turn | expected share of bandwidth |",
        "|---|---|---|---|---|---|---|---|---|"]
COMPILED = 5  # columns that are ptxas's; those after them are the machine code's
# A multiprocessor of sm_90: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications".
WARPS, BLOCKS, REGISTERS, SHARED, SHARED_OF_SYSTEM = 64, 32, 65536, 228 << 10, 1 << 10
# An H200: NVIDIA's data sheet; a clock between its least and its greatest. The latency of memory in
# cycles is an H100's: arXiv:2402.13499.
MULTIPROCESSORS, HZ, BYTES_PER_S, LANES, LATENCY = 132, 1.7e9, 4.8e12, 128, 479
# Ampere and Hopper, which the kernels' image has code for, and Blackwell in data centres and
# elsewhere, which the driver compiles for.
CODES = 80, 90, 100, 120
ACCESS = re.compile(r"(?:@!?U?P\w+ )?(LD|ST)G?\.E(\S*)")
SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


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


def run(command):
    """The status, and what it says."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def known_codes(nvcc):
    names = run([nvcc, "--list-gpu-code"])[1].split()
    return [code for code in CODES if f"sm_{code}" in names]


def find_nvdisasm(nvcc):
    folders = [os.path.dirname(nvcc), os.environ.get("PATH", "")]
    folders += [found for path in sys.path for found in glob.glob(f"{path}/nvidia/*/bin")]
    return shutil.which("nvdisasm", path=os.pathsep.join(folders))


def compile_one(nvcc, nvdisasm, source):
    """What ptxas says of every architecture, and the machine code for sm_90 or ""; or None."""
    command = [nvcc, "-std=c++17", "-fmad=false", "-Xptxas", "-v", "-I",
               os.path.join(ROOT, "include"), "-I", ROOT, os.path.join(ROOT, source)]
    for code in known_codes(nvcc):
        command += ["-gencode", f"arch=compute_{code},code=sm_{code}"]
    with tempfile.TemporaryDirectory() as folder:
        # --keep: a cubin for each architecture stays beside the image
        status, said = run(command + ["-fatbin", "--keep", "--keep-dir", folder, "-o",
                                      os.path.join(folder, "a.fatbin")])
        if status != 0:
            return None, None
        cubins = glob.glob(os.path.join(folder, "*_90.cubin"))
        return said, run([nvdisasm, "-c", cubins[0]])[1] if nvdisasm else ""


class Code:
    """A kernel's instructions, and where labels are among them."""

    def __init__(self, body):
        self.lines, self.labels = [], {}
        for line in map(str.strip, body.split("\n")):
            label = re.fullmatch(r"(\S+):", line)
            found = re.match(r"/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)
            if label:
                self.labels[label[1]] = len(self.lines)
            elif found:
                self.lines.append(found[1])

    def target(self, i):
        """Where instruction i may jump to, or None."""
        jump = re.search(r"\bBRA\b.*`\((\S+)\)", self.lines[i])
        return self.labels.get(jump[1]) if jump else None

    def cost(self, i):
        """Instructions: of a call, those of the function too, up to its first return."""
        call = re.search(r"\bCALL\b.*`\((\S+)\)", self.lines[i])
        if not call or call[1] not in self.labels:
            return 1
        begin = end = self.labels[call[1]]
        while "RET" not in self.lines[end]:
            end += 1
        return 2 + end - begin

    def turns(self):
        """First and last instruction of the innermost loops, and of all of it."""
        jumps = [(self.target(i), i) for i in range(len(self.lines))]
        loops = [(to, i) for to, i in jumps if to is not None and to < i]
        inner = [loop for loop in loops if not any(
            loop != other and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)]
        return inner, (0, len(self.lines) - 1)

    def walk(self, begin, end, is_loop):
        """Of the ways through a turn the one that moves most, and of those the shortest: bytes that
        a thread loads and stores, instructions, and whether it loads vectors."""
        best = [None] * (end + 2)
        for i in range(end, begin - 1, -1):
            line = self.lines[i]
            nexts = [self.target(i)] if self.target(i) is not None else []
            ends = re.match(r"(@!?U?P\w+ )?(EXIT|RET)", line)
            if ends is None or ends[1]:
                nexts += [] if re.match(r"(BRA[.\w]*\s+`|RET)", line) else [i + 1]
            rests = [best[n] for n in nexts if i < n <= end and best[n] is not None]
            if (i == end and is_loop) or (ends and not is_loop):
                rests.append((0, 0, 0, False))
            if not rests:
                continue
            rest = max(rests, key=lambda way: (way[0] + way[1], -way[2]))
            access = ACCESS.match(line)
            size = min([SIZES[part] for part in access[2].split(".") if part in SIZES] or [4]) \
                if access else 0
            is_load = access is not None and access[1] == "LD"
            best[i] = (rest[0] + size * is_load, rest[1] + size * (not is_load),
                       rest[2] + self.cost(i), rest[3] or (is_load and size == 16))
        return best[begin]


def bandwidth_of(body, threads):
    """Bytes and instructions of the slowest turn, and its share; of turns with vectors, of the
    fastest."""
    code = Code(body)
    loops, whole = code.turns()
    turns = [turn for turn in (code.walk(*loop, True) for loop in sorted(loops)) if turn]
    turns = [turn for before, turn in zip([(0, 0)] + turns, turns)
             if turn[0] > 0 and not 0 < turn[1] < before[1]]  # a loop's remainder is not one
    turns = turns or [code.walk(*whole, False)]
    wide = [turn for turn in turns if turn[3]]
    choose = max if wide else min
    loads, stores, count, _ = choose(wide or turns, key=lambda turn: (turn[0] + turn[1]) / turn[2])
    wanted = BYTES_PER_S / MULTIPROCESSORS / HZ  # bytes of a cycle of a multiprocessor
    share = min(1, threads * loads / LATENCY / wanted, LANES * (loads + stores) / count / wanted)
    return loads + stores, count, f"{100 * share:.0f} %"


def measure(nvcc, nvdisasm):
    """Rows by kernel, and the kernels that spill."""
    rows, spilling, known = {}, [], constants()
    for source in SOURCES:
        text, sass = compile_one(nvcc, nvdisasm, source)
        if text is None:
            return None, None
        bodies = {part.split(":")[0]: re.split(r"\n\s*\.section|\n//---", part)[0]
                  for part in re.split(r"\n\.text\.(?=ashlar_kernel)", sass)[1:]}
        for name, code, part in re.findall(
                r"Compiling entry function '(\w+)' for 'sm_(\d+)'((?:.|\n)*?Used .*)", text):
            kernel = re.sub(r"^ashlar_kernel_", "", name)
            if re.search(r"[1-9]\d* bytes spill", part):
                spilling.append(f"{kernel} for sm_{code}")
            if code != "90":
                continue
            registers = int(re.search(r"Used (\d+) registers", part)[1])
            shared = int((re.search(r"(\d+) bytes smem", part) or ["0", "0"])[1])
            threads = threads_of(source, kernel, known)
            blocks = blocks_of(threads, registers, shared)
            share = 100 * blocks * -(-threads // 32) // WARPS
            rows[kernel] = [threads, registers, shared, blocks, f"{share} %"]
            if nvdisasm:
                rows[kernel] += bandwidth_of(bodies[name], blocks * threads)
    return rows, spilling


def version_of(nvcc):
    return re.search(r"V(\d+\.\d+\.\d+)", run([nvcc, "--version"])[1])[1]


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
    known = set(known_codes(nvcc))
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
        told_here = told[kernel][:len(found[kernel])]
        occupancy = COMPILED - 1
        if f"nvcc {version}" in page and found[kernel] != told_here:
            yield f"{kernel}: the page says {told_here}, the compiler {found[kernel]}"
        elif int(found[kernel][occupancy].split()[0]) < int(told_here[occupancy].split()[0]):
            yield f"{kernel}: an occupancy of {found[kernel][occupancy]}, the page says {told_here}"


def main(nvcc, images, writes):
    nvdisasm = find_nvdisasm(nvcc)
    rows, spilling = measure(nvcc, nvdisasm)
    if rows is None:
        print("1..0 # SKIP nvcc does not compile here")
        return 77
    with open(PAGE) as file:
        page = file.read()
    if writes:
        if not nvdisasm:
            sys.exit("no nvdisasm: pip install nvidia-cuda-nvdisasm, or put it on the PATH")
        table = HEAD + [f"| `{kernel}` | " + " | ".join(map(str, cells)) + " |"
                        for kernel, cells in sorted(rows.items())]
        page = re.sub(r"\| kernel.*\n(\|.*\n)*", "\n".join(table) + "\n", page)
        page = re.sub(r"nvcc [\d.]+\d", f"nvcc {version_of(nvcc)}", page)
        with open(PAGE, "w") as file:
            file.write(page)
    faults = list(find_faults(rows, spilling, page, version_of(nvcc)))
    for fault in faults:
        print(f"# {fault}")
    if not nvdisasm:
        print("# no nvdisasm: instructions and bandwidth are not compared")
    print("not " * bool(faults) + "ok 1 - the_page_says_what_the_compiler_makes")
    lacks = list(find_lacks(nvcc, images))
    for lack in lacks:
        print(f"# {lack}")
    print("not " * bool(lacks) + "ok 2 - images_have_code_for_what_nvcc_knows\n1..2")
    return 1 if faults or lacks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], [name for name in sys.argv[2:] if name != "--write"],
                  "--write" in sys.argv))
