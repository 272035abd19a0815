"""test_layers.py - ashlar.torch's LSTM, GRU and RNN beside PyTorch's: outputs, gradients, and what a
module of PyTorch's does."""

import copy
import threading

from cases import case, refusal, run, same, torch
import ashlar.torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

T, B, I, H = 5, 3, 4, 6
FLOAT, LENGTHS = 1e-6, [3, 5, 1]
FROZEN = ["weight_ih_l0", "weight_hh_l1", "bias_hh_l0"]
TIED = {"weight_hh_l1": "weight_hh_l0", "bias_ih_l1": "bias_hh_l1"}
MODELS = {
    "plain": {},
    "bidirectional": dict(cell="GRU", bidirectional=True, has_states=True),
    "stacked tanh": dict(cell="RNN", num_layers=3, has_states=True),
    "relu without bias": dict(cell="RNN", nonlinearity="relu", bias=False, bidirectional=True),
    "projected": dict(num_layers=2, bidirectional=True, proj_size=2, has_states=True),
    "packed": dict(num_layers=2, bidirectional=True, lengths=LENGTHS, has_states=True),
    "packed, batch first": dict(cell="GRU", batch_first=True, lengths=LENGTHS),
    "batch first": dict(num_layers=2, batch_first=True, has_states=True),
    "unbatched": dict(num_layers=2, batch=[], has_states=True),
    "dropout, evaluated": dict(cell="GRU", num_layers=2, dropout=0.5),
    "frozen": dict(num_layers=2, frozen=FROZEN),
    "tied": dict(num_layers=2, tied=TIED),
}


def drawn(seed, shape, dtype):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


