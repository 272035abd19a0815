"""_layers - nn.LSTM, nn.GRU and nn.RNN, computed on the CPU by ashlar's passes.

Constructors, parameters, state_dict, what forward() takes and returns are PyTorch's. What ashlar
does not compute (other devices and types, autocast, dropout=1, empty batches, transforms of
torch.func, forward-mode derivatives, what torch.compile or torch.jit traces) goes to PyTorch's own
forward().
"""

import ctypes
import functools
import sys
import weakref
from ctypes import byref

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence

from .._library import function, lend_threads, structure

# ---- structures and constants of ashlar/rnn.h ----

DTYPES = {torch.float32: 0, torch.float64: 1}
CELLS = {"LSTM": 0, "GRU": 1, "RNN_TANH": 2, "RNN_RELU": 3}
BIAS = {True: 0, False: 1}  # double, none
W, R, BW, BR, WP = range(5)

_size, _pointer = ctypes.c_size_t, ctypes.c_void_p
_CONFIG = ("size input hidden layers; int dtype cell bias; size directions projection;"
           "double dropout; int math algorithm")
Config, View = structure(_CONFIG), structure("size offset rows cols")
Layout = structure(_CONFIG + "; size gates state output pseudo_layers elements")
Batch = structure("size steps batch; pointer lengths; bool dropout_restarts; u64 dropout_seed;"
                  "size dropout_first dropout_stride; bool padding_is_free is_packed")
Buffers = structure(
    "pointer reserve work x hx cx weights y hy cy dy dhy dcy dx dhx dcx dweights prepared")

_create = function("rnn_create", "pointer pointer pointer")
_destroy = function("rnn_destroy", "pointer", "void")
_layout_of = function("rnn_layout_of", "pointer", ctypes.POINTER(Layout))
_layout_view = function("rnn_layout_view", "pointer size int", View)
_sizes = function("rnn_sizes", "pointer size size bool pointer pointer")
_forward, _backward_data, _backward_weights = (
    function("rnn_" + name, "pointer pointer pointer pointer")
    for name in ("forward", "backward_data", "backward_weights"))


# ---- a stack's passes over tensors ----

def _unseen(function):
    """The function, which torch.compile() must not trace for its ctypes; some versions of PyTorch
    call forward() as it is and trace what that calls. The compiler takes seconds to import, and is
    not before the program uses it."""
    hidden = torch._disable_dynamo(function)

    @functools.wraps(function)
    def call(*given):
        return (hidden if "torch._dynamo" in sys.modules else function)(*given)
    return call


def _pop(blocks):
    try:  # another thread may be faster
        return blocks.pop()
    except IndexError:
        return None


def _take(blocks, size):
    """A block that was given back, if it is large enough, for the pages of new ones are slow. There
    are never more than were in use at once."""
    block = _pop(blocks)
    return block if block is not None and block.numel() >= size else (
        torch.empty(size, dtype=torch.uint8))


