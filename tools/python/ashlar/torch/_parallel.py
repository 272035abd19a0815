"""_parallel - a module on several devices, by replicas that stay."""

import torch
from torch.utils import _pytree as pytree

from ._contiguous import Arena, contiguous


class DataParallel(torch.nn.Module):
    """torch.nn.DataParallel, whose replicas stay: one copy refreshes each when the module has
    changed, and behind a backward pass one addition for each type brings its gradients back.

        parallel = DataParallel(module, ["cuda:0", "cuda:1"])  # or its arena, which is on the first
        optimizer = AdamW(parallel.arena)

    Tensors are cut along `dim`, where all have one size, and results joined, or stacked if 0-d."""

    def __init__(self, module, devices, dim=0):
        super().__init__()
        self.arena = arena = module if isinstance(module, Arena) else contiguous(module)
        if torch.empty(0, device=devices[0]).device != arena.values.device:
            raise ValueError("DataParallel: the module is not on the first device, %s" % devices[0])
        self.arenas = [arena, *map(arena.replicate, devices[1:])]
        self.module, self.dim, self._state, self._is_due = arena.module, dim, None, False

    def forward(self, *args, **named):
        tensors = [*filter(torch.is_tensor, pytree.tree_flatten((args, named))[0])]
        sizes, count, results = {t.size(self.dim) for t in tensors}, len(self.arenas), []
        if len(sizes) != 1:
            raise ValueError("DataParallel: give tensors of one size, not %s" % sorted(sizes))
        moved, had, self._is_due = self.arena.settle(), self._state, False
        self._state = self.arena.state()
        for replica in self.arenas[1:] if moved or self._state != had else ():
            replica.refresh(self.arena)  # not always: a backward pass may need what is there
        for i, (arena, _) in enumerate(zip(self.arenas, tensors[0].chunk(count, self.dim))):
            own, more = pytree.tree_map(lambda t: t.chunk(count, self.dim)[i].to(
                arena.values.device, non_blocking=True) if torch.is_tensor(t) else t, (args, named))
            with torch.cuda.device(arena.values.get_device()):  # of a CPU -1, which changes nothing
                results.append(arena.module(*own, **more))
        return pytree.tree_map(self._join, *results)

    def _join(self, first, *others):
        if not torch.is_tensor(first):
            return first
        whole = (torch.cat if first.dim() else torch.stack)(
            [t.to(first.device, non_blocking=True) for t in (first, *others)], self.dim)
        if whole.requires_grad:
            whole.register_hook(self._begin_backward)
        return whole

    def _begin_backward(self, _):
        if not self._is_due:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
        self._is_due = True

    def _end_backward(self):
        self._is_due = False
        self.arena.mend()
        for replica in self.arenas[1:]:
            self.arena.add_gradients(replica)