class Model(nn.Module):
    """A layer from `kinds`, which is torch.nn or ashlar.torch."""

    def __init__(self, kinds, name, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(5)
        options = dict(MODELS[name])
        cell, self.lengths = options.pop("cell", "LSTM"), options.pop("lengths", None)
        self.batch, self.has_states = options.pop("batch", [B]), options.pop("has_states", False)
        frozen, tied = options.pop("frozen", ()), options.pop("tied", {})
        self.rnn = getattr(kinds, cell)(I, H, dtype=dtype, **options).train("evaluated" not in name)
        for weight in frozen:
            getattr(self.rnn, weight).requires_grad_(False)
        for weight, other in tied.items():
            setattr(self.rnn, weight, getattr(self.rnn, other))

    def draw(self):
        """x, then h and c where the model takes them."""
        rnn, widths = self.rnn, (self.rnn.proj_size or H, H)[:1 + (self.rnn.mode == "LSTM")]
        states = rnn.num_layers * (1 + rnn.bidirectional)
        shapes = [[B, T, I] if rnn.batch_first else [T, *self.batch, I]] + [
            [states, *self.batch, width] for width in widths * self.has_states]
        return [drawn(6, s, rnn.weight_ih_l0.dtype).requires_grad_() for s in shapes]

    def forward(self, x, *states):
        if self.lengths:
            x = pack_padded_sequence(x, self.lengths, self.rnn.batch_first, enforce_sorted=False)
        y, last = self.rnn(x, None if not states else states if len(states) > 1 else states[0])
        y = y.data if isinstance(y, PackedSequence) else y
        return (y, *last) if isinstance(last, tuple) else (y, last)


def results(model, *inputs, times=1):
    """Outputs, and the gradients of inputs and parameters, the mean of so many backward passes."""
    inputs = inputs or model.draw()
    outputs = model(*inputs)
    loss = sum((y * drawn(7, y.shape, y.dtype)).sum() for y in outputs)
    for _ in range(times):
        loss.backward(retain_graph=True)
    return [*outputs, *(t.grad if t.grad is None else t.grad / times
                        for t in (*inputs, *model.parameters()))]


def all_same(got, wanted, tolerance=FLOAT):
    return len(got) == len(wanted) and all(
        (a is None) == (b is None) and (a is None or same(a, b, tolerance))
        for a, b in zip(got, wanted))


def lies_in_order(rnn):
    with torch.no_grad():
        return rnn._stack().pack(rnn._flat_weights) is rnn._flat_weights[0]


@case
def outputs_and_gradients_are_pytorchs_with_the_same_seed_also_of_a_second_backward():
    for name in MODELS:
        wanted = results(Model(nn, name))
        for times in 1, 3:
            assert all_same(results(Model(ashlar.torch, name), times=times), wanted), (name, times)


@case
def gradients_in_double_precision_are_those_of_the_outputs():
    for name in MODELS:
        model = Model(ashlar.torch, name, torch.float64)
        inputs, trained = model.draw(), {n: w.detach().requires_grad_() for n, w
                                         in model.named_parameters() if w.requires_grad}

        def function(*given):
            named = dict(zip(trained, given[len(inputs):]))
            return torch.func.functional_call(model, named, given[:len(inputs)])
        assert torch.autograd.gradcheck(function, (*inputs, *trained.values())), name


@case
def backward_is_refused_in_a_line_where_it_cannot_be_right():
    model = Model(ashlar.torch, "plain")
    x, = model.draw()
    y = model(x)[0].sum()
    assert "no second derivatives" in refusal(RuntimeError, torch.autograd.grad, y, x,
                                              create_graph=True)
    y = model(x)[0]
    assert "nor batched ones" in refusal(RuntimeError, torch.autograd.grad, y, x,
                                         torch.ones(2, *y.shape), is_grads_batched=True)
    y = model(x)[0].sum()
    y.backward()
    assert "second time" in refusal(RuntimeError, y.backward)
    y = model(x)[0].sum()
    with torch.no_grad():
        model.rnn.weight_hh_l0.mul_(2)
    assert "modified by an inplace operation" in refusal(RuntimeError, y.backward)


@case
def only_what_requires_gradients_gets_them_and_hooks_see_them():
    model, seen = Model(ashlar.torch, "bidirectional").requires_grad_(False), []
    x, h = model.draw()
    model(x.detach(), h)[0].sum().backward()
    assert h.grad.abs().sum() > 0 and x.grad is None
    assert all(p.grad is None for p in model.parameters())
    assert not model(x.detach(), h.detach())[0].requires_grad
    p = model.rnn.bias_ih_l0.requires_grad_()
    p.register_hook(lambda g: seen.append("gradient"))
    p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.shape))
    model.rnn.register_forward_hook(lambda *_: seen.append("forward"))
    model(x.detach(), h.detach())[1].sum().backward()  # of the states alone
    assert [n for n, p in model.rnn.named_parameters() if p.grad is not None] == ["bias_ih_l0"]
    assert seen == ["forward", "gradient", p.shape], seen


@case
def reserves_are_used_again_and_not_taken_without_gradients():
    ours, its = Model(ashlar.torch, "plain"), Model(nn, "plain")
    stack = ours.rnn._stack()
    stack.reserves.clear()
    with torch.no_grad():
        assert all_same(ours(*ours.draw()), its(*its.draw())) and not stack.reserves
    for steps in (4, 9, 2, 9, 5):
        x = torch.randn(steps, 2, I)
        assert all_same(results(ours, x), results(its, x), 1e-5), steps
    assert len(stack.reserves) == 1 == len(stack.works)


@case
def dropout_draws_from_pytorchs_generator():
    rnn = ashlar.torch.RNN(32, 32, 2, nonlinearity="relu", dropout=0.25)
    for name, w in rnn.named_parameters():  # so that only dropout changes x
        nn.init.eye_(w.data) if "weight_ih" in name else nn.init.zeros_(w.data)
    x = torch.ones(40, 50, 32, requires_grad=True)
    torch.manual_seed(3)
    first, other = rnn(x)[0], rnn(x)[0]
    torch.manual_seed(3)
    with torch.no_grad():
        assert torch.equal(rnn(x)[0], first) and not torch.equal(first, other)
    kept = (first.detach() > 0).float()
    assert same(first, kept / 0.75, FLOAT) and abs(kept.mean() - 0.75) < 0.01
    assert all(abs(kept.mean(dim=d) - 0.75).max() < 0.1 for d in ((0, 1), (0, 2), (1, 2)))
    for _ in range(2):
        gradient, = torch.autograd.grad(first.sum(), x, retain_graph=True)
        assert same(gradient, kept / 0.75, FLOAT)
    assert torch.equal(rnn.eval()(x)[0], x)


