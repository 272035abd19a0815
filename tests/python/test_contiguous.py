"""test_contiguous.py - a module's parameters and gradients in one range: what stays as it was, what is
found where something moved, and what is refused."""

import copy
import io
import os
import re
import subprocess
import sys
import warnings

from cases import SOURCE, case, refusal, run, same, torch
import ashlar.torch
from ashlar.torch._contiguous import ALIGN, _is_packed
from torch import nn


class Tied(nn.Module):
    """A language model whose output layer is its embedding, with a layer in another type."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.rnn = nn.LSTM(8, 8, 2, bidirectional=True, proj_size=4)
        self.output = nn.Linear(8, 11, bias=False)
        self.output.weight = self.embedding.weight
        self.wide = nn.Linear(11, 3).double()

    def forward(self, x):
        return self.wide(self.output(self.rnn(self.embedding(x))[0]).double())


def loss_of(module, seed=0):
    x = torch.randint(11, (5, 3), generator=torch.Generator().manual_seed(seed))
    return module(x).square().mean()


def same_state(a, b):
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


@case
def parameters_keep_names_values_and_objects():
    module = Tied()
    before, objects = copy.deepcopy(module.state_dict()), dict(module.named_parameters())
    arena = ashlar.torch.contiguous(module)
    assert same_state(module.state_dict(), before)
    assert all(objects[name] is p for name, p in module.named_parameters())
    assert module.output.weight is module.embedding.weight and arena.module is module
    arena.check()


@case
def parameters_and_gradients_lie_in_the_modules_order_one_range_for_each_type():
    arena = ashlar.torch.contiguous(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2).double(),
                                                  nn.Linear(2, 70)))
    names = [place.name for place in arena.places]
    assert names == ["0.weight", "0.bias", "2.weight", "2.bias", "1.weight", "1.bias"], names
    at = 0
    for place in arena.places:
        p = place.parameter
        assert p.data_ptr() == arena.values.data_ptr() + at and p.data_ptr() % ALIGN == 0
        assert p.grad.data_ptr() == arena.gradients.data_ptr() + at
        at += -(-p.numel() * p.element_size() // ALIGN) * ALIGN
    assert at == arena.values.numel() == arena.gradients.numel()
    assert arena.ranges == {torch.float32: (0, 1792), torch.float64: (1792, 2304)}


@case
def a_write_to_the_range_is_one_to_the_parameters_and_the_reverse():
    module = nn.Linear(4, 3)
    arena = ashlar.torch.contiguous(module)
    flat, = arena.flat()
    with torch.no_grad():
        flat.fill_(2)
        module.bias[1] = 7
    assert module.weight.eq(2).all() and flat[ALIGN // 4 + 1] == 7
    flat.grad.fill_(3)
    assert module.weight.grad.eq(3).all()


@case
def gradients_add_up_in_their_places_and_are_those_of_a_copy():
    module = Tied()
    other = copy.deepcopy(module)
    arena = ashlar.torch.contiguous(module)
    for m in module, other:
        loss_of(m, 1).backward()
        loss_of(m, 2).backward()
    arena.check()
    for p, q in zip(module.parameters(), other.parameters()):
        assert same(p.grad, q.grad, 1e-6)
    arena.zero_grad()
    assert all(not p.grad.any() for p in module.parameters())
    arena.check()


@case
def gradients_that_were_there_are_kept():
    module = nn.Linear(4, 3)
    module(torch.ones(2, 4)).sum().backward()
    before = module.weight.grad.clone()
    ashlar.torch.contiguous(module)
    assert torch.equal(module.weight.grad, before)


@case
def recurrent_layers_lie_as_cudnn_wants_them_and_are_not_flattened_again():
    calls, original = [], nn.RNNBase.flatten_parameters
    try:
        nn.RNNBase.flatten_parameters = lambda layer: calls.append(layer)
        for layer in (nn.LSTM(3, 5, 2, bidirectional=True, proj_size=2), nn.GRU(3, 5, bias=False),
                      nn.RNN(4, 4, 3)):
            calls.clear()
            assert not _is_packed(layer)
            arena = ashlar.torch.contiguous(nn.Sequential(nn.Linear(2, 2), layer))
            names = [place.name for place in arena.places[2:]]
            kinds = [name[2] for name in names]  # weights, and then biases
            assert kinds == sorted(kinds, reverse=True)
            matrices = [w for names in layer._all_weights for w in names if w[0] == "w"]
            assert [name[2:] for name in names][:len(matrices)] == matrices
            assert _is_packed(layer)
            layer.flatten_parameters()
            assert not calls
            layer.double()  # other memory: PyTorch's own flatten_parameters() is called
            assert calls == [layer] and not _is_packed(layer)
    finally:
        nn.RNNBase.flatten_parameters = original


@case
def cudnn_finds_room_for_biases_in_a_layer_without():
    layer = nn.GRU(3, 5, 2, bias=False)
    ashlar.torch.contiguous(layer)
    weights = sum(w.numel() for w in layer.parameters())
    assert layer.weight_ih_l0.untyped_storage().nbytes() == 4 * (weights + 2 * 2 * 3 * 5)


@case
def what_moved_is_found_by_name_and_mended():
    module = Tied()
    arena = ashlar.torch.contiguous(module)
    loss_of(module).backward()
    for move, said in (
            (lambda: setattr(module.wide.bias, "data", torch.ones(3).double()),
             "wide.bias lies outside"),
            (lambda: module.wide.zero_grad(), "wide.weight has no gradient"),
            (lambda: setattr(module.wide.bias, "grad", torch.ones(3).double()),
             "the gradient of wide.bias lies outside")):
        arena.check()
        move()
        assert said in refusal(ashlar.torch.Moved, arena.check)
        wanted = module.wide.bias.detach().clone()
        arena.check(mend=True)
        assert torch.equal(module.wide.bias, wanted) and arena.mend() == []
    assert module.wide.bias.grad.eq(1).all() and not module.wide.weight.grad.any()


@case
def what_goes_into_other_memory_as_it_is_comes_back():
    module = nn.Linear(3, 3)
    arena = ashlar.torch.contiguous(module)
    with torch.no_grad():
        module.share_memory().bias.fill_(3)
    assert "weight lies outside" in refusal(ashlar.torch.Moved, arena.check)
    assert len(arena.mend()) == 4
    arena.values.zero_()
    assert not module.bias.any() and not arena.mend()
    module.bias.grad.data = torch.ones(3)
    assert arena.mend() == ["the gradient of bias lies outside"]
    assert arena.gradients.view(torch.float32).sum() == 3


@case
def other_parameters_than_the_arenas_are_named_and_need_a_new_one():
    def replaced(m):
        m.wide.bias = nn.Parameter(torch.zeros(3).double())

    def gone(m):
        m.wide.bias = None

    for change, said in ((replaced, "wide.bias is another Parameter now"),
                         (lambda m: m.add_module("more", nn.Linear(1, 1)), "more.weight is new"),
                         (gone, "wide.bias is gone"),
                         (lambda m: m.wide.float(), "wide.weight has dtype torch.float32")):
        module = Tied()
        arena = ashlar.torch.contiguous(module)
        change(module)
        for function in arena.check, arena.mend:
            line = refusal(ashlar.torch.Moved, function)
            assert said in line and "contiguous(module)" in line, line
        ashlar.torch.contiguous(module).check()


@case
def state_is_saved_and_loaded_in_place():
    module, other = Tied(), Tied()
    arena = ashlar.torch.contiguous(module)
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    module.load_state_dict(torch.load(file))
    arena.check()
    assert same_state(module.state_dict(), other.state_dict())
    file = io.BytesIO()
    torch.save({"bias": module.state_dict()["wide.bias"]}, file)
    assert len(file.getvalue()) < 2000, len(file.getvalue())  # not the whole range


@case
def loading_by_assignment_is_found():
    module = nn.Linear(3, 3)
    arena = ashlar.torch.contiguous(module)
    module.load_state_dict(copy.deepcopy(module.state_dict()), assign=True)
    assert "another Parameter" in refusal(ashlar.torch.Moved, arena.check)


@case
def a_deep_copy_is_a_module_of_its_own():
    module = Tied()
    arena = ashlar.torch.contiguous(module)
    other = copy.deepcopy(module)
    with torch.no_grad():
        arena.values.zero_()
    assert same_state(other.state_dict(), copy.deepcopy(other).state_dict())
    assert other.wide.weight.any() and not module.wide.weight.any()
    ashlar.torch.contiguous(other).check()
    assert "state_dict" in refusal(TypeError, copy.deepcopy, arena)


@case
def moves_that_change_nothing_and_hooks_go_on_working():
    module, seen = nn.Linear(3, 2), []
    module.weight.register_hook(lambda g: seen.append("hook"))
    module.weight.register_post_accumulate_grad_hook(lambda p: seen.append("after"))
    module.register_forward_hook(lambda *given: seen.append("forward"))
    arena = ashlar.torch.contiguous(module)
    module.to("cpu").float()
    module(torch.ones(1, 3)).sum().backward()
    assert seen == ["forward", "hook", "after"]
    arena.check()


@case
def frozen_parameters_have_no_gradient_and_may_change_their_mind():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[0].requires_grad_(False)
    arena = ashlar.torch.contiguous(module)
    assert module[0].weight.grad is None and module[1].weight.grad is not None
    arena.check()
    assert "0.weight" in refusal(ValueError, arena.flat)
    module[0].requires_grad_()
    module(torch.ones(1, 3)).sum().backward()
    arena.check(mend=True)
    assert module[0].weight.grad is arena.places[0].gradient and module[0].weight.grad.any()


@case
def images_channels_scalars_and_empty_parameters_keep_their_form():
    module = nn.Sequential(nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
                           nn.Conv3d(2, 2, 2), nn.PReLU())
    module.nothing = nn.Parameter(torch.zeros(0, 3))
    module.one = nn.Parameter(torch.tensor(2.5))
    module.transposed = nn.Parameter(torch.arange(6.).view(2, 3).t())
    before, form = copy.deepcopy(module.state_dict()), module[0].weight.stride()
    arena = ashlar.torch.contiguous(module)
    assert same_state(module.state_dict(), before)
    assert module[0].weight.stride() == form == module[0].weight.grad.stride()
    module[1](module[0](torch.ones(1, 4, 9, 9))[:, :2, None].expand(-1, -1, 3, -1, -1)).sum().backward()
    arena.check()


@case
def modules_that_cannot_be_laid_out_are_refused_by_a_line():
    shared = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    shared[1].weight.data = shared[0].weight.data
    meta = nn.Linear(2, 2).to("meta")
    for module, said in ((nn.ReLU(), "no parameters"), (shared, "1.weight shares memory with 0.weight"),
                         (nn.LazyLinear(3), "parameter weight has no shape yet"), (meta, "on meta")):
        assert said in refusal(ValueError, ashlar.torch.contiguous, module)
    assert "give a module" in refusal(TypeError, ashlar.torch.contiguous, shared.parameters())


@case
def a_second_arena_takes_the_parameters_from_the_first():
    module = nn.Linear(3, 3)
    first = ashlar.torch.contiguous(module)
    second = ashlar.torch.contiguous(module)
    second.check()
    assert "lies outside" in refusal(ashlar.torch.Moved, first.check)


@case
def a_replica_is_refreshed_by_one_copy():
    module = Tied()
    arena = ashlar.torch.contiguous(module)
    replica = arena.replicate("cpu")
    replica.check()
    assert same_state(replica.module.state_dict(), module.state_dict())
    with torch.no_grad():
        for p in module.parameters():
            p.add_(1)
    weight = replica.module.wide.weight
    squares = weight * weight
    replica.refresh(arena)
    assert same_state(replica.module.state_dict(), module.state_dict())
    assert "modified by an inplace operation" in refusal(RuntimeError, squares.sum().backward)
    assert "the arenas differ" in refusal(ValueError, replica.refresh,
                                          ashlar.torch.contiguous(nn.Linear(2, 2)))


@case
def what_moved_is_mended_before_it_is_copied_or_added():
    module = nn.Linear(2, 3)
    arena = ashlar.torch.contiguous(module)
    replica = arena.replicate("cpu")
    for m in module, replica.module:
        nn.utils.vector_to_parameters(torch.randn(9), m.parameters())
    replica.refresh(arena)
    assert same_state(replica.module.state_dict(), module.state_dict())
    for count in 1, 2:
        for m in module, replica.module:
            m.zero_grad()
            m(torch.ones(count, 2)).sum().backward()
        arena.add_gradients(replica)
        assert module.bias.grad.eq(2 * count).all()


@case
def data_parallel_steps_of_two_replicas_are_those_of_the_whole_batch():
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    whole = copy.deepcopy(module)
    arena = ashlar.torch.contiguous(module)
    replica = arena.replicate("cpu")
    x = torch.randn(6, 4)
    for part, m in ((x[:3], arena.module), (x[3:], replica.module)):
        (m(part).sum() / 6).backward()
    arena.add_gradients(replica)
    assert not replica.gradients.any()
    (whole(x).sum() / 6).backward()
    assert all(same(p.grad, q.grad, 1e-6) for p, q in zip(module.parameters(), whole.parameters()))


class Branches(nn.Module):
    """Two inputs, of which one may miss, a buffer, and results of several kinds."""

    def __init__(self):
        super().__init__()
        self.rnn, self.norm = nn.LSTM(4, 6, batch_first=True), nn.BatchNorm1d(6, momentum=0.1)
        self.head, self.frozen = nn.Linear(6, 2), nn.Linear(6, 2).requires_grad_(False)

    def forward(self, x, shift=None, factor=1.0):
        y = self.norm(self.rnn(x)[0][:, -1])
        y = y if shift is None else y + shift[:, None]
        return {"y": factor * self.head(y), "more": (self.frozen(y).sum(), x.shape[1])}


def parallel_losses(model, optimizer, norm):
    """Of 6 steps: two forward passes before a backward pass, and steps with several passes."""
    losses = []
    for seed in range(6):
        norm.train(False)  # its statistics would be those of a piece
        draw = torch.Generator().manual_seed(seed)
        x, shift = torch.randn(7, 3, 4, generator=draw), torch.randn(7, generator=draw)
        first, second = model(x, shift, factor=2.0), model(x)
        assert first["more"][1] == 3
        loss = first["y"].square().mean() + (second["y"] * second["y"].detach()).mean()
        (loss + first["more"][0].sum() / 100).backward()
        model(x[:1])["y"].mean().backward()  # fewer rows than devices, and a second backward pass
        with torch.no_grad():
            norm.running_mean.add_(0.1)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


@case
def data_parallel_trains_as_the_module_alone():
    module = Branches()
    other = copy.deepcopy(module)
    wanted = parallel_losses(other, torch.optim.AdamW(
        [p for p in other.parameters() if p.requires_grad], 1e-2), other.norm)
    for make in (lambda p: ashlar.torch.AdamW(p.arena, 1e-2),
                 lambda p: torch.optim.AdamW([q for q in p.parameters() if q.requires_grad], 1e-2)):
        parallel = ashlar.torch.DataParallel(copy.deepcopy(module), ["cpu"] * 3)
        places = [arena.values.data_ptr() for arena in parallel.arenas]
        replicas, add = [], parallel.arena.add_gradients
        parallel.arena.add_gradients = lambda replica: (replicas.append(replica), add(replica))
        losses = parallel_losses(parallel, make(parallel), parallel.module.norm)
        assert replicas == 12 * parallel.arenas[1:]  # of two backward passes in each of 6 steps
        assert same(losses, wanted, 1e-6), (losses, wanted)
        assert all(same(p, q, 1e-6) for p, q in zip(parallel.parameters(), other.parameters()))
        assert [arena.values.data_ptr() for arena in parallel.arenas] == places
        for arena in parallel.arenas:
            arena.check(mend=True)
        assert set(parallel.state_dict()) == {"module." + name for name in other.state_dict()}


@case
def data_parallel_follows_its_module_and_refuses_what_it_cannot_cut():
    parallel = ashlar.torch.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.Dropout()), ["cpu"] * 2)
    linear, x = parallel.module[0], torch.randn(4, 4)
    parallel.eval()
    with torch.no_grad():
        linear.bias.zero_()
    parallel(x)
    linear.weight.data = torch.eye(4)  # outside, without a trace in its version
    assert torch.equal(parallel(x), x)
    linear.bias.requires_grad_(False)
    parallel(x).sum().backward()
    assert same(linear.weight.grad, x.sum(0).expand(4, 4), 1e-6)
    assert not linear.bias.grad.any()
    linear.weight.grad = None
    parallel(x).sum().backward()
    assert same(linear.weight.grad, x.sum(0).expand(4, 4), 1e-6)
    parallel.arena.check()
    assert "one size, not [1, 4]" in refusal(ValueError, parallel, x, x[:1])
    assert "not []" in refusal(ValueError, parallel)
    assert "first device, meta" in refusal(ValueError, ashlar.torch.DataParallel, linear, ["meta"])


@case
def an_optimizer_of_pytorchs_runs_over_the_flat_range():
    for make in (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), torch.optim.AdamW,
                 torch.optim.RMSprop):
        module = Tied()
        other = copy.deepcopy(module)
        flat, one_by_one = make(ashlar.torch.contiguous(module).flat()), make(other.parameters())
        for i in range(5):
            for m, optimizer in ((module, flat), (other, one_by_one)):
                loss_of(m, i).backward()
                optimizer.step()
                (m if i == 2 else optimizer).zero_grad()
        assert all(same(p, q, 1e-6) for p, q in zip(module.parameters(), other.parameters()))
        first = copy.deepcopy(flat).param_groups[0]["params"][0]
        assert first.grad is None and torch.equal(first, flat.param_groups[0]["params"][0])


@case
def what_the_page_prints_runs():
    with open(SOURCE + "/docs/pytorch.md") as page:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read(), re.M | re.S)
    assert len(blocks) == 6
    names = {}
    for block in blocks:
        exec(block, names)
    names["arena"].check()


@case
def the_example_learns():
    done = subprocess.run([sys.executable, SOURCE + "/examples/torch_contiguous.py"], text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    said = re.fullmatch(r"loss (\S+), then (\S+); 6 parameters in \d+ bytes\n", done.stdout)
    assert done.returncode == 0 and float(said[2]) < 0.1 * float(said[1]), done.stdout


@case
def nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = Tied()
        ashlar.torch.contiguous(module)
        loss_of(module).backward()


run()
