"""check_kernels.py - hold docs/kernels.md to what ptxas says of our kernels, and images to what nvcc
has: check_kernels.py NVCC [IMAGE.fatbin ...]

Compiles for every architecture that images have: no kernel may spill. Of sm_90 the page has threads,
registers, shared memory, blocks and occupancy of each kernel. With the compiler that it names these
must be what is found; with another one, no kernel may have a smaller occupancy. Status: 0, 1, 77
where NVCC does not compile.
"""

import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "kernels.md")
SOURCES = ["arena/optimizer/optimizer_cuda.cu", "rnn/cuda/ops_cuda.cu"]
COMPILED = 5  # columns that are ptxas's
# A multiprocessor of sm_90: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications".
WARPS, BLOCKS, REGISTERS, SHARED, SHARED_OF_SYSTEM = 64, 32, 65536, 228 << 10, 1 << 10
# Ampere and Hopper, which the kernels' images have code for, and Blackwell in data centres and
# elsewhere, which the driver compiles for.
CODES = 80, 90, 100, 120
IN_IMAGES = 80, 90


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
    kind = "DECIDE" if kernel == "decide" else "MUON" if re.match("muon_(begin|product)", kernel) else "CHUNK"
    return known[f"ASHLAR_{kind}_THREADS"]


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


def measure(nvcc):
    """Rows by kernel, and the kernels that spill."""
    rows, spilling, known = {}, [], constants()
    for source in SOURCES:
        command = [nvcc, "-std=c++17", "-fmad=false", "-Xptxas", "-v", "-fatbin", "-I",
                   os.path.join(ROOT, "include"), "-I", ROOT, os.path.join(ROOT, source)]
        for code in known_codes(nvcc):
            command += ["-gencode", f"arch=compute_{code},code=sm_{code}"]
        with tempfile.TemporaryDirectory() as folder:
            status, text = run(command + ["-o", os.path.join(folder, "a.fatbin")])
        if status != 0:
            return None, None
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
    known = set(known_codes(nvcc)) & set(IN_IMAGES)
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
        told_here = told[kernel][:COMPILED]
        occupancy = COMPILED - 1
        if f"nvcc {version}" in page and found[kernel] != told_here:
            yield f"{kernel}: the page says {told_here}, the compiler {found[kernel]}"
        elif int(found[kernel][occupancy].split()[0]) < int(told_here[occupancy].split()[0]):
            yield f"{kernel}: an occupancy of {found[kernel][occupancy]}, the page says {told_here}"


def main(nvcc, images):
    rows, spilling = measure(nvcc)
    if rows is None:
        print("1..0 # SKIP nvcc does not compile here")
        return 77
    with open(PAGE) as file:
        faults = list(find_faults(rows, spilling, file.read(), version_of(nvcc)))
    lacks = list(find_lacks(nvcc, images))
    for fault in faults + lacks:
        print(f"# {fault}")
    print("not " * bool(faults) + "ok 1 - the_page_says_what_the_compiler_makes")
    print("not " * bool(lacks) + "ok 2 - images_have_code_for_what_nvcc_knows\n1..2")
    return 1 if faults or lacks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
