"""_contiguous - a module's parameters and gradients as views into one range each; its replicas."""

import copy

import torch
from torch import nn

ALIGN = 256  # bytes, of every parameter or recurrent layer: ASHLAR_ARENA_ALIGN
SHOWN = 3    # defects that an error names


class Moved(RuntimeError):
    """A parameter or gradient no longer lies in its arena."""


# ---- recurrent layers ----

def _packed_order(rnn):
    """[(parameter, offset)] of a recurrent layer's weights in cuDNN's order, and all elements:
    the matrices of all layers and directions, then all biases, for which cuDNN leaves room where
    there are none. None: its weights are not all parameters of their own, of one type."""
    names = [name for names in rnn._all_weights for name in names]
    weights = [getattr(rnn, name, None) for kind in ("weight", "bias") for name in names
               if name.startswith(kind)]
    if not (all(isinstance(w, nn.Parameter) for w in weights) and
            len({id(w) for w in weights}) == len(weights) and len({w.dtype for w in weights}) == 1):
        return None
    order, at = [], 0
    for weight in weights:
        order.append((weight, at))
        at += weight.numel()
    return order, at + (0 if rnn.bias else 2 * len(rnn._all_weights) * weights[0].shape[0])


def _is_packed(rnn):
    """Whether cuDNN takes the weights as they lie: in order, in a storage that begins with them."""
    order, elements = _packed_order(rnn) or ([], 0)
    first = order[0][0] if order else torch.empty(0)
    width = first.element_size()
    return bool(order) and (
        first.storage_offset() == 0 and first.untyped_storage().nbytes() >= elements * width and
        all(w.is_contiguous() and w.data_ptr() == first.data_ptr() + at * width for w, at in order))


def _keep_packed():
    """Let flatten_parameters() do nothing where it would move weights from one pack to another."""
    flatten = nn.RNNBase.flatten_parameters
    if not hasattr(flatten, "before_ashlar"):
        def flatten_parameters(self):
            if not _is_packed(self):
                flatten(self)
        flatten_parameters.__doc__, flatten_parameters.before_ashlar = flatten.__doc__, flatten
        nn.RNNBase.flatten_parameters = flatten_parameters


# ---- where parameters lie ----