@case
def weights_lie_in_order_and_are_saved_and_loaded_as_pytorchs():
    ours, its = Model(ashlar.torch, "projected"), Model(nn, "projected")
    rnn = ours.rnn
    assert lies_in_order(rnn) and lies_in_order(copy.deepcopy(rnn)) and lies_in_order(rnn.double())
    nn.init.normal_(its.rnn.weight_ih_l1)
    rnn.float().load_state_dict(its.rnn.state_dict())
    assert lies_in_order(rnn) and all_same(results(ours), results(its))
    nn.init.normal_(rnn.weight_hr_l1)
    its.load_state_dict(ours.state_dict())
    rnn.load_state_dict(its.rnn.state_dict(), assign=True)
    assert all_same(ours(*ours.draw()), its(*its.draw()))
    arena = ashlar.torch.contiguous(Model(ashlar.torch, "projected"))
    arena.check()
    assert lies_in_order(arena.module.rnn)
    assert not lies_in_order(Model(ashlar.torch, "tied").rnn)
    ours, its = (Model(kinds, "stacked tanh") for kinds in (ashlar.torch, nn))
    for w in ours.rnn.weight_hh_l0, its.rnn.weight_hh_l0:
        w.data = w.data.t()  # where it was, in another order
    assert not lies_in_order(ours.rnn) and all_same(results(ours), results(its))


@case
def what_does_not_fit_is_refused_in_a_line():
    rnn, x = ashlar.torch.LSTM(I, H), torch.randn(T, B, I)
    h, c = torch.zeros(1, B, H), torch.zeros(1, B, H)
    assert "torch.float64" in refusal(ValueError, rnn, x.double())
    assert "input_size" in refusal(RuntimeError, rnn, x[..., 1:])
    assert "Expected hidden size" in refusal(RuntimeError, rnn, x, (h, c[:, 1:]))
    assert "1 states" in refusal(ValueError, rnn, x, (h,))
    refusal(RuntimeError, rnn, x, (h.double(), c))


class First(nn.Module):
    def forward(self, outputs):
        return outputs[0]


@case
def what_ashlar_does_not_compute_is_pytorchs():
    def outputs(kinds):
        torch.manual_seed(1)
        rnn, x = kinds.GRU(I, H), torch.randn(T, B, I)
        with torch.autocast("cpu", torch.bfloat16):
            narrow = rnn(x)[0]
        traced = torch.jit.trace(rnn, x)(x)[0]
        deaf = kinds.GRU(I, H, 2, dropout=1.0)(x)[0]
        slope = torch.func.grad(lambda x: rnn(x)[0].sum())(x)
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(rnn(forward_ad.make_dual(x, x))[0]).tangent
        return narrow, traced, deaf, slope, tangent, rnn(x[:, :0])[0], rnn.bfloat16()(x.bfloat16())[0]
    ours, its = outputs(ashlar.torch), outputs(nn)
    assert all(map(torch.equal, ours, its)) and [y.dtype for y in ours] == [y.dtype for y in its]


@case
def compiled_modules_train_like_pytorchs():
    def trained(kinds):  # older versions leave recurrent layers as they are: to ashlar
        torch.manual_seed(1)
        module, x = nn.Sequential(kinds.LSTM(I, H), First(), nn.Linear(H, 2)), torch.randn(T, B, I)

        def step():
            loss = module(x).square().mean()
            loss.backward()
            return loss
        for compute in torch.compile(step, backend="eager"), step:
            loss = compute()
        return [loss] + [p.grad for p in module.parameters()]
    assert all_same(trained(ashlar.torch), trained(nn))


@case
def threads_train_at_the_same_time():
    wanted, wrong = results(Model(ashlar.torch, "projected")), []
    models = [Model(ashlar.torch, "projected") for _ in range(3)]

    def train(model):
        for _ in range(20):
            model.zero_grad()
            wrong.extend([] if all_same(results(model), wanted) else [model])
    threads = [threading.Thread(target=train, args=[model]) for model in models]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


run()
