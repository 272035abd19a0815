"""What PyTorch asks of an allocator, asked of ours by PyTorch itself: torch_calls.py LIBRARY

LIBRARY is libashlar-torch.so. One process has it for all memory, another one in a pool beside
PyTorch's own allocator. What is looked at was copied, so that a device that runs no kernels will
do. Status: 0, 1, or 77 where there is no PyTorch that sees a GPU.
"""

import gc
import os
import subprocess
import sys
import threading
import traceback

from torch_lstm import ashlar_torch

MIB = 1 << 20
TOO_MUCH = 1 << 50


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def raises(error, words, call):
    try:
        call()
    except error as raised:
        return words in str(raised)
    return False


# Both ways in.

class Ours:
    """The library, and what it says of a device's bytes."""

    def __init__(self, path):
        self.path = path
        os.environ["ASHLAR_TORCH"] = path

    def bytes_of(self, device=0):
        return ashlar_torch.stats(device)

    def live(self, device=0):
        gc.collect()
        return self.bytes_of(device).live


def zeros(torch, count):
    """By a copy: some versions of PyTorch fill by a kernel."""
    return torch.zeros(count).cuda()


def copies_are_right(torch, number, count):
    """Through memory of several streams, some of it freed while another stream still reads it."""
    own, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(own):
        for i in range(count):
            given = torch.full((10007 * (i % 7 + 1),), float(number * count + i))
            first = given.cuda()
            other.wait_stream(own)
            with torch.cuda.stream(other):
                second = first.clone()
            first.record_stream(other)
            del first
            third = zeros(torch, len(given))
            pinned = given.pin_memory().cuda(non_blocking=True)
            # What is asked for last may have been overwritten meanwhile.
            is_right = not third.cpu().any() and torch.equal(pinned.cpu(), given)
            other.synchronize()
            if not is_right or not torch.equal(second.cpu(), given):
                return False
    return True


# All memory of the process.

def memory_is_ours_and_comes_back(torch, ours):
    before = ours.live()
    tensor = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    expect(ours.live() == before + MIB, "live bytes with a tensor")
    address = tensor.data_ptr()
    del tensor
    expect(ours.live() == before, "live bytes without it")
    tensor = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    expect(tensor.data_ptr() == address, "the same memory is had again")
    tensor.untyped_storage().resize_(3 * MIB)
    expect(ours.live() == before + 3 * MIB, "live bytes of a storage that grew")
    expect(torch.empty(0, device="cuda").data_ptr() == 0, "an empty tensor has none")


def copies_of_8_threads_are_right(torch, ours):
    right = [False] * 8

    def work(number):
        right[number] = copies_are_right(torch, number, 40)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(right))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(all(right), "copies")


def every_device_has_its_own(torch, ours):
    last = torch.cuda.device_count() - 1
    before = ours.live(last)
    tensor = torch.ones(MIB).to("cuda:%d" % last)
    expect(ours.live(last) == before + 4 * MIB, "live bytes of the last device")
    expect(torch.equal(tensor.to("cuda:0").cpu(), torch.ones(MIB)), "a copy between devices")