class Place:
    """Where a parameter of an arena and its gradient lie."""

    def __init__(self, name, parameter, offset):
        self.name, self.parameter, self.offset = name, parameter, offset  # bytes, in its group
        form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(parameter.dim())
        is_dense = form and parameter.is_contiguous(memory_format=form)
        self.stride = (parameter if is_dense else parameter.detach().to(
            "meta", memory_format=torch.contiguous_format)).stride()
        self.value = self.gradient = None  # tensors, set by Arena

    def view(self, memory):
        return memory.as_strided(self.parameter.shape, self.stride,
                                 self.offset // self.parameter.element_size())

    def lies_here(self):
        p, value = self.parameter, self.value
        return (p.data_ptr() == value.data_ptr() and p.dtype == value.dtype and
                p.shape == value.shape and p.stride() == self.stride and p.device == value.device)


class Group:
    """Parameters that lie side by side: a recurrent layer's, or one."""

    def __init__(self, places, elements):
        self.places, self.dtype = places, places[0].parameter.dtype
        self.begin, self.bytes = 0, elements * self.dtype.itemsize  # from the range's start
        self.tensors = ()  # its parts of the ranges

    def cut(self, memory):
        """Its part of a range, in a storage of its own, as cuDNN and torch.save() want it."""
        return torch.from_dlpack(memory[self.begin:self.begin + self.bytes].view(self.dtype))


def new_range(count, device):
    """`count` bytes of zeros, aligned."""
    memory = torch.zeros(count + ALIGN, dtype=torch.uint8, device=device)
    skip = -memory.data_ptr() % ALIGN
    return memory[skip:skip + count]


def _why_not(p, first):
    """Why a parameter cannot lie beside the module's first; None: it can."""
    if isinstance(p, nn.parameter.UninitializedTensorMixin):
        return "has no shape yet; run the module once before"
    if type(p.data) is not torch.Tensor:
        return "is a %s; FSDP and others lay out parameters themselves" % type(p.data).__name__
    if p.layout != torch.strided or p.device.type not in ("cpu", "cuda"):
        return "is %s on %s; take dense ones on a CPU or a CUDA device" % (p.layout, p.device)
    if p.device != first.device:
        return "is on %s and the first on %s; take one device" % (p.device, first.device)
    return None


def _check_parameters(named):
    bad = [(name, why) for name, p in named for why in [_why_not(p, named[0][1])] if why]
    spans = [] if bad else sorted(
        (p.data_ptr(), p.data_ptr() + p.numel() * p.element_size(), name)
        for name, p in named if p.numel())
    bad += [(name, "shares memory with %s and is another Parameter; tie by one Parameter" % owner)
            for (_, end, owner), (begin, _, name) in zip(spans, spans[1:]) if begin < end]
    if bad or not named:
        raise ValueError("contiguous: " + ("parameter %s %s" % bad[0] if bad else
                                           "the module has no parameters"))


def _find_groups(module, named):
    """The groups: types in the order of their first parameters, and those in the module's order."""
    packs, groups, done = {}, [], set()
    for layer in module.modules():
        found = isinstance(layer, nn.RNNBase) and _packed_order(layer)
        if found and not any(id(p) in packs for p, _ in found[0]):
            packs.update((id(p), found) for p, _ in found[0])
    names = {id(p): name for name, p in named}
    for _, p in named:
        if id(p) not in done and p.numel():
            order, elements = packs.get(id(p), ([(p, 0)], p.numel()))
            groups.append(Group([Place(names[id(q)], q, at * q.element_size()) for q, at in order],
                                elements))
            done.update(id(q) for q, _ in order)
    dtypes = list(dict.fromkeys(group.dtype for group in groups))
    return sorted(groups, key=lambda group: dtypes.index(group.dtype))


class _Flat(nn.Parameter):
    """A range as a Parameter. Its gradient stays the arena's: what sets None leaves zeros."""

    arena = None  # that of a deep copy

    @property
    def grad(self):
        if self.arena:
            self.arena.settle()
            self.arena.put_back()
        return super().grad

    @grad.setter
    def grad(self, given):
        own = super().grad
        if own is None:
            torch.Tensor.grad.__set__(self, given)
        else:
            own.zero_() if given is None else own.copy_(given)


class Arena:
    """All parameters of a module, and their gradients, as views into one range each: type by type
    in the module's order, recurrent layers in cuDNN's. Parameters stay the same objects, with their
    values, names and hooks.

    `module`; `values` and `gradients`, the two ranges, as bytes; `ranges`: by type, from which byte
    to which; `groups` and `places`, in the order of addresses."""

    def __init__(self, module):
        if not isinstance(module, nn.Module):
            raise TypeError("contiguous: give a module, not a %s" % type(module).__name__)
        named = list(module.named_parameters())
        _check_parameters(named)
        self.module, self.groups, self.ranges, at = module, _find_groups(module, named), {}, 0
        for group in self.groups:
            group.begin = at
            at += -(-group.bytes // ALIGN) * ALIGN
            self.ranges[group.dtype] = self.ranges.get(group.dtype, (group.begin,))[0], at
        self.places = [place for group in self.groups for place in group.places]
        self.values, self.gradients = (new_range(at, named[0][1].device) for _ in range(2))
        self.settle()
        self.put_back()
        _keep_packed()

    def __reduce__(self):
        raise TypeError("an arena is not copied or saved; copy its module and call contiguous() on "
                        "that, or save the module's state_dict()")

    def _cut(self):
        """Make the places' tensors, anew where share_memory() or `grad.data = ...` took them along."""
        for group in self.groups:
            where = [memory.data_ptr() + group.begin for memory in (self.values, self.gradients)]
            if where != [tensor.data_ptr() for tensor in group.tensors]:
                group.tensors = group.cut(self.values), group.cut(self.gradients)
            for place in group.places:
                if place.value is None or place.gradient.data_ptr() != where[1] + place.offset:
                    place.value, place.gradient = map(place.view, group.tensors)

    @torch.no_grad()
    def settle(self):
        """Copy values and gradients that lie elsewhere into their places; returns these places."""
        self._cut()
        moved = [place for place in self.places if not place.lies_here() or (
            place.parameter.grad is not None and place.parameter.grad is not place.gradient)]
        if moved and self._defects()[0]:
            self.check()
        for place in moved:
            p = place.parameter
            if not place.lies_here():
                place.value.copy_(p)
                p.data = place.value
            if p.grad is not None and p.grad is not place.gradient:
                place.gradient.copy_(p.grad.to_dense() if p.grad.is_sparse else p.grad)
                p.grad = place.gradient
        return moved

    def _defects(self):
        """What is not as contiguous() left it: lines for what mend() cannot mend, and others."""
        self._cut()
        known, unfit, moved = {place.name: place for place in self.places}, [], []
        now = {name: p for name, p in self.module.named_parameters() if p.numel()}
        for name in {**known, **now}:
            p, place = now.get(name), known.get(name)
            if p is None or place is None or p is not place.parameter:
                unfit.append(name + (" is gone" if p is None else " is new" if place is None
                                     else " is another Parameter now"))
                continue
            unfit.extend("%s has %s %s, not %s" % (name, what, getattr(p, what),
                                                   getattr(place.value, what))
                         for what in ("device", "dtype", "shape")
                         if getattr(p, what) != getattr(place.value, what))
            if not place.lies_here():
                moved.append(name + " lies outside (its .data was replaced)")
            if p.grad is None and p.requires_grad:
                moved.append(name + " has no gradient (zero_grad(set_to_none=True)?)")
            elif p.grad is not None and p.grad is not place.gradient:
                moved.append("the gradient of %s lies outside" % name)
        return unfit, moved

    def check(self, mend=False):
        """Raise Moved, with names, if a parameter or gradient no longer lies in the arena. mend:
        copy back what lies elsewhere, make gradients that were set to None zeros, and return a line
        for each; raise only where that cannot help."""
        unfit, moved = self._defects()
        lines = unfit or moved
        if unfit or moved and not mend:
            more = " and %d more" % (len(lines) - SHOWN) if len(lines) > SHOWN else ""
            raise Moved("arena: %s%s; %s" % ("; ".join(lines[:SHOWN]), more, "mend() puts it back"
                                             if lines is moved else "call contiguous(module) again"))
        self.settle()
        self.put_back()
        return moved

    def mend(self):
        """check(mend=True)"""
        return self.check(mend=True)

    def flat(self):
        """One Parameter for each type, with its gradient: for any optimizer that treats elements
        one by one. The padding between parameters is 0, and so is its gradient."""
        for place in self.places:
            if not place.parameter.requires_grad:
                raise ValueError("flat: %s requires no gradient, and would be updated with the "
                                 "rest; take ashlar.torch's optimizers" % place.name)
        result = []
        for dtype, (begin, end) in self.ranges.items():
            result.append(_Flat(self.values[begin:end].view(dtype)))
            result[-1].grad, result[-1].arena = self.gradients[begin:end].view(dtype), self
        return result

    def zero_grad(self, places=None):
        """Fill all gradients with zeros, in one pass, or those of `places`."""
        if places is None or len(places) == len(self.places):
            self.gradients.zero_()
        else:
            torch._foreach_zero_([place.gradient for place in places])
        self.put_back(places)

    def put_back(self, places=None):
        """Make gradients that were set to None, or lie elsewhere, zeros of the arena's."""
        for place in self.places if places is None else places:
            if place.parameter.requires_grad and place.parameter.grad is not place.gradient:
                place.parameter.grad = place.gradient.zero_()

    def changed(self):
        """Let autograd know that all parameters were written to."""
        parameters = [place.parameter for place in self.places]
        try:
            torch.autograd.graph.increment_version(parameters)
        except RuntimeError:  # PyTorch 2.4 takes one at a time
            for p in parameters:
                torch.autograd.graph.increment_version(p)

    def replicate(self, device):
        """An arena of a copy of the module on `device`, for refresh()."""
        return Arena(copy.deepcopy(self.module).to(device))

    def state(self):
        """What refresh() takes over, in numbers that differ from others if it has changed."""
        tensors = (*self.module.parameters(), *self.module.buffers())
        return ([(t._version, t.requires_grad) for t in tensors],
                [layer.training for layer in self.module.modules()])

    @torch.no_grad()
    def refresh(self, source):
        """Make parameters, by one copy, buffers, and what is frozen or in training, those of
        `source`, an arena of an equal module."""
        if [(g.begin, g.bytes, g.dtype) for g in self.groups] != [
                (g.begin, g.bytes, g.dtype) for g in source.groups]:
            raise ValueError("refresh: the arenas differ; make one by replicate()")
        self.settle()
        source.settle()
        self.values.copy_(source.values, non_blocking=True)
        ours, theirs = self.module, source.module
        for own, other in zip(ours.parameters(), theirs.parameters()):
            own.requires_grad_(other.requires_grad)
        for own, other in zip(ours.buffers(), theirs.buffers()):
            own.copy_(other, non_blocking=True)
        for own, other in zip(ours.modules(), theirs.modules()):
            own.training = other.training
        self.changed()

    def add_gradients(self, replica):
        """Add a replica's gradients to those here, by one copy and one addition for each type, and
        leave zeros there."""
        for arena in self, replica:
            arena.settle()
            arena.put_back()
        theirs = replica.gradients.to(self.gradients.device, non_blocking=True)
        for dtype, (begin, end) in self.ranges.items():
            self.gradients[begin:end].view(dtype).add_(theirs[begin:end].view(dtype))
        replica.zero_grad()


contiguous = Arena