class Stack:
    """A stack of layers, without weights: an ashlar_rnn, with the blocks that its passes use."""

    def __init__(self, mode, inputs, hidden, layers, bias, directions, projection, dropout, dtype):
        self.rnn, self.dtype, self.hidden = _pointer(), dtype, hidden
        _create(None, byref(Config(
            inputs, hidden, layers, DTYPES[dtype], CELLS[mode], BIAS[bias], directions, projection,
            dropout)), byref(self.rnn))
        weakref.finalize(self, _destroy, self.rnn)
        layout = _layout_of(self.rnn)
        self.layout, self.has_cells, self.drops = layout.contents, mode == "LSTM", dropout > 0
        self.offsets = [_layout_view(layout, p, tensor).offset
                        for p in range(self.layout.pseudo_layers)
                        for tensor in [W, R] + [BW, BR] * bias + [WP] * (projection > 0)]
        self.reserves, self.works = [], []  # given back

    def split(self, flat, weights):
        """A flat tensor's views, one for each of PyTorch's list of weights."""
        return [flat[at:at + w.numel()].view(w.shape) for at, w in zip(self.offsets, weights)]

    def pack(self, weights):
        """A tensor that begins where all weights lie in order: the first, or that of a copy."""
        begin, item = weights[0].data_ptr(), self.dtype.itemsize
        if all(w.data_ptr() == begin + at * item and w.is_contiguous()
               for at, w in zip(self.offsets, weights)):
            return weights[0]
        flat = torch.empty(self.layout.elements, dtype=self.dtype)
        for own, w in zip(self.split(flat, weights), weights):
            own.copy_(w)
        return flat

    def run(self, compute_pass, batch, reserve, **tensors):
        """A pass on a reserve: None for inference, True for another one. Returns the reserve."""
        reserve_size, work_size = _size(), _size()
        _sizes(self.rnn, batch.steps, batch.batch, reserve is not None, byref(reserve_size),
               byref(work_size))
        if reserve is True:
            reserve = _take(self.reserves, reserve_size.value)
        work = _take(self.works, work_size.value)
        tensors.update(reserve=reserve, work=work)
        lend_threads(torch.get_num_threads())
        compute_pass(self.rnn, byref(batch), byref(Buffers(
            **{name: t.data_ptr() for name, t in tensors.items() if t is not None})), None)
        self.works.append(work)
        return reserve

    def forward(self, batch, reserve, x, h, c, weights):
        """Outputs, last states, and the reserve."""
        L, B = self.layout.pseudo_layers, batch.batch
        y, hy = x.new_empty(*x.shape[:-1], self.layout.output), x.new_empty(L, B, self.layout.state)
        cy = x.new_empty(L, B, self.hidden) if self.has_cells else None
        return y, hy, cy, self.run(_forward, batch, reserve, x=x, hx=h, cx=c,
                                   weights=self.pack(weights), y=y, hy=hy, cy=cy)


_stack = functools.lru_cache(maxsize=256)(Stack)
_is_batched = torch._C._functorch.is_legacy_batchedtensor  # of vmap, by which is_grads_batched works


class Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, stack, batch, x, h, c, *weights):
        y, hy, cy, reserve = stack.forward(batch, True, x, h, c, weights)
        ctx.stack, ctx.batch, ctx.reserves = stack, batch, [reserve]
        ctx.save_for_backward(x, h, c, *weights)
        ctx.set_materialize_grads(False)
        return y, hy, cy

    @staticmethod
    @_unseen
    def backward(ctx, *outputs):
        if torch.is_grad_enabled() or any(map(_is_batched, filter(torch.is_tensor, outputs))):
            raise RuntimeError("ashlar.torch's layers have no second derivatives, nor batched ones; call "
                               "backward without create_graph and is_grads_batched, or use those of "
                               "torch.nn")
        stack, batch, needs = ctx.stack, ctx.batch, ctx.needs_input_grad[2:]
        x, h, c, *weights = ctx.saved_tensors
        dy, dhy, dcy = (d if d is None else d.contiguous() for d in outputs)
        dx, dh, dc = (torch.empty_like(t) if is_needed else None
                      for t, is_needed in zip((x, h, c), needs))
        reserve, dweights = _pop(ctx.reserves), [None] * len(weights)
        if reserve is None:  # spent by an earlier backward
            reserve = stack.forward(batch, True, x, h, c, weights)[-1]
        stack.run(_backward_data, batch, reserve, weights=stack.pack(weights), dy=dy, dhy=dhy,
                  dcy=dcy, dx=dx, dhx=dh, dcx=dc)
        if any(needs[3:]):
            flat = x.new_zeros(stack.layout.elements)
            stack.run(_backward_weights, batch, reserve, x=x, dweights=flat)
            dweights = stack.split(flat, weights)
        stack.reserves.append(reserve)
        return None, None, dx, dh, dc, *dweights


def _reorder(states, order):
    return tuple(s if order is None else s.index_select(1, order) for s in states)