def too_much_is_an_error_that_says_so(torch, ours):
    expect(raises(torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate",
                  lambda: torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")), "no error")


def a_fraction_bounds_it(torch, ours):
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(32 * MIB / total)
    expect(raises(RuntimeError, "limit",
                  lambda: torch.empty(33 * MIB, dtype=torch.uint8, device="cuda")), "no limit")
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(33 * MIB, dtype=torch.uint8, device="cuda")


def an_emptied_cache_holds_nothing(torch, ours):
    gc.collect()
    torch.cuda.empty_cache()
    expect(ours.live() == 0 and ours.bytes_of().reserved == 0, "bytes are left")


def captured(torch, work, **options):
    """A graph, and what `work` returns in its capture."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        result = work()
    return graph, result


def graphs_keep_their_memory(torch, ours):
    given = torch.ones(MIB).cuda()

    def work():
        for _ in range(4):  # what it frees is had again
            passing = torch.empty_like(given)
            passing.copy_(given)
        return passing.clone()

    before = ours.live()
    graph, result = captured(torch, work)
    kept = ours.live() - before # with what a generator has of each capture
    expect(4 * MIB <= kept < 5 * MIB, "live bytes of the result")
    for value in (2.0, 3.0):
        given.copy_(torch.full(given.shape, value))
        others = [zeros(torch, MIB) for _ in range(8)]
        graph.replay()
        expect(float(result.cpu().min()) == value == float(result.cpu().max()), "the result")
        expect(not any(other.cpu().any() for other in others), "memory of others has changed")
    torch.cuda.synchronize()


def graphs_of_one_pool_share_it(torch, ours):
    gc.collect()
    torch.cuda.empty_cache()
    given = torch.full((8 * MIB,), 7.0).cuda()

    def work():
        passing = given.clone()
        return passing[:MIB].clone()

    first, one = captured(torch, work)
    reserved = ours.bytes_of().reserved
    graphs = [captured(torch, work, pool=first.pool()) for _ in range(3)]
    graphs.append(captured(torch, work, pool=first.pool(), stream=torch.cuda.Stream()))
    expect(ours.bytes_of().reserved <= reserved + 32 * MIB, "memory of further graphs")
    results = [one] + [result for _, result in graphs]
    expect(len({result.data_ptr() for result in results}) == 5, "two results in one place")
    for i, graph in enumerate([first] + [graph for graph, _ in graphs]):
        given.copy_(torch.full(given.shape, 10.0 + i))
        graph.replay()
    torch.cuda.synchronize()
    expect([float(result.cpu().max()) for result in results] == [10.0 + i for i in range(5)],
           "the results")


def a_capture_may_have_several_streams(torch, ours):
    given = torch.full((MIB,), 3.0).cuda()
    side = torch.cuda.Stream()

    def work():
        side.wait_stream(torch.cuda.current_stream())
        first = given.clone()
        with torch.cuda.stream(side):
            second = given.clone()
            passing = second.clone()
            third = passing.clone()
            del passing
        torch.cuda.current_stream().wait_stream(side)
        return first, second, third

    graph, results = captured(torch, work)
    given.copy_(torch.full(given.shape, 4.0))
    graph.replay()
    torch.cuda.synchronize()
    expect(all(float(result.cpu().min()) == 4.0 for result in results), "the results")


def a_capture_that_fails_leaves_nothing(torch, ours):
    gc.collect()
    before = ours.live()

    def work():
        torch.empty(MIB, device="cuda")
        torch.cuda.synchronize()

    expect(raises(RuntimeError, "", lambda: captured(torch, work)), "no error")
    expect(raises(torch.OutOfMemoryError, "CUDA out of memory",
                  lambda: captured(torch, lambda: torch.empty(TOO_MUCH, device="cuda"))), "memory")
    expect(torch.equal(torch.ones(MIB).cuda().cpu(), torch.ones(MIB)), "a copy after it")
    given = zeros(torch, MIB)
    graph, result = captured(torch, given.clone)
    graph.replay()
    expect(not result.cpu().any(), "a capture after it")
    del graph, given, result
    for _ in range(3):
        expect(raises(RuntimeError, "", lambda: captured(torch, torch.cuda.synchronize)), "no error")
    expect(ours.live() == before, "bytes are left")


def memory_of_graphs_that_are_gone_is_had_again(torch, ours):
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    held = ours.bytes_of().reserved
    torch.cuda.set_per_process_memory_fraction((held + 96 * MIB) / total)
    for _ in range(8):
        graph, result = captured(torch, lambda: torch.zeros(16 * MIB, device="cuda"))
        graph.replay()
        del graph, result
    torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)


def pytorchs_getters_tell_of_ours(torch, ours):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    expect(torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0, "at first")
    tensors = [torch.empty(MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
    reserved = torch.cuda.memory_reserved()
    expect(torch.cuda.memory_allocated() == 5 * MIB and reserved >= 5 * MIB, "with five tensors")
    del tensors[2:]
    expect(torch.cuda.memory_allocated() == 2 * MIB, "with two")
    expect(torch.cuda.max_memory_allocated() == 5 * MIB, "the peak")
    expect(torch.cuda.max_memory_reserved() == reserved, "the peak of what is reserved")
    told = torch.cuda.memory_stats()
    expect([told["allocation.all." + name] for name in ("current", "allocated", "freed")]
           == [2, 5, 3], "blocks")
    torch.cuda.reset_peak_memory_stats()
    expect(torch.cuda.max_memory_allocated() == 2 * MIB, "the peak since then")
    try:
        torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    expect(torch.cuda.memory_stats()["num_ooms"] == 1, "failures")
    expect("Allocated memory" in torch.cuda.memory_summary(), "the summary")


def a_forked_child_ends_well(torch, ours):
    tensor = torch.empty(MIB, device="cuda")
    child = os.fork()
    if child == 0:
        del tensor
        os._exit(0)
    expect(os.waitpid(child, 0)[1] == 0, "the child")


# A pool beside PyTorch's own allocator.

def a_pool_takes_from_us_what_it_carves(torch, ours):
    pool = ashlar_torch.pool(ours.path)
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.ones(MIB).cuda()
        held = ours.live()
        expect(held >= 4 * MIB, "live bytes with a tensor of the pool")
        expect(raises(torch.OutOfMemoryError, "CUDA out of memory",
                      lambda: torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")), "no error")
    other = zeros(torch, 8 * MIB)
    expect(ours.live() == held, "memory outside of the pool is not ours")
    expect(torch.equal(tensor.cpu(), torch.ones(MIB)) and not other.cpu().any(), "copies")
    graph, result = captured(torch, tensor.clone, pool=pool.id)
    graph.replay()
    expect(torch.equal(result.cpu(), torch.ones(MIB)), "what a graph in the pool copies")
    del graph, result, tensor, pool
    gc.collect()
    torch.cuda.empty_cache()
    expect(ours.live() == 0, "bytes are left")


MODES = {
    "all": [memory_is_ours_and_comes_back, copies_of_8_threads_are_right, every_device_has_its_own,
            too_much_is_an_error_that_says_so, a_fraction_bounds_it, graphs_keep_their_memory,
            graphs_of_one_pool_share_it, a_capture_may_have_several_streams,
            a_capture_that_fails_leaves_nothing, memory_of_graphs_that_are_gone_is_had_again,
            an_emptied_cache_holds_nothing, pytorchs_getters_tell_of_ours, a_forked_child_ends_well],
    "pool": [a_pool_takes_from_us_what_it_carves],
}


def run(mode, path):
    """In a process of its own, since an allocator is chosen once."""
    import torch
    ours, failed = Ours(path), 0
    if mode == "all":
        ashlar_torch.use(path)
    for case in MODES[mode]:
        try:
            case(torch, ours)
            print("ok -", case.__name__)
        except Exception:
            traceback.print_exc()
            print("not ok -", case.__name__)
            failed += 1
    return 1 if failed else 0


def main(path):
    try:
        import torch
    except ImportError as error:
        print("no PyTorch: %s" % error)
        return 77
    if torch.cuda.device_count() == 0:
        print("this PyTorch sees no GPU")
        return 77
    failed = [mode for mode in MODES
              if subprocess.run([sys.executable, __file__, "--" + mode, path]).returncode != 0]
    print("PyTorch %s: %s" % (torch.__version__, "failed: " + ", ".join(failed) if failed else
                              "%d cases" % sum(map(len, MODES.values()))))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1].startswith("--"):
        sys.exit(run(sys.argv[1][2:], sys.argv[2]))
    sys.exit(main(sys.argv[1]))
