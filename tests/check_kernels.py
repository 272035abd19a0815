"""check_kernels.py - hold docs/kernels.md to what ptxas says of our kernels: check_kernels.py NVCC

Compiles for sm_80. With the compiler that the page names, its table must be what is found; with
another one, no kernel may spill or have a smaller occupancy. --write makes the table anew. Status:
0, 1, 77 where NVCC does not compile.
"""

import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "kernels.md")
SOURCES = ["arena/optimizer/optimizer_cuda.cu", "rnn/layer/ops_cuda.cu"]
HEAD = ["| kernel | threads | registers | shared, bytes | blocks on a multiprocessor | occupancy |",
        "|---|---|---|---|---|---|"]
# A multiprocessor of sm_80: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications".
WARPS, BLOCKS, REGISTERS, SHARED, SHARED_OF_SYSTEM = 64, 32, 65536, 164 << 10, 1 << 10


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
    """What ptxas says, or None."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, "-cubin", "-arch=sm_80", "-std=c++17", "-fmad=false", "-Xptxas", "-v",
             "-I", os.path.join(ROOT, "include"), "-I", ROOT, "-o",
             os.path.join(folder, "a.cubin"), os.path.join(ROOT, source)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode == 0 else None


def measure(nvcc):
    """Rows by kernel, and the kernels that spill."""
    rows, spilling, known = {}, [], constants()
    for source in SOURCES:
        text = compile_one(nvcc, source)
        if text is None:
            return None, None
        for part in re.split(r"Compiling entry function '", text)[1:]:
            kernel = re.sub(r"^ashlar_kernel_", "", part.split("'")[0])
            registers = int(re.search(r"Used (\d+) registers", part)[1])
            shared = int((re.search(r"(\d+) bytes smem", part) or ["0", "0"])[1])
            threads = threads_of(source, kernel, known)
            blocks = blocks_of(threads, registers, shared)
            share = 100 * blocks * -(-threads // 32) // WARPS
            rows[kernel] = [threads, registers, shared, blocks, f"{share} %"]
            if re.search(r"[1-9]\d* bytes spill", part):
                spilling.append(kernel)
    return rows, spilling


def version_of(nvcc):
    text = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True).stdout
    return re.search(r"V(\d+\.\d+\.\d+)", text)[1]


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


def main(nvcc, writes):
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
    print("not " * bool(faults) + "ok 1 - the_page_says_what_ptxas_says\n1..1")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--write" in sys.argv))