class _Mixin:
    """What is ours in LSTM, GRU and RNN, before PyTorch's own class in the order of look-up.
    `_forward` is that class's forward(), by a name that torch.compile can follow."""

    def _stack(self):
        drops = self.training and self.num_layers > 1 and self.dropout < 1
        return _stack(self.mode, self.input_size, self.hidden_size, self.num_layers, self.bias,
                      1 + self.bidirectional, self.proj_size, self.dropout * drops,
                      self._flat_weights[0].dtype)

    def _are_ours(self, kinds, tensors):
        """Whether ashlar can read the weights, and such tensors."""
        dtype = self._flat_weights[0].dtype
        return dtype in DTYPES and all(type(t) in kinds and t.is_cpu and t.dtype == dtype
                                       for t in (*self._flat_weights, *tensors))

    def flatten_parameters(self):
        """Give the parameters one range, in the order of the passes, which is cuDNN's; weights that
        do not lie so are copied at each call. Those that share memory, such as an arena's or tied
        ones, stay where they are."""
        weights = self._flat_weights
        if len(weights) < len(self._flat_weights_names) or not all(
                isinstance(w, nn.Parameter) for w in weights) or not self._are_ours(
                (nn.Parameter,), ()) or len({id(w) for w in weights}) < len(weights) or any(
                w.untyped_storage().nbytes() != w.nbytes for w in weights):
            return super().flatten_parameters()
        stack = self._stack()
        flat = weights[0].new_empty(stack.layout.elements)
        for view, w in zip(stack.split(flat, weights), weights):
            view.copy_(w.data)
            w.data = view

    def __setstate__(self, state):
        super().__setstate__(state)
        self.flatten_parameters()  # deepcopy() copies parameters one by one

    def forward(self, input, hx=None):
        if (torch.compiler.is_compiling() or torch.jit.is_tracing() or
                torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0):
            return self._forward(input, hx)
        self._update_flat_weights()
        is_packed = isinstance(input, PackedSequence)
        x, sizes, order, unsorted = input if is_packed else (input, None, None, None)
        states = () if hx is None else tuple(hx) if self.mode == "LSTM" else (hx,)
        if (not self._are_ours((torch.Tensor, nn.Parameter), (x, *states)) or not x.numel() or
                self.dropout == 1 or torch.is_autocast_enabled("cpu")):
            return self._forward(input, hx)
        is_single, time = not is_packed and x.dim() == 2, int(self.batch_first)
        if is_single:
            x, states = x.unsqueeze(1 - time), [s.unsqueeze(1) for s in states]
        y, *states = self._compute(x, sizes, _reorder(states, order))
        states = _reorder(states, unsorted)
        if is_packed:
            y = PackedSequence(y, sizes, order, unsorted)
        elif is_single:
            y, states = y.squeeze(1 - time), tuple(s.squeeze(1) for s in states)
        return y, states if self.mode == "LSTM" else states[0]

    @_unseen
    def _compute(self, x, sizes, states):
        self.check_input(x, sizes)
        count, stack = self.get_expected_hidden_size(x, sizes)[1], self._stack()
        widths = (stack.layout.state, stack.hidden)[:1 + stack.has_cells]
        if states and len(states) != len(widths):
            raise ValueError("%d states instead of %d" % (len(states), len(widths)))
        for s, width in zip(states, widths):
            self.check_hidden_size(s, (stack.layout.pseudo_layers, count, width))
        is_swapped = self.batch_first and sizes is None
        x = (x.transpose(0, 1) if is_swapped else x).contiguous()
        h, c = (*(s.contiguous() for s in states), None, None)[:2]
        lengths = [len(x)] * count if sizes is None else (
            (sizes.unsqueeze(1) > torch.arange(count)).sum(0).tolist())
        lengths = (ctypes.c_int32 * count)(*lengths)
        batch = Batch(steps=len(x) if sizes is None else len(sizes), batch=count,
                      lengths=ctypes.addressof(lengths), is_packed=sizes is not None)
        batch.owner = lengths
        if stack.drops:
            batch.dropout_seed = torch.empty((), dtype=torch.int64).random_().item()
        if torch.is_grad_enabled() and any(
                t is not None and t.requires_grad for t in (x, h, c, *self._flat_weights)):
            y, *states = Layers.apply(stack, batch, x, h, c, *self._flat_weights)
        else:  # what drops does it in the reserve
            y, *states, reserve = stack.forward(batch, stack.drops or None, x, h, c,
                                                self._flat_weights)
            if reserve is not None:
                stack.reserves.append(reserve)
        return y.transpose(0, 1) if is_swapped else y, *states[:len(widths)]


LSTM, GRU, RNN = (
    type(base.__name__, (_Mixin, base), {
        "_forward": base.forward, "__doc__": "torch.nn.%s, on the CPU by ashlar." % base.__name__})
    for base in (nn.LSTM, nn.GRU, nn.RNN))
